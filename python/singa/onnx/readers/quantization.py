"""Readers of quantisation to 8 bits."""

from __future__ import annotations

import math
from typing import Any

from ... import autograd, tensor
from ...tensor import Tensor
from ..element_types import FLOATS, is_singas
from ..errors import Refused
from ..graph import Node
from ..tensors import same_type
from ..values import axis_within, tensor_type
from .movement import reshaped
from .registry import Compute, reads

_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


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


@reads("DequantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28, types={"int8", "uint8", "int32"})
def dequantize(node: Node) -> Compute:
    """(x - zero_point)·scale."""

    def compute(run: Any, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        wide = autograd.cast(x, tensor.float32)
        if x.dtype == tensor.int32:
            wide = autograd.cast(x, tensor.float64)  # float32 does not hold all int32
        if zero is not None:
            wide = wide - _spread(node, autograd.cast(zero, wide.dtype), x)
        y = wide * autograd.cast(_spread(node, scale, x), wide.dtype)
        name = tensor_type(node, "output_dtype", "")
        if name in ("", "type 0"):
            return same_type(y, scale)
        if not is_singas(name):
            raise Refused(f"output_dtype {name}")
        return autograd.cast(y, name)

    return compute


@reads("QuantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28, types=FLOATS | {"int32"}, gradient="zero")
def quantize(node: Node) -> Compute:
    """round(x / scale) + zero_point, limited to the range of the result's type."""
    declared = tensor_type(node, "output_dtype", "")
    zero_type = node.input_types[2].type if node.has(2) else None
    target = zero_type or (declared if declared not in ("", "type 0") else "uint8")
    if target not in _RANGES:
        raise Refused(f"a result of type {target}")
    low, high = _RANGES[target]

    def compute(run: Any, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        wide = x if x.dtype == tensor.float64 else autograd.cast(x, tensor.float32)
        y = autograd.rounde(wide / autograd.cast(_spread(node, scale, x), wide.dtype))
        if zero is not None:
            y = y + _spread(node, autograd.cast(zero, wide.dtype), x)
        return autograd.cast(autograd.clip(y, low, high), target)

    return compute
