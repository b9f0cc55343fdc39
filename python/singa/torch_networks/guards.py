"""What PyTorch has assumed of the lengths of inputs, as JSON values.

A guard is an expression: an integer, ["size", input, axis], or the name of a function below and its
operands. Those that say that a length is not 1 are left out: PyTorch assumes it of all lengths, and
no operator of a graph needs it.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "and",
    ast.Or: "or",
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
    "min": min,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "and": lambda *each: all(each),
    "or": lambda *each: any(each),
}


def parsed(text: str, inputs: Mapping[str, int]) -> Any:
    """A guard of PyTorch, such as "L['x'].size()[2] >= 3"; None if it may be left out. `inputs` has
    the positions of arguments. Raises ValueError for one that it does not understand."""
    guard = _parsed(ast.parse(text, mode="eval").body, inputs)
    if isinstance(guard, list):
        one = guard[0] == "!=" and guard[2] == 1
        two = (guard[0], guard[-1]) in ((">=", 2), (">", 1))
        return None if one or two else guard
    raise ValueError(text)


def _parsed(node: ast.AST, inputs: Mapping[str, int]) -> Any:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return ["-", 0, _parsed(x, inputs)]
        case ast.BinOp(op=op, left=x, right=y) if type(op) in _OPERATORS:
            return [_OPERATORS[type(op)], _parsed(x, inputs), _parsed(y, inputs)]
        case ast.Compare(left=x, ops=[op], comparators=[y]) if type(op) in _OPERATORS:
            return [_OPERATORS[type(op)], _parsed(x, inputs), _parsed(y, inputs)]
        case ast.BoolOp(op=op, values=values):
            return [_OPERATORS[type(op)], *(_parsed(each, inputs) for each in values)]
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=values):
            return [name, *(_parsed(each, inputs) for each in values)]
        case ast.Subscript(
            value=ast.Call(
                func=ast.Attribute(
                    value=ast.Subscript(
                        value=ast.Name(id="L"), slice=ast.Constant(value=str(name))
                    ),
                    attr="size",
                ),
                args=[],
            ),
            slice=ast.Constant(value=int(axis)),
        ) if name in inputs:
            return ["size", inputs[name], axis]
    raise ValueError(ast.unparse(node))


def follows(guard: Any, shapes: Sequence[Sequence[Any]]) -> bool:
    """Whether a guard says no more than equal names of lengths do, such as 3·n == 3·n."""

    def named(each: Any) -> Any:
        if not isinstance(each, list):
            return each
        name, *operands = each
        return shapes[operands[0]][operands[1]] if name == "size" else [name, *map(named, operands)]

    return guard[0] == "==" and named(guard[1]) == named(guard[2])


def holds(guard: Any, shapes: Sequence[Sequence[int]]) -> Any:
    """The value of a guard for inputs of these shapes. Raises LookupError, TypeError or
    ValueError for another JSON value."""
    if isinstance(guard, int):
        return guard
    name, *operands = guard
    if name == "size":
        i, axis = operands
        return shapes[i][axis]
    values = [holds(each, shapes) for each in operands]
    return False if name in ("//", "%") and values[1] == 0 else _FUNCTIONS[name](*values)


def written(guard: Any, names: Sequence[str]) -> str:
    """A guard for people."""
    if isinstance(guard, int):
        return str(guard)
    name, *operands = guard
    if name == "size":
        return f"{names[operands[0]]}.shape[{operands[1]}]"
    texts = [written(each, names) for each in operands]
    return (
        f"{name}({', '.join(texts)})" if name in ("max", "min") else f"({f' {name} '.join(texts)})"
    )
