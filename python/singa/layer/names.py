"""Tells C++ the layer in which an operation runs, for reports."""

from __future__ import annotations

import threading
import weakref
from typing import Any, ClassVar

from .. import singa_wrap as _c
from ..tape import operator as tape
from .base import Layer
from .observers import observers


class LayerNames:
    """An observer that sets the current layer of C++ while it has users.

    In forward it follows the calls of layers. In backward the tape sets the layer that it noted in
    forward.
    """

    #: Users by id. References are weak, so a user whose stop() was interrupted disappears with it.
    _users: ClassVar[weakref.WeakValueDictionary[int, object]] = weakref.WeakValueDictionary()
    _lock = threading.Lock()
    #: Operations of two layers in one have the name of the first.
    takes_fused = True

    def __init__(self) -> None:
        self._outer = threading.local()

    def enter(self, layer: Layer) -> None:
        stack = self._outer.__dict__.setdefault("stack", [])
        stack.append(_c.CurrentLayer())
        _c.SetCurrentLayer(layer.name or type(layer).__name__)

    def leave(self, layer: Layer, output: Any) -> None:
        stack = self._outer.__dict__.get("stack")
        _c.SetCurrentLayer(stack.pop() if stack else "")

    @classmethod
    def start(cls, user: object) -> None:
        """Starts following layers for `user`, until it calls stop."""
        with cls._lock:
            cls._users[id(user)] = user
            cls._follow()

    @classmethod
    def stop(cls, user: object) -> None:
        """Ends the use by `user`. It may be called without start, or after an interrupted one."""
        with cls._lock:
            cls._users.pop(id(user), None)
            cls._follow()

    @classmethod
    def _follow(cls) -> None:
        present = _names in observers
        tape.current_layer = (_c.CurrentLayer, _c.SetCurrentLayer) if cls._users else None
        if cls._users and not present:
            observers.append(_names)
        elif not cls._users and present:
            observers.remove(_names)
            _c.SetCurrentLayer("")


_names = LayerNames()
