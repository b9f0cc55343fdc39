"""Pooling of images (batch, channels, ...) with one to three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from .. import autograd, singa_wrap
from ..ops.pooling import OutputSize
from ..raw.check import integer, positive
from ..raw.words import spelled
from ..tensor import Tensor
from .base import Layer
from .window import Pair, Sizes, Window


class _Pooling(Window):
    """Base class of pooling by windows of one size."""

    _apply: ClassVar[Callable[..., Tensor]]
    is_max: bool
    ceil_mode = False
    count_include_pad = False
    return_indices = False
    handle_settings = ("is_max", "ceil_mode", "count_include_pad")

    def _make_handle(self, x: Tensor, padding: tuple[int, ...]) -> Any:
        return singa_wrap.PoolingHandle(
            x.data,
            self.kernel_size,
            self.stride,
            padding,
            self.is_max,
            self.ceil_mode,
            self.count_include_pad,
            self.dilation,
        )

    def _handle_key(self, x: Tensor, padding: tuple[int, ...]) -> tuple[int, ...]:
        return (*padding, *x.shape[1:2])  # inputs may have different numbers of channels

    def forward(self, x: Tensor) -> Any:
        if self.return_indices:
            return autograd.max_pool_with_indices(self._handle_for(x), x)
        return self._apply(self._handle_for(x), x)


class Pooling2d(_Pooling):
    """Maximum or mean of each window of x (N, C, h, w).

    kernel_size        size of the window: int or (height, width)
    stride             int or (height, width) (default: kernel_size)
    padding            int, (height, width), or (top, bottom, left, right) (default 0)
    is_max             maximum (the default), or mean
    pad_mode           "NOTSET" (the default), "SAME_UPPER" or "SAME_LOWER"; see `Conv2d`
    ceil_mode          round the output size up, so that the last window may extend beyond the
                       image (default False)
    count_include_pad  whether means count the zeros of the padding (default False)
    dilation           distance between the elements of a window: int or (height, width) (default 1)

    Raises ValueError unless x is (N, C, h, w) and a window fits.

    >>> x = tensor.Tensor(data=np.arange(16).reshape(1, 1, 4, 4))
    >>> layer.Pooling2d(2)(x)
    Tensor([[[[ 5.,  7.],
              [13., 15.]]]], dtype=float32)
    """

    _apply = staticmethod(autograd.pooling_2d)

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        is_max: bool = True,
        pad_mode: str = "NOTSET",
        *,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        dilation: Pair = 1,
    ) -> None:
        stride = kernel_size if stride is None else stride
        super().__init__(kernel_size, stride, padding, pad_mode, dilation)
        self.is_max = is_max
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad


@spelled("dilation", "return_indices", "ceil_mode", shared=3)
class MaxPool2d(Pooling2d):
    """Maximum of each window. See `Pooling2d` for the arguments.

    return_indices  return (maxima, indices), as `autograd.max_pool_with_indices` (default False)

    >>> x = tensor.Tensor(data=np.arange(16).reshape(1, 1, 4, 4))
    >>> layer.MaxPool2d(2)(x)
    Tensor([[[[ 5.,  7.],
              [13., 15.]]]], dtype=float32)
    """

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        pad_mode: str = "NOTSET",
        *,
        ceil_mode: bool = False,
        dilation: Pair = 1,
        return_indices: bool = False,
    ) -> None:
        super().__init__(
            kernel_size, stride, padding, True, pad_mode, ceil_mode=ceil_mode, dilation=dilation
        )
        self.return_indices = return_indices


@spelled("ceil_mode", "count_include_pad", "divisor_override", shared=3)
class AvgPool2d(Pooling2d):
    """Mean of each window. See `Pooling2d` for the arguments.

    divisor_override  what the sum of a window is divided by, instead of its size (default None).
                      Raises ValueError together with ceil_mode, and unless it is at least 1.

    >>> x = tensor.Tensor(data=np.arange(16).reshape(1, 1, 4, 4))
    >>> layer.AvgPool2d(2)(x)
    Tensor([[[[ 2.5,  4.5],
              [10.5, 12.5]]]], dtype=float32)
    """

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        pad_mode: str = "NOTSET",
        *,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(
            kernel_size,
            stride,
            padding,
            False,
            pad_mode,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad or divisor_override is not None,
        )
        self.divisor_override = _divisor("AvgPool2d", divisor_override, ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        return _divided(super().forward(x), self.kernel_size, self.divisor_override)


def _divisor(kind: str, divisor: int | None, ceil_mode: bool) -> int | None:
    if divisor is None:
        return None
    if ceil_mode:
        raise ValueError(f"[{kind}] divisor_override does not go with ceil_mode")
    return integer(kind, "divisor_override", divisor, 1)


def _divided(mean: Tensor, kernel_size: Any, divisor: int | None) -> Tensor:
    """Sums of windows divided by another number, of their means, which count the padding."""
    return mean if divisor is None else mean * (math.prod(kernel_size) / divisor)


#: What the settings of pooling along the width are for the height.
_HEIGHTS = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}


class _Pool1d(Pooling2d):
    """Pooling along the width of x (N, C, h, w), or of x (N, C, l)."""

    def __init__(
        self,
        kernel_size: int,
        stride: int | None,
        padding: int,
        is_max: bool,
        pad_mode: str,
        dilation: int = 1,
        **options: bool,
    ) -> None:
        stride = kernel_size if stride is None else stride
        super().__init__(
            kernel_size, stride, padding, is_max, pad_mode, dilation=dilation, **options
        )

    def _size_of(self, x: Tensor) -> tuple[int, ...]:
        return (1, *x.shape[2:]) if len(x.shape) == 3 else tuple(x.shape[2:])

    def _check_rank(self, x: Tensor) -> None:
        if len(x.shape) != 3:
            super()._check_rank(x)

    def _checked_setting(self, name: str, value: Any) -> Any:
        if name in _HEIGHTS and not isinstance(value, list | tuple):
            value = (_HEIGHTS[name], value)
        return super()._checked_setting(name, value)

    def _handle_key(self, x: Tensor, padding: tuple[int, ...]) -> tuple[int, ...]:
        return (*super()._handle_key(x, padding), len(x.shape))

    def _make_handle(self, x: Tensor, padding: tuple[int, ...]) -> Any:
        if len(x.shape) != 3:
            return super()._make_handle(x, padding)
        return singa_wrap.PoolingHandle(
            x.data,
            self.kernel_size[1:],
            self.stride[1:],
            padding[1::2],  # (left) or (left, right)
            self.is_max,
            self.ceil_mode,
            self.count_include_pad,
            self.dilation[1:],
        )

    def forward(self, x: Tensor) -> Any:
        if len(x.shape) != 3 or self.return_indices:
            return super().forward(x)
        return autograd.pooling_1d(self._handle_for(x), x)


@spelled("dilation", "return_indices", "ceil_mode", shared=3)
class MaxPool1d(_Pool1d):
    """Maximum of each window along the width of x (N, C, h, w), or of x (N, C, l). See `MaxPool2d`
    for the arguments, which are numbers here.

    >>> layer.MaxPool1d(2)(tensor.Tensor(data=[[[1.0, 5.0, 2.0, 3.0]]]))
    Tensor([[[5., 3.]]], dtype=float32)
    """

    def __init__(
        self,
        kernel_size: int,
        stride: int | None = None,
        padding: int = 0,
        pad_mode: str = "NOTSET",
        *,
        ceil_mode: bool = False,
        dilation: int = 1,
        return_indices: bool = False,
    ) -> None:
        super().__init__(
            kernel_size, stride, padding, True, pad_mode, dilation, ceil_mode=ceil_mode
        )
        self.return_indices = return_indices


@spelled("ceil_mode", "count_include_pad", shared=3)
class AvgPool1d(_Pool1d):
    """Mean of each window along the width of x (N, C, h, w), or of x (N, C, l). See `Pooling2d` for
    the arguments, which are numbers here.

    >>> layer.AvgPool1d(2)(tensor.Tensor(data=[[[1.0, 5.0, 2.0, 3.0]]]))
    Tensor([[[3. , 2.5]]], dtype=float32)
    """

    def __init__(
        self,
        kernel_size: int,
        stride: int | None = None,
        padding: int = 0,
        pad_mode: str = "NOTSET",
        *,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
    ) -> None:
        super().__init__(
            kernel_size,
            stride,
            padding,
            False,
            pad_mode,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )


class _Pool3d(_Pooling):
    """Pooling with the arguments of PyTorch's."""

    axes = 3
    _apply = staticmethod(autograd.pooling_3d)

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None,
        padding: Sizes,
        dilation: Sizes,
        ceil_mode: bool,
    ) -> None:
        stride = kernel_size if stride is None else stride
        super().__init__(kernel_size, stride, padding, "NOTSET", dilation)
        self.ceil_mode = ceil_mode


