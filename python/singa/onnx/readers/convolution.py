"""Readers of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import autograd, singa_wrap
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...tensor import Tensor
from .registry import reads
from .window import Window

_CONV: Any = (autograd.conv1d, autograd.conv2d, autograd.conv3d)
_TRANSPOSED: Any = (
    autograd.conv_transpose1d,
    autograd.conv_transpose2d,
    autograd.conv_transpose3d,
)


def handles_of(node: Node) -> Callable[[Tensor, Tensor, bool], singa_wrap.ConvHandle]:
    """The function that makes the handle of a Conv for x, W, and whether there is a bias."""
    window = Window(node)
    group = node.attributes.get("group", 1)
    handles: dict[Any, Any] = {}

    def handle_of(x: Tensor, W: Tensor, bias: bool) -> Any:
        _, kernel, strides, dilations, padding = window.over(x, W.shape[2:])
        _check_channels(node, x, W, group)
        key = (padding, x.shape[1], W.shape[0], kernel)
        handle = handles.get(key)
        if handle is None:
            handle = handles[key] = singa_wrap.ConvHandle(
                x.data,
                kernel,
                strides,
                padding,
                x.shape[1],
                W.shape[0],
                bias,
                group,
                dilations,
            )
        return handle

    return handle_of


@reads("Conv", 1, 11, 22, weights=(1, 2))
def conv(node: Node) -> Compute:
    """Convolution over one to three axes."""
    handle_of = handles_of(node)

    def compute(run: Any, x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
        handle = handle_of(x, W, b is not None)
        return _CONV[len(x.shape) - 3](handle, x, W, b)

    return compute


def _check_channels(node: Node, x: Tensor, W: Tensor, group: int) -> None:
    if x.shape[1] != W.shape[1] * group:
        raise ValueError(
            f"[{node.op}] x {tuple(x.shape)} does not fit W {tuple(W.shape)} with group {group}"
        )


@reads("ConvTranspose", 1, 11, 22, weights=(1, 2))
def conv_transpose(node: Node) -> Compute:
    """Transposed convolution over one to three axes."""
    window = Window(node)
    group = node.attributes.get("group", 1)
    output_padding = node.attributes.get("output_padding")
    output_shape = node.attributes.get("output_shape")
    if output_shape is not None:
        spatial = len(node.attributes.get("kernel_shape", output_shape))
        output_shape = output_shape[-spatial:]
    handles: dict[Any, Any] = {}

    def compute(run: Any, x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
        axes, kernel, strides, dilations, padding = window.over(x, W.shape[2:])
        extra = list(window.of(output_padding, axes, 0))
        wanted = None if output_shape is None else window.of(output_shape, axes, 1)
        same = window.auto_pad.startswith("SAME")
        if wanted is None and same:
            wanted = tuple([n * s for n, s in zip(x.shape[2:], strides, strict=True)])
        if wanted is not None:
            before, after = [], []
            for i in range(axes):
                reach = (kernel[i] - 1) * dilations[i] + 1
                total = strides[i] * (x.shape[2 + i] - 1) + extra[i] + reach - wanted[i]
                extra[i] += max(-total, 0)
                total = max(total, 0)
                first = total // 2 if window.auto_pad == "SAME_UPPER" else total - total // 2
                before.append(first)
                after.append(total - first)
            padding = (*before, *after)
        key = (padding, tuple(extra), x.shape[1], W.shape[1], kernel)
        handle = handles.get(key)
        if handle is None:
            handle = handles[key] = singa_wrap.ConvTransposeHandle(
                x.data,
                kernel,
                strides,
                padding,
                extra,
                x.shape[1],
                W.shape[1] * group,
                b is not None,
                group,
                dilations,
            )
        return _TRANSPOSED[axes - 1](handle, x, W, b)

    if not node.has(1):
        raise Refused("no weight")
    return compute
