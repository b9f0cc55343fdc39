"""Capture of steps, and their replay in C++ without Python.

A model with `use_graph` captures its first steps. A capture records the operations of a step
without executing them, plans the memory of all temporaries, and then runs the recording. When two
consecutive captures are equal, later steps replay the second. Only work of the host between
operations, such as the optimizer's step, still runs in Python. There is one graph for each kind of
step: training or inference, and the shapes, types and plain values of the arguments. All graphs
share one arena, which has the size that the largest needs. Neighbouring operations are merged where
that saves a pass over memory. Inference merges more, with results that differ by rounding.

A step that cannot be replayed is executed, with one warning that gives the reason. Reasons are
results that Python reads within the step, tensors that it creates from host data, numbers that
change between steps, and random numbers of Python or NumPy. Before each replay, `settings` compares
the Python state that the step may read. If other code has changed it, the step is captured again.
Changes by the step itself, such as a counter, do not count. All other Python code in a step is
assumed to do the same in every step, and does not run in replays.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import singa_wrap as _c
from ..layer import base
from ..layer.names import LayerNames
from ..tape.capture import Capture, Update
from ..tape.capture import state as current
from ..tape.tensor import Tensor, wrap
from .settings import Settings, differing, exact, random_numbers

__all__ = ["GraphWarning", "StepGraphs"]

#: Captures of one step that may differ before it is always executed. The first ones differ because
#: parameters change to other layouts.
_TRIES = 8
#: Maximum number of graphs. Further kinds of steps are executed.
_KINDS = 16
#: Number of times that settings may change, for all steps of a model together.
_CHANGES = 100


class GraphWarning(UserWarning):
    """A step of a model with use_graph=True is executed and not replayed."""


def _run(capture: Capture, step: Callable[[], Any], inputs: list[_c.Tensor]) -> Any:
    """Captures `step`, runs the recording, and returns the result of `step`."""
    recording = capture.recording
    try:
        LayerNames.start(capture)
        recording.Start(inputs)
        current.capture = capture
        result = step()
        try:
            outputs = _tensors(result)
        except _UnknownError as kind:
            recording.SetObstacle(f"it returns a {kind}")
            outputs = []
        for t in outputs:
            t.creator = None  # results have no tape, as after a replay
        for t, before in capture.moved.values():
            before.CopyFrom(t.data)
            t.data = before
        recording.Finish([t.data for t in outputs])
    except BaseException:
        for t, before in capture.moved.values():
            t.data = before
        recording.Abandon()
        raise
    finally:
        current.capture = None
        LayerNames.stop(capture)
    return result


class Rewriting(NamedTuple):
    """Which passes rewrite the operations of a captured step; see Model.compile. The fields are
    those of C++'s PassOptions."""

    training: bool
    fuse: bool
    recompute: bool


class _Step:
    """State of one kind of step."""

    def __init__(self) -> None:
        self.tries = 0
        self.last: Any = None  # the previous capture
        self.graph: Any = None
        self.calls: list[Callable[[], Any]] = []
        self.updates: list[Update] = []
        self.segments = 0
        self.template: Any = None  # structure of the step's result
        self.reason = ""  # why the step is executed; empty if it is not
        # The settings for which graph or reason are valid. None: any settings.
        self.settings: Settings | None = None
        self.own: set[str] = set()  # settings that the step itself changes
        # Values of settings that are known to be equivalent for the step.
        self.told: dict[str, list[Any]] = {}
        self.doubtful: dict[str, tuple[Any, Any]] = {}  # values before and after the last change

    def forget(self) -> None:
        """Discards the graph, so that the step is captured again."""
        self.tries, self.reason = 0, ""
        self.last = self.graph = self.settings = None
        self.calls, self.updates = [], []

    def changed(self, layer: base.Layer) -> set[str]:
        """Settings that have changed since the graph or the reason was set."""
        if self.settings is None or self.settings.hold():
            return set()
        now = Settings(layer, self.own)
        changed = differing(self.settings, now)
        told = self.told
        if all([now.values.get(place) in told.get(place, ()) for place in changed]):
            self.settings = now  # objects may have been replaced by equal ones
            return set()
        then = self.settings.values
        self.doubtful = {place: (then.get(place), now.values.get(place)) for place in changed}
        return changed

    def learn(self, before: Settings, after: Settings) -> None:
        """Learns from the first run after a change which values are equivalent.

        A step that sets a changed value back does not depend on it. This happens when two kinds of
        steps set the same attribute.
        """
        for place, (then, now) in self.doubtful.items():
            if before.values.get(place) == now != then == after.values.get(place):
                self.told.setdefault(place, [then]).append(now)
        self.doubtful = {}


