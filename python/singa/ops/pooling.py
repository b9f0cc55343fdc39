"""Pooling of images with one to three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..raw.check import integer, one_of
from ..tape.tensor import Tensor
from .base import BuiltinOperator
from .conv import NO_PADDING, odd_padding_of, odd_pads

if TYPE_CHECKING:
    from ..tape.operator import Raw

#: Sizes along the spatial axes; None is the size of the input.
OutputSize = int | None | Sequence[int | None]


class _Pooling(BuiltinOperator):
    """Maximum or mean of each window of x (N, C, ...), as `handle` specifies."""

    fresh_gradients = True

    def __init__(self, handle: _c.PoolingHandle) -> None:
        super().__init__()
        self.handle = handle

    def forward(self, x: Raw) -> Raw:
        y, saved = _c.PoolingForward(self.handle, x, self.requires_grad is not False)
        self.save(x, y, saved)
        return y

    def backward(self, dy: Raw) -> Raw:
        return _c.PoolingBackward(self.handle, dy, *self.load())


class _Pooling2d(_Pooling):
    """Maximum or mean of each window of x (N, C, H, W), as `handle` specifies.

    `odd_padding` (top, bottom, left, right) is padding in addition to that of the handle. Maxima
    pad with minus infinity, means with zeros, which they count.
    """

    def __init__(self, handle: _c.PoolingHandle, odd_padding: Sequence[int] = NO_PADDING) -> None:
        super().__init__(handle)
        self.odd_padding = odd_padding_of("_Pooling2d", odd_padding)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        if self.odd_padding != NO_PADDING:
            self._shape = x.shape()
            outside = float("-inf") if self.handle.mode == _c.PoolMode_kMax else 0.0
            x = _c.Pad(x, "constant", odd_pads(self.odd_padding), outside)
        return super().forward(x)

    def backward(self, dy: Raw) -> Raw:
        dx = super().backward(dy)
        if self.odd_padding != NO_PADDING:
            dx = _c.PadBackward(dx, self._shape, "constant", odd_pads(self.odd_padding))
        return dx


class MaxPoolWithIndices(_Pooling):
    """Maximum of each window of x (N, C, ...), and its position in the image."""

    def forward(self, x: Raw) -> tuple[Raw, Raw]:  # type: ignore[override]
        if self.handle.mode != _c.PoolMode_kMax:
            raise ValueError("[MaxPoolWithIndices] handle must be that of a maximum")
        y, places = _c.PoolingForward(self.handle, x, True)
        self.save(x, y, places)
        return y, places.AsType(_c.kInt64)

    def backward(self, dy: Raw, *_: Raw) -> Raw:
        return super().backward(dy)


class LpPool(BuiltinOperator):
    """The p-norm of each window of x (N, C, ...); see `lp_pool`."""

    fresh_gradients = True

    def __init__(self, handle: _c.PoolingHandle, p: float) -> None:
        super().__init__()
        self.handle = handle
        self.p = p

    def forward(self, x: Raw) -> Raw:
        y = _c.LpPoolForward(self.handle, x, self.p)
        self.save(x, y)
        return y

    def backward(self, dy: Raw) -> Raw:
        return _c.LpPoolBackward(self.handle, dy, *self.load(), self.p)


class _AdaptivePool(BuiltinOperator):
    """Pooling of x (N, C, ...) into `output_size` windows along each spatial axis."""

    fresh_gradients = True
    _is_max = False

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        self.output_size = output_size

    def _sizes(self, x: Raw) -> tuple[int, ...]:
        name, spatial = type(self).__name__, x.shape()[2:]
        given = self.output_size
        sizes: Any = given if isinstance(given, (list, tuple)) else (given,) * len(spatial)
        if len(sizes) != len(spatial):
            raise ValueError(
                f"[{name}] output_size must be one or {len(spatial)} for x {x.shape()}, "
                f"got {given!r}"
            )
        return tuple(
            [
                size if wanted is None else integer(name, "output_size", wanted, 1)
                for wanted, size in zip(sizes, spatial, strict=True)
            ]
        )

    def forward(self, x: Raw) -> Raw:
        training = self.requires_grad is not False
        y, saved = _c.AdaptivePoolForward(x, self._sizes(x), self._is_max, training)
        self.save(x, saved)
        return y

    def backward(self, dy: Raw) -> Raw:
        x, saved = self.load()
        return _c.AdaptivePoolBackward(dy, x.shape(), self._is_max, x, saved)


class AdaptiveAvgPool(_AdaptivePool):
    """Means; see `adaptive_avg_pool`."""


class AdaptiveMaxPool(_AdaptivePool):
    """Maxima; see `adaptive_max_pool`."""

    _is_max = True


class _GlobalPool(BuiltinOperator):
    """Pooling of whole images. All spatial axes stay as axes of length 1.

    `data_format` is "channels_first" (N, C, ...) or "channels_last" (N, ..., C).
    """

    fresh_gradients = True

    def __init__(self, data_format: str = "channels_first") -> None:
        super().__init__()
        if data_format != "channel_last":  # as SINGA's tests write
            formats = ("channels_first", "channels_last")
            one_of(type(self).__name__, "data_format", data_format, formats)
        self._first = data_format == "channels_first"

    def _to_first(self, x: Raw) -> Raw:
        """x with the channels first."""
        rank = len(x.shape())
        return x if self._first else x.Transpose((0, rank - 1, *range(1, rank - 1)))

    def _from_first(self, x: Raw) -> Raw:
        rank = len(x.shape())
        return x if self._first else x.Transpose((0, *range(2, rank), 1))

    def _image(self, x: Raw) -> Raw:
        if not 3 <= len(x.shape()) <= 5:
            raise ValueError(
                f"[{type(self).__name__}] x must have three to five axes, got {x.shape()}"
            )
        return self._to_first(x)


class GlobalAveragePool(_GlobalPool):
    """Mean over all spatial axes, which stay as axes of length 1.

    `data_format` is "channels_first" (N, C, ...) or "channels_last" (N, ..., C).
    """

    def forward(self, x: Raw) -> Raw:
        x = self._image(x)
        self.save(x)
        return self._from_first(_c.GlobalAveragePoolForward(x))

    def backward(self, dy: Raw) -> Raw:
        (x,) = self.load()
        return self._from_first(_c.GlobalAveragePoolBackward(self._to_first(dy), x.shape(), x))


class GlobalMaxPool(_GlobalPool):
    """Maximum over all spatial axes, which stay as axes of length 1. Of equal values the first gets
    the gradient.

    `data_format` is "channels_first" (N, C, ...) or "channels_last" (N, ..., C).
    """

    def forward(self, x: Raw) -> Raw:
        x = self._image(x)
        ones = (1,) * (len(x.shape()) - 2)
        y, saved = _c.AdaptivePoolForward(x, ones, True, self.requires_grad is not False)
        self.save(x, saved)
        return self._from_first(y)

    def backward(self, dy: Raw) -> Raw:
        x, saved = self.load()
        dx = _c.AdaptivePoolBackward(self._to_first(dy), x.shape(), True, x, saved)
        return self._from_first(dx)


def pooling_1d(handle: _c.PoolingHandle, x: Tensor) -> Tensor:
    """Maximum or mean of each window of x (N, C, L), by a singa_wrap.PoolingHandle: the kind, and
    the geometry of the windows.

    Raises ValueError if x has another number of axes.

    >>> from singa import singa_wrap
    >>> x = tensor.Tensor(data=[[[1.0, 5.0, 2.0, 3.0]]])
    >>> handle = singa_wrap.PoolingHandle(x.data, [2], [2], [0], True)
    >>> autograd.pooling_1d(handle, x)
    Tensor([[[5., 3.]]], dtype=float32)
    """
    return _Pooling(handle)(x)[0]


def pooling_2d(
    handle: _c.PoolingHandle, x: Tensor, odd_padding: Sequence[int] = NO_PADDING
) -> Tensor:
    """Maximum or mean of each window of x (N, C, H, W).

    handle       singa_wrap.PoolingHandle: the kind, and the geometry of the windows
    odd_padding  padding (top, bottom, left, right) in addition to that of the handle (default 0);
                 means count it

    Raises ValueError if x has another number of axes.

    >>> from singa import singa_wrap
    >>> x = tensor.Tensor(data=np.arange(16).reshape(1, 1, 4, 4))
    >>> handle = singa_wrap.PoolingHandle(x.data, [2, 2], [2, 2], [0, 0], False)
    >>> autograd.pooling_2d(handle, x)
    Tensor([[[[ 2.5,  4.5],
              [10.5, 12.5]]]], dtype=float32)
    """
    return _Pooling2d(handle, odd_padding)(x)[0]


def pooling_3d(handle: _c.PoolingHandle, x: Tensor) -> Tensor:
    """Maximum or mean of each window of x (N, C, D, H, W). See `pooling_1d`.

    >>> from singa import singa_wrap
    >>> x = tensor.ones((1, 1, 4, 4, 4))
    >>> handle = singa_wrap.PoolingHandle(x.data, [2] * 3, [2] * 3, [0] * 3, True)
    >>> autograd.pooling_3d(handle, x).shape
    (1, 1, 2, 2, 2)
    """
    return _Pooling(handle)(x)[0]


def max_pool_with_indices(handle: _c.PoolingHandle, x: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of each window of x (N, C, ...), and where it is, as PyTorch's max pooling with
    `return_indices`: int64, (d · height + h) · width + w within the image, of equal values the
    first. A window without an element of x has index -1.

    `handle` is a singa_wrap.PoolingHandle of a maximum. Raises ValueError for that of a mean, and
    if x has another number of axes.

    >>> from singa import singa_wrap
    >>> x = tensor.Tensor(data=[[[1.0, 5.0, 2.0, 3.0]]])
    >>> handle = singa_wrap.PoolingHandle(x.data, [2], [2], [0], True)
    >>> autograd.max_pool_with_indices(handle, x)
    (Tensor([[[5., 3.]]], dtype=float32), Tensor([[[1, 3]]], dtype=int64))
    """
    y, places = MaxPoolWithIndices(handle)(x)
    return y, places.detach()


