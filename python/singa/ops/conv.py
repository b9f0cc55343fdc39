"""Convolution and transposed convolution of images with one to three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .. import singa_wrap as _c
from ..raw.check import integers
from ..tape.tensor import Tensor
from .base import BuiltinOperator
from .conversion import autocast_operands

if TYPE_CHECKING:
    from ..tape.operator import Raw

NO_PADDING = (0, 0, 0, 0)


def odd_padding_of(op: str, odd_padding: Sequence[int]) -> tuple[int, ...]:
    """Checks SINGA's odd padding (top, bottom, left, right) and returns it as a tuple."""
    if type(odd_padding) is tuple and odd_padding == NO_PADDING:
        return NO_PADDING
    values = integers(op, "odd_padding", odd_padding, 0)
    if len(values) != 4:
        raise ValueError(f"[{op}] odd_padding must be (top, bottom, left, right), got {values}")
    return values


def odd_pads(odd_padding: Sequence[int]) -> tuple[int, ...]:
    """Converts SINGA's odd padding to ONNX's pads of a tensor (N, C, H, W)."""
    top, bottom, left, right = odd_padding
    return (0, 0, top, left, 0, 0, bottom, right)


class _Conv(BuiltinOperator):
    """Convolution of x (N, in, ...) with W (out, in / group, kernel), plus an optional b (out).

    `handle` holds the geometry, also the number of spatial axes, and works for any batch size.
    """

    fresh_gradients = True
    _functions: ClassVar[tuple[Callable[..., Any], ...]] = _c.ConvForward, _c.ConvBackward

    def __init__(self, handle: _c.ConvHandle | _c.ConvTransposeHandle) -> None:
        super().__init__()
        self.handle = handle
        self._bias = False

    def forward(self, x: Raw, W: Raw, b: Raw | None = None) -> Raw:
        self._bias = b is not None
        self.save(x, W)
        return self._functions[0](x, W, b, self.handle)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        x, W = self.load()
        need_b = self._bias and self._need(2)
        gradients = self._functions[1](dy, x, W, self.handle, self._need(0), self._need(1), need_b)
        return gradients if self._bias else gradients[:2]


class _Conv2d(_Conv):
    """Convolution of x (N, in, h, w) with W (out, in / group, kh, kw), plus an optional b (out).

    `handle` holds the geometry and works for any batch size. `odd_padding` (top, bottom, left,
    right) is zero padding in addition to that of the handle.
    """

    def __init__(self, handle: _c.ConvHandle, odd_padding: Sequence[int] = NO_PADDING) -> None:
        super().__init__(handle)
        self.odd_padding = odd_padding_of("_Conv2d", odd_padding)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw, W: Raw, b: Raw | None = None) -> Raw:
        if self.odd_padding != NO_PADDING:
            self._shape = x.shape()
            x = _c.Pad(x, "constant", odd_pads(self.odd_padding), 0.0)
        return super().forward(x, W, b)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        dx, *others = super().backward(dy)
        if dx is not None and self.odd_padding != NO_PADDING:
            dx = _c.PadBackward(dx, self._shape, "constant", odd_pads(self.odd_padding))
        return (dx, *others)


class _ConvTranspose(_Conv):
    """Transposed convolution, which is the gradient of a convolution with respect to its input.

    x has shape (N, in, ...), W (in, out / group, kernel), and the optional b (out). `handle` holds
    the geometry, also the number of spatial axes.
    """

    _functions = _c.ConvTransposeForward, _c.ConvTransposeBackward


