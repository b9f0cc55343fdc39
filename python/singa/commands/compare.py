"""One page that shows runs of `python -m singa train` side by side.

python -m singa compare runs/*                   writes compare.html
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..drawing.chart import Curve, chart
from ..drawing.html import Markup, table
from ..launcher.command_line import command_parser, program_name
from ..raw.words import counted
from ..training.curves import is_fraction
from ..training.program import program, say
from .pages import check_page, page_template, write_page
from .report import duration, setting, shown
from .run_folder import ACCURACY, RunFolder, curves, is_result, read_run

PROG = program_name("compare")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments."""
    parser = command_parser(
        "compare",
        "Writes one page with the curves, figures and settings of several runs. "
        "Folders that are no runs are named and left out, and the exit status is 1.",
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="a run's folder, such as runs/pets"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("compare.html"),
        metavar="FILE",
        help="the page [%(default)s]",
    )
    return parser.parse_args(argv)


def compare(args: argparse.Namespace) -> int:
    """Writes the page; returns the exit status."""
    check_page(args.out)
    template = page_template("compare.html")
    runs, notes = [], []
    known: dict[Path, Path] = {}
    for path in args.runs:
        try:
            if (same := known.setdefault(path.resolve(), path)) is not path:
                raise ValueError(f"{path} is the run {same}, which is shown once")
            runs.append(read_run(path))
        except (OSError, ValueError) as error:
            print(f"{PROG}: {error}", file=sys.stderr, flush=True)
            notes.append(str(error))
    if not runs:
        raise ValueError("there is no run to show")
    names = _names(runs)
    notes += [f"{name}: {note}" for name, run in names.items() for note in run.notes]
    differing, equal = _settings(names)
    write_page(
        args.out,
        template,
        title=counted(len(runs), "run"),
        notes=notes,
        figures=_figures(names),
        charts=_charts(names),
        differing=differing,
        equal=equal,
    )
    say(f"the comparison is in {args.out}")
    return 1 if len(runs) < len(args.runs) else 0


def _names(runs: Sequence[RunFolder]) -> dict[str, RunFolder]:
    """Runs by the names of their folders, or by their paths where two have the same name."""
    short = [run.name for run in runs]
    names: dict[str, RunFolder] = {}
    for run in runs:
        name = run.name if short.count(run.name) == 1 else str(run.path)
        names[name] = run
    return names


def _charts(runs: dict[str, RunFolder]) -> list[Any]:
    """A chart for each field of the logs, with a curve for each run."""
    found: dict[tuple[str, str], dict[str, Curve]] = {}
    for name, run in runs.items():
        x, panels = curves(run.records)
        for title, panel in panels.items():
            for field, curve in panel.items():
                shown = field if len(panel) > 1 or title in ("Loss", ACCURACY) else title
                found.setdefault((shown, x), {})[name] = curve
    order = sorted(found, key=lambda key: _rank(key[0]))
    return [chart(field, found[field, x], x, is_fraction(field)) for field, x in order]


def _rank(field: str) -> tuple[bool, bool]:
    """What is of the test comes first, and what is neither loss nor accuracy last."""
    return not is_result(field.replace(" ", "_")), field.startswith("train")


def _figures(runs: dict[str, RunFolder]) -> Markup:
    fields = list(dict.fromkeys(name for run in runs.values() for name in run.last()))
    fields = [name for name in fields if is_result(name)]
    rows = []
    for name, run in runs.items():
        last = run.last()
        seconds = [record["seconds"] for record in run.records if "seconds" in record]
        row = [name, str(len(run.records)), *(shown(field, last.get(field)) for field in fields)]
        tests = [record.get("test_top1") for record in run.records]
        best = max((value for value in tests if isinstance(value, int | float)), default=None)
        rows.append([*row, shown("top1", best), duration(sum(seconds)) if seconds else ""])
    heads = ["run", "epochs", *(field.replace("_", " ") for field in fields)]
    heads += ["best test top1", "time"]
    caption = "After the last epoch of each run"
    return table(heads, rows, caption, numbers=range(1, len(heads)))


def _settings(runs: dict[str, RunFolder]) -> tuple[Markup | str, Markup | str]:
    """Tables of the settings that differ, and of those that are the same."""
    known = {name: run.settings for name, run in runs.items() if run.settings}
    if not known:
        return "", ""
    differing, equal = [], []
    for key in dict.fromkeys(key for settings in known.values() for key in settings):
        values = [setting(settings.get(key)) for settings in known.values()]
        option = f"--{key.replace('_', '-')}"
        if len(set(values)) > 1:
            differing.append([option, *values])
        else:
            equal.append([option, values[0]])
    return (
        table(["setting", *known], differing) if differing else "",
        table(["setting", "value"], equal) if equal else "",
    )


main = program("compare", parse, compare)
