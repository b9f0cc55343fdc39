#!/usr/bin/env python3
"""How much longer a step takes while another program keeps one core busy.

    python benchmark/beside.py                                # two training steps, two images
    python benchmark/beside.py --onnxruntime                  # one image with ONNX Runtime, too
    python benchmark/beside.py --cases mobilenet_v2:1 --rounds 5
    python benchmark/beside.py --other OLD/build/release/python

A case is NAME for a recorded training step of a network with its usual batch, or NAME:1 for
recorded inference of one image. The other program is a loop without a system call in a session of
its own, as another user's would be. It is bound to the last of the processors that this program may
use, while singa's threads may run on all of these.

Each side runs alone and beside the other program, in turn, each time in a new process. Prints the
mean milliseconds per step, since a thread that is put aside delays a few steps by much, and the
ratio; then the same for the slowest of twenty steps. Of several processes the quickest one counts.
With two cores, of which one is shared by halves, 1.33 is the least that a ratio can be, and 2 what
one thread would reach. Nothing else may run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import harness

CASES = ("resnet20_cifar", "resnet50", "mobilenet_v2:1", "resnet50:1")
LOOP = "import os\nos.sched_setaffinity(0, [{cpu}])\nprint(flush=True)\nwhile True: pass"


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Keeps the last of this process' cores busy."""
    loop = LOOP.format(cpu=max(os.sched_getaffinity(0)))
    with subprocess.Popen(
        [sys.executable, "-c", loop], stdout=subprocess.PIPE, start_new_session=True
    ) as program:
        try:
            assert program.stdout is not None
            program.stdout.readline()  # it has begun
            yield
        finally:
            program.kill()


def step_of(args: argparse.Namespace) -> Callable[[], object]:
    from singa import bench

    name, _, one = args.case.partition(":")
    step = bench.Case(name, int(one or 0), training=not one)
    if args.side != "onnxruntime":
        step.compile(use_graph=True)
        return step
    import onnxruntime
    from singa import onnx

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.inter_op_num_threads = 1
    step.compile(use_graph=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "net.onnx")
        onnx.save(step.net, file, [step.images])
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: step.images.numpy()}
    return lambda: session.run(None, given)


def child(args: argparse.Namespace) -> dict[str, float]:
    """Measures a side. args: side, case, threads, seconds, beside."""
    import singa

    singa.set_num_threads(args.threads)
    step = step_of(args)
    with busy_core() if args.beside else contextlib.nullcontext():
        start = time.perf_counter()
        harness.seconds_of(step, 3, warmup=0)
        while time.perf_counter() - start < args.seconds / 4:  # warm
            step()
        laps: list[float] = []
        start = time.perf_counter()
        while len(laps) < 5 or time.perf_counter() - start < args.seconds:
            laps += harness.seconds_of(step, 1, warmup=0)
    laps.sort()
    return {"ms": statistics.mean(laps) * 1e3, "slow_ms": laps[len(laps) * 19 // 20] * 1e3}


def rows(case: str, args: argparse.Namespace) -> list[dict[str, str]]:
    names = ["singa"]
    if args.other:
        names.append("singa-other")
    if args.onnxruntime and ":" in case:
        names.append("onnxruntime")
    sides = {}
    for name in names:
        environment = {"PYTHONPATH": str(args.other)} if name == "singa-other" else None
        for beside in (False, True):
            given = {"side": name, "case": case, "beside": beside}
            given |= {"threads": args.threads, "seconds": args.seconds}
            sides[f"{name} beside" if beside else name] = harness.Side(
                harness.command(__file__, **given), environment
            )
    best = harness.alternate(
        sides, args.rounds, lambda text: print(f"  {case} {text}", file=sys.stderr)
    )
    table = []
    for name in names:
        quiet, beside = best[name], best[f"{name} beside"]
        row = {"case": case, "side": name}
        for key, heading in (("ms", "ms"), ("slow_ms", "1 of 20, ms")):
            row[heading] = f"{quiet[key]:.2f}"
            row[f"{heading} beside"] = f"{beside[key]:.2f}"
            row[f"{heading} ratio"] = f"{beside[key] / quiet[key]:.2f}"
        table.append(row)
    return table


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="NAME[:1]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds measured per process")
    parser.add_argument("--rounds", type=int, default=3, help="processes per side")
    parser.add_argument("--onnxruntime", action="store_true", help="one image with ONNX Runtime")
    parser.add_argument(
        "--other", type=Path, help="folder `python` of another build, for singa-other"
    )
    args = parser.parse_args()
    names = [case.removesuffix(":1") for case in args.cases]
    harness.known_models(parser, names, {})
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("this needs two processors")
    print(f"{harness.cpu_name()}, {args.threads} threads")
    print(harness.table([row for case in args.cases for row in rows(case, args)]))


if __name__ == "__main__":
    harness.main(main, child)
