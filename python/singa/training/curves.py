"""Plots of the numbers of a log, and which of them belong together."""

from __future__ import annotations

import functools
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.atomic import atomic_write
from .log import read_log

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Points = tuple[list[float], list[float]]

#: Fields of a record that say which one it is.
PLACES = ("epoch", "step")

_COLOURS = {"train": "#4477aa", "test": "#cc6633", "val": "#cc6633", "valid": "#cc6633"}
_OTHERS = ("#228833", "#aa3377", "#66ccee", "#bbbbbb")
_FORMATS = (".png", ".svg", ".pdf")
_INK, _GRID = "#333333", "#e4e4e4"


def plot_curves(
    log: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    path: str | os.PathLike[str] | None = None,
    *,
    x: str = "epoch",
    title: str | None = None,
    metrics: Sequence[str] | None = None,
) -> Figure:
    """Plots fields of a training log. Returns matplotlib's figure, which a notebook shows.

        plot_curves("runs/pets/log.jsonl")
        plot_curves(history, metrics=["lr", "test_loss"])  # what Model.fit returned

    log      a JSON-lines file (see `read_log`), or its records
    path     saves the picture, atomically, under a name that ends in .png, .svg or .pdf
             (default: it is not saved)
    x        field of the horizontal axis (default "epoch")
    title    title of the picture (default: none)
    metrics  fields to plot (default: all losses and accuracies)

    Fields whose name contains "loss" are in one panel. Those with "acc", "top1" or "top5" are in
    another one; they are fractions of 1 and shown in per cent. Every other field has its own.
    Missing, NaN and infinite values leave a gap. Records without `x` are skipped. If several
    records have the same `x`, as after resuming a run, the last one counts.

    It needs no display and does not change matplotlib's global state (pyplot). Raises ValueError
    for another suffix, a field that the log does not have, and if there is nothing to plot;
    ImportError if matplotlib is not installed.

    >>> import os
    >>> records = [{"epoch": 1, "train_loss": 1.2}, {"epoch": 2, "train_loss": 0.8}]
    >>> figure = training.plot_curves(records, "curves.svg")
    >>> os.path.exists("curves.svg")
    True
    """
    path = None if path is None else Path(path)
    if path is not None and path.suffix.lower() not in _FORMATS:
        raise ValueError(f"[plot_curves] {path}: expected a name ending in {', '.join(_FORMATS)}")
    records = read_log(log) if isinstance(log, str | os.PathLike) else list(log)
    found = panels(records, x)
    there = [field for fields in found.values() for field in fields]
    if missing := [field for field in metrics or () if field not in there]:
        raise ValueError(
            f"[plot_curves] the log has no numbers {', '.join(missing)} with a field {x!r}; it has "
            f"{', '.join(there) or 'none'}"
        )
    wanted = metrics or [field for name in ("loss", "accuracy") for field in found.get(name, ())]
    drawn = {
        name: chosen
        for name, fields in found.items()
        if (chosen := {field: fields[field] for field in fields if field in wanted})
    }
    if not drawn:
        raise ValueError(f"[plot_curves] the log has no loss or accuracy with a field {x!r}")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise ImportError("[plot_curves] needs matplotlib: pip install matplotlib") from error

    figure = _figure_class()(figsize=(5.2 * len(drawn), 3.9), dpi=144, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, curves) in zip(
        figure.subplots(1, len(drawn), squeeze=False)[0], drawn.items(), strict=True
    ):
        _draw(axes, name, curves, x)
    if title:
        figure.suptitle(title, fontsize=12, color=_INK)
    if path is not None:
        with atomic_write(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower())
    return figure


@functools.cache
def _figure_class() -> type[Figure]:
    """matplotlib's figure, which notebooks also show where pyplot is not in use."""
    from matplotlib.figure import Figure

    class InlineFigure(Figure):
        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png")
            return file.getvalue()

    return InlineFigure


def panels(records: Iterable[Mapping[str, Any]], x: str) -> dict[str, dict[str, Points]]:
    """The numbers of a log as curves, with those together that belong into one picture.

    Returns {"loss": {field: (xs, ys)}, "accuracy": ...}, and then a panel for each other field,
    under its name. `xs` are the values of the field `x`, ascending; NaN stands for values that are
    missing or not finite. Fields without a finite number, and those that say which record it is
    ("epoch" and "step"), are left out.
    """
    values: dict[str, dict[float, float]] = {}
    for record in records:
        position = _number(record.get(x))
        if math.isnan(position):
            continue
        for field, value in record.items():
            if field not in (x, *PLACES) and (value is None or is_number(value)):
                values.setdefault(field, {})[position] = _number(value)
    found: dict[str, dict[str, Points]] = {"loss": {}, "accuracy": {}}
    for field, points in values.items():
        if any(map(math.isfinite, points.values())):
            xs = sorted(points)
            found.setdefault(panel_of(field), {})[field] = (xs, [points[at] for at in xs])
    return {name: fields for name, fields in found.items() if fields}


def is_fraction(field: str) -> bool:
    """Whether the field of a log is a fraction of 1, which is shown in per cent."""
    return any(word in field.lower() for word in ("acc", "top1", "top5"))


def panel_of(field: str) -> str:
    """The panel in which `panels` has a field."""
    if "loss" in field.lower():
        return "loss"
    return "accuracy" if is_fraction(field) else field


def is_number(value: object) -> bool:
    """Whether the value of a field is a number, which may be NaN or infinite."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float:
    return float(value) if is_number(value) and math.isfinite(value) else math.nan


def _draw(axes: Any, name: str, curves: dict[str, Points], x: str) -> None:
    spare = iter(_OTHERS * len(curves))
    used: set[str] = set()
    if name == "accuracy":
        curves = {field: (xs, [100.0 * y for y in ys]) for field, (xs, ys) in curves.items()}
    for field, (xs, ys) in curves.items():
        colour = _COLOURS.get(field.lower().split("_")[0])
        # A second curve of the same split, such as top-5, has the same colour and is dashed.
        style = "--" if colour in used else "-"
        colour = colour or next(spare)
        used.add(colour)
        # Markers make a single epoch visible.
        marker = "o" if sum(map(math.isfinite, ys)) <= 20 else None
        label = f"{field.replace('_', ' ')}  {_best(name, ys)}".rstrip()
        axes.plot(
            xs, ys, style, color=colour, marker=marker, markersize=3.5, linewidth=1.8, label=label
        )
    shown = f"{name} (%)" if name == "accuracy" else name.replace("_", " ")
    axes.set_title(shown, fontsize=11, color=_INK)
    axes.set_xlabel(x, color=_INK)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    axes.tick_params(colors=_INK, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_GRID)
    if name == "loss":
        axes.set_ylim(0.0, max(y for _, ys in curves.values() for y in ys if y == y) * 1.05 or 1.0)
    elif name == "accuracy":
        axes.set_ylim(top=min(100.0, axes.get_ylim()[1]))
    if x == "epoch":
        axes.xaxis.get_major_locator().set_params(integer=True)
        if all(len(xs) == 1 for xs, _ in curves.values()):  # a single epoch gives no range
            axes.set_xlim(xs[0] - 1.0, xs[0] + 1.0)
    if name in ("loss", "accuracy"):  # otherwise the title names the one curve
        axes.legend(frameon=False, fontsize=9, labelcolor=_INK)


def _best(name: str, ys: list[float]) -> str:
    finite = [y for y in ys if math.isfinite(y)]
    if name == "loss":
        return f"(lowest {min(finite):.3f})"
    return f"(best {max(finite):.1f})" if name == "accuracy" else ""
