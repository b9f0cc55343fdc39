"""The table of operators: which function of singa computes which operator of PyTorch.

A row is a function of a `Call` and of the arguments that the operator has in PyTorch's graph, where
tensors are tensors of singa, and sizes are integers:

    @computes("leaky_relu")
    def leaky_relu(call, x, negative_slope=0.01):
        return autograd.leakyrelu(x, negative_slope)

An operator is named as PyTorch names it, without "aten." and without ".default". A row raises
Refused for arguments that it cannot compute; `from_torch` runs each row once. It returns a tensor,
an array for a constant that depends on sizes alone, or a tuple of them for several results.
Operands of elementwise operators have the type in which PyTorch computes (`promotion`), and results
that are integers or bools get the types that they have in PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ... import autograd
from ...dtypes import DType, is_float
from ...networks.errors import Refused
from ...networks.graph import Node
from ...tensor import Tensor

if TYPE_CHECKING:
    from ...networks.network import Execution

Row = Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """One call of an operator.

    run     the execution that it is a part of
    node    the node of the graph
    kept    what the row keeps between calls of this node, such as handles
    forced  whether the operator behaves as in training although the network infers
    """

    run: Execution
    node: Node
    kept: dict[Any, Any]
    forced: bool


_ROWS: dict[str, Row] = {}


def computes(*names: str) -> Callable[[Row], Row]:
    """A decorator that adds a row."""

    def add(row: Row) -> Row:
        for name in names:
            assert name not in _ROWS, f"two rows for {name}"
            _ROWS[name] = row
        return row

    return add


def equals(name: str, function: Callable[..., Any]) -> None:
    """Adds a row for a function that takes the arguments of the operator as they are."""

    @computes(name)
    def row(call: Call, *arguments: Any) -> Any:
        return function(*arguments)


def along_axis(row: Row) -> Row:
    """A row of an axis, which tensors without axes have in PyTorch, too: of length 1."""

    @functools.wraps(row)
    def around(call: Call, *arguments: Any, **options: Any) -> Any:
        alone = [isinstance(x, Tensor) and not x.shape for x in arguments]
        if not any(alone):
            return row(call, *arguments, **options)
        pairs = zip(arguments, alone, strict=True)
        arguments = tuple(autograd.reshape(x, (1,)) if is_alone else x for x, is_alone in pairs)
        result = row(call, *arguments, **options)
        results = result if isinstance(result, tuple) else (result,)
        typed = zip(results, call.node.output_types, strict=True)
        ys = tuple([autograd.reshape(y, ()) if kind.shape == () else y for y, kind in typed])
        return ys if isinstance(result, tuple) else ys[0]

    return around


def of_floats(row: Row) -> Row:
    """A row that refuses integers and bools."""

    @functools.wraps(row)
    def around(call: Call, x: Tensor, *arguments: Any, **options: Any) -> Any:
        if not is_float(x.dtype):
            raise Refused(
                f"it takes floats alone, got {x.dtype}: take x.float(), and cast the result"
            )
        return row(call, x, *arguments, **options)

    return around


def in_type_of_result(call: Call, x: Tensor) -> Tensor:
    """A tensor in the type that the (first) result has in PyTorch."""
    kind = call.node.output_types[0].type
    assert kind is not None
    return x if x.dtype.name == kind else autograd.cast(x, DType[kind])


def find(name: str) -> Row | None:
    """The row of an operator."""
    return _ROWS.get(name)


def names() -> list[str]:
    """The operators that have rows."""
    return sorted(_ROWS)
