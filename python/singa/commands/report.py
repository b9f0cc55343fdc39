"""One page on a run of `python -m singa train`.

    python -m singa report runs/pets                 writes runs/pets/report.html
    python -m singa report runs/pets --out pets.html

The page has the curves, the classes and the pictures that the network gets wrong and right, the
network, time and memory of a training step, the settings, and the environment. It holds all that
it shows: a browser opens it from the file, without a network. What the folder lacks is left out,
and the page says why. Pictures are those of the test, read by the network that the run saved.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..drawing.chart import chart
from ..drawing.html import Markup, table
from ..launcher.command_line import command_parser
from ..report import network
from ..report.diagnostics import doctor
from ..report.flame import flame
from ..training.curves import is_fraction
from ..training.picture_classifier import PictureClassifier
from ..training.program import (
    add_device_arguments,
    at_least,
    choose_device,
    program,
    say,
    warnings_as_notes,
)
from . import predictions
from . import step_costs as steps
from .outcomes import Outcome
from .pages import check_page, page_template, percent, write_page
from .run_folder import ACCURACY, RunFolder, curves, is_result, read_run

#: Most classes of which a confusion matrix is shown.
_MATRIX = 25
_Result = TypeVar("_Result")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments."""
    parser = command_parser("report", __doc__, "[options] RUN")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, such as runs/pets")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page [RUN/report.html]")
    parser.add_argument(
        "--data", metavar="PATH", help="where the data are now [where the run found them]"
    )
    parser.add_argument(
        "--batch-size",
        type=at_least(1, int),
        metavar="N",
        help="images in the training step that is timed [that of the run, or 32]",
    )
    add_device_arguments(parser)
    return parser.parse_args(argv)


def report(args: argparse.Namespace) -> int:
    """Writes the page; returns the exit status."""
    out = args.out or args.run / "report.html"
    check_page(out)
    template, run = page_template("report.html"), read_run(args.run)
    choose_device(args.device, args.threads)
    classifier = _unless_missing(
        run, "classes, pictures and network", lambda: PictureClassifier.load(args.run)
    )
    outcome = costs = None
    if classifier is not None:
        outcome = _unless_missing(
            run, "classes and pictures", lambda: _outcome(run, classifier, args.data)
        )
        costs = _unless_missing(
            run, "times and memory", lambda: _costs(run, classifier, args.batch_size)
        )
    write_page(out, template, **_contents(args, run, outcome, costs))
    for note in run.notes:
        say(f"note: {note}")
    say(f"the report is in {out}")
    return 0


def _unless_missing(run: RunFolder, what: str, make: Callable[[], _Result]) -> _Result | None:
    """What `make` returns. What cannot be had becomes a note of the run."""
    try:
        return make()
    except (OSError, ValueError, ImportError, RuntimeError, TypeError, MemoryError) as error:
        run.notes.append(f"No {what}: {error}")
        return None


def _outcome(run: RunFolder, classifier: PictureClassifier, place: str | None) -> Outcome:
    settings = run.settings if place is None else {**run.settings, "data": place}
    if not run.settings:
        raise ValueError("the settings of the run do not say which data it was tested on")
    with warnings_as_notes():
        pictures = predictions.sets_of(settings).test
    if tuple(pictures.classes) != classifier.class_names:
        raise ValueError(
            f"the data have the {classifier.task.key} {', '.join(pictures.classes):.200}, and the "
            f"network {', '.join(classifier.class_names):.200}"
        )
    return predictions.ask(classifier, pictures)


def _costs(run: RunFolder, classifier: PictureClassifier, batch: int | None) -> steps.StepCosts:
    blank = np.zeros((classifier.channels, 64, 64), np.uint8)
    _, *image = classifier.inputs([blank]).shape
    shape = (batch or int(run.settings.get("batch_size") or 32), *image)
    dtype = run.settings.get("dtype") or "float32"
    return steps.step_costs(classifier.net, shape, len(classifier.class_names), dtype)


# The parts of the page.


def _contents(
    args: argparse.Namespace,
    run: RunFolder,
    outcome: Outcome | None,
    costs: steps.StepCosts | None,
) -> dict[str, Any]:
    x, panels = curves(run.records)
    data_name = Path(str(run.settings["data"])).name if run.settings.get("data") else ""
    model = run.settings.get("model")
    what = f"{model} trained" if model else "A run"
    what += f" on {data_name}" if data_name else " on generated images" if run.settings else ""
    page_command = ["python", "-m", "singa", "report", str(args.run)]
    page_command += ["--data", args.data] if args.data else []
    return {
        "title": f"Run {run.name}",
        "what": f"{what}, {_count(len(run.records), 'epoch')}.",
        "figures": _figures(run),
        "notes": run.notes,
        "charts": [chart(title, each, x, title == ACCURACY) for title, each in panels.items()],
        "log": _log_table(run),
        **_class_parts(run, outcome),
        **_cost_parts(costs),
        "command": run.command(),
        "settings": settings_table(run.settings),
        "page_command": shlex.join(page_command),
        "environment": table(["what", "value"], run.environment or doctor().rows()),
        "environment_is_noted": bool(run.environment),
    }


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}" + ("s" if number != 1 else "")


