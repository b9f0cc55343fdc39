"""What all metrics share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import distributed
from ..tape.elements import as_raw
from ..tape.tensor import wrap
from ..tensor import Tensor

Array = NDArray[Any]


class Metric:
    """A number, or some, that follow from all predictions and targets.

    A subclass implements `update`, which adds a batch, `compute`, and `reset`.

    >>> class Largest(metric.Metric):
    ...     def __init__(self):
    ...         self.reset()
    ...     def update(self, x, y):
    ...         self.value = max(self.value, float(np.max(x)))
    ...     def compute(self):
    ...         return self.value
    ...     def reset(self):
    ...         self.value = -np.inf
    ...
    >>> largest = Largest()
    >>> largest.update([1.0, 5.0], None)
    >>> largest.compute()
    5.0
    """

    def update(self, x: Any, y: Any) -> None:
        """Adds predictions x for targets y."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to add a batch")

    def compute(self) -> Any:
        """The metric of everything since `reset`, on all ranks. All ranks have to call it."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it is")

    def reset(self) -> None:
        """Forgets what was added."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to start again")

    def _nothing(self) -> ValueError:
        return ValueError(f"[{type(self).__name__}] there are no predictions: update() comes first")


def as_array(x: Any) -> Array:
    """The numbers of a tensor, an array or a list."""
    return x.numpy() if isinstance(x, Tensor) else np.asarray(x)


def wrong_shapes(kind: str, x: Array, y: Array) -> ValueError:
    """The error for predictions whose shape does not fit."""
    return ValueError(f"[{kind}] predictions {x.shape} do not fit targets {y.shape}")


def check_shapes(kind: str, x: Array, y: Array) -> None:
    """Raises ValueError unless x are scores (N, C, ...) for targets (N, ...)."""
    if x.ndim != y.ndim + 1 or (x.shape[0], *x.shape[2:]) != y.shape:
        raise wrong_shapes(kind, x, y)


def as_indices(kind: str, name: str, y: Any) -> Array:
    """Class indices as int64. Raises ValueError for floats that are not whole numbers."""
    array = as_array(y)
    indices = array.astype(np.int64)
    if array.dtype.kind == "f" and (indices != array).any():
        raise ValueError(
            f"[{kind}] {name} must be whole numbers, or one-hot for scores (N, C, ...)"
        )
    return indices


def is_one_hot(y: Array) -> bool:
    """Whether targets (N, C, ...) are 1 for one class of each row, and 0 for the others."""
    return bool(((y == 0) | (y == 1)).all() and (np.count_nonzero(y, 1) == 1).all())


def divided(a: Array, b: Array) -> Array:
    """a / b, and 0 where b is 0."""
    return np.asarray(a / np.maximum(b, 1e-300) * (np.asarray(b) > 0))


def total(array: Array) -> Array:
    """The sum over all ranks, in their order."""
    if distributed.world_size() == 1:
        return array
    raw = as_raw(array)
    distributed.communicator().all_reduce([raw])
    return wrap(raw, False).numpy()


def joined(array: Array) -> Array:
    """The columns of all ranks, in their order."""
    counts = distributed.gather(array.shape[1])
    if len(counts) == 1:
        return array
    padded = np.zeros((len(array), max(counts)))
    padded[:, : array.shape[1]] = array
    # As numbers of 32 bits, a type that all collectives move.
    rows = distributed.communicator().all_gather(as_raw(padded.view(np.int32)))
    each = np.ascontiguousarray(wrap(rows, False).numpy()).view(np.float64)
    return np.concatenate([part[:, :n] for part, n in zip(each, counts, strict=True)], 1)
