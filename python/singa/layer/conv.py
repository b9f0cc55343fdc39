"""Convolution and pooling over (batch, channels, height, width).

A handle holds the parameters of the operation and no sizes, so one handle serves the training
batch, the short last one and the evaluation batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .. import autograd, singa_wrap
from .._check import integer
from ..tensor import Tensor
from .base import Layer
from .linear import zeros

Pair = int | Sequence[int]
_PAD_MODES = ("NOTSET", "SAME_UPPER", "SAME_LOWER")


def pair(layer: str, argument: str, value: Pair) -> tuple[int, int]:
    """(height, width) of an int or of two. Raises TypeError for anything else."""
    values: Any = (value, value) if _is_int(value) else value
    if not _is_sequence(values) or len(values) != 2 or not all(map(_is_int, values)):
        raise TypeError(f"[{layer}] {argument} must be an int or two, got {value!r}")
    return int(values[0]), int(values[1])


def edges(layer: str, value: Pair) -> tuple[int, ...]:
    """Padding as the handles take it: (h, w), or (top, left, bottom, right).

    From an int, from (h, w), or from SINGA's (top, bottom, left, right).
    """
    if _is_sequence(value) and len(value) == 4:  # type: ignore[arg-type]
        top, bottom, left, right = value  # type: ignore[misc]
        return (*pair(layer, "padding", (top, left)), *pair(layer, "padding", (bottom, right)))
    return pair(layer, "padding", value)


def _is_int(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple)


def same_padding(
    mode: str, size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Pair
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) such that the output is ceil(size / stride). An odd rest goes to
    the end for SAME_UPPER, to the beginning for SAME_LOWER (ONNX)."""
    before, after = [], []
    for n, k, s, d in zip(
        size, kernel, stride, pair("pad_mode", "dilation", dilation), strict=True
    ):
        total = max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
        less, more = total // 2, total - total // 2
        before.append(less if mode == "SAME_UPPER" else more)
        after.append(more if mode == "SAME_UPPER" else less)
    return (before[0], before[1], after[0], after[1])


class _Window(Layer):
    """What convolution and pooling share: a window, and its handles."""

    transient = ("handle", "_handles")

    def __init__(self, kernel_size: Pair, stride: Pair, padding: Pair, pad_mode: str) -> None:
        super().__init__()
        kind = type(self).__name__
        self.kernel_size = pair(kind, "kernel_size", kernel_size)
        self.stride = pair(kind, "stride", stride)
        if min(self.kernel_size) < 1 or min(self.stride) < 1:
            raise ValueError(
                f"[{kind}] kernel_size and stride have to be at least 1, got {self.kernel_size} "
                f"and {self.stride}"
            )
        self.padding = edges(kind, padding)
        self.dilation = (1, 1)
        if pad_mode not in _PAD_MODES:
            raise ValueError(f"[{kind}] pad_mode must be one of {_PAD_MODES}, got {pad_mode!r}")
        self.pad_mode = pad_mode
        self.odd_padding = (0, 0, 0, 0)  # the handles take uneven padding themselves
        self.handle: Any = None
        self._handles: dict[tuple[int, ...], Any] | None = None

    def _handle_for(self, x: Tensor) -> Any:
        if self.pad_mode != "NOTSET":  # the padding follows from the height and width of the input
            self._check_rank(x)
            self.padding = same_padding(
                self.pad_mode, x.shape[2:], self.kernel_size, self.stride, self.dilation
            )
        if self._handles is None:
            self._handles = {}
        key = self._handle_key(x)
        if key not in self._handles:
            self._handles[key] = self._make_handle(x, self.padding)
        self.handle = self._handles[key]
        return self.handle

    def _handle_key(self, x: Tensor) -> tuple[int, ...]:
        """What a handle is made for, besides the layer's own parameters."""
        return self.padding

    def _check_rank(self, x: Tensor) -> None:
        if len(x.shape) != 4:
            raise ValueError(
                f"[{self.title}] expected (batch, channels, height, width), got {tuple(x.shape)}"
            )

    def _make_handle(self, x: Tensor, padding: tuple[int, ...]) -> Any:
        raise NotImplementedError


