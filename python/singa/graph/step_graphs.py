"""Recording of steps, and their replay in C++ without Python.

A model with `use_graph` records its first steps. A recording notes the operations of a step
without executing them, plans the memory of all temporaries, and then runs them. When two
consecutive recordings are equal, later steps replay the second. Only work of the host between
operations, such as the optimizer's step, still runs in Python. There is one graph for each kind of
step: training or inference, and the shapes, types and plain values of the arguments. All graphs
share one arena, which has the size that the largest needs. Neighbouring operations are merged where
that saves a pass over memory. Inference merges more, with results that differ by rounding.

A step is replayed only if nothing that `settings` sees has changed since it was recorded, and if it
has changed nothing there itself, such as a counter, apart from what its graph does. If other code
has changed something, the step is recorded again. Elements of arguments that the host reads tell
kinds of steps apart, like plain values. A step that cannot be replayed is executed, with one
warning that gives the reason: changes by the step itself, results that Python reads within the
step, tensors that it creates from host data, numbers that change between steps, and random numbers
of Python or NumPy. All other Python code in a step is assumed to do the same in every step, and
does not run in replays.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import singa_wrap as _c
from ..layer import base, hooks
from ..layer.names import LayerNames
from ..tape.step_recording import StepRecording, Update
from ..tape.step_recording import state as current
from ..tape.tensor import Tensor, wrap
from .settings import Settings, differing
from .tokens import Drawing, elements, exact, random_numbers

#: Captures of one step that may differ before it is always executed. The first ones differ because
#: parameters change to other layouts.
_TRIES = 8
#: Maximum number of graphs. Further kinds of steps are executed.
_KINDS = 16
#: Number of times that settings may change, for all steps of a model together.
_CHANGES = 100


class GraphWarning(UserWarning):
    """A step of a model with use_graph=True is executed and not replayed."""


def _run(recording: StepRecording, step: Callable[[], Any], inputs: list[_c.Tensor]) -> Any:
    """Records `step`, runs its operations, and returns the result of `step`."""
    operations = recording.operations
    try:
        LayerNames.start(recording)
        operations.Start(inputs)
        current.recording = recording
        result = step()
        try:
            outputs = _tensors(result)
        except _UnknownError as kind:
            operations.SetObstacle(f"it returns a {kind}")
            outputs = []
        for t in outputs:
            t.creator = None  # results have no tape, as after a replay
        for t, before in recording.moved.values():
            before.CopyFrom(t.data)
            t.data = before
        operations.Finish([t.data for t in outputs])
    except BaseException:
        for t, before in recording.moved.values():
            t.data = before
        operations.Abandon()
        raise
    finally:
        current.recording = None
        LayerNames.stop(recording)
    return result


class Rewriting(NamedTuple):
    """Which passes rewrite the operations of a recorded step; see Model.compile. The fields are
    those of C++'s PassOptions."""

    training: bool
    fuse: bool
    recompute: bool


class _Step:
    """State of one kind of step."""

    def __init__(self) -> None:
        self.tries = 0
        self.last: Any = None  # what the previous recording holds
        self.returned: Any = None  # what tells its results apart, besides the elements of tensors
        self.graph: Any = None
        self.calls: list[Callable[[], Any]] = []
        self.updates: list[Update] = []
        self.segments = 0
        self.template: Any = None  # structure of the step's result
        self.reason = ""  # why the step is executed; empty if it is not
        # The settings for which graph or reason are valid. None: any settings.
        self.settings: Settings | None = None
        self.read: list[_c.Tensor] = []  # what the host reads in the step, except arguments
        self.hooks: int | None = None  # last_change of hooks, if it is executed because of one

    def forget(self) -> None:
        """Discards the graph, so that the step is recorded again."""
        self.tries, self.reason, self.hooks = 0, "", None
        self.last = self.returned = self.graph = self.settings = None
        self.calls, self.updates = [], []

    def changed(self, layer: base.Layer) -> set[str]:
        """Settings that have changed since the graph or the reason was set."""
        if self.settings is None or self.settings.hold():
            return set()
        now = Settings(layer, self.read)
        changed = differing(self.settings, now)
        if not changed:
            self.settings = now  # objects were replaced by equal ones
        return changed


