"""What a service counts, as text for Prometheus."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .._version import __version__

#: Upper bounds of the histograms.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PICTURES = (1, 2, 4, 8, 16, 32, 64)


class _Histogram:
    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> Iterable[str]:
        total = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self.sum!r}"
        yield f"{name}_count {total}"


class Counters:
    """Counts requests, pictures and batches. Any thread may count.

    >>> from singa import serving
    >>> counters = serving.Counters()
    >>> counters.request(200, 0.02)
    >>> counters.batch(3)
    >>> text = counters.text({"singa_waiting_pictures": 0})
    >>> [line for line in text.splitlines() if line.startswith("singa_requests_total")]
    ['singa_requests_total{status="200"} 1']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: Counter[int] = Counter()
        self._seconds, self._batches = _Histogram(_SECONDS), _Histogram(_PICTURES)
        self._refused = 0
        self._started = time.time()

    def request(self, status: int, seconds: float) -> None:
        """Counts a request for predictions that was answered with `status` after `seconds`."""
        with self._lock:
            self._statuses[status] += 1
            self._seconds.add(seconds)

    def batch(self, pictures: int) -> None:
        """Counts a batch of so many pictures that was computed."""
        with self._lock:
            self._batches.add(pictures)

    def refused_connection(self) -> None:
        """Counts a connection that was closed at once, since there were too many."""
        with self._lock:
            self._refused += 1

    def text(self, gauges: Mapping[str, float], model: Mapping[str, str] | None = None) -> str:
        """All counts in Prometheus' text format, version 0.0.4, the present values in `gauges`, by
        name, and what this process takes of the machine. `model` is the labels of
        `singa_model_info`."""
        with self._lock:
            statuses = [
                f'singa_requests_total{{status="{status}"}} {count}'
                for status, count in sorted(self._statuses.items())
            ]
            seconds = list(self._seconds.lines("singa_request_seconds"))
            batches = list(self._batches.lines("singa_batch_pictures"))
            refused = self._refused
        lines = [
            *_described("singa_requests_total", "counter", "Requests for predictions."),
            *statuses,
            *_described("singa_request_seconds", "histogram", "Time from request to answer."),
            *seconds,
            *_described("singa_batch_pictures", "histogram", "Pictures in a computed batch."),
            *batches,
            *_described("singa_connections_refused_total", "counter", "Closed: too many."),
            f"singa_connections_refused_total {refused}",
        ]
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value!r}"]
        lines += _info("singa_build_info", "The version of singa.", {"version": __version__})
        if model:
            lines += _info("singa_model_info", "The network.", model)
        for name, kind, value in self._process():
            lines += [f"# TYPE {name} {kind}", f"{name} {value!r}"]
        return "\n".join(lines) + "\n"

    def _process(self) -> Iterator[tuple[str, str, float]]:
        """Values under the names that Prometheus' own clients give them."""
        times = os.times()
        yield "process_start_time_seconds", "gauge", round(self._started, 3)
        yield "process_cpu_seconds_total", "counter", round(times.user + times.system, 2)
        with contextlib.suppress(OSError):  # there may be no /proc
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            yield "process_resident_memory_bytes", "gauge", pages * os.sysconf("SC_PAGE_SIZE")
            yield "process_open_fds", "gauge", len(os.listdir("/proc/self/fd"))


def _described(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _info(name: str, text: str, labels: Mapping[str, str]) -> list[str]:
    """A sample of 1, whose labels tell something."""
    escaped = (
        (key, value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\""))
        for key, value in labels.items()
    )
    pairs = ",".join(f'{key}="{value}"' for key, value in escaped)
    return [*_described(name, "gauge", text), f"{name}{{{pairs}}} 1"]
