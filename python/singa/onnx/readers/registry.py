"""The table of readers: which function computes which version of which operator.

A reader is a function of a node. It checks the attributes and returns the function that computes
the node's outputs:

    @reads("LeakyRelu", 1, 6, 16, types=FLOATS)
    def leaky_relu(node):
        slope = node.attributes.get("alpha", 0.01)
        return lambda run, x: autograd.leakyrelu(x, slope)

The versions are the `since_version`s of the operator that the reader understands. A version that
is not listed is refused, even a newer one that may mean the same. A reader raises Refused for
attributes that it cannot compute. The function that it returns gets an `Execution` (`network.py`),
then the inputs. It returns a value, or a tuple of one for each output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from ..element_types import FLOATS
from ..graph import Node

#: The function that computes a node.
Compute = Callable[..., Any]
Factory = Callable[[Node], Compute]


@dataclass(frozen=True)
class Reader:
    """How an operator is read.

    versions  the versions that it understands
    types     element types of the first input
    gradient  whether a gradient flows through; "zero": it is zero almost everywhere
    host      inputs that the host needs as arrays, such as shapes
    either    inputs that may be tensors or arrays (True: all); others are tensors
    weights   inputs that are parameters also if they have only one element
    states    inputs that are running statistics: saved, not trained
    data      shapes of results depend on values of tensors
    sequences  inputs may be sequences, which are lists of values
    held      inputs and results may have the types of `HELD`
    evaluated  onnx's reference evaluator computes it on the host, of values of any type
    """

    op: str
    domain: str
    versions: tuple[int, ...]
    make: Factory
    types: Collection[str] = FLOATS
    gradient: bool | str = True
    host: tuple[int, ...] = ()
    either: bool | tuple[int, ...] = False
    weights: tuple[int, ...] = ()
    states: tuple[int, ...] = ()
    data: bool = False
    sequences: bool = False
    held: bool = False
    evaluated: bool = False


_READERS: dict[tuple[str, str, int], Reader] = {}


def reads(
    op: str, *versions: int, domain: str = "", types: Collection[str] = FLOATS, **fields: Any
) -> Callable[[Factory], Factory]:
    """A decorator that adds a reader to the table. The arguments are the fields of `Reader`."""

    def add(make: Factory) -> Factory:
        reader = Reader(op, domain, versions, make, frozenset(types), **fields)
        for version in versions:
            key = (domain, op, version)
            assert key not in _READERS, f"two readers for {key}"
            _READERS[key] = reader
        return make

    return add


def find(domain: str, op: str, version: int) -> Reader | None:
    """The reader of this version of an operator."""
    return _READERS.get((domain, op, version))


def readers() -> list[Reader]:
    """All readers, each once."""
    return list(dict.fromkeys(_READERS.values()))


def is_readable(domain: str, op: str, version: int) -> bool:
    """Whether this version of an operator has a reader."""
    return (domain, op, version) in _READERS


def versions_of(domain: str, op: str) -> list[int]:
    """The versions of an operator that have readers."""
    return sorted(v for d, o, v in _READERS if (d, o) == (domain, op))
