"""Records a training step for `python -m singa launch --estimate`.

    python -m singa.report.step_profile step.json train.py --epochs 1

It runs a script until some steps are recorded, writes the file, and ends the script. The optimizer
of the model becomes a `DistOpt` of one rank that makes buckets all the same.
"""

from __future__ import annotations

import resource
import runpy
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from ..launcher.estimate.step_profile import Compute, Event, Gather, Start, StepProfile, Wait
from ..model import Model
from ..opt import DistOpt, Optimizer
from ..tensor import Tensor
from .profiling import Record, profile

#: Updates before the first one that is recorded, updates that are profiled, and that are timed.
_WARMUP, _PROFILED, _TIMED = 5, 5, 5


class _MeasuredDistOpt(DistOpt):
    """A DistOpt of one rank that does what it would do with others, and is recorded."""

    is_alone = False
    not_settings: ClassVar[tuple[str, ...]] = ("measurement",)
    measurement: Measurement

    @contextmanager
    def training_step(self, model: Model) -> Iterator[None]:
        """A step of the model; the first one of an update is noted."""
        if not self.calls_made:
            self.measurement.next_update(self.calls)
        with super().training_step(model):
            yield

    def _started(self, shards: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> Any:
        texts = [f"{self.opt.state_key(p)} {tuple(p.shape)} {p.dtype.name}\n" for p, _ in shards[0]]
        self.measurement.texts.append(len("".join(texts)))
        return super()._started(shards)


class Measurement:
    """The updates of a script: some to warm up, some profiled, some timed. Then it ends the script.

    path   of the file that gets the profile
    title  of the profile
    texts  bytes by which ranks describe each bucket to each other; buckets of a replayed update are
           those of the one before
    """

    #: What no step computes with; see `Layer.not_settings`.
    not_settings: ClassVar[tuple[str, ...]] = (
        *("texts", "_last_texts", "_updates", "_began", "_profile", "_profiles", "_times"),
    )

    def __init__(self, path: Path, title: str) -> None:
        self.path, self.title = path, title
        self.texts: list[int] = []
        self._last_texts: list[int] = []
        self._updates = 0
        self._began = 0.0
        self._profile: profile | None = None
        self._profiles: list[tuple[float, list[Record]]] = []
        self._times: list[float] = []

    def next_update(self, calls: int) -> None:
        """Notes the begin of an update of so many calls. Raises SystemExit after the last one."""
        now = time.perf_counter()
        number, self._updates = self._updates, self._updates + 1
        self._last_texts, self.texts = self.texts or self._last_texts, []
        if self._profile is not None:
            self._profile.__exit__(None, None, None)
            self._profiles.append((now - self._began, self._profile.records))
            self._profile = None
        elif number > _WARMUP + _PROFILED:
            self._times.append(now - self._began)
        if len(self._times) == _TIMED:
            self._write(calls)
            sys.exit(0)
        if _WARMUP <= number < _WARMUP + _PROFILED:
            self._profile = profile()
            self._profile.__enter__()
        self._began = time.perf_counter()

    def _write(self, calls: int) -> None:
        seconds, records = sorted(self._profiles, key=lambda each: each[0])[_PROFILED // 2]
        # Profiling takes time, too.
        scale = statistics.median(self._times) / seconds
        events = [
            Compute(event.seconds * scale) if isinstance(event, Compute) else event
            for event in events_of(records, seconds, calls, self._last_texts)
        ]
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        StepProfile(self.title, tuple(events), most).write(self.path)


def events_of(
    records: Sequence[Record], seconds: float, calls: int, texts: Sequence[int]
) -> list[Event]:
    """What a rank does in an update, from the records of one rank alone.

    seconds  how long the update took, with what comes before its first record and after its last
    calls    calls for the update; the last one starts the sums of all
    texts    bytes of the descriptions of the buckets

    Raises ValueError if there are no buckets of gradients.
    """
    own = sorted(
        [record for record in records if record.thread == records[0].thread],
        key=lambda record: record.start,
    )
    events: list[Event] = []
    sizes: list[int] = []
    mark = begin = own[0].start if own else 0.0
    for record in own:
        if record.op not in ("AllReduce", "UpdateStatistics"):
            continue
        events.append(Compute((record.start - mark) / 1e3))
        if record.op == "AllReduce":  # counts the gradients of each call, and the sums
            sizes.append(record.bytes // (calls + 1))
            events.append(Start(sizes[-1], texts[len(sizes) - 1]))
            mark = record.start + record.ms  # other ranks' sums take its place
        else:
            # Counts the statistics of each call, and the running ones before and after.
            events.append(Gather(record.bytes * calls // (calls + 2)))
            mark = record.start
    if not sizes:
        raise ValueError("[estimate] no gradients were summed in the recorded step")
    updates = sum(record.ms for record in own if record.op.endswith("Update")) / 1e3
    # A parameter is updated when the sum of its bucket is there.
    for bucket, size in enumerate(sizes):
        events += [Wait(bucket), Compute(updates * size / sum(sizes))]
    rest = seconds - (mark - begin) / 1e3 - updates
    return [*events, Compute(max(0.0, rest))]


def record(path: Path, title: str) -> None:
    """Has the next model of this process that gets an optimizer record its steps to `path`."""
    set_optimizer = Model.set_optimizer
    measurement = Measurement(path, title)

    def recorded(self: Model, optimizer: Any) -> None:
        if isinstance(optimizer, Optimizer):
            optimizer = DistOpt(optimizer)
        if isinstance(optimizer, DistOpt):
            optimizer.__dict__["measurement"] = measurement
            object.__setattr__(optimizer, "__class__", _MeasuredDistOpt)
        set_optimizer(self, optimizer)

    Model.set_optimizer = recorded  # type: ignore[method-assign]


def main(arguments: Sequence[str]) -> int:
    """Runs `FILE [-m] SCRIPT ...`; returns the exit status."""
    path, *rest = arguments
    as_module = rest[0] == "-m"
    script, *own = rest[1:] if as_module else rest
    record(Path(path), " ".join([Path(script).name, *own]))
    sys.argv = [script, *own]
    sys.path[0] = "" if as_module else str(Path(script).parent.resolve())
    if as_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")
    print(
        f"[estimate] {script} ended before {_WARMUP + _PROFILED + _TIMED} updates of its model "
        "were recorded: let it train longer, with Model.set_optimizer",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