def lp_pool(handle: _c.PoolingHandle, x: Tensor, p: float) -> Tensor:
    """The p-norm of each window of x (N, C, ...): the p-th root of the sum of |x|^p, for p > 0.

    `handle` is a singa_wrap.PoolingHandle of means without padding. Where its `ceil_mode` lets a
    window hang over the end, the sum is scaled up to a whole window, as in PyTorch. PyTorch sums
    x^p, which differs where x is negative and p is not even. The gradient is 0 where x is 0.

    Raises ValueError unless p is positive.

    >>> from singa import singa_wrap
    >>> x = tensor.Tensor(data=[[[3.0, 4.0]]])
    >>> handle = singa_wrap.PoolingHandle(x.data, [2], [2], [0], False)
    >>> autograd.lp_pool(handle, x, 2)
    Tensor([[[5.]]], dtype=float32)
    """
    return LpPool(handle, p)(x)[0]


def adaptive_avg_pool(x: Tensor, output_size: OutputSize) -> Tensor:
    """Mean of each of `output_size` windows along the spatial axes of x (N, C, ...).

    Window i of an axis is [floor(i · size / windows), ceil((i + 1) · size / windows)), as in
    PyTorch: windows may overlap, and differ in size by one or two. `output_size` is a number for
    all axes or one for each; None keeps the size of x. Raises ValueError for numbers below 1, and
    unless x has one to three spatial axes.

    >>> x = tensor.Tensor(data=np.arange(6).reshape(1, 1, 6))
    >>> autograd.adaptive_avg_pool(x, 2)
    Tensor([[[1., 4.]]], dtype=float32)
    """
    return AdaptiveAvgPool(output_size)(x)[0]


