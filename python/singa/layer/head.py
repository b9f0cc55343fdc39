"""The last layer of a network, and its exchange for one with another number of outputs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..raw.check import integer
from ..tensor import Tensor
from .base import Layer
from .conv import Conv1d, Conv2d, Conv3d
from .linear import Linear
from .observers import observers

_CONVOLUTIONS = (Conv1d, Conv2d, Conv3d)


def replace_head(root: Layer, num_outputs: int, run: Callable[[], Any]) -> tuple[str, ...]:
    """Gives the last layer with parameters that `run()` runs `num_outputs` outputs, and new initial
    values, and returns the paths of its parameters. See `Model.replace_head` for errors."""
    integer("replace_head", "num_outputs", num_outputs, 1)
    watch = _Last()
    observers.append(watch)
    try:
        result = run()
    finally:
        observers.remove(watch)
    last = watch.layer
    if last is None:
        raise ValueError(f"[replace_head] {root.title} has no layer with parameters")
    first = result[0] if isinstance(result, tuple | list) else result
    _check(root, last, first)
    remake(last, "out_features" if isinstance(last, Linear) else "nb_kernels", num_outputs)
    own = {id(param) for _, param in last._own_params()}
    return tuple([path for path, param in root.get_params().items() if id(param) in own])


def remake(layer: Any, name: str, value: int) -> None:
    """Changes a fixed setting of a Linear layer or a convolution, whose parameters get new initial
    values."""
    old = layer.W
    if isinstance(layer, Linear):
        shape: tuple[int, ...] = (1, old.shape[0])
    else:
        lengths = zip(old.shape[2:], layer.dilation, strict=True)
        channels = old.shape[1] * layer.group
        shape = (1, channels, *[1 + gap * (length - 1) for length, gap in lengths])
    # As before the first call: a fixed setting may change, and there are no handles.
    layer.__dict__.update({"_initialized": False} | dict.fromkeys(layer.transient))
    setattr(layer, name, value)
    layer.initialize(Tensor(shape, old.device, old.dtype, requires_grad=False))


def _check(root: Layer, last: Any, result: Any) -> None:
    """Raises ValueError if `last` does not make the outputs of `root`, or shares its weight."""
    convolution = isinstance(last, _CONVOLUTIONS) and last.group == 1
    count = last.nb_kernels if convolution else getattr(last, "out_features", None)
    shape = result.shape if isinstance(result, Tensor) else ()
    channels = shape[1:2] if convolution else shape[-1:]
    if not (convolution or isinstance(last, Linear)) or channels != (count,):
        raise ValueError(
            f"[replace_head] the outputs {tuple(shape)} of {root.title} come from {last.title}, "
            "and not from a Linear layer or a convolution"
        )
    shared = [path for path, t in root.get_states().items() if t is last.W]
    if len(shared) > 1:
        raise ValueError(
            f"[replace_head] {last.title} shares its weight with others: {', '.join(shared)}"
        )


class _Last:
    """An observer of the last layer with parameters of its own that runs, in the thread that made
    it."""

    def __init__(self) -> None:
        self.layer: Any = None
        self._thread = threading.get_ident()

    def enter(self, layer: Layer) -> None:
        if threading.get_ident() == self._thread and layer._own_params():
            self.layer = layer

    def leave(self, layer: Layer, output: Any) -> None:
        pass
