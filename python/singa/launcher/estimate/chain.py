"""When collectives end that go from machine to machine.

The chain is that of src/distributed (docs/developers/architecture.md): partial sums go to the last
machine, the results come back, in chunks. A machine sends to both neighbours through one network
interface, which takes turns between them. Times are in seconds, sizes in bytes, and lists have an
entry for each machine.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# As in src/distributed/transport/node_memory.cc: bytes of all buffers of a kind for few machines
# and for many, and of a chunk where there are many; the most buffers of a rank of another machine.
_FEW_BYTES, _MOST_BYTES = 1 << 20, 16 << 20
_SHORTEST_CHUNK, _LONGEST_CHUNK = 16 << 10, 64 << 10
_MOST_SHARED = 16
_STATE = 36 << 10  # bytes of what a machine knows of a rank
# Longer windows are not simulated as a whole, but so many chunks.
_LONGEST_WINDOW, _PART = 62, 32
_HEADER = 48  # bytes of a message without its data
_FREE, _PARTIAL, _RESULT = range(3)


@dataclass(frozen=True)
class Network:
    """What connects the machines.

    bandwidth  bytes a second that a machine sends, to all others together
    latency    seconds from handing a message over to the moment at which the next machine uses it,
               beside bytes / bandwidth
    """

    bandwidth: float
    latency: float


#: An all-reduce: when each machine begins, and bytes → when each has the sum.
AllReduce = Callable[[Sequence[float], int, Network], list[float]]


def window(machines: int) -> tuple[int, int]:
    """Chunks that are under way at once, and the bytes of one: BuffersFor and ChunkBytes."""
    buffers = 1 << (4 * machines - 1).bit_length()
    few = _FEW_BYTES // buffers
    if few >= _LONGEST_CHUNK:
        return buffers, few
    return buffers, min(max(_MOST_BYTES // buffers, _SHORTEST_CHUNK), _LONGEST_CHUNK)


def shared_memory(ranks: int, per_machine: int) -> int:
    """Most bytes of memory that the ranks of a machine share: buffers for each of them, for partial
    sums and for results; smaller ones and a state for ranks of other machines."""
    buffers, chunk = window(-(-ranks // per_machine))
    others = (ranks - per_machine) * min(buffers, _MOST_SHARED)
    return ((per_machine + 2) * buffers + others) * chunk + ranks * _STATE


def agreed(begins: Sequence[float], text: int, network: Network) -> list[float]:
    """When each machine knows what all others begin: descriptions of `text` bytes go along the
    chain in both directions."""
    directions = 1 if len(begins) == 2 else 2
    hop = network.latency + directions * (_HEADER + text) / network.bandwidth
    return _spread(begins, hop)


def _spread(begins: Sequence[float], hop: float) -> list[float]:
    """The latest of begins[j] + |i - j| · hop, for each i."""
    right, left = list(begins), list(begins)
    for i in range(1, len(begins)):
        right[i] = max(right[i], right[i - 1] + hop)
        left[-i - 1] = max(left[-i - 1], left[-i] + hop)
    return [max(both) for both in zip(right, left, strict=True)]


def all_gather(begins: Sequence[float], size: int, network: Network) -> list[float]:
    """When each machine has the `size` bytes of all others. In the middle of the chain a machine
    sends its own to both sides, and passes on those of all others."""
    machines = len(begins)
    sent = 1 if machines == 2 else machines + 1
    return [
        end + sent * (size + _HEADER) / network.bandwidth
        for end in _spread(begins, network.latency)
    ]


def ring(begins: Sequence[float], size: int, network: Network) -> list[float]:
    """When an all-reduce ends that goes around a ring, twice, in as many parts as there are
    machines (Patarasuk and Yuan, 2009). Its sums have another order than those of one process."""
    machines = len(begins)
    part = size / machines / network.bandwidth + network.latency
    return [max(begins) + 2 * (machines - 1) * part] * machines


def chain(begins: Sequence[float], size: int, network: Network) -> list[float]:
    """When each machine has the sum of `size` bytes."""
    if not size:
        return list(begins)
    first = min(begins)
    relative = tuple(round(begin - first, 9) for begin in begins)
    return [first + end for end in _ends(relative, size, network)]


@functools.lru_cache(maxsize=256)  # most steps are alike
def _ends(begins: tuple[float, ...], size: int, network: Network) -> list[float]:
    machines = len(begins)
    buffers, chunk = window(machines)
    chunks = -(-size // chunk)
    sending = (chunk + _HEADER) / network.bandwidth
    last = (size - (chunks - 1) * chunk + _HEADER) / network.bandwidth

    def ends(count: int) -> list[float]:
        return _Pipeline(begins, count, sending, last, network.latency, buffers).run()

    # After two windows all further ones take as long as each other. In long chains a part of a
    # window is enough to see how long a chunk takes.
    window_chunks = buffers - 2
    part = 2 * window_chunks if window_chunks <= _LONGEST_WINDOW else _PART
    few = part + chunks % part
    if chunks <= few + 2 * part:
        return ends(chunks)
    early, late = ends(few), ends(few + part)
    each = [(other - one) / part for one, other in zip(early, late, strict=True)]
    found = [one + (chunks - few) * more for one, more in zip(early, each, strict=True)]
    if window_chunks <= _LONGEST_WINDOW:
        return found
    # A window begins a round trip after the one before, or later.
    round_trips = (chunks - 1) // window_chunks
    waits = round_trips * 2 * (machines - 1) * (sending + network.latency)
    hidden = round_trips * window_chunks
    return [max(end, end - hidden * more + waits) for end, more in zip(found, each, strict=True)]


class _Pipeline:
    """The chunks of one all-reduce on their way: a simulation of events.

    starts    when each machine begins
    chunks    how many there are; each takes `seconds` to be sent, the last one `last`
    latency   seconds between the end of sending and the arrival
    buffers   a machine adds its part of a chunk when it has taken the result of the one that lies
              buffers - 2 before (RunStages in collectives.cc)
    """

    def __init__(
        self,
        starts: Sequence[float],
        chunks: int,
        seconds: float,
        last: float,
        latency: float,
        buffers: int,
    ) -> None:
        machines = len(starts)
        self._starts, self._chunks, self._latency = starts, chunks, latency
        self._seconds, self._last_seconds = seconds, last
        self._ahead = buffers - 2
        self._end = machines - 1
        self._combined = [0] * machines
        self._taken = [0] * machines
        # Chunks that have come: partial sums from before, results from behind.
        self._partials = [0] * machines
        self._results = [0] * machines
        # Chunks that wait to be sent, and were sent: to the next machine, to the one before.
        self._waiting = [[0] * machines, [0] * machines]
        self._sent = [[0] * machines, [0] * machines]
        self._turn = [0] * machines
        self._busy = [False] * machines
        self._done = [0.0] * machines
        self._events: list[tuple[float, int, int]] = []

    def run(self) -> list[float]:
        """When each machine has taken the last result."""
        # Machines begin as the network becomes free for them.
        self._events = [(start, _FREE, i) for i, start in enumerate(self._starts)]
        self._busy = [True] * len(self._starts)
        heapq.heapify(self._events)
        while self._events:
            now, kind, i = heapq.heappop(self._events)
            if kind == _FREE:
                self._busy[i] = False
            elif kind == _PARTIAL:
                self._partials[i] += 1
            else:
                self._results[i] += 1
                if i > 0:
                    self._waiting[1][i] += 1
            if now >= self._starts[i]:
                self._work(i, now)
            self._send(i, now)
        return self._done

    def _work(self, i: int, now: float) -> None:
        """What the machine's own thread does, in its order, until it has to wait."""
        chunks, ahead, is_last = self._chunks, self._ahead, i == self._end
        while True:
            combined, taken = self._combined[i], self._taken[i]
            if (
                combined < chunks
                and taken > combined - ahead
                and (i == 0 or self._partials[i] > combined)
            ):
                self._combined[i] += 1
                self._waiting[1 if is_last else 0][i] += 1
            elif (
                taken < chunks
                and combined >= min(chunks, taken + ahead)
                and (combined if is_last else self._results[i]) > taken
            ):
                self._taken[i] += 1
                if taken + 1 == chunks:
                    self._done[i] = now
            else:
                return

    def _send(self, i: int, now: float) -> None:
        """Sends the next chunk if the interface is free: to both sides in turn."""
        if self._busy[i]:
            return
        for way in (self._turn[i], 1 - self._turn[i]):
            if not self._waiting[way][i]:
                continue
            self._waiting[way][i] -= 1
            self._sent[way][i] += 1
            self._turn[i] = 1 - way
            self._busy[i] = True
            last = self._sent[way][i] == self._chunks
            free = now + (self._last_seconds if last else self._seconds)
            heapq.heappush(self._events, (free, _FREE, i))
            other, kind = (i + 1, _PARTIAL) if way == 0 else (i - 1, _RESULT)
            heapq.heappush(self._events, (free + self._latency, kind, other))
            return
