"""Readers of quantisation to integers of 8 bits, and of 2, 4 and 16, which are held in int32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import autograd, singa_wrap, tensor
from ...dtypes import DType
from ...networks.element_types import FLOATS, HELD, is_singas
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...tape.grad_mode import training
from ...tensor import Tensor
from ..values import axis_within, tensor_type
from .movement import reshaped
from .registry import reads

_RANGES = {
    f"{sign}int{bits}": (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for bits in (2, 4, 8, 16)
    for sign in ("", "u")
}


def _spread(node: Node, t: Tensor, x: Tensor) -> Tensor:
    """A scale or zero point in a shape that broadcasts to x."""
    if not t.shape or math.prod(t.shape) == 1:
        return reshaped(t, ())
    axis = axis_within(node, node.attributes.get("axis", 1), len(x.shape))
    if len(t.shape) == 1:
        return reshaped(t, (1,) * axis + tuple(t.shape) + (1,) * (len(x.shape) - axis - 1))
    block = node.attributes.get("block_size", 0)
    if not block:
        raise Refused("a scale of several axes without block_size")
    wide = autograd.gather(t, axis, [i // block for i in range(x.shape[axis])])
    return wide


def rounded(y: Tensor, zero: Tensor | None, target: str) -> Tensor:
    """round(y) + zero, limited to the range of the type `target`; halves go to the even number.

    zero  a tensor of the type of y
    """
    if target not in _RANGES:
        raise Refused(f"a result of type {target}")
    y = autograd.rounde(y)
    y = autograd.clip(y if zero is None else y + zero, *_RANGES[target])
    return autograd.cast(y, "int32" if target in HELD else target)


def _require_scale(node: Node) -> None:
    if not node.has(0) or not node.has(1):  # the onnx package does not check ONNX Runtime's
        raise Refused("no scale")


def is_on_cpu(x: Tensor) -> bool:
    """Whether `quantized_sum` takes a tensor."""
    return bool(x.device.name() == "cpu")


def quantized_sum(
    x: Sequence[Tensor],
    scales: Sequence[Tensor | None],
    zeros: Sequence[Tensor | None],
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    kind: str = "float32",
    relu: bool = False,
) -> Tensor:
    """singa_wrap.QuantizedSum of tensors, which has no gradient."""

    def raw(t: Tensor | None) -> Any:
        return None if t is None else t.data

    terms = [[raw(t) for t in each] for each in (x, scales, zeros)]
    y = singa_wrap.QuantizedSum(*terms, raw(y_scale), raw(y_zero), DType[kind], relu)
    return Tensor(data=y, requires_grad=False)


def _in_one_step(x: Tensor, scale: Tensor, kinds: tuple[Any, ...]) -> bool:
    """Whether `quantized_sum` computes these operators for x, a value of one of these types."""
    plain = scale.dtype == tensor.float32 and math.prod(scale.shape) == 1
    return plain and x.dtype in kinds and not training() and is_on_cpu(x)


def _as_zero(zero: Tensor | None) -> Tensor | None:
    return None if zero is None else autograd.cast(zero, tensor.int32)


def dequantize(node: Node) -> Compute:
    """(x - zero_point)·scale."""
    _require_scale(node)
    # float32 does not hold all int32.
    is_wide = not node.input_types or node.input_types[0].type in (None, "int32")
    floats = node.attributes.get("output_dtype", 0)  # 0: of the type of the scale

    def compute(run: Any, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        if not floats and _in_one_step(x, scale, (tensor.int8, tensor.uint8)):
            return quantized_sum([x], [scale], [_as_zero(zero)])
        wide = tensor.float64 if is_wide and x.dtype == tensor.int32 else tensor.float32
        y = autograd.cast(x, wide)
        if zero is not None:
            y = y - _spread(node, autograd.cast(zero, wide), x)
        y = y * autograd.cast(_spread(node, scale, x), wide)
        name = tensor_type(node, "output_dtype", "")
        if name in ("", "type 0"):
            return same_type(y, scale)
        if not is_singas(name):
            raise Refused(f"output_dtype {name}")
        return autograd.cast(y, name)

    return compute


def quantize(node: Node) -> Compute:
    """round(x / scale) + zero_point, limited to the range of the result's type."""
    _require_scale(node)
    declared = tensor_type(node, "output_dtype", "")
    zero_type = node.input_types[2].type if node.has(2) else None
    target = zero_type or (declared if declared not in ("", "type 0") else "uint8")
    if target not in _RANGES:
        raise Refused(f"a result of type {target}")

    def compute(run: Any, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        if target in ("int8", "uint8") and _in_one_step(x, scale, (tensor.float32,)):
            return quantized_sum([x], [None], [None], scale, _as_zero(zero), target)
        wide = x if x.dtype == tensor.float64 else autograd.cast(x, tensor.float32)
        y = wide / autograd.cast(_spread(node, scale, x), wide.dtype)
        from_zero = None if zero is None else _spread(node, autograd.cast(zero, wide.dtype), x)
        return rounded(y, from_zero, target)

    return compute


_VERSIONS = (10, 13, 19, 21, 23, 24, 25, 28)
_QUANTIZED = HELD | {"int8", "uint8", "int32"}

reads("DequantizeLinear", *_VERSIONS, types=_QUANTIZED, held=True)(dequantize)
reads("QuantizeLinear", *_VERSIONS, types=FLOATS | {"int32"}, gradient="zero", held=True)(quantize)
# ONNX Runtime's quantizer writes these for types that the opset's own operators do not take yet.
_RUNTIMES: Any = {"domain": "com.microsoft", "held": True}
reads("DequantizeLinear", 1, types=_QUANTIZED, **_RUNTIMES)(dequantize)
reads("QuantizeLinear", 1, types=FLOATS, gradient="zero", **_RUNTIMES)(quantize)


def dynamic(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(uint8 values, scale, zero point) for the range of x, which is extended to 0.

    The scale of a tensor of zeros is 1, as in ONNX Runtime; ONNX's formula divides by 0.
    """
    given, x = x, x if x.dtype == tensor.float64 else autograd.cast(x, tensor.float32)
    low = autograd.clip(autograd.reduce_min(x, keepdims=0), None, 0.0)
    width = autograd.clip(autograd.reduce_max(x, keepdims=0), 0.0) - low
    scale = width / 255.0 + autograd.cast(width <= 0, width.dtype)
    zero = autograd.clip(autograd.rounde(low / scale * -1.0), 0.0, 255.0)
    y = rounded(x / scale, zero, "uint8")
    return y, same_type(scale, given), autograd.cast(zero, "uint8")


@reads("DynamicQuantizeLinear", 11, gradient="zero")
def dynamic_quantize(node: Node) -> Compute:
    """x as uint8, with the scale and zero point of its range."""
    return lambda run, x: dynamic(x)
