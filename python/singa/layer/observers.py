"""Observers of the calls of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .base import Layer


class Observer(Protocol):
    """An object in `observers`, which is notified before and after each call of a layer."""

    def enter(self, layer: Layer) -> None: ...
    def leave(self, layer: Layer, output: Any) -> None: ...


#: Usually empty, so that a call of a layer only tests for that.
observers: list[Observer] = []


def are_watched() -> bool:
    """Whether an observer needs a call of each layer by itself. One that has a true `takes_fused`
    does not."""
    return any(not getattr(observer, "takes_fused", False) for observer in observers)
