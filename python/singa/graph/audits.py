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
    """The time that the audits of one model take. first: replays before the first audit."""

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


def missed(seen: int, count: int) -> str:
    """The calls after `seen` and before `count`, for a warning; empty if there are none."""
    if seen + 1 >= count:
        return ""
    calls = f"call {seen + 1}" if seen + 2 == count else f"calls {seen + 1} to {count - 1}"
    return f"; {calls} of the step may have missed a change"


def warn_of_audit(seen: int, count: int, difference: str, stacklevel: int) -> None:
    """Warns that the call `count` found a difference. `seen`: the last one before that ran the
    code of the step."""
    warnings.warn(
        f"[graph] an audit in call {count} found that a replay is not what the step does now: "
        f"{difference}{missed(seen, count)}; the step is recorded again",
        GraphWarning,
        stacklevel=stacklevel + 1,
    )
