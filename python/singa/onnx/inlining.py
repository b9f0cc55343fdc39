"""Functions of a model in the place of their calls.

Local functions are inlined, and so are operators that have no reader but that ONNX defines as
functions of others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import InvalidModelError
from .specification import all_nodes, domain_of, opsets_of, schema_of, typed

if TYPE_CHECKING:
    from onnx import ModelProto

#: Most nodes after functions are inlined. A few functions that call each other twice each would
#: give any number.
_MOST_NODES = 1_000_000

#: The domain of operators whose definitions are being inlined.
_INLINED = "singa.inlined"


def inlined(model: ModelProto, is_readable: Callable[[str, str, int], bool]) -> ModelProto:
    """The model with all local functions inlined, and operators without a reader whose definition
    is a function."""
    if model.functions:
        _check_functions(model)
        model = _without_functions(model)
    for _ in range(8):  # the body of a function may call another one
        opsets = opsets_of(model)
        wanted: set[tuple[str, str]] = set()
        for node in all_nodes(model.graph):
            domain = domain_of(node.domain)
            schema = schema_of(node.op_type, domain, opsets)
            if schema is None or is_readable(domain, node.op_type, schema.since_version):
                continue
            if schema.has_function or schema.has_context_dependent_function:
                wanted.add((domain, node.op_type))
        if not wanted:
            break
        count = _with_local_functions(model, wanted)
        model = _without_functions(model)
        if not count:
            break
    return model


def _without_functions(model: ModelProto) -> ModelProto:
    """The model with its local functions inlined."""
    import onnx.inliner

    try:
        return onnx.inliner.inline_local_functions(model)
    except (RuntimeError, ValueError) as error:
        raise InvalidModelError(f"[onnx.load] functions cannot be inlined: {error}") from None


def _check_functions(model: ModelProto) -> None:
    """Raises InvalidModelError if functions call themselves, or would give too many nodes."""
    bodies = {
        (domain_of(f.domain), f.name, f.overload): list(all_nodes(f)) for f in model.functions
    }
    counts: dict[tuple[str, str, str], int] = {}
    open_: set[tuple[str, str, str]] = set()

    def count(nodes: Sequence[Any]) -> int:
        total = 0
        for node in nodes:
            key = (domain_of(node.domain), node.op_type, node.overload)
            total += size(key) if key in bodies else 1
        return total

    def size(key: tuple[str, str, str]) -> int:
        if key in open_ or len(open_) > 200:
            raise InvalidModelError(f"[onnx.load] function {key[1]!r} calls itself")
        if key not in counts:
            open_.add(key)
            counts[key] = count(bodies[key])
            open_.discard(key)
        return counts[key]

    total = count(list(all_nodes(model.graph)))
    if total > _MOST_NODES:
        raise InvalidModelError(f"[onnx.load] its functions make {total} nodes of it")


def _with_local_functions(model: ModelProto, wanted: Collection[tuple[str, str]]) -> int:
    """Adds the definitions of operators to a model as local functions, one for each node, since
    they may depend on types. Returns how many nodes call them now.

    (onnx.inliner can do this, too, but fails for inputs that are not given, and does not know the
    defaults of attributes.)
    """
    import onnx

    opsets = opsets_of(model)
    types: dict[str, Any] = {}
    _collect_types(typed(model).graph, types)
    count = 0
    for node in list(all_nodes(model.graph)):
        key = (domain_of(node.domain), node.op_type)
        if key not in wanted:
            continue
        schema = schema_of(node.op_type, key[0], opsets)
        given = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items():
            if name not in given and attribute.default_value.name:
                node.attribute.append(attribute.default_value)
        data = _definition(schema, opsets[key[0]], node, types)
        if not data:
            continue
        function = onnx.FunctionProto()
        function.ParseFromString(data)
        function.name, function.domain = f"{node.op_type}_{count}", _INLINED
        del function.attribute_proto[:]
        del function.attribute[:]
        function.attribute.extend(attribute.name for attribute in node.attribute)
        model.functions.append(function)
        node.op_type, node.domain, node.overload = function.name, _INLINED, ""
        count += 1
    if count:
        model.opset_import.add(domain=_INLINED, version=1)
    return count


def _definition(schema: Any, opset: int, node: Any, types: Mapping[str, Any]) -> bytes:
    """The body of an operator that is defined as a function; empty if there is none."""
    import onnx

    versions = [v for v in schema.function_opset_versions if v <= opset]
    if versions:
        return schema.get_function_with_opset_version(max(versions))
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions:
        return b""
    inputs = []
    for name in node.input:
        if name and name not in types:
            return b""
        inputs.append((types[name] if name else onnx.TypeProto()).SerializeToString())
    return schema.get_context_dependent_function_with_opset_version(
        max(versions), node.SerializeToString(), inputs
    )


def _collect_types(graph: Any, types: dict[str, Any]) -> None:
    for value in (*graph.value_info, *graph.output, *graph.input):
        types[value.name] = value.type
    for tensor in graph.initializer:
        types.setdefault(tensor.name, _tensor_type(tensor))
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _collect_types(attribute.g, types)


def _tensor_type(tensor: Any) -> Any:
    import onnx

    return onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
