"""Functions of a model in the place of their calls.

Local functions are inlined, and so are operators that have no reader but that ONNX defines as
functions of others. A function has opsets of its own. Where an operator in it has another version
there than in the model, the node keeps it (`specification.versioned`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..networks.errors import InvalidModelError
from .specification import (
    all_nodes,
    domain_of,
    opset_of,
    opsets_of,
    schema_of,
    typed,
    types_of,
    versioned,
)

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
        opsets = opsets_of(model)
        for function in model.functions:
            _keep_versions(model, function, opsets)
        model = _without_functions(model)
    for _ in range(8):  # the body of a function may call another one
        opsets = opsets_of(model)
        if not any(_is_wanted(node, opsets, is_readable) for node in all_nodes(model.graph)):
            break
        model = typed(model)
        nodes = [node for node in all_nodes(model.graph) if _is_wanted(node, opsets, is_readable)]
        if not _define(model, nodes, opsets):
            break
        model = _without_functions(model)
    return model


def _is_wanted(
    node: Any, opsets: Mapping[str, int], is_readable: Callable[[str, str, int], bool]
) -> bool:
    """Whether a node has no reader, but a definition as a function."""
    schema = schema_of(node, opsets)
    if schema is None or is_readable(domain_of(node), node.op_type, schema.since_version):
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _keep_versions(model: ModelProto, function: Any, opsets: Mapping[str, int]) -> None:
    """Gives a function the opsets of the model, and its nodes the versions that they have."""
    own = opsets_of(function)
    for node in all_nodes(function):
        opset = own.get(node.domain)
        if opset is None or node.op_type == "Constant":
            continue
        before, after = schema_of(node, own), schema_of(node, opsets)
        if before is not None and (after is None or before.since_version != after.since_version):
            node.domain = versioned(node.domain, opset)
    known = {entry.domain for entry in model.opset_import}
    for domain in sorted({node.domain for node in all_nodes(function)} - known):
        model.opset_import.add(domain=domain, version=own.get(domain, 1))
    del function.opset_import[:]
    function.opset_import.extend(model.opset_import)


def _without_functions(model: ModelProto) -> ModelProto:
    """The model with its local functions inlined."""
    import onnx.checker
    import onnx.inliner

    try:
        return onnx.inliner.inline_local_functions(model)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise InvalidModelError(f"[onnx.load] functions cannot be inlined: {error}") from None


def _check_functions(model: ModelProto) -> None:
    """Raises InvalidModelError if functions call themselves, or would give too many nodes."""
    bodies = {(f.domain, f.name, f.overload): list(all_nodes(f)) for f in model.functions}
    counts: dict[tuple[str, str, str], int] = {}
    open_: set[tuple[str, str, str]] = set()

    def count(nodes: Sequence[Any]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type, node.overload)
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


def _define(model: ModelProto, nodes: Sequence[Any], opsets: Mapping[str, int]) -> int:
    """Adds the definitions of the operators of nodes to a model as local functions, one for each
    node, since they may depend on types. Returns how many nodes call them now.

    (onnx.inliner can do this, too, but fails for inputs that are not given, and does not know the
    defaults of attributes.)
    """
    types: dict[str, Any] = {}
    types_of(model.graph, types)
    count = 0
    for node in nodes:
        schema = schema_of(node, opsets)
        opset = opset_of(node, opsets)
        call = type(node)()
        call.CopyFrom(node)
        call.domain = domain_of(node)
        given = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items():
            if name not in given and attribute.default_value.name:
                call.attribute.append(attribute.default_value)
        function = _definition(schema, opset or 0, call, types)
        if function is None:
            continue
        function.name, function.domain = f"{node.op_type}_{count}", _INLINED
        del function.attribute_proto[:]
        del function.attribute[:]
        function.attribute.extend(attribute.name for attribute in call.attribute)
        _keep_versions(model, function, opsets)
        for inner in function.node:
            inner.name = f"{node.name or node.op_type}/{inner.op_type}"
        model.functions.append(function)
        node.CopyFrom(call)
        node.op_type, node.domain, node.overload = function.name, _INLINED, ""
        count += 1
    if count:
        model.opset_import.add(domain=_INLINED, version=1)
    return count


def _definition(schema: Any, opset: int, node: Any, types: Mapping[str, Any]) -> Any:
    """The body of an operator that is defined as a function, a FunctionProto; None if there is
    none."""
    import onnx

    function = onnx.FunctionProto()
    versions = [v for v in schema.function_opset_versions if v <= opset]
    if versions:
        function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
        return function
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not versions or any(name and name not in types for name in node.input):
        return None
    inputs = [(types[name] if name else onnx.TypeProto()) for name in node.input]
    body = schema.get_context_dependent_function_with_opset_version(
        max(versions), node.SerializeToString(), [kind.SerializeToString() for kind in inputs]
    )
    function.ParseFromString(body)
    return function if body else None
