"""Folds batch norm into the convolutions before it, in a GraphProto."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .graph_proto import names_read

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import GraphProto, NodeProto

    Array = NDArray[Any]


def constants_of(graph: GraphProto) -> dict[str, Array]:
    """The values of initializers and of Constant nodes with a tensor."""
    from onnx import numpy_helper

    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def add_constant(graph: GraphProto, name: str, array: Array) -> None:
    """Adds an initializer."""
    from onnx import numpy_helper

    graph.initializer.append(numpy_helper.from_array(np.require(array, requirements="C"), name))


def drop_unused(graph: GraphProto) -> None:
    """Removes initializers and Constant nodes that nothing reads."""
    used = uses_of(graph)
    for tensor in [t for t in graph.initializer if not used[t.name]]:
        graph.initializer.remove(tensor)
    for node in [n for n in graph.node if n.op_type == "Constant" and not used[n.output[0]]]:
        graph.node.remove(node)


def uses_of(graph: GraphProto) -> Counter[str]:
    """How often nodes, their subgraphs and outputs read each value."""
    used = Counter(value.name for value in graph.output)
    for node in graph.node:
        used.update(names_read(node))
    return used


def attribute(node: NodeProto, name: str, default: Any) -> Any:
    """An attribute of a node."""
    from onnx import helper

    found = [a for a in node.attribute if a.name == name]
    return helper.get_attribute_value(found[0]) if found else default


def fold_norms(graph: GraphProto, fresh: Callable[[str], str]) -> None:
    """Replaces convolution and batch norm by a convolution with other weights, where nothing else
    reads the convolution's result. `fresh` makes a name that is still free.

    y = (x - mean) / sqrt(var + eps)·scale + bias, of each channel.
    """
    constants, used = constants_of(graph), uses_of(graph)
    stored = {tensor.name: tensor for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output if name}
    for norm in [n for n in graph.node if n.op_type == "BatchNormalization" and not n.domain]:
        conv = makers.get(norm.input[0])
        in_training = attribute(norm, "training_mode", 0) or len(norm.output) > 1
        if conv is None or conv.op_type != "Conv" or conv.domain or in_training:
            continue
        parts = [conv.input[1], *norm.input[1:5], *(name for name in conv.input[2:] if name)]
        if used[norm.input[0]] != 1 or any(name not in constants for name in parts):
            continue
        weight, scale, shift, mean, var, *rest = (constants[n].astype(np.float64) for n in parts)
        factor = scale / np.sqrt(var + attribute(norm, "epsilon", 1e-5))
        bias = (sum(rest) - mean) * factor + shift
        weight = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
        kind = constants[conv.input[1]].dtype
        names = []
        for name, array in ((parts[0], weight), (parts[2], bias)):
            names.append(fresh(name) if used[name] > 1 or name not in stored else name)
            if names[-1] == name:
                graph.initializer.remove(stored[name])
            add_constant(graph, names[-1], array.astype(kind))
        conv.input[:] = [conv.input[0], *names]
        conv.output[0] = norm.output[0]
        graph.node.remove(norm)
    drop_unused(graph)
