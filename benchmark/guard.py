#!/usr/bin/env python3
"""Tells whether a build of singa trains slower than another one, or computes other bits.

    python benchmark/guard.py OLD NEW                   # folders such as OLD/build/release/python
    python benchmark/guard.py OLD NEW --models small    # only the five networks with short steps
    python benchmark/guard.py OLD NEW --out results/    # resumable: keeps each pair of processes
    python benchmark/guard.py OLD NEW --bits            # compares losses bit by bit

Each build has a checkout of its own (git worktree), because the builds of a checkout share their
Python files. On two fast cores all networks take about half an hour, the small ones ten minutes.

Times are those of recorded training steps in float32, as in step.py. Processes of the two builds
alternate, in the order OLD NEW, NEW OLD, OLD NEW ..., so that a steady drift of the machine
cancels. A process runs --steps steps, and more where these take less than --seconds. Its time is
their median. A first process, which does not count, finds this number of steps.

Before and after each process, a matrix product and the first touch of 256 MB are timed. A pair of
processes in which one of these took 1.2 times the shortest time of this run, or longer, is measured
again, at most --repeats times for each network. If too few undisturbed pairs remain, the least
disturbed ones count, and the table says so.

The ratio NEW / OLD of a network is the geometric mean over its pairs. The interval is Student's
(1908), on the logarithms x of the n ratios: mean(x) ± t(0.975, n - 1) stdev(x) / sqrt(n). An
outlier widens this interval, so it can hide a difference, but it does not make one up: of equal
builds 2.5 % are found slower where the noise is normal, and 1.8 % where a twelfth of the ratios are
outliers. The percentile bootstrap is not sound for six pairs (7 % instead of 2.5 %). The interval
of the mean over the networks adds their variances, with the degrees of freedom of Welch (1947). It
says how well these networks were measured, not what other networks would do.

"slower" means that the interval lies above 1, "faster" that it lies below. Of seven networks one is
found slower by chance in one of six comparisons of equal builds. Therefore a network that is found
slower is measured again, in a second row, and the second row decides. The mean over the networks
uses the first rows.

--bits runs test/golden/losses.py with both builds and one thread.

The exit status is 1 if a network or the mean is slower, or if bits differ, 2 if something failed,
and otherwise 0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import harness
import numpy as np
import step

SMALL = ["lenet", "resnet20_cifar", "vgg16_cifar", "resnet18_cifar", "alexnet"]
MODELS = [*SMALL, "resnet50", "vgg16"]
SIDES = ("old", "new")
#: A pair is disturbed if a probe before, between or after its processes exceeds the best by this.
DISTURBED = 1.2
LOSSES = Path(__file__).resolve().parents[1] / "test" / "golden" / "losses.py"


class Interval(NamedTuple):
    """A ratio of times and its interval of 95 %."""

    ratio: float
    low: float
    high: float


def student_quantile(dof: float) -> float:
    """The number t for which a variable of Student's distribution lies in ±t with 95 %."""
    # With x = sqrt(dof) tan(angle), the density of the angle is cos(angle) ** (dof - 1).
    angles = np.linspace(0, math.pi / 2, 20001)
    density = np.cos(angles) ** (dof - 1)
    below = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(dof) * math.tan(np.interp(0.95, below / below[-1], angles))


def interval(ratios: Sequence[float]) -> Interval:
    """Geometric mean of at least two ratios, with Student's interval on their logarithms."""
    return mean_interval([ratios])


def mean_interval(networks: Sequence[Sequence[float]]) -> Interval:
    """Geometric mean over networks, each of which has at least two ratios."""
    logs = [[math.log(ratio) for ratio in ratios] for ratios in networks]
    mean = statistics.fmean(statistics.fmean(log) for log in logs)
    variances = [statistics.variance(log) / len(log) / len(logs) ** 2 for log in logs]
    total = sum(variances)
    if total == 0:
        return Interval(math.exp(mean), math.exp(mean), math.exp(mean))
    # Welch's degrees of freedom; for one network these are n - 1.
    dof = total**2 / sum(v**2 / (len(log) - 1) for v, log in zip(variances, logs, strict=True))
    margin = student_quantile(dof) * math.sqrt(total)
    return Interval(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin))


