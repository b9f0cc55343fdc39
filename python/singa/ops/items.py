"""`t[key]`, by operators, and `t[key] = value`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import is_float
from ..raw.arrays import fill
from ..raw.indexing import bounds, is_mask, keeping_axes, normalize, view
from ..tape.elements import as_raw
from ..tape.operator import apply
from ..tape.tensor import Tensor, is_computed
from .indexing import Gather
from .movement import Index, Slice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..tape.operator import Raw

#: Whether an integer leaves an axis of length 1, every item is a copy, and floats are masks.
keeps_axes: bool = False


def getitem(self: Tensor, key: Any) -> Tensor:
    """Indexes as NumPy does. Integers, slices, None and ... give a view.

    One array of integers, or one boolean mask, gives a copy. A mask covers as many axes as it has;
    a bool, a mask without axes, adds an axis of length 1 (True) or 0 (False). Where an integer and
    an array have a slice or None between them, the array's axes stay in their place, as in PyTorch.
    Slices of a tensor that was computed on the tape may give a copy, too, so that images keep the
    layout of their kernels. With SINGA's behaviour (`singa.compat`), the result is always a copy,
    integers leave an axis of length 1, and float tensors are masks, as comparisons give them.

    Raises IndexError for indices outside the tensor and masks of another shape, TypeError for other
    keys, such as float tensors, NotImplementedError for several arrays.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> x[[2, 0], 1]
    Tensor([6., 2.], dtype=float32)
    >>> x[x[:, 0] > 2]
    Tensor([[3., 4.],
            [5., 6.]], dtype=float32)
    """
    entries = _entries(self, key)
    item = _item(self, entries)
    if keeps_axes:
        item.data = item.data.Clone()
    return item


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """Writes to the elements that `self[key]` reads. `value`, a number, array or tensor, broadcasts
    to the shape of `self[key]`. Of equal indices the last one counts.

    Raises what reading raises, ValueError for a value that does not broadcast, and RuntimeError for
    a tensor that was computed on the tape.

    >>> x = tensor.zeros((3, 2))
    >>> x[[True, False, True]] = [1.0, 2.0]
    >>> x
    Tensor([[1., 2.],
            [0., 0.],
            [1., 2.]], dtype=float32)
    """
    if is_computed(self):
        raise RuntimeError(
            "[setitem] writing to a computed tensor would not be recorded; use autograd.where "
            "or autograd.scatter_elements, or write to t.detach()"
        )
    entries = _entries(self, key)
    if _array_in(entries) is None:
        target = view(self.data, entries)
        if isinstance(value, (int, float)):
            fill(target, value)
        else:
            target.CopyFrom(_fitted(as_raw(value, self.dtype, self.device), target.shape()))
        return
    _write(self.data, entries, as_raw(value, self.dtype, self.device))


def _entries(x: Tensor, key: Any) -> list[Any]:
    entries = normalize(_without_tensors(key), x.ndim())
    return keeping_axes(entries, x.shape) if keeps_axes else entries


def _without_tensors(key: Any) -> Any:
    """An index in which tensors are arrays or integers."""
    if isinstance(key, tuple):
        return tuple(_without_tensors(entry) for entry in key)
    if not isinstance(key, Tensor):
        return key
    if not is_float(key.dtype):
        return key.numpy()
    if keeps_axes and key.ndim():
        return key.numpy().astype(np.bool_)
    raise TypeError(
        f"[getitem] a {key.dtype.name} tensor is not an index; integers and bools are: "
        'key.as_type("int64")'
    )


def _item(x: Tensor, entries: list[Any]) -> Tensor:
    place = _array_in(entries)
    if place is not None:
        chosen = _Selection.of(x.shape, entries, place)
        x = apply(Index(chosen.rest), x)
        if chosen.joins > 1:
            x = x.reshape(chosen.joined(x.shape))
        return apply(Gather(chosen.axis, chosen.indices), x)
    slices = entries and all(isinstance(entry, slice) for entry in entries)
    if slices and is_computed(x):
        parts = [bounds(entry, n) for entry, n in zip(entries, x.shape, strict=False)]
        starts, ends, steps = zip(*parts, strict=True)
        return apply(Slice(starts, ends, None, steps), x)
    return apply(Index(entries), x)


def _array_in(entries: Sequence[Any]) -> int | None:
    """The place of the array among the entries; None without one."""
    arrays = [i for i, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
    if len(arrays) > 1:
        raise NotImplementedError("[getitem] an index can have only one array of indices")
    return arrays[0] if arrays else None


class _Selection(NamedTuple):
    """What a key with an array selects from x: `indices` along `axis` of x[rest], after `joins`
    axes from there on were joined to one."""

    rest: list[Any]
    axis: int
    joins: int
    indices: NDArray[np.int64]
    mask: NDArray[np.bool_] | None

    @classmethod
    def of(cls, shape: Sequence[int], entries: list[Any], place: int) -> _Selection:
        """`place` is that of the array among the entries.

        Raises IndexError for a mask of another shape.
        """
        key, before = entries[place], entries[:place]
        axis = sum(1 for entry in before if entry is None or isinstance(entry, slice))
        kept: list[Any] = [slice(None)]
        if not is_mask(key):
            return cls([*before, *kept, *entries[place + 1 :]], axis, 1, key.astype(np.int64), None)
        source = sum(1 for entry in before if entry is not None)
        if key.shape != tuple(shape[source : source + key.ndim]):
            raise IndexError(f"[getitem] a mask of shape {key.shape} for a tensor of {shape}")
        kept = kept * key.ndim or [None]
        mask = key.reshape(key.shape or (1,))
        rest = [*before, *kept, *entries[place + 1 :]]
        return cls(rest, axis, len(kept), np.flatnonzero(key), mask)

    def joined(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of x[rest] with one axis instead of `joins`."""
        end = self.axis + self.joins
        return (*shape[: self.axis], math.prod(shape[self.axis : end]), *shape[end:])