class StepGraphs:
    """The graphs of one model. `call` records, replays or executes a step."""

    def __init__(self, layer: base.Layer) -> None:
        self._of = weakref.ref(layer)  # which has the graphs: it is freed without the collector
        self._steps: dict[Any, _Step] = {}
        # For keys of steps in which the host reads arguments: which ones, by number. Their elements
        # are then part of the key.
        self._read: dict[Any, list[int]] = {}
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
        kind: Callable[[], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        rewriting: Rewriting,
    ) -> Any:
        """Returns `function(*args, **kwargs)`, which is recorded, replayed or executed.

        `kind()` and the arguments together choose the graph.
        """
        if current.recording is not None:
            return function(*args, **kwargs)
        ours = False
        try:
            ours = self._busy.acquire(blocking=False)
            if not ours:
                return function(*args, **kwargs)
            tensors: list[Tensor] = []
            mode = kind()
            base = self._key((mode, rewriting), args, kwargs, tensors)
            step = self._step(base, self._with_elements(base, tensors), args, kwargs)
            if step.reason:
                return function(*args, **kwargs)
            if step.graph is not None:
                results = _replayed(step, [t.data for t in tensors])
                if results is not None:
                    return _filled(step.template, iter(results))
                step.forget()
            return self._record(base, step, kind, function, tensors, args, kwargs, rewriting)
        finally:
            if ours:
                self._busy.release()

    def _key(
        self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> Any:
        """What tells kinds of steps apart. Adds the tensors among the arguments to `tensors`."""
        key: Any = (kind, None)
        try:
            key = (kind, (_key(args, tensors), _key(kwargs, tensors)))
            hash(key)
        except TypeError:  # an argument that is not hashable
            key = (kind, None)
        return key

    def _with_elements(self, base: Any, tensors: list[Tensor]) -> Any:
        """The key with the elements of those arguments that the host reads in the step."""
        numbers = self._read.get(base)
        if not numbers:
            return base
        key = (base, tuple([elements(tensors[i].data) for i in numbers]))
        if key in self._steps or len(self._steps) < _KINDS:
            return key
        self._read[base] = []
        self._drop(base)
        self._give_up(
            self._steps.setdefault(base, _Step()),
            "the host reads elements of its arguments, and they change too often",
        )
        return base

    def _drop(self, base: Any) -> None:
        """Forgets all kinds of steps with this key."""
        self._steps = {k: step for k, step in self._steps.items() if base not in (k, k[0])}

    def _step(self, base: Any, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Step:
        """The state of this kind of step, reset if settings have changed."""
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = _Step()
            if reason := self._obstacle(base, args, kwargs):
                self._give_up(step, reason)
        elif step.hooks is not None:
            if step.hooks != hooks.last_change:
                step.forget()
        elif changed := step.changed(self._layer):
            step.forget()
            self._changes += 1
            if self._changes > _CHANGES:
                place = min(changed) or type(self._layer).__name__
                self._give_up(step, f"settings changed {_CHANGES} times, the last time {place}")
        return step

    def _obstacle(self, key: Any, args: Any, kwargs: Any) -> str:
        """Why a new kind of step cannot be recorded; empty if it can."""
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

    def _record(
        self,
        base: Any,
        step: _Step,
        kind: Callable[[], Any],
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
        copied = [t for t, own in zip(tensors, inputs, strict=True) if own is not t]
        if rewriting.training and any([t.stores_grad or _is_computed(t) for t in copied]):
            self._give_up(step, "one of its arguments is a view, and gradients go back through it")
            return function(*args, **kwargs)
        arena = self._arenas.setdefault(device.id(), None) or _c.Arena(device)
        self._arenas[device.id()] = arena
        recording = StepRecording(_c.Recording(device, arena))
        _c.UsePasses(recording.operations, *rewriting)
        if copied:
            given = iter(inputs)
            args, kwargs = _mapped((args, kwargs), lambda t: next(given))
        handed_over = _identity(args), _identity(kwargs)
        before, numbers = Settings(self._layer), random_numbers()
        with Drawing() as drawing:
            result = _run(recording, lambda: function(*args, **kwargs), [t.data for t in inputs])
        if recording.hooked:  # until hooks come or go; what the hook itself changes does not matter
            self._give_up(step, recording.hooked)
            step.hooks = hooks.last_change
            return result
        operations = recording.operations
        if kind() != base[0][0]:
            operations.SetObstacle("the step changes the mode of the model or of singa")
        self._note_reads(base, step, inputs, operations.host_reads())
        now = before if before.hold() else Settings(self._layer)
        own = sorted(differing(before, now))
        after = Settings(self._layer, step.read) if step.read else now
        step.tries += 1
        obstacle = after.obstacle or operations.obstacle()
        numbers_now = random_numbers()
        moved = [name for name, then in numbers.items() if numbers_now[name] != then]
        if after.drawn(before) or drawing.by_this_thread(moved):
            obstacle = obstacle or "it draws random numbers of Python's or NumPy's"
        if (_identity(args), _identity(kwargs)) != handed_over:
            obstacle = obstacle or "the step changes one of its arguments, or sets its gradient"
        if own and not obstacle:
            others = f" and {len(own) - 1} other places" if len(own) > 1 else ""
            obstacle = f"the step changes {own[0] or type(self._layer).__name__}{others}"
        difference = obstacle
        if step.last is not None and not obstacle:
            difference = _c.Graph.Difference(step.last, operations)
            if _key(result, []) != step.returned:
                difference = difference or "what the step returns changes"
            if not difference:
                graph = _c.Graph(operations)
                step.calls, step.updates = recording.calls, recording.updates
                step.segments, step.template = graph.segments(), _mapped(result, _Like)
                step.last, step.returned, step.settings = None, None, after
                step.graph = graph  # last, so that an interrupt leaves no incomplete state
                return result
        step.last, step.returned = (None, None) if obstacle else (operations, _key(result, []))
        # A step that sets something in its first run may have no obstacle in the next one.
        if (obstacle and not own) or step.tries >= _TRIES:
            self._give_up(step, difference)
            # What changes in each step says nothing about the next chance.
            step.settings, step.read = None if own else now, []
        return result

    def _note_reads(
        self, base: Any, step: _Step, inputs: list[Tensor], reads: Sequence[_c.Tensor]
    ) -> None:
        """Makes what the host has read part of the step's key, if these are elements of arguments,
        else of its settings."""
        step.read, numbers = [], set(self._read.get(base, ()))
        for raw in reads:
            of = [i for i, t in enumerate(inputs) if t.data.SharesMemory(raw)]
            numbers.update(of)
            if not of:
                step.read.append(raw)
        if len(numbers) > len(self._read.get(base, ())):
            self._read[base] = sorted(numbers)
            self._drop(base)
            found = tuple([elements(inputs[i].data) for i in self._read[base]])
            self._steps[base, found] = step

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
    """Replays a step and returns its results. Returns None if it must be recorded again.

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
    """The tensors in a value, each followed by how many targets it counts, if it is such a loss."""
    found: list[Tensor] = []
    _mapped(value, found.append)
    return [each for t in found for each in (t, t.counted) if each is not None]


def _key(value: Any, tensors: list[Tensor]) -> Any:
    """The part of a step's key that comes from an argument. Adds its tensors to `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        raw = value.data
        kind = (raw.type_and_place(), raw.type_and_shape())
        return (kind, value.requires_grad, value.stores_grad, _is_computed(value))
    if isinstance(value, list | tuple):
        return (type(value), tuple([_key(item, tensors) for item in value]))
    if isinstance(value, dict):
        return tuple([(name, _key(item, tensors)) for name, item in value.items()])
    return exact(value) or (type(value), value)


def _is_computed(t: Tensor) -> bool:
    return t._creator is not None and not t.is_dummy()


def _identity(value: Any) -> Any:
    """What a step changes if it changes an argument in place, apart from elements of tensors."""
    if isinstance(value, Tensor):
        flags = value.requires_grad, value.stores_grad, value.name
        return id(value), id(value.data), flags, id(value.grad)
    if isinstance(value, list | tuple):
        return id(value), [_identity(item) for item in value]
    if isinstance(value, dict):
        return id(value), [(name, _identity(item)) for name, item in value.items()]
    return id(value)


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
        self.is_counted = t.counted is not None

    def over(self, raws: Iterator[_c.Tensor]) -> Tensor:
        t = wrap(next(raws), self.requires_grad)
        t.name = self.name
        if self.is_counted:
            t.counted = wrap(next(raws), False)
        return t


def _filled(template: Any, raws: Iterator[_c.Tensor]) -> Any:
    if isinstance(template, _Like):
        return template.over(raws)
    if isinstance(template, list | tuple):
        return type(template)([_filled(item, raws) for item in template])
    if isinstance(template, dict):
        return {name: _filled(item, raws) for name, item in template.items()}
    return template
