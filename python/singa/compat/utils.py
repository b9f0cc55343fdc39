"""SINGA's module `utils`: a progress bar, and helpers for padding and graphs."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..layer.window import same_padding
from ..ops.conv import odd_padding_of, odd_pads
from ..raw.check import InvalidInputError, one_of
from ..tape.operator import Dummy

if TYPE_CHECKING:
    from ..tape.operator import Operator, Raw
    from ..tape.tensor import Tensor

_BAR_LENGTH = 20


def update_progress(progress: float, info: str) -> None:
    """Draws a text progress bar on standard output, over the previous one.

    `progress` goes from 0 to 1. A negative value adds "Halt..." and a new line, 1 or more adds
    "Done." and a new line. `info` is shown after the bar. Raises TypeError if `progress` is not a
    number.

    >>> from singa import utils
    >>> utils.update_progress(1.0, "of 10 batches")
    [####################] 100.0% Done. of 10 batches
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
    """Spatial output shape of a convolution or pooling with an ONNX `auto_pad` mode.

    SAME_UPPER and SAME_LOWER give ceil(input / stride), VALID gives
    ceil((input - kernel + 1) / stride). `strides_spatial_shape` is another name of
    `strides_spatial`. Raises ValueError for another mode, for sequences of different lengths and
    for entries below 1.

    >>> from singa import utils
    >>> utils.get_output_shape("SAME_UPPER", (7, 7), (3, 3), (2, 2))
    [4, 4]
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
    """Padding of ONNX's SAME_* modes, which gives an output of size ceil(input / stride).

    Returns the symmetric padding (h, w), and the additional padding (before_h, after_h, before_w,
    after_w). If the total padding of an axis is odd, SAME_UPPER adds the extra element at the end
    and SAME_LOWER at the beginning.

    `strides_spatial_shape` is another name of `strides_spatial`. Raises ValueError for another
    mode, for sequences of different lengths and for entries below 1.

    >>> from singa import utils
    >>> utils.get_padding_shape("SAME_UPPER", (8, 8), (3, 3), (2, 2))
    ((0, 0), (0, 1, 0, 1))
    """
    strides = strides_spatial or strides_spatial_shape
    _check_shapes("get_padding_shape", input_spatial_shape, kernel_spatial_shape, strides)
    one_of("get_padding_shape", "pad_mode", pad_mode, ["SAME_UPPER", "SAME_LOWER"])
    axes = len(strides)
    padding = same_padding(
        pad_mode, input_spatial_shape, kernel_spatial_shape, strides, (1,) * axes
    )
    pairs = list(zip(padding[:axes], padding[axes:], strict=True))
    return tuple(map(min, pairs)), tuple(n - min(pair) for pair in pairs for n in pair)


def same_pad_shape_check(
    handle: _c.ConvHandle | _c.PoolingHandle, pad_mode: str, x: Raw | Tensor
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The result of `get_padding_shape` for x (N, C, H, W) and the kernel and stride of `handle`.

    Raises InvalidInputError, which is a ValueError and an AssertionError, if x does not have four
    dimensions or the handle has another padding.

    >>> from singa import singa_wrap, utils
    >>> x = tensor.zeros((1, 1, 7, 7))
    >>> handle = singa_wrap.ConvHandle(x.data, (3, 3), (1, 1), (1, 1), 1, 1)
    >>> utils.same_pad_shape_check(handle, "SAME_UPPER", x)
    ((1, 1), (0, 0, 0, 0))
    """
    shape = _raw(x).shape()
    if len(shape) != 4:
        raise InvalidInputError(f"[same_pad_shape_check] x must be (N, C, H, W), got {shape}")
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
    """Pads a raw tensor x (N, C, H, W) with zeros; `odd_padding` is (top, bottom, left, right).

    >>> from singa import utils
    >>> x = tensor.ones((1, 1, 2, 2)).data
    >>> utils.handle_odd_pad_fwd(x, (0, 1, 0, 1)).shape()
    (1, 1, 3, 3)
    """
    pads = odd_pads(odd_padding_of("handle_odd_pad_fwd", odd_padding))
    return _c.Pad(x, "constant", pads, 0.0)


def handle_odd_pad_bwd(dx: Raw, odd_padding: Sequence[int]) -> Raw:
    """Gradient of `handle_odd_pad_fwd`: dx without the padding.

    Raises ValueError if dx does not have four dimensions.

    >>> from singa import utils
    >>> dx = tensor.ones((1, 1, 3, 3)).data
    >>> utils.handle_odd_pad_bwd(dx, (0, 1, 0, 1)).shape()
    (1, 1, 2, 2)
    """
    pads = odd_pads(odd_padding_of("handle_odd_pad_bwd", odd_padding))
    before, after = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    shape = dx.shape()
    if len(shape) != 4:
        raise ValueError(f"[handle_odd_pad_bwd] dx must be (N, C, H, W), got {shape}")
    inner = tuple(n - b - a for n, b, a in zip(shape, before, after, strict=True))
    return _c.PadBackward(dx, inner, "constant", pads)


def re_new_handle(
    handle: _c.ConvHandle | _c.PoolingHandle, x: Raw | Tensor, is_pool: bool = False
) -> _c.ConvHandle | _c.PoolingHandle:
    """A new handle for x with the type and parameters of `handle`.

    SINGA's scripts call it when the input size changes. singa does not need it: a handle works for
    any batch size, height and width.

    >>> from singa import singa_wrap, utils
    >>> x = tensor.zeros((1, 1, 7, 7))
    >>> handle = singa_wrap.ConvHandle(x.data, (3, 3), (1, 1), (1, 1), 1, 1)
    >>> utils.re_new_handle(handle, tensor.zeros((4, 1, 9, 9))).batchsize
    4
    """
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
    """The graph from which `root` was computed, in post-order: each node follows its inputs.

    Returns three dicts by name: operators, tensors that store a gradient (weights), and other
    tensors (inputs, with the value None). `root_t` is the tensor of a `root` that is a Dummy. A
    name that is taken gets a numeric suffix.

    >>> from singa import utils
    >>> autograd.training = True
    >>> w = tensor.Tensor(data=[1.0], stores_grad=True, name="w")
    >>> operators, weights, inputs = utils.post_order_recursive(autograd.exp(w * 2).creator, None)
    >>> list(weights), len(operators)
    (['w'], 2)
    """
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
    """Converts `s` to str. Bytes are decoded as UTF-8.

    >>> from singa import utils
    >>> utils.force_unicode("café".encode())
    'café'
    """
    return s.decode("utf-8") if isinstance(s, bytes) else str(s)


def _check_shapes(op: str, *shapes: Sequence[int]) -> None:
    if len({len(shape) for shape in shapes}) != 1 or any(
        min(shape, default=0) < 1 for shape in shapes
    ):
        raise ValueError(
            f"[{op}] input, kernel and strides must have the same number of positive extents, "
            f"got {', '.join(str(tuple(shape)) for shape in shapes)}"
        )
