"""Operators that change the shape, the order or the place of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..raw.check import integer, integers
from ..raw.indexing import view
from ..tape.arguments import also_named
from ..tape.tensor import Tensor
from .base import BuiltinOperator, Constant, axes_of, integers_of, numbers_of

if TYPE_CHECKING:
    from ..singa_wrap import Device
    from ..tape.operator import Raw


class Identity(BuiltinOperator):
    """Returns x."""

    def forward(self, x: Raw) -> Raw:
        return x

    def backward(self, dy: Raw) -> Raw:
        return dy


class Contiguous(Identity):
    """x in row-major order; a copy only if it has another order."""

    def forward(self, x: Raw) -> Raw:
        return x.Contiguous()


class Clone(Identity):
    """A copy of x."""

    def forward(self, x: Raw) -> Raw:
        return x.Clone()


class ToBlocked(Identity):
    """x in the layout that convolutions of the device prefer for such images."""

    def forward(self, x: Raw) -> Raw:
        return _c.ToBlocked(x)


class ToDevice(BuiltinOperator):
    """x on another device. The gradient goes back to the device of x."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._to = device
        self._from: Any = None

    def forward(self, x: Raw) -> Raw:
        self._from = x.device()
        return x.ToDevice(self._to)

    def backward(self, dy: Raw) -> Raw:
        return dy.ToDevice(self._from)


class _Reshaping(BuiltinOperator):
    """Base class of operators that only change the shape."""

    _shape: tuple[int, ...] = ()

    def backward(self, dy: Raw) -> Raw:
        return dy.Reshape(self._shape)


class Reshape(_Reshaping):
    """Changes the shape. One entry may be -1, and a 0 keeps the length of x's axis, as in ONNX."""

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = integers_of(type(self).__name__, "shape", shape)

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        shape = self.shape
        if 0 in shape and 0 not in self._shape:
            if any(n == 0 and i >= len(self._shape) for i, n in enumerate(shape)):
                raise ValueError(f"[Reshape] shape {self._shape} has no axis for a 0 in {shape}")
            shape = tuple(self._shape[i] if n == 0 else n for i, n in enumerate(shape))
        return x.Reshape(shape)


class Flatten(_Reshaping):
    """Reshapes to a matrix: the axes before `axis`, and the axes from it on."""

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
    """Removes the given axes, which have length 1, or all axes of length 1 if none is given."""

    def __init__(self, axis: int | Sequence[int] = ()) -> None:
        super().__init__()
        self.axis: tuple[int, ...] = axes_of(type(self).__name__, axis)

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return x.Squeeze(self.axis)


class Unsqueeze(_Reshaping):
    """Inserts axes of length 1. A single number is the position in the result; -1 is the last.

    The axes of a list are inserted one after the other, as in SINGA: each entry is an argument of
    `list.insert` on the shape so far. Ascending entries are therefore positions in the result, and
    -1 inserts an axis before the last one. Raises ValueError for a position outside; with SINGA's
    behaviour (`singa.compat`) such an axis is the first or last one, as `list.insert` has it, and
    the list [0] leaves a vector as it is.
    """

    #: Whether an axis outside is the first or the last one.
    clamps: bool = False

    def __init__(self, axis: int | Sequence[int]) -> None:
        super().__init__()
        self._several = axis is not None and hasattr(axis, "__len__")
        self._leaves_vectors = isinstance(axis, list) and axis == [0]  # in SINGA
        self.axis: tuple[int, ...] = axes_of(type(self).__name__, axis)

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        if self.clamps and self._leaves_vectors and len(self._shape) == 1:
            return x.Reshape(self._shape)
        rising = self.axis == tuple(sorted(self.axis)) and min(self.axis, default=0) >= 0
        twice = len(set(self.axis)) < len(self.axis)  # x.Unsqueeze raises for these
        clamps = self.clamps and self._several
        if (rising or twice or not self._several) and not clamps:
            return x.Unsqueeze(self.axis)
        shape = list(self._shape)
        for i in self.axis:
            if not (clamps or -len(shape) <= i <= len(shape)):
                raise ValueError(f"[Unsqueeze] axis {i} is outside a shape of {len(shape)} axes")
            shape.insert(i, 1)
        return x.Reshape(tuple(shape))


