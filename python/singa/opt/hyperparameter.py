"""Hyperparameters as attributes of an optimizer: a schedule, and its value now, which follows from
the number of updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from ..device import create_cpu_device
from ..tape.step_recording import state as current
from ..tensor import Tensor
from .scaler import GradScaler
from .schedule import Constant, DecayScheduler, as_schedule, decoded, encoded


def host_number() -> Tensor:
    """A tensor of one element on the CPU, which is how SINGA keeps numbers of the host."""
    return Tensor((1,), create_cpu_device(), requires_grad=False)


class scheduled:  # noqa: N801 - a descriptor, used like `property`
    """The current value of a schedule, as SINGA keeps it: a tensor of shape (1,)."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute

    def __get__(self, optimizer: ScheduledHyperparameters | None, owner: type | None = None) -> Any:
        if optimizer is None:
            return self
        values = optimizer._value_tensors
        if self.attribute not in values:
            values[self.attribute] = host_number()
        return values[self.attribute].set_value(optimizer.now(self.attribute))

    def __set__(self, optimizer: ScheduledHyperparameters, value: Tensor) -> None:
        raise AttributeError(
            f"follows from the schedule; set optimizer.{self.attribute} to another one instead"
        )


class hyperparameter:  # noqa: N801 - likewise
    """A number or a schedule over the steps, from 0 to less than `below`. It reads as a schedule: a
    number that is assigned becomes a Constant.

    Assigning raises TypeError for anything else, and ValueError for a number out of range or a
    schedule that starts out of range.
    """

    def __init__(self, below: float = math.inf) -> None:
        self.below = below

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, optimizer: ScheduledHyperparameters | None, owner: type | None = None) -> Any:
        if optimizer is None:
            return self
        try:
            return vars(optimizer)[self.name]
        except KeyError:
            raise AttributeError(
                f"[{type(optimizer).__name__}] has no {self.name}: __init__ has not set it"
            ) from None

    def __set__(self, optimizer: ScheduledHyperparameters, value: float | DecayScheduler) -> None:
        vars(optimizer)[self.name] = schedule = self.checked(optimizer, value)
        made_with: dict[str, Any] = vars(optimizer).setdefault("_made_with", {})
        if self.name not in made_with:
            saved = encoded(schedule)
            made_with[self.name] = schedule if saved is None else saved

    def checked(self, optimizer: ScheduledHyperparameters, value: Any) -> DecayScheduler:
        """The schedule that `value` becomes. Raises as assigning does."""
        where = f"[{type(optimizer).__name__}] {self.name}"
        schedule = as_schedule(where, value)
        start = schedule.init_value
        # A schedule may start at `below`. `Optimizer.now` refuses infinite values.
        if not 0 <= start < self.below and not (schedule is value and start == self.below):
            wrong = f"must be below {self.below:g}" if start >= 0 else "must not be negative"
            raise ValueError(f"{where} {wrong}: {start}")
        return schedule


_of_classes: WeakKeyDictionary[type, list[hyperparameter]] = WeakKeyDictionary()


def hyperparameters_of(kind: type) -> list[hyperparameter]:
    """Those of a class of optimizers."""
    if kind not in _of_classes:
        named = dict.fromkeys([name for each in kind.__mro__ for name in vars(each)])
        found = [getattr(kind, name) for name in named if hasattr(kind, name)]
        _of_classes[kind] = [each for each in found if isinstance(each, hyperparameter)]
    return _of_classes[kind]


