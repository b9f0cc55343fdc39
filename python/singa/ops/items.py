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
from ..tape.tensor import Tensor, has_gradient, is_computed
from .indexing import Gather
from .movement import Index, Slice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..tape.operator import Raw

#: Whether an integer leaves an axis of length 1, every item is a copy, and floats are masks.
keeps_axes: bool = False


def getitem(self: Tensor, key: Any) -> Tensor:
    """Indexes as NumPy does. Integers, slices, None and ... give a view.

    Arrays of integers and boolean masks give a copy. A mask covers as many axes as it has; a bool,
    a mask without axes, adds an axis of length 1 (True) or 0 (False). Several arrays broadcast to
    each other, a mask as the indices of its true elements; their axes come where the arrays are, or
    to the front where a slice or None lies between two of them. An integer does not count for that,
    as in PyTorch: where it and an array have a slice between them, the array's axes stay in place.
    Slices of a tensor that was computed on the tape may give a copy, too, so that images keep the
    layout of their kernels. With SINGA's behaviour (`singa.compat`), the result is always a copy,
    integers leave an axis of length 1, and float tensors are masks, as comparisons give them.

    Raises IndexError for indices outside the tensor, masks of another shape and arrays that do not
    broadcast, TypeError for other keys, such as float tensors.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> x[[2, 0], 1]
    Tensor([6., 2.], dtype=float32)
    >>> x[[0, 2], [1, 0]]
    Tensor([2., 5.], dtype=float32)
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
    a tensor that was computed on the tape. So does a value with a gradient, which would be lost:
    `t[key] = value.detach()` copies its elements. A parameter takes any value.

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
    if has_gradient(value) and not self.stores_grad:
        raise RuntimeError(
            "[setitem] the value leads to a parameter, and writing it would lose that gradient; "
            "use autograd.where, autograd.cat or autograd.scatter_elements, or write value.detach()"
        )
    entries = _entries(self, key)
    if not _has_array(entries):
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
    if _has_array(entries):
        chosen = _Selection.of(x.shape, entries)
        x = apply(Index(chosen.rest), x)
        if chosen.order is not None:
            x = x.transpose(chosen.order)
        if chosen.joins > 1:
            x = x.reshape(chosen.joined(x.shape))
        return apply(Gather(chosen.axis, chosen.indices), x)
    slices = entries and all(isinstance(entry, slice) for entry in entries)
    if slices and is_computed(x):
        parts = [bounds(entry, n) for entry, n in zip(entries, x.shape, strict=False)]
        starts, ends, steps = zip(*parts, strict=True)
        return apply(Slice(starts, ends, None, steps), x)
    return apply(Index(entries), x)


def _has_array(entries: Sequence[Any]) -> bool:
    return any([isinstance(entry, np.ndarray) for entry in entries])


class _Selection(NamedTuple):
    """What a key with arrays selects from x: `indices` along `axis` of x[rest], after its axes were
    put in `order` (None: as they are), and `joins` axes from `axis` on were joined to one."""

    rest: list[Any]
    axis: int
    joins: int
    indices: NDArray[np.int64]
    mask: NDArray[np.bool_] | None
    order: list[int] | None = None

    @classmethod
    def of(cls, shape: Sequence[int], entries: list[Any]) -> _Selection:
        """Raises IndexError for masks of another shape, indices outside their axes, and arrays that
        do not broadcast to each other."""
        places = [i for i, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
        if len(places) == 1:
            return cls._of_one(shape, entries, places[0])
        return cls._of_several(shape, entries)

    @classmethod
    def _of_several(cls, shape: Sequence[int], entries: list[Any]) -> _Selection:
        rest: list[Any] = []
        arrays: list[NDArray[np.int64]] = []
        axes: list[int] = []  # of the arrays, in x[rest]
        lengths: list[int] = []
        source = axis = 0
        for entry in entries:
            if not isinstance(entry, np.ndarray):
                rest.append(entry)
                axis += entry is None or isinstance(entry, slice)
                source += entry is not None
                continue
            for picks in _picks(entry, shape, source):
                rest.append(slice(None))
                arrays.append(picks)
                axes.append(axis)
                lengths.append(shape[source])
                axis, source = axis + 1, source + 1
        try:
            arrays = list(np.broadcast_arrays(*arrays))
        except ValueError:
            shapes = ", ".join(str(array.shape) for array in arrays)
            raise IndexError(
                f"[getitem] arrays of indices of shapes {shapes} do not broadcast to each other"
            ) from None
        flat = np.zeros(arrays[0].shape, np.int64)
        for array, length in zip(arrays, lengths, strict=True):
            flat = flat * length + array
        at = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
        rank = axis + len(shape) - source
        others = [i for i in range(rank) if i not in axes]
        return cls(rest, at, len(axes), flat, None, [*others[:at], *axes, *others[at:]])

    @classmethod
    def _of_one(cls, shape: Sequence[int], entries: list[Any], place: int) -> _Selection:
        """`place` is that of the array among the entries."""
        key, before = entries[place], entries[:place]
        axis = sum(1 for entry in before if entry is None or isinstance(entry, slice))
        kept: list[Any] = [slice(None)]
        if not is_mask(key):
            return cls([*before, *kept, *entries[place + 1 :]], axis, 1, key.astype(np.int64), None)
        _check_mask(key, shape, sum(1 for entry in before if entry is not None))
        kept = kept * key.ndim or [None]
        mask = key.reshape(key.shape or (1,))
        rest = [*before, *kept, *entries[place + 1 :]]
        return cls(rest, axis, len(kept), np.flatnonzero(key), mask)

    def joined(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of x[rest] with one axis instead of `joins`."""
        end = self.axis + self.joins
        return (*shape[: self.axis], math.prod(shape[self.axis : end]), *shape[end:])


def _check_mask(key: NDArray[Any], shape: Sequence[int], source: int) -> None:
    if key.shape != tuple(shape[source : source + key.ndim]):
        raise IndexError(f"[getitem] a mask of shape {key.shape} for a tensor of {shape}")


def _picks(key: NDArray[Any], shape: Sequence[int], source: int) -> list[NDArray[np.int64]]:
    """An array beside others as indices, none negative, for each of its axes from `source` on."""
    if is_mask(key):
        if not key.ndim:
            raise IndexError("[getitem] a bool cannot be an index beside arrays")
        _check_mask(key, shape, source)
        return list(np.nonzero(key))
    length = shape[source]
    picks = key.astype(np.int64)
    if wrong := picks[(picks < -length) | (picks >= length)].tolist():
        raise IndexError(f"[getitem] index {wrong[0]} is outside axis {source} of length {length}")
    return [np.where(picks < 0, picks + length, picks)]


def _write(x: Raw, entries: list[Any], value: Raw) -> None:
    """Writes `value` to what entries with arrays select."""
    chosen = _Selection.of(x.shape(), entries)
    target = view(x, chosen.rest)
    if chosen.order is not None:
        target = target.Transpose(chosen.order)
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
