"""Recorded steps of an accelerated module: forward and backward as one step, which waits between
them, and inference as another.

The first call of a kind is executed, which tells what the host has to know and which results the
loss depends on. The second one is recorded, without running, and replayed, like all that follow. A
replay that waits for gradients holds the memory of all training steps of the module: calls in the
meantime are executed, and so is what cannot be recorded. Parameters, buffers and inputs are inputs
of a training step, so they may lie elsewhere in each call. Inference keeps parameters in the
layouts of kernels until they are written, and is recorded again where they lie elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..graph.audits import Audits, Use, warn_of_audit
from ..tape.behaviour import behaviour
from ..tape.step_recording import StepRecording, is_recording_step
from ..tape.step_recording import state as current

if TYPE_CHECKING:
    from .export import Exported
    from .runs import Run

#: Most kinds of calls of one graph that are kept; others take the places of those not called for
#: longest.
_MOST_KINDS = 16
#: Times that a replay may refuse its inputs before the kind is executed.
_TRIES = 4


class Step:
    """One kind of call of a graph.

    used         for each result: whether the last backward had a gradient of it; () before that
    apart        for each result: whether no gradient goes back through it; [] before the first run
    graphs       the recorded steps, by `used`
    kept         what must live as long as the key of the kind
    is_executed  whether the kind is not recorded
    """

    def __init__(self) -> None:
        self.was_run = False
        self.used: tuple[bool, ...] = ()
        self.apart: list[bool] = []
        self.graphs: dict[tuple[bool, ...], Recorded] = {}
        self.kept: list[_c.Tensor] = []
        self.tries = 0
        self.is_executed = False


class _Place:
    """The memory of recorded steps, which one of them at a time may use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.arena: Any = None


class Recorded:
    """A recorded step.

    leads    whether each input and trained parameter gets a gradient
    outline  of what it replays, to compare an audit with
    plans    CountForgottenPlans before it was recorded
    use      its calls: one that was executed, and replays
    """

    def __init__(self, operations: Any, leads: list[bool], plans: int, use: Use) -> None:
        self.graph, self.leads = _c.Graph(operations), leads
        self.outline, self.plans = operations.Outline(), plans
        self.use = use


class Waiting:
    """A replay that waits for gradients. It frees its place when it ends, or is forgotten."""

    def __init__(self, place: _Place, step: Recorded, used: tuple[bool, ...]) -> None:
        self.used = used
        self._step = step
        self._place: _Place | None = place

    def gradients(self, ends: Sequence[_c.Tensor | None]) -> list[_c.Tensor | None]:
        """Those of the inputs and trained parameters, for those of the results."""
        try:
            found = iter(self._step.graph.RunFromTurn(ends))
            return [next(found) if leads else None for leads in self._step.leads]
        finally:
            self.end()

    def end(self) -> None:
        """Frees the place."""
        place, self._place = self._place, None
        if place is not None:
            place.lock.release()

    __del__ = end


