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
    """One execution of an operation, or one reorder. Times in milliseconds."""

    op: str
    layer: str
    implementation: str
    shapes: str
    start: float
    ms: float
    workspace: int


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
            Record(r.op, r.layer, r.implementation, r.shapes, r.start, r.milliseconds, r.workspace)
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
        """Calls, milliseconds and share of each group, the longest first.

        by: "op" (operation and implementation), "layer" or "shape" (operation, implementation and
        shapes). limit: rows.
        """
        groups = _keys.get(by)
        if groups is None:
            raise ValueError(f"[profile] by has to be one of {', '.join(_keys)}, got {by!r}")
        sums: dict[tuple[str, ...], list[float]] = {}
        for record in self.records:
            entry = sums.setdefault(groups(record), [0, 0.0])
            entry[0] += 1
            entry[1] += record.ms
        total = self.total_ms or 1.0
        lines = [f"{'calls':>7} {'ms':>10} {'share':>6}  {by}"]
        rows = sorted(sums.items(), key=lambda item: -item[1][1])
        for key, (count, ms) in rows[:limit]:
            lines.append(f"{count:>7} {ms:>10.3f} {ms / total:>6.1%}  {'  '.join(key)}")
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