class Conv2d(_Window):
    """Convolution of x (N, in, h, w) with W (nb_kernels, in / group, kh, kw).

    Written `Conv2d(nb_kernels, kernel_size)`; the older form `Conv2d(in, nb_kernels, kernel_size[,
    stride[, padding]])` still works. `padding` is an int, (h, w), or (top, bottom, left, right);
    `pad_mode` SAME_UPPER or SAME_LOWER makes it follow from the input. `activation="RELU"` is
    applied to the result. W starts as `initializer(W)` makes it: by default normal with variance
    2 / (fan_in + nb_kernels), as in SINGA; b at 0.

    Keyword arguments for the GPU: `cudnn_prefer` ("fastest", "limited_workspace", "no_workspace",
    "autotune"; on the CPU it chooses likewise) and `workspace_MB_limit` (1024).
    """

    W: Tensor
    b: Tensor | None

    def __init__(
        self,
        nb_kernels: int,
        kernel_size: Pair,
        *args: Any,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        group: int = 1,
        bias: bool = True,
        pad_mode: str = "NOTSET",
        activation: str = "NOTSET",
        initializer: Callable[[Tensor], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        in_channels: int | None = None
        if len(args) > 3:
            raise TypeError(f"[Conv2d] too many positional arguments: {args}")
        if args:  # in_channels, nb_kernels, kernel_size[, stride[, padding]]
            in_channels, nb_kernels, kernel_size = nb_kernels, kernel_size, args[0]  # type: ignore
            stride = args[1] if len(args) > 1 else stride
            padding = args[2] if len(args) > 2 else padding
        super().__init__(kernel_size, stride, padding, pad_mode)
        self.dilation = pair("Conv2d", "dilation", dilation)
        self.nb_kernels = integer("Conv2d", "nb_kernels", nb_kernels, 1)
        self.in_channels = in_channels
        self.group = integer("Conv2d", "group", group)
        self.bias = bias
        if activation not in ("NOTSET", "RELU"):
            raise ValueError(f"[Conv2d] activation must be 'NOTSET' or 'RELU', got {activation!r}")
        self.activation = activation
        self.initializer = initializer
        self.inner_params: dict[str, Any] = {"cudnn_prefer": "fastest", "workspace_MB_limit": 1024}
        for name, value in kwargs.items():
            if name not in self.inner_params:
                raise TypeError(f"[Conv2d] unexpected keyword argument {name!r}")
            self.inner_params[name] = value
        limit = integer("Conv2d", "workspace_MB_limit", self.inner_params["workspace_MB_limit"], 0)
        self._workspace_bytes = min(limit, 1 << 42) << 20
        self._prefer = kwargs.get("cudnn_prefer", "")  # not given: SINGA_PREFER decides
        if "cudnn_prefer" in kwargs:
            singa_wrap.ParsePreference(str(self._prefer))  # raises ValueError for no preference

    def initialize(self, x: Tensor) -> None:
        self._check_rank(x)
        channels = x.shape[1]
        if self.in_channels is not None and self.in_channels != channels:
            raise ValueError(
                f"[{self.title}] in_channels is {self.in_channels}, got input {tuple(x.shape)}"
            )
        if self.group < 1 or channels % self.group or self.nb_kernels % self.group:
            raise ValueError(
                f"[{self.title}] group {self.group} has to divide the channels: {channels} in, "
                f"{self.nb_kernels} out"
            )
        self.in_channels = channels
        self._handle_for(x)  # refuses what is no convolution before there are weights
        shape = (self.nb_kernels, channels // self.group, *self.kernel_size)
        std = math.sqrt(2.0 / (math.prod(shape[1:]) + self.nb_kernels))
        self._new_param("W", shape, x, self.initializer or (lambda t: t.gaussian(0.0, std)))
        self.b = None
        if self.bias:
            self._new_param("b", (self.nb_kernels,), x, zeros)

    def _make_handle(self, x: Tensor, padding: tuple[int, ...]) -> Any:
        return singa_wrap.ConvHandle(
            x.data,
            self.kernel_size,
            self.stride,
            padding,
            self.in_channels,
            self.nb_kernels,
            bool(self.bias),
            self.group,
            self.dilation,
            self._workspace_bytes,
            self._prefer,
        )

    def forward(self, x: Tensor) -> Tensor:
        y = autograd.conv2d(self._handle_for(x), x, self.W, self.b)
        return autograd.relu(y) if self.activation == "RELU" else y


class SeparableConv2d(Layer):
    """A convolution of each channel by itself, then a 1x1 convolution. Chollet 2017.

    Written `SeparableConv2d(nb_kernels, kernel_size)`, or `(in, nb_kernels, kernel_size[, stride[,
    padding]])`.
    """

    def __init__(
        self,
        nb_kernels: int,
        kernel_size: Pair,
        *args: Any,
        stride: Pair = 1,
        padding: Pair = 0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if args:
            nb_kernels, kernel_size = kernel_size, args[0]  # type: ignore[assignment]
            stride = args[1] if len(args) > 1 else stride
            padding = args[2] if len(args) > 2 else padding
        self.nb_kernels = nb_kernels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.bias = bias

    def initialize(self, x: Tensor) -> None:
        if len(x.shape) != 4:
            raise ValueError(
                f"[{self.title}] expected (batch, channels, height, width), got {tuple(x.shape)}"
            )
        self.in_channels = x.shape[1]
        self.depthwise_conv = Conv2d(
            self.in_channels,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            group=self.in_channels,
            bias=self.bias,
        )
        self.point_conv = Conv2d(self.nb_kernels, 1, bias=self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.point_conv(self.depthwise_conv(x))


class Pooling2d(_Window):
    """Largest element, or mean, of each window. `stride` None: the window's size.

    `ceil_mode` lets the last window hang over the edge. Averages leave out the padding unless
    `count_include_pad`.
    """

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
    ) -> None:
        super().__init__(kernel_size, kernel_size if stride is None else stride, padding, pad_mode)
        self.is_max = is_max
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def _make_handle(self, x: Tensor, padding: tuple[int, ...]) -> Any:
        return singa_wrap.PoolingHandle(
            x.data,
            self.kernel_size,
            self.stride,
            padding,
            self.is_max,
            self.ceil_mode,
            self.count_include_pad,
        )

    def _handle_key(self, x: Tensor) -> tuple[int, ...]:
        return (*self.padding, *x.shape[1:2])  # one layer may pool after different convolutions

    def forward(self, x: Tensor) -> Tensor:
        return autograd.pooling_2d(self._handle_for(x), x)


class MaxPool2d(Pooling2d):
    """Largest element of each window."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        pad_mode: str = "NOTSET",
        *,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, True, pad_mode, ceil_mode=ceil_mode)


class AvgPool2d(Pooling2d):
    """Mean of each window."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
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


class _Pool1d(Pooling2d):
    """Pooling whose windows lie along the width."""

    _is_max: ClassVar[bool]

    def __init__(
        self,
        kernel_size: int,
        stride: int | None = None,
        padding: int = 0,
        pad_mode: str = "NOTSET",
    ) -> None:
        stride = kernel_size if stride is None else stride
        super().__init__((1, kernel_size), (1, stride), (0, padding), self._is_max, pad_mode)


class MaxPool1d(_Pool1d):
    """Largest element of windows along the width."""

    _is_max = True


class AvgPool1d(_Pool1d):
    """Mean of windows along the width."""

    _is_max = False
