"""Tells C++ in which layer an operation runs, for reports, while somebody wants to know."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Self

from . import singa_wrap as _c
from . import tape
from .layer import base


class LayerNames:
    """While one is there, operations know in which layer they run: forward from the layers' calls,
    backward from what the tape noted then."""

    #: Who wants to know, by id; whoever was interrupted in the middle of stop() leaves as it dies.
    _users: ClassVar[weakref.WeakValueDictionary[int, object]] = weakref.WeakValueDictionary()
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
    def start(cls, user: object) -> None:
        """`user` wants to know, until it calls stop."""
        with cls._lock:
            cls._users[id(user)] = user
            cls._follow()

    @classmethod
    def stop(cls, user: object) -> None:
        """Also right where start was interrupted, or never called."""
        with cls._lock:
            cls._users.pop(id(user), None)
            cls._follow()

    @classmethod
    def _follow(cls) -> None:
        present = _names in base.observers
        tape.current_layer = (_c.CurrentLayer, _c.SetCurrentLayer) if cls._users else None
        if cls._users and not present:
            base.observers.append(_names)
        elif not cls._users and present:
            base.observers.remove(_names)
            _c.SetCurrentLayer("")


_names = LayerNames()


class Collector:
    """Context: what C++ notes of each operation while inside, with the names of layers. One at a
    time: entering raises RuntimeError while another one is there."""

    _name: ClassVar[str]
    _switch: Callable[[bool], None]
    _take: Callable[[], Any]

    def __enter__(self) -> Self:
        if _c.IsProfiling():
            raise RuntimeError(f"[{self._name}] a profile or an explanation is running already")
        LayerNames.start(self)
        self._take()
        self._switch(True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._switch(False)
        LayerNames.stop(self)
        self._collect(self._take())

    def _collect(self, found: Any) -> None:
        raise NotImplementedError
