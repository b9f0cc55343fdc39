"""What PyTorch's operators mean: the front end of graphs of `torch.export`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..networks.element_types import is_singas
from ..networks.errors import Refused
from ..networks.front_end import Compute, FrontEnd, OnHost, Reader
from ..networks.fusion import Fusion
from ..networks.graph import Node
from .operators import registry
from .operators.normalization import BATCH_NORMS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..networks.graph import Graph

    Array = NDArray[Any]

#: Arithmetic with sizes, by the name of Python's function.
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in (
        *("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow", "and_", "or_", "not_"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
    )
} | {
    "sym_max": max,
    "sym_min": min,
    "sym_float": float,
    "sym_int": int,
    "sym_not": operator.not_,
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
}
#: Their domain.
NUMBERS = "numbers"

#: Checks of sizes: they have no results.
CHECKS = "_assert_scalar"


@dataclass(frozen=True)
class Value:
    """Stands for a node's input among its arguments.

    number  whether it is a size, and not a tensor
    """

    index: int
    number: bool = False


def _filled(template: Any, inputs: Sequence[Any]) -> Any:
    """Arguments in which inputs stand in the place of `Value`s."""
    if isinstance(template, Value):
        x = inputs[template.index]
        return x.item() if template.number else x
    if isinstance(template, list):
        return [_filled(each, inputs) for each in template]
    return template


def arguments_of(node: Node, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call, by position and by name."""
    options = node.attributes["options"]
    return (
        _filled(node.attributes["arguments"], inputs),
        {name: _filled(value, inputs) for name, value in options.items()},
    )


def _numbers(template: Any) -> set[int]:
    """The inputs that are sizes."""
    if isinstance(template, Value):
        return {template.index} if template.number else set()
    each = template.values() if isinstance(template, dict) else template
    return set().union(*map(_numbers, each)) if isinstance(template, list | dict) else set()


def _make(node: Node) -> Compute:
    row = registry.find(node.op)
    assert row is not None
    kept: dict[Any, Any] = {}
    forced = bool(node.attributes.get("forced"))

    several = any(node.used[1:])

    def compute(run: Any, *inputs: Any, **fused: Any) -> Any:
        arguments, options = arguments_of(node, inputs)
        result = row(registry.Call(run, node, kept, forced), *arguments, **options, **fused)
        if several and not isinstance(result, tuple):
            raise Refused("a result other than the first")
        return result

    return compute


def _of_numbers(node: Node) -> Compute:
    raise AssertionError("the host computes it")


def _choose(node: Node) -> Reader:
    where = node.attributes.get("where", "")
    at = f", called at {where}" if where else ""
    if node.domain == NUMBERS:
        return Reader(node.op, NUMBERS, (1,), lambda node: _of_numbers, either=True)
    if registry.find(node.op) is None:
        raise Refused(f"singa has no such operator{at}")
    for value in (*node.input_types, *node.output_types):
        if value.type is not None and not is_singas(value.type):
            raise Refused(f"singa has no tensors of type {value.type}{at}")
    templates = [node.attributes["arguments"], node.attributes["options"]]
    host = tuple(sorted(_numbers(templates)))
    return Reader(node.op, "", (1,), _make, host=host)


def _on_host(node: Node) -> OnHost | None:
    if node.domain != NUMBERS:
        return None

    def compute(arrays: Sequence[Any]) -> tuple[Array, ...]:
        arguments, _ = arguments_of(node, arrays)
        if node.op == CHECKS:
            if not arguments[0]:
                raise ValueError(f"[from_torch] {arguments[1]}")
            return ()
        return (np.array(_OF_NUMBERS[node.op](*arguments)),)

    return compute


def is_of_numbers(name: str, of_python: bool) -> bool:
    """Whether a function of Python, or an operator, computes with sizes."""
    return name in _OF_NUMBERS if of_python else name == CHECKS


def _of_shape(node: Node) -> Callable[[Sequence[int]], Array] | None:
    if node.op == "sym_size.int":
        axis = node.attributes["arguments"][1]
        return lambda shape: np.array(shape[axis], np.int64)
    if node.op == "sym_numel":
        return lambda shape: np.array(math.prod(shape), np.int64)
    return None


#: Operators that are an activation of batch norm.
_ACTIVATIONS = {"relu": "relu", "silu": "silu", "hardswish": "hardswish", "relu6": "relu6"}


class TorchFusion(Fusion):
    """The patterns that nodes of PyTorch form: batch norm, a sum, and an activation."""

    def rules(self) -> Sequence[Mapping[str, Callable[[int], bool]]]:
        return [dict.fromkeys((*_ACTIVATIONS, "hardtanh"), self._behind_norm)]

    def _behind_norm(self, i: int) -> bool:
        node = self.step(i).node
        activation = _ACTIVATIONS.get(node.op)
        if node.op == "hardtanh":
            activation = "relu6" if node.attributes["arguments"][1:] == [0, 6] else None
        if activation is None or node.attributes["options"]:
            return False
        x = node.inputs[0]
        norm = self.only(x, *BATCH_NORMS)
        if norm is not None:
            return self._merge_norm(norm, [i], activation, "")
        added = self.only(x, "add.Tensor") if activation == "relu" else None
        if added is None or len(self.step(added).node.attributes["arguments"]) != 2:
            return False
        if self.step(added).node.attributes["options"] or len(self.step(added).node.inputs) != 2:
            return False
        operands = self.step(added).node.inputs
        for name, other in (operands, operands[::-1]):
            norm = (
                None if other == name or other in self.constants else self.only(name, *BATCH_NORMS)
            )
            if norm is not None:
                return self._merge_norm(norm, [added, i], activation, other)
        return False

    def _merge_norm(self, norm: int, steps: list[int], activation: str, add: str) -> bool:
        lead = self.step(norm)
        names = [*lead.node.inputs, add] if add else [*lead.node.inputs]
        apart = self.apart([norm, *steps], names)

        def compute(run: Any, *given: Any) -> Any:
            if not add:
                return lead.compute(run, *given, activation=activation)
            x, other = given[0], given[-1]
            if other.shape == x.shape and other.dtype == x.dtype and len(x.shape) <= 4:
                return lead.compute(run, *given[:-1], add=other, activation=activation)
            return apart(run, *given)

        return self.merge([norm, *steps], lead, names, compute)


def _branch(node: Node, constants: Mapping[str, Array]) -> Graph | None:
    return None


TORCH = FrontEnd(
    name="from_torch",
    function="from_torch",
    title="PyTorch",
    choose=_choose,
    on_host=_on_host,
    of_shape=_of_shape,
    branch=_branch,
    fusion=TorchFusion,
)
