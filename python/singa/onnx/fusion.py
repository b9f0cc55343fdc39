"""What ONNX's nodes are in the patterns of `networks/patterns.py`, and patterns of their own.

    Pad → Conv
    Conv → Add of one number per channel                 Conv with a bias, as of Keras's exporter
    quantized layers and sums (`int8`)

Patterns consist of nodes of the file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import autograd
from ..networks.fusion import Part
from ..networks.graph import Node
from ..networks.patterns import Patterns
from . import int8
from .functions import FUNCTIONS, HARD_SWISH_GATE, OF_NORM
from .values import argument, numbers, resolved_shape

if TYPE_CHECKING:
    from ..networks.network import CompiledNode, Execution
    from ..tensor import Tensor


class OnnxFusion(Patterns):
    """The patterns that nodes of ONNX form."""

    def run(self) -> list[CompiledNode]:
        int8.fuse(self)
        return super().run()

    def rules(self) -> Sequence[Mapping[str, Callable[[int], bool]]]:
        return [{"add": self._biased}, *super().rules(), {"conv": self._padded}]

    def part_of(self, step: CompiledNode) -> Part | None:
        node = step.node
        if node.attributes.get("broadcast"):  # operands that do not broadcast as they do today
            return None
        special = _SPECIAL.get(node.op)
        if special is not None:
            return special(self, node)
        kind = _KINDS.get(node.op)
        return None if kind is None else Part(kind, node.inputs)

    # Conv without a bias, Add.

    def _biased(self, i: int) -> bool:
        operands = self.operands(i)
        for name, bias in (operands, operands[::-1]):
            at = self.only(name, "conv")
            if at is None or self.step(at).node.has(2) or not self._per_channel(i, bias):
                continue
            conv = self.step(at)
            names = [*conv.node.inputs[:2], bias]
            return self.merge([at, i], conv, names, _biased(conv, self.apart([at, i], names)))
        return False

    # Pad with zeros, Conv.

    def _padded(self, i: int) -> bool:
        end = self.step(i)
        at = self.only(end.node.inputs[0], "pad")
        if at is None or end.node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return False
        before = self.step(at).node
        pads = self._zeros_around(before)
        if pads is None:
            return False
        own = end.node.attributes.get("pads") or [0] * len(pads)
        if len(own) != len(pads):
            return False
        sums = [a + b for a, b in zip(own, pads, strict=True)]
        node = replace(
            end.node,
            inputs=(before.inputs[0], *end.node.inputs[1:]),
            input_types=(before.input_types[0], *end.node.input_types[1:]),
            attributes={**end.node.attributes, "pads": sums, "auto_pad": "NOTSET"},
        )
        assert end.reader is not None
        conv = self.make(node, end.reader, end.reader.make(node))
        return self.merge([at, i], conv, node.inputs, conv.compute)

    def _zeros_around(self, node: Node) -> list[int] | None:
        """What a Pad adds before and after each axis but the first two; None if it adds something
        else than zeros, or this is not known."""
        if any(name and name not in self.constants for name in node.inputs[1:]):
            return None
        given: list[Any] = [self.constants.get(name) for name in node.inputs]
        pads = argument(node, "pads" if node.version > 1 else "paddings", given, 1)
        value = given[2] if node.has(2) else node.attributes.get("value", 0)
        if pads is None or node.has(3) or node.attributes.get("mode", "constant") != "constant":
            return None
        rank = len(pads) // 2
        outside = [*pads[:2], *pads[rank : rank + 2]]
        if rank < 3 or any(outside) or min(pads) < 0 or np.any(value):
            return None
        return [*pads[2:rank], *pads[rank + 2 :]]


def _biased(conv: CompiledNode, apart: Callable[..., Any]) -> Any:
    def fused(run: Execution, x: Tensor, W: Tensor, bias: Tensor) -> Any:
        channels = W.shape[0]
        fits = bias.dtype == x.dtype and len(x.shape) == 4 and bias.size() == channels
        if fits and tuple(bias.shape) in ((channels, 1, 1), (1, channels, 1, 1)):
            return conv.compute(run, x, W, autograd.reshape(bias, (channels,)))
        return apart(run, x, W, bias)

    return fused


#: The operators that are a kind of part.
_KINDS = {
    "Add": "add",
    "BatchNormalization": "batch_norm",
    "Conv": "conv",
    "DequantizeLinear": "dequantize",
    "Div": "div",
    "Erf": "erf",
    "Flatten": "flatten",
    "Gemm": "gemm",
    "Less": "less",
    "MatMul": "matmul",
    "MaxPool": "max_pool",
    "Mul": "mul",
    "Pad": "pad",
    "QuantizeLinear": "quantize",
    "Sigmoid": "sigmoid",
    "Squeeze": "squeeze",
    "Unsqueeze": "unsqueeze",
    "Where": "where",
    **{row.op: name for name, row in OF_NORM.items()},
}


def _clip(fusion: OnnxFusion, node: Node) -> Part | None:
    limits = [node.attributes.get(key) for key in ("min", "max")]
    if len(node.inputs) == 3:
        limits = [fusion.number(limit) for limit in node.inputs[1:]]
    if limits == [0, 6]:
        return Part("relu6", node.inputs[:1])
    low, high = limits
    known = low is not None and high is not None
    return Part("clip", node.inputs[:1], {"limits": (low, high)}) if known else None


def _swish(fusion: OnnxFusion, node: Node) -> Part | None:
    return Part("silu", node.inputs) if node.attributes.get("alpha", 1.0) == 1 else None


def _hard_sigmoid(fusion: OnnxFusion, node: Node) -> Part | None:
    given = FUNCTIONS[node.op].attributes_of(node)
    fits = all(abs(given[key] - value) <= 1e-7 for key, value in HARD_SWISH_GATE.items())
    return Part("hard_sigmoid", node.inputs) if fits else None


def _transpose(fusion: OnnxFusion, node: Node) -> Part:
    return Part("permute", node.inputs, {"order": node.attributes.get("perm")})


def _gelu(fusion: OnnxFusion, node: Node) -> Part | None:
    exact = node.attributes.get("approximate", "none") == "none"
    return Part("gelu", node.inputs) if exact else None


def _layer_norm(fusion: OnnxFusion, node: Node) -> Part:
    options = {name: node.attributes.get(name, v) for name, v in (("axis", -1), ("epsilon", 1e-5))}
    return Part("layer_norm", node.inputs, options)


def _softmax(fusion: OnnxFusion, node: Node) -> Part:
    default = -1 if node.version >= 13 else 1
    return Part("softmax", node.inputs, {"axis": node.attributes.get("axis", default)})


def _reshape(fusion: OnnxFusion, node: Node) -> Part | None:
    options = {"shape": functools.partial(_reshaped, node)}
    return Part("reshape", node.inputs, options) if len(node.inputs) == 2 else None


def _reshaped(node: Node, given: tuple[int, ...], lengths: Sequence[Any]) -> tuple[int, ...]:
    return resolved_shape(node, given, numbers(lengths[0]))


_SPECIAL: dict[str, Callable[[OnnxFusion, Node], Part | None]] = {
    "Clip": _clip,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "LayerNormalization": _layer_norm,
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Swish": _swish,
    "Transpose": _transpose,
}
