"""Convolution and transposed convolution of images (batch, channels, ...) with one to three spatial
axes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

from .. import autograd, singa_wrap
from ..raw.check import integer, one_of
from ..raw.words import spelled
from ..tensor import Tensor
from .base import Layer
from .linear import zeros
from .window import Pair, Sizes, Window, numbers

Initializer = Callable[[Tensor], Any]


class _Filters(Window):
    """Base class of convolutions: a window with weights W (first, second / group, kernel) and a
    bias b (nb_kernels)."""

    fixed_settings = ("in_channels", "nb_kernels", "kernel_size", "group", "bias")
    input_types = "own"
    W: Tensor
    b: Tensor | None
    in_channels: int | None
    nb_kernels: int
    _form: ClassVar[str] = ""  # what an error about the channels adds
    group: int
    bias: bool
    initializer: Initializer | None

    def initialize(self, x: Tensor) -> None:
        self._check_rank(x)
        channels = x.shape[1]
        if self.in_channels is not None and self.in_channels != channels:
            raise ValueError(
                f"[{self.title}] in_channels is {self.in_channels}, got input {tuple(x.shape)}"
                f"{self._form}"
            )
        if self.group < 1 or channels % self.group or self.nb_kernels % self.group:
            raise ValueError(
                f"[{self.title}] group {self.group} must divide the numbers of channels: "
                f"{channels} in, {self.nb_kernels} out"
            )
        self.in_channels = channels
        self._handle_for(x)  # raises for a wrong geometry before parameters are created
        shape = (*self._filters(channels), *self.kernel_size)
        std = math.sqrt(2.0 / (math.prod(shape[1:]) + self.nb_kernels))
        self._new_param("W", shape, x, self.initializer or (lambda t: t.gaussian(0.0, std)))
        self.b = None
        if self.bias:
            self._new_param("b", (self.nb_kernels,), x, zeros)

    def _filters(self, channels: int) -> tuple[int, int]:
        """The first two lengths of W."""
        return self.nb_kernels, channels // self.group


class _Conv(_Filters):
    """Base class of convolutions that are not transposed."""

    _apply: ClassVar[Callable[..., Tensor]]
    handle_settings = ("activation",)
    activation = "NOTSET"
    _workspace_bytes = 1 << 30
    _prefer = ""  # SINGA_PREFER decides

    def _checked_setting(self, name: str, value: Any) -> Any:
        if name == "activation":
            one_of(type(self).__name__, name, value, ["NOTSET", "RELU"])
        return super()._checked_setting(name, value)

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
        y = self._apply(self._handle_for(x), x, self.W, self.b)
        return autograd.relu(y) if self.activation == "RELU" else y


#: What torch.nn.Conv2d takes by position after the stride.
_BEHIND_STRIDE = ("padding", "dilation", "group", "bias", "padding_mode")


def _takes_pytorchs_form(cls: type) -> type:
    """A class decorator: Conv2d also takes torch.nn.Conv2d's arguments, by position and name."""
    init = cls.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if "kernel_size" in kwargs and (len(args) == 2 or "in_channels" in kwargs):
            names = ("in_channels", "out_channels", "kernel_size")[len(args) :]
            if all(name in kwargs for name in names):
                args = (*args, *(kwargs.pop(name) for name in names))
        for name, value in zip(_BEHIND_STRIDE, args[4:], strict=False):
            if name in kwargs:
                raise TypeError(f"[Conv2d] {name} is given twice")
            kwargs[name] = value
        args = (*args[:4], *args[4 + len(_BEHIND_STRIDE) :])
        if "padding" in kwargs and isinstance(kwargs["padding"], str):
            stride = args[3] if len(args) > 3 else kwargs.get("stride", 1)
            kwargs |= _padding_by_name("Conv2d", kwargs["padding"], stride, 2)
        init(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[misc]
    return cls


def _padding_by_name(kind: str, padding: str, stride: Any, axes: int) -> dict[str, Any]:
    """The arguments of Window for PyTorch's "same" and "valid"."""
    if one_of(kind, "padding", padding, ["same", "valid"]) == "valid":
        return {"padding": 0}
    if max(numbers(kind, "stride", stride, axes)) > 1:
        raise ValueError(f"[{kind}] padding 'same' needs a stride of 1, got {stride}")
    return {"padding": 0, "pad_mode": "SAME_UPPER"}


@_takes_pytorchs_form
@spelled(groups="group", out_channels="nb_kernels", padding_mode=("zeros",))
class Conv2d(_Conv):
    """Convolution of x (N, in, h, w) with W (nb_kernels, in / group, kh, kw), plus b (nb_kernels).

    nb_kernels          number of output channels
    kernel_size         int or (height, width)
    stride              int or (height, width) (default 1)
    padding             zeros around the image: int, (height, width), or (top, bottom, left, right)
                        (default 0)
    dilation            int or (height, width) (default 1)
    group               number of groups of channels, which divides `in` and nb_kernels (default 1)
    bias                whether to add b (default True)
    pad_mode            "NOTSET" (the default), or "SAME_UPPER" or "SAME_LOWER", which compute the
                        padding from the size of the input as ONNX does
    activation          "NOTSET" (the default), or "RELU", which is applied to the result
    initializer         function that fills W (default: normal with variance
                        2 / (fan_in + nb_kernels), as in SINGA); b is initialized with 0
    cudnn_prefer        how to choose an implementation, on the CPU, too: "fastest",
                        "limited_workspace", "no_workspace" or "autotune" (default: SINGA_PREFER)
    workspace_MB_limit  limit of temporary memory in MiB (default 1024), which
                        "limited_workspace" and "autotune" keep

    SINGA's older form `Conv2d(in, nb_kernels, kernel_size[, stride[, padding]])` works, too, and so
    do PyTorch's order and words: `Conv2d(3, 16, 3, 1, 1, 1, 1, False)`, `Conv2d(3, 16,
    kernel_size=3, groups=1, padding="same")`. Raises TypeError or ValueError for wrong arguments.
    The first call raises ValueError if x does not have the expected shape or number of channels.

    >>> conv = layer.Conv2d(16, 3, padding=1)
    >>> conv(tensor.ones((2, 3, 8, 8))).shape
    (2, 16, 8, 8)
    >>> conv.W.shape
    (16, 3, 3, 3)
    """

    _apply = staticmethod(autograd.conv2d)
    _form = "; of three arguments by position the first is in_channels: give stride by name"

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
        initializer: Initializer | None = None,
        **kwargs: Any,
    ) -> None:
        in_channels: int | None = None
        if len(args) > 3:
            raise TypeError(f"[Conv2d] too many positional arguments: {args}")
        if args:  # in_channels, nb_kernels, kernel_size[, stride[, padding]]
            in_channels, nb_kernels, kernel_size = nb_kernels, kernel_size, args[0]  # type: ignore
            stride = args[1] if len(args) > 1 else stride
            padding = args[2] if len(args) > 2 else padding
        super().__init__(kernel_size, stride, padding, pad_mode, dilation)
        self.nb_kernels: int = integer("Conv2d", "nb_kernels", nb_kernels, 1)
        self.in_channels = in_channels
        self.group: int = integer("Conv2d", "group", group)
        self.bias = bias
        self.activation = activation
        self.initializer = initializer
        self.inner_params: dict[str, Any] = {"cudnn_prefer": "fastest", "workspace_MB_limit": 1024}
        for name, value in kwargs.items():
            if name not in self.inner_params:  # as Python says it
                raise TypeError(f"Conv2d.__init__() got an unexpected keyword argument {name!r}")
            self.inner_params[name] = value
        limit = integer("Conv2d", "workspace_MB_limit", self.inner_params["workspace_MB_limit"], 0)
        self._workspace_bytes = min(limit, 1 << 42) << 20
        self._prefer = kwargs.get("cudnn_prefer", "")  # "": SINGA_PREFER decides
        if "cudnn_prefer" in kwargs:
            singa_wrap.ParsePreference(str(self._prefer))  # raises ValueError for another value

    def initialize(self, x: Tensor) -> None:  # errors name Conv2d's
        super().initialize(x)


