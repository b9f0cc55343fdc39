"""Views that are made several times: `torch.export` splits a tensor anew for each of the parts."""

from __future__ import annotations

import operator
from typing import Any


def merge_views(torch: Any, program: Any) -> None:
    """Makes each view of a value once."""
    made: dict[Any, Any] = {}
    for node in [*program.graph.nodes]:
        op = node.target
        is_view = isinstance(op, torch._ops.OpOverload) and op.is_view
        if not is_view and op not in (torch.ops.aten.sym_size.int, operator.getitem):
            continue
        key = (op, _frozen(node.args), _frozen(sorted(node.kwargs.items())))
        first = made.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            program.graph_signature.replace_all_uses(node.name, first.name)
            program.graph.erase_node(node)


def _frozen(argument: Any) -> Any:
    """An argument, of which equal ones have equal hashes. 1, 1.0 and True differ."""
    if isinstance(argument, list | tuple):
        return tuple(map(_frozen, argument))
    return type(argument), argument
