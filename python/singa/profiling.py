"""Where the time of a program goes, operation by operation, named by layer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import singa_wrap as _c
from .layer_names import Collector


@dataclass(frozen=True)
class Record:
    """One execution of an operation, or one reorder. Times in milliseconds.

    bytes: of its inputs and outputs as they lie in memory, each counted once. flops: two for each
    product of a convolution, linear map or recurrent network by its definition, whatever its
    implementation computes (Winograd's method multiplies less); 0 for all else.
    """

    op: str
    layer: str
    implementation: str
    shapes: str
    start: float
    ms: float
    workspace: int
    bytes: int = 0
    flops: int = 0


class profile(Collector):  # noqa: N801 (used as a function)
    """Context: times every operation, of all threads, until it is left.

        with singa.profile() as p:
            model(x, y)
        print(p)                      # by operation and implementation, the longest first
        print(p.table(by="layer"))
        p.chrome_trace("trace.json")  # for chrome://tracing or Perfetto

    `records` holds every execution. What Python does between operations is not in them: `gap_ms`
    says how much time that is. Contexts do not nest: raises RuntimeError.
    """

    _name = "profile"
    _switch = staticmethod(_c.SetProfiling)
    _take = staticmethod(_c.TakeProfile)

    def __init__(self) -> None:
        self.records: list[Record] = []

    def _collect(self, found: Any) -> None:
        self.records = [
            Record(
                r.op,
                r.layer,
                r.implementation,
                r.shapes,
                r.start,
                r.milliseconds,
                r.workspace,
                r.bytes,
                2 * r.multiply_adds,
            )
            for r in found
        ]
        self.records.sort(key=lambda record: record.start)

    @property
    def total_ms(self) -> float:
        """Time in operations."""
        return sum(record.ms for record in self.records)

    @property
    def gap_ms(self) -> float:
        """Time between the first operation's start and the last one's end that is in none. Of a
        program that computes in one thread."""
        if not self.records:
            return 0.0
        end = max(record.start + record.ms for record in self.records)
        return max(0.0, end - self.records[0].start - self.total_ms)

    def table(self, by: str = "op", limit: int = 40) -> str:
        """Of each group, the longest first: calls, milliseconds, share of the time, and what it
        makes of the machine: GB/s of its inputs and outputs, and GFLOP/s (see `Record`).

        by: "op" (operation and implementation), "layer" or "shape" (operation, implementation and
        shapes). limit: rows.
        """
        groups = _keys.get(by)
        if groups is None:
            raise ValueError(f"[profile] by has to be one of {', '.join(_keys)}, got {by!r}")
        found: dict[tuple[str, ...], list[Record]] = {}
        for record in self.records:
            found.setdefault(groups(record), []).append(record)
        total = self.total_ms or 1.0
        lines = [f"{'calls':>7} {'ms':>10} {'share':>6} {'GB/s':>7} {'GFLOP/s':>8}  {by}"]
        sums = [(sum(r.ms for r in records), key, records) for key, records in found.items()]
        rows = sorted(sums, key=lambda row: -row[0])
        for ms, key, records in rows[:limit]:
            rates = [sum(r.bytes for r in records), sum(r.flops for r in records)]
            bandwidth, speed = (f"{n / ms / 1e6:.1f}" if n and ms else "-" for n in rates)
            lines.append(
                f"{len(records):>7} {ms:>10.3f} {ms / total:>6.1%} {bandwidth:>7} {speed:>8}  "
                + "  ".join(key)
            )
        if len(rows) > limit:
            lines.append(f"... and {len(rows) - limit} more")
        lines.append(
            f"{len(self.records):>7} {self.total_ms:>10.3f}         in operations, "
            f"{self.gap_ms:.3f} ms between them"
        )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the records as a trace that Chrome and Perfetto show."""
        from .training.files import atomic_write

        first = self.records[0].start if self.records else 0.0
        events = [
            {
                "name": record.op,
                "ph": "X",
                "ts": (record.start - first) * 1e3,
                "dur": record.ms * 1e3,
                "pid": os.getpid(),
                "tid": 0,
                "args": {
                    "layer": record.layer,
                    "implementation": record.implementation,
                    "shapes": record.shapes,
                    "workspace": record.workspace,
                    "bytes": record.bytes,
                    "flops": record.flops,
                },
            }
            for record in self.records
        ]
        with atomic_write(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)


_keys: dict[str, Callable[[Record], tuple[str, ...]]] = {
    "op": lambda record: (record.op, record.implementation),
    "layer": lambda record: (record.layer or "-",),
    "shape": lambda record: (record.op, record.implementation, record.shapes),
}
