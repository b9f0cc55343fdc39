"""What convolution and pooling of images have in common: windows, and handles.

A handle holds the parameters of an operation, but not the size of its input. One handle therefore
serves training batches, a shorter last batch and evaluation batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..raw.check import one_of
from ..tensor import Tensor
from .base import Layer

Pair = int | Sequence[int]
Sizes = int | Sequence[int]
_PAD_MODES = ("NOTSET", "SAME_UPPER", "SAME_LOWER")
_COUNTS = {1: "an int", 2: "an int or two", 3: "an int or three"}
_AXES = {1: "length", 2: "height, width", 3: "depth, height, width"}


def numbers(layer: str, argument: str, value: Sizes, count: int) -> tuple[int, ...]:
    """Converts an int or `count` ints to a tuple. Raises TypeError for anything else."""
    values: Any = (value,) * count if _is_int(value) else value
    if not _is_sequence(values) or len(values) != count or not all(map(_is_int, values)):
        raise TypeError(f"[{layer}] {argument} must be {_COUNTS[count]}, got {value!r}")
    return tuple(int(each) for each in values)


def edges(layer: str, value: Sizes, axes: int = 2) -> tuple[int, ...]:
    """Converts padding to the form that handles take: a number for each axis, or all that come
    before the image and then all that come behind it.

    `value` is an int, a number for each axis, or SINGA's (top, bottom, left, right) for two axes.
    """
    if axes == 2 and _is_sequence(value) and len(value) == 4:  # type: ignore[arg-type]
        top, bottom, left, right = value  # type: ignore[misc]
        before = numbers(layer, "padding", (top, left), 2)
        return before + numbers(layer, "padding", (bottom, right), 2)
    return numbers(layer, "padding", value, axes)


def _is_int(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple)


def same_padding(
    mode: str,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, ...]:
    """Padding, first what comes before each axis, that gives an output of size
    ceil(size / stride).

    If the total of an axis is odd, SAME_UPPER adds the extra element at the end and SAME_LOWER at
    the beginning, as in ONNX.
    """
    before, after = [], []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        total = max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
        less, more = total // 2, total - total // 2
        before.append(less if mode == "SAME_UPPER" else more)
        after.append(more if mode == "SAME_UPPER" else less)
    return (*before, *after)


class Window(Layer):
    """Base class of convolution and pooling: the window, and the handles."""

    transient = ("handle", "_handles")
    handle_settings: ClassVar[tuple[str, ...]] = (
        *("kernel_size", "stride", "padding", "dilation", "pad_mode"),
    )
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    #: Number of spatial axes.
    axes: ClassVar[int] = 2

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes,
        pad_mode: str = "NOTSET",
        dilation: Sizes = 1,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size  # type: ignore[assignment] # _checked_setting makes tuples
        self.stride = stride  # type: ignore[assignment]
        self.padding = padding  # type: ignore[assignment]
        self.dilation = dilation  # type: ignore[assignment]
        self.pad_mode = pad_mode
        self.odd_padding: tuple[int, ...] = (0, 0, 0, 0)  # unused: handles take asymmetric padding
        self.handle: Any = None
        self._handles: dict[tuple[int, ...], Any] | None = None

    def _checked_setting(self, name: str, value: Any) -> Any:
        kind = type(self).__name__
        if name == "padding":
            edges(kind, value, self.axes)
            return tuple(value) if _is_sequence(value) else numbers(kind, name, value, self.axes)
        if name in ("kernel_size", "stride", "dilation"):
            value = numbers(kind, name, value, self.axes)
            if min(value) < 1 and name != "dilation":
                raise ValueError(f"[{kind}] {name} must be at least 1, got {value}")
        if name == "pad_mode":
            one_of(kind, name, value, _PAD_MODES)
        return value

    def _handle_for(self, x: Tensor) -> Any:
        padding = self.padding
        if self.pad_mode != "NOTSET":  # the padding depends on the size of the input
            self._check_rank(x)
            padding = same_padding(
                self.pad_mode, self._size_of(x), self.kernel_size, self.stride, self.dilation
            )
        if self._handles is None:
            self._handles = {}
        key = self._handle_key(x, padding)
        if key not in self._handles:
            if self.pad_mode == "NOTSET":
                padding = edges(type(self).__name__, padding, self.axes)
            self._handles[key] = self._make_handle(x, padding)
        handle = self._handles[key]
        if handle is not self.handle:
            self.handle = handle
        return handle

    def _handle_key(self, x: Tensor, padding: tuple[int, ...]) -> tuple[int, ...]:
        """The key of a handle in `_handles`, which hold for the present settings."""
        return padding

    def _size_of(self, x: Tensor) -> tuple[int, ...]:
        """The lengths of the spatial axes."""
        return tuple(x.shape[2:])

    def _check_rank(self, x: Tensor) -> None:
        if len(x.shape) != self.axes + 2:
            raise ValueError(
                f"[{self.title}] expected (batch, channels, {_AXES[self.axes]}), got "
                f"{tuple(x.shape)}"
            )

    def _make_handle(self, x: Tensor, padding: tuple[int, ...]) -> Any:
        raise NotImplementedError
