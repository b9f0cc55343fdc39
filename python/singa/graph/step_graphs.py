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
of Python, NumPy or PyTorch. All other Python code in a step is assumed to do the same in every
step, and does not run in replays.
"""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from .. import singa_wrap as _c
from ..layer import base, hooks
from ..layer.names import LayerNames
from ..tape.step_recording import StepRecording, Update
from ..tape.step_recording import state as current
from ..tape.tensor import Tensor
from . import memory_limit
from .audits import Audits, GraphWarning, Use, warn_of_audit
from .drawn_lines import DrawnLine
from .settings import Settings, differing
from .step_values import (
    RAW,
    Like,
    UnknownError,
    filled,
    identity,
    is_computed,
    key_of,
    key_parts,
    mapped,
    objects_in,
    separate,
    tensors_in,
)
from .tokens import Drawing, elements, random_numbers

#: Captures of one step that may differ before it is always executed. The first ones differ because
#: parameters change to other layouts.
_TRIES = 8
#: Maximum number of graphs. Further kinds of steps are executed.
_KINDS = 16
#: Number of times that settings may change, for all steps of a model together.
_CHANGES = 100


def _run(
    recording: StepRecording,
    step: Callable[[], Any],
    inputs: list[_c.Tensor],
    others: list[_c.Tensor],
    run: bool,
) -> Any:
    """Records `step`, runs its operations, and returns the result of `step`. `others` are the
    tensors of the model. Without `run`, the operations after the last host call do not run."""
    operations = recording.operations
    try:
        LayerNames.start(recording)
        operations.Start(inputs)
        current.recording = recording
        result = step()
        try:
            outputs = tensors_in(result)
        except UnknownError as kind:
            operations.SetObstacle(f"it returns a {kind}")
            outputs = []
        for t in outputs:
            t.creator = None  # results have no tape, as after a replay
        for t, before in recording.moved.values():
            if not before.FillsBlock() or sum([before.SharesMemory(o) for o in others]) > 1:
                operations.SetObstacle("the step copies to a tensor that shares memory")
                continue
            before.CopyFrom(t.data)
            t.data = before
        operations.Finish([t.data for t in outputs], False)
        recording.planned()
        if run:
            operations.RunPlanned()
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
    """Which passes rewrite the operations of a recorded step; see Model.compile. The first fields
    are those of C++'s PassOptions."""

    training: bool
    fuse: bool
    recompute: bool
    recompute_cheap: bool
    memory_limit: int = 0  # bytes; 0: none