def verdict(found: Interval) -> str:
    """What an interval says about NEW."""
    if found.low > 1:
        return "slower"
    return "faster" if found.high < 1 else "no difference found"


class Pair(NamedTuple):
    """The times of two processes, and the probes before, between and after them, in ms."""

    old: float
    new: float
    probes: list[list[float]]


def probe() -> list[float]:
    """Times a matrix product and the first touch of 256 MB, in ms: the shortest of three each."""
    factor = np.random.default_rng(0).standard_normal((2048, 2048), dtype=np.float32)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        factor @ factor
        middle = time.perf_counter()
        np.empty(256 << 20, np.uint8)[::4096] = 1
        times.append((middle - start, time.perf_counter() - middle))
    return [min(kind) * 1e3 for kind in zip(*times, strict=True)]


def disturbance(pair: Pair, best: Sequence[float]) -> float:
    """The largest ratio of a probe of the pair to the best one of its kind."""
    return max(time / least for one in pair.probes for time, least in zip(one, best, strict=True))


def least_disturbed(pairs: Sequence[Pair], best: Sequence[float], count: int) -> list[Pair]:
    """The pairs that count."""
    return sorted(pairs, key=lambda pair: disturbance(pair, best))[:count]


class Case:
    """A network with a batch, and all of its pairs. They are stored in a file, if one is given.

    Pairs lie in two lists: those of the first measurement, and those of the one that confirms it.
    """

    def __init__(self, model: str, batch: int, about: dict[str, Any], folder: Path | None) -> None:
        self.model, self.batch, self.about = model, batch, about
        self.steps = 0  # not known yet
        self.pairs: tuple[list[Pair], list[Pair]] = ([], [])
        self.file = folder and folder / f"guard-{model}-{batch or 'default'}.json"
        if self.file and self.file.exists():
            kept = json.loads(self.file.read_text())
            if kept["about"] != about:
                raise harness.FailedError(
                    f"{self.file} is about other builds, another processor, or other options. "
                    "Choose another folder for --out, or delete the file."
                )
            self.steps, self.batch = kept["steps"], kept["batch"]
            self.pairs = tuple([Pair(*pair) for pair in pairs] for pairs in kept["pairs"])

    def keep(self) -> None:
        if self.file:
            content = {"about": self.about, "batch": self.batch, "steps": self.steps}
            harness.save(self.file, content | {"pairs": self.pairs})

    def run(self, folder: Path, steps: int, warmup: int) -> dict[str, Any]:
        """Runs a process of a build."""
        given = {"side": "singa", "model": self.model, "batch": self.batch, "dtype": "float32"}
        given |= {"threads": self.about["threads"], "steps": steps, "warmup": warmup}
        command = harness.command(step.__file__, **given)
        return harness.run_child(command, {"PYTHONPATH": str(folder)})

    def find_steps(self, args: argparse.Namespace) -> None:
        """Finds how many steps a process measures."""
        trial = self.run(args.old, steps=1, warmup=2)
        self.steps = max(args.steps, math.ceil(args.seconds * 1e3 / trial["ms"]))
        self.batch = trial["batch"]

    def measure(self, again: bool, args: argparse.Namespace) -> Pair:
        """Measures one pair more."""
        if not self.steps:
            self.find_steps(args)
        pairs = self.pairs[again]
        order = SIDES if len(pairs) % 2 == 0 else SIDES[::-1]
        times, probes = {}, [probe()]
        for side in order:
            times[side] = self.run(getattr(args, side), self.steps, args.warmup)["ms"]
            probes.append(probe())
        pair = Pair(times["old"], times["new"], probes)
        pairs.append(pair)
        self.keep()
        return pair


