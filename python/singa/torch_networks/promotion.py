"""Conversions of operands, which PyTorch's elementwise operators imply, as nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Elementwise operators that PyTorch does not tag as such.
_UNTAGGED = (
    *("__and__.Tensor", "__or__.Tensor", "floor_divide", "rsub.Tensor"),
    *("where.ScalarOther", "where.ScalarSelf"),
)
#: What chooses between operands, and is none.
_CONDITION = "condition"


def write_conversions(torch: Any, graph: Any) -> None:
    """Converts the operands of elementwise operators to the type in which PyTorch computes: that of
    the result, or for results of bool, such as comparisons, the one that the operands promote to.
    Numbers stay, since operators give them the type of the tensor beside them."""
    untagged = {_operator(torch, name) for name in _UNTAGGED}
    for node in [*graph.nodes]:
        op = node.target
        if not isinstance(op, torch._ops.OpOverload):
            continue
        if torch.Tag.pointwise not in op.tags and op not in untagged:
            continue
        names = [argument.name for argument in op._schema.arguments]
        if "mask" in names:  # the result has the type of the first operand
            continue
        given = dict(zip(names, node.args, strict=False)) | node.kwargs
        operands = [x for name, x in given.items() if name != _CONDITION]
        kind = _computed_type(torch, node, operands)
        if kind is None:
            continue

        def converted(x: Any, node: Any = node, kind: Any = kind) -> Any:
            value = x.meta.get("val") if isinstance(x, torch.fx.Node) else None
            if not isinstance(value, torch.Tensor) or value.dtype == kind:
                return x
            with graph.inserting_before(node):
                cast = graph.call_function(torch.ops.aten._to_copy.default, (x,), {"dtype": kind})
            cast.meta = {**node.meta, "val": value.detach().to(kind)}
            return cast

        by_name = {name: x if name == _CONDITION else converted(x) for name, x in given.items()}
        node.args = tuple(by_name.pop(name) for name in names[: len(node.args)])
        node.kwargs = by_name


def _operator(torch: Any, name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _computed_type(torch: Any, node: Any, operands: Sequence[Any]) -> Any:
    """The type in which an operator computes; None if it takes its operands as they are."""
    kind = node.meta["val"].dtype
    if kind != torch.bool:
        return kind
    values = [x.meta["val"] if isinstance(x, torch.fx.Node) else x for x in operands]
    values = [x for x in values if isinstance(x, torch.Tensor | torch.SymInt | int | float)]
    if len(values) != 2:
        return None
    kind = torch.result_type(*[1 if isinstance(x, torch.SymInt) else x for x in values])
    return None if kind == torch.int16 else kind  # of int8 and uint8, which singa has as int32