class Replays:
    """The recorded steps of one module. replayed: how many calls were replayed."""

    def __init__(self, audits: Audits) -> None:
        self.replayed = 0
        self._audits = audits
        self._training, self._inference = _Place(), _Place()
        self._lock = threading.Lock()

    def forward(self, run: Run) -> Sequence[_c.Tensor] | None:
        """The results of a replay; None if the call is to be executed. `run.waiting` goes on."""
        step = self._step(run)
        if step is None:
            return None
        place = self._training if run.wanted else self._inference
        if not place.lock.acquire(blocking=False):
            return None
        waiting = None
        try:
            used = step.used  # which the backward of another thread may change
            recorded = step.graphs.get(used)
            if recorded is None or not self._holds(run, recorded, used, place):
                recorded = self._recorded(run, step, used, place)
            if recorded is None:
                return None
            graph = recorded.graph
            results = graph.RunToTurn(run.raws) if run.wanted else graph.Replay(run.inputs)
            if results is None:  # a plan was refused, or it writes to a buffer with gaps
                step.graphs.pop(used, None)
                step.tries += 1
                step.is_executed = step.tries == _TRIES
                return None
            self.replayed += 1
            run.apart = step.apart
            if run.wanted:
                waiting = run.waiting = Waiting(place, recorded, used)
            return results
        finally:
            if waiting is None:
                place.lock.release()

    def _step(self, run: Run) -> Step | None:
        """The state of this kind of call; None if it is to be executed."""
        graph = run.graph
        if is_recording_step() or run.raws[0].device().graph_enabled():
            return None
        if not run.wanted and (graph.training or graph.exported.written):
            return None
        key = run.kind(), behaviour.name, tuple(_c.Selection())
        with self._lock:
            step = graph.steps.pop(key, None)
            if step is None:
                step = Step()
                step.is_executed = _keeps_state(graph.exported)
            graph.steps[key] = step
            while len(graph.steps) > _MOST_KINDS:
                del graph.steps[next(iter(graph.steps))]
        run.step = step
        if not step.was_run:
            step.was_run = True
            return None
        return None if step.is_executed or (run.wanted and not step.used) else step

    def _recorded(
        self, run: Run, step: Step, used: tuple[bool, ...], place: _Place
    ) -> Recorded | None:
        """Records the step twice. None, from now on, if it cannot be replayed."""
        if place.arena is None:
            place.arena = _c.Arena(run.raws[0].device())
        plans = _c.CountForgottenPlans()
        with restored(run):  # a recording in which the host reads values runs
            first, _ = _recording(run, used, place.arena)
            begin = perf_counter()
            second, leads = _recording(run, used, place.arena)
        if _c.Graph.Difference(first, second):
            step.is_executed = True
            return None
        if not run.wanted:
            step.kept = run.raws
        use = Use(self._audits, first=1)
        use.count += 1
        use.ran(perf_counter() - begin, is_audit=False)
        recorded = step.graphs[used] = Recorded(second, leads, plans, use)
        return recorded

    def _holds(self, run: Run, recorded: Recorded, used: tuple[bool, ...], place: _Place) -> bool:
        """Whether a replay is what an executed step does. Now and then this looks, and warns where
        it is not."""
        use = recorded.use
        use.count += 1
        if not use.is_due():
            return True
        begin, plans = perf_counter(), _c.CountForgottenPlans()
        with restored(run):  # as above
            operations, leads = _recording(run, used, place.arena)
        took = perf_counter() - begin
        found = _c.Graph.Difference(recorded.outline, operations)
        if not found and leads != recorded.leads:
            found = "other inputs get gradients"
        # Equal calls have other plans where the recorded ones have left the cache.
        if found and recorded.plans == _c.CountForgottenPlans():
            warn_of_audit(use, found, stacklevel=2)
        use.ran(took, is_audit=True)
        if not found:
            use.held()
            recorded.plans = plans
        return not found


def _recording(run: Run, used: tuple[bool, ...], arena: Any) -> tuple[Any, list[bool]]:
    """The operations of a step, which do not run, and `Recorded.leads`."""
    trains = bool(run.wanted)
    recording = StepRecording(_c.Recording(run.raws[0].device(), arena))
    operations = recording.operations
    _c.UsePasses(operations, trains, trains, False, trains, None)
    raws = [raw if raw.is_contiguous() else raw.Clone() for raw in run.raws]
    try:
        operations.Start(raws if trains else raws[: len(run.inputs)])
        current.recording = recording
        results = run.results(raws)
        if trains:
            # All results are handed out, with gradients for those that are used.
            dys = operations.Turn([y.data for y in results])
            ends = [dy if is_used else None for dy, is_used in zip(dys, used, strict=True)]
            del dys
            found = run.gradients(results, ends)
            del ends
        else:
            found = [y.data.Clone() for y in results]
        del results
        leads = [g is not None for g in found]
        operations.Finish([g for g in found if g is not None], False)
    except BaseException:
        operations.Abandon()
        raise
    finally:
        current.recording = None
    return operations, leads


@contextmanager
def restored(run: Run) -> Iterator[None]:
    """Gives the device its random numbers back, and buffers that change within it their values. It
    leaves the others untouched: a backward of another thread may need them."""
    device = run.raws[0].device()
    position = device.random_state()
    kept = [(raw, raw.version(), raw.Clone()) for raw in run.buffers]
    try:
        yield
    finally:
        device.set_random_state(position)
        for raw, version, before in kept:
            if raw.version() != version:
                raw.CopyFrom(before)


def _keeps_state(exported: Exported) -> bool:
    """Whether results depend on buffers that a call changes: its forward could not be executed
    again."""
    depends = {*exported.written}
    for node in exported.graph.nodes:
        if depends & {*node.inputs}:
            depends |= {*node.outputs}
    count = len(exported.graph.outputs) - len(exported.written)
    return bool(depends & {*exported.graph.outputs[:count]})
