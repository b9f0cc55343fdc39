"""Steps of a model in two setups, timed in turns on copies of the model."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import singa_wrap as _c
from .. import tuning
from ..graph.audits import GraphWarning
from ..model import Model
from ..tape import grad_mode

#: Steps until one is recorded, at most: parameters move to other layouts in the first ones.
_SETTLING = 10
#: Least and most turns of a comparison, and the least duration of one in seconds.
_FEW, _TURNS, _TURN = 5, 25, 0.02


class Twin:
    """A copy of a model that runs steps on a copy of a batch, in some setup.

    change     changes the copy
    plain      the layouts of images (`singa.set_layout`); None: as they are
    choices    the table of `singa.tuning`; None: as it is
    use_graph, dtype, recompute  as for `Model.compile`; None: as they are
    memory_limit  in bytes, with recompute="auto"; None: as it is

    Raises what the step raises.
    """

    def __init__(
        self,
        model: Model,
        batch: Sequence[Any],
        *,
        change: Callable[[Model], None] | None = None,
        plain: bool | None = None,
        choices: Sequence[dict[str, str]] | None = None,
        use_graph: bool | None = None,
        dtype: Any = None,
        recompute: bool | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self._plain, self._choices = plain, choices
        self.batch: Sequence[Any] = copy.deepcopy(batch)
        self.model = copy.deepcopy(model)
        self.model.training = model.training
        self.model.graph_mode = model.graph_mode if use_graph is None else use_graph
        if dtype is not None:
            self.model._autocast_dtype = dtype
        if recompute is not None:
            self.model._recompute = recompute
        if memory_limit is not None:
            self.model._recompute, self.model._memory_limit = True, memory_limit
        if change is not None:
            change(self.model)
        self.device = next(iter(model.get_states().values())).device
        quiet = contextlib.redirect_stderr(io.StringIO())  # what a memory limit takes
        with self.setup(), warnings.catch_warnings(), quiet:
            warnings.simplefilter("ignore", GraphWarning)
            for _ in range(_SETTLING if self.model.graph_mode else 3):
                self.step()
                if self.recorded or self.obstacle:
                    break
            self.step()

    @property
    def recorded(self) -> bool:
        """Whether steps are replayed."""
        return bool(self.model._graphs().graphs())

    @property
    def obstacle(self) -> str:
        """Why steps are executed although they should be recorded."""
        return "; ".join(self.model._graphs().reasons())

    def bytes(self) -> int | None:
        """The planned memory of the recorded step; None if none was recorded."""
        return self.model.memory_plan()["planned_bytes"] if self.recorded else None

    @contextlib.contextmanager
    def setup(self) -> Iterator[None]:
        """Context manager: the settings of the process and of the thread for steps."""
        plain, training = _c.PlainLayouts(), grad_mode.training()
        with contextlib.ExitStack() as stack:
            stack.callback(grad_mode.set_training, training)
            grad_mode.set_training(self.model.training)
            if self._plain is not None:
                stack.callback(_c.SetPlainLayouts, plain)
                _c.SetPlainLayouts(self._plain)
            if self._choices is not None:
                stack.enter_context(tuning.only_choices(self._choices))
            yield

    def step(self, *batch: Any) -> None:
        """Runs a step to its end; on its own batch by default."""
        self.model(*(batch or self.batch))
        self.device.Sync()

    def seconds(self, steps: int) -> float:
        """Seconds of a step, on average over some."""
        with self.setup():
            if self._plain is not None or self._choices is not None:
                self.step()  # an executed step makes plans anew
            start = time.perf_counter()
            for _ in range(steps):
                self.step()
            return (time.perf_counter() - start) / steps


@dataclass(frozen=True)
class Comparison:
    """How long one step takes beside another one.

    seconds    of the other one, median
    ratio      median over the turns
    low, high  95 % interval of the median; of few turns, the least and the largest ratio
    """

    seconds: float
    ratio: float
    low: float
    high: float


def compare(base: Twin, other: Twin, limit: float, worthwhile: float = 0.97) -> Comparison:
    """Times steps of `other` beside those of `base`, in turns, so that load on the machine meets
    both.

    limit       seconds, which at least five turns may exceed
    worthwhile  it stops early once the ratio is clearly above this
    """
    end = time.monotonic() + limit
    once = base.seconds(1)
    steps = max(1, math.ceil(_TURN / max(once, 1e-6)))
    times: list[float] = []
    ratios: list[float] = []
    while len(ratios) < _TURNS and (len(ratios) < _FEW or time.monotonic() < end):
        if len(ratios) % 2:
            second, first = other.seconds(steps), base.seconds(steps)
        else:
            first, second = base.seconds(steps), other.seconds(steps)
        times.append(first)
        ratios.append(second / first)
        if len(ratios) >= _FEW and interval(ratios)[0] > worthwhile:
            break
    low, high = interval(ratios)
    return Comparison(statistics.median(times), statistics.median(ratios), low, high)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics: from rank n / 2 - 0.98 √n to the same
    rank from above. It is that of the extremes for less than six values."""
    ordered = sorted(values)
    rank = max(math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))), 0)
    return ordered[rank], ordered[-1 - rank]