def _write(x: Raw, entries: list[Any], value: Raw) -> None:
    """Writes `value` to what entries with an array select."""
    place = _array_in(entries)
    assert place is not None
    chosen = _Selection.of(x.shape(), entries, place)
    target = view(x, chosen.rest)
    shape, axis = target.shape(), chosen.axis
    behind = len(shape) - axis - chosen.joins
    if chosen.mask is not None and value.rank() <= behind:  # the same for all that are selected
        mask = as_raw(chosen.mask, device=x.device())
        mask = mask.Reshape((*chosen.mask.shape, *(1,) * behind))
        target.CopyFrom(_c.Where(mask, _fitted(value, shape[len(shape) - behind :]), target))
        return
    joined = chosen.joined(shape)
    picks, (before, after) = chosen.indices, (joined[:axis], joined[axis + 1 :])
    value = _fitted(value, (*before, *picks.shape, *after))
    # With the selected axis in front, whose slices ScatterND replaces.
    order = [axis, *range(axis), *range(axis + 1, len(joined))]
    back = [*range(1, axis + 1), 0, *range(axis + 1, len(joined))]
    updates = value.Reshape((*before, picks.size, *after)).Transpose(order)
    places = as_raw(picks.reshape(-1, 1), device=x.device())
    scattered = _c.ScatterND(
        target.Reshape(joined).Transpose(order), places, updates, _c.ScatterReduction_kNone
    )
    target.CopyFrom(scattered.Transpose(back).Reshape(shape))


def _fitted(value: Raw, shape: Sequence[int]) -> Raw:
    """`value` broadcast to a shape, without axes of length 1 that it has in front of it."""
    extra = value.rank() - len(shape)
    if extra > 0 and all(n == 1 for n in value.shape()[:extra]):
        value = value.Reshape(value.shape()[extra:])
    return value.Broadcast(tuple(shape))
