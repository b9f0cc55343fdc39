"""Writes pairs of QuantizeLinear and DequantizeLinear into a model of floats.

Layers (Conv, Gemm and MatMul with a constant weight) get weights of int8 with a scale for each
output, and biases of int32. Their inputs, the results of convolutions, and what sums, pooling and
reshapes make of such values become uint8 with one scale. ReLU and Clip behind a layer stay before
its rounding. All other values stay floats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .folded_norms import add_constant, attribute, constants_of, drop_unused, uses_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import GraphProto, ModelProto, NodeProto

    Array = NDArray[Any]

#: Operators whose result is quantised if all their inputs are.
_BETWEEN = frozenset({"Add", "AveragePool", "Concat", "GlobalAveragePool"})
#: Those that only move elements, so that their result has the scale of their input.
_MOVING = frozenset({"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Pad"})
_LIMITS = frozenset({"Relu", "Clip"})
_MOST_BIAS = 2.0**30  # of int32


@dataclass(frozen=True)
class QuantizableLayer:
    """A layer that can be quantised.

    name    of the layer, or of its node
    node    the number of its node
    x       the value that it reads
    axis    the axis of outputs of its weight
    """

    name: str
    node: int
    x: str
    axis: int


def layers_of(graph: GraphProto) -> list[QuantizableLayer]:
    """The layers of a graph whose weights are constants of float32."""
    constants = constants_of(graph)
    layers = []
    for i, node in enumerate(graph.node):
        weight = constants.get(node.input[1]) if len(node.input) > 1 else None
        if weight is None or weight.dtype != np.float32 or node.input[0] in constants:
            continue
        axis = _output_axis(node, weight)
        if axis is not None:
            before, _, last = node.name.rpartition("/")
            name = before if before and last == node.op_type else node.name
            layers.append(QuantizableLayer(name, i, node.input[0], axis))
    return layers


def _output_axis(node: NodeProto, weight: Array) -> int | None:
    """The axis of outputs of a layer's weight; None if it cannot be quantised."""
    if node.domain or weight.ndim < 2:
        return None
    if node.op_type == "Conv":
        return 0
    if node.op_type == "MatMul" and weight.ndim == 2:
        return 1
    plain = [attribute(node, name, 1.0) for name in ("alpha", "beta")] == [1, 1]
    if node.op_type == "Gemm" and plain and not attribute(node, "transA", 0):
        return 0 if attribute(node, "transB", 0) else 1
    return None


def _is_between(node: NodeProto) -> bool:
    """Whether the result of a node is quantised if its inputs are."""
    dilated = any(step != 1 for step in attribute(node, "dilations", []))
    return node.op_type in _BETWEEN and not dilated


class Points:
    """The values of a graph that are quantised, if `layers` are.

    names  these values
    like   for those that have the scale of another one, that one
    """

    def __init__(self, graph: GraphProto, layers: Collection[QuantizableLayer]) -> None:
        self.names: set[str] = {layer.x for layer in layers}
        self.like: dict[str, str] = {}
        self._uses, self._outputs = uses_of(graph), {value.name for value in graph.output}
        self._readers = {name: node for node in graph.node for name in node.input}
        constants = constants_of(graph)
        quantized = {layer.node for layer in layers}
        for i, node in enumerate(graph.node):
            if i in quantized and node.op_type == "Conv":
                self._add(self._behind(node.output[0]))
            elif node.domain:
                continue
            elif _is_between(node) and self.names.issuperset(node.input):
                self._add(self._behind(node.output[0]))
            elif node.op_type in _MOVING and self._moves(node, constants):
                x, y = node.input[0], node.output[0]
                if x in self.names and self._add(y):
                    self.like[y] = self.like.get(x, x)

    def _add(self, name: str) -> bool:
        if name not in self._outputs:
            self.names.add(name)
        return name not in self._outputs

    def _behind(self, name: str) -> str:
        """The value behind a ReLU or Clip that alone reads the value `name`; else that one."""
        reader = self._readers.get(name)
        if reader is None or self._uses[name] != 1 or reader.domain:
            return name
        return reader.output[0] if reader.op_type in _LIMITS else name

    def _moves(self, node: NodeProto, constants: Mapping[str, Array]) -> bool:
        """Whether a node adds no values but zeros, and has one result."""
        if len(node.output) > 1:
            return False
        if node.op_type != "Pad":
            return True
        filled = constants[node.input[2]] if len(node.input) > 2 and node.input[2] else 0
        return attribute(node, "mode", b"constant") == b"constant" and not np.any(filled)


@dataclass(frozen=True)
class Range:
    """The smallest and the largest number of a value; 0 lies between them."""

    low: float
    high: float

    @property
    def scale(self) -> np.float32:
        """The width of a step of uint8."""
        width = np.float32((self.high - self.low) / 255)
        return width if width > 0 else np.float32(1)

    @property
    def zero(self) -> np.uint8:
        """The step that means 0."""
        return np.uint8(np.clip(np.rint(-self.low / self.scale), 0, 255))


