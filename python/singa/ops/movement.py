"""Operators that move, repeat, join or convert elements without calculating."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from .._check import integer, integers, number
from .._indexing import view
from .._tensor import Tensor
from ..dtypes import as_dtype, is_float
from .base import Constant, Op, axes_of, integers_of, numbers_of

if TYPE_CHECKING:
    from ..tape import Raw


class Identity(Op):
    """x itself."""

    def forward(self, x: Raw) -> Raw:
        return x

    def backward(self, dy: Raw) -> Raw:
        return dy


class Contiguous(Identity):
    """x, as a copy in row-major order unless it lies so already."""

    def forward(self, x: Raw) -> Raw:
        return x.Contiguous()


class ToBlocked(Identity):
    """x in the layout that the device's convolutions like such images in."""

    def forward(self, x: Raw) -> Raw:
        return _c.ToBlocked(x)


class _Reshaping(Op):
    """An operator that only gives the elements another shape."""

    _shape: tuple[int, ...] = ()

    def backward(self, dy: Raw) -> Raw:
        return dy.Reshape(self._shape)


class Reshape(_Reshaping):
    """Another shape; one entry may be -1, and a 0 stands for x's own length there, as in ONNX."""

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.shape = integers_of(type(self).__name__, "shape", shape)

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        shape = self.shape
        if 0 in shape and 0 not in self._shape:
            if any(n == 0 and i >= len(self._shape) for i, n in enumerate(shape)):
                raise ValueError(f"[Reshape] no axis of {self._shape} for a 0 in {shape}")
            shape = tuple(self._shape[i] if n == 0 else n for i, n in enumerate(shape))
        return x.Reshape(shape)


class Flatten(_Reshaping):
    """A matrix: the axes before `axis` and those from it on."""

    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Raw) -> Raw:
        self._shape = shape = x.shape()
        if not -len(shape) <= self.axis <= len(shape):
            raise ValueError(f"[Flatten] axis {self.axis} is outside a tensor of shape {shape}")
        axis = self.axis + len(shape) if self.axis < 0 else self.axis
        return x.Reshape((math.prod(shape[:axis]), math.prod(shape[axis:])))


class Squeeze(_Reshaping):
    """Without the axes of length 1 that are named (none: all of them)."""

    def __init__(self, axis: int | Sequence[int] = ()) -> None:
        super().__init__()
        self.axis = axes_of(type(self).__name__, axis)

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return x.Squeeze(self.axis)


class Unsqueeze(_Reshaping):
    """With new axes of length 1. A single number is the position in the result (-1: the last).

    A list is inserted one axis after the other, as in SINGA: each entry is the index that
    `list.insert` takes for the shape so far. Rising entries are the positions in the result; -1
    inserts before the last axis.
    """

    def __init__(self, axis: int | Sequence[int]) -> None:
        super().__init__()
        self._several = axis is not None and hasattr(axis, "__len__")
        self.axis = axes_of(type(self).__name__, axis)

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        rising = self.axis == tuple(sorted(self.axis)) and min(self.axis, default=0) >= 0
        twice = len(set(self.axis)) < len(self.axis)  # which Unsqueeze refuses
        if rising or twice or not self._several:
            return x.Unsqueeze(self.axis)
        shape = list(self._shape)
        for i in self.axis:
            if not -len(shape) <= i <= len(shape):
                raise ValueError(f"[Unsqueeze] axis {i} is outside a shape of {len(shape)} axes")
            shape.insert(i, 1)
        return x.Reshape(tuple(shape))


class Transpose(Op):
    """The axes in another order (None: reversed)."""

    def __init__(self, perm: Sequence[int] | None = None) -> None:
        super().__init__()
        self.perm = () if perm is None else integers("Transpose", "axes", perm)

    def forward(self, x: Raw) -> Raw:
        return x.Transpose(self.perm)

    def backward(self, dy: Raw) -> Raw:
        rank = len(self.perm)  # none: reversed, which is its own inverse
        return dy.Transpose(sorted(range(rank), key=lambda i: self.perm[i] % rank))


class Expand(Op):
    """x broadcast together with a shape, as a copy."""

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.shape = integers_of(type(self).__name__, "shape", shape)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        try:
            shape = np.broadcast_shapes(self._shape, self.shape)
        except ValueError:
            raise ValueError(
                f"[Expand] shape {self._shape} does not broadcast with {self.shape}"
            ) from None
        return x.Broadcast(shape).Contiguous()

    def backward(self, dy: Raw) -> Raw:
        return _c.SumTo(dy, self._shape)


