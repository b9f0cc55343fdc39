"""The operators of ONNX that are one elementwise function of singa. Readers, writers and the host
take them from these tables; what differs by more than its name has a reader and a writer of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import autograd
from ..networks.element_types import ALL, BOOL, FLOATS, NUMERIC
from ..ops.normalization import ACTIVATIONS

if TYPE_CHECKING:
    from ..networks.graph import Node
    from ..tensor import Tensor
    from .node_writer import Call


@dataclass(frozen=True)
class Function:
    """An operator of ONNX.

    versions    the versions that are read
    operator    the operator of the tape that it is, and the function that applies that
    attributes  by name: the operator's attribute, the argument of its constructor, the default
    older       how it is written before its first version, as `write`; None if any opset has it
    types, gradient  as in a `Reader`
    on_host     the host computes it where it needs the value
    """

    op: str
    versions: tuple[int, ...]
    operator: type
    function: Callable[..., Tensor]
    attributes: Mapping[str, tuple[str, str, float]] = field(default_factory=dict)
    older: Callable[[Call, str], None] | None = None
    types: Collection[str] = FLOATS
    gradient: bool | str = True
    on_host: bool = False

    def attributes_of(self, node: Node) -> dict[str, Any]:
        """The attributes of a node, with their defaults."""
        return {name: node.attributes.get(name, v) for name, (_, _, v) in self.attributes.items()}

    def write(self, call: Call, x: str) -> None:
        """Adds the nodes of the call's result, from its argument."""
        if self.older and call.opset < self.versions[0]:
            self.older(call, x)
            return
        values = {name: getattr(call.op, kept) for name, (kept, _, _) in self.attributes.items()}
        call.node(self.op, [x], **values)


FUNCTIONS: dict[str, Function] = {}


def _is(op: str, *versions: int, name: str = "", **fields: Any) -> None:
    """Adds a row. `name` is that of singa's operator, where it differs."""
    name = name or op
    operator, function = getattr(autograd, name), getattr(autograd, name.lower())
    FUNCTIONS[op] = Function(op, versions, operator, function, **fields)


def _hardswish(call: Call, x: str) -> None:
    call.node("Mul", [x, call.step("HardSigmoid", [x], **HARD_SWISH_GATE)])


def _mish(call: Call, x: str) -> None:
    call.node("Mul", [x, call.step("Tanh", [call.step("Softplus", [x])])])


_is("Abs", 1, 6, 13, types=NUMERIC, on_host=True)
_is("Acos", 7, 22)
_is("Acosh", 9, 22)
_is("Asin", 7, 22)
_is("Asinh", 9, 22)
_is("Atan", 7, 22)
_is("Atanh", 9, 22)
_is("Ceil", 1, 6, 13, gradient="zero", on_host=True)
_is("Cos", 7, 22, on_host=True)
_is("Cosh", 9, 22)
_is("Elu", 1, 6, 22, attributes={"alpha": ("a", "alpha", 1.0)})
_is("Erf", 9, 13)
_is("Exp", 1, 6, 13, on_host=True)
_is("Floor", 1, 6, 13, gradient="zero", on_host=True)
_is(
    "HardSigmoid",
    *(1, 6, 22),
    attributes={"alpha": ("a", "alpha", 0.2), "beta": ("b", "gamma", 0.5)},
)
_is("HardSwish", 14, 22, older=_hardswish)
_is("LeakyRelu", 1, 6, 16, attributes={"alpha": ("a", "a", 0.01)})
_is("Log", 1, 6, 13, on_host=True)
_is("Mish", 18, 22, older=_mish)
_is("Neg", 1, 6, 13, name="Negative", types=NUMERIC, on_host=True)
_is("Reciprocal", 1, 6, 13, on_host=True)
_is("Relu", 1, 6, 13, 14, name="ReLU", types=NUMERIC)
_is("Round", 11, 22, name="Rounde", gradient="zero", on_host=True)
_is("Sigmoid", 1, 6, 13)
_is("Sign", 9, 13, types=NUMERIC, gradient="zero", on_host=True)
_is("Sin", 7, 22, on_host=True)
_is("Sinh", 9, 22)
_is("Softsign", 1, 22, name="SoftSign")
_is("Sqrt", 1, 6, 13, on_host=True)
_is("Tan", 7, 22)
_is("Tanh", 1, 6, 13)


class Combination(NamedTuple):
    """An operator of ONNX that is an elementwise operator of several tensors. Fields are those of
    `Function`."""

    op: str
    versions: tuple[int, ...]
    operator: type
    types: Collection[str] = NUMERIC
    on_host: bool = False


#: Operators of two tensors, or of a tensor and a number.
ARITHMETIC = (
    Combination("Add", (1, 6, 7, 13, 14), autograd.Add),
    Combination("Sub", (1, 6, 7, 13, 14), autograd.Sub),
    Combination("Mul", (1, 6, 7, 13, 14), autograd.Mul),
)
#: Operators of one or more tensors.
OF_LISTS = (
    Combination("Max", (1, 6, 8, 12, 13), autograd.Max, on_host=True),
    Combination("Min", (1, 6, 8, 12, 13), autograd.Min, on_host=True),
    Combination("Sum", (1, 6, 8, 13), autograd.Sum, FLOATS, on_host=True),
    Combination("Mean", (1, 6, 8, 13), autograd.Mean, FLOATS),
)
#: Operators of two tensors whose results are bool in ONNX, and numbers in singa.
COMPARISONS = (
    Combination("Equal", (1, 7, 11, 13, 19), autograd.Equal, ALL),
    Combination("Less", (1, 7, 9, 13), autograd.Less),
    Combination("LessOrEqual", (12, 16), autograd.LessEqual, on_host=True),
    Combination("Greater", (1, 7, 9, 13), autograd.Greater),
    Combination("GreaterOrEqual", (12, 16), autograd.GreaterEqual, on_host=True),
)
LOGIC = (
    Combination("And", (1, 7), autograd.And, BOOL, on_host=True),
    Combination("Or", (1, 7), autograd.Or, BOOL, on_host=True),
    Combination("Xor", (1, 7), autograd.Xor, BOOL, on_host=True),
)

#: The functions that are an activation of batch norm, by its name there.
OF_NORM = {
    row.function.__name__: row for row in FUNCTIONS.values() if row.function.__name__ in ACTIVATIONS
}

#: The attributes of the HardSigmoid by which files write hard swish, x·gate(x).
HARD_SWISH_GATE = {"alpha": 1.0 / 6.0, "beta": 0.5}

_ROWS: tuple[Function | Combination, ...] = (
    *FUNCTIONS.values(),
    *(*ARITHMETIC, *OF_LISTS, *COMPARISONS, *LOGIC),
)
#: Names of the operators that the host computes where it needs the value.
ON_HOST = frozenset(row.op for row in _ROWS if row.on_host)
