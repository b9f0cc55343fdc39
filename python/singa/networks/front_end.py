"""What a front end says of the operators of its graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .element_types import FLOATS
from .graph import Graph, Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .fusion import Fusion

    Array = NDArray[Any]

#: The function that computes a node: of an `Execution` (`network.py`) and of the node's inputs. It
#: returns a value, or a tuple of one for each output.
Compute = Callable[..., Any]
Factory = Callable[[Node], Compute]

#: The function that computes a node from arrays, None where an input is not given.
OnHost = Callable[[Sequence[Any]], tuple["Array", ...]]


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


@dataclass(frozen=True)
class FrontEnd:
    """The meaning of a graph's operators.

    name      what errors begin with, and `function` where a graph is refused
    title     what the nodes are called in notes on errors
    choose    the reader of a node; raises Refused if there is none
    on_host   the function that computes a node of arrays, None if the host cannot
    of_shape  the function that computes a node of its input's shape alone, None for other nodes
    branch    the branch that a node takes where constants decide it, None for other nodes
    fusion    merges steps
    shown     the name of an operator in summaries and reports
    noun      what errors call a node, if they say it
    """

    name: str
    function: str
    title: str
    choose: Callable[[Node], Reader]
    on_host: Callable[[Node], OnHost | None]
    of_shape: Callable[[Node], Callable[[Sequence[int]], Array] | None]
    branch: Callable[[Node, Mapping[str, Array]], Graph | None]
    fusion: type[Fusion]
    shown: Callable[[str], str] = str
    noun: str = "node"
