"""The meaning of `t[key]`. Integers, slices, None and Ellipsis select views; an array selects
elements along an axis."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c

if TYPE_CHECKING:
    from collections.abc import Sequence

Basic = int | slice | None


def normalize(key: object, rank: int) -> list[Any]:
    """Converts a key to a list with one entry per axis or new axis, in which Ellipsis is expanded.

    An entry is an int, a slice, None (a new axis), an array of integers, or an array of bools: a
    mask, which covers as many axes as it has. A bool is a mask without axes. Raises IndexError for
    more entries than axes or a second Ellipsis, TypeError for other entries.
    """
    entries = [_entry(entry) for entry in (key if isinstance(key, tuple) else (key,))]
    if sum(1 for entry in entries if entry is Ellipsis) > 1:
        raise IndexError("[getitem] an index can have only one ellipsis (...)")
    used = sum(_axes(entry) for entry in entries)
    if used > rank:
        raise IndexError(f"[getitem] {used} indices for a tensor of {rank} dimensions")
    result: list[Any] = []
    for entry in entries:
        result += [slice(None)] * (rank - used) if entry is Ellipsis else [entry]
    return result


def is_mask(entry: object) -> bool:
    """Whether an entry of `normalize` is a mask."""
    return isinstance(entry, np.ndarray) and entry.dtype == np.bool_


def _axes(entry: Any) -> int:
    """The number of axes that an entry covers."""
    return entry.ndim if is_mask(entry) else int(entry is not None and entry is not Ellipsis)


def _entry(entry: Any) -> Any:
    if entry is None or isinstance(entry, EllipsisType | slice):
        return entry
    if isinstance(entry, bool | np.bool_ | list | tuple | np.ndarray) or (
        hasattr(entry, "__array__") and not isinstance(entry, np.generic)  # such as PyTorch's
    ):
        try:
            array = np.asarray(entry)
        except ValueError as error:
            raise TypeError(f"[getitem] {entry!r:.60} is not an index: {error}") from None
        if isinstance(entry, list | tuple) and not array.size:
            array = array.astype(np.int64)
        if array.dtype.kind not in "iub":
            raise TypeError(f"[getitem] an array of {array.dtype} is not an index")
        if array.ndim or array.dtype == np.bool_:
            return array
    try:
        return operator.index(entry)
    except TypeError:
        raise TypeError(
            f"[getitem] {type(entry).__name__} is not an index; use integers, slices, None, ... or "
            "an array"
        ) from None


def bounds(entry: slice, length: int) -> tuple[int, int, int]:
    """(start, end, step) of a slice of an axis of `length`, as C++ takes them.

    Raises TypeError for bounds that are not integers, ValueError for a step of 0.
    """
    try:
        start, stop, step = entry.indices(length)
    except (TypeError, ValueError) as error:  # not integers, or a step of 0
        raise type(error)(f"[getitem] {entry} of an axis of {length}: {error}") from None
    # With a negative step, -1 means "before the first element"; in C++ that is -length - 1.
    before = -length - 1
    return start if start >= 0 else before, stop if stop >= 0 else before, step


def view(raw: _c.Tensor, entries: Sequence[Basic]) -> _c.Tensor:
    """The view of `raw` that integers, slices and None (new axes) select.

    Raises IndexError for an integer outside its axis.
    """
    shape = raw.shape()
    axis = 0  # of the view
    source = 0  # of the original shape
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
    """The entries with each integer replaced by a slice of length 1.

    Raises IndexError for an integer outside its axis.
    """
    result: list[Any] = []
    source = 0  # of shape
    for entry in entries:
        if isinstance(entry, int):
            start = _within(entry, source, shape[source])
            result.append(slice(start, start + 1))
        else:
            result.append(entry)
        source += _axes(entry)
    return result
