"""What PyTorch's nodes are in the patterns of `networks/patterns.py`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..networks.fusion import Part
from ..networks.patterns import Patterns
from .arguments import Value, filled
from .operators.normalization import BATCH_NORMS

if TYPE_CHECKING:
    from ..networks.graph import Node
    from ..networks.network import CompiledNode

#: The operators whose positional arguments are the operands of a kind, of so many of them.
_KINDS = {
    "add.Tensor": ("add", 2),
    "add.Scalar": ("add", 2),
    "bmm": ("matmul", 2),
    "div.Scalar": ("div", 2),
    "div.Tensor": ("div", 2),
    "erf": ("erf", 1),
    "hardsigmoid": ("hard_sigmoid", 1),
    "hardswish": ("hardswish", 1),
    "matmul": ("matmul", 2),
    "mm": ("matmul", 2),
    "mul.Scalar": ("mul", 2),
    "mul.Tensor": ("mul", 2),
    "relu": ("relu", 1),
    "relu6": ("relu6", 1),
    "sigmoid": ("sigmoid", 1),
    "silu": ("silu", 1),
    "where.self": ("where", 3),
}


class TorchFusion(Patterns):
    """The patterns that nodes of PyTorch form."""

    def part_of(self, step: CompiledNode) -> Part | None:
        node = step.node
        if node.attributes["options"]:  # such as alpha of add
            return None
        if node.op in BATCH_NORMS:
            return Part("batch_norm", node.inputs)
        special = _SPECIAL.get(node.op)
        if special is not None:
            return special(node)
        kind, count = _KINDS.get(node.op, ("", 0))
        arguments = node.attributes["arguments"]
        if not kind or len(arguments) != count:
            return None
        operands = [_operand(node, value) for value in arguments]
        return None if None in operands else Part(kind, tuple(operands))  # type: ignore[arg-type]


def _operand(node: Node, argument: Any) -> str | float | None:
    """The name of a tensor, or a number; None for another argument."""
    if isinstance(argument, Value):
        return None if argument.number else node.inputs[argument.index]
    return argument if type(argument) in (int, float) else None


def _hardtanh(node: Node) -> Part | None:
    limits = node.attributes["arguments"][1:]
    return Part("relu6", node.inputs) if limits == [0, 6] else None


def _permute(node: Node) -> Part:
    rank = node.rank(0)
    if rank is None:
        return Part("permute", node.inputs, {"order": None})
    axes, order = node.attributes["arguments"][1:], list(range(rank))
    if node.op == "permute":
        order = [axis % rank for axis in axes[0]]
    elif rank:
        first, second = axes
        order[first], order[second] = order[second], order[first]
    return Part("permute", node.inputs, {"order": order})


def _layer_norm(node: Node) -> Part | None:
    _, shape, *more = node.attributes["arguments"]
    weights = [*more[:2], None, None][:2]
    if len(shape) != 1 or not all(isinstance(w, Value) for w in weights):
        return None
    epsilon = more[2] if len(more) > 2 else 1e-5
    return Part("layer_norm", node.inputs, {"axis": -1, "epsilon": epsilon})


def _softmax(node: Node) -> Part | None:
    arguments = node.attributes["arguments"]
    if any(value not in (None, False) for value in arguments[2:]):  # another type
        return None
    return Part("softmax", node.inputs, {"axis": arguments[1]})


def _reshape(node: Node) -> Part:
    options = {"shape": functools.partial(_reshaped, node.attributes["arguments"][1])}
    return Part("reshape", node.inputs, options)


def _reshaped(template: Any, given: tuple[int, ...], lengths: Sequence[Any]) -> tuple[int, ...]:
    wanted = tuple(filled(template, [None, *lengths]))
    known = -math.prod(wanted)
    return tuple([math.prod(given) // known if n == -1 and known else n for n in wanted])


_SPECIAL: dict[str, Callable[[Node], Part | None]] = {
    "_softmax": _softmax,
    "_unsafe_view": _reshape,
    "hardtanh": _hardtanh,
    "layer_norm": _layer_norm,
    "permute": _permute,
    "reshape": _reshape,
    "softmax.int": _softmax,
    "transpose.int": _permute,
    "view": _reshape,
}
