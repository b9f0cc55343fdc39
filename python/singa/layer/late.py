"""Parameters that come late.

A layer creates its parameters when it is first called. One that only `train_one_batch` calls, such
as an auxiliary head, has none after `compile`. What a file has for it waits in `Layer._late`, by
the names that the layer will have, and is part of what is saved meanwhile. On several ranks, the
initial values come from the seed of all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..tape.step_recording import host_call

if TYPE_CHECKING:
    from ..device import Device
    from .base import Layer

Values = dict[str, Any]


def awaited(root: Layer, names: Iterable[str]) -> set[str]:
    """Those of the names that layers will have which have not been called yet."""
    return {name for name, owner in _owners(root, names).items() if owner is not None}


def give(root: Layer, values: Mapping[str, Any]) -> None:
    """Keeps values for layers that have not been called yet; see `awaited`."""
    for name, owner in _owners(root, values).items():
        if owner is not None:
            layer, own_name = owner
            layer.__dict__["_late"] = {**(layer._late or {}), own_name: values[name]}


def waiting(root: Layer) -> Values:
    """The values that wait, by path from `root`."""
    return {
        f"{path}{root.sep}{name}": value
        for path, layer in root._all_sublayers((id(root),))
        for name, value in (layer._late or {}).items()
    }


class _Common(threading.local):
    """The random state of initial values in this thread; None: that of the device."""

    state: tuple[int, int] | None = None


common = _Common()


@contextmanager
def common_seed(seed: int) -> Iterator[None]:
    """Context manager: layers that are called for the first time draw their initial values with
    this seed, where a rank draws other numbers of its own."""
    before, common.state = common.state, (seed, 0)
    try:
        yield
    finally:
        common.state = before


def is_special(layer: Layer) -> bool:
    """Whether `initialize` of this module has to create the layer's parameters."""
    return (layer._late is not None or common.state is not None) and layer._is_late()


def initialize(layer: Layer, device: Device, *args: Any, **kwargs: Any) -> None:
    """Calls `layer.initialize` with inputs on `device`, and gives its parameters the values that
    wait. The random state stays as it is: the run that wrote the file has drawn the initial values
    before, and those of all ranks have a seed of their own.

    Raises ValueError if the values do not fit.
    """

    def run() -> None:
        if layer._initialized:
            return
        values, own = layer._late, device.random_state()
        if common.state is not None:
            device.set_random_state(common.state)
        layer.initialize(*args, **kwargs)
        if common.state is not None:
            common.state = device.random_state()
        device.set_random_state(own)
        if values is None:
            return
        later = awaited(layer, values)
        try:
            layer.set_states({n: v for n, v in values.items() if n not in later}, strict=True)
        except (TypeError, ValueError):
            layer.__dict__["_initialized"] = False
            raise
        layer.__dict__["_late"] = None
        give(layer, {name: values[name] for name in later})

    host_call(run)


def _owners(root: Layer, names: Iterable[str]) -> dict[str, tuple[Layer, str] | None]:
    """The layer that will have a tensor of this name, and its name there. None where there is no
    such layer."""
    layers = dict(root._all_sublayers((id(root),)))
    found: dict[str, tuple[Layer, str] | None] = {}
    for name in names:
        path, own_name = name, ""
        while path and path not in layers:
            path, _, last = path.rpartition(root.sep)
            own_name = f"{last}{root.sep}{own_name}" if own_name else last
        layer = layers.get(path)
        found[name] = None if layer is None or not layer._is_late() else (layer, own_name)
    return found
