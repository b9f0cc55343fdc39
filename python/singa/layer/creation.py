"""The first call of a layer, which creates its parameters."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import autograd
from ..raw.arrays import kind_of
from ..raw.calls import call_error, with_checked_flags
from ..tensor import Tensor
from . import late

if TYPE_CHECKING:
    from .base import Layer

#: Of singa's own layers and models.
_PACKAGE = __name__.partition(".")[0] + "."
#: What all of PyTorch's layers take, None meaning the default.
_PLACES = {"device", "dtype"}

# One thread at a time creates parameters; others wait for it.
_initializing = threading.RLock()


class _Room(threading.local):
    """How many elements the new parameters of this thread may have; None: any number."""

    elements: int | None = None


_room = _Room()


@contextmanager
def room_for(elements: int) -> Iterator[None]:
    """Context manager: layers that create parameters with more elements in all raise ValueError.

    For networks that a file describes: it has their values, so it bounds their memory.
    """
    before, _room.elements = _room.elements, elements
    try:
        yield
    finally:
        _room.elements = before


def take_room(layer: Layer, shape: Sequence[int]) -> None:
    """Notes that a layer creates a parameter or state. Raises ValueError if there is no room."""
    if _room.elements is not None:
        _room.elements -= math.prod(shape)
        if _room.elements < 0:
            raise ValueError(f"[{layer.title}] there are no values for parameters of this size")


class LayerMeta(type):
    """Metaclass that makes the first call of `forward` call `initialize`, with the tape off.

    >>> type(layer.ReLU) is layer.LayerMeta
    True
    """

    @staticmethod
    def init_wrapper(func: Callable[..., None]) -> Callable[..., None]:
        """Wraps `initialize`: no tape, no recording of the device, and a check of the arguments."""

        @functools.wraps(func)
        def initialize(self: Layer, *args: Any, **kwargs: Any) -> None:
            first = next(iter(args or kwargs.values()), None)
            while isinstance(first, list | tuple) and first:
                first = first[0]
            if args and not isinstance(first, Tensor | list | tuple):
                raise TypeError(
                    f"[{type(self).__name__}] initialize expects tensors, got {kind_of(first)}"
                )
            device = first.device if isinstance(first, Tensor) else None
            recording = device if device is not None and device.graph_enabled() else None
            if recording is not None:
                recording.EnableGraph(False)
            try:
                with autograd.no_grad():
                    func(self, *args, **kwargs)
            finally:
                if recording is not None:
                    recording.EnableGraph(True)
            self._initialized = True

        return initialize

    @staticmethod
    def forward_wrapper(func: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `forward` so that its first call initializes the layer."""

        @functools.wraps(func)
        def forward(self: Layer, *args: Any, **kwargs: Any) -> Any:
            if not self._initialized:
                with _initializing:
                    if not self._initialized:
                        x = late.is_special(self) and first_tensor((*args, *kwargs.values()))
                        if isinstance(x, Tensor):
                            late.initialize(self, x.device, *args, **kwargs)
                        else:
                            self.initialize(*args, **kwargs)
                        self._initialized = True
            return func(self, *args, **kwargs)

        return forward

    if not TYPE_CHECKING:  # checkers look at __init__

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            """Makes a layer. None for PyTorch's `device` and `dtype` is left out, and what singa's
            layers lack is answered."""
            if not cls.__module__.startswith(_PACKAGE):
                return super().__call__(*args, **kwargs)
            for name in _PLACES & kwargs.keys():
                if kwargs[name] is None:
                    del kwargs[name]
            try:
                return super().__call__(*args, **kwargs)
            except TypeError as error:
                answer = call_error(cls, cls.__name__, args, kwargs, error, "layer")
                if answer is None:
                    raise
                raise answer from None

    def __new__(mcs, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> type:
        if "initialize" in attributes:
            attributes["initialize"] = LayerMeta.init_wrapper(attributes["initialize"])
        if "__init__" in attributes and attributes["__module__"].startswith(_PACKAGE):
            attributes["__init__"] = with_checked_flags(attributes["__init__"])
        if "forward" in attributes:
            attributes["forward"] = LayerMeta.forward_wrapper(attributes["forward"])
        return super().__new__(mcs, name, bases, attributes)


def first_tensor(inputs: Any) -> Tensor | None:
    """The first tensor among the inputs or in lists among them."""
    for x in inputs:
        if isinstance(x, list | tuple):
            x = first_tensor(x)
        if isinstance(x, Tensor):
            return x
    return None
