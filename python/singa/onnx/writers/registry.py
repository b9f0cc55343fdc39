"""The table of writers: how each operator of singa is expressed in ONNX.

A writer is a function of a `Call`. It adds nodes whose last outputs are the operator's:

    @writes(autograd.Elu, reads="alpha")
    def elu(call):
        call.node("Elu", call.inputs, alpha=call.op.a)

`reads` names the arguments of the operator's constructor that the writer takes into account. If an
operator gains an argument that its writer does not read, export refuses it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...tape.operator import Operator
    from ..node_writer import Call
    from ..trace import GraphRun

_Writer = Callable[["Call"], None]
WRITERS: dict[type, _Writer] = {}
READ: dict[type, frozenset[str]] = {}


def writes(*classes: type, reads: str = "") -> Callable[[_Writer], _Writer]:
    """A decorator that adds the writer of operator classes to the table. `reads` are the arguments
    of their constructors that it takes into account."""

    def add(function: _Writer) -> _Writer:
        for cls in classes:
            assert cls not in WRITERS, f"two writers of {cls.__name__}"
            WRITERS[cls] = function
            READ[cls] = frozenset(reads.split())
        return function

    return add


def writer_of(op: Operator | GraphRun) -> _Writer | None:
    """The writer of an operator."""
    return WRITERS.get(type(op))


def unread(cls: type) -> frozenset[str]:
    """Arguments of an operator's constructor that its writer does not read, or that it reads and
    the constructor does not have."""
    named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    found = inspect.signature(cls).parameters.values()
    return READ[cls] ^ {p.name for p in found if p.kind in named and p.name != "name"}
