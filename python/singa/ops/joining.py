"""Operators that split, join, repeat and shuffle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..raw.check import axis_of, integer, integers
from ..tape.arguments import also_named
from ..tape.tensor import Tensor
from .base import BuiltinOperator, axes_of, integers_of
from .conversion import Promoting

if TYPE_CHECKING:
    from ..tape.operator import Raw

_FLATTENED = -1000  # means no axis in singa_wrap.Repeat


class Split(BuiltinOperator):
    """Splits along an axis into pieces of lengths `parts`, or into `num_output` equal pieces."""

    def __init__(
        self, axis: int, parts: Sequence[int] | None = None, num_output: int | None = None
    ) -> None:
        super().__init__()
        if parts is None and num_output is None:
            raise ValueError("[Split] needs parts or num_output")
        self.axis = axis
        self.parts: tuple[int, ...] | None = (
            None if parts is None else integers_of("Split", "parts", parts)
        )
        self.num_output: int | None = (
            None if num_output is None else integer("Split", "num_output", num_output, 1)
        )

    def forward(self, x: Raw) -> tuple[Raw, ...]:
        parts = self.parts
        if parts is None:
            assert self.num_output is not None
            shape = x.shape()
            length, left = divmod(shape[axis_of("Split", self.axis, shape)], self.num_output)
            if left:
                raise ValueError(
                    f"[Split] {self.num_output} equal pieces of shape {shape} along {self.axis}"
                )
            parts = (length,) * self.num_output
        return _c.Split(x, self.axis, parts)

    def backward(self, *dys: Raw) -> Raw:
        return _c.Concat(dys, self.axis)


class Concat(Promoting):
    """Concatenates tensors along an axis."""

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


class Tile(BuiltinOperator):
    """Repeats the whole tensor along each axis.

    As in SINGA, fewer counts than axes are for the first axes; in numpy.tile they are for the last.
    More counts than axes add axes in front.
    """

    fresh_gradients = True

    def __init__(self, repeats: Any) -> None:
        super().__init__()
        self.repeats: tuple[int, ...] = integers_of(type(self).__name__, "repeats", repeats)
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


class Repeat(BuiltinOperator):
    """Repeats elements along an axis, as numpy.repeat; without an axis, of the flattened tensor.

    `repeats` is one count for all elements, or one for each along the axis.
    """

    def __init__(self, repeats: int | Sequence[int], axis: int | None = None) -> None:
        super().__init__()
        self.repeats: tuple[int, ...] = integers_of(type(self).__name__, "repeats", repeats)
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


class Roll(BuiltinOperator):
    """Moves elements by `shifts` positions along `axis`, and those beyond the end to the beginning,
    as numpy.roll. Without an axis, x is rolled as if it were flattened."""

    fresh_gradients = True

    def __init__(
        self, shifts: int | Sequence[int], axis: int | Sequence[int] | None = None
    ) -> None:
        super().__init__()
        many = not isinstance(shifts, int) and hasattr(shifts, "__len__")
        self.shifts: tuple[int, ...] = integers("Roll", "shifts", shifts if many else (shifts,))
        self.axes: tuple[int, ...] = axes_of("Roll", axis)
        if axis is None and len(self.shifts) != 1:
            raise ValueError(f"[Roll] without an axis, shifts must be one number, got {shifts}")

    def forward(self, x: Raw) -> Raw:
        return self._rolled(x, self.shifts)

    def backward(self, dy: Raw) -> Raw:
        return self._rolled(dy, tuple([-shift for shift in self.shifts]))

    def _rolled(self, x: Raw, shifts: tuple[int, ...]) -> Raw:
        if self.axes:
            many = shifts * len(self.axes) if len(shifts) == 1 else shifts
            return _c.Roll(x, many, self.axes)
        return _c.Roll(x.Reshape((-1,)), shifts, (0,)).Reshape(x.shape())


class ChannelShuffle(BuiltinOperator):
    """Divides the channels, axis 1, into `groups` equal groups that take turns in the result, as
    torch.nn.ChannelShuffle: channel j·groups + i is channel j of group i."""

    fresh_gradients = True

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups: int = integer("ChannelShuffle", "groups", groups)
        self._inverse = 1

    def forward(self, x: Raw) -> Raw:
        y = _c.ChannelShuffle(x, self.groups)
        self._inverse = max(x.shape()[1] // self.groups, 1)
        return y

    def backward(self, dy: Raw) -> Raw:
        return _c.ChannelShuffle(dy, self._inverse)


def split(
    x: Tensor, axis: int, parts: Sequence[int] | None = None, num_output: int | None = None
) -> tuple[Tensor, ...]:
    """Splits along an axis into pieces of lengths `parts`, or into `num_output` equal pieces.

    Raises ValueError if the axis cannot be split so, or if neither is given.

    >>> a, b = autograd.split(tensor.Tensor(data=[1.0, 2.0, 3.0]), 0, [1, 2])
    >>> a, b
    (Tensor([1.], dtype=float32), Tensor([2., 3.], dtype=float32))
    """
    return Split(axis, parts, num_output)(x)


@also_named(dim="axis")
def cat(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Concatenates tensors along an axis (default 0). Their other dimensions must be equal.

    Raises ValueError if other dimensions differ.

    >>> autograd.cat([tensor.Tensor(data=[[1.0, 2.0]]), tensor.Tensor(data=[[3.0, 4.0]])])
    Tensor([[1., 2.],
            [3., 4.]], dtype=float32)
    """
    return Concat(axis)(*xs)[0]


def tile(x: Tensor, repeats: Any) -> Tensor:
    """Repeats the whole tensor along each axis, beginning with the first; see `Tile`.

    Raises ValueError for negative counts.

    >>> autograd.tile(tensor.Tensor(data=[[1.0, 2.0]]), (2, 2))
    Tensor([[1., 2., 1., 2.],
            [1., 2., 1., 2.]], dtype=float32)
    """
    return Tile(repeats)(x)[0]


@also_named(dim="axis")
def roll(x: Tensor, shifts: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Moves elements by `shifts` positions along one or more axes, and those beyond the end to the
    beginning, as numpy.roll. Without an axis, x is rolled as if it were flattened.

    Raises ValueError unless there is one shift, or one for each axis.

    >>> autograd.roll(tensor.Tensor(data=[1.0, 2.0, 3.0]), 1)
    Tensor([3., 1., 2.], dtype=float32)
    """
    return Roll(shifts, axis)(x)[0]


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Channels in an order in which `groups` equal groups of them take turns, as
    torch.nn.functional.channel_shuffle. x is (N, C, ...) and keeps its layout.

    Raises ValueError if x has no axis 1 or `groups` does not divide it.

    >>> x = tensor.Tensor(data=np.arange(4).reshape(1, 4, 1))
    >>> autograd.channel_shuffle(x, 2).reshape((4,))
    Tensor([0., 2., 1., 3.], dtype=float32)
    """
    return ChannelShuffle(groups)(x)[0]
