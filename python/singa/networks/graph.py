"""A graph as plain data: nodes with decoded attributes, constants, and types of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .errors import Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

Dimension = int | str | None


@dataclass(frozen=True)
class ValueType:
    """What is known of a value before it is computed.

    type   element type; None: unknown, or not a tensor
    shape  lengths of the axes, where a name stands for any length and None is unknown; None: the
           rank is unknown
    kind   "tensor", "sequence", or another kind that singa does not have
    """

    type: str | None = None
    shape: tuple[Dimension, ...] | None = None
    kind: str = "tensor"


@dataclass
class Node:
    """One call of an operator. An input that is not given has the name ""."""

    name: str
    op: str
    domain: str
    version: int  # since_version of the operator in the opset of the file; 0: unknown operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    input_types: tuple[ValueType, ...] = ()
    output_types: tuple[ValueType, ...] = ()
    used: tuple[bool, ...] = ()  # whether something reads each output
    problem: str = ""  # why its attributes cannot be decoded

    @property
    def operator(self) -> str:
        """The operator with its domain, if that is not ONNX's."""
        return f"{self.domain}.{self.op}" if self.domain else self.op

    def refused(self, reason: str) -> Problem:
        """This node as an entry of an UnsupportedError, with the line that calls it if that is
        known."""
        where = self.attributes.get("where")
        what, colon, instead = reason.partition(": ")
        at = f", called at {where}" if where else ""
        return Problem(self.name, self.operator, self.version, f"{what}{at}{colon}{instead}")

    def rank(self, i: int) -> int | None:
        """Number of axes of input `i`, if it is known."""
        shape = self.input_types[i].shape if i < len(self.input_types) else None
        return None if shape is None else len(shape)

    def shape_of(self, name: str) -> tuple[Dimension, ...] | None:
        """The shape of an input, if it is known."""
        i = self.inputs.index(name)
        return self.input_types[i].shape if i < len(self.input_types) else None

    def has(self, i: int) -> bool:
        """Whether input `i` is given."""
        return i < len(self.inputs) and bool(self.inputs[i])


@dataclass
class Initializer:
    """A tensor of the file. `read` gives its elements, which may be mapped from another file."""

    name: str
    type: str
    shape: tuple[int, ...]
    read: Callable[[], NDArray[Any]]


@dataclass
class Graph:
    """A graph, or a subgraph such as the body of a loop."""

    name: str
    inputs: list[str]
    outputs: list[str]
    nodes: list[Node]
    constants: dict[str, NDArray[Any]]  # results of Constant nodes
    initializers: dict[str, Initializer] = field(default_factory=dict)
    types: dict[str, ValueType] = field(default_factory=dict)
    opset: int = 0
    ir_version: int = 0
    producer: str = ""
    metadata: dict[str, str] = field(default_factory=dict)  # texts of the file, by key

    def free_names(self) -> set[str]:
        """Names of values that a subgraph takes from the graph around it."""
        known = {*self.inputs, *self.constants, *self.initializers}
        free: set[str] = set()
        for node in self.nodes:
            used = {name for name in node.inputs if name}
            for inner in subgraphs(node):
                used |= inner.free_names()
            free |= used - known
            known.update(node.outputs)
        return free | (set(self.outputs) - known)


def subgraphs(node: Node) -> Iterator[Graph]:
    """The graphs among a node's attributes."""
    for value in node.attributes.values():
        if isinstance(value, Graph):
            yield value


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """A graph in which values have other names, also where its subgraphs read them."""

    def new(group: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([names.get(name, name) for name in group])

    def inner(value: Any) -> Any:
        if not isinstance(value, Graph):
            return value
        own = {*value.inputs, *value.constants, *(n for node in value.nodes for n in node.outputs)}
        return renamed(value, {old: name for old, name in names.items() if old not in own})

    nodes = [
        replace(
            node,
            inputs=new(node.inputs),
            outputs=new(node.outputs),
            attributes={key: inner(value) for key, value in node.attributes.items()},
        )
        for node in graph.nodes
    ]
    constants = {names.get(name, name): array for name, array in graph.constants.items()}
    outputs = list(new(tuple(graph.outputs)))
    return replace(graph, nodes=nodes, constants=constants, outputs=outputs)
