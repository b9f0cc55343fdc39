"""Operators that move elements: shapes, parts, joints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import autograd
from ...networks.tensors import same_type
from ...tensor import Tensor
from .registry import Call, computes, in_type_of_result

#: What PyTorch writes for "to the end".
_END = 1 << 62


def _axis(x: Tensor, axis: int) -> int:
    return axis % max(len(x.shape), 1)


@computes("view", "view_copy", "reshape", "_unsafe_view")
def view(call: Call, x: Tensor, shape: Sequence[int]) -> Tensor:
    """The elements in another shape."""
    shape = list(shape)
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = math.prod(x.shape) // rest if rest else 0
    return _reshaped(x, shape)


def _reshaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x if tuple(x.shape) == tuple(shape) else autograd.reshape(x, tuple(shape))


@computes("flatten.using_ints")
def flatten(call: Call, x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Several axes as one."""
    first, last = _axis(x, start_dim), _axis(x, end_dim)
    merged = math.prod(x.shape[first : last + 1])
    return _reshaped(x, (*x.shape[:first], merged, *x.shape[last + 1 :]))


@computes("squeeze.dim", "squeeze.dims", "squeeze")
def squeeze(call: Call, x: Tensor, axes: Any = None) -> Tensor:
    """x without axes of length 1."""
    rank = len(x.shape)
    wanted = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
    gone = {_axis(x, axis) for axis in wanted}
    return _reshaped(x, [n for i, n in enumerate(x.shape) if i not in gone or n != 1])


@computes("unsqueeze")
def unsqueeze(call: Call, x: Tensor, axis: int) -> Tensor:
    """x with one more axis."""
    axis %= len(x.shape) + 1
    return autograd.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


@computes("permute", "permute_copy")
def permute(call: Call, x: Tensor, order: Sequence[int]) -> Tensor:
    """The axes in another order."""
    order = [_axis(x, axis) for axis in order]
    return x if order == list(range(len(order))) else autograd.transpose(x, order)


@computes("transpose.int")
def transpose(call: Call, x: Tensor, a: int, b: int) -> Tensor:
    """Two axes exchanged."""
    order = list(range(len(x.shape)))
    a, b = _axis(x, a), _axis(x, b)
    if order:
        order[a], order[b] = order[b], order[a]
    return permute(call, x, order)


@computes("t", "numpy_T")
def t(call: Call, x: Tensor) -> Tensor:
    """The axes in reverse."""
    return permute(call, x, list(range(len(x.shape)))[::-1])


@computes("expand")
def expand(call: Call, x: Tensor, shape: Sequence[int], implicit: bool = False) -> Tensor:
    """x repeated along axes of length 1."""
    added = len(shape) - len(x.shape)
    full = [x.shape[i - added] if n == -1 else n for i, n in enumerate(shape)]
    return x if tuple(full) == tuple(x.shape) else autograd.expand(x, tuple(full))


@computes("repeat")
def repeat(call: Call, x: Tensor, repeats: Sequence[int]) -> Tensor:
    """Copies of x along each axis."""
    x = _reshaped(x, (*(1,) * (len(repeats) - len(x.shape)), *x.shape))
    return x if all(n == 1 for n in repeats) else autograd.tile(x, list(repeats))


