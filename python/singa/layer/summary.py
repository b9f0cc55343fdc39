"""The table that `Model.summary` prints."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..raw.process import notebook_cell
from ..raw.words import counted
from ..tensor import Tensor
from .base import Layer
from .observers import observers
from .parameters import each_once

if TYPE_CHECKING:
    from ..drawing.table import Table


@dataclass(frozen=True)
class Row:
    """One layer: its name, class, output shapes, and number of parameters."""

    name: str
    kind: str
    output: str
    params: int


@dataclass
class Summary:
    """The result of `Model.summary()`. `str()` gives the table in at most 80 columns: an ellipsis
    stands for the beginning of a long name, or the end of a list of shapes. `rows` has all."""

    model: str
    rows: list[Row] = field(default_factory=list)
    params: int = 0
    trainable: int = 0
    states: int = 0
    #: The notebook's cell in which `Model.summary` has shown it.
    shown_in: int | None = field(default=None, repr=False, compare=False)

    def table(self) -> Table:
        """The table, which terminals and notebooks show."""
        from ..drawing.table import Table  # not loaded by a program that only computes

        heads = ["layer", "type", "output", "parameters"]
        rows = [(row.name, row.kind, row.output, f"{row.params:,}") for row in self.rows]
        return Table(heads, rows, [3], self._total(), shrinks=(0, 2, 1), ends=[0])

    def __str__(self) -> str:
        return self.table().text()

    def _total(self) -> str:
        frozen = self.params - self.trainable
        total = f"{self.model}: {self.params:,} parameters"
        total += f", {frozen:,} of them frozen" if frozen else ""
        total += f"; {self.states:,} more values of state" if self.states else ""
        return total

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def _ipython_display_(self) -> None:
        """Shows the table in a notebook, but not again where the call of `summary` has shown it."""
        from IPython.display import display

        if self.shown_in is None or self.shown_in != notebook_cell():
            display({"text/html": self._repr_html_(), "text/plain": repr(self)}, raw=True)

    def __repr__(self) -> str:
        layers = counted(len(self.rows), "layer")
        return f"<Summary of {self.model}: {layers}, {self.params:,} parameters>"


def summarize(model: Layer, inputs: Sequence[Tensor]) -> Summary:
    """Runs `model` on `inputs` and collects all layers that have parameters of their own or no
    sublayers."""
    summary = Summary(type(model).__name__)
    watch = _Watch(summary)
    observers.append(watch)
    try:
        Layer.__call__(model, *inputs)
    finally:
        observers.remove(watch)
    params = model.get_params().values()
    states = each_once(model.get_states()).values()
    summary.params = sum(p.size() for p in params)
    summary.trainable = sum(p.size() for p in params if p.requires_grad)
    summary.states = sum(s.size() for s in states) - summary.params
    return summary


class _Watch:
    """Collects rows in the thread that created it. Parameters of a layer that is called twice are
    counted once."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self.thread = threading.get_ident()
        self.counted: set[int] = set()

    def enter(self, layer: Layer) -> None:
        pass

    def leave(self, layer: Layer, output: Any) -> None:
        params = [param for _, param in layer._own_params()]
        inner = layer.has_parts or (not params and any(True for _ in layer.sublayers()))
        if inner or threading.get_ident() != self.thread:
            return
        own = 0
        for param in params:
            if id(param) not in self.counted:
                self.counted.add(id(param))
                own += param.size()
        row = Row(layer.name or "", type(layer).__name__, _shapes(output), own)
        self.summary.rows.append(row)


def _shapes(output: Any) -> str:
    if isinstance(output, Tensor):
        return str(tuple(output.shape))
    if isinstance(output, list | tuple):
        return ", ".join(_shapes(item) for item in output[:3]) + (", ..." if output[3:] else "")
    return type(output).__name__
