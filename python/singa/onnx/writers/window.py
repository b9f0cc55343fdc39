"""Writers of convolution and pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd as ag
from ... import singa_wrap as _c
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call


def _along(recorder: Any, name: str) -> list[int]:
    """A number for each axis of a window."""
    return [getattr(recorder, f"{name}_{axis}") for axis in "dhw"[-recorder.spatial :]]


def _pads(recorder: Any, odd: Any = (0, 0, 0, 0)) -> tuple[list[int], list[int]]:
    """Padding before and after. `odd` is more of it (top, bottom, left, right)."""
    r = recorder
    top, bottom, left, right = odd
    before = [r.pad_front, r.pad_top + top, r.pad_left + left]
    after = [r.pad_back, r.pad_bottom + bottom, r.pad_right + right]
    return before[-r.spatial :], after[-r.spatial :]


def _window(recorder: Any, odd: Any = (0, 0, 0, 0)) -> dict[str, Any]:
    """Attributes of a window, without dilations."""
    before, after = _pads(recorder, odd)
    return {
        "kernel_shape": _along(recorder, "kernel"),
        "strides": _along(recorder, "stride"),
        "pads": before + after,
    }


@writes(ag._Conv, reads="handle")
@writes(ag._Conv2d, reads="handle odd_padding")
def conv(call: Call) -> None:
    """Conv."""
    r = call.op.handle.recorder
    odd = call.op.odd_padding if isinstance(call.op, ag._Conv2d) else (0, 0, 0, 0)
    dilations = _along(r, "dilation")
    call.node("Conv", call.inputs, **_window(r, odd), dilations=dilations, group=r.group)


@writes(ag._ConvTranspose, ag._ConvTranspose2d, reads="handle")
def conv_transpose(call: Call) -> None:
    """ConvTranspose."""
    r = call.op.handle.recorder
    dilations = _along(r, "dilation")
    windows = list(zip(_along(r, "kernel"), _along(r, "stride"), dilations, *_pads(r), strict=True))
    more = [
        [
            m - ((n - 1) * s - before - after + d * (k - 1) + 1)
            for n, m, (k, s, d, before, after) in zip(x[2:], y[2:], windows, strict=True)
        ]
        for x, y in zip(call.in_shapes(), call.out_shapes(), strict=True)
    ]
    extra = call.agreed(more, "output padding")
    # ONNX Runtime refuses a stride or more: the bias is alone there.
    within = [min(n, s - 1) for n, s in zip(extra, _along(r, "stride"), strict=True)]
    rest = [n - m for n, m in zip(extra, within, strict=True)]
    attributes = {
        **_window(r),
        "dilations": dilations,
        "group": r.group,
        "output_padding": within,
    }
    if not any(rest):
        call.node("ConvTranspose", call.inputs, **attributes)
        return
    x, W, *b = call.inputs
    pads = call.constant(np.array([0] * (r.spatial + 4) + rest, np.int64))
    y = [call.step("ConvTranspose", [x, W], **attributes), pads]
    if not b:
        call.node("Pad", y)
        return
    channels = call.constant(np.array([-1] + [1] * r.spatial, np.int64))
    call.node("Add", [call.step("Pad", y), call.step("Reshape", [b[0], channels])])


@writes(ag._Pooling, reads="handle")
@writes(ag._Pooling2d, reads="handle odd_padding")
def pooling(call: Call) -> None:
    """MaxPool and AveragePool."""
    handle = call.op.handle
    odd = call.op.odd_padding if isinstance(call.op, ag._Pooling2d) else (0, 0, 0, 0)
    r = handle.recorder
    if handle.mode == _c.PoolMode_kMax:
        attributes = _window(r, odd)
        dilations = _along(r, "dilation")
        ceil = int(r.ceil_mode)
        call.node("MaxPool", call.inputs, **attributes, dilations=dilations, ceil_mode=ceil)
        return
    x = call.inputs[0]
    if any(odd):  # means count this padding
        top, bottom, left, right = odd
        pads = call.constant(np.array([0, 0, top, left, 0, 0, bottom, right], np.int64))
        x = call.step("Pad", [x, pads, call.constant(0.0)])
    call.node("AveragePool", [x], **_means(call))


def _means(call: Call) -> dict[str, Any]:
    """Attributes of AveragePool."""
    handle = call.op.handle
    r = handle.recorder
    dilations = _along(r, "dilation")
    if any(d > 1 for d in dilations) and call.opset < 19:
        raise call.refuse("means of dilated windows need opset 19")
    return {
        **_window(r),
        "ceil_mode": int(r.ceil_mode),
        "count_include_pad": int(handle.mode == _c.PoolMode_kAverageIncludePad),
        "dilations": dilations if call.opset >= 19 else None,
    }


@writes(ag.LpPool, reads="handle p")
def lp_pool(call: Call) -> None:
    """LpPool for whole p; means of powers for others, and for windows that hang over the end."""
    r, p = call.op.handle.recorder, call.op.p
    dilations = _along(r, "dilation")
    dilated = any(d > 1 for d in dilations)
    if p == int(p) and not r.ceil_mode and (call.opset >= 18 or not dilated):
        more = dilations if call.opset >= 18 else None
        call.node("LpPool", call.inputs, **_window(r), p=int(p), dilations=more)
        return
    powers = call.step("Pow", [call.step("Abs", call.inputs), call.constant(float(p))])
    means = call.step("AveragePool", [powers], **_means(call))
    count = float(np.prod(_along(r, "kernel")))
    sums = call.step("Mul", [means, call.constant(count)])
    call.node("Pow", [sums, call.constant(1.0 / p)])


@writes(ag.GlobalAveragePool, ag.GlobalMaxPool, reads="data_format")
def global_pool(call: Call) -> None:
    """GlobalAveragePool and GlobalMaxPool."""
    node = call.title
    if call.op._first:
        call.node(node, call.inputs)
        return
    rank = len(call.x[0].shape())
    x = call.step("Transpose", call.inputs, perm=[0, rank - 1, *range(1, rank - 1)])
    call.node("Transpose", [call.step(node, [x])], perm=[0, *range(2, rank), 1])


@writes(ag.AdaptiveAvgPool, ag.AdaptiveMaxPool, reads="output_size")
def adaptive_pool(call: Call) -> None:
    """Pooling of windows of one size, where there are such; else axis after axis, by a product with
    a matrix (means), or by a maximum of gathered elements."""
    is_max = isinstance(call.op, ag.AdaptiveMaxPool)
    before, after = call.in_shapes(), call.out_shapes()
    if all(n == 1 for shape in after for n in shape[2:]):
        call.node("GlobalMaxPool" if is_max else "GlobalAveragePool", call.inputs)
        return
    lengths = {tuple(shape[2:]) for shape in before}
    if len(lengths) > 1:
        raise call.refuse("windows that follow a dynamic axis")
    sizes = list(zip(before[0][2:], after[0][2:], strict=True))
    if all(n % m == 0 for n, m in sizes):
        kernel = [n // m for n, m in sizes]
        node = "MaxPool" if is_max else "AveragePool"
        call.node(node, call.inputs, kernel_shape=kernel, strides=kernel)
        return
    x = call.inputs[0]
    rank = len(before[0])
    for axis, (n, m) in enumerate(sizes, 2):
        if n == m:
            continue
        if is_max:
            x = _maxima(call, x, axis, n, m)
        else:
            x = call.averaged(x, axis, rank, n, m, call.type_of_input())
    call.finish(x)


def _maxima(call: Call, x: str, axis: int, n: int, m: int) -> str:
    windows = [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]
    width = max(end - start for start, end in windows)
    rows = [[min(start + j, end - 1) for j in range(width)] for start, end in windows]
    wide = call.step("Gather", [x, call.constant(np.array(rows, np.int64))], axis=axis)
    return call.reduced("ReduceMax", wide, [axis + 1], keepdims=0)
