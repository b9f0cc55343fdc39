"""How long the steps of a model wait for data."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..data import DataLoader
from ..raw.process import get_num_threads
from .trials import Twin, interval

#: Batches that are timed at once, the first ones, which are made ahead, and turns.
_BATCHES, _AHEAD, _TURNS = 8, 5, 5


@dataclass(frozen=True)
class Quicker:
    """Another loader: what to write, and the share of the time of a batch that it saves."""

    line: str
    saved: float


class Waiting:
    """Steps on the batches of a loader, beside steps on one batch.

    ms       of a step with its batch
    wait_ms  the part of it that a step waits
    """

    def __init__(self, twin: Twin, loader: Iterable[Any]) -> None:
        if iter(loader) is loader:
            raise ValueError("the loader is an iterator, which would be used up")
        self._twin, self._loader = twin, loader
        turns = [(self._with_data(loader), self._alone()) for _ in range(_TURNS)]
        self.ms = statistics.median(ms for ms, _ in turns)
        self.wait_ms = statistics.median(ms - step for ms, step in turns)

    @property
    def share(self) -> float:
        """The share of the time that a step waits."""
        return self.wait_ms / self.ms

    def quickest(self, end: float) -> Quicker | None:
        """The loader with another number of workers that clearly saves most; None if there is none
        or no time is left at `end`, a value of time.monotonic()."""
        if not isinstance(self._loader, DataLoader):
            return None
        best, least = None, self.ms
        for workers in sorted({1, get_num_threads(), 2 * get_num_threads()}):
            if workers == self._loader.num_workers or time.monotonic() > end:
                continue
            other = copy.copy(self._loader)
            other.num_workers = workers
            if (ms := self._with_data(other)) < least:
                best, least = other, ms
        if best is None:
            return None
        ratios = [self._with_data(best) / self._with_data(self._loader) for _ in range(_TURNS)]
        if interval(ratios)[1] >= 1:
            return None
        line = f"DataLoader(..., num_workers={best.num_workers})"
        return Quicker(line, 1 - statistics.median(ratios))

    def _with_data(self, loader: Iterable[Any]) -> float:
        """Milliseconds of a step with its batch."""
        batches = _endless(copy.copy(loader), self._twin.batch)
        try:
            with self._twin.setup():
                for _ in range(_AHEAD):
                    self._twin.step(*next(batches))
                start = time.perf_counter()
                for _ in range(_BATCHES):
                    self._twin.step(*next(batches))
                return 1e3 * (time.perf_counter() - start) / _BATCHES
        finally:
            batches.close()

    def _alone(self) -> float:
        """Milliseconds of a step without one."""
        return 1e3 * self._twin.seconds(_BATCHES)


def _endless(loader: Iterable[Any], like: Sequence[Any]) -> Generator[tuple[Any, ...], None, None]:
    """Batches of the shapes of `like`, of one pass after the other."""
    shapes = [tuple(x.shape) for x in like]
    while True:
        found = False
        for batch in loader:
            if [tuple(x.shape) for x in batch] == shapes:
                found = True
                yield tuple(batch)
        if not found:
            raise ValueError(f"the loader yields no batch of shapes {shapes}")
