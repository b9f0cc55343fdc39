"""Plots of loss and accuracy over the epochs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..files.atomic import atomic_write
from .log import read_log

Points = tuple[list[float], list[float]]

_COLOURS = {"train": "#4477aa", "test": "#cc6633", "val": "#cc6633", "valid": "#cc6633"}
_OTHERS = ("#228833", "#aa3377", "#66ccee", "#bbbbbb")
_FORMATS = (".png", ".svg", ".pdf")
_INK, _GRID = "#333333", "#e4e4e4"


def plot_curves(
    log: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    path: str | os.PathLike[str],
    *,
    x: str = "epoch",
    title: str | None = None,
) -> None:
    """Plots all losses and accuracies of a training log and saves the picture atomically.

    log    a JSON-lines file (see `read_log`), or its records
    path   name of the picture, which ends in .png, .svg or .pdf
    x      field of the horizontal axis (default "epoch")
    title  title of the picture (default: none)

    Numeric fields whose name contains "loss" are in the left panel. Those with "acc", "top1" or
    "top5" are in the right panel; they are fractions of 1 and shown in per cent. A panel without
    curves is left out. Missing, NaN and infinite values leave a gap. Records without `x` are
    skipped. If several records have the same `x`, as after resuming a run, the last one counts.

    It needs no display and does not change matplotlib's global state (pyplot). Raises ValueError
    for another suffix or if there is nothing to plot, ImportError if matplotlib is not installed.

    >>> import os
    >>> records = [{"epoch": 1, "train_loss": 1.2}, {"epoch": 2, "train_loss": 0.8}]
    >>> training.plot_curves(records, "curves.svg")
    >>> os.path.exists("curves.svg")
    True
    """
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"[plot_curves] {path}: expected a name ending in {', '.join(_FORMATS)}")
    records = read_log(log) if isinstance(log, str | os.PathLike) else list(log)
    panels = _panels(records, x)
    if not panels:
        raise ValueError(f"[plot_curves] the log has no loss or accuracy with a field {x!r}")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("[plot_curves] needs matplotlib: pip install matplotlib") from error

    figure = Figure(figsize=(5.2 * len(panels), 3.9), dpi=144, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, curves) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        _draw(axes, name, curves, x)
    if title:
        figure.suptitle(title, fontsize=12, color=_INK)
    with atomic_write(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower())


def _panels(records: Iterable[Mapping[str, Any]], x: str) -> dict[str, dict[str, Points]]:
    """{"loss": {field: (xs, ys)}, "accuracy": ...}, with fields in order of appearance."""
    values: dict[str, dict[str, dict[float, float]]] = {"loss": {}, "accuracy": {}}
    for record in records:
        position = _number(record.get(x))
        if math.isnan(position):
            continue
        for field, value in record.items():
            panel = _panel_of(field)
            if panel and (isinstance(value, int | float) or value is None):
                values[panel].setdefault(field, {})[position] = _number(value)
    panels: dict[str, dict[str, Points]] = {}
    for panel, fields in values.items():
        for field, points in fields.items():
            if any(math.isfinite(y) for y in points.values()):
                xs = sorted(points)
                scale = 100.0 if panel == "accuracy" else 1.0
                panels.setdefault(panel, {})[field] = (xs, [points[i] * scale for i in xs])
    return panels


def is_fraction(field: str) -> bool:
    """Whether the field of a log is a fraction of 1, which is shown in per cent."""
    return any(word in field.lower() for word in ("acc", "top1", "top5"))


def _panel_of(field: str) -> str | None:
    if "loss" in field.lower():
        return "loss"
    return "accuracy" if is_fraction(field) else None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) if math.isfinite(value) else math.nan


def _draw(axes: Any, name: str, curves: dict[str, Points], x: str) -> None:
    spare = iter(_OTHERS * len(curves))
    used: set[str] = set()
    for field, (xs, ys) in curves.items():
        colour = _COLOURS.get(field.lower().split("_")[0])
        # A second curve of the same split, such as top-5, has the same colour and is dashed.
        style = "--" if colour in used else "-"
        colour = colour or next(spare)
        used.add(colour)
        # Markers make a single epoch visible.
        marker = "o" if sum(map(math.isfinite, ys)) <= 20 else None
        label = f"{field.replace('_', ' ')}  {_best(name, ys)}"
        axes.plot(
            xs, ys, style, color=colour, marker=marker, markersize=3.5, linewidth=1.8, label=label
        )
    axes.set_title(f"{name} (%)" if name == "accuracy" else name, fontsize=11, color=_INK)
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
    else:
        axes.set_ylim(top=min(100.0, axes.get_ylim()[1]))
    if x == "epoch":
        axes.xaxis.get_major_locator().set_params(integer=True)
        if all(len(xs) == 1 for xs, _ in curves.values()):  # a single epoch gives no range
            axes.set_xlim(xs[0] - 1.0, xs[0] + 1.0)
    axes.legend(frameon=False, fontsize=9, labelcolor=_INK)


def _best(name: str, ys: list[float]) -> str:
    finite = [y for y in ys if math.isfinite(y)]
    return f"(lowest {min(finite):.3f})" if name == "loss" else f"(best {max(finite):.1f})"
