"""The base class of profiles and explanations."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Self

from .. import singa_wrap as _c
from ..layer.names import LayerNames


class Collector:
    """Context manager that collects what C++ notes of each operation, with the names of layers.

    Entering raises RuntimeError while another collector is active.
    """

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