class StepGraphs:
    """The graphs of one model. `call` captures, replays or executes a step."""

    def __init__(self, layer: base.Layer) -> None:
        self._of = weakref.ref(layer)  # which has the graphs: it is freed without the collector
        self._steps: dict[Any, _Step] = {}
        self._arenas: dict[int, Any] = {}
        self._busy = threading.Lock()
        self._changes = 0  # of settings, so far

    @property
    def _layer(self) -> base.Layer:
        layer = self._of()
        assert layer is not None  # the layer itself calls
        return layer

    def clear(self) -> None:
        """Drops all graphs, and what they refer to."""
        self._steps.clear()
        self._arenas.clear()

    def call(
        self,
        function: Callable[..., Any],
        kind: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        rewriting: Rewriting,
    ) -> Any:
        """Returns `function(*args, **kwargs)`, which is captured, replayed or executed.

        `kind` and the arguments together choose the graph.
        """
        if current.capture is not None:
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
            return self._capture(step, function, tensors, args, kwargs, rewriting)
        finally:
            if ours:
                self._busy.release()

    def _step(
        self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> _Step | None:
        """The state of this kind of step, reset if settings have changed.

        Adds the tensors among the arguments to `tensors`.
        """
        key: Any
        try:
            key = (kind, _key(args, tensors), _key(kwargs, tensors))
            step = self._steps.get(key)
        except TypeError:  # an argument that is not hashable
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
        """Why a new kind of step cannot be captured; empty if it can."""
        if len(self._steps) > _KINDS:
            return f"its arguments have changed {_KINDS} times"
        try:
            found = _tensors((args, kwargs))
        except _UnknownError as unknown:
            return f"one of its arguments is a {unknown}"
        if key[1] is None:
            return "one of its arguments is not hashable"
        return "" if found else "none of its arguments is a tensor"

    def _give_up(self, step: _Step, reason: str) -> None:
        """Executes the step from now on, and warns."""
        step.forget()
        step.reason = reason
        _warn(reason)

    def _capture(
        self,
        step: _Step,
        function: Callable[..., Any],
        tensors: list[Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        rewriting: Rewriting,
    ) -> Any:
        device = tensors[0].device
        if device.graph_enabled():  # the device already buffers operations of several steps
            return function(*args, **kwargs)
        inputs = _separate(tensors)
        arena = self._arenas.setdefault(device.id(), None) or _c.Arena(device)
        self._arenas[device.id()] = arena
        capture = Capture(_c.Recording(device, arena))
        _c.UsePasses(capture.recording, *rewriting)
        given = iter(inputs)
        args, kwargs = _mapped((args, kwargs), lambda t: next(given))
        before, numbers = Settings(self._layer), random_numbers()
        result = _run(capture, lambda: function(*args, **kwargs), [t.data for t in inputs])
        after = Settings(self._layer)
        own = differing(before, after)
        settled = Settings(self._layer, own) if own else after
        step.learn(before, after)
        step.tries += 1
        recording = capture.recording
        obstacle = after.obstacle or recording.obstacle()
        now = random_numbers()
        moved = any([now[name] != then for name, then in numbers.items()])
        # With several threads it is unknown which one drew from the global generators.
        if after.drawn(before) or (moved and threading.active_count() == 1):
            obstacle = obstacle or "it draws random numbers of Python's or NumPy's"
        difference = obstacle
        if step.last is not None and not obstacle:
            difference = _c.Graph.Difference(step.last, recording)
            if not difference:
                graph = _c.Graph(recording)
                step.calls, step.updates = capture.calls, capture.updates
                step.segments, step.template = graph.segments(), _mapped(result, _Like)
                step.last, step.own, step.settings = None, own, settled
                step.graph = graph  # last, so that an interrupt leaves no incomplete state
                return result
        step.last = None if obstacle else recording
        # A step that sets something in its first run may have no obstacle in the next one.
        if (obstacle and not own) or step.tries >= _TRIES:
            self._give_up(step, difference)
            step.own, step.settings = own, settled
        return result

    def graphs(self) -> list[Any]:
        """All `singa_wrap.Graph` objects of the model."""
        return [step.graph for step in self._steps.values() if step.graph is not None]

    def prepared_bytes(self) -> int:
        """Bytes of weights in the layouts that graphs need. Graphs share equal ones."""
        return sum([arena.prepared_bytes() for arena in self._arenas.values()])

    def reasons(self) -> list[str]:
        """The reasons of all steps that are executed."""
        return [step.reason for step in self._steps.values() if step.reason]


def _replayed(step: _Step, inputs: list[_c.Tensor]) -> tuple[Any, ...] | None:
    """Replays a step and returns its results. Returns None if it must be captured again.

    If the step cannot be replayed any more, its graph is removed and its reason is set.
    """
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


def _warn(reason: str) -> None:
    warnings.warn(f"[graph] a step is executed, not replayed: {reason}", GraphWarning, stacklevel=5)


class _UnknownError(Exception):
    """A value of a type that may contain tensors, but cannot be searched for them."""


def _mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """`value` with each tensor in it replaced by function(tensor).

    Raises _UnknownError for objects other than tensors, containers and plain values.
    """
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
    """The part of a step's key that comes from an argument. Adds its tensors to `tensors`."""
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
    """The tensors, with copies for those that are not dense or share memory with another one."""
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
    """Placeholder for a tensor in the structure of a step's result."""

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