@computes("slice.Tensor")
def slice_(
    call: Call, x: Tensor, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """A part of x along an axis."""
    axis = _axis(x, axis)
    first, last = _limits(x.shape[axis], start, end)
    if (first, last, step) == (0, x.shape[axis], 1):
        return x
    return autograd.slice(x, [first], [last], [axis], [step])


def _limits(length: int, start: Any, end: Any) -> tuple[int, int]:
    """Start and end of a slice, within [0, length]."""
    first = 0 if start is None else start
    last = length if end is None or end > _END else end
    first, last = (n + length if n < 0 else n for n in (first, last))
    first = min(max(first, 0), length)
    return first, min(max(last, first), length)


@computes("narrow", "narrow_copy")
def narrow(call: Call, x: Tensor, axis: int, start: int, length: int) -> Tensor:
    """`length` elements of x along an axis."""
    return slice_(call, x, axis, start, start + length)


@computes("select.int")
def select(call: Call, x: Tensor, axis: int, index: int) -> Tensor:
    """One element along an axis, without the axis."""
    axis = _axis(x, axis)
    index = index + x.shape[axis] if index < 0 else index
    part = autograd.slice(x, [index], [index + 1], [axis])
    return _reshaped(part, (*x.shape[:axis], *x.shape[axis + 1 :]))


@computes("slice_scatter")
def slice_scatter(
    call: Call,
    x: Tensor,
    source: Tensor,
    axis: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Tensor:
    """x with a part replaced."""
    axis = _axis(x, axis)
    length = x.shape[axis]
    first, last = _limits(length, start, end)
    if step != 1:
        return _placed(call, x, source, axis, range(first, last, step))
    parts = [same_type(source, x)]
    if first > 0:
        parts.insert(0, slice_(call, x, axis, 0, first))
    if last < length:
        parts.append(slice_(call, x, axis, last, length))
    return autograd.cat(parts, axis) if len(parts) > 1 else parts[0]


def _placed(call: Call, x: Tensor, source: Tensor, axis: int, places: Sequence[int]) -> Tensor:
    """x with the elements at some places along an axis replaced by those of the source."""
    length = x.shape[axis]
    order = np.arange(length)
    order[list(places)] = length + np.arange(len(places))
    key = (call.node.name, axis, length, tuple(places))
    rows = call.run.tensor(call.run.made(key, lambda: order))
    return autograd.gather(autograd.cat([x, same_type(source, x)], axis), axis, rows)


@computes("select_scatter")
def select_scatter(call: Call, x: Tensor, source: Tensor, axis: int, index: int) -> Tensor:
    """x with one element along an axis replaced."""
    axis = _axis(x, axis)
    index = index + x.shape[axis] if index < 0 else index
    row = autograd.reshape(source, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return slice_scatter(call, x, row, axis, index, index + 1)


@computes("copy")
def copy(call: Call, x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """The source in the shape and the type of x."""
    return expand(call, same_type(source, x), x.shape)


@computes("cat")
def cat(call: Call, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors one after the other along an axis."""
    xs = [x for x in xs if tuple(x.shape) != (0,)] or list(xs)  # PyTorch skips those
    xs = [in_type_of_result(call, x) for x in xs]
    return autograd.cat(xs, _axis(xs[0], axis)) if len(xs) > 1 else xs[0]


@computes("stack")
def stack(call: Call, xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors along a new axis."""
    return cat(call, [unsqueeze(call, x, axis) for x in xs], axis % (len(xs[0].shape) + 1))


@computes("split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(
    call: Call, x: Tensor, sizes: Sequence[int], axis: int = 0
) -> tuple[Tensor, ...]:
    """Parts of these lengths."""
    return tuple(autograd.split(x, _axis(x, axis), list(sizes))) if len(sizes) > 1 else (x,)


@computes("split.Tensor")
def split(call: Call, x: Tensor, size: int, axis: int = 0) -> tuple[Tensor, ...]:
    """Parts of this length; the last one may be shorter."""
    length = x.shape[_axis(x, axis)]
    sizes = [min(size, length - at) for at in range(0, length, size)]
    return split_with_sizes(call, x, sizes, axis)


@computes("chunk")
def chunk(call: Call, x: Tensor, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts, of equal lengths but for the last one."""
    return split(call, x, -(-x.shape[_axis(x, axis)] // chunks), axis)


@computes("unbind.int", "unbind_copy.int")
def unbind(call: Call, x: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """The elements along an axis, without the axis."""
    axis = _axis(x, axis)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    parts = split_with_sizes(call, x, [1] * x.shape[axis], axis)
    return tuple(_reshaped(part, rest) for part in parts)


@computes("unfold")
def unfold(call: Call, x: Tensor, axis: int, size: int, step: int) -> Tensor:
    """Windows along an axis, whose elements are a new last axis."""
    if not x.shape:
        return _reshaped(x, (1,))
    axis = _axis(x, axis)
    last = (x.shape[axis] - size) // step * step + 1
    parts = [slice_(call, x, axis, i, i + last, step) for i in range(size)]
    rows = [_reshaped(part, (*part.shape, 1)) for part in parts]
    return autograd.cat(rows, len(x.shape)) if size > 1 else rows[0]


@computes("diagonal")
def diagonal(call: Call, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements of two axes with the same place, as a last axis."""
    axes = [_axis(x, dim1), _axis(x, dim2)]
    x = permute(call, x, [i for i in range(len(x.shape)) if i not in axes] + axes)
    rows, columns = len(x.shape) - 2, len(x.shape) - 1
    x = slice_(call, x, rows, max(-offset, 0)) if offset < 0 else slice_(call, x, columns, offset)
    n = min(x.shape[rows:])
    x = slice_(call, slice_(call, x, rows, 0, n), columns, 0, n)
    return slice_(call, _reshaped(x, (*x.shape[:rows], n * n)), rows, 0, n * n, n + 1)


@computes("diagonal_scatter")
def diagonal_scatter(
    call: Call, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """x with the elements of two axes with the same place replaced."""
    axes = [_axis(x, dim1), _axis(x, dim2)]
    order = [i for i in range(len(x.shape)) if i not in axes] + axes
    moved = permute(call, x, order)
    *outer, rows, columns = moved.shape
    n = min(rows + min(offset, 0), columns - max(offset, 0))
    first = offset if offset > 0 else -offset * columns
    places = [first + i * (columns + 1) for i in range(n)]
    flat = _placed(call, _reshaped(moved, (*outer, rows * columns)), source, len(outer), places)
    back = [order.index(i) for i in range(len(order))]
    return permute(call, _reshaped(flat, moved.shape), back)


@computes("flip")
def flip(call: Call, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The elements in reverse along axes."""
    axes = [_axis(x, axis) for axis in axes]
    if not axes:
        return x
    starts = [x.shape[axis] - 1 for axis in axes]
    ends = [-x.shape[axis] - 1 for axis in axes]
    return autograd.slice(x, starts, ends, axes, [-1] * len(axes))


@computes("roll")
def roll(call: Call, x: Tensor, shifts: Sequence[int], axes: Sequence[int] = ()) -> Tensor:
    """The elements moved along axes; those that leave come in at the other end."""
    return autograd.roll(x, list(shifts), list(axes)) if axes else autograd.roll(x, shifts[0])


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@computes("pad", "constant_pad_nd")
def pad(
    call: Call, x: Tensor, padding: Sequence[int], mode: Any = "constant", value: Any = None
) -> Tensor:
    """x with elements added around it: before and after the last axis first. A negative number
    takes elements away."""
    if call.node.op == "constant_pad_nd":
        mode, value = "constant", 0.0 if mode == "constant" else mode
    rank = len(x.shape)
    pairs = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
    pairs = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    if mode not in ("reflect", "replicate"):  # those repeat elements that are taken away, too
        x = _cut(call, x, pairs)
    pads = [max(pair[i], 0) for i in (0, 1) for pair in pairs]
    if any(pads):
        x = autograd.pad(x, _MODES[mode], pads, 0.0 if value is None else value)
    return _cut(call, x, pairs) if mode in ("reflect", "replicate") else x


def _cut(call: Call, x: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """x without the elements that negative padding of each axis takes away."""
    for axis, (before, after) in enumerate(pairs):
        x = slice_(call, x, axis, max(-before, 0), x.shape[axis] - max(-after, 0))
    return x


def _pad_mode(name: str, mode: str) -> None:
    for axes in (1, 2, 3):

        @computes(f"{name}_pad{axes}d")
        def row(call: Call, x: Tensor, padding: Sequence[int]) -> Tensor:
            return pad(call, x, padding, mode)


_pad_mode("reflection", "reflect")
_pad_mode("replication", "replicate")


@computes("pixel_shuffle")
def pixel_shuffle(call: Call, x: Tensor, factor: int) -> Tensor:
    """Channels become pixels."""
    return autograd.pixel_shuffle(x, factor)


@computes("pixel_unshuffle")
def pixel_unshuffle(call: Call, x: Tensor, factor: int) -> Tensor:
    """Pixels become channels."""
    return autograd.pixel_unshuffle(x, factor)


@computes("channel_shuffle")
def channel_shuffle(call: Call, x: Tensor, groups: int) -> Tensor:
    """Channels of all groups in turn."""
    return autograd.channel_shuffle(x, groups)


@computes("tril")
def tril(call: Call, x: Tensor, diagonal: int = 0) -> Tensor:
    """x with zeros above a diagonal."""
    return autograd.tril(x, diagonal)


@computes("triu")
def triu(call: Call, x: Tensor, diagonal: int = 0) -> Tensor:
    """x with zeros below a diagonal."""
    return autograd.triu(x, diagonal)