def quantized(
    model: ModelProto,
    layers: Collection[QuantizableLayer],
    ranges: Mapping[str, Range],
    fresh: Callable[[str], str],
) -> ModelProto:
    """A copy of a model in which these layers are quantised.

    ranges  those of all values that can be quantised
    fresh   makes a name that is still free
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    _Writer(result.graph, layers, ranges, fresh).run(layers_of(model.graph))
    return result


class _Writer:
    """Writes quantised layers into a graph."""

    def __init__(
        self,
        graph: GraphProto,
        layers: Collection[QuantizableLayer],
        ranges: Mapping[str, Range],
        fresh: Callable[[str], str],
    ) -> None:
        self.graph, self.fresh = graph, fresh
        self.layers = {layer.node: layer for layer in layers}
        self.points = Points(graph, layers)
        self.ranges = {name: ranges[self.points.like.get(name, name)] for name in self.points.names}
        self.constants = constants_of(graph)
        self.nodes: list[NodeProto] = []
        self.rounded: dict[str, str] = {}  # values, and their names behind the rounding
        self.weights: dict[Any, str] = {}
        self.parameters: dict[Range, list[str]] = {}

    def run(self, candidates: Collection[QuantizableLayer]) -> None:
        """Rewrites the graph. `candidates` are all layers: those not quantised read floats."""
        in_float = {layer.node for layer in candidates} - self.layers.keys()
        nodes = list(self.graph.node)
        read = {name for i, n in enumerate(nodes) if i not in in_float for name in n.input}
        for value in self.graph.input:
            self._round(value.name, read)
        for i, node in enumerate(nodes):
            if i not in in_float:
                for j, name in enumerate(node.input):
                    node.input[j] = self.rounded.get(name, name)
            if i in self.layers:
                self._quantize(node, self.layers[i])
            if _is_between(node):  # ONNX Runtime's average of integers takes no dilations
                for found in [a for a in node.attribute if a.name == "dilations"]:
                    node.attribute.remove(found)
            self.nodes.append(node)
            for name in node.output:
                self._round(name, read)
        del self.graph.node[:], self.graph.value_info[:]
        self.graph.node.extend(self.nodes)
        drop_unused(self.graph)

    def _round(self, name: str, read: Collection[str]) -> None:
        """Writes a pair of nodes behind a value that is quantised and that something reads."""
        if name not in self.points.names or name not in read:
            return
        known = self.ranges[name]
        if known not in self.parameters:
            names = [self.fresh(f"{name}_scale"), self.fresh(f"{name}_zero_point")]
            for each, number in zip(names, (known.scale, known.zero), strict=True):
                add_constant(self.graph, each, np.array(number))
            self.parameters[known] = names
        steps = self._node("QuantizeLinear", [name, *self.parameters[known]], f"{name}_quantized")
        self.rounded[name] = self._node(
            "DequantizeLinear", [steps, *self.parameters[known]], f"{name}_dequantized"
        )

    def _quantize(self, node: NodeProto, layer: QuantizableLayer) -> None:
        """Puts integers in the place of a layer's weight and bias."""
        x_scale = self.ranges[layer.x].scale
        name, weight = node.input[1], self.constants[node.input[1]]
        outputs = weight.shape[layer.axis]
        bias = self.constants.get(node.input[2]) if len(node.input) > 2 else None
        if bias is not None:  # one that broadcasts stays in float
            bias = bias.reshape(-1) if bias.shape[-1:] == (bias.size,) == (outputs,) else None
        others = tuple(i for i in range(weight.ndim) if i != layer.axis)
        scale = np.abs(weight).max(others).astype(np.float64) / 127
        if bias is not None:  # which has to fit into int32
            scale = np.maximum(scale, np.abs(bias.astype(np.float64)) / (_MOST_BIAS * x_scale))
        scale = np.where(scale > 0, scale, 1).astype(np.float32)
        key = (name, layer.axis, scale.tobytes())
        if key not in self.weights:
            shape = [-1 if i == layer.axis else 1 for i in range(weight.ndim)]
            steps = np.clip(np.rint(weight / scale.reshape(shape)), -127, 127).astype(np.int8)
            self.weights[key] = self._constant(name, steps, scale, layer.axis)
        node.input[1] = self.weights[key]
        if bias is not None:
            scale = x_scale * scale
            steps = np.rint(bias / scale.astype(np.float64)).astype(np.int32)
            node.input[2] = self._constant(node.input[2], steps, scale, 0)

    def _constant(self, name: str, steps: Array, scale: Array, axis: int) -> str:
        """Adds quantised numbers, and returns the name of what DequantizeLinear makes of them."""
        names = [self.fresh(f"{name}_{part}") for part in ("quantized", "scale", "zero_point")]
        arrays = (steps, scale, np.zeros_like(scale, steps.dtype))
        for each, array in zip(names, arrays, strict=True):
            add_constant(self.graph, each, array)
        return self._node("DequantizeLinear", names, f"{name}_dequantized", axis=axis)

    def _node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        name = self.fresh(output)
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name
