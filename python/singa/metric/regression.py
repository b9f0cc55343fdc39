"""Metrics of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import distributed
from .base import Metric, as_array, divided, wrong_shapes


class R2(Metric):
    """Coefficient of determination 1 - Σ (y - x)² / Σ (y - mean of y)², of predictions x for
    targets y of the same shape: (N), or (N, K) with the mean over the K outputs.

    An output whose targets are all equal counts as 1 if its predictions are right, otherwise 0, as
    in scikit-learn.

    >>> r2 = metric.R2()
    >>> r2.update(np.array([2.5, 0.0, 2.0, 8.0]), np.array([3.0, -0.5, 2.0, 7.0]))
    >>> round(r2.compute(), 4)
    0.9486
    """

    _moments: tuple[Any, ...] | None

    def __init__(self) -> None:
        self.reset()

    def update(self, x: Any, y: Any) -> None:
        """Adds a batch. Raises ValueError for another shape, or another number of outputs."""
        predictions, targets = as_array(x).astype(np.float64), as_array(y).astype(np.float64)
        if predictions.shape != targets.shape or targets.ndim not in (1, 2):
            raise wrong_shapes("R2", predictions, targets)
        predictions, targets = (a.reshape(len(a), -1) for a in (predictions, targets))
        if len(targets):
            mean = targets.mean(0)
            squares = ((targets - mean) ** 2).sum(0)
            errors = ((targets - predictions) ** 2).sum(0)
            self._moments = _merged(self._moments, (float(len(targets)), mean, squares, errors))

    def compute(self) -> float:
        """The coefficient, at most 1. Raises ValueError if nothing was added."""
        mine = None
        if self._moments is not None:
            mine = [self._moments[0], *[part.tolist() for part in self._moments[1:]]]
        moments: tuple[Any, ...] | None = None
        for parts in distributed.gather(mine):
            if parts is not None:
                moments = _merged(moments, (parts[0], *[np.array(part) for part in parts[1:]]))
        if moments is None:
            raise self._nothing()
        _, _, squares, errors = moments
        flat = np.where(errors == 0, 1.0, 0.0)
        return float(np.where(squares > 0, 1 - divided(errors, squares), flat).mean())

    def reset(self) -> None:
        """Forgets what was added."""
        self._moments = None


def _merged(a: tuple[Any, ...] | None, b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Count, mean, squares around the mean and errors of both. Chan et al. 1983."""
    if a is None:
        return b
    if a[1].shape != b[1].shape:
        raise ValueError(f"[R2] {b[1].size} outputs after {a[1].size}")
    count, apart = a[0] + b[0], b[1] - a[1]
    squares = a[2] + b[2] + apart**2 * (a[0] * b[0] / count)
    return count, a[1] + apart * (b[0] / count), squares, a[3] + b[3]
