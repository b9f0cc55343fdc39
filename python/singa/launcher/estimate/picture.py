"""The curve of a step's time over the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .simulation import Estimate

FORMATS = (".png", ".svg", ".pdf")


def draw(
    path: Path, estimates: Sequence[Estimate], measured: Mapping[int, float], title: str
) -> None:
    """Saves a picture: seconds of a step, and the part of them that computes, over the ranks.

    path      name of the picture, which ends in one of FORMATS
    measured  seconds of steps that were measured, by the number of ranks. Beyond the most ranks the
              curve is dashed, since it is simulated alone.

    Raises ImportError if matplotlib is not installed, and OSError.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "[estimate] a picture needs matplotlib: pip install matplotlib"
        ) from error

    figure = Figure(figsize=(9.6, 3.9), dpi=144, layout="constrained")
    FigureCanvasAgg(figure)
    times, shares = figure.subplots(1, 2)
    ranks = [each.ranks for each in estimates]
    confirmed = [each for each in estimates if each.ranks <= max(measured, default=0)]
    beyond = estimates[max(len(confirmed) - 1, 0) :]
    for axes, of in ((times, _milliseconds), (shares, _efficiency)):
        label = "simulated, up to the largest measurement"
        if confirmed:
            at = [each.ranks for each in confirmed]
            axes.plot(at, [of(each) for each in confirmed], "#4477aa", label=label)
        at = [each.ranks for each in beyond]
        axes.plot(at, [of(each) for each in beyond], "#4477aa", ls="--", label="simulated")
        axes.set_xscale("log", base=2)
        axes.set_xticks(ranks, [str(rank) for rank in ranks])
        axes.set_xlabel("ranks")
        axes.grid(color="#e4e4e4")
    compute = estimates[0].compute
    times.axhline(compute * 1e3, color="#228833", lw=1, label="computation alone")
    if measured:
        points = sorted(measured.items())
        at = [rank for rank, _ in points]
        times.plot(at, [1e3 * step for _, step in points], "o", color="#cc6633", label="measured")
        shares.plot(at, [100 * compute / step for _, step in points], "o", color="#cc6633")
    times.set_ylabel("ms of a step")
    times.set_ylim(bottom=0)
    times.legend(frameon=False)
    shares.set_ylabel("% of a step that computes")
    shares.set_ylim(0, 105)
    figure.suptitle(title)
    figure.savefig(path)


def _milliseconds(one: Estimate) -> float:
    return 1e3 * one.step


def _efficiency(one: Estimate) -> float:
    return 100 * one.efficiency
