"""Layers that pad images, in PyTorch's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .. import autograd
from ..raw.check import integers, number
from ..tensor import Tensor
from .base import Layer


class _Pad(Layer):
    """Base class: pads the last axes of x.

    padding  one number for all sides, or (left, right, top, bottom, ...): two for each axis,
             beginning with the last one. Negative numbers crop.
    """

    axes: ClassVar[int]
    mode: ClassVar[str] = "constant"
    value: float = 0.0

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        kind = type(self).__name__
        sides = padding if hasattr(padding, "__len__") else (padding,) * (2 * self.axes)
        self.padding: tuple[int, ...] = integers(kind, "padding", sides)
        if len(self.padding) != 2 * self.axes:
            raise ValueError(
                f"[{kind}] padding must be one number or {2 * self.axes}, got {padding}"
            )

    def forward(self, x: Tensor) -> Tensor:
        rank = len(x.shape)
        if rank < self.axes:
            raise ValueError(f"[{self.title}] x has {rank} axes: {tuple(x.shape)}")
        untouched = (0,) * (rank - self.axes)
        before, after = self.padding[-2::-2], self.padding[::-2]
        return autograd.pad(x, self.mode, (*untouched, *before, *untouched, *after), self.value)


class ConstantPad1d(_Pad):
    """Pads the last axis of x with `value`; see ConstantPad2d.

    Raises ValueError for another number of sides.

    >>> layer.ConstantPad1d((2, 1), 9.0)(tensor.Tensor(data=[[[1.0, 2.0]]]))
    Tensor([[[9., 9., 1., 2., 9.]]], dtype=float32)
    """

    axes = 1

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = number(type(self).__name__, "value", value)


class ConstantPad2d(ConstantPad1d):
    """Pads the last two axes of x with `value`.

    padding  one number for all sides, or (left, right, top, bottom). Negative numbers crop.

    Raises ValueError for another number of sides.

    >>> layer.ConstantPad2d(1, 9.0)(tensor.Tensor(data=[[[[1.0, 2.0]]]]))
    Tensor([[[[9., 9., 9., 9.],
              [9., 1., 2., 9.],
              [9., 9., 9., 9.]]]], dtype=float32)
    """

    axes = 2


class ConstantPad3d(ConstantPad1d):
    """Pads the last three axes of x with `value`. `padding` is one number, or (left, right, top,
    bottom, front, back).

    Raises ValueError for another number of sides.

    >>> layer.ConstantPad3d(1, 9.0)(tensor.ones((1, 1, 2, 2, 2))).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3


class ZeroPad1d(_Pad):
    """Pads the last axis of x with zeros. `padding` is one number, or (left, right).

    Raises ValueError for another number of sides.

    >>> layer.ZeroPad1d((2, 1))(tensor.Tensor(data=[[[1.0, 2.0]]]))
    Tensor([[[0., 0., 1., 2., 0.]]], dtype=float32)
    """

    axes = 1


class ZeroPad2d(_Pad):
    """Pads the last two axes of x with zeros. `padding` is one number, or (left, right, top,
    bottom).

    Raises ValueError for another number of sides.

    >>> layer.ZeroPad2d((1, 0, 0, 1))(tensor.Tensor(data=[[[[1.0, 2.0]]]]))
    Tensor([[[[0., 1., 2.],
              [0., 0., 0.]]]], dtype=float32)
    """

    axes = 2


class ZeroPad3d(_Pad):
    """Pads the last three axes of x with zeros. `padding` is one number, or (left, right, top,
    bottom, front, back).

    Raises ValueError for another number of sides.

    >>> layer.ZeroPad3d(1)(tensor.ones((1, 1, 2, 2, 2))).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3


class ReflectionPad1d(_Pad):
    """Pads the last axis of x with its reflection at the ends, which are not repeated. `padding` is
    one number, or (left, right), less than the length.

    Raises ValueError for another number of sides.

    >>> layer.ReflectionPad1d(2)(tensor.Tensor(data=[[[1.0, 2.0, 3.0]]]))
    Tensor([[[3., 2., 1., 2., 3., 2., 1.]]], dtype=float32)
    """

    axes = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """Pads the last two axes of x with their reflection at the edges, which are not repeated.
    `padding` is one number, or (left, right, top, bottom), less than the lengths.

    Raises ValueError for another number of sides.

    >>> layer.ReflectionPad2d(1)(tensor.Tensor(data=[[[[1.0, 2.0], [3.0, 4.0]]]]))
    Tensor([[[[4., 3., 4., 3.],
              [2., 1., 2., 1.],
              [4., 3., 4., 3.],
              [2., 1., 2., 1.]]]], dtype=float32)
    """

    axes = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """Pads the last three axes of x with their reflection; see ReflectionPad2d.

    Raises ValueError for another number of sides.

    >>> layer.ReflectionPad3d(1)(tensor.ones((1, 1, 2, 2, 2))).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """Pads the last axis of x with the elements at its ends. `padding` is one number, or (left,
    right).

    Raises ValueError for another number of sides.

    >>> layer.ReplicationPad1d(2)(tensor.Tensor(data=[[[1.0, 2.0, 3.0]]]))
    Tensor([[[1., 1., 1., 2., 3., 3., 3.]]], dtype=float32)
    """

    axes = 1
    mode = "edge"


class ReplicationPad2d(_Pad):
    """Pads the last two axes of x with the elements at the edges. `padding` is one number, or
    (left, right, top, bottom).

    Raises ValueError for another number of sides.

    >>> layer.ReplicationPad2d(1)(tensor.Tensor(data=[[[[1.0, 2.0], [3.0, 4.0]]]]))
    Tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.],
              [3., 3., 4., 4.],
              [3., 3., 4., 4.]]]], dtype=float32)
    """

    axes = 2
    mode = "edge"


class ReplicationPad3d(_Pad):
    """Pads the last three axes of x with the elements at the edges; see ReplicationPad2d.

    Raises ValueError for another number of sides.

    >>> layer.ReplicationPad3d(1)(tensor.ones((1, 1, 2, 2, 2))).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3
    mode = "edge"


class CircularPad1d(_Pad):
    """Pads the last axis of x with the elements at its other end. `padding` is one number, or
    (left, right).

    Raises ValueError for another number of sides.

    >>> layer.CircularPad1d(1)(tensor.Tensor(data=[[[1.0, 2.0, 3.0]]]))
    Tensor([[[3., 1., 2., 3., 1.]]], dtype=float32)
    """

    axes = 1
    mode = "wrap"


class CircularPad2d(_Pad):
    """Pads the last two axes of x with the elements at the other ends. `padding` is one number, or
    (left, right, top, bottom).

    Raises ValueError for another number of sides.

    >>> layer.CircularPad2d((1, 0, 0, 1))(tensor.Tensor(data=[[[[1.0, 2.0], [3.0, 4.0]]]]))
    Tensor([[[[2., 1., 2.],
              [4., 3., 4.],
              [2., 1., 2.]]]], dtype=float32)
    """

    axes = 2
    mode = "wrap"


class CircularPad3d(_Pad):
    """Pads the last three axes of x with the elements at the other ends; see CircularPad2d.

    Raises ValueError for another number of sides.

    >>> layer.CircularPad3d(1)(tensor.ones((1, 1, 2, 2, 2))).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3
    mode = "wrap"