def adaptive_max_pool(x: Tensor, output_size: OutputSize) -> Tensor:
    """Maximum of each of `output_size` windows along the spatial axes of x (N, C, ...). See
    `adaptive_avg_pool`. Of equal values the first gets the gradient.

    >>> x = tensor.Tensor(data=np.arange(6).reshape(1, 1, 6))
    >>> autograd.adaptive_max_pool(x, 2)
    Tensor([[[2., 5.]]], dtype=float32)
    """
    return AdaptiveMaxPool(output_size)(x)[0]


def globalaveragepool(x: Tensor, data_format: str = "channels_first") -> Tensor:
    """Mean over all spatial axes, which stay as axes of length 1.

    `data_format` is "channels_first" (N, C, ...), the default, or "channels_last" (N, ..., C).
    Raises ValueError for another format, or unless x has three to five axes.

    >>> autograd.globalaveragepool(tensor.ones((2, 3, 4, 4))).shape
    (2, 3, 1, 1)
    """
    return GlobalAveragePool(data_format)(x)[0]


def globalmaxpool(x: Tensor, data_format: str = "channels_first") -> Tensor:
    """Maximum over all spatial axes, which stay as axes of length 1. See `globalaveragepool`. Of
    equal values the first gets the gradient.

    >>> x = tensor.Tensor(data=[[[[1.0, 5.0], [2.0, 3.0]]]])
    >>> autograd.globalmaxpool(x)
    Tensor([[[[5.]]]], dtype=float32)
    """
    return GlobalMaxPool(data_format)(x)[0]