class Transpose(BuiltinOperator):
    """Permutes the axes; reverses them by default."""

    def __init__(self, perm: Sequence[int] | None = None) -> None:
        super().__init__()
        self.perm: tuple[int, ...] = () if perm is None else integers("Transpose", "axes", perm)

    def forward(self, x: Raw) -> Raw:
        return x.Transpose(self.perm)

    def backward(self, dy: Raw) -> Raw:
        rank = len(self.perm)  # 0 if the axes are reversed, which is its own inverse
        return dy.Transpose(sorted(range(rank), key=lambda i: self.perm[i] % rank))


class Expand(BuiltinOperator):
    """A copy of x, broadcast together with a shape, as ONNX's Expand."""

    def __init__(self, shape: Any) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = integers_of(type(self).__name__, "shape", shape)
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


class Index(BuiltinOperator):
    """A view selected by integers, slices and new axes; see `raw.indexing.normalize`."""

    fresh_gradients = True

    def __init__(self, entries: Sequence[Any]) -> None:
        super().__init__()
        self.entries: tuple[Any, ...] = tuple(entries)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return view(x, self.entries)

    def backward(self, dy: Raw) -> Raw:
        dx = _c.Full(self._shape, 0.0, dy.device(), dy.data_type())
        view(dx, self.entries).CopyFrom(dy)
        return dx


class Slice(BuiltinOperator):
    """x[starts:ends:steps] along `axes` (default: the first ones), as in ONNX."""

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


class Shape(Constant):
    """The shape of x as an int32 vector."""

    def forward(self, x: Raw) -> Raw:
        return _c.from_buffer(np.array(x.shape(), np.int32)).ToDevice(x.device())

    def backward(self, *dys: Raw) -> list[int]:  # type: ignore[override]
        """The shape of dy, as in SINGA."""
        return list(dys[0].shape())


class ConstantOfShape(Constant):
    """A tensor filled with a value, whose shape is given by the elements of x."""

    def __init__(self, value: Any = 0.0) -> None:
        super().__init__()
        self.value: Any = numbers_of(value)[0]

    def forward(self, x: Raw) -> Raw:
        shape = integers_of("ConstantOfShape", "shape", x, 0)
        dtype = _c.kFloat32 if isinstance(self.value, float) else _c.kInt32
        return _c.Full(shape, float(self.value), x.device(), dtype)


def identity(x: Tensor) -> Tensor:
    """Returns x by an operator that is recorded on the tape.

    >>> autograd.identity(tensor.Tensor(data=[1.0, 2.0]))
    Tensor([1., 2.], dtype=float32)
    """
    return Identity()(x)[0]


def to_blocked(x: Tensor) -> Tensor:
    """Converts images x (N, C, H, W) or (N, C, D, H, W) to the layout that convolutions of the
    device prefer.

    Returns x if it is not an image, or if the backend has no such layout for its type.

    >>> x = tensor.random((1, 16, 4, 4))
    >>> bool((autograd.to_blocked(x).numpy() == x.numpy()).all())
    True
    """
    return ToBlocked()(x)[0]


@also_named(tensor="x")
def reshape(x: Tensor, shape: Any) -> Tensor:
    """The same elements with another shape; a view where possible. One entry may be -1, and a 0
    keeps the length of x's axis, as in ONNX.

    Raises ValueError for another number of elements.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> autograd.reshape(x, (2, -1))
    Tensor([[1., 2., 3.],
            [4., 5., 6.]], dtype=float32)
    """
    return Reshape(shape)(x)[0]


