"""What the onnx package says of a model: whether it is valid, its types, and its operators."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..networks.errors import InvalidModelError

if TYPE_CHECKING:
    from onnx import ModelProto


#: Most rounds of type inference, which alternate between nodes of the model's opset and others.
_MOST_ROUNDS = 4
#: Most numbers that onnx may propagate. It makes a dimension of each element of a vector.
_MOST_PROPAGATED = 1 << 20
#: Most pieces of a Split, of which onnx infers each.
_MOST_PIECES = 1 << 16


def require_package() -> None:
    """Raises ImportError, with the way to get it, if the package onnx is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(f"[onnx] {error}: pip install onnx ml_dtypes") from error


def check_opset(model: ModelProto) -> None:
    """Raises InvalidModelError for a version of the operators that is not known."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and not 1 <= entry.version <= newest:
            raise InvalidModelError(
                f"[onnx.load] the file has opset {entry.version}; onnx {onnx.__version__} knows 1 "
                f"to {newest}"
            )


def check_model(model: ModelProto) -> None:
    """Raises InvalidModelError for a model that contradicts the specification.

    Two of its rules are not asked for: inputs and outputs may lack a type or a shape, and the
    functions of the model may be of other opsets than the model.
    """
    import onnx

    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.functions[:]
    for value in (*bare.graph.input, *bare.graph.output):
        if value.type.WhichOneof("value") in (None, "tensor_type"):
            kind = value.type.tensor_type
            kind.elem_type = kind.elem_type or onnx.TensorProto.FLOAT
            kind.shape.SetInParent()
    try:
        onnx.checker.check_model(bare)
        for function in model.functions:
            onnx.checker.check_function(function)
    except onnx.checker.ValidationError as error:
        raise InvalidModelError(f"[onnx.load] {_on_one_line(error)}") from None
    except (ValueError, RuntimeError, UnicodeDecodeError) as error:
        raise InvalidModelError(f"[onnx.load] the file cannot be checked: {error}") from None


def typed(model: ModelProto) -> ModelProto:
    """The model with the types and shapes that can be inferred."""
    for _ in range(_MOST_ROUNDS):
        model = inferred(model)
        if not _with_types_of_versioned(model):
            break
    return model


def inferred(model: ModelProto) -> ModelProto:
    """The model with the types and shapes that onnx infers.

    Numbers of which shapes are made are followed, too, unless there are so many that it would take
    long: a file may claim any length. Raises InvalidModelError for types or shapes that contradict
    each other, and for an attribute with which the inference would fail.
    """
    import onnx

    for node in all_nodes(model.graph):
        for attribute in node.attribute:
            key, number = (node.op_type, attribute.name), attribute.i
            if (key == ("GatherND", "batch_dims") and number < 0) or (
                key == ("Split", "num_outputs") and number > _MOST_PIECES
            ):
                raise InvalidModelError(
                    f"[onnx.load] node {node.name!r} ({key[0]}): {key[1]} is {number}"
                )
    try:
        shaped = onnx.shape_inference.infer_shapes(model)
        if _propagated(shaped) > _MOST_PROPAGATED:
            return shaped
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # InferenceError, and others for damaged files
        raise InvalidModelError(
            f"[onnx.load] wrong types or shapes: {_on_one_line(error)}"
        ) from None


def _propagated(model: ModelProto) -> int:
    """How many numbers onnx would propagate: all elements of vectors that Cast and others read."""
    types: dict[str, Any] = {}
    types_of(model.graph, types)
    shapes = (
        types[name].tensor_type.shape.dim
        for node in all_nodes(model.graph)
        if node.op_type in _propagating()
        for name in node.input
        if name in types
    )
    return sum(shape[0].dim_value for shape in shapes if len(shape) == 1)


@functools.cache
def _propagating() -> frozenset[str]:
    """The operators whose results onnx computes where they are shapes."""
    import onnx

    schemas = onnx.defs.get_all_schemas_with_history()
    return frozenset(s.name for s in schemas if s.has_data_propagation_function)


def types_of(graph: Any, types: dict[str, Any]) -> None:
    """Adds the TypeProtos of the values of a GraphProto and its subgraphs that are known."""
    import onnx

    for each in all_graphs(graph):
        for value in (*each.value_info, *each.output, *each.input):
            if value.HasField("type"):
                types[value.name] = value.type
        for tensor in each.initializer:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
            types.setdefault(tensor.name, kind)


def _with_types_of_versioned(model: ModelProto) -> bool:
    """Adds types of results of nodes that are not of the model's opset, which onnx leaves out.

    Returns whether there were any.
    """
    import onnx

    nodes = [node for node in model.graph.node if domain_of(node) != node.domain]
    types: dict[str, Any] = {}
    if nodes:
        types_of(model.graph, types)
    count = len(types)
    for node in nodes:
        schema = schema_of(node, {})
        if schema is None or all(name in types for name in node.output):
            continue
        known = {name: types[name] for name in node.input if name in types}
        opset = onnx.helper.make_opsetid(domain_of(node), opset_of(node, {}) or 0)
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, node, known, opset_imports=[opset]
            )
        except Exception:  # inputs whose types are not known
            continue
        for name, kind in found.items():
            if name not in types:
                types[name] = kind
                model.graph.value_info.add(name=name).type.CopyFrom(kind)
    return len(types) > count


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def schema_of(node: Any, opsets: Mapping[str, int]) -> Any:
    """The OpSchema of a node's operator; None if it is unknown."""
    import onnx

    opset = opset_of(node, opsets)
    if opset is None:
        return None
    try:
        return onnx.defs.get_schema(node.op_type, opset, domain_of(node))
    except onnx.defs.SchemaError:
        return None


def opsets_of(model: Any) -> dict[str, int]:
    """The versions of the operators of a ModelProto or FunctionProto, by domain."""
    return {entry.domain: entry.version for entry in model.opset_import}


def versioned(domain: str, opset: int) -> str:
    """The domain of a node whose operator is not of the model's opset, but of this one.

    onnx does not know such a domain, so it infers no types from a wrong version.
    """
    return f"{domain}@{opset}"


def domain_of(node: Any) -> str:
    """The domain of a node's operator: that of ONNX's own ones is empty."""
    domain, at, opset = node.domain.rpartition("@")
    return domain if at and opset.isdecimal() else node.domain


def opset_of(node: Any, opsets: Mapping[str, int]) -> int | None:
    """The opset of a node's operator, where the model has `opsets`; None if it is not known."""
    _, at, opset = node.domain.rpartition("@")
    return int(opset) if at and opset.isdecimal() else opsets.get(node.domain)


def all_graphs(graph: Any) -> Iterator[Any]:
    """A GraphProto or FunctionProto, and all subgraphs of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_graphs(attribute.g)
            for inner in attribute.graphs:
                yield from all_graphs(inner)


def all_nodes(graph: Any) -> Iterator[Any]:
    """All nodes of a GraphProto or FunctionProto, those of subgraphs included."""
    for each in all_graphs(graph):
        yield from each.node


def names_read(node: Any) -> Iterator[str]:
    """Names of the values that a node or its subgraphs may read."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from names_read(inner)
            yield from (value.name for value in graph.output)
