#!/usr/bin/env python3
"""Writes the tables and the picture of docs/performance.md from the measured figures.

    python benchmark/figures.py      # benchmark/figures.csv -> docs/performance.md and .svg
    python benchmark/figures.py --add results/ --processor avx2 --commit 01e58e81
    python benchmark/figures.py --add results/ --processor avx2 --commit 01e58e81 --task memory

`--add` first puts the results of `step.py --out results/` into figures.csv, in the place of earlier
ones of the same case. `--task memory` adds peaks alone, as when the machine was too busy for times.

A row of figures.csv is one comparison: milliseconds for a batch, `ratio` is the other program's
time divided by singa's, of the task `memory` its peak; peaks of memory are in MiB. Fields that were
not kept are empty. `commit` is the one that brought the figures here: measured was its code, or
that of a commit shortly before.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import harness

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmark" / "figures.csv"
PAGE = ROOT / "docs" / "performance.md"
PICTURE = PAGE.with_suffix(".svg")

#: Processor → title and column in the picture, and the element types that it shows.
PANELS = {
    "avx2": ("AVX2", 0, ("float32",)),
    "amx": ("AVX-512 and AMX", 0, ("float32", "bfloat16")),
    "avx512": ("AVX-512", 1, ("float32",)),
    "h200": ("NVIDIA H200", 1, ("TF32", "bfloat16")),
}
#: Sides of step.py → their names in the page.
OTHERS = {"torch-channels-last": "PyTorch", "torch-compile": "torch.compile"}

#: Settings of matplotlib: text instead of outlines, and equal data gives equal files.
SAME_FILE = {"svg.fonttype": "none", "svg.hashsalt": "singa"}

Row = dict[str, str]
Best = dict[str, dict[str, Any]]
#: (model, batch, dtype) → {other side: (singa's best run, its own or None if it failed)}.
Cases = dict[tuple[str, int, str], dict[str, tuple[dict, dict | None]]]
#: Network → {series: length of the bar}.
Panel = dict[str, dict[str, float]]


def read(file: Path = DATA) -> list[Row]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def select(rows: Iterable[Row], **fields: str) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def case(row: Row) -> str:
    return f"{row['network']}, {row['batch']}"


def smallest(rows: Iterable[Row]) -> dict[str, float]:
    """Case → its smallest ratio: that of the quickest other program."""
    found: dict[str, float] = {}
    for row in rows:
        found[case(row)] = min(found.get(case(row), math.inf), float(row["ratio"]))
    return found


def mean(ratios: Iterable[float]) -> float:
    """The geometric mean."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(math.fsum(logarithms) / len(logarithms))


def spaced(number: str) -> str:
    """1234.5 as 1,234.5."""
    whole, dot, rest = number.partition(".")
    return f"{int(whole):,}{dot}{rest}" if whole else ""


def rounded(value: float) -> str:
    """With four digits, and no exponent below a million."""
    return f"{float(f'{value:.4g}'):g}"


def cells(row: Row, kind: str) -> Iterator[tuple[str, str]]:
    """Names and texts of a row's columns. kind: what is written before times and ratios."""
    yield f"{kind}singa, ms", spaced(row["singa_ms"])
    yield f"{kind}{row['other']}, ms", spaced(row["other_ms"])
    yield f"{kind}{row['other']} / singa", row["ratio"]
    yield "peak MiB: singa", spaced(row["singa_mib"])
    yield f"peak MiB: {row['other']}", spaced(row["other_mib"])


def table(rows: list[Row]) -> str:
    """A line for each case, with columns for all element types and other programs."""
    kinds = dict.fromkeys(row["dtype"] for row in rows)
    commits = {row["commit"] for row in rows}
    places: dict[str, tuple[int, int]] = {}
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        line = lines.setdefault(case(row), {"commit": row["commit"]} if len(commits) > 1 else {})
        kind = f"{row['dtype']}: " if len(kinds) > 1 else ""
        for place, (name, text) in enumerate(cells(row, kind)):
            if text:
                places.setdefault(name, (list(kinds).index(row["dtype"]), place))
                line.setdefault(name, text)
    columns = [*sorted(places, key=places.__getitem__), *(["commit"] if len(commits) > 1 else [])]
    return harness.table(
        [
            {"network, batch": title} | {name: line.get(name, "") for name in columns}
            for title, line in lines.items()
        ]
    )


def summary(rows: list[Row]) -> str:
    """The mean ratio, the cases in which another program is quicker, and the commit."""
    kinds = list(dict.fromkeys(row["dtype"] for row in rows))
    lines = []
    for kind in kinds:
        ratios = smallest(select(rows, dtype=kind))
        start = f"{kind}: the" if len(kinds) > 1 else "The"
        lines.append(
            f"- {start} geometric mean of the smallest ratios is {mean(ratios.values()):.2f}."
        )
        behind = [f"{title} ({ratio:.2f})" for title, ratio in ratios.items() if ratio < 1]
        verb = "needs more" if rows[0]["task"] == "memory" else "is slower"
        lines[-1] += f" singa {verb} for {'; '.join(behind) or 'none'}."
    commits = list(dict.fromkeys(row["commit"] for row in rows))
    if len(commits) == 1:
        lines.append(f"- Commit: {commits[0]}.")
    return "\n".join(textwrap.fill(line, 120, subsequent_indent="  ") for line in lines)


