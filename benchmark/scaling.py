#!/usr/bin/env python3
"""How far singa's own loops divide among more threads than this machine has.

    python benchmark/scaling.py                                   # three training steps, one image
    python benchmark/scaling.py --cases resnet50 --threads 4 64 --rows 20

A case is NAME for a training step of a network with its usual batch, or NAME:1 for one image. It
runs with plans for so many threads, but the threads of each loop run one after the other on one
core, which takes the time of the whole loop. A loop is divided among the threads that it asks for:
all of them, or fewer where it has too few pieces or too little work. Their pieces take about
the same time, so on as many cores it takes that part of its time.

Prints the part of the step that own loops take on one thread, and how many times as fast they are
together on so many threads; then, for the largest number, the operations whose loops use fewer
threads and lose the most time by that. oneDNN's loops take one thread here, and are left out.

A small library, which is compiled first and preloaded, stands between singa and OpenMP.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import harness
from counts import compiled_library

CASES = ("resnet20_cifar", "resnet50", "vit_tiny_16", "mobilenet_v2:1")
#: Milliseconds of a loop below which it does not matter how it is divided.
SMALL = 0.02
SOURCE = """
#include <dlfcn.h>
#include <time.h>
struct loop { double start, milliseconds, threads; };
struct loop loops[1 << 20];
int count;
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}
void GOMP_parallel(void (*run)(void*), void* data, unsigned threads, unsigned flags) {
  static void (*call)(void (*)(void*), void*, unsigned, unsigned);
  if (!call) *(void**)&call = dlsym(dlopen("libgomp.so.1", RTLD_LAZY), "GOMP_parallel");
  struct loop loop = {now(), 0, threads};
  call(run, data, 1, flags);
  loop.milliseconds = now() - loop.start;
  if (count < 1 << 20) loops[count++] = loop;
}
void omp_set_num_threads(int threads) { (void)threads; }
int omp_get_max_threads(void) { return 1; }
"""


class Loop(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("start", "milliseconds", "threads")]


def child(args: argparse.Namespace) -> dict:
    """Runs a case with the preloaded library. args: case, threads."""
    import singa
    from singa import bench

    singa.set_num_threads(args.threads)
    name, _, one = args.case.partition(":")
    step = bench.Case(name, int(one or 0), training=not one)
    step.compile(use_graph=True)
    library = ctypes.CDLL(None)
    count = ctypes.c_int.in_dll(library, "count")
    best: dict = {}
    for number in range(3 + args.steps):
        count.value = 0
        with singa.profile() as profile:
            step()
        if number < 3 or (best and profile.total_ms >= best["ms"]):
            continue
        loops = list((Loop * count.value).in_dll(library, "loops"))
        rows, at = [], 0
        for record in profile.records:
            while at < len(loops) and loops[at].start < record.start:
                at += 1
            while at < len(loops) and loops[at].start < record.start + record.ms:
                text = f"{record.op}, {record.implementation}, {record.shapes}"
                rows.append((text, loops[at].milliseconds, int(loops[at].threads)))
                at += 1
        best = {"ms": profile.total_ms, "loops": rows}
    return best


def measured(case: str, threads: int, library: Path, steps: int) -> dict:
    environment = {
        "LD_PRELOAD": str(library),
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
    }
    command = harness.command(__file__, case=case, threads=threads, steps=steps)
    return harness.run_child(command, environment)


def lost_rows(loops: Sequence[tuple[str, float, int]], threads: int) -> dict[str, list[float]]:
    """For each operation the milliseconds that it loses, those on one thread, and its threads."""
    rows: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, float(threads)])
    for text, ms, used in loops:
        row = rows[text]
        if used < threads and ms >= SMALL:
            row[0] += ms / used - ms / threads
            row[2] = min(row[2], used)
        row[1] += ms
    return rows


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="NAME[:1]")
    parser.add_argument("--threads", nargs="+", type=int, default=[4, 16, 64])
    parser.add_argument("--steps", type=int, default=2, help="measured steps per process")
    parser.add_argument("--rows", type=int, default=6, help="operations listed for each case")
    args = parser.parse_args()
    harness.known_models(parser, [case.removesuffix(":1") for case in args.cases], {})
    table, worst = [], []
    with tempfile.TemporaryDirectory() as folder:
        library = compiled_library(Path(folder), SOURCE)
        for case in args.cases:
            row = {"case": case}
            for threads in args.threads:
                run = measured(case, threads, library, args.steps)
                own = sum(ms for _, ms, _ in run["loops"])
                divided = sum(ms / used for _, ms, used in run["loops"])
                row["ms on one thread"] = f"{run['ms']:.1f}"
                row["own loops"] = f"{own / run['ms']:.0%}"
                row[f"{threads} threads"] = f"{own / divided:.1f}"
            table.append(row)
            lost = sorted(lost_rows(run["loops"], threads).items(), key=lambda item: -item[1][0])
            worst += [
                {
                    "case": case,
                    "operation": text,
                    "ms": f"{ms:.2f}",
                    "threads": f"{used:.0f} of {threads}",
                    "lost ms": f"{less:.2f}",
                }
                for text, (less, ms, used) in lost[: args.rows]
                if less > 0
            ]
    print(harness.table(table), end="\n\n")
    print(harness.table(worst))


if __name__ == "__main__":
    harness.main(main, child)
