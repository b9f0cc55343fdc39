#!/usr/bin/env python3
"""Makes Markdown tables and a picture from the result files of step.py and plans.py.

    python benchmark/report.py results/
    python benchmark/report.py results/ --picture results.svg

Omits columns without results. In the table of steps, the number in brackets is the step's time
divided by that of the singa processes that alternated with it. figures.py writes the page on
performance.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import harness
import plans
import step

NAMES = {
    "torch": "PyTorch, ms",
    "torch-channels-last": "channels_last, ms",
    "torch-compile": "compiled, ms",
    "mxnet": "MXNet, ms",
    "singa-eager": "singa executed, ms",
    "singa-recompute": "recomputing, ms",
    "singa-fused": "fused, ms",
}

#: Settings of matplotlib: text instead of outlines, and equal data gives equal files.
SAME_FILE = {"svg.fonttype": "none", "svg.hashsalt": "singa"}

#: Sides other than PyTorch's and singa's.
PROGRAMS = {"mxnet": "MXNet"}

Best = dict[str, dict[str, Any]]
#: (model, batch, dtype) → {other side: (singa's best run, its own or None if it failed)}.
Cases = dict[tuple[str, int, str], dict[str, tuple[dict, dict | None]]]
#: Network → {series: length of the bar}.
Panel = dict[str, dict[str, float]]


def read(folder: Path, kind: str) -> list[Best]:
    """The best runs of all sides for each file. Skips files without completed runs."""
    every = [json.loads(file.read_text()) for file in sorted(folder.glob(f"{kind}-*.json"))]
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


def number(value: float) -> str:
    """The number with at least three digits: 1,234  56.7  0.0891."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def ratio(pair: tuple[dict, dict | None]) -> float | None:
    ours, other = pair
    return other["ms"] / ours["ms"] if other else None


def best_of_torch(pairs: dict[str, tuple[dict, dict | None]]) -> tuple[float, dict] | None:
    """(time relative to singa's, run) of PyTorch's fastest variant."""
    found = [
        (other["ms"] / ours["ms"], other)
        for side, (ours, other) in pairs.items()
        if side in step.TORCH and other
    ]
    return min(found, key=lambda entry: entry[0], default=None)


def title(key: tuple[str, int, str]) -> str:
    model, batch, dtype = key
    return f"{model}, {batch}" + (f", {dtype}" if dtype != "float32" else "")


def steps_table(cases: Cases) -> str:
    rows = []
    sides = [side for side in NAMES if any(side in pairs for pairs in cases.values())]
    for key, pairs in sorted(cases.items()):
        ours = min((ours for ours, _ in pairs.values()), key=lambda run: run["ms"])
        row = {"network, batch": title(key), "singa, ms": number(ours["ms"])}
        for side in sides:
            pair = pairs.get(side)
            times = ratio(pair) if pair else None
            row[NAMES[side]] = f"{number(pair[1]['ms'])} ({times:.2f})" if times else ""
        best = best_of_torch(pairs)
        row["best of PyTorch / singa"] = f"{best[0]:.2f}" if best else ""
        peaks = [ours["peak_mib"], *([best[1]["peak_mib"]] if best else [])]
        row["peak MiB: singa, PyTorch's best"] = ", ".join(map(number, peaks))
        planned = ours.get("planned_mib")
        row["planned, used MiB"] = f"{planned:,.0f}, {ours['peak_mib']:,.0f}" if planned else ""
        row["faults/step"] = f"{ours['faults']:.0f}"
        row["reorders, ms"] = f"{ours['reorders']}, {ours['reorder_ms']:.2f}"
        row["plan cache, hits + misses"] = f"{ours['plan_hits']} + {ours['plan_misses']}"
        rows.append(row)
    return harness.table([{k: v for k, v in row.items() if filled(rows, k)} for row in rows])


def filled(rows: list[dict[str, str]], column: str) -> bool:
    return any(row[column] for row in rows)


def said_once(results: list[Best]) -> str:
    """A sentence with processor, threads, versions and number of processes of the runs."""
    runs = [run for best in results for run in best.values()]
    versions = {
        f"{'PyTorch' if side in step.TORCH else PROGRAMS.get(side, 'singa')} {run['version']}"
        + (" with tcmalloc" if run.get("tcmalloc") else "")
        for best in results
        for side, run in best.items()
    }
    facts = [
        *sorted({run["cpu"] for run in runs}),
        *sorted({f"{run['threads']} threads" for run in runs}),
        *sorted(versions),
    ]
    processes = {len(run["runs_ms"]) for run in runs}
    counts = " to ".join(map(str, sorted({min(processes), max(processes)})))
    return f"{'; '.join(facts)}; processes of each side: {counts}."


def panels_of(cases: Cases, variants: list[Best]) -> list[tuple[str, Panel]]:
    panels: list[tuple[str, Panel]] = []
    compared = {
        title(key): {s: r for s in NAMES if s in pairs and (r := ratio(pairs[s]))}
        for key, pairs in sorted(cases.items())
    }
    if any(compared.values()):
        panels.append(("step time / singa's", compared))
    without = {
        f"{best['all']['model']}, {best['all']['batch']}": {
            v: best[v]["ms"] / best["all"]["ms"] for v in plans.VARIANTS if v in best and v != "all"
        }
        for best in variants
        if "all" in best
    }
    if any(without.values()):
        panels.append(("step time by plans kept / with all plans", without))
    return panels


def picture(panels: list[tuple[str, Panel]], file: Path) -> None:
    """Draws bars in panels, one below the other."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update(SAME_FILE)
    import matplotlib.pyplot as plt

    if not panels:
        raise SystemExit("there is nothing to draw: no two sides have been run")
    heights = [sum(len(bars) + 1 for bars in panel.values()) for _, panel in panels]
    figure, axes = plt.subplots(
        len(panels),
        figsize=(7, 0.8 + 0.16 * sum(heights)),
        squeeze=False,
        height_ratios=heights,
        layout="constrained",
    )
    for axis, (label, panel) in zip(axes[:, 0], panels, strict=True):
        draw(axis, label, panel)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)


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


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("folder", type=Path, help="--out of step.py and plans.py")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="writes an .svg or .png")
    parser.add_argument(
        "--operators", type=int, default=6, help="operators listed per network [%(default)s]"
    )
    args = parser.parse_args()
    compared, variants = read(args.folder, "step"), read(args.folder, "plans")
    if not compared and not variants:
        parser.error(f"no results of step.py or plans.py in {args.folder}")
    cases = cases_of(compared)
    if cases:
        print(said_once(compared), steps_table(cases), sep="\n\n")
    if variants:
        print("\n" * bool(cases) + said_once(variants), end="\n\n")
        print(harness.table([plans.row(best) for best in variants]), end="\n\n")
        rows = [row for best in variants for row in plans.operator_rows(best, args.operators)]
        print(harness.table(rows))
    if args.picture:
        picture(panels_of(cases, variants), args.picture)


if __name__ == "__main__":
    main()