def flatten(
    x: Tensor, axis: int = 1, *, start_dim: int | None = None, end_dim: int | None = None
) -> Tensor:
    """Reshapes to a matrix: the axes before `axis` (default 1), and the axes from it on.

    With `start_dim` or `end_dim` it joins the axes from `start_dim` (default: the first) to
    `end_dim` (default: the last) into one and keeps the others, as torch.flatten.

    Raises ValueError for axes outside x or in the wrong order.

    >>> autograd.flatten(tensor.zeros((2, 3, 4))).shape
    (2, 12)
    >>> autograd.flatten(tensor.zeros((2, 3, 4)), axis=2).shape
    (6, 4)
    >>> autograd.flatten(tensor.zeros((2, 3, 4)), start_dim=0).shape
    (24,)
    """
    if start_dim is None and end_dim is None:
        return Flatten(axis)(x)[0]
    shape = x.shape or (1,)
    rank = len(shape)
    start = integer("flatten", "start_dim", 0 if start_dim is None else start_dim)
    end = integer("flatten", "end_dim", -1 if end_dim is None else end_dim)
    if not (-rank <= start < rank and -rank <= end < rank) or start % rank > end % rank:
        raise ValueError(f"[flatten] no axes {start} to {end} in a tensor of shape {x.shape}")
    start, end = start % rank, end % rank
    joined = math.prod(shape[start : end + 1])
    return Reshape((*shape[:start], joined, *shape[end + 1 :]))(x)[0]


@also_named(dim="axis")
def squeeze(x: Tensor, axis: int | Sequence[int] = ()) -> Tensor:
    """Removes one or more axes of length 1 (default: all of them).

    Raises ValueError for an axis of another length.

    >>> autograd.squeeze(tensor.zeros((1, 3, 1))).shape
    (3,)
    >>> autograd.squeeze(tensor.zeros((1, 3, 1)), 0).shape
    (3, 1)
    """
    return Squeeze(axis)(x)[0]


@also_named(dim="axis")
def unsqueeze(x: Tensor, axis: int | Sequence[int] = -1) -> Tensor:
    """Inserts one or more axes of length 1. A single number is the position in the result (default:
    the last); see `Unsqueeze` for lists.

    Raises ValueError for an axis outside the result.

    >>> autograd.unsqueeze(tensor.zeros((2, 3)), 1).shape
    (2, 1, 3)
    """
    return Unsqueeze(axis)(x)[0]


@also_named(t="x", axes="shape")
def transpose(x: Tensor, shape: Sequence[int] | None = None) -> Tensor:
    """A view with permuted axes, in the order of `axes`, which SINGA's autograd calls `shape`. By
    default the order is reversed.

    Of an image in channels-last layout it is a view of a copy in the same order, which recorded
    steps do without where the image is not used again.

    Raises ValueError unless `axes` has each axis once.

    >>> autograd.transpose(tensor.zeros((2, 3, 4)), (0, 2, 1)).shape
    (2, 4, 3)
    """
    return Transpose(shape)(x)[0]


def expand(x: Tensor, shape: Any) -> Tensor:
    """A copy of x, broadcast together with a shape, as ONNX's Expand.

    Raises ValueError for a shape to which x does not broadcast.

    >>> autograd.expand(tensor.Tensor(data=[[1.0], [2.0]]), (2, 3))
    Tensor([[1., 1., 1.],
            [2., 2., 2.]], dtype=float32)
    """
    return Expand(shape)(x)[0]


def slice(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    """x[starts:ends:steps] along `axes` (default: the first ones), as in ONNX.

    Raises ValueError for an axis outside x, and for a step of 0.

    >>> x = tensor.Tensor(data=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> autograd.slice(x, [0], [3], axes=[1], steps=[2])  # x[:, 0:3:2]
    Tensor([[1., 3.],
            [4., 6.]], dtype=float32)
    """
    return Slice(starts, ends, axes, steps)(x)[0]


def shape(x: Tensor) -> Tensor:
    """The shape of x as an int32 vector.

    >>> autograd.shape(tensor.zeros((2, 3)))
    Tensor([2, 3], dtype=int32)
    """
    return Shape()(x)[0]


def constant_of_shape(x: Tensor, value: Any = 0) -> Tensor:
    """A tensor filled with `value` (default 0), whose shape is given by the elements of x.

    It is float32 if `value` is a float, otherwise int32.

    Raises ValueError for a negative length.

    >>> autograd.constant_of_shape(tensor.Tensor(data=[2, 3], dtype="int64"), 1.5)
    Tensor([[1.5, 1.5, 1.5],
            [1.5, 1.5, 1.5]], dtype=float32)
    """
    return ConstantOfShape(value)(x)[0]
