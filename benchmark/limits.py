#!/usr/bin/env python3
"""How far each operation of a training step is from what the processor can do.

    python benchmark/limits.py                                  # the seven networks
    python benchmark/limits.py --models resnet50 --rows 20
    python benchmark/limits.py --models resnet50 --picture resnet50.svg

The least time of an operation is the larger one of arithmetic ÷ peak and bytes ÷ bandwidth
(Williams, Waterman, Patterson: Roofline, 2009). The peak is the best rate of products of matrices
of 1024 to 3072 rows, so it is what code reaches, and not the number of the data sheet. The
bandwidth is that of the copy of as many bytes, which for few bytes is a cache's. Both are measured
here, before the networks, by the same threads.

Beside it stands the time taken: the median over --steps replays. `least / taken` above 1 means that
the operation multiplied less than its definition says, as Winograd's method does, or that its
operands were still in a cache. An operation that is computed as part of another one has no row.

Rows with equal operation, implementation and shapes are added up. Rows come in the order of the
time that is lost.
"""

from __future__ import annotations

import argparse
import bisect
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import harness
import numpy as np
from guard import MODELS

#: Bytes that a measured copy reads and writes.
COPIES = [2**power for power in range(14, 29, 2)]


class Limits(NamedTuple):
    """What the processor can do: GFLOP/s, and GB/s of copies of COPIES bytes."""

    peak: float
    bandwidths: list[float]

    def least_ms(self, bytes_: int, flops: int) -> float:
        at = min(bisect.bisect_left(COPIES, bytes_), len(COPIES) - 1)
        return max(flops / self.peak, bytes_ / self.bandwidths[at]) / 1e6


class Row(NamedTuple):
    name: str
    calls: int
    taken: float
    least: float
    bytes: int
    flops: int


def best_rate(run: Callable[[], object], field: str, times: int = 9) -> float:
    """The largest sum of this field of the records of a call, in units of 1e9 a second."""
    import singa

    rates = []
    for _ in range(times):
        with singa.profile() as profile:
            run()
        rates.append(sum(getattr(r, field) for r in profile.records) / profile.total_ms / 1e6)
    return max(rates)


def measured_limits(dtype: str) -> Limits:
    from singa import autograd, tensor

    random = np.random.default_rng(0)

    def of(*shape: int) -> tensor.Tensor:
        return tensor.from_numpy(random.standard_normal(shape, dtype=np.float32)).as_type(dtype)

    squares = [of(size, size) for size in (1024, 2048, 3072)]
    rows = [of(count // 2 // of(1).memsize()) for count in COPIES]
    return Limits(
        max(best_rate(partial(autograd.matmul, x, x), "flops") for x in squares),
        [best_rate(x.clone, "bytes", 30) for x in rows],
    )


def measured_rows(name: str, batch: int, args: argparse.Namespace, limits: Limits) -> list[Row]:
    """Rows of a training step, with the largest loss first."""
    from singa import bench
    from singa.report.profiling import Record, typical

    step = bench.Case(name, batch)
    step.compile(use_graph=True, dtype=args.dtype)
    for _ in range(args.warmup):
        step()
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in typical(step, args.steps):
        groups[f"{record.op}  {record.implementation}  {record.shapes}"].append(record)
    rows = [
        Row(
            title,
            len(records),
            sum(record.ms for record in records),
            sum(limits.least_ms(record.bytes, record.flops) for record in records),
            sum(record.bytes for record in records),
            sum(record.flops for record in records),
        )
        for title, records in groups.items()
    ]
    return sorted(rows, key=lambda row: row.least - row.taken)


def line(row: Row) -> dict[str, str]:
    return {
        "taken, ms": f"{row.taken:.2f}",
        "least, ms": f"{row.least:.2f}",
        "least / taken": f"{row.least / row.taken:.2f}",
        "GFLOP/s": f"{row.flops / row.taken / 1e6:.0f}",
        "GB/s": f"{row.bytes / row.taken / 1e6:.1f}",
        "calls": str(row.calls),
        "operation": row.name,
    }


def total(name: str, rows: list[Row]) -> Row:
    columns = list(zip(*(row[1:] for row in rows), strict=True))
    return Row(name, *map(sum, columns))


def draw(rows: list[Row], limits: Limits, title: str, path: Path) -> None:
    """The roofline: GFLOP/s over FLOP per byte, with an area for the time that was taken."""
    from matplotlib.figure import Figure

    figure = Figure((7, 4.5), layout="constrained")
    axes = figure.subplots()
    shown = [row for row in rows if row.flops]
    intensity = np.array([row.flops / row.bytes for row in shown])
    rates = np.array([row.flops / row.taken / 1e6 for row in shown])
    whole = sum(row.taken for row in rows)
    areas = [2000 * row.taken / whole for row in shown]
    axes.scatter(intensity, rates, areas, alpha=0.5, linewidths=0)
    roof = np.geomspace(min(intensity) / 2, max(intensity) * 2, 200)
    axes.plot(roof, np.minimum(roof * limits.bandwidths[-1], limits.peak), color="black")
    axes.set(xscale="log", yscale="log", xlabel="FLOP / byte", ylabel="GFLOP/s", title=title)
    figure.savefig(path)


def main() -> None:
    parser = harness.steps_parser(__doc__, models=MODELS, warmup=5)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rows", type=int, default=8, help="rows of each network [%(default)s]")
    parser.add_argument("--picture", type=Path, help="writes the roofline of one network")
    args = parser.parse_args()
    from singa import models, set_num_threads

    names = harness.known_models(parser, args.models, {"all": models.names()})
    if args.picture and len(names) != 1:
        parser.error("--picture takes one network")
    set_num_threads(args.threads)
    limits = measured_limits(args.dtype)
    print(f"{harness.cpu_name()}, {args.threads} threads, {args.dtype}: {limits.peak:.0f} GFLOP/s")
    copies = zip(COPIES, limits.bandwidths, strict=True)
    print(f"copies, GB/s: {', '.join(f'{n // 1024} KiB {rate:.0f}' for n, rate in copies)}")
    sums = []
    for name in names:
        for batch in args.batches:
            rows = measured_rows(name, batch, args, limits)
            sums.append(total(f"{name} {batch or ''}".strip(), rows))
            print(f"\n{sums[-1].name}\n" + harness.table([line(row) for row in rows[: args.rows]]))
            if args.picture:
                draw(rows, limits, sums[-1].name, args.picture)
    print("\n" + harness.table([line(row) for row in sums]))


if __name__ == "__main__":
    main()
