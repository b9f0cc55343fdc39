"""Every operator of ONNX at every opset in which it changed, as calls of single nodes.

Inputs and attributes are those of the onnx package's node cases, brought into the form of the
older versions: an input that was an attribute becomes one.
"""

from __future__ import annotations

import collections
import warnings
from collections.abc import Iterator
from typing import Any

import onnx_nodes
import onnx_suite


def versions() -> dict[str, list[int]]:
    """The opsets in which the operators changed, by operator."""
    import onnx

    found = collections.defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and not schema.deprecated:
            found[schema.name].add(schema.since_version)
    return {op: sorted(opsets) for op, opsets in sorted(found.items())}


def calls() -> Iterator[tuple[str, onnx_nodes.Call, list[Any]]]:
    """(name of the case, node, results that it gives in the newest opset)."""
    all_versions = versions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = onnx_suite.cases()
    for name, case in cases.items():
        if not name.startswith("node/") or case.model is None or not case.data_sets:
            continue
        graph = case.model.graph
        inputs, expected = case.data_sets[0]
        kinds = {attribute.type for node in graph.node for attribute in node.attribute}
        if len(graph.node) != 1 or graph.node[0].domain or kinds & {5, 10}:  # subgraphs
            continue
        if any(isinstance(x, list) or x is None for x in (*inputs, *expected)):
            continue
        arrays = {v.name: onnx_suite._array(x) for v, x in zip(graph.input, inputs, strict=True)}
        node = graph.node[0]
        given = [arrays[each] if each else None for each in node.input]
        results = [onnx_suite._array(x) for x in expected]
        for version in all_versions[node.op_type]:
            form = _in_version(node, given, version)
            if form is None:
                continue
            for constants in _mixtures(form[1]):
                call = onnx_nodes.Call(node.op_type, form[1], len(node.output), form[0])
                call.version, call.constants = version, constants
                yield name, call, results


def _in_version(
    node: Any, given: list[Any], version: int
) -> tuple[dict[str, Any], list[Any]] | None:
    """(attributes, inputs) of a node in a version of its operator; None if it has no such form."""
    import onnx
    from onnx import helper

    newest = onnx.defs.get_schema(node.op_type, onnx.defs.onnx_opset_version(), "")
    schema = onnx.defs.get_schema(node.op_type, version, "")
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    several = onnx.defs.OpSchema.FormalParameterOption.Variadic
    variadic = bool(schema.inputs) and schema.inputs[-1].option == several
    count = len(given) if variadic else len(schema.inputs)
    for formal, array in zip(newest.inputs[count:], given[count:], strict=False):
        if array is None:
            continue
        if formal.name not in schema.attributes:
            return None
        value = array.tolist()
        is_list = schema.attributes[formal.name].type.name.endswith("S")
        attributes[formal.name] = [value] if is_list and not isinstance(value, list) else value
    if not attributes.keys() <= schema.attributes.keys():
        return None
    return attributes, given[:count]


def _mixtures(arrays: list[Any]) -> list[tuple[int, ...]]:
    """Which inputs are constants: none, all, each alone, and all but one."""
    there = [i for i, array in enumerate(arrays) if array is not None]
    single = [(i,) for i in there]
    others = [tuple(j for j in there if j != i) for i in there]
    return list(dict.fromkeys([(), tuple(there), *single, *others]))