class Guard:
    """All cases of a run."""

    def __init__(self, cases: list[Case], args: argparse.Namespace) -> None:
        self.cases, self.args = cases, args

    def best(self) -> list[float]:
        """The shortest time of each kind of probe in this run."""
        probes = [
            one
            for case in self.cases
            for pairs in case.pairs
            for pair in pairs
            for one in pair.probes
        ]
        return [min(kind) for kind in zip(*probes, strict=True)]

    def disturbed(self, pairs: Sequence[Pair]) -> int:
        best = self.best()
        return sum(disturbance(pair, best) >= DISTURBED for pair in pairs)

    def measure(self, case: Case, again: bool = False) -> None:
        """Measures pairs of a case until enough of them are undisturbed, or --repeats are used."""
        pairs, rounds = case.pairs[again], self.args.rounds
        while True:
            quiet = len(pairs) - self.disturbed(pairs)
            if quiet >= rounds or len(pairs) >= rounds + self.args.repeats:
                return
            pair = case.measure(again, self.args)
            text = f"  {case.model} {case.batch}{', again' if again else ''}, {case.steps} steps: "
            text += f"{pair.old:.2f} and {pair.new:.2f} ms, ratio {pair.new / pair.old:.4f}"
            if (excess := disturbance(pair, self.best())) >= DISTURBED:
                text += f"; disturbed: a probe took {excess:.2f} times the best one"
            print(text, file=sys.stderr)

    def counted(self, case: Case, again: bool = False) -> list[Pair]:
        return least_disturbed(case.pairs[again], self.best(), self.args.rounds)

    def row(self, case: Case, again: bool = False) -> dict[str, str]:
        pairs = self.counted(case, again)
        found = interval(ratios_of(pairs))
        count = str(len(pairs))
        if len(case.pairs[again]) > len(pairs):
            count += f" of {len(case.pairs[again])}"
        if disturbed := self.disturbed(pairs):
            count += f", {disturbed} disturbed"
        return {
            "network": case.model + (", again" if again else ""),
            "batch": str(case.batch),
            "old, ms": f"{statistics.median(pair.old for pair in pairs):.2f}",
            "new, ms": f"{statistics.median(pair.new for pair in pairs):.2f}",
            **ratio_cells(found),
            "pairs": count,
            "verdict": verdict(found),
        }

    def run(self) -> bool:
        """Measures all cases and prints a table. Returns whether NEW is slower."""
        # The best probe may come late, so all pairs are judged again at the end.
        for case in [*self.cases, *self.cases]:
            self.measure(case)
        rows, slower = [], False
        for case in self.cases:
            rows.append(self.row(case))
            if rows[-1]["verdict"] == "slower":
                self.measure(case, again=True)
                rows.append(self.row(case, again=True))
                slower |= rows[-1]["verdict"] == "slower"
        if len(self.cases) > 1:
            found = mean_interval([ratios_of(self.counted(case)) for case in self.cases])
            mean = dict.fromkeys(rows[0], "") | ratio_cells(found)
            rows.append(mean | {"network": "geometric mean", "verdict": verdict(found)})
            slower |= verdict(found) == "slower"
        product, touch = self.best()
        print(f"best probes: matrix product {product:.1f} ms, first touch {touch:.1f} ms\n")
        print(harness.table(rows))
        return slower


def ratios_of(pairs: Sequence[Pair]) -> list[float]:
    return [pair.new / pair.old for pair in pairs]


def ratio_cells(found: Interval) -> dict[str, str]:
    return {"new / old": f"{found.ratio:.4f}", "95 %": f"{found.low:.4f} to {found.high:.4f}"}


