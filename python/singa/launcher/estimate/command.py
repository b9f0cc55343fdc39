"""The command line `python -m singa launch --estimate`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..command_line import at_least, command_parser, positive
from ..environment import FOREIGN, Environment
from ..interpreter import finding_singa, interpreter
from . import picture, step_profile
from .chain import Network, chain, ring
from .simulation import Estimate, estimate

_EXCHANGES = {"chain": chain, "ring": ring}
_MOST = 1024
_DESCRIPTION = """\
Estimates how long a step of training takes on 2 to 1,024 ranks, before the machines are there.

SCRIPT is run here, as one rank on all cores, until some steps are recorded: when the buckets of
gradients are ready, and what is computed around them. The recorded step, in the file of --profile,
is then simulated on machines that a network connects. Without SCRIPT the file is read.

    python -m singa launch --estimate --profile step.json train.py --epochs 1
    python -m singa launch --estimate --profile step.json --mbit 10000

The table shows for each number of ranks the time of a step, how much of it computes, how long the
exchange of gradients takes by itself, how much of that is hidden behind computations, and the
memory of a machine. docs/clusters.md says what is simulated, and how near measurements are.
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments. Exits with status 2 if they are wrong."""
    usage = "--profile FILE [options] [SCRIPT ...]"
    parser = command_parser("launch --estimate", _DESCRIPTION, usage, allow_abbrev=False)
    add = parser.add_argument
    add("--profile", type=Path, required=True, metavar="FILE", help="the recorded step (JSON)")
    add(
        "--mbit",
        type=positive,
        default=1000.0,
        metavar="X",
        help="Mbit a second that a machine sends, of 10^6 bits [%(default)g]",
    )
    add(
        "--latency",
        type=positive,
        default=0.1,
        metavar="MS",
        help="milliseconds of a short message from one rank to the next machine's [%(default)g]",
    )
    add(
        "--per-machine",
        type=at_least(1, int),
        default=1,
        metavar="P",
        help="ranks of a machine [%(default)d]",
    )
    add(
        "--exchange",
        choices=_EXCHANGES,
        default="chain",
        help="chain: as singa exchanges data; ring: as NCCL does, for comparison [%(default)s]",
    )
    add(
        "--measured",
        type=_measurement,
        action="append",
        default=[],
        metavar="RANKS=MS",
        help="a step that was measured, to be shown with the estimate; may be repeated",
    )
    add("--picture", type=_picture, metavar="FILE", help="draws the curve: a .png, .svg or .pdf")
    add("-m", "--module", action="store_true", help="SCRIPT is the name of a module")
    add("script", nargs="?", metavar="SCRIPT", help="a program that trains, and its arguments")
    add("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.script and not parsed.module and not Path(parsed.script).is_file():
        parser.error(f"there is no file {parsed.script}")
    return parsed


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns the exit status."""
    options = parse(arguments)
    try:
        if options.script and (status := _record(options)):
            return status
        profile = step_profile.read(options.profile)
        network = Network(options.mbit * 1e6 / 8, options.latency * 1e-3)
        measured = dict(options.measured)
        title = (
            f"{profile.title}: {profile.gradients / 1e6:.1f} MB of gradients, {options.mbit:g} "
            f"Mbit/s, {options.latency:g} ms, {options.exchange}"
        )
        print(title)
        print(_row("ranks", "step ms", "computes", "exchange ms", "hidden", "MiB", "measured ms"))
        found = []
        for ranks in _counts(measured, options.per_machine):
            each = estimate(
                profile, ranks, network, options.per_machine, _EXCHANGES[options.exchange]
            )
            found.append(each)
            print(_figures(each, measured.get(ranks)), flush=True)
        print("All figures but measured ones are simulated.")
        if options.picture:
            picture.draw(options.picture, found, measured, title)
    except (ImportError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _record(options: argparse.Namespace) -> int:
    """Runs the script until a step is recorded; returns an exit status."""
    variables = finding_singa(os.environ)
    for name in (*FOREIGN, *Environment(job="-", meeting="-").variables()):
        variables.pop(name, None)
    kind = ["-m"] if options.module else []
    command = [*interpreter(), "-m", "singa.report.step_profile", str(options.profile)]
    command += [*kind, options.script, *options.arguments]
    status = subprocess.run(command, env=variables, check=False).returncode
    return status if status >= 0 else 128 - status


def _counts(measured: Mapping[int, float], per_machine: int) -> list[int]:
    """Numbers of ranks: powers of two on two machines and more, and those that were measured."""
    counts = {1 << power for power in range(1, _MOST.bit_length())} | set(measured)
    return sorted(count for count in counts if count > per_machine)


def _figures(one: Estimate, measured: float | None) -> str:
    beside = ""
    if measured is not None:
        beside = f"{1e3 * measured:.1f} ({100 * (one.step / measured - 1):+.0f} %)"
    return _row(
        str(one.ranks),
        f"{1e3 * one.step:.1f}",
        f"{round(100 * one.efficiency)} %",
        f"{1e3 * one.exchange:.1f}",
        f"{round(100 * one.hidden)} %",
        f"{one.memory / (1 << 20):.0f}",
        beside,
    )


def _row(*cells: str) -> str:
    widths = (5, 10, 8, 11, 6, 8, 16)
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _measurement(text: str) -> tuple[int, float]:
    """(ranks, seconds)."""
    ranks, _, milliseconds = text.partition("=")
    count, time = at_least(1, int)(ranks), positive(milliseconds)
    if count < 2:
        raise argparse.ArgumentTypeError(f"one rank exchanges nothing, got {text!r}")
    return int(count), time * 1e-3


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in picture.FORMATS:
        names = ", ".join(picture.FORMATS)
        raise argparse.ArgumentTypeError(f"must end in {names}, got {text!r}")
    return path
