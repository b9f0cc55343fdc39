"""Reads an ONNX file as a `Graph`.

The onnx package reads, checks and infers types. It works on a copy without the large tensors, so
these are neither copied nor serialised again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.beginnings import recognised
from ..networks.element_types import FLOATS, name_of
from ..networks.errors import InvalidModelError
from ..networks.graph import Dimension, Graph, Initializer, Node, ValueType, subgraphs
from ..networks.tensors import short_number
from .conforming import conform
from .data_types import type_name
from .external import mapped
from .inlining import inlined
from .specification import (
    all_graphs,
    check_model,
    check_opset,
    domain_of,
    opsets_of,
    require_package,
    schema_of,
    typed,
)

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray
    from onnx import ModelProto

#: Initializers of integers up to this size take part in type inference, which computes shapes.
_SMALL = 4096
#: Most bytes of tensors in nodes, which the onnx package serialises.
_MOST_BYTES = 2_000_000_000


def read(
    source: str | os.PathLike[str] | bytes | ModelProto,
    is_readable: Callable[[str, str, int], bool],
    allow_symlinks: bool = False,
) -> Graph:
    """Reads and checks a model.

    source          a path, the bytes of a file, or a ModelProto
    is_readable     whether there is a reader for (domain, operator, version)
    allow_symlinks  whether external data may lie behind symbolic links

    Raises InvalidModelError for a damaged or contradictory file, OSError if it cannot be read.
    """
    require_package()
    try:
        return _read(source, is_readable, allow_symlinks)
    except UnicodeDecodeError as error:  # protobuf decodes a text when it is asked for it
        raise InvalidModelError(f"[onnx.load] a text of the file is damaged: {error}") from None


def _read(source: Any, is_readable: Callable[[str, str, int], bool], allow_symlinks: bool) -> Graph:
    model, folder = _parsed(source)
    storage = _Storage(folder, allow_symlinks)
    initializers = _initializers(model.graph, storage)
    check_opset(model)
    light = _light_copy(model, initializers)
    _load_attributes(light, storage)
    conform(light)
    check_model(light)
    light = inlined(light, is_readable)
    light = typed(light)
    opsets = opsets_of(light)
    types = {i.name: ValueType(i.type, i.shape) for i in initializers.values()}
    producer = " ".join([model.producer_name, model.producer_version]).strip()
    trained = _constants_are_weights(producer, initializers)
    weights = _Weights(light.graph, initializers) if trained else None
    parser = _Parser(opsets, storage, weights)
    graph = parser.graph(light.graph, types, main=True)
    graph.initializers = initializers
    graph.inputs = [name for name in graph.inputs if name not in initializers]
    graph.opset = opsets.get("", 0)
    graph.ir_version = model.ir_version
    graph.producer = producer
    graph.metadata = {entry.key: entry.value for entry in model.metadata_props}
    _mark_used(graph)
    return graph


def _parsed(source: Any) -> tuple[ModelProto, Path | None]:
    import onnx
    from google.protobuf.message import DecodeError

    if isinstance(source, onnx.ModelProto):
        return source, None
    folder = None
    if isinstance(source, bytes | bytearray | memoryview):
        data, what = bytes(source), "the bytes"
    else:
        path = Path(source)
        data, what, folder = path.read_bytes(), str(path), path.parent
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        why = f"{error}{recognised(data)}"
        raise InvalidModelError(f"[onnx.load] {what}: not an ONNX file: {why}") from None
    if not model.HasField("graph"):
        why = f"an ONNX file without a graph{recognised(data)}"
        raise InvalidModelError(f"[onnx.load] {what}: {why}")
    return model, folder


class _Storage:
    """Reads elements of tensors."""

    def __init__(self, folder: Path | None, allow_symlinks: bool) -> None:
        self.folder, self.allow_symlinks = folder, allow_symlinks

    def array(self, tensor: Any) -> NDArray[Any]:
        """The elements of a TensorProto."""
        from onnx import TensorProto, numpy_helper

        shape = _shape_of(tensor)
        name = type_name(tensor.data_type)
        if tensor.data_location == TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            return mapped(self.folder, tensor.name, name, shape, entries, self.allow_symlinks)
        try:
            array = numpy_helper.to_array(tensor)
        except Exception as error:  # it raises errors of many kinds for damaged tensors
            raise InvalidModelError(
                f"[onnx.load] tensor {tensor.name!r} of type {name} and shape {shape} is damaged: "
                f"{error}"
            ) from None
        if array.shape != shape:
            raise InvalidModelError(
                f"[onnx.load] tensor {tensor.name!r}: {array.size} elements for shape {shape}"
            )
        return array


def _shape_of(tensor: Any) -> tuple[int, ...]:
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape) or math.prod(shape) >= 1 << 48:
        raise InvalidModelError(f"[onnx.load] tensor {tensor.name!r} has shape {shape}")
    return shape


def _initializers(graph: Any, storage: _Storage) -> dict[str, Initializer]:
    if len(graph.sparse_initializer):
        raise InvalidModelError(
            "[onnx.load] the file has sparse initializers, which singa does not read"
        )
    found: dict[str, Initializer] = {}
    for tensor in graph.initializer:
        if not tensor.name or tensor.name in found:
            raise InvalidModelError(f"[onnx.load] two initializers have the name {tensor.name!r}")
        shape = _shape_of(tensor)

        def elements(tensor: Any = tensor) -> NDArray[Any]:
            return storage.array(tensor)

        found[tensor.name] = Initializer(tensor.name, type_name(tensor.data_type), shape, elements)
    return found


def _light_copy(model: ModelProto, initializers: Mapping[str, Initializer]) -> ModelProto:
    """The model without large tensors, which become inputs of the graph."""
    import onnx

    light = onnx.ModelProto()
    light.ir_version = model.ir_version
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph, original = light.graph, model.graph
    graph.name = original.name or "graph"
    graph.node.extend(original.node)
    graph.output.extend(original.output)
    graph.value_info.extend(original.value_info)
    graph.input.extend(original.input)
    declared = {value.name for value in original.input}
    for tensor in original.initializer:
        stored = initializers[tensor.name]
        integer = stored.type in ("int64", "int32", "bool")
        inline = tensor.data_location != onnx.TensorProto.EXTERNAL
        if inline and integer and math.prod(stored.shape) <= _SMALL:
            graph.initializer.append(tensor)
        elif tensor.name not in declared:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, stored.shape)
            graph.input.append(value)
    return light


def _load_attributes(light: ModelProto, storage: _Storage) -> None:
    """Puts external data of nodes and subgraphs into the model. Raises InvalidModelError for more
    than a protobuf holds."""
    from onnx import TensorProto, numpy_helper

    total = 0
    for graph in (g for each in (light.graph, *light.functions) for g in all_graphs(each)):
        inside = [] if graph is light.graph else list(getattr(graph, "initializer", ()))
        for attribute in (a for node in graph.node for a in node.attribute):
            inside += [*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors]
        for tensor in inside:
            if tensor.data_location == TensorProto.EXTERNAL:
                array = storage.array(tensor)
                total += array.nbytes
                if total >= _MOST_BYTES:
                    raise InvalidModelError(
                        "[onnx.load] the nodes have more than 2 GB of external data, which a file "
                        "has in initializers"
                    )
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _constants_are_weights(producer: str, initializers: Mapping[str, Initializer]) -> bool:
    """Whether Constant nodes may hold weights.

    singa and PyTorch write parameters as initializers, and what is not trained, such as the scale
    of an instance norm without parameters, as Constant nodes. Only a frozen module of PyTorch has
    no parameters but those in Constant nodes.
    """
    if producer.startswith("pytorch"):
        return not any(i.type in FLOATS and math.prod(i.shape) > 1 for i in initializers.values())
    return not producer.startswith("singa")


class _Weights:
    """Tensors of floats in Constant nodes and in subgraphs, which are read as initializers of the
    main graph: as such they can be parameters."""

    def __init__(self, graph: Any, initializers: dict[str, Initializer]) -> None:
        self.initializers = initializers
        self._definitions: Counter[str] = Counter()
        for each in all_graphs(graph):
            self._definitions.update(value.name for value in each.input)
            self._definitions.update(tensor.name for tensor in each.initializer)
            self._definitions.update(name for node in each.node for name in node.output)

    def take(self, name: str, array: NDArray[Any]) -> str | None:
        """Adds an initializer, and returns its name: another one where several graphs have a value
        of this name. None if the array has no floats."""
        if name_of(array) not in FLOATS:
            return None
        unique, i = name, 0
        while self._definitions[unique] > (unique == name):
            i += 1
            unique = f"{name}_{i}"
        if unique != name:
            self._definitions[unique] += 1
        self.initializers[unique] = Initializer(unique, name_of(array), array.shape, lambda: array)
        return unique


class _Parser:
    """Makes Graphs of GraphProtos.

    weights  takes constants of floats; None: they stay constants of their graph
    """

    def __init__(
        self, opsets: Mapping[str, int], storage: _Storage, weights: _Weights | None = None
    ) -> None:
        self.opsets, self.storage, self.weights = opsets, storage, weights
        self._renamed: dict[str, str] = {}
        self._names: set[str] = set()
        self._counts: Counter[str] = Counter()

    def graph(self, proto: Any, outer: Mapping[str, ValueType], main: bool = False) -> Graph:
        """`outer` are the types of the values of the graphs around this one."""
        types = dict(outer)
        for value in (*proto.value_info, *proto.output, *proto.input):
            types[value.name] = _value_type(value)
        inputs = [value.name for value in proto.input]
        result = Graph(proto.name, inputs, [], [], {}, types=types)
        renamed, self._renamed = self._renamed, dict(self._renamed)
        if not main:  # initializers of subgraphs are constants
            for tensor in proto.initializer:
                self._constant(result, tensor.name, self.storage.array(tensor))
        for node in proto.node:
            if node.op_type == "Constant" and not domain_of(node):
                constant = self._constant_value(node)
                if constant is not None and len(node.output) == 1:
                    self._constant(result, node.output[0], constant)
                    continue
            result.nodes.append(self._node(node, types))
        result.outputs = [self._renamed.get(value.name, value.name) for value in proto.output]
        self._renamed = renamed
        return result

    def _constant(self, graph: Graph, name: str, array: NDArray[Any]) -> None:
        array = array.view()
        array.flags.writeable = False
        weight = None if self.weights is None else self.weights.take(name, array)
        if weight is None:
            graph.constants[name] = array
        elif weight != name:
            self._renamed[name] = weight
        graph.types[weight or name] = ValueType(name_of(array), array.shape)

    def _constant_value(self, node: Any) -> NDArray[Any] | None:
        """The value of a Constant node; None for sparse ones and strings."""
        if len(node.attribute) != 1:
            return None
        attribute = node.attribute[0]
        if attribute.name == "value":
            return self.storage.array(attribute.t)
        if attribute.name == "value_float":
            return np.array(attribute.f, np.float32)
        if attribute.name == "value_floats":
            return np.array(attribute.floats, np.float32)
        if attribute.name == "value_int":
            return np.array(attribute.i, np.int64)
        if attribute.name == "value_ints":
            return np.array(attribute.ints, np.int64)
        return None

    def _node(self, proto: Any, types: dict[str, ValueType]) -> Node:
        domain = domain_of(proto)
        schema = schema_of(proto, self.opsets)
        inputs = tuple(self._renamed.get(name, name) for name in proto.input)
        node = Node(
            self._name(proto),
            proto.op_type,
            domain,
            schema.since_version if schema is not None else _version_of(domain),
            inputs,
            tuple(proto.output),
            {},
            tuple(types.get(name, ValueType()) for name in inputs),
            tuple(types.get(name, ValueType()) for name in proto.output),
        )
        if schema is not None:
            node.problem = _mixed_types(schema, node)
        for attribute in proto.attribute:
            try:
                node.attributes[attribute.name] = self._attribute(attribute, types)
            except _Undecodable as kind:
                node.problem = f"attribute {attribute.name!r} is a {kind}"
        return node

    def _name(self, proto: Any) -> str:
        """A unique name: that of the node, or one made of the operator."""
        base = proto.name or proto.op_type
        name = base if proto.name else f"{base}_{self._counts[base]}"
        while name in self._names:
            self._counts[base] += 1
            name = f"{base}_{self._counts[base]}"
        self._names.add(name)
        return name

    def _attribute(self, attribute: Any, types: Mapping[str, ValueType]) -> Any:
        from onnx import AttributeProto

        kind = attribute.type
        if kind == AttributeProto.FLOAT:
            return short_number(attribute.f)
        if kind == AttributeProto.INT:
            return int(attribute.i)
        if kind == AttributeProto.STRING:
            return attribute.s.decode(errors="replace")
        if kind == AttributeProto.TENSOR:
            return self.storage.array(attribute.t)
        if kind == AttributeProto.GRAPH:
            return self.graph(attribute.g, types)
        if kind == AttributeProto.FLOATS:
            return [short_number(x) for x in attribute.floats]
        if kind == AttributeProto.INTS:
            return [int(x) for x in attribute.ints]
        if kind == AttributeProto.STRINGS:
            return [text.decode(errors="replace") for text in attribute.strings]
        raise _Undecodable(AttributeProto.AttributeType.Name(kind).lower())


def _version_of(domain: str) -> int:
    """The version of an operator that the onnx package does not know; 0 if singa does not, too."""
    return 1 if domain == "com.microsoft" else 0  # ONNX Runtime's have no other


def _mixed_types(schema: Any, node: Node) -> str:
    """Says which inputs have different types where the operator wants the same; else empty."""
    formal = list(schema.inputs)
    first: dict[str, tuple[int, str]] = {}
    for i, value in enumerate(node.input_types):
        if not formal or not node.has(i) or value.type is None:
            continue
        parameter = formal[min(i, len(formal) - 1)]
        if i >= len(formal) - 1 and not parameter.is_homogeneous:
            continue
        j, kind = first.setdefault(parameter.type_str, (i, value.type))
        if kind != value.type:
            return f"inputs {j} and {i} have types {kind} and {value.type}"
    return ""


class _Undecodable(Exception):  # noqa: N818
    """The kind of an attribute that has no plain value."""


def _value_type(value: Any) -> ValueType:
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "tensor"
        return ValueType(kind=kind.removesuffix("_type"))
    tensor = value.type.tensor_type
    shape: tuple[Dimension, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(_dimension(d) for d in tensor.shape.dim)
    return ValueType(type_name(tensor.elem_type) if tensor.elem_type else None, shape)


def _dimension(proto: Any) -> Dimension:
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    return int(proto.dim_value) if kind == "dim_value" else str(proto.dim_param)


def _mark_used(graph: Graph) -> None:
    """Notes of each node which outputs are read."""
    read = set(graph.outputs)
    for node in graph.nodes:
        read.update(node.inputs)
        for inner in subgraphs(node):
            read |= inner.free_names()
            _mark_used(inner)
    for node in graph.nodes:
        node.used = tuple(bool(name) and name in read for name in node.outputs)
