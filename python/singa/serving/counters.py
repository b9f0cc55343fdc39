"""What a service counts, as text for Prometheus."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

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

    def text(self, gauges: Mapping[str, float]) -> str:
        """All counts in Prometheus' text format, version 0.0.4, and the present values in
        `gauges`, by name."""
        with self._lock:
            statuses = [
                f'singa_requests_total{{status="{status}"}} {count}'
                for status, count in sorted(self._statuses.items())
            ]
            seconds = list(self._seconds.lines("singa_request_seconds"))
            batches = list(self._batches.lines("singa_batch_pictures"))
        lines = [
            *_described("singa_requests_total", "counter", "Requests for predictions."),
            *statuses,
            *_described("singa_request_seconds", "histogram", "Time from request to answer."),
            *seconds,
            *_described("singa_batch_pictures", "histogram", "Pictures in a computed batch."),
            *batches,
        ]
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value:g}"]
        lines += [
            *_described("singa_build_info", "gauge", "The version of singa."),
            f'singa_build_info{{version="{__version__}"}} 1',
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {self._started:.3f}",
        ]
        return "\n".join(lines) + "\n"


def _described(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"
