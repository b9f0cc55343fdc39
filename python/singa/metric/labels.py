"""Metrics of pictures with several labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import distributed
from .base import Array, Metric, as_array, as_indices, joined, wrong_shapes


class AveragePrecision(Metric):
    """Mean average precision, of scores (N, L) for targets of 0 and 1 in the same shape: the mean
    over the labels of Σ (recall - recall before) · precision, at each score as a threshold, as
    scikit-learn's average_precision_score with average="macro". Labels without a target 1 do not
    count.

    It is exact, and keeps the scores: 16 bytes for each.

    >>> precision = metric.AveragePrecision()
    >>> precision.update(np.array([[0.1], [0.4], [0.35], [0.8]]), np.array([[0], [0], [1], [1]]))
    >>> round(precision.compute(), 4)
    0.8333
    """

    def __init__(self) -> None:
        self.reset()

    def update(self, x: Any, y: Any) -> None:
        """Adds scores, of which higher ones mean a label, for targets. Raises ValueError for other
        shapes, another number of labels, targets other than 0 and 1, and for NaN."""
        scores = as_array(x).astype(np.float64)
        targets = as_indices("AveragePrecision", "targets", y)
        if scores.ndim != 2 or scores.shape != targets.shape:
            raise wrong_shapes("AveragePrecision", scores, targets)
        if ((targets != 0) & (targets != 1)).any():
            raise ValueError("[AveragePrecision] targets must be 0 or 1")
        if np.isnan(scores).any():
            raise ValueError("[AveragePrecision] scores have NaN")
        if self._parts and self._parts[0].shape[0] != 2 * scores.shape[1]:
            raise ValueError(
                f"[AveragePrecision] {scores.shape[1]} labels after {len(self._parts[0]) // 2}"
            )
        self._parts.append(np.concatenate([scores.T, targets.T]))

    def per_label(self) -> Array:
        """The average precision of each label; NaN for one without a target 1. All ranks have to
        call it.

        >>> precision = metric.AveragePrecision()
        >>> precision.update(np.array([[0.1, 3.0], [0.4, 2.0]]), np.array([[0, 0], [1, 0]]))
        >>> precision.per_label()
        array([ 1., nan])
        """
        mine = np.concatenate(self._parts, 1) if self._parts else None
        rows = max(distributed.gather(0 if mine is None else len(mine)))
        whole = joined(np.zeros((rows, 0)) if mine is None else mine)
        if not whole.size:
            raise self._nothing()
        labels = rows // 2
        pairs = zip(whole[:labels], whole[labels:], strict=True)
        return np.array([_average_precision(scores, targets) for scores, targets in pairs])

    def compute(self) -> float:
        """The mean, in [0, 1]; NaN if no label has a target 1. Raises ValueError if nothing was
        added."""
        each = self.per_label()
        return float(each[~np.isnan(each)].mean()) if not np.isnan(each).all() else float("nan")

    def reset(self) -> None:
        """Forgets what was added."""
        self._parts: list[Array] = []


def _average_precision(scores: Array, targets: Array) -> float:
    if not targets.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))  # of equal scores
    right = np.cumsum(targets[order])[ends]
    return float((np.diff(right / right[-1], prepend=0.0) * (right / (ends + 1))).sum())