def _figures(run: RunFolder) -> list[tuple[str, str]]:
    last = run.last()
    names = [name for name in last if is_result(name)]
    names.sort(key=lambda name: "loss" not in name)
    figures = [(name.replace("_", " "), shown(name, last[name])) for name in names]
    seconds = [r["seconds"] for r in run.records if isinstance(r.get("seconds"), int | float)]
    if seconds:
        figures.append(("time of all epochs", duration(sum(seconds))))
    return figures


def shown(name: str, value: object) -> str:
    """A value of a log as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return percent(value) if is_fraction(name) else f"{value:.4g}" if value % 1 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds as text, such as "1 h 02 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _log_table(run: RunFolder) -> Markup:
    names = list(dict.fromkeys(name for record in run.records for name in record))
    rows = [[shown(name, record.get(name)) for name in names] for record in run.records]
    heads = [name.replace("_", " ") for name in names]
    return table(heads, rows, numbers=range(len(names)))


def settings_table(settings: dict[str, Any]) -> Markup:
    """A table of the settings of a run."""
    rows = [(f"--{name.replace('_', '-')}", setting(value)) for name, value in settings.items()]
    return table(["setting", "value"], rows)


def setting(value: object) -> str:
    """The value of a setting as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _class_parts(run: RunFolder, outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {"outcome": None}
    field, here, rounding = outcome.logged()
    logged = run.last().get(field)
    agreement = ""
    if logged is not None:
        same = abs(logged - here) < rounding
        agreement = (
            "The log says the same."
            if same
            else (
                f"The log of the last epoch says {shown(field, logged)}: the network was saved "
                "after another epoch, or the data have changed since."
            )
        )
    matrix = outcome.matrix()
    mistakes = [(a, b, str(n)) for a, b, n in outcome.mistakes()]
    return {
        "outcome": outcome,
        "agreement": agreement,
        "confusion": matrix if len(matrix) <= _MATRIX else [],
        "mistakes": table(["image of", "called", "times"], mistakes, numbers=[2])
        if mistakes
        else "",
        "by_class": table(outcome.heads, outcome.cells(), numbers=range(1, len(outcome.heads))),
        "galleries": _unless_missing(run, "pictures", lambda: _galleries(outcome)) or [],
    }


def _galleries(outcome: Outcome) -> list[tuple[str, str, Any]]:
    """(title, sentence, pictures) of the worst and the best ones."""
    return [
        ("Worst", outcome.worst_are, [outcome.shown(number) for number in outcome.worst()]),
        ("Best", outcome.best_are, [outcome.shown(number) for number in outcome.best()]),
    ]


def _cost_parts(costs: steps.StepCosts | None) -> dict[str, Any]:
    if costs is None:
        return {"costs": None}
    by_layer = network.layer_rows(costs.network, costs.records)
    reorders = [
        (record.layer or "-", needed_by, record.implementation, record.shapes, f"{record.ms:.3f}")
        for record, needed_by in costs.reorders()
    ]
    heads = ["layer", "for", "from and to", "shape", "ms"]
    return {
        "costs": costs,
        "network": network.network_picture(costs.network, costs.records),
        "narrow_network": network.narrow_picture(costs.network, costs.records),
        "layer_count": len(by_layer),
        "by_layer": table(network.LAYER_HEADS, by_layer, numbers=range(3, 8)),
        "by_operation": _operation_table(costs),
        "memory": _memory_table(costs),
        "memory_picture": costs.plan.plot(),
        "flame": flame(costs.profile),
        "reorders": table(heads, reorders, numbers=[4]) if reorders else "",
    }


def _operation_table(costs: steps.StepCosts, most: int = 12) -> Markup:
    found: dict[tuple[str, str], list[float]] = {}
    for record in costs.records:
        found.setdefault((record.op, record.implementation), []).append(record.ms)
    sums = sorted(((sum(each), len(each), *key) for key, each in found.items()), reverse=True)
    rows = [
        (op, how, f"{calls}", f"{ms:.2f}", percent(ms / (costs.ms or 1)))
        for ms, calls, op, how in sums[:most]
    ]
    heads = ["operation", "implementation", "calls", "ms", "share"]
    return table(heads, rows, numbers=[2, 3, 4])


def _memory_table(costs: steps.StepCosts) -> Markup:
    rows = [*costs.plan["by_kind"].items(), ("together", costs.plan["planned_bytes"])]
    return table(
        ["kind", "MiB"], [(name, f"{count / 2**20:.2f}") for name, count in rows], numbers=[1]
    )


main = program("report", parse, report)
