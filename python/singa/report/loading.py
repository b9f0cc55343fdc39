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
from .trials import Twin

#: Batches that are timed at once, and how often. The first ones are made ahead.
_BATCHES, _ROUNDS, _AHEAD = 8, 3, 5


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
        self.ms, step = self._timed(loader)
        self.wait_ms = self.ms - step

    @property
    def share(self) -> float:
        """The share of the time that a step waits."""
        return self.wait_ms / self.ms

    def quickest(self) -> Quicker | None:
        """The loader with the best number of workers; None for one that has no other number."""
        if not isinstance(self._loader, DataLoader):
            return None
        found = []
        for workers in sorted({1, 2, get_num_threads(), 2 * get_num_threads()}):
            if workers != self._loader.num_workers:
                other = copy.copy(self._loader)
                other.num_workers = workers
                now, then = self._timed(self._loader)[0], self._timed(other)[0]
                found.append(Quicker(f"DataLoader(..., num_workers={workers})", 1 - then / now))
        return max(found, key=lambda each: each.saved)

    def _timed(self, loader: Iterable[Any]) -> tuple[float, float]:
        """Milliseconds of a step with its batch, and without one."""
        with_data, alone = [], []
        batches = _endless(copy.copy(loader), self._twin.batch)
        try:
            with self._twin.setup():
                for _ in range(_AHEAD):
                    self._twin.step(*next(batches))
                for _ in range(_ROUNDS):
                    start = time.perf_counter()
                    for _ in range(_BATCHES):
                        self._twin.step(*next(batches))
                    with_data.append((time.perf_counter() - start) / _BATCHES)
        finally:
            batches.close()
        alone = [self._twin.seconds(_BATCHES) for _ in range(_ROUNDS)]
        return 1e3 * statistics.median(with_data), 1e3 * statistics.median(alone)


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
