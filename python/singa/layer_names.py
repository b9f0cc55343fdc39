"""Tells C++ in which layer an operation runs, for reports, while somebody wants to know."""

from __future__ import annotations

import threading
from typing import Any

from . import singa_wrap as _c
from . import tape
from .layer import base


class LayerNames:
    """While one is there, operations know in which layer they run: forward from the layers' calls,
    backward from what the tape noted then."""

    _users = 0
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._outer = threading.local()

    def enter(self, layer: base.Layer) -> None:
        stack = self._outer.__dict__.setdefault("stack", [])
        stack.append(_c.CurrentLayer())
        _c.SetCurrentLayer(layer.name or type(layer).__name__)

    def leave(self, layer: base.Layer, output: Any) -> None:
        stack = self._outer.__dict__.get("stack")
        _c.SetCurrentLayer(stack.pop() if stack else "")

    @classmethod
    def start(cls) -> None:
        with cls._lock:
            cls._users += 1
            if cls._users == 1:
                base.observers.append(_names)
                tape.current_layer = (_c.CurrentLayer, _c.SetCurrentLayer)

    @classmethod
    def stop(cls) -> None:
        with cls._lock:
            cls._users -= 1
            if cls._users == 0:
                base.observers.remove(_names)
                tape.current_layer = None
                _c.SetCurrentLayer("")


_names = LayerNames()