@spelled("padding_mode", group="groups", nb_kernels="out_channels", padding_mode=("zeros",))
class _TorchConv(_Conv):
    """A convolution with the arguments of PyTorch's."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        initializer: Initializer | None = None,
    ) -> None:
        around: dict[str, Any] = {"padding": padding}
        if isinstance(padding, str):
            around = _padding_by_name(type(self).__name__, padding, stride, self.axes)
        super().__init__(kernel_size, stride, dilation=dilation, **around)
        _set_channels(self, in_channels, out_channels, groups)
        self.bias = bias
        self.initializer = initializer


def _set_channels(layer: _Filters, in_channels: int, out_channels: int, groups: int) -> None:
    kind = type(layer).__name__
    layer.in_channels = integer(kind, "in_channels", in_channels, 1)
    layer.nb_kernels = integer(kind, "out_channels", out_channels, 1)
    layer.group = integer(kind, "groups", groups, 1)


class Conv1d(_TorchConv):
    """Convolution of x (N, in_channels, l) with W (out_channels, in_channels / groups, k), plus b
    (out_channels).

    Arguments and defaults are those of torch.nn.Conv1d: `padding` may also be "same", for a stride
    of 1, or "valid". `initializer` fills W, as in `Conv2d`. Raises TypeError or ValueError for
    wrong arguments. The first call raises ValueError if x does not have the expected shape.

    >>> layer.Conv1d(4, 8, 3)(tensor.ones((2, 4, 10))).shape
    (2, 8, 8)
    """

    axes = 1
    _apply = staticmethod(autograd.conv1d)


class Conv3d(_TorchConv):
    """Convolution of x (N, in_channels, d, h, w) with W (out_channels, in_channels / groups, kd,
    kh, kw), plus b (out_channels).

    Arguments and defaults are those of torch.nn.Conv3d; see `Conv1d`.

    >>> layer.Conv3d(1, 2, 3)(tensor.ones((1, 1, 5, 5, 5))).shape
    (1, 2, 3, 3, 3)
    """

    axes = 3
    _apply = staticmethod(autograd.conv3d)


@spelled("padding_mode", group="groups", nb_kernels="out_channels", padding_mode=("zeros",))
class _ConvTranspose(_Filters):
    """Base class of transposed convolutions."""

    handle_settings = ("output_padding",)
    output_padding: tuple[int, ...]
    _apply: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        *,
        initializer: Initializer | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, "NOTSET", dilation)
        self.output_padding = output_padding  # type: ignore[assignment]
        _set_channels(self, in_channels, out_channels, groups)
        self.bias = bias
        self.initializer = initializer

    def _checked_setting(self, name: str, value: Any) -> Any:
        if name == "output_padding":
            return numbers(type(self).__name__, name, value, self.axes)
        return super()._checked_setting(name, value)

    def _filters(self, channels: int) -> tuple[int, int]:
        return channels, self.nb_kernels // self.group

    def _make_handle(self, x: Tensor, padding: tuple[int, ...]) -> Any:
        return singa_wrap.ConvTransposeHandle(
            x.data,
            self.kernel_size,
            self.stride,
            padding,
            self.output_padding,
            self.in_channels,
            self.nb_kernels,
            bool(self.bias),
            self.group,
            self.dilation,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self._apply(self._handle_for(x), x, self.W, self.b)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of x (N, in_channels, l) with W (in_channels, out_channels / groups,
    k), plus b (out_channels): the gradient of a convolution with respect to its input.

    y has length (l - 1) · stride - 2 · padding + dilation · (k - 1) + output_padding + 1, where
    output_padding is smaller than the stride or the dilation.

    Arguments and defaults are those of torch.nn.ConvTranspose1d. `initializer` fills W, as in
    `Conv2d`. Raises TypeError or ValueError for wrong arguments. The first call raises ValueError
    if x does not have the expected shape.

    >>> layer.ConvTranspose1d(4, 2, 2, stride=2)(tensor.ones((1, 4, 5))).shape
    (1, 2, 10)
    """

    axes = 1
    _apply = staticmethod(autograd.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of x (N, in_channels, h, w). Arguments and defaults are those of
    torch.nn.ConvTranspose2d; see `ConvTranspose1d`.

    >>> layer.ConvTranspose2d(4, 2, 2, stride=2)(tensor.ones((1, 4, 5, 5))).shape
    (1, 2, 10, 10)
    """

    axes = 2
    _apply = staticmethod(autograd.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of x (N, in_channels, d, h, w). Arguments and defaults are those of
    torch.nn.ConvTranspose3d; see `ConvTranspose1d`.

    >>> layer.ConvTranspose3d(4, 2, 2, stride=2)(tensor.ones((1, 4, 3, 3, 3))).shape
    (1, 2, 6, 6, 6)
    """

    axes = 3
    _apply = staticmethod(autograd.conv_transpose3d)


class SeparableConv2d(Layer):
    """Depthwise separable convolution: a convolution of each channel, then a 1x1 convolution.
    Chollet 2017.

    Arguments are those of `Conv2d`, except that `bias` is False by default. SINGA's older form
    `SeparableConv2d(in, nb_kernels, kernel_size[, stride[, padding]])` works, too.

    Raises ValueError unless x is (N, C, H, W).

    >>> separable = layer.SeparableConv2d(8, 3, padding=1)
    >>> separable(tensor.ones((1, 3, 6, 6))).shape
    (1, 8, 6, 6)
    >>> {name: W.shape for name, W in separable.get_params().items()}
    {'depthwise_conv.W': (3, 1, 3, 3), 'point_conv.W': (8, 3, 1, 1)}
    """

    fixed_settings = ("nb_kernels", "kernel_size", "bias")
    handle_settings = ("stride", "padding")

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
        self.in_channels: int = x.shape[1]
        self.depthwise_conv: Conv2d = Conv2d(
            self.in_channels,
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            group=self.in_channels,
            bias=self.bias,
        )
        self.point_conv: Conv2d = Conv2d(self.nb_kernels, 1, bias=self.bias)

    def _checked_setting(self, name: str, value: Any) -> Any:
        if name in self.handle_settings and self._initialized:
            setattr(self.depthwise_conv, name, value)
        return value

    def forward(self, x: Tensor) -> Tensor:
        return self.point_conv(self.depthwise_conv(x))
