"""What tells two exports of one module apart, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .arguments import Value

if TYPE_CHECKING:
    from ..networks.graph import Node
    from .export import Exported


def difference(before: Exported, now: Exported) -> str:
    """The first difference of two exports; empty if they compute the same."""
    one, other = before.graph, now.graph
    for old, new in zip(one.nodes, other.nodes, strict=False):
        if found := _of_nodes(old, new):
            return found
    if len(one.nodes) != len(other.nodes):
        return f"{_operators(len(other.nodes))} instead of {len(one.nodes)}"
    for name, array in one.constants.items():
        now_held = other.constants.get(name)
        if now_held is None or (array.dtype, array.shape) != (now_held.dtype, now_held.shape):
            return "a constant of another type or shape"
        if array.tobytes() != now_held.tobytes():
            users = [node for node in one.nodes if name in node.inputs]
            return "other elements of a constant" + (f" of {_title(users[0])}" if users else "")
    told = [
        (graph.inputs, graph.outputs, graph.constants.keys(), exported.written, exported.outputs)
        for graph, exported in ((one, before), (other, now))
    ]
    return "" if told[0] == told[1] else "other results"


def _of_nodes(old: Node, new: Node) -> str:
    if old.op != new.op:
        return f"{_title(new)} instead of {old.op}"
    for key in ("arguments", "options"):
        was, is_now = _shown(old.attributes.get(key)), _shown(new.attributes.get(key))
        if was != is_now:
            return f"{_title(new)} has {key} {is_now:.200}, which were {was:.200}"
    told = [
        (node.domain, node.inputs, node.outputs, node.output_types, node.attributes.get("forced"))
        for node in (old, new)
    ]
    return "" if told[0] == told[1] else f"other values in {_title(new)}"


def _title(node: Node) -> str:
    """The operator, and the line that calls it."""
    where = node.attributes.get("where", "")
    return f"{node.op} ({where})" if where else node.op


def _operators(count: int) -> str:
    return "1 operator" if count == 1 else f"{count} operators"


def _shown(template: Any) -> str:
    """Arguments as text: equal texts for equal bits, and "…" for tensors and sizes."""
    if isinstance(template, Value):
        return "…" if not template.number else "a size"
    if isinstance(template, list):
        return f"({', '.join(map(_shown, template))})"
    if isinstance(template, dict):
        return f"({', '.join(f'{name}={_shown(each)}' for name, each in template.items())})"
    return repr(template)