class _Step:
    """State of one kind of step."""

    def __init__(self, audits: Audits, memory_limit: int) -> None:
        self.limit = _c.MemoryLimit(memory_limit) if memory_limit else None
        self.said = ""  # about the limit
        self.tries = 0
        self.last: Any = None  # what the previous recording holds
        self.returned: Any = None  # what tells its results apart, besides the elements of tensors
        self.graph: Any = None
        self.outline: Any = None  # of what the graph replays, to compare an audit with
        self.handed: list[Any] = []  # objects among the arguments, apart from tensors
        self.plans = 0  # CountForgottenPlans before that recording
        self.use = Use(audits)
        self.copies = False  # whether it was seen not to write to arguments that share memory
        self.calls: list[Callable[[], Any]] = []
        self.updates: list[Update] = []
        self.segments = 0
        self.template: Any = None  # structure of the step's result
        self.reason = ""  # why the step is executed; empty if it is not
        # The settings for which graph or reason are valid. None: any settings.
        self.settings: Settings | None = None
        self.read: list[_c.Tensor] = []  # what the host reads in the step, except arguments
        self.hooks: int | None = None  # last_change of hooks, if it is executed because of one
        # Of a step that draws: generators in its settings, and whether it changes these.
        self.draws: tuple[dict[str, Any], bool] | None = None

    def say(self) -> None:
        """Tells the user what it takes to keep to the memory limit, unless that was said before."""
        if self.limit is None:
            return
        text = memory_limit.note(self.limit)
        if text != self.said:
            print(text, file=sys.stderr, flush=True)
            self.said = text

    def forget(self) -> None:
        """Discards the graph, so that the step is recorded again."""
        self.tries, self.reason, self.hooks, self.copies, self.draws = 0, "", None, False, None
        self.last = self.returned = self.graph = self.outline = self.settings = None
        self.calls, self.updates = [], []

    def changed(self, layer: base.Layer) -> set[str]:
        """Settings that have changed since the graph or the reason was set, once they do not hold
        any more."""
        assert self.settings is not None
        now = Settings(layer, self.read, self.handed)
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
        self._audits = Audits()

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
        if current.reference is not None and current.recording is not None:
            return function(*args, **kwargs)
        ours = False
        try:
            ours = self._busy.acquire(blocking=False)
            if not ours:
                return function(*args, **kwargs)
            tensors: list[Tensor] = []
            mode = kind()
            base = self._key((mode, rewriting), args, kwargs, tensors)
            key = self._with_elements(base, tensors) if self._read else base
            step = self._step(base, key, args, kwargs)
            if step.reason:
                return function(*args, **kwargs)
            step.use.count += 1
            raws = list(map(RAW, tensors))
            if step.graph is not None and (
                step.use.count < step.use.due
                or not (step.use.is_due() and self._can_audit(step, raws, rewriting))
            ):
                results = _replayed(step, raws)
                if results is not None:
                    return filled((step.template,), iter(results))[0]
                step.forget()
            if step.draws is not None:
                return self._look_for_draws(step, lambda: function(*args, **kwargs))
            begin, was_replayed = perf_counter(), step.graph is not None
            try:
                return self._record(base, step, kind, function, tensors, args, kwargs, rewriting)
            finally:
                step.use.ran(perf_counter() - begin, is_audit=was_replayed)
        finally:
            if ours:
                self._busy.release()

    def _key(
        self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> Any:
        """What tells kinds of steps apart. Adds the tensors among the arguments to `tensors`."""
        key: Any = (kind, None)
        try:
            parts = key_parts(args, tensors)
            named = key_parts((kwargs,), tensors) if kwargs else ()
            key = (kind, (parts, named, _c.KindsOf(list(map(RAW, tensors)))))
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
            self._steps.setdefault(base, self._new_step(base)),
            "the host reads elements of its arguments, and they change too often",
        )
        return base

    def _drop(self, base: Any) -> None:
        """Forgets all kinds of steps with this key."""
        self._steps = {k: step for k, step in self._steps.items() if base not in (k, k[0])}

    def _new_step(self, base: Any) -> _Step:
        return _Step(self._audits, base[0][1].memory_limit)

    def _step(self, base: Any, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Step:
        """The state of this kind of step, reset if settings have changed."""
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._new_step(base)
            if reason := self._obstacle(base, args, kwargs):
                self._give_up(step, reason)
        elif step.hooks is not None:
            if step.hooks != hooks.last_change:
                step.forget()
        elif step.settings is not None and (
            not step.settings.hold() and (changed := step.changed(self._layer))
        ):
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
            found = tensors_in((args, kwargs))
        except UnknownError as unknown:
            return f"one of its arguments is a {unknown}"
        if key[1] is None:
            return "one of its arguments is not hashable"
        return "" if found else "none of its arguments is a tensor"

    def _can_audit(self, step: _Step, raws: list[_c.Tensor], rewriting: Rewriting) -> bool:
        """Whether the code of a step that has a graph may run once more."""
        # With host calls the operations run as recorded, which inference may round differently.
        runs = bool(step.calls or step.updates)
        ready = all([ready() for _, ready, _ in step.updates])
        return ready and (rewriting.training or not runs) and bool(step.graph.Restore(raws))

    def _give_up(self, step: _Step, reason: str) -> None:
        """Executes the step from now on, and warns."""
        step.forget()
        step.reason = reason
        _warn(reason + ("; it does not keep to the memory limit" if step.limit else ""))

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
        """Records the step. If it has a graph, this is an audit: the recording is compared with
        what the graph replays."""
        device = tensors[0].device
        if device.graph_enabled():  # the device already buffers operations of several steps
            return function(*args, **kwargs)
        if step.limit is not None:
            memory_limit.begin(step.limit, self._layer, step.use.count == 1)
        step.handed = objects_in((args, kwargs))
        before = step.settings or Settings(self._layer, (), step.handed)
        inputs = separate(tensors, before.tensors)
        copied = [t for t, own in zip(tensors, inputs, strict=True) if own is not t]
        if rewriting.training and any([t.stores_grad or is_computed(t) for t in copied]):
            self._give_up(step, "one of its arguments is a view, and gradients go back through it")
            return function(*args, **kwargs)
        audited = step.graph is not None
        if copied and not (audited or step.copies):
            return self._look_for_writes(step, copied, lambda: function(*args, **kwargs))
        arena = self._arenas.setdefault(device.id(), None) or _c.Arena(device)
        self._arenas[device.id()] = arena
        recording = StepRecording(_c.Recording(device, arena), step.say)
        _c.UsePasses(recording.operations, *rewriting[:4], step.limit)
        if copied:
            given = iter(inputs)
            args, kwargs = mapped((args, kwargs), lambda t: next(given))
        handed_over = identity(args), identity(kwargs)
        numbers = random_numbers(of_torch=True)
        raws = [t.data for t in inputs]
        position = device.random_state()
        run = not audited or bool(step.calls or step.updates)
        plans = _c.CountForgottenPlans()
        with Drawing() as drawing:
            result = _run(recording, lambda: function(*args, **kwargs), raws, before.tensors, run)
        if recording.hooked:  # until hooks come or go; what the hook itself changes does not matter
            if not run:
                recording.operations.RunPlanned()
            self._give_up(step, recording.hooked)
            step.hooks = hooks.last_change
            return result
        operations = recording.operations
        if kind() != base[0][0]:
            operations.SetObstacle("the step changes the mode of the model or of singa")
        read = step.read if audited else []  # what `before` has compared
        if not audited:
            self._note_reads(base, step, inputs, operations.host_reads())
        now = before if before.hold() else Settings(self._layer, read, step.handed)
        own = sorted(differing(before, now))
        after = Settings(self._layer, step.read, step.handed) if step.read != read else now
        step.tries += 1
        obstacle = after.obstacle or operations.obstacle()
        numbers_now = random_numbers(of_torch=True)
        moved = [name for name, then in numbers.items() if numbers_now[name] != then]
        drawn = [*after.drawn(before), *(moved if drawing.by_this_thread(moved) else ())]
        if drawn:
            obstacle = obstacle or _of_draws("")
        if (identity(args), identity(kwargs)) != handed_over:
            obstacle = obstacle or "the step changes one of its arguments, or sets its gradient"
        if own and not obstacle:
            others = f" and {len(own) - 1} other places" if len(own) > 1 else ""
            obstacle = f"the step changes {own[0] or type(self._layer).__name__}{others}"
        if audited:
            difference = obstacle or _c.Graph.Difference(step.outline, operations)
            if not difference and key_of(result) != step.returned:
                difference = "what the step returns changes"
            # Equal calls have other plans where the recorded ones have left the cache. Where they
            # leave it all the time, an audit says nothing.
            forgotten = _c.CountForgottenPlans()
            if not difference or (plans != forgotten and not obstacle):
                step.use.held()
                step.plans = step.plans if difference else plans
                if run:
                    return result
                if operations.draws():  # else another thread may have drawn
                    device.set_random_state(position)
                results = _replayed(step, raws)
                if results is not None:
                    return filled((step.template,), iter(results))[0]
                step.forget()  # another thread has seen that a plan is wrong
                return function(*args, **kwargs)
            operations.RunPlanned()
            # Nor is it a change of the step that the host does an update that replays do, such as
            # one after a hyperparameter was set.
            parts = [(len(one.calls), len(one.updates)) for one in (recording, step)]
            if obstacle or (step.plans == forgotten and parts[0] == parts[1]):
                warn_of_audit(step.use, difference, stacklevel=4)
            step.forget()
            step.tries = 1
            self._note_reads(base, step, inputs, operations.host_reads())
        difference = obstacle
        if step.last is not None and not obstacle:
            difference = _c.Graph.Difference(step.last, operations)
            if key_of(result) != step.returned:
                difference = difference or "what the step returns changes"
            if not difference:
                graph = _c.Graph(operations)
                step.calls, step.updates = recording.calls, recording.updates
                step.segments, step.template = graph.segments(), mapped(result, Like)
                step.outline, step.plans = operations.Outline(), plans
                step.use.recorded()
                step.last, step.settings = None, after
                step.graph = graph  # last, so that an interrupt leaves no incomplete state
                return result
        step.last, step.returned = (None, None) if obstacle else (operations, key_of(result))
        # A step that sets something in its first run may have no obstacle in the next one.
        if (obstacle and not own) or step.tries >= _TRIES:
            if drawn and obstacle == _of_draws(""):  # the next call looks where
                step.forget()
                step.draws = (after.generators, bool(own))
                return result
            self._give_up(step, difference)
            # What changes in each step says nothing about the next chance.
            step.settings, step.read = None if own else now, []
        return result

    def _look_for_draws(self, step: _Step, function: Callable[[], Any]) -> Any:
        """Executes a step that is known to draw random numbers, and gives it up with the line that
        draws."""
        assert step.draws is not None
        generators, changes = step.draws
        with DrawnLine(generators) as drawn:
            result = function()
        self._give_up(step, _of_draws(drawn.place))
        step.settings = None if changes else Settings(self._layer, (), step.handed)
        return result

    def _look_for_writes(
        self, step: _Step, shared: list[Tensor], function: Callable[[], Any]
    ) -> Any:
        """Executes a step to see whether it writes to arguments that share memory. If not, it is
        recorded with copies of them."""
        raws = [t.data for t in shared]
        versions = [raw.version() for raw in raws]
        result = function()
        step.copies = versions == [raw.version() for raw in raws]
        if not step.copies:
            reason = "the step writes to an argument that shares memory with another tensor"
            self._give_up(step, reason)
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

    def limits(self) -> list[Any]:
        """All `singa_wrap.MemoryLimit` objects of recorded steps that have one."""
        steps = self._steps.values()
        return [step.limit for step in steps if step.graph is not None and step.limit is not None]

    def graphs(self) -> list[Any]:
        """All `singa_wrap.Graph` objects of the model."""
        return [step.graph for step in self._steps.values() if step.graph is not None]

    def prepared_bytes(self) -> int:
        """Bytes of weights in the layouts that graphs need. Graphs share equal ones."""
        return sum([arena.prepared_bytes() for arena in self._arenas.values()])

    def reasons(self) -> list[str]:
        """The reasons of all steps that are executed."""
        return [step.reason for step in self._steps.values() if step.reason]


def _of_draws(place: str) -> str:
    return (
        f"it draws random numbers of Python, NumPy or PyTorch{place}: draw them outside of the "
        "step and hand them over in a tensor, or take what draws anew in replays, such as "
        "autograd.dropout"
    )


def _replayed(step: _Step, inputs: list[_c.Tensor]) -> tuple[Any, ...] | None:
    """Replays a step and returns its results. Returns None if it must be recorded again.

    If the step cannot be replayed any more, its graph is removed and its reason is set.
    """
    graph = step.graph
    if not step.calls and not step.updates:
        return graph.Replay(inputs)
    for _, ready, _ in step.updates:
        if not ready():
            return None
    if not graph.Start(inputs):
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
