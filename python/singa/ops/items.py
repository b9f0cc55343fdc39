"""`t[key]`, by operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..raw import compat_mode
from ..raw.indexing import bounds, keeping_axes, normalize
from ..tape.operator import apply
from ..tape.tensor import Tensor, is_computed, without_tensors
from .indexing import Gather
from .movement import Index, Slice


def getitem(self: Tensor, key: Any) -> Tensor:
    """Indexes as NumPy does. Integers, slices, None and ... give a view.

    One array of indices, or a boolean mask of the first axes, gives a copy. Slices of a tensor
    that was computed on the tape may give a copy, too, so that images keep the layout of their
    kernels. With SINGA's behaviour (`singa.compat`), the result is always a copy, and integers
    leave an axis of length 1. Raises IndexError for indices outside the tensor, TypeError for
    other keys, NotImplementedError for several arrays.
    """
    entries = normalize(without_tensors(key), self.ndim())
    if not compat_mode.enabled:
        return _item(self, entries)
    item = _item(self, keeping_axes(entries, self.shape))
    item.data = item.data.Clone()
    return item


def _item(x: Tensor, entries: list[Any]) -> Tensor:
    if any(isinstance(entry, np.ndarray) for entry in entries):
        return _taken(x, entries)
    slices = entries and all(isinstance(entry, slice) for entry in entries)
    if slices and is_computed(x):
        parts = [bounds(entry, n) for entry, n in zip(entries, x.shape, strict=False)]
        starts, ends, steps = zip(*parts, strict=True)
        return apply(Slice(starts, ends, None, steps), x)
    return apply(Index(entries), x)


def _taken(x: Tensor, entries: Sequence[Any]) -> Tensor:
    """x[key] for a key with an array: indices along one axis, or a boolean mask of the first
    axes."""
    arrays = [i for i, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
    if len(arrays) > 1:
        raise NotImplementedError("[getitem] an index can have only one array of indices")
    position = arrays[0]
    key = entries[position]
    before = list(entries[:position])
    if key.dtype == np.bool_:
        if before:
            raise NotImplementedError("[getitem] a mask must be the first index")
        if key.shape != x.shape[: key.ndim]:
            raise IndexError(f"[getitem] a mask of shape {key.shape} for a tensor of {x.shape}")
        x = x.reshape((key.size, *x.shape[key.ndim :]))
        key = np.flatnonzero(key)
    # First the other entries, with the array's axis kept whole; then the array.
    axis = sum(1 for entry in before if entry is None or isinstance(entry, slice))
    rest = [*before, slice(None), *entries[position + 1 :]]
    x = apply(Index(rest), x)
    return apply(Gather(axis, key.astype(np.int64)), x)
