#!/usr/bin/env python3
"""Random faults in jobs of several ranks.

    PYTHONPATH=build/ci/python python scripts/faults.py [--count 100] [--seed 0]

Each job trains LeNet on 2 or 3 ranks (examples/cifar10/train.py under `singa launch --restarts
1`). A fault that the seed determines strikes one rank of the first start: it is killed or stopped,
raises an exception, ends, has gradients of another shape, type or order, leaves out an update, has
another learning rate, or has no room for the checkpoint. For each it is checked that

- all ranks end within the deadline and a second after the fault (five where an MPI starts them),
- the errors of all ranks that can report name the cause (where an MPI ends them at once, a line of
  the launcher does),
- the second start continues from the last checkpoint and ends with the bits of a job without fault,
- no process and no shared memory is left.

It prints a line for each job, and after --limit seconds where its ranks are. The exit status is 1
if a check failed. With SINGA_NODE_RANKS=1 the
ranks exchange data as if each were on a machine of its own. --hosts localhost has the MPI on PATH
start them, so that with SINGA_TRANSPORT=mpi it moves the data, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORT = ROOT / "test/python/support"
sys.path.insert(0, str(SUPPORT / "programs"))

from cifar10_run import outcome, write_cifar10  # noqa: E402 - tests' modules

#: What each rank has to report: the one with the fault, and the others. {rank} is the former.
#: None: it cannot report anything.
CAUSES: dict[str, tuple[str | None, str]] = {
    "kill": (None, r"rank {rank} \(process \d+\) has ended"),
    "stop": (None, r"rank {rank} \(process \d+\) is stopped"),
    "raise": ("KeyError: 'this rank is broken'", r"rank {rank}: KeyError: 'this rank is broken'"),
    "exit": (None, r"rank {rank} \(process \d+\) has ended"),
    "shape": (r"\(2, 3\)", r"\(2, 3\)"),
    "type": ("the ranks disagree in all_reduce", "the ranks disagree in all_reduce"),
    "order": ("the ranks disagree in all_reduce", "the ranks disagree in all_reduce"),
    "skip": ("the ranks disagree in",) * 2,
    "rate": (r"(learning rate|lr) 123",) * 2,
    "disk": ("File too large", "rank 0.*File too large"),
}
OF_GRADIENTS = ("shape", "type", "order")
EPOCHS, STEPS = 2, 3  # updates of an epoch
MARK = "FAULTS_MARK"  # in the environment of all processes of a job


@dataclass
class Fault:
    """One drawn fault."""

    kind: str
    ranks: int
    rank: int
    step: int

    def __str__(self) -> str:
        return f"{self.kind} in rank {self.rank} of {self.ranks} before update {self.step + 1}"


@dataclass
class Run:
    """A finished job: exit status, lines with the time of each, when the fault struck."""

    status: int
    lines: list[tuple[float, str]]
    struck: float | None
    left: list[str] = field(default_factory=list)

    def seconds_to_the_end(self) -> float | None:
        """From the fault to the end of the first start."""
        ends = [at for at, line in self.lines if line.startswith("singa launch: restart 1")]
        return None if self.struck is None or not ends else ends[0] - self.struck

    def first_start(self) -> list[str]:
        """The lines before the second start."""
        text = [line for _, line in self.lines]
        ends = [i for i, line in enumerate(text) if line.startswith("singa launch: restart 1")]
        return text[: ends[0]] if ends else text


def draw(seed: int, number: int) -> Fault:
    """The fault with this number."""
    drawn = random.Random(f"{seed}/{number}")
    kind = drawn.choice(sorted(CAUSES))
    ranks = drawn.choice((2, 2, 3))
    # Steps after the second one are replayed, without the Python that these faults change.
    last = 2 if kind in OF_GRADIENTS else EPOCHS * STEPS - 1
    rank, step = drawn.randrange(ranks), drawn.randrange(last)
    return Fault(kind, ranks, 0 if kind == "disk" else rank, step)


class Jobs:
    """Runs jobs in a folder of their own."""

    def __init__(self, folder: Path, timeout: int, hosts: str, limit: float) -> None:
        self.folder = folder
        self.timeout = timeout
        self.limit = limit
        # The launcher ends an MPI's own one that many seconds after the first failure.
        self.hosts = ["--hosts", hosts, "--grace", "3"] if hosts else []
        self.deadline = timeout + (5 if hosts else 1)
        (folder / "images").mkdir()
        self.images = write_cifar10(folder / "images")
        self._whole: dict[int, object] = {}

    def whole(self, ranks: int) -> object:
        """What a job without fault comes to."""
        if ranks not in self._whole:
            run = self.run(Fault("none", ranks, 0, 0), self.folder / f"whole-{ranks}")
            if run.status:
                raise RuntimeError("\n".join(line for _, line in run.lines))
            self._whole[ranks] = outcome(self.folder / f"whole-{ranks}")
        return self._whole[ranks]

    def run(self, fault: Fault, out: Path) -> Run:
        """Runs a job with a fault."""
        memory = set(os.listdir("/dev/shm"))
        mark = f"{os.getpid()}-{out.name}"
        time_file = self.folder / "struck"
        time_file.unlink(missing_ok=True)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "singa", "launch", "-n", str(fault.ranks)),
                *("--restarts", "1", "--timeout", str(self.timeout), *self.hosts),
                *(str(SUPPORT / "jobs" / "faulty_training.py"), fault.kind, str(fault.rank)),
                *(str(fault.step), str(ROOT / "examples/cifar10/train.py")),
                *("--data", str(self.images), "--model", "lenet", "--batch-size", "32"),
                *("--epochs", str(EPOCHS), "--checkpoint-steps", "1", "--out", str(out)),
            ],
            env=os.environ
            | {"OMP_NUM_THREADS": "1", MARK: mark, "FAULT_TIME": str(time_file)}
            | {"PYTHONFAULTHANDLER": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        killer = threading.Timer(self.limit, _end_hanging, (process, mark))
        killer.start()
        assert process.stdout is not None
        lines = [(time.monotonic(), line.rstrip("\n")) for line in process.stdout]
        status = process.wait()
        killer.cancel()
        left = [f"process {pid}" for pid in _marked(mark)]
        new = set(os.listdir("/dev/shm")) - memory
        left += [f"/dev/shm/{name}" for name in sorted(new) if f"-{process.pid}-" in name]
        struck = float(time_file.read_text()) if time_file.exists() else None
        return Run(status, lines, struck, left)

    def problems(self, fault: Fault, run: Run, out: Path) -> list[str]:
        """Which checks have failed."""
        found = [f"{name} is left" for name in run.left]
        seconds = run.seconds_to_the_end()
        if seconds is None:
            found.append("the fault did not end the first start")
        elif seconds > self.deadline:
            found.append(f"the ranks ended {seconds:.1f} s after the fault")
        own, others = CAUSES[fault.kind]
        first = rf"singa launch: rank {fault.rank} \(process \d+\) .* first"
        if fault.kind == "exit":  # with 0, so the launcher knows only what mpiexec says
            first = r"singa launch: \S*mpiexec .*(first|but only)"
        # An MPI may end the others before they can report anything.
        ended = bool(self.hosts) and any(re.search(first, line) for line in run.first_start())
        for rank in range(fault.ranks):
            cause = own if rank == fault.rank else others
            lines = [line for line in run.first_start() if line.startswith(f"[{rank}] ")]
            named = any(re.search((cause or "").format(rank=fault.rank), line) for line in lines)
            if cause and not named and not ended:
                found.append(f"rank {rank} does not name the cause: {lines[-1:]}")
        if run.status:
            found.append(f"the second start ended with {run.status}")
        elif not (out / "model.safetensors").exists():
            found.append("the job ended with 0, and without a result")
        elif outcome(out) != self.whole(fault.ranks):
            found.append("the second start ended with other bits")
        return found


def _end_hanging(process: subprocess.Popen[str], mark: str) -> None:
    """Has the ranks print where they are, then kills the job."""
    for pid in _marked(mark):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"launch" not in words and any(w.endswith(b"faulty_training.py") for w in words):
                os.kill(pid, signal.SIGABRT)
    time.sleep(3)
    process.kill()


def _marked(mark: str) -> list[int]:
    entry = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def main() -> int:
    """Runs the jobs; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, metavar="N", help="[%(default)s]")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="[%(default)s]")
    parser.add_argument(
        "--timeout", type=int, default=8, metavar="S", help="deadline of the ranks [%(default)s]"
    )
    parser.add_argument(
        "--limit", type=float, default=120, metavar="S", help="most seconds of a job [%(default)g]"
    )
    parser.add_argument("--hosts", default="", help="as of `singa launch` [one machine, no MPI]")
    args = parser.parse_args()
    failed, slowest = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="singa-faults-") as name:
        jobs = Jobs(Path(name), args.timeout, args.hosts, args.limit)
        for number in range(args.first, args.first + args.count):
            fault = draw(args.seed, number)
            jobs.whole(fault.ranks)
            out = jobs.folder / f"job-{number}"
            run = jobs.run(fault, out)
            problems = jobs.problems(fault, run, out)
            seconds = run.seconds_to_the_end()
            slowest = max(slowest, seconds or 0.0)
            took = "" if seconds is None else f", ended after {seconds:.2f} s"
            print(f"{number}: {fault}{took}: {'; '.join(problems) or 'good'}", flush=True)
            if problems:
                failed += 1
                print(*(f"    {line}" for _, line in run.lines), sep="\n", flush=True)
            shutil.rmtree(out, ignore_errors=True)
    print(f"{args.count} faults, {failed} with problems, the slowest end after {slowest:.2f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
