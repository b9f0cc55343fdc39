"""An imported graph as protobufs of ONNX: the nodes as the file has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..networks.graph import Graph, Node, ValueType, subgraphs
from .data_types import NUMBERS
from .errors import ExportError
from .specification import names_read, opsets_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

#: The oldest version of the file format in which an initializer need not be an input.
OLDEST_FORMAT = 4


def opsets_for(graph: Graph) -> dict[str, int]:
    """Versions of the operators by domain, in which each node has the version that was read."""
    opsets = {"": graph.opset} if graph.opset else {}

    def visit(inner: Graph) -> None:
        for node in inner.nodes:
            if node.domain or not graph.opset:
                opsets[node.domain] = max(opsets.get(node.domain, 1), node.version)
            for each in subgraphs(node):
                visit(each)

    visit(graph)
    return opsets


def model_of(graph: Graph, inputs: Mapping[str, ValueType], wanted: Sequence[str]) -> ModelProto:
    """A model that computes the values `wanted`.

    inputs  types and shapes of the inputs and parameters: all are inputs of the model
    """
    from onnx import helper

    nodes = _leading_to(graph, wanted)
    proto = _graph(graph, nodes, [_info(name, value) for name, value in inputs.items()], wanted)
    opsets = [helper.make_opsetid(*entry) for entry in opsets_for(graph).items()]
    model = helper.make_model(proto, opset_imports=opsets)
    model.ir_version = max(OLDEST_FORMAT, helper.find_min_ir_version_for(opsets, True))
    return model


def converted(model: ModelProto, opset: int) -> ModelProto:
    """The model with ONNX's operators of another version. Raises ExportError if it has no such
    form."""
    import onnx.version_converter

    found = opsets_of(model).get("", opset)
    if found == opset:
        return model
    try:
        return onnx.version_converter.convert_version(model, opset)
    except Exception as error:  # it raises errors of many kinds
        raise ExportError(
            f"[onnx.save] the network came from a file of opset {found}, and its nodes have no "
            f"form in opset {opset}: {' '.join(str(error).split())[:300]}"
        ) from None


def set_mode(graph: GraphProto, training: bool, opset: int) -> None:
    """Puts batch norm and dropout into training or inference form."""
    read = {name for node in graph.node for name in names_read(node)}
    read |= {value.name for value in graph.output}
    for node in list(graph.node):
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type in ("BatchNormalization", "Dropout") and opset < 7:
            _set_attribute(node, "is_test", int(not training))
        elif node.op_type == "BatchNormalization":
            if opset >= 14:
                _set_attribute(node, "training_mode", int(training))
            while len(node.output) > 1 and node.output[-1] not in read:
                del node.output[-1]
            if training and opset >= 14:  # the operator then has the new statistics as results
                first = node.output[0]
                node.output.extend(f"{first}/{i}" for i in range(len(node.output), 3))
        elif node.op_type == "Dropout" and opset >= 12:
            del node.input[2:]
            if training:
                node.input.extend([""] * (2 - len(node.input)))
                node.input.append(_true(graph, node))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                set_mode(attribute.g, training, opset)


def _set_attribute(node: NodeProto, name: str, value: int) -> None:
    from onnx import helper

    for attribute in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(attribute)
    if value:
        node.attribute.append(helper.make_attribute(name, value))


def _true(graph: GraphProto, node: NodeProto) -> str:
    """A constant that is true, in front of the nodes of a graph."""
    from onnx import helper, numpy_helper

    name = f"{node.output[0]}/training_mode"
    value = numpy_helper.from_array(np.array(True), name)
    graph.node.insert(0, helper.make_node("Constant", [], [name], name, value=value))
    return name


def rename(node: NodeProto, names: Callable[[str], str]) -> None:
    """Renames the values around a node that it or its subgraphs read."""
    for i, name in enumerate(node.input):
        node.input[i] = names(name) if name else name
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                rename(inner, names)


def free_names(taken: set[str]) -> Callable[[str], str]:
    """A function that makes names which are not in `taken`, and adds them."""

    def fresh(hint: str) -> str:
        name, i = hint, 0
        while name in taken:
            i += 1
            name = f"{hint}_{i}"
        taken.add(name)
        return name

    return fresh


class Splicer:
    """Gives the values and nodes of a graph the names that they have in another one.

    known  names there, of the values that are given
    fresh  makes a name that is still free there
    """

    def __init__(self, known: Mapping[str, str], fresh: Callable[[str], str]) -> None:
        self._known, self._fresh = dict(known), fresh

    def name(self, name: str) -> str:
        """The name of a value there."""
        return self._known[name] if name else ""

    def nodes(self, graph: GraphProto) -> list[NodeProto]:
        """The nodes of a graph, and its initializers as Constant nodes, renamed."""
        from onnx import helper

        result = []
        for tensor in graph.initializer:
            self._known[tensor.name] = tensor.name = self._fresh(tensor.name)
            constant = helper.make_node("Constant", [], [tensor.name], tensor.name, value=tensor)
            result.append(constant)
        for node in graph.node:
            for i, name in enumerate(node.input):
                node.input[i] = self.name(name)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self._subgraph(attribute.g)
            for i, name in enumerate(node.output):
                if name:
                    self._known[name] = node.output[i] = self._fresh(name)
            node.name = self._fresh(node.name or node.op_type)
            result.append(node)
        return result

    def _subgraph(self, graph: GraphProto) -> None:
        """Renames in a subgraph, whose names may hide those around it."""
        from onnx import helper

        inner = Splicer(self._known, self._fresh)
        for value in graph.input:
            inner._known[value.name] = value.name = self._fresh(value.name)
        nodes = inner.nodes(graph)
        made = {name for node in nodes for name in node.output}
        for value in graph.output:
            source = inner.name(value.name)
            value.name = source
            if source not in made:  # an input, or a value of the graph around
                value.name = self._fresh(source)
                nodes.append(helper.make_node("Identity", [source], [value.name], value.name))
            made.discard(source)  # a second output of this name is a copy
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(nodes)


def _leading_to(graph: Graph, wanted: Sequence[str]) -> list[Node]:
    """The nodes on which the values `wanted` depend."""
    needed, nodes = set(wanted), []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(name for name in node.outputs if name):
            nodes.append(node)
            needed.update(node.inputs)
            for inner in subgraphs(node):
                needed |= inner.free_names()
    return nodes[::-1]


def _graph(
    graph: Graph, nodes: Sequence[Node], inputs: Sequence[Any], wanted: Sequence[str]
) -> GraphProto:
    from onnx import helper, numpy_helper

    read = {*wanted}
    for node in nodes:
        read.update(node.inputs)
        for inner in subgraphs(node):
            read |= inner.free_names()
    given = {value.name for value in inputs}
    protos = []
    for name, array in graph.constants.items():
        if name in read and name not in given:
            value = numpy_helper.from_array(np.require(array, requirements="C"), name)
            protos.append(helper.make_node("Constant", [], [name], name, value=value))
    protos += [node_proto(node) for node in nodes]
    outputs = [_info(name, _opened(graph, name)) for name in wanted]
    return helper.make_graph(protos, graph.name or "graph", inputs, outputs)


def _opened(graph: Graph, name: str) -> ValueType:
    """Type and rank of a value. Its lengths in the file may not hold for other parameters."""
    known = graph.types.get(name, ValueType())
    return known if known.shape is None else replace(known, shape=(None,) * len(known.shape))


def _info(name: str, value: ValueType) -> Any:
    from onnx import ValueInfoProto, helper

    if value.kind != "tensor" or value.type is None:
        return ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, NUMBERS[value.type], value.shape)


def node_proto(node: Node) -> NodeProto:
    """A node as a protobuf."""
    from onnx import helper

    proto = helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain)
    for name, value in node.attributes.items():
        proto.attribute.append(_attribute(node, name, value))
    return proto


def _attribute(node: Node, name: str, value: Any) -> Any:
    import onnx
    from onnx import helper, numpy_helper

    kind = None
    if isinstance(value, Graph):
        inputs = [_info(each, _opened(value, each)) for each in value.inputs]
        value = _graph(value, value.nodes, inputs, value.outputs)
    elif isinstance(value, np.ndarray):
        value = numpy_helper.from_array(np.require(value, requirements="C"))
    elif isinstance(value, list) and not value:  # only the operator knows its type
        schema = onnx.defs.get_schema(node.op, node.version, node.domain)
        kind = schema.attributes[name].type.value  # type: ignore[attr-defined]
    return helper.make_attribute(name, value, attr_type=kind)
