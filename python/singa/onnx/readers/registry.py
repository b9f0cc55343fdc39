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
from typing import Any

from ...networks.element_types import FLOATS
from ...networks.front_end import Factory, Reader

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
