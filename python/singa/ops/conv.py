"""Convolution and transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import singa_wrap as _c
from .._check import integers
from .._tensor import Tensor
from ..autocast import lowered
from .base import Op

if TYPE_CHECKING:
    from ..tape import Raw

NO_PADDING = (0, 0, 0, 0)


def odd_padding_of(op: str, odd_padding: Sequence[int]) -> tuple[int, ...]:
    """SINGA's odd padding (top, bottom, left, right), checked."""
    values = integers(op, "odd_padding", odd_padding, 0)
    if len(values) != 4:
        raise ValueError(f"[{op}] odd_padding has to be (top, bottom, left, right), got {values}")
    return values


def odd_pads(odd_padding: Sequence[int]) -> tuple[int, ...]:
    """SINGA's odd padding of height and width, in ONNX order."""
    top, bottom, left, right = odd_padding
    return (0, 0, top, left, 0, 0, bottom, right)


class _Conv2d(Op):
    """y (N, out, oh, ow) of x (N, in, h, w), W (out, in / group, kh, kw) and perhaps b (out).

    `handle` holds the geometry and serves any batch size. `odd_padding` (top, bottom, left, right)
    pads x with zeros in addition to the handle's padding.
    """

    fresh_gradients = True

    def __init__(self, handle: _c.ConvHandle, odd_padding: Sequence[int] = NO_PADDING) -> None:
        super().__init__()
        self.handle = handle
        self.odd_padding = odd_padding_of("_Conv2d", odd_padding)
        self._shape: tuple[int, ...] = ()
        self._bias = False

    def forward(self, x: Raw, W: Raw, b: Raw | None = None) -> Raw:
        self._bias = b is not None
        if self.odd_padding != NO_PADDING:
            self._shape = x.shape()
            x = _c.Pad(x, "constant", odd_pads(self.odd_padding), 0.0)
        self.save(x, W)
        return _c.ConvForward(x, W, b, self.handle)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        x, W = self.load()
        need_b = self._bias and self._need(2)
        dx, dW, db = _c.ConvBackward(dy, x, W, self.handle, self._need(0), self._need(1), need_b)
        if dx is not None and self.odd_padding != NO_PADDING:
            dx = _c.PadBackward(dx, self._shape, "constant", odd_pads(self.odd_padding))
        return (dx, dW, db) if self._bias else (dx, dW)


class _ConvTranspose2d(Op):
    """The gradient of a convolution for its input, as an operator: x (N, in, h, w), W (in,
    out / group, kh, kw) and perhaps b (out)."""

    fresh_gradients = True

    def __init__(self, handle: _c.ConvTransposeHandle) -> None:
        super().__init__()
        self.handle = handle
        self._bias = False

    def forward(self, x: Raw, W: Raw, b: Raw | None = None) -> Raw:
        self._bias = b is not None
        self.save(x, W)
        return _c.ConvTransposeForward(x, W, b, self.handle)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        x, W = self.load()
        need_b = self._bias and self._need(2)
        gradients = _c.ConvTransposeBackward(
            dy, x, W, self.handle, self._need(0), self._need(1), need_b
        )
        return gradients if self._bias else gradients[:2]


def conv2d(
    handle: _c.ConvHandle,
    x: Tensor,
    W: Tensor,
    b: Tensor | None = None,
    odd_padding: Sequence[int] = NO_PADDING,
) -> Tensor:
    """Convolution of x (N, in, h, w) with W (out, in / group, kh, kw), plus b (out)."""
    op = _Conv2d(handle, odd_padding)
    x, W, b = lowered(x, W, b)
    return (op(x, W) if b is None else op(x, W, b))[0]


def conv_transpose2d(
    handle: _c.ConvTransposeHandle, x: Tensor, W: Tensor, b: Tensor | None = None
) -> Tensor:
    """Transposed convolution of x (N, in, h, w) with W (in, out / group, kh, kw), plus b (out)."""
    op = _ConvTranspose2d(handle)
    x, W, b = lowered(x, W, b)
    return (op(x, W) if b is None else op(x, W, b))[0]
