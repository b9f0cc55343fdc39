"""The outputs of layers in one forward pass, by path."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..layer.base import Layer
from ..layer.observers import observers


def outputs_of(root: Layer, names: Sequence[str], run: Callable[[], Any]) -> list[Any]:
    """The outputs of the layers of these paths while `run()` runs `root`, whose own path is "".

    Raises TypeError and ValueError as `Model.values` says.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"[values] expected a list of names of layers, got {names!r:.80}")
    paths = {"": root, **dict(root._all_sublayers((id(root),)))}
    for name in names:
        if name not in paths:
            import difflib  # not loaded by a program that only computes

            close = difflib.get_close_matches(name, paths, 3)
            advice = f"; do you mean {' or '.join(close)}?" if close else ""
            raise ValueError(f"[values] {root.title} has no layer {name!r}{advice}")
    collector = _Collector([paths[name] for name in names])
    observers.append(collector)
    try:
        run()
    finally:
        observers.remove(collector)
    for name in names:
        count = len(collector.outputs[id(paths[name])])
        if count != 1:
            how = f"ran {count} times: register_forward_hook sees each" if count else "did not run"
            raise ValueError(f"[values] layer {name!r} {how}")
    return [collector.outputs[id(paths[name])][0] for name in names]


class _Collector:
    """An observer that keeps the outputs of some layers, by identity, in the thread that made
    it."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.outputs: dict[int, list[Any]] = {id(each): [] for each in layers}
        self._thread = threading.get_ident()

    def enter(self, layer: Layer) -> None:
        pass

    def leave(self, layer: Layer, output: Any) -> None:
        if id(layer) in self.outputs and threading.get_ident() == self._thread:
            self.outputs[id(layer)].append(output)


def loss_function(model: Any) -> Any:
    """The model's loss, a layer or a function. A name, which its class may have, becomes a layer.
    Raises NotImplementedError if there is none."""
    loss = getattr(model, "loss", None)
    if isinstance(loss, str):
        model.loss = loss  # which makes the layer
        return model.loss
    if loss is None:
        raise NotImplementedError(
            f"{type(model).__name__} defines neither train_one_batch(), which a call in training "
            "mode runs, nor a loss, as fit(loss='cross_entropy') sets; call eval() first to run "
            "forward()"
        )
    return loss