def describe(_: argparse.Namespace) -> dict[str, Any]:
    """The build that this process imports. The digest is that of its Python files and libraries."""
    import singa
    from singa import models

    package = Path(singa.__file__).parent
    files = {
        str(Path(folder, name).relative_to(package)): Path(folder, name)
        for folder, _, names in os.walk(package, followlinks=True)
        for name in names
        if name.endswith(".py")
    }
    mapped = re.findall(r"/.*\.so[.\d]*$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    libraries = {Path(name).name: Path(name) for name in mapped}
    files |= {name: libraries[name] for name in libraries if re.search("singa|dnnl|blas", name)}
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(name.encode() + file.read_bytes())
    return {
        "folder": str(package.parent),
        "version": singa.__version__,
        "digest": digest.hexdigest()[:12],
        "models": models.names(),
    }


def builds(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Describes both builds. Raises FailedError if a process imports another one."""
    found = {}
    for side in SIDES:
        folder = getattr(args, side)
        found[side] = harness.run_child(harness.command(__file__), {"PYTHONPATH": str(folder)})
        if Path(found[side]["folder"]).resolve() != folder:
            raise harness.FailedError(
                f"there is no package singa in {folder}: Python imports {found[side]['folder']}"
            )
    return found


def losses(folder: Path, models: Sequence[str]) -> dict[str, list[str]]:
    """The losses of a build: {network: [float.hex()]}."""
    environment = {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return harness.run_child([sys.executable, str(LOSSES), *models], environment)


def first_difference(old: Sequence[str], new: Sequence[str]) -> str:
    """Compares losses of a network."""
    for number, (ours, theirs) in enumerate(zip(old, new, strict=True), start=1):
        if ours != theirs:
            values = " and ".join(f"{float.fromhex(loss):.9g}" for loss in (ours, theirs))
            return f"differ from step {number} on: {values}"
    return f"{len(old)} losses are equal"


def compare_bits(args: argparse.Namespace) -> bool:
    """Prints a table of the networks whose losses differ. Returns whether there are any."""
    found = {side: losses(getattr(args, side), args.models) for side in SIDES}
    rows = [
        {"network": model, "bits": first_difference(found["old"][model], found["new"][model])}
        for model in args.models
    ]
    print(harness.table(rows))
    return found["old"] != found["new"]


def parsed() -> argparse.Namespace:
    parser = harness.steps_parser(__doc__, models=["all"], warmup=3)
    parser.add_argument("old", type=Path, help="folder of Python packages of the older build")
    parser.add_argument("new", type=Path, help="folder of Python packages of the newer build")
    parser.add_argument("--bits", action="store_true", help="compare losses instead of times")
    parser.add_argument(
        "--seconds", type=float, default=2, help="least measured time of a process [%(default)s]"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=6,
        help="pairs of each network that are measured again if they are disturbed [%(default)s]",
    )
    parser.set_defaults(rounds=6)
    args = parser.parse_args()
    args.old, args.new = args.old.resolve(), args.new.resolve()
    if args.rounds < 2:
        parser.error("--rounds must be at least 2: an interval needs two pairs")
    for folder in (args.old, args.new):
        if not (folder / "singa").is_dir():
            parser.error(f"{folder} has no package singa")
    groups = {"all": MODELS, "small": SMALL}
    args.models = [name for given in args.models for name in groups.get(given, [given])]
    return args


def main() -> int:
    args = parsed()
    try:
        found = builds(args)
        if unknown := set(args.models) - set(found["old"]["models"]) - {"all", "small"}:
            raise harness.FailedError(f"OLD has no network {sorted(unknown)}")
        print(f"{harness.cpu_name()}, threads: {1 if args.bits else args.threads}")
        print(f"Python {platform.python_version()}, NumPy {np.__version__}")
        for side in SIDES:
            build = found[side]
            print(f"{side}: singa {build['version']}, build {build['digest']}", flush=True)
        if args.bits:
            return int(compare_bits(args))
        about = {"cpu": harness.cpu_name(), "threads": args.threads, "warmup": args.warmup}
        about |= {"steps": args.steps, "seconds": args.seconds}
        about |= {side: found[side]["digest"] for side in SIDES}
        cases = [Case(m, batch, about, args.out) for m in args.models for batch in args.batches]
        return int(Guard(cases, args).run())
    except harness.FailedError as error:
        print(f"guard.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    harness.main(main, describe)