class Index(Op):
    """A view by integers, slices and new axes (see `_indexing.normalize`)."""

    fresh_gradients = True

    def __init__(self, entries: Sequence[Any]) -> None:
        super().__init__()
        self.entries = tuple(entries)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return view(x, self.entries)

    def backward(self, dy: Raw) -> Raw:
        dx = _c.Full(self._shape, 0.0, dy.device(), dy.data_type())
        view(dx, self.entries).CopyFrom(dy)
        return dx


class Slice(Op):
    """x[starts:ends:steps] along `axes` (None: the first ones), as in ONNX."""

    fresh_gradients = True

    def __init__(self, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> None:
        super().__init__()
        parts = (starts, ends, axes, steps)
        names = ("starts", "ends", "axes", "steps")
        self._parts = [
            () if part is None else integers_of("Slice", name, part)
            for name, part in zip(names, parts, strict=True)
        ]
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return _c.Slice(x, *self._parts)

    def backward(self, dy: Raw) -> Raw:
        return _c.SliceBackward(dy, self._shape, *self._parts)


class Split(Op):
    """Pieces along an axis: of lengths `parts`, or `num_output` equal ones."""

    def __init__(
        self, axis: int, parts: Sequence[int] | None = None, num_output: int | None = None
    ) -> None:
        super().__init__()
        if parts is None and num_output is None:
            raise ValueError("[Split] needs parts or num_output")
        self.axis = axis
        self.parts = None if parts is None else integers_of("Split", "parts", parts)
        self.num_output = (
            None if num_output is None else integer("Split", "num_output", num_output, 1)
        )

    def forward(self, x: Raw) -> tuple[Raw, ...]:
        parts = self.parts
        if parts is None:
            assert self.num_output is not None
            shape = x.shape()
            if not -len(shape) <= self.axis < len(shape):
                raise ValueError(f"[Split] axis {self.axis} is outside a tensor of shape {shape}")
            length, left = divmod(shape[self.axis], self.num_output)
            if left:
                raise ValueError(
                    f"[Split] {self.num_output} equal pieces of shape {shape} along {self.axis}"
                )
            parts = (length,) * self.num_output
        return _c.Split(x, self.axis, parts)

    def backward(self, *dys: Raw) -> Raw:
        return _c.Concat(dys, self.axis)


class Concat(Op):
    """Tensors joined along an axis."""

    def __init__(self, axis: int = 0) -> None:
        super().__init__()
        self.axis = axis
        self._parts: tuple[int, ...] = ()

    def forward(self, *xs: Raw) -> Raw:
        y = _c.Concat(xs, self.axis)
        self._parts = tuple(x.shape()[self.axis] for x in xs)
        return y

    def backward(self, dy: Raw) -> tuple[Raw, ...]:
        return tuple(_c.Split(dy, self.axis, self._parts))


class Tile(Op):
    """The whole tensor repeated along each axis, from the first one on, as in SINGA: one number is
    for axis 0. (numpy.tile takes fewer numbers than axes for the last ones.) More numbers than axes
    make new axes in front."""

    fresh_gradients = True

    def __init__(self, repeats: Any) -> None:
        super().__init__()
        self.repeats = integers_of(type(self).__name__, "repeats", repeats)
        self._shape: tuple[int, ...] = ()
        self._aligned: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        self._aligned = self.repeats + (1,) * (len(self._shape) - len(self.repeats))
        return _c.Tile(x.Reshape(self._full_shape()), self._aligned)

    def _full_shape(self) -> tuple[int, ...]:
        return (1,) * (len(self._aligned) - len(self._shape)) + self._shape

    def backward(self, dy: Raw) -> Raw:
        return _c.TileBackward(dy, self._full_shape(), self._aligned).Reshape(self._shape)


class Repeat(Op):
    """Each element repeated, as numpy.repeat: one number, or one for each along the axis (None:
    flattened)."""

    def __init__(self, repeats: int | Sequence[int], axis: int | None = None) -> None:
        super().__init__()
        self.repeats = integers_of(type(self).__name__, "repeats", repeats)
        self.axis = axis
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return _c.Repeat(x, self.repeats, _FLATTENED if self.axis is None else self.axis)

    def backward(self, dy: Raw) -> Raw:
        shape = (math.prod(self._shape),) if self.axis is None else self._shape
        axis = self.axis or 0
        source = np.repeat(np.arange(shape[axis]), self.repeats)
        dx = _c.GatherBackward(dy, shape, axis, _c.from_buffer(source).ToDevice(dy.device()))
        return dx.Reshape(self._shape)


_FLATTENED = -1000  # singa_wrap.Repeat's "no axis"


class Pad(Op):
    """mode "constant", "reflect" or "edge"; pads are (begin of each axis ..., end of each axis
    ...), as in ONNX; negative ones crop."""

    fresh_gradients = True

    def __init__(self, mode: str, pads: Any, constant: float = 0.0) -> None:
        super().__init__()
        self.mode = mode
        self.pads = integers_of("Pad", "pads", pads)
        self.constant = number("Pad", "constant", constant)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return _c.Pad(x, self.mode, self.pads, self.constant)

    def backward(self, dy: Raw) -> Raw:
        return _c.PadBackward(dy, self._shape, self.mode, self.pads)


class UpSample(Op):
    """Nearest-neighbour enlargement by whole factors, one for each axis."""

    fresh_gradients = True

    def __init__(self, mode: str, scales: Any) -> None:
        super().__init__()
        if mode not in ("nearest", b"nearest"):
            raise ValueError(f"[UpSample] mode has to be 'nearest', got {mode!r}")
        self.scales = integers_of("UpSample", "scales", scales, 1)

    def forward(self, x: Raw) -> Raw:
        return _c.Upsample(x, self.scales)

    def backward(self, dy: Raw) -> Raw:
        return _c.UpsampleBackward(dy, self.scales)


def _depth_to_space(x: Raw, block: int, mode: str) -> Raw:
    n, c, h, w = x.shape()
    depth = c // (block * block)
    if mode == "DCR":
        x = x.Reshape((n, block, block, depth, h, w)).Transpose((0, 3, 4, 1, 5, 2))
    else:
        x = x.Reshape((n, depth, block, block, h, w)).Transpose((0, 1, 4, 2, 5, 3))
    return x.Reshape((n, depth, h * block, w * block))


def _space_to_depth(x: Raw, block: int, mode: str) -> Raw:
    n, c, h, w = x.shape()
    x = x.Reshape((n, c, h // block, block, w // block, block))
    x = x.Transpose((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return x.Reshape((n, c * block * block, h // block, w // block))


class _BlockShuffle(Op):
    def __init__(self, blocksize: int, mode: str = "DCR") -> None:
        super().__init__()
        op = type(self).__name__
        if mode not in ("DCR", "CRD"):
            raise ValueError(f"[{op}] mode has to be 'DCR' or 'CRD', got {mode!r}")
        self.blocksize, self.mode = integer(op, "blocksize", blocksize, 1), mode


def _check_blocks(op: str, shape: tuple[int, ...], axes: Sequence[int], divisor: int) -> None:
    if len(shape) != 4 or any(shape[axis] % divisor for axis in axes):
        raise ValueError(f"[{op}] axes {tuple(axes)} of shape {shape} do not divide by {divisor}")


class DepthToSpace(_BlockShuffle):
    """(N, C, H, W) to (N, C / b², H·b, W·b): channels become blocks of b x b pixels, the block's
    position first (DCR) or last (CRD) among them."""

    def forward(self, x: Raw) -> Raw:
        _check_blocks("DepthToSpace", x.shape(), (1,), self.blocksize**2)
        return _depth_to_space(x, self.blocksize, self.mode)

    def backward(self, dy: Raw) -> Raw:
        return _space_to_depth(dy, self.blocksize, self.mode)


class SpaceToDepth(_BlockShuffle):
    """The inverse of DepthToSpace."""

    def forward(self, x: Raw) -> Raw:
        _check_blocks("SpaceToDepth", x.shape(), (2, 3), self.blocksize)
        return _space_to_depth(x, self.blocksize, self.mode)

    def backward(self, dy: Raw) -> Raw:
        return _depth_to_space(dy, self.blocksize, self.mode)


class Cast(Op):
    """Another element type. Results of integer and bool types have no gradient."""

    def __init__(self, to: Any) -> None:
        super().__init__()
        self.to = as_dtype(to)
        self.differentiable = is_float(self.to)
        self._from = 0

    def forward(self, x: Raw) -> Raw:
        self._from = x.data_type()
        self.fresh_gradients = self._from != int(self.to)
        return x.AsType(int(self.to))

    def backward(self, dy: Raw) -> Raw:
        return dy.AsType(self._from)


class Shape(Constant):
    """The lengths of the axes, int32."""

    def forward(self, x: Raw) -> Raw:
        return _c.from_buffer(np.array(x.shape(), np.int32)).ToDevice(x.device())

    def backward(self, *dys: Raw) -> list[int]:
        """The shape of dy, which is what SINGA's returns."""
        return list(dys[0].shape())


class ConstantOfShape(Constant):
    """A tensor whose shape is x's elements, filled with a value."""

    def __init__(self, value: Any = 0.0) -> None:
        super().__init__()
        self.value = numbers_of(value)[0]

    def forward(self, x: Raw) -> Raw:
        shape = integers_of("ConstantOfShape", "shape", x, 0)
        dtype = _c.kFloat32 if isinstance(self.value, float) else _c.kInt32
        return _c.Full(shape, float(self.value), x.device(), dtype)


def identity(x: Tensor) -> Tensor:
    """x, recorded."""
    return Identity()(x)[0]


def to_blocked(x: Tensor) -> Tensor:
    """x in the layout that the device's convolutions like such images in; x itself for tensors that
    are no images (N, C, H, W) of a float type that the backend has."""
    return ToBlocked()(x)[0]


def reshape(x: Tensor, shape: Any) -> Tensor:
    """Another shape; one entry may be -1, and a 0 stands for x's own length there."""
    return Reshape(shape)(x)[0]


def flatten(x: Tensor, axis: int = 1) -> Tensor:
    """A matrix: the axes before `axis` and those from it on."""
    return Flatten(axis)(x)[0]


def squeeze(x: Tensor, axis: int | Sequence[int] = ()) -> Tensor:
    """Without the axes of length 1 that are named (none: all of them)."""
    return Squeeze(axis)(x)[0]


def unsqueeze(x: Tensor, axis: int | Sequence[int] = -1) -> Tensor:
    """With new axes of length 1: at this position of the result, or those of a list one after the
    other (see `Unsqueeze`)."""
    return Unsqueeze(axis)(x)[0]


def transpose(x: Tensor, shape: Sequence[int] | None = None) -> Tensor:
    """The axes in the order that `shape` says (None: reversed)."""
    return Transpose(shape)(x)[0]


def expand(x: Tensor, shape: Any) -> Tensor:
    """x broadcast together with a shape, as a copy."""
    return Expand(shape)(x)[0]


def slice(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    """x[starts:ends:steps] along `axes` (None: the first ones)."""
    return Slice(starts, ends, axes, steps)(x)[0]


def split(
    x: Tensor, axis: int, parts: Sequence[int] | None = None, num_output: int | None = None
) -> tuple[Tensor, ...]:
    """Pieces along an axis: of lengths `parts`, or `num_output` equal ones."""
    return Split(axis, parts, num_output)(x)


def cat(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors joined along an axis."""
    return Concat(axis)(*xs)[0]


def tile(x: Tensor, repeats: Any) -> Tensor:
    """The whole tensor repeated along each axis, from the first one on (see `Tile`)."""
    return Tile(repeats)(x)[0]


def pad(x: Tensor, mode: str, pads: Any, constant: float = 0.0) -> Tensor:
    """mode "constant", "reflect" or "edge"; pads are (begin of each axis ..., end of each axis
    ...); negative ones crop."""
    return Pad(mode, pads, constant)(x)[0]


def upsample(x: Tensor, mode: str, scales: Any) -> Tensor:
    """Nearest-neighbour enlargement by whole factors, one for each axis."""
    return UpSample(mode, scales)(x)[0]


def depth_to_space(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """(N, C, H, W) to (N, C / b², H·b, W·b)."""
    return DepthToSpace(blocksize, mode)(x)[0]


def space_to_depth(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """The inverse of depth_to_space."""
    return SpaceToDepth(blocksize, mode)(x)[0]


def cast(x: Tensor, to: Any) -> Tensor:
    """Another element type."""
    return Cast(to)(x)[0]


def shape(x: Tensor) -> Tensor:
    """The lengths of the axes, int32."""
    return Shape()(x)[0]


def constant_of_shape(x: Tensor, value: Any = 0) -> Tensor:
    """A tensor whose shape is x's elements, filled with a value."""
    return ConstantOfShape(value)(x)[0]
