"""When what was recorded is compared with what the code does now.

A recorded step is audited at its 4th replay, and when each number of replays is four times that of
the last audit. After the first two audits, audits take at most a part of the time.
"""

from __future__ import annotations

import math
import warnings
from time import perf_counter

from .. import singa_wrap as _c

#: Replays before the first audit, and by how many times the next ones come later.
EVERY = 4
#: Most of the time that audits take.
SHARE = 1 / 250


class GraphWarning(UserWarning):
    """A step of a model with use_graph=True is executed and not replayed."""


class Audits:
    """The time that the audits of one model take. first: the replay that is audited first."""

    def __init__(self) -> None:
        self.first = math.inf if _c.EnvironmentValue("SINGA_AUDIT") == "0" else EVERY
        self._since = perf_counter()
        self._took = 0.0

    def have_time(self, seconds: float) -> bool:
        """Whether another one of so many seconds leaves audits below their share."""
        return self._took + seconds <= SHARE * (perf_counter() - self._since)

    def add(self, seconds: float) -> None:
        """Counts an audit."""
        self._took += seconds


class Use:
    """The calls of a step, of which audits are some.

    first  calls before the first replay
    free   replays among which audits may take any part of the time
    count  calls so far, with the present one
    seen   the last one that ran the code of the step
    cost   seconds that the code took
    due    no call before this one is audited, which callers may ask with fewer calls than is_due
    """

    def __init__(self, audits: Audits, first: int = 0, free: int = EVERY**2) -> None:
        self._audits, self._free = audits, free
        self.count = self.seen = first
        self.cost = 0.0
        self.recorded()

    def recorded(self) -> None:
        """The calls after the present one are replays."""
        self._first = self.count
        self.due = self._first + self._audits.first

    def is_due(self) -> bool:
        """Whether the present call, a replay, is to be audited."""
        if self.count < self.due:
            return False
        return self.count <= self._first + self._free or self._audits.have_time(self.cost)

    def ran(self, seconds: float, is_audit: bool) -> None:
        """The present call has run the code of the step."""
        self.seen, self.cost = self.count, seconds
        if is_audit:
            self._audits.add(seconds)

    def held(self) -> None:
        """An audit in the present call has found no difference."""
        self.due = self._first + EVERY * (self.count - self._first)

    def missed(self) -> str:
        """The calls since the code ran, for a warning; empty if there are none."""
        first, last = self.seen + 1, self.count - 1
        if first > last:
            return ""
        calls = f"call {last}" if first == last else f"calls {first} to {last}"
        return f"; {calls} of the step may have missed a change"


def warn_of_audit(use: Use, difference: str, stacklevel: int) -> None:
    """Warns that an audit in the present call has found a difference."""
    warnings.warn(
        f"[graph] an audit in call {use.count} found that a replay is not what the step does now: "
        f"{difference}{use.missed()}; the step is recorded again",
        GraphWarning,
        stacklevel=stacklevel + 1,
    )