MARKED = re.compile(
    r"(<!-- figures: (\w+) (\w+) -->\n\n).*?(\n\n<!-- end of figures -->)", re.DOTALL
)


def page(text: str, rows: list[Row]) -> str:
    """The page, with what the figures say between its marks."""

    def written(mark: re.Match[str]) -> str:
        chosen = select(rows, processor=mark[2], task=mark[3])
        return f"{mark[1]}{table(chosen)}\n\n{summary(chosen)}{mark[4]}"

    return MARKED.sub(written, text)


def draw(axis: Any, label: str, panel: Panel) -> None:
    series = list(dict.fromkeys(name for bars in panel.values() for name in bars))
    place, ticks = 0.0, []
    for bars in panel.values():
        ticks.append(place + (len(bars) - 1) / 2)
        for name, value in bars.items():
            bar = axis.barh(place, value, color=f"C{series.index(name)}")
            axis.bar_label(bar, fmt="%.2f", padding=2, fontsize=6)
            place += 1
        place += 1
    axis.set_yticks(ticks, list(panel), fontsize=7)
    axis.invert_yaxis()
    axis.margins(x=0.1, y=0.01)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xlabel(label, fontsize=8)
    axis.tick_params(axis="x", labelsize=7)
    handles = [axis.barh(0, 0, color=f"C{i}") for i in range(len(series))]
    axis.legend(handles, series, fontsize=7)


def panels(rows: list[Row]) -> dict[str, Panel]:
    """Processor → network → element type → smallest ratio of a training step."""
    found: dict[str, Panel] = {}
    for processor, (_, _, kinds) in PANELS.items():
        panel = found.setdefault(processor, {})
        for kind in kinds:
            chosen = select(rows, processor=processor, task="training", dtype=kind)
            for title, ratio in smallest(chosen).items():
                panel.setdefault(title.split(", ")[0], {})[kind] = ratio
    return found


def picture(rows: list[Row], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update(SAME_FILE)
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(8, 6.2), layout="constrained")
    drawn = panels(rows)
    for column, side in enumerate(figure.subfigures(1, 2)):
        names = [name for name, (_, place, _) in PANELS.items() if place == column]
        heights = [sum(len(bars) + 1 for bars in drawn[name].values()) for name in names]
        axes = side.subplots(len(names), height_ratios=heights)
        for axis, name in zip(axes, names, strict=True):
            draw(axis, "training step: PyTorch's time / singa's", drawn[name])
            axis.set_title(PANELS[name][0], fontsize=9)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def runs(folder: Path) -> list[Best]:
    """The best runs of all sides for each file of step.py. Skips files without completed runs."""
    every = [json.loads(file.read_text()) for file in sorted(folder.glob("step-*.json"))]
    return [best for best in map(harness.best_runs, every) if best]


def cases_of(results: list[Best]) -> Cases:
    cases: Cases = defaultdict(dict)
    for best in results:
        if "singa" in best:
            ours = best["singa"]
            others = [side for side in best if side != "singa"] or [""]
            key = (ours["model"], ours["batch"], ours["dtype"])
            cases[key] |= {other: (ours, best.get(other)) for other in others}
    return cases


def added(
    rows: list[Row], folder: Path, processor: str, commit: str, task: str = "training"
) -> list[Row]:
    """The rows with the results of step.py in a folder."""
    timed, key = (True, "ms") if task == "training" else (False, "peak_mib")
    new = [
        {
            "processor": processor,
            "task": task,
            "network": network,
            "batch": str(batch),
            "dtype": dtype,
            "singa_ms": rounded(ours["ms"]) if timed else "",
            "other": OTHERS[side],
            "other_ms": rounded(other["ms"]) if timed else "",
            "ratio": f"{other[key] / ours[key]:.2f}",
            "singa_mib": f"{ours['peak_mib']:.0f}",
            "other_mib": f"{other['peak_mib']:.0f}",
            "commit": commit,
        }
        for (network, batch, dtype), pairs in cases_of(runs(folder)).items()
        for side, (ours, other) in pairs.items()
        if other and side in OTHERS
    ]
    if not new:
        sys.exit(f"no results of step.py beside {' or '.join(OTHERS)} in {folder}")
    case = ("processor", "task", "network", "batch", "dtype", "other")
    replaced = {tuple(row[name] for name in case) for row in new}
    return [row for row in rows if tuple(row[name] for name in case) not in replaced] + new


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--add", type=Path, metavar="FOLDER", help="--out of step.py")
    parser.add_argument("--processor", choices=PANELS, help="that of the added results")
    parser.add_argument("--commit", help="that of the added results")
    parser.add_argument("--task", choices=("training", "memory"), default="training")
    args = parser.parse_args()
    rows = read()
    if args.add:
        if not args.processor or not args.commit:
            parser.error("--add needs --processor and --commit")
        rows = added(rows, args.add, args.processor, args.commit, args.task)
        with DATA.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    PAGE.write_text(page(PAGE.read_text(), rows))
    picture(rows, PICTURE)


if __name__ == "__main__":
    main()
