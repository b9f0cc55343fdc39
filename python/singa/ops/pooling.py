"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import singa_wrap as _c
from .._tensor import Tensor
from .base import Op
from .conv import NO_PADDING, odd_padding_of, odd_pads

if TYPE_CHECKING:
    from ..tape import Raw


class _Pooling2d(Op):
    """Maximum or average over windows of x (N, C, H, W); the handle says which.

    `odd_padding` (top, bottom, left, right) pads x in addition to the handle's padding: with minus
    infinity for maxima, with zeros that count for averages.
    """

    fresh_gradients = True

    def __init__(self, handle: _c.PoolingHandle, odd_padding: Sequence[int] = NO_PADDING) -> None:
        super().__init__()
        self.handle = handle
        self.odd_padding = odd_padding_of("_Pooling2d", odd_padding)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        if self.odd_padding != NO_PADDING:
            self._shape = x.shape()
            outside = float("-inf") if self.handle.mode == _c.PoolMode_kMax else 0.0
            x = _c.Pad(x, "constant", odd_pads(self.odd_padding), outside)
        y, saved = _c.PoolingForward(self.handle, x, self.requires_grad is not False)
        self.save(x, y, saved)
        return y

    def backward(self, dy: Raw) -> Raw:
        dx = _c.PoolingBackward(self.handle, dy, *self.load())
        if self.odd_padding != NO_PADDING:
            dx = _c.PadBackward(dx, self._shape, "constant", odd_pads(self.odd_padding))
        return dx


class GlobalAveragePool(Op):
    """Mean over height and width, which stay as length 1; channels first (NCHW) or last (NHWC)."""

    fresh_gradients = True

    def __init__(self, data_format: str = "channels_first") -> None:
        super().__init__()
        # SINGA takes every other name, such as its tests' channel_last, for channels last.
        if data_format not in ("channels_first", "channels_last", "channel_last"):
            raise ValueError(
                "[GlobalAveragePool] data_format has to be 'channels_first' or 'channels_last', "
                f"got {data_format!r}"
            )
        self._first = data_format == "channels_first"

    def forward(self, x: Raw) -> Raw:
        if len(x.shape()) != 4:
            raise ValueError(f"[GlobalAveragePool] x has to have four axes, got {x.shape()}")
        x = x if self._first else x.Transpose((0, 3, 1, 2))
        self.save(x)
        y = _c.GlobalAveragePoolForward(x)
        return y if self._first else y.Transpose((0, 2, 3, 1))

    def backward(self, dy: Raw) -> Raw:
        dy = dy if self._first else dy.Transpose((0, 3, 1, 2))
        (x,) = self.load()
        dx = _c.GlobalAveragePoolBackward(dy, x.shape(), x)
        return dx if self._first else dx.Transpose((0, 2, 3, 1))


def pooling_2d(
    handle: _c.PoolingHandle, x: Tensor, odd_padding: Sequence[int] = NO_PADDING
) -> Tensor:
    """Maximum or average over windows of x (N, C, H, W); the handle says which."""
    return _Pooling2d(handle, odd_padding)(x)[0]


def globalaveragepool(x: Tensor, data_format: str = "channels_first") -> Tensor:
    """Mean over height and width, which stay as length 1."""
    return GlobalAveragePool(data_format)(x)[0]