class ScheduledHyperparameters:
    """The part of an `Optimizer` that counts updates, and knows the value of each hyperparameter at
    each of them."""

    #: Attributes besides hyperparameters that change what an update does. The class keeps `x` in
    #: `_x`.
    flags: tuple[str, ...] = ("clip_norm", "norm_type", "clip_value")
    _made_with: dict[str, Any]
    _records_update = False  # while the optimizer records its update

    #: What no step computes with; see `Layer.not_settings`.
    not_settings: ClassVar[tuple[str, ...]] = (
        *("_made_with", "_steps", "_pending_updates", "_known_updates", "_value_tensors"),
        "_records_update",
    )

    def __init__(self, scaler: GradScaler | None) -> None:
        if scaler is not None and not isinstance(scaler, GradScaler):
            kind = type(self).__name__
            raise TypeError(f"[{kind}] scaler must be a GradScaler, got {scaler!r:.80}")
        self._scaler = scaler
        self._steps = 0
        # Updates that the device made or skipped since the host last asked the scaler, and the
        # scaler's count at that time.
        self._pending_updates = 0
        self._known_updates = 0 if scaler is None else scaler.made()
        self._value_tensors: dict[str, Tensor] = {}

    @property
    def scaler(self) -> GradScaler | None:
        """The GradScaler, if there is one."""
        return self._scaler

    @property
    def step_counter(self) -> Tensor:
        """Updates so far, as a tensor of shape (1,)."""
        counter = self._value_tensors.setdefault("step", host_number())
        return counter.set_value(self.steps)

    @step_counter.setter
    def step_counter(self, counter: Tensor) -> None:
        self._say_read()
        self._count_updates()
        self._steps = int(counter.numpy().reshape(-1)[0])

    @property
    def steps(self) -> int:
        """Updates so far."""
        if current.reference is not None:
            self._say_read()
        if self._pending_updates:
            self._count_updates()
        return self._steps

    def _say_read(self) -> None:
        """Notes that a step depends on what changes with each update, or changes it. Replays only
        repeat what the optimizer itself makes of it."""
        if current.recording is not None and not self._records_update:
            current.recording.operations.SetObstacle(
                "it reads or sets the optimizer's steps or their schedule"
            )

    def _count_updates(self) -> None:
        """Asks the scaler how many pending updates were made. Waits for the device."""
        if self._pending_updates and self._scaler is not None:
            recording = None if current.recording is None else current.recording.operations
            reads = 0 if recording is None else len(recording.host_reads())
            made = self._scaler.made()
            self._steps += made - self._known_updates
            self._pending_updates, self._known_updates = 0, made
            self._scaler.check()
            if recording is not None:
                recording.KeepHostReads(reads)  # a replay counts, too

    def now(self, name: str, step: int | None = None) -> float:
        """The value of the hyperparameter `name`, such as "lr", at a step; by default at this one.

        Raises ValueError if the schedule gives a negative value, infinity or NaN.

        >>> optimizer = opt.SGD(lr=opt.StepDecay(1.0, 10))
        >>> optimizer.now("lr"), optimizer.now("lr", 10)
        (1.0, 0.1)
        """
        if current.reference is not None:
            self._say_read()
        schedule = vars(self).get(name) or getattr(self, name)
        constant = type(schedule) is Constant
        if step is None:
            step = 0 if constant else self.steps
        value = float(schedule.init_value if constant else schedule.value(step))
        if not 0.0 <= value < math.inf:
            raise ValueError(f"[{type(self).__name__}] {name} is {value} at step {step}")
        return value

    def _hyperparameters(self) -> list[hyperparameter]:
        return hyperparameters_of(type(self))

    def _assigned(self) -> dict[str, float | str]:
        """The hyperparameters that were assigned after the optimizer was made, as saved."""
        now = {h.name: encoded(getattr(self, h.name)) for h in self._hyperparameters()}
        made_with = self._made_with
        return {n: v for n, v in now.items() if v is not None and v != made_with[n]}

    def _restored(self, states: Mapping[str, Any]) -> dict[str, DecayScheduler]:
        """The hyperparameters that loading `states` changes: those in it, and those that were
        assigned since it was saved, which become what they were."""
        assigned, restored = self._assigned(), {}
        for each in self._hyperparameters():
            name = each.name
            if states.get(name) != assigned.get(name):
                saved = states.get(name, self._made_with[name])
                if isinstance(saved, str):
                    saved = decoded(f"[{type(self).__name__}] {name}", saved)
                restored[name] = each.checked(self, saved)
        return restored


def settings_of(optimizer: ScheduledHyperparameters) -> str:
    """The values at this step of all hyperparameters but `lr`, one a line: what ranks compare."""
    values: dict[str, Any] = {}
    for each in hyperparameters_of(type(optimizer)):
        if each.name != "lr":
            schedule = getattr(optimizer, each.name)
            constant = type(schedule) is Constant
            values[each.name] = schedule.init_value if constant else optimizer.now(each.name)
    values |= {name: getattr(optimizer, name) for name in optimizer.flags}
    if optimizer.scaler is not None:
        values["factors of the scaler"] = optimizer.scaler.factors
    return "\n".join([f"{name} {value}" for name, value in values.items()])
