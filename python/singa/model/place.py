"""Where a model lives: the device of its first parameter, without a walk over all layers for each
batch."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, cast

from ..layer.base import CONTAINERS, Layer
from ..tensor import DType, Tensor

if TYPE_CHECKING:
    from ..device import Device


class Place:
    """The way to a parameter, through attributes and containers. As long as the parameter is there,
    it tells the device; otherwise another one is looked for."""

    def __init__(self) -> None:
        self._way: list[Any] = []
        self._found: weakref.ref[Tensor] | None = None

    def device(self, layer: Layer) -> Device | None:
        """The device of the layer's parameters; None if it has none."""
        found = None if self._found is None else self._found()
        if found is not None:
            value: Any = layer
            try:
                for key in self._way:
                    value = value[key] if isinstance(value, CONTAINERS) else vars(value)[key]
            except (LookupError, TypeError):
                value = None
            if value is found:
                return cast("Device", found.data.device())
        self._found = None
        first = next(iter(layer.get_params().values()), None)
        if first is None:
            return None
        way = _way(layer, first, ())
        if way is not None:
            self._way, self._found = way, weakref.ref(first)
        return first.device

    def dtype(self, layer: Layer) -> DType | None:
        """The type of that parameter; None if there is none."""
        self.device(layer)
        found = None if self._found is None else self._found()
        if found is None:
            found = next(iter(layer.get_params().values()), None)
        return None if found is None else found.dtype


def _way(holder: Any, wanted: Tensor, above: tuple[int, ...]) -> list[Any] | None:
    """The key of each step from `holder` to the tensor; None if there is no way."""
    inside = holder if isinstance(holder, CONTAINERS) else vars(holder)
    apart = holder._partless if isinstance(holder, Layer) else ()
    for key, item in inside.items() if isinstance(inside, dict) else enumerate(inside):
        if item is wanted:
            return [key]
        if key in apart:
            continue
        if isinstance(item, (Layer, *CONTAINERS)) and id(item) not in above:
            rest = _way(item, wanted, (*above, id(item)))
            if rest is not None:
                return [key, *rest]
    return None
