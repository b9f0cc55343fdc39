"""Profiler: the time of each operation, with the name of its layer."""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import distributed
from .. import singa_wrap as _c
from ..files.atomic import atomic_write
from ..files.json_text import json_text
from ..raw import words
from ..raw.check import one_of
from .collector import Collector

if TYPE_CHECKING:
    from ..drawing.svg import Picture


@dataclass(frozen=True)
class Record:
    """One execution of an operation, one reorder, or one collective of the communication thread.

    op, layer       name of the operation, and of the layer in which it ran
    implementation  name of the implementation
    shapes          shapes of inputs and outputs; of a collective, its tensors
    start, ms       start and duration in milliseconds
    workspace       temporary memory in bytes
    bytes           bytes of inputs and outputs in memory, each counted once
    flops           two for each multiplication in the definition of a convolution, linear layer,
                    attention or recurrent network, also for algorithms that multiply less, such as
                    Winograd; 0 for other operations
    thread          number of the thread that did it
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
    thread: int = 0


class profile(Collector):  # noqa: N801 (used as a function)
    """Context manager that times all operations of all threads.

        with singa.profile() as p:
            model(x, y)
        print(p)                      # by operation and implementation, longest first
        print(p.table(by="layer"))
        p.flame("flame.svg")          # layers and operations over time
        p.chrome_trace("trace.json")  # for chrome://tracing or Perfetto

    `records` has a `Record` for each execution. `gap_ms` is the time between operations, in which
    Python runs. Profiles cannot be nested; entering a second one raises RuntimeError.

    >>> with singa.profile() as profile:
    ...     y = autograd.matmul(tensor.ones((2, 3)), tensor.ones((3, 4)))
    ...
    >>> len(profile.table()) > 0
    True
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
                r.thread,
            )
            for r in found
        ]
        self.records.sort(key=lambda record: record.start)

    @property
    def total_ms(self) -> float:
        """Total time of operations in milliseconds, of all threads."""
        return sum(record.ms for record in self.records)

    @property
    def gap_ms(self) -> float:
        """Time in milliseconds between the operations of the thread that ran the first one."""
        if not self.records:
            return 0.0
        first = self.records[0]
        own = [record for record in self.records if record.thread == first.thread]
        end = max(record.start + record.ms for record in own)
        return max(0.0, end - first.start - sum(record.ms for record in own))

    def table(self, by: str = "op", limit: int = 40) -> str:
        """A table of groups of operations, longest first.

        by     what to group by: "op" (operation and implementation, the default), "layer", or
               "shape" (operation, implementation and shapes)
        limit  maximum number of rows (default 40)

        Columns are the number of calls, milliseconds, share of the total time, GB/s of inputs and
        outputs, and GFLOP/s; see `Record`. Raises ValueError for another `by`.
        """
        rows = self._rows(by)
        lines = [f"{'calls':>7} {'ms':>10} {'share':>6} {'GB/s':>7} {'GFLOP/s':>8}  {by}"]
        lines += [
            f"{calls:>7} {ms:>10} {share:>6} {bandwidth:>7} {speed:>8}  {name}"
            for name, calls, ms, share, bandwidth, speed in rows[:limit]
        ]
        if len(rows) > limit:
            lines.append(f"... and {len(rows) - limit} more")
        lines.append(
            f"{len(self.records):>7} {self.total_ms:>10.3f}         in operations, "
            f"{self.gap_ms:.3f} ms between them"
        )
        return "\n".join(lines)

    def _rows(self, by: str) -> list[tuple[str, ...]]:
        """Name, calls, milliseconds, share, GB/s and GFLOP/s of each group, longest first."""
        groups = _keys[one_of("profile", "by", by, _keys)]
        found: dict[tuple[str, ...], list[Record]] = {}
        for record in self.records:
            found.setdefault(groups(record), []).append(record)
        total = self.total_ms or 1.0
        sums = [(sum(r.ms for r in records), key, records) for key, records in found.items()]
        rows: list[tuple[str, ...]] = []
        for ms, key, records in sorted(sums, key=lambda row: -row[0]):
            rates = [sum(r.bytes for r in records), sum(r.flops for r in records)]
            bandwidth, speed = (f"{n / ms / 1e6:.1f}" if n and ms else "-" for n in rates)
            figures = str(len(records)), f"{ms:.3f}", f"{ms / total:.1%}", bandwidth, speed
            rows.append(("  ".join(key), *figures))
        return rows

    def _repr_html_(self) -> str:
        from ..drawing.html import table

        heads = ["operation", "calls", "ms", "share", "GB/s", "GFLOP/s"]
        picture = str(self.flame()) if self.records else ""
        caption = f"{self.total_ms:.3f} ms in operations, {self.gap_ms:.3f} ms between them"
        return picture + table(heads, self._rows("op"), caption, numbers=range(1, 6))

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<profile: {words.counted(len(self.records), 'operation')}, {self.total_ms:.3f} ms>"

    def flame(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """A picture of the operations over time, below the layers in which they ran. Notebooks show
        it; `path` also writes it to an SVG file, in which notes show times.

        Raises ValueError if there are no records, or for a name that does not end in .svg.
        """
        from .flame import flame

        picture = flame(self.records)
        if path is not None:
            picture.save(path)
        return picture

    def chrome_trace(self, path: str | os.PathLike[str], all_ranks: bool = False) -> None:
        """Writes the records as a trace for chrome://tracing or Perfetto.

        all_ranks  whether to write one file with the records of all ranks of the job, which must be
                   on one machine (default False). All ranks call it, and rank 0 writes the file.
        """
        gathered = distributed.gather(self._events()) if all_ranks else [self._events()]
        events = [event for found in gathered for event in found]
        first = min((event["ts"] for event in events if "ts" in event), default=0.0)
        for event in events:
            if "ts" in event:
                event["ts"] -= first

        def write() -> None:
            with atomic_write(path, "w") as file:
                file.write(json_text({"traceEvents": events, "displayTimeUnit": "ms"}))

        if all_ranks:
            distributed.on_main(write, f"trace {os.fspath(path)}")
        else:
            write()

    def _events(self) -> list[dict[str, Any]]:
        """The records, as events of a process that is named after its rank if there are several."""
        rank = distributed.rank()
        process = os.getpid() if distributed.world_size() == 1 else rank
        name = {"name": "process_name", "ph": "M", "pid": process, "args": {"name": f"rank {rank}"}}
        events: list[dict[str, Any]] = [
            {
                "name": record.op,
                "ph": "X",
                "ts": record.start * 1e3,
                "dur": record.ms * 1e3,
                "pid": process,
                "tid": record.thread,
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
        return events if distributed.world_size() == 1 else [name, *events]


words.answers(profile, words.PROFILES)


def typical(run: Callable[[], object], times: int = 5) -> list[Record]:
    """The records of one call of `run`, with the median durations of `times` calls (default 5).

    Calls that did something else than the last one do not count. Call `run` before, so that its
    plans exist. Raises as entering a profile does.
    """
    calls: list[list[Record]] = []
    for _ in range(times):
        with profile() as found:
            run()
        calls.append(found.records)
    same = [[(r.op, r.layer) for r in records] for records in calls]
    alike = [records for records, ops in zip(calls, same, strict=True) if ops == same[-1]]
    return [
        dataclasses.replace(each[-1], ms=statistics.median(record.ms for record in each))
        for each in zip(*alike, strict=True)
    ]


_keys: dict[str, Callable[[Record], tuple[str, ...]]] = {
    "op": lambda record: (record.op, record.implementation),
    "layer": lambda record: (record.layer or "-",),
    "shape": lambda record: (record.op, record.implementation, record.shapes),
}