@spelled("return_indices", "ceil_mode")
class MaxPool3d(_Pool3d):
    """Maximum of each window of x (N, C, d, h, w). Arguments and defaults are those of
    torch.nn.MaxPool3d; see `MaxPool2d`.

    >>> layer.MaxPool3d(2)(tensor.ones((1, 1, 4, 4, 4))).shape
    (1, 1, 2, 2, 2)
    """

    is_max = True

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        *,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation, ceil_mode)
        self.return_indices = return_indices


class AvgPool3d(_Pool3d):
    """Mean of each window of x (N, C, d, h, w). Arguments and defaults are those of
    torch.nn.AvgPool3d, which counts the zeros of the padding; see `AvgPool2d`.

    >>> layer.AvgPool3d(2)(tensor.ones((1, 1, 4, 4, 4))).shape
    (1, 1, 2, 2, 2)
    """

    is_max = False

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, 1, ceil_mode)
        self.count_include_pad = count_include_pad or divisor_override is not None
        self.divisor_override = _divisor("AvgPool3d", divisor_override, ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        return _divided(super().forward(x), self.kernel_size, self.divisor_override)


class _LPPool(_Pooling):
    """Base class of the p-norms."""

    is_max = False

    def __init__(
        self,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> None:
        stride = kernel_size if stride is None else stride
        super().__init__(kernel_size, stride, 0, "NOTSET")
        self.norm_type: float = positive(type(self).__name__, "norm_type", norm_type, finite=True)
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        return autograd.lp_pool(self._handle_for(x), x, self.norm_type)


class LPPool1d(_LPPool):
    """The norm_type-norm of each window of x (N, C, l): (Σ |x|^p)^(1/p).

    Arguments and defaults are those of torch.nn.LPPool1d. PyTorch sums x^p, which differs where x
    is negative and p is not even. See `autograd.lp_pool`.

    Raises ValueError unless norm_type is positive.

    >>> layer.LPPool1d(2, 2)(tensor.Tensor(data=[[[3.0, 4.0]]]))
    Tensor([[[5.]]], dtype=float32)
    """

    axes = 1


class LPPool2d(_LPPool):
    """The norm_type-norm of each window of x (N, C, h, w). See `LPPool1d`.

    >>> layer.LPPool2d(2, 2)(tensor.ones((1, 1, 2, 2)))
    Tensor([[[[2.]]]], dtype=float32)
    """

    axes = 2


class LPPool3d(_LPPool):
    """The norm_type-norm of each window of x (N, C, d, h, w). See `LPPool1d`.

    >>> layer.LPPool3d(2, 2)(tensor.ones((1, 1, 4, 4, 4))).shape
    (1, 1, 2, 2, 2)
    """

    axes = 3


@spelled("return_indices", return_indices=(False,))
class _AdaptivePool(Layer):
    """Base class of pooling into a given number of windows."""

    axes: ClassVar[int]
    _apply: ClassVar[Callable[..., Tensor]]

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        kind = type(self).__name__
        several = isinstance(output_size, (list, tuple))
        sizes: Any = output_size if several else (output_size,) * self.axes
        if len(sizes) != self.axes:
            raise ValueError(
                f"[{kind}] output_size must be one number or {self.axes}, got {output_size!r}"
            )
        self.output_size: tuple[int | None, ...] = tuple(
            [n if n is None else integer(kind, "output_size", n, 1) for n in sizes]
        )

    def forward(self, x: Tensor) -> Tensor:
        return self._apply(x, self.output_size)


class AdaptiveAvgPool1d(_AdaptivePool):
    """Mean of each of `output_size` windows of x (N, C, l), whatever its length.

    output_size: a number for all spatial axes, or one for each; None keeps the size of x. Windows
    are those of torch.nn.AdaptiveAvgPool1d: they may overlap, and differ in size. Raises TypeError
    or ValueError for wrong arguments, and ValueError if x does not have the expected shape.

    >>> layer.AdaptiveAvgPool1d(2)(tensor.Tensor(data=[[[1.0, 3.0, 5.0, 9.0]]]))
    Tensor([[[2., 7.]]], dtype=float32)
    """

    axes = 1
    _apply = staticmethod(autograd.adaptive_avg_pool)


class AdaptiveAvgPool2d(_AdaptivePool):
    """Mean of each of `output_size` windows of x (N, C, h, w). See `AdaptiveAvgPool1d`.

    >>> layer.AdaptiveAvgPool2d((1, 2))(tensor.ones((1, 3, 7, 5))).shape
    (1, 3, 1, 2)
    """

    axes = 2
    _apply = staticmethod(autograd.adaptive_avg_pool)


class AdaptiveAvgPool3d(_AdaptivePool):
    """Mean of each of `output_size` windows of x (N, C, d, h, w). See `AdaptiveAvgPool1d`.

    >>> layer.AdaptiveAvgPool3d(1)(tensor.ones((1, 3, 4, 4, 4))).shape
    (1, 3, 1, 1, 1)
    """

    axes = 3
    _apply = staticmethod(autograd.adaptive_avg_pool)


class AdaptiveMaxPool1d(_AdaptivePool):
    """Maximum of each of `output_size` windows of x (N, C, l). See `AdaptiveAvgPool1d`.

    >>> layer.AdaptiveMaxPool1d(2)(tensor.Tensor(data=[[[1.0, 3.0, 5.0, 9.0]]]))
    Tensor([[[3., 9.]]], dtype=float32)
    """

    axes = 1
    _apply = staticmethod(autograd.adaptive_max_pool)


class AdaptiveMaxPool2d(_AdaptivePool):
    """Maximum of each of `output_size` windows of x (N, C, h, w). See `AdaptiveAvgPool1d`.

    >>> layer.AdaptiveMaxPool2d((1, 2))(tensor.ones((1, 3, 7, 5))).shape
    (1, 3, 1, 2)
    """

    axes = 2
    _apply = staticmethod(autograd.adaptive_max_pool)


class AdaptiveMaxPool3d(_AdaptivePool):
    """Maximum of each of `output_size` windows of x (N, C, d, h, w). See `AdaptiveAvgPool1d`.

    >>> layer.AdaptiveMaxPool3d(1)(tensor.ones((1, 3, 4, 4, 4))).shape
    (1, 3, 1, 1, 1)
    """

    axes = 3
    _apply = staticmethod(autograd.adaptive_max_pool)