class _ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of x (N, in, h, w)."""


def conv1d(handle: _c.ConvHandle, x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """Convolution of x (N, in, l) with W (out, in / group, k), plus an optional b (out).

    `handle` is a singa_wrap.ConvHandle with kernel, stride, padding, dilation and groups. Under
    `autocast` it computes in 16 bits.

    Raises ValueError for shapes that do not fit the handle.

    >>> from singa import singa_wrap
    >>> x, W = tensor.Tensor(data=[[[1.0, 2.0, 4.0, 8.0]]]), tensor.ones((1, 1, 3))
    >>> handle = singa_wrap.ConvHandle(x.data, [3], [1], [0], 1, 1, False)
    >>> autograd.conv1d(handle, x, W)
    Tensor([[[ 7., 14.]]], dtype=float32)
    """
    return _apply(_Conv(handle), x, W, b)


def conv2d(
    handle: _c.ConvHandle,
    x: Tensor,
    W: Tensor,
    b: Tensor | None = None,
    odd_padding: Sequence[int] = NO_PADDING,
) -> Tensor:
    """Convolution of x (N, in, h, w) with W (out, in / group, kh, kw), plus an optional b (out).

    handle       singa_wrap.ConvHandle: kernel, stride, padding, dilation and groups
    odd_padding  zero padding (top, bottom, left, right) in addition to that of the handle
                 (default 0)

    Returns y (N, out, oh, ow). Under `autocast` it computes in 16 bits.

    Raises ValueError for shapes that do not fit the handle.

    >>> from singa import singa_wrap
    >>> x, W = tensor.ones((1, 3, 5, 5)), tensor.ones((8, 3, 3, 3))
    >>> handle = singa_wrap.ConvHandle(x.data, [3, 3], [1, 1], [1, 1], 3, 8, False)
    >>> autograd.conv2d(handle, x, W).shape
    (1, 8, 5, 5)
    """
    return _apply(_Conv2d(handle, odd_padding), x, W, b)


def conv3d(handle: _c.ConvHandle, x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """Convolution of x (N, in, d, h, w) with W (out, in / group, kd, kh, kw), plus an optional
    b (out). See `conv1d`.

    >>> from singa import singa_wrap
    >>> x, W = tensor.ones((1, 1, 5, 5, 5)), tensor.ones((2, 1, 3, 3, 3))
    >>> handle = singa_wrap.ConvHandle(x.data, [3, 3, 3], [1, 1, 1], [0, 0, 0], 1, 2, False)
    >>> autograd.conv3d(handle, x, W).shape
    (1, 2, 3, 3, 3)
    """
    return _apply(_Conv(handle), x, W, b)


def conv_transpose1d(
    handle: _c.ConvTransposeHandle, x: Tensor, W: Tensor, b: Tensor | None = None
) -> Tensor:
    """Transposed convolution of x (N, in, l) with W (in, out / group, k), plus an optional b (out).
    `handle` is a singa_wrap.ConvTransposeHandle with the geometry.

    Raises ValueError for shapes that do not fit the handle.

    >>> from singa import singa_wrap
    >>> x, W = tensor.Tensor(data=[[[1.0, 2.0]]]), tensor.ones((1, 1, 2))
    >>> handle = singa_wrap.ConvTransposeHandle(x.data, [2], [2], [0], [0], 1, 1, False)
    >>> autograd.conv_transpose1d(handle, x, W)
    Tensor([[[1., 1., 2., 2.]]], dtype=float32)
    """
    return _apply(_ConvTranspose(handle), x, W, b)


def conv_transpose2d(
    handle: _c.ConvTransposeHandle, x: Tensor, W: Tensor, b: Tensor | None = None
) -> Tensor:
    """Transposed convolution of x (N, in, h, w) with W (in, out / group, kh, kw), plus an optional
    b (out). See `conv_transpose1d`.

    >>> from singa import singa_wrap
    >>> x, W = tensor.ones((1, 4, 5, 5)), tensor.ones((4, 2, 2, 2))
    >>> handle = singa_wrap.ConvTransposeHandle(x.data, [2, 2], [2, 2], [0, 0], [0, 0], 4, 2, False)
    >>> autograd.conv_transpose2d(handle, x, W).shape
    (1, 2, 10, 10)
    """
    return _apply(_ConvTranspose2d(handle), x, W, b)


def conv_transpose3d(
    handle: _c.ConvTransposeHandle, x: Tensor, W: Tensor, b: Tensor | None = None
) -> Tensor:
    """Transposed convolution of x (N, in, d, h, w) with W (in, out / group, kd, kh, kw), plus an
    optional b (out). See `conv_transpose1d`.

    >>> from singa import singa_wrap
    >>> x, W = tensor.ones((1, 4, 3, 3, 3)), tensor.ones((4, 2, 2, 2, 2))
    >>> handle = singa_wrap.ConvTransposeHandle(x.data, *[[2] * 3] * 2, *[[0] * 3] * 2, 4, 2, False)
    >>> autograd.conv_transpose3d(handle, x, W).shape
    (1, 2, 6, 6, 6)
    """
    return _apply(_ConvTranspose(handle), x, W, b)


def _apply(op: BuiltinOperator, x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    x, W, b = autocast_operands(x, W, b)
    return (op(x, W) if b is None else op(x, W, b))[0]
