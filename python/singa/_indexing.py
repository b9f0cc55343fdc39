"""What `t[key]` means: views for integers, slices, None and Ellipsis; rows by an array."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import singa_wrap as _c

if TYPE_CHECKING:
    from collections.abc import Sequence

Basic = int | slice | None


def normalize(key: object, rank: int) -> list[Any]:
    """One entry for each axis or new axis, Ellipsis written out: int, slice, None, or an array of
    indices. Raises IndexError for too many."""
    entries: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    used = 0
    if sum(1 for entry in entries if entry is Ellipsis) > 1:
        raise IndexError("[getitem] only one ... is possible")
    for entry in entries:
        mask = getattr(entry, "dtype", None) == np.bool_ and getattr(entry, "ndim", 0)
        used += int(mask) or int(entry is not None and entry is not Ellipsis)
    if used > rank:
        raise IndexError(f"[getitem] {used} indices for a tensor of {rank} dimensions")
    result: list[Any] = []
    for entry in entries:
        if isinstance(entry, EllipsisType):
            result += [slice(None)] * (rank - used)
            used = rank
        elif entry is None or isinstance(entry, slice):
            result.append(entry)
        elif isinstance(entry, (list, np.ndarray)) and not np.isscalar(entry):
            array = np.asarray(entry)
            if array.dtype.kind not in "iub" and array.size:
                raise TypeError(f"[getitem] an array of {array.dtype} is no index")
            result.append(array)
        else:
            try:
                result.append(operator.index(entry))
            except TypeError:
                raise TypeError(
                    f"[getitem] {type(entry).__name__} is no index; use integers, slices, None, "
                    "... or an array"
                ) from None
    return result


def bounds(entry: slice, length: int) -> tuple[int, int, int]:
    """First, end and step of a slice of an axis, as C++ takes them. Raises TypeError or
    ValueError."""
    try:
        start, stop, step = entry.indices(length)
    except (TypeError, ValueError) as error:  # not integers, or a step of 0
        raise type(error)(f"[getitem] {entry} of an axis of {length}: {error}") from None
    # A bound of -1 when stepping back means "before the first"; C++ writes that lower.
    before = -length - 1
    return start if start >= 0 else before, stop if stop >= 0 else before, step


def view(raw: _c.Tensor, entries: Sequence[Basic]) -> _c.Tensor:
    """The view that integers, slices and None (new axes) select. Raises IndexError outside."""
    shape = raw.shape()
    axis = 0  # of what has been built so far
    source = 0  # of raw
    for entry in entries:
        if entry is None:
            raw = raw.Unsqueeze((axis,))
            axis += 1
            continue
        length = shape[source]
        if isinstance(entry, slice):
            start, stop, step = bounds(entry, length)
            if (start, stop, step) != (0, length, 1):
                raw = raw.SliceAxis(axis, start, stop, step)
            axis += 1
        else:
            entry = _within(entry, source, length)
            raw = raw.SliceAxis(axis, entry, entry + 1).Squeeze((axis,))
        source += 1
    return raw


def _within(entry: int, axis: int, length: int) -> int:
    if not -length <= entry < length:
        raise IndexError(f"[getitem] index {entry} is outside axis {axis} of length {length}")
    return entry % length


def keeping_axes(entries: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """The entries with slices of length 1 for integers. Raises IndexError outside."""
    result: list[Any] = []
    source = 0  # of shape
    for entry in entries:
        if isinstance(entry, int):
            start = _within(entry, source, shape[source])
            result.append(slice(start, start + 1))
        else:
            result.append(entry)
        mask = isinstance(entry, np.ndarray) and entry.dtype == np.bool_
        source += entry.ndim if mask else int(entry is not None)
    return result
