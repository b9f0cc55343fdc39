"""Steps that are recorded once and then replayed in C++, without Python.

A model with `use_graph` records its first steps: operations are not executed one by one but kept
back, the memory of all temporaries is planned, and then the whole runs. When two recordings in a
row are the same, later steps replay the second: only what the host does in between, the optimizer's
step, is still Python. Each kind of step has a graph of its own (training or inference, shapes and
types of the arguments, numbers among them); all share one arena, as large as the largest needs.
Neighbouring operations become one where that saves a pass over memory; of inference more so, where
results then differ by rounding.

What cannot be replayed is executed, and a warning says why, once: results that Python looks at
within the step, tensors that it makes from host data there, numbers that change between steps,
random numbers of Python's. Before each replay `settings` compares the Python state that the step
may read: where somebody has changed it, the step is recorded anew. What the step itself sets, such
as a counter, is no such change. Python code in a step that has none of these effects is taken to do
the same at every step: it is not run again.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from . import singa_wrap as _c
from ._tensor import Tensor, wrap
from .layer import base
from .layer_names import LayerNames
from .settings import Settings, differing, exact, random_numbers

__all__ = ["GraphWarning", "StepGraphs", "host_call", "host_called"]

#: Recordings of one step that may differ before it is given up: parameters find their layouts in
#: the first ones.
_TRIES = 8
#: Kinds of steps with graphs of their own; beyond, steps are executed.
_KINDS = 16
#: Times that settings may change, for all steps of a model together.
_CHANGES = 100


class GraphWarning(UserWarning):
    """A step is executed, though it was to be replayed."""


# (segment, ready, renew): see record_update
_Update = tuple[int, Callable[[], bool], Callable[[], object]]


class _State(threading.local):
    recorder: _Recorder | None = None


_state = _State()


def host_call(function: Callable[[], Any], lent: Sequence[_c.Tensor] = ()) -> Any:
    """Calls `function`, which a replay calls again at the same place.

    For what a step does that is not the same every time, such as an optimizer with its schedule.
    `lent` are temporaries of the step that the function uses and then lets go of. Its results must
    not be used by operations of the step.
    """
    recorder = _state.recorder
    if recorder is None:
        return function()
    return recorder.host_call(function, lent)


def host_called(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose calls, within a step that is recorded, are host calls."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _state.recorder is None:
            return method(self, *args, **kwargs)
        return host_call(functools.partial(method, self, *args, **kwargs))

    return call


def record_update(ready: Callable[[], bool], renew: Callable[[], object]) -> None:
    """Has a step that is being recorded ask `ready`, before each replay, whether what was recorded
    still holds, and call `renew` when all host calls before this place have been made."""
    recorder = _state.recorder
    assert recorder is not None
    recorder.updates.append((len(recorder.calls), ready, renew))


def move_back(t: Tensor) -> None:
    """Has `t`, which is about to get new memory in the middle of a step, be in its old one at the
    end of the step if that is recorded: a replay starts from there."""
    recorder = _state.recorder
    if recorder is not None:
        recorder.moved.setdefault(id(t), (t, t.data))


def is_recording() -> bool:
    """Whether this thread records a step."""
    return _state.recorder is not None


class _Recorder:
    """One recording in progress."""

    def __init__(self, device: Any, arena: Any) -> None:
        self.recording = _c.Recording(device, arena)
        self.calls: list[Callable[[], Any]] = []
        self.updates: list[_Update] = []
        self.moved: dict[int, tuple[Tensor, _c.Tensor]] = {}  # and what they were before the step

    def run(self, step: Callable[[], Any], inputs: list[_c.Tensor]) -> Any:
        try:
            LayerNames.start(self)
            self.recording.Start(inputs)
            _state.recorder = self
            result = step()
            try:
                outputs = _tensors(result)
            except _UnknownError as kind:
                self.recording.SetObstacle(f"it returns a {kind}")
                outputs = []
            for t in outputs:
                t.creator = None  # as after a replay: no tape behind it, nor what that keeps
            for t, before in self.moved.values():
                before.CopyFrom(t.data)
                t.data = before
            self.recording.Finish([t.data for t in outputs])
        except BaseException:
            for t, before in self.moved.values():
                t.data = before
            self.recording.Abandon()
            raise
        finally:
            _state.recorder = None
            LayerNames.stop(self)
        return result

    def host_call(self, function: Callable[[], Any], lent: Sequence[_c.Tensor]) -> Any:
        self.recording.Pause(lent)
        _state.recorder = None  # calls inside this one are part of it
        result = function()
        _state.recorder = self
        self.recording.Resume()
        self.calls.append(function)
        return result


class Rewriting(NamedTuple):
    """What becomes of the operations of a recorded step; see Model.compile."""

    training: bool
    fuse: bool
    recompute: bool

    def start(self, recording: Any) -> None:
        """Before anything is recorded."""
        if self.training:
            _c.MergeGradientSums(recording)
            _c.SkipGradientCasts(recording)
        if self.fuse and self.training:
            _c.FuseTraining(recording)
        if self.recompute:
            _c.RecomputeNormalized(recording)

    def finish(self, recording: Any) -> None:
        """Before a graph is made of it."""
        _c.OptimizeForInference(recording)


class _Step:
    """All that is known of one kind of step."""

    def __init__(self) -> None:
        self.tries = 0
        self.last: Any = None  # the recording before
        self.graph: Any = None
        self.calls: list[Callable[[], Any]] = []
        self.updates: list[_Update] = []
        self.segments = 0
        self.template: Any = None  # of what the step returns
        self.reason = ""  # why it is executed
        self.settings: Settings | None = None  # for which graph or reason hold; None: for all
        self.own: set[str] = set()  # settings that the step sets itself
        self.told: dict[
            str, list[Any]
        ] = {}  # values of settings between which it makes no difference
        self.doubtful: dict[str, tuple[Any, Any]] = {}  # before and after the last change

    def forget(self) -> None:
        """Has it recorded anew."""
        self.tries, self.reason = 0, ""
        self.last = self.graph = self.settings = None
        self.calls, self.updates = [], []

    def changed(self, layer: base.Layer) -> set[str]:
        """Settings that are not what they were when it was recorded, or given up."""
        if self.settings is None or self.settings.hold():
            return set()
        now = Settings(layer, self.own)
        changed = differing(self.settings, now)
        told = self.told
        if all([now.values.get(place) in told.get(place, ()) for place in changed]):
            self.settings = now  # at the least other objects of the same values
            return set()
        then = self.settings.values
        self.doubtful = {place: (then.get(place), now.values.get(place)) for place in changed}
        return changed

    def learn(self, before: Settings, after: Settings) -> None:
        """From the first run after a change: what the step has set back itself does not matter to
        it, as when each kind of step sets what they share."""
        for place, (then, now) in self.doubtful.items():
            if before.values.get(place) == now != then == after.values.get(place):
                self.told.setdefault(place, [then]).append(now)
        self.doubtful = {}


class StepGraphs:
    """The graphs of one model. `call` is a step: recorded, replayed or executed."""

    def __init__(self, layer: base.Layer) -> None:
        self._layer = layer
        self._steps: dict[Any, _Step] = {}
        self._arenas: dict[int, Any] = {}
        self._busy = threading.Lock()
        self._changes = 0  # of settings, so far

    def call(
        self,
        function: Callable[..., Any],
        kind: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        rewriting: Rewriting,
    ) -> Any:
        """`function(*args, **kwargs)`. `kind` is what tells steps apart beside the arguments."""
        if _state.recorder is not None:
            return function(*args, **kwargs)
        ours = False
        try:
            ours = self._busy.acquire(blocking=False)
            tensors: list[Tensor] = []
            step = self._step((kind, rewriting), args, kwargs, tensors) if ours else None
            if step is None or step.reason:
                return function(*args, **kwargs)
            if step.graph is not None:
                results = _replayed(step, [t.data for t in tensors])
                if results is not None:
                    return _filled(step.template, iter(results))
                step.forget()
            return self._record(step, function, tensors, args, kwargs, rewriting)
        finally:
            if ours:
                self._busy.release()

    def _step(
        self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> _Step | None:
        """What is known of this kind of step, as the settings are now. Adds the arguments' tensors
        to `tensors`."""
        key: Any
        try:
            key = (kind, _key(args, tensors), _key(kwargs, tensors))
            step = self._steps.get(key)
        except TypeError:  # an argument that has no hash cannot be told from others
            key = (kind, None)
            step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = _Step()
            if reason := self._obstacle(key, args, kwargs):
                self._give_up(step, reason)
        elif changed := step.changed(self._layer):
            step.forget()
            self._changes += 1
            if self._changes > _CHANGES:
                place = min(changed) or type(self._layer).__name__
                self._give_up(step, f"settings changed {_CHANGES} times, the last time {place}")
        return step

    def _obstacle(self, key: Any, args: Any, kwargs: Any) -> str:
        """Why a new kind of step is not recorded at all."""
        if len(self._steps) > _KINDS:
            return f"its arguments have changed {_KINDS} times"
        try:
            found = _tensors((args, kwargs))
        except _UnknownError as unknown:
            return f"one of its arguments is a {unknown}"
        if key[1] is None:
            return "one of its arguments has no hash"
        return "" if found else "none of its arguments is a tensor"

    def _give_up(self, step: _Step, reason: str) -> None:
        """Has it executed from now on."""
        step.forget()
        step.reason = reason
        _warn(reason)

    def _record(
        self,
        step: _Step,
        function: Callable[..., Any],
        tensors: list[Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        rewriting: Rewriting,
    ) -> Any:
        device = tensors[0].device
        if device.graph_enabled():  # the step is one of many operations that are buffered
            return function(*args, **kwargs)
        inputs = _separate(tensors)
        arena = self._arenas.setdefault(device.id(), None) or _c.Arena(device)
        self._arenas[device.id()] = arena
        recorder = _Recorder(device, arena)
        rewriting.start(recorder.recording)
        given = iter(inputs)
        args, kwargs = _mapped((args, kwargs), lambda t: next(given))
        before, numbers = Settings(self._layer), random_numbers()
        result = recorder.run(lambda: function(*args, **kwargs), [t.data for t in inputs])
        after = Settings(self._layer)
        own = differing(before, after)
        settled = Settings(self._layer, own) if own else after
        step.learn(before, after)
        step.tries += 1
        recording = recorder.recording
        obstacle = after.obstacle or recording.obstacle()
        now = random_numbers()
        moved = any([now[name] != then for name, then in numbers.items()])
        # Of the sequences of everybody nobody knows which thread draws from them.
        if after.drawn(before) or (moved and threading.active_count() == 1):
            obstacle = obstacle or "it draws random numbers of Python's or NumPy's"
        difference = obstacle
        if step.last is not None and not obstacle:
            difference = _c.Graph.Difference(step.last, recording)
            if not difference:
                rewriting.finish(recording)
                step.graph, step.calls = _c.Graph(recording), recorder.calls
                step.updates, step.segments = recorder.updates, step.graph.segments()
                step.template = _mapped(result, _Like)
                step.last, step.own, step.settings = None, own, settled
                return result
        step.last = None if obstacle else recording
        # A step that sets something itself may do without the obstacle when that is there.
        if (obstacle and not own) or step.tries >= _TRIES:
            self._give_up(step, difference)
            step.own, step.settings = own, settled
        return result

    def graphs(self) -> list[Any]:
        """The `singa_wrap.Graph`s that there are."""
        return [step.graph for step in self._steps.values() if step.graph is not None]

    def prepared_bytes(self) -> int:
        """Of weights as the graphs want them; equal ones are there once."""
        return sum([arena.prepared_bytes() for arena in self._arenas.values()])

    def reasons(self) -> list[str]:
        """Why steps are executed, of those that are."""
        return [step.reason for step in self._steps.values() if step.reason]


def _replayed(step: _Step, inputs: list[_c.Tensor]) -> tuple[_c.Tensor | None, ...] | None:
    """The results of a replay; None where there can be none, and the step is to be recorded anew.
    A step that cannot be replayed any more has lost its graph then."""
    graph = step.graph
    if not step.calls and not step.updates:
        return graph.Replay(inputs)
    if not all([ready() for _, ready, _ in step.updates]) or not graph.Start(inputs):
        return None
    for i in range(step.segments):
        for segment, _, renew in step.updates:
            if segment == i:
                renew()
        graph.Run(i)
        if i < len(step.calls):
            step.calls[i]()
            if not graph.TakeBack(i):
                step.reason = "a gradient is kept beyond the optimizer's step"
    results = graph.Finish()
    if step.reason:
        step.graph, step.settings, step.calls, step.updates = None, None, [], []
        _warn(step.reason)
    return results


class MemoryPlan(dict[str, Any]):
    """See `Model.memory_plan`."""

    def __str__(self) -> str:
        rows = [*self["by_kind"].items(), ("planned", self["planned_bytes"])]
        return "\n".join([f"{name:<16}{count / 2**20:10.1f} MiB" for name, count in rows])


def memory_plan(
    graphs: StepGraphs,
    params: dict[str, Tensor],
    states: dict[str, Tensor],
    optimizer: dict[str, Any],
) -> MemoryPlan:
    """What `Model.memory_plan` returns."""
    recorded = [graph.memory() for graph in graphs.graphs()]
    if not recorded:
        reasons = "; ".join(graphs.reasons()) or "run a few steps with use_graph=True first"
        raise RuntimeError(f"[memory_plan] no step was recorded: {reasons}")
    weights = sum([t.memsize() for t in params.values()])
    statistics = sum([t.memsize() for t in states.values()]) - weights
    kept = [t for value in optimizer.values() if isinstance(value, dict) for t in value.values()]
    by_kind = {
        "parameters": weights,
        "statistics": statistics,
        "optimizer": sum([t.memsize() for t in kept if isinstance(t, Tensor)]),
        "arena": max([m.arena for m in recorded]),
        "prepared weights": graphs.prepared_bytes(),
        "fixed copies": sum([m.fixed for m in recorded]),
        "inputs": max([m.inputs for m in recorded]),
        "results": max([m.outputs for m in recorded]),
        "plans": sum([m.plans for m in recorded]),
    }
    memory = ("arena", "peak", "unshared", "inputs", "outputs", "persistent", "prepared")
    fields = (*memory, "fixed", "plans", "nodes", "merged", "in_place", "branches", "longest")
    return MemoryPlan(
        planned_bytes=sum(by_kind.values()),
        arena_bytes=by_kind["arena"],
        by_kind=by_kind,
        graphs=[{name: getattr(m, name) for name in fields} for m in recorded],
    )


def _warn(reason: str) -> None:
    warnings.warn(f"[graph] a step is executed, not replayed: {reason}", GraphWarning, stacklevel=5)


class _UnknownError(Exception):
    """A value in which tensors might hide."""


def _mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """`value` with each tensor in it replaced by function(tensor). Raises _UnknownError."""
    if isinstance(value, Tensor):
        return function(value)
    if type(value) in (list, tuple):
        return type(value)([_mapped(item, function) for item in value])
    if type(value) is dict:
        return {name: _mapped(item, function) for name, item in value.items()}
    if value is None or isinstance(value, _PLAIN):
        return value
    raise _UnknownError(type(value).__name__)


_PLAIN = (int, float, str, bytes, bool)


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _mapped(value, found.append)
    return found


def _key(value: Any, tensors: list[Tensor]) -> Any:
    """What of an argument tells steps apart. Adds its tensors to `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        raw = value.data
        made = value._creator is not None and not value.is_dummy()
        kind = (raw.type_and_place(), raw.type_and_shape())
        return (kind, value.requires_grad, value.stores_grad, made)
    if isinstance(value, list | tuple):
        return (type(value), tuple([_key(item, tensors) for item in value]))
    if isinstance(value, dict):
        return tuple([(name, _key(item, tensors)) for name, item in value.items()])
    return exact(value) or (type(value), value)


def _separate(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, each dense and alone in its memory: copies of those that are not."""
    result: list[Tensor] = []
    for t in tensors:
        raw = t.data
        if not raw.FillsBlock() or any([raw.SharesMemory(other.data) for other in result]):
            copy = wrap(raw.Clone(), t.requires_grad)
            copy.stores_grad, copy.name = t.stores_grad, t.name
            t = copy
        result.append(t)
    return result


class _Like:
    """Stands for a tensor in what a step returns."""

    def __init__(self, t: Tensor) -> None:
        self.requires_grad = t.requires_grad
        self.name = t.name

    def over(self, raw: _c.Tensor) -> Tensor:
        t = wrap(raw, self.requires_grad)
        t.name = self.name
        return t


def _filled(template: Any, raws: Iterator[_c.Tensor]) -> Any:
    if isinstance(template, _Like):
        return template.over(next(raws))
    if isinstance(template, list | tuple):
        return type(template)([_filled(item, raws) for item in template])
    if isinstance(template, dict):
        return {name: _filled(item, raws) for name, item in template.items()}
    return template
