"""The arguments of a call in a graph of PyTorch, among which inputs stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..networks.graph import Node


@dataclass(frozen=True)
class Value:
    """Stands for a node's input among its arguments.

    number  whether it is a size, and not a tensor
    """

    index: int
    number: bool = False


def filled(template: Any, inputs: Sequence[Any]) -> Any:
    """Arguments in which inputs stand in the place of `Value`s."""
    if isinstance(template, Value):
        x = inputs[template.index]
        return x.item() if template.number else x
    if isinstance(template, list):
        return [filled(each, inputs) for each in template]
    return template


def arguments_of(node: Node, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call, by position and by name."""
    options = node.attributes["options"]
    return (
        filled(node.attributes["arguments"], inputs),
        {name: filled(value, inputs) for name, value in options.items()},
    )


def sizes_among(template: Any) -> set[int]:
    """The inputs that are sizes."""
    if isinstance(template, Value):
        return {template.index} if template.number else set()
    each = template.values() if isinstance(template, dict) else template
    return set().union(*map(sizes_among, each)) if isinstance(template, list | dict) else set()
