"""Small helpers that SINGA scripts know by these names."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import singa_wrap as _c
from ._check import InvalidInputError
from .ops.conv import odd_padding_of, odd_pads
from .tape import Dummy

if TYPE_CHECKING:
    from .tape import Operator, Raw
    from .tensor import Tensor

_BAR_LENGTH = 20


def update_progress(progress: float, info: str) -> None:
    """Draws a text progress bar over the last one on standard output.

    `progress` goes from 0 to 1 (below: "Halt", from 1 on: "Done", and a new line); `info` is
    shown behind it. Raises TypeError if `progress` is not a number.
    """
    if isinstance(progress, bool) or not isinstance(progress, int | float):
        raise TypeError(f"[update_progress] progress must be a number, got {progress!r}")
    status = "Halt..." if progress < 0 else "Done." if progress >= 1 else ""
    progress = min(max(float(progress), 0.0), 1.0)
    filled = round(_BAR_LENGTH * progress)
    bar = "#" * filled + "-" * (_BAR_LENGTH - filled)
    sys.stdout.write(f"[{bar}] {progress * 100:3.1f}% {status} {info}".rstrip())
    sys.stdout.write("\n" if status else "\r")
    sys.stdout.flush()


def get_output_shape(
    auto_pad: str,
    input_spatial_shape: Sequence[int],
    kernel_spatial_shape: Sequence[int],
    strides_spatial: Sequence[int] = (),
    *,
    strides_spatial_shape: Sequence[int] = (),
) -> list[int]:
    """Extents of a convolution's or pooling's output under an ONNX `auto_pad` mode.

    SAME_UPPER, SAME_LOWER: ceil(input / stride); VALID: ceil((input - kernel + 1) / stride).
    `strides_spatial_shape` is another name of `strides_spatial`. Raises ValueError for another mode
    or sequences of different lengths.
    """
    strides = strides_spatial or strides_spatial_shape
    _check_shapes("get_output_shape", input_spatial_shape, kernel_spatial_shape, strides)
    if auto_pad == "VALID":
        extents = [
            size - kernel + 1
            for size, kernel in zip(input_spatial_shape, kernel_spatial_shape, strict=True)
        ]
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        extents = list(input_spatial_shape)
    else:
        raise ValueError(
            f"[get_output_shape] auto_pad must be SAME_UPPER, SAME_LOWER or VALID, got {auto_pad!r}"
        )
    return [-(-size // stride) for size, stride in zip(extents, strides, strict=True)]


def get_padding_shape(
    pad_mode: str,
    input_spatial_shape: Sequence[int],
    kernel_spatial_shape: Sequence[int],
    strides_spatial: Sequence[int] = (),
    *,
    strides_spatial_shape: Sequence[int] = (),
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding that makes the output ceil(input / stride) long, as ONNX's SAME_* modes ask.

    Returns the symmetric padding of each axis, and for each axis what is to be added before and
    after the input besides: (h, w), (before_h, after_h, before_w, after_w). An odd total has one
    more at the end for SAME_UPPER and at the beginning for SAME_LOWER.

    `strides_spatial_shape` is another name of `strides_spatial`. Raises ValueError for another mode
    or sequences of different lengths.
    """
    strides = strides_spatial or strides_spatial_shape
    _check_shapes("get_padding_shape", input_spatial_shape, kernel_spatial_shape, strides)
    if pad_mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(
            f"[get_padding_shape] pad_mode must be SAME_UPPER or SAME_LOWER, got {pad_mode!r}"
        )
    symmetric: list[int] = []
    odd: list[int] = []
    for size, kernel, stride in zip(
        input_spatial_shape, kernel_spatial_shape, strides, strict=True
    ):
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        symmetric.append(total // 2)
        odd += (0, total % 2) if pad_mode == "SAME_UPPER" else (total % 2, 0)
    return tuple(symmetric), tuple(odd)


def same_pad_shape_check(
    handle: _c.ConvHandle | _c.PoolingHandle, pad_mode: str, x: Raw | Tensor
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What `get_padding_shape` says for x (N, C, H, W) and the handle's kernel and stride. Raises
    ValueError where the handle pads otherwise."""
    shape = _raw(x).shape()
    if len(shape) != 4:
        raise InvalidInputError(f"[same_pad_shape_check] x has to be (N, C, H, W), got {shape}")
    kernel = handle.kernel_h, handle.kernel_w
    stride = handle.stride_h, handle.stride_w
    padding, odd = get_padding_shape(pad_mode, shape[2:], kernel, stride)
    given = handle.pad_h, handle.pad_w
    if given != padding:
        raise InvalidInputError(
            f"[same_pad_shape_check] {pad_mode} of {shape[2:]} with kernel {kernel} and stride "
            f"{stride} needs padding {padding}, the handle has {given}"
        )
    return padding, odd


def handle_odd_pad_fwd(x: Raw, odd_padding: Sequence[int]) -> Raw:
    """A raw tensor x (N, C, H, W) with zeros added: (top, bottom, left, right)."""
    pads = odd_pads(odd_padding_of("handle_odd_pad_fwd", odd_padding))
    return _c.Pad(x, "constant", pads, 0.0)


def handle_odd_pad_bwd(dx: Raw, odd_padding: Sequence[int]) -> Raw:
    """The gradient of handle_odd_pad_fwd: dx without what was added."""
    pads = odd_pads(odd_padding_of("handle_odd_pad_bwd", odd_padding))
    before, after = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    shape = dx.shape()
    if len(shape) != 4:
        raise ValueError(f"[handle_odd_pad_bwd] dx has to be (N, C, H, W), got {shape}")
    inner = tuple(n - b - a for n, b, a in zip(shape, before, after, strict=True))
    return _c.PadBackward(dx, inner, "constant", pads)


def re_new_handle(
    handle: _c.ConvHandle | _c.PoolingHandle, x: Raw | Tensor, is_pool: bool = False
) -> _c.ConvHandle | _c.PoolingHandle:
    """A handle of the same kind and parameters, made for x. (A handle serves any batch size, height
    and width, so there is no need to.)"""
    window = (
        [handle.kernel_h, handle.kernel_w],
        [handle.stride_h, handle.stride_w],
        [handle.pad_h, handle.pad_w],
    )
    if is_pool:
        return type(handle)(_raw(x), *window, handle.is_max_pooling)
    channels = handle.channels, handle.num_filters
    return type(handle)(_raw(x), *window, *channels, handle.bias_term, handle.group)


def post_order_recursive(
    root: Operator | None, root_t: Tensor | None
) -> tuple[OrderedDict[str, Any], OrderedDict[str, Any], OrderedDict[str, Any]]:
    """What `root` was computed from, each before what uses it, by name: operators, tensors that
    store their gradients (weights), and other tensors (inputs, without the tensor). `root_t` is
    what a root without an operator stands for. A name that is taken gets a number behind it."""
    nodes: OrderedDict[str, Any] = OrderedDict()
    weights: OrderedDict[str, Any] = OrderedDict()
    inputs: OrderedDict[str, Any] = OrderedDict()
    seen = set()
    stack = [] if root is None else [(root, root_t, False)]
    while stack:
        op, t, ready = stack.pop()
        if op in seen:
            continue
        if not ready and op.src:
            stack.append((op, t, True))
            stack.extend((creator, kept, False) for creator, _, kept, _ in reversed(op.src))
            continue
        seen.add(op)
        if not isinstance(op, Dummy):
            nodes[_free_name(op.name, nodes)] = op
        elif t is not None:
            weights[_free_name(op.name, weights)] = t
        else:
            inputs[_free_name(op.name, inputs)] = None
    return nodes, weights, inputs


def _free_name(name: str, taken: OrderedDict[str, Any]) -> str:
    count, free = 0, name
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    return free


def _raw(x: Raw | Tensor) -> Raw:
    return x if isinstance(x, _c.Tensor) else x.data


def force_unicode(s: Any) -> str:
    """`s` as text: bytes are read as UTF-8, anything else through `str`."""
    return s.decode("utf-8") if isinstance(s, bytes) else str(s)


def _check_shapes(op: str, *shapes: Sequence[int]) -> None:
    if len({len(shape) for shape in shapes}) != 1 or any(
        min(shape, default=0) < 1 for shape in shapes
    ):
        raise ValueError(
            f"[{op}] input, kernel and strides must have the same number of positive extents, "
            f"got {', '.join(str(tuple(shape)) for shape in shapes)}"
        )
