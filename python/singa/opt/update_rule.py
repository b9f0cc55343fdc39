"""What all update rules share: how an update is executed, and how it is recorded for replay.

A rule (`algorithms.py`) is a formula: the names of its state slots, its hyperparameters, and one
call of the C++ core that updates lists of parameters. This module calls it with what a step needs.

- Parameter groups: one call for each learning rate among them. Weight decays are a list.
- Bias correction: each parameter counts its own updates, as in PyTorch. One call for each number of
  updates that parameters have missed, because they were frozen or came late.
- Gradient clipping and loss scaling: `UpdateConditions`, which the core evaluates on the device.
- Recorded steps: a replay repeats the call with new scalars, such as the next learning rate. They
  come from the host, or, where only the device knows the step, from a `HyperparameterTable`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, is_
from types import FunctionType
from typing import Any, ClassVar, NamedTuple

from .. import singa_wrap, tensor
from ..dtypes import wide_type
from ..tape.step_recording import record_update
from ..tensor import DType, Tensor
from .hyperparameter import hyperparameter, scheduled
from .hyperparameter_table import HyperparameterTable
from .optimizer import OPTIONAL_STATES, Optimizer, Update
from .schedule import Constant, DecayScheduler

#: The lists of a raw call: parameters, gradients, one list for each slot, weight decays.
Lists = Sequence[list[Any]]

_PACKAGE = __name__.removesuffix("update_rule")
_INIT_VALUE = attrgetter("init_value")


class _Part(NamedTuple):
    """One raw call of an update: parameters with one factor of the learning rate, and one number of
    updates that they have missed."""

    keys: list[str]
    lr_scale: float
    behind: int
    lists: Lists


class UpdateRule(Optimizer):
    """An optimizer whose formula is one C++ function over lists.

    A subclass names its `slots`, declares its hyperparameters and implements `raw_update`.
    """

    weight_decay: Any = hyperparameter()
    decay_value: scheduled = scheduled("weight_decay")

    #: State slots: attributes that hold a tensor for each parameter, by its key. They have the same
    #: names in the saved state. Slots are float32, or float64 for float64 parameters.
    slots: tuple[str, ...] = ()
    #: Hyperparameters that decide which operations an update consists of. An update is recorded
    #: only while they are constant.
    structural: tuple[str, ...] = ("weight_decay",)
    #: Whether the formula depends on the number of a parameter's updates, schedules apart.
    depends_on_step = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "slots" in vars(cls):
            cls.not_settings = (*vars(cls).get("not_settings", ()), *cls.slots)

    not_settings: ClassVar[tuple[str, ...]] = ("_updated", "_updates_all")

    def __init__(self, lr: float | DecayScheduler, *args: Any, **kwargs: Any) -> None:
        super().__init__(lr, *args, **kwargs)
        for name in self.slots:
            setattr(self, name, {})
        # What the present step has updated so far: these, or all parameters with state.
        self._updated: set[str] = set()
        self._updates_all = False

    def raw_update(
        self, lists: Lists, lr: float, step: int | None, behind: int, *recorded: Any
    ) -> None:
        """Calls the C++ function with the values of the hyperparameters at `step` (None: now), for
        parameters that have missed `behind` updates.

        `recorded` are its last arguments, UpdateScalars and UpdateConditions. Empty lists hand the
        hyperparameters to the UpdateScalars without an update.
        """
        raise NotImplementedError

    def used_slots(self, restored: Mapping[str, DecayScheduler] | None = None) -> tuple[str, ...]:
        """The slots that the formula needs, now or with the hyperparameters `restored`."""
        return self.slots

    # An executed update.

    def apply(self, param_name: str | None, param_value: Tensor, param_grad: Tensor) -> None:
        # Not self.apply_all: in a subclass with its own apply, that one calls apply.
        key = self.state_key(param_value) if param_name is None else param_name
        UpdateRule.apply_all(self, [(key, param_value, param_grad)])

    def apply_all(self, updates: Sequence[Update]) -> None:
        self._execute(updates, singa_wrap.UpdateConditions())

    def _apply_on_device(self, updates: Sequence[Update]) -> None:
        conditions = self._conditions([grad for _, _, grad in updates])
        self._execute(self._own(updates), conditions)
        if self.scaler is not None:
            self.scaler.update(conditions.squares)

    def _execute(self, updates: Sequence[Update], conditions: Any) -> None:
        if not updates:
            return
        self._count_late(updates)
        self._begin_update([key for key, _, _ in updates])
        uses_table = not conditions.squares.empty() and self._uses_table()
        # All parts are made before the first one runs: an interrupt leaves no part of an update.
        for part in list(self._parts(updates)):
            if uses_table:
                conditions.scalars = self._fill_table(part.behind, updates[0][2].device)
            self.raw_update(part.lists, *self._moment(part, conditions), None, conditions)

    def _count_late(self, updates: Sequence[Update]) -> None:
        """Counts what parameters have missed that are updated for the first time."""
        if not self.depends_on_step:
            return
        known = getattr(self, self.slots[0])
        late = [key for key, _, _ in updates if key not in known]
        if late and self.steps:
            for key in late:
                self._behind[key] = self.steps

    def _begin_update(self, keys: Sequence[str]) -> None:
        """Notes that the present step updates these parameters. They are about to get state if they
        have none."""
        if not self.depends_on_step:
            return
        known = getattr(self, self.slots[0])
        if len(keys) >= len(known) and known.keys() <= set(keys):
            self._updates_all = True
            return
        self._count_updates()  # of earlier steps, in which the same parameters had a part
        self._updated.update(keys)

    def _missed(self) -> Collection[str]:
        missed: Collection[str] = ()
        if self.depends_on_step and not self._updates_all:
            missed = getattr(self, self.slots[0]).keys() - self._updated
        self._updated.clear()
        self._updates_all = False
        return missed

    def _parts(self, updates: Sequence[Update]) -> Iterator[_Part]:
        """The raw calls of an update."""
        decay = self.now("weight_decay")
        for (lr_scale, behind), members in self._divided(updates):
            groups = [self._group(key, param) for key, param, _ in members]
            yield _Part(
                [key for key, _, _ in members],
                lr_scale,
                behind,
                [
                    [param.data for _, param, _ in members],
                    [grad.data for _, _, grad in members],
                    *[
                        [self._slot(name, key, param).data for key, param, _ in members]
                        for name in self.used_slots()
                    ],
                    [decay if g.weight_decay is None else g.weight_decay for g in groups],
                ],
            )

    def _divided(
        self, updates: Sequence[Update]
    ) -> Iterable[tuple[tuple[float, int], Sequence[Update]]]:
        """Updates by (factor of the learning rate, updates that the parameters have missed)."""
        if not self.groups and not self._behind:
            return [((1.0, 0), updates)]
        parts: dict[tuple[float, int], list[Update]] = {}
        for update in updates:
            key, param, _ = update
            place = self._group(key, param).lr_scale, self._behind.get(key, 0)
            parts.setdefault(place, []).append(update)
        return parts.items()

    def _slot(self, name: str, key: str, param: Tensor) -> Tensor:
        """The slot of that parameter, zeros where it is new."""
        values: dict[str, Tensor] = getattr(self, name)
        if key not in values:
            (dtype,) = self.state_types(name, param)
            buffered = param.device.graph_enabled()
            param.device.EnableGraph(False)  # RunGraph must not reset it to zero
            values[key] = Tensor(param.shape, param.device, dtype, requires_grad=False)
            param.device.EnableGraph(buffered)
        return values[key]

    def make_states(self) -> None:
        """Makes the state of all parameters that train, in their layouts, so that the first update
        makes and moves nothing."""
        for param in self.trained_parameters():
            if not self._is_chosen(param):
                continue
            key = self.state_key(param)
            self._count_late([(key, param, param)])
            for name in self.used_slots():
                slot = self._slot(name, key, param)
                singa_wrap.MoveAsUpdate([slot.data], [param.data])

    def _conditions(self, grads: Sequence[Tensor]) -> Any:
        """Clipping and loss scale, as the core evaluates them on the device."""
        conditions = singa_wrap.UpdateConditions()
        if self.scaler is not None or self.clip_norm is not None:
            conditions.squares = singa_wrap.SumsOfSquares([grad.data for grad in grads])
            conditions.clip_norm = self.clip_norm or 0.0
        if self.scaler is not None:
            conditions.loss_scale = self.scaler.state_on(grads[0].device)
        return conditions

    def _moment(self, part: _Part, conditions: Any) -> tuple[float, int | None, int]:
        """Learning rate, step and `behind` for raw_update."""
        if conditions.scalars.empty():
            return self.now("lr") * part.lr_scale, None, part.behind
        # With a table the device ignores the hyperparameters of the call, and multiplies the
        # learning rate by the table's.
        return part.lr_scale, 0, 0

    # Hyperparameters of future updates, where only the device knows the step.

    def _uses_table(self) -> bool:
        """Whether an update takes its hyperparameters from a table: with a scaler, where they
        change from step to step."""
        schedules = self._schedules()
        return (
            self.scaler is not None
            and self._has_constant_structure()
            and (self.depends_on_step or any([type(each) is not Constant for each in schedules]))
            and all([schedule.is_plain() for schedule in schedules])
        )

    def _table(self, behind: int) -> HyperparameterTable:
        """The table of parameters that have missed so many updates."""
        if behind not in self._tables:
            used = {0, *self._behind.values()}
            kept = {count: table for count, table in self._tables.items() if count in used}
            self._tables = kept | {behind: HyperparameterTable()}
        return self._tables[behind]

    def _fill_table(self, behind: int, device: Any) -> Any:
        """The values of a table that is filled for the next update."""
        table, key, empty = self._table(behind), self._table_key(), self._empty_lists()

        def collect(i: int, update_scalars: Any) -> None:
            step = self._steps + i
            self.raw_update(empty, self.now("lr", step), step, behind, update_scalars)

        while not self._table_is_filled(behind, device):
            if table.was_filled(key):
                self._count_updates()
            table.fill(key, self._known_updates, collect, device)
        return table.values

    def _table_is_filled(self, behind: int, device: Any) -> bool:
        count = self._known_updates + self._pending_updates
        return self._table(behind).holds(self._table_key(), count, device)

    def _table_key(self) -> Any:
        """What the table's contents follow from, besides the device's count of updates."""
        first = self._steps - self._known_updates
        return first, [schedule.terms() for schedule in self._schedules()]

    def _schedules(self) -> list[DecayScheduler]:
        return [value for value in vars(self).values() if isinstance(value, DecayScheduler)]

    def _empty_lists(self) -> Lists:
        return [[] for _ in range(3 + len(self.used_slots()))]

    # A recorded update.

    def _is_variant(self) -> bool:
        """Whether the present formula is not the core's, but a combination of operations
        (`variants.py`), which the host makes at each replay."""
        return False

    @property
    def updates_apart(self) -> bool:
        return self._is_builtin() and self.clip_norm is None and self.scaler is None

    def _skips_on_device(self) -> bool:
        return self._is_builtin() and not (self._is_variant() or self._clips_on_host())

    def _is_builtin(self) -> bool:
        """Whether the optimizer does what this module says: it is a rule of singa's, and no method
        of it was replaced."""
        own = type(self).__module__.startswith(_PACKAGE)
        return own and vars(self).keys().isdisjoint(_METHODS)

    def _unwatched(self) -> set[str]:
        """Attributes that a replay need not compare besides `not_settings`, unless the step names
        them: `ready` of `_replay_callbacks` looks at them."""
        if not self._is_builtin():
            return set()
        own = {h.name for h in self._hyperparameters()} | {f"_{flag}" for flag in self.flags}
        return own | {"_groups", "_accumulate", "_scaler"}

    def _record_update(self, gradients: Sequence[tuple[Tensor, Tensor]]) -> bool:
        plain = all([schedule.is_plain() for schedule in self._schedules()])
        if not self._is_builtin() or not plain or not self._is_recordable():
            return False
        updates, others = self._divided_by_choice([(self.state_key(p), p, g) for p, g in gradients])
        keys = [key for key, _, _ in updates]
        if any([value is None for value in self._slot_values(keys)]):
            return False  # the first step makes them
        parts = list(self._parts(updates)) if updates else []
        moving = [part.lists[:-1] for part in parts]
        moving.append([[p.data for _, p, _ in others], [g.data for _, _, g in others]])
        for params, grads, *slots in moving:
            if not singa_wrap.UpdateMovesNothing(params, grads, list(itertools.chain(*slots))):
                return False
        device, uses_table = gradients[0][1].device, self._uses_table()
        if uses_table and not all([self._table_is_filled(p.behind, device) for p in parts]):
            return False  # likewise
        self._begin_update(keys)
        self._limit_values([grad for _, grad in gradients])
        conditions = self._conditions([grad for _, grad in gradients])
        for part in parts:
            if uses_table:
                conditions.scalars = self._table(part.behind).values
            update_scalars = None if uses_table else singa_wrap.UpdateScalars()
            moment = self._moment(part, conditions)
            self.raw_update(part.lists, *moment, update_scalars, conditions)
            of_update = keys if part is parts[0] else []
            record_update(*self._replay_callbacks(part, update_scalars, of_update))
        if self.scaler is not None:
            self.scaler.update(conditions.squares)
        return True

    def _replay_callbacks(
        self, part: _Part, update_scalars: Any, of_update: list[str]
    ) -> tuple[Callable[[], bool], Callable[[], None]]:
        """`ready`: whether a step still does what was recorded for this part. `renew`: gives the
        next replay its hyperparameters, and notes that it updates the parameters `of_update`."""
        keys, lr_scale, recorded = part.keys, part.lr_scale, part.behind
        structure, empty = self._structure(), self._empty_lists()
        slots = self.used_slots()
        tensors = self._raw_tensors(keys, slots, recorded)
        hyperparameters = [h.name for h in self._hyperparameters()]
        others = sorted(self._unwatched().difference(hyperparameters))
        decisions = self._decisions(hyperparameters, others)

        def ready() -> bool:
            nonlocal decisions
            now = self._decisions(hyperparameters, others)
            if now != decisions:
                if not self._is_recordable() or self._structure() != structure:
                    return False
                decisions = now
            if self._behind or recorded:
                behind = {self._behind.get(key, 0) for key in keys}
                if len(behind) > 1 or (update_scalars is None and behind != {recorded}):
                    return False
            return all(map(is_, self._raw_tensors(keys, slots, recorded), tensors))

        def renew() -> None:
            if of_update and self.depends_on_step:
                self._begin_update(of_update)
            if update_scalars is None:
                self._fill_table(recorded, self._table(recorded).values.device())
            else:
                behind = self._behind.get(keys[0], 0)
                self.raw_update(empty, self.now("lr") * lr_scale, None, behind, update_scalars)

        return ready, renew

    def _decisions(self, hyperparameters: Sequence[str], others: Sequence[str]) -> list[Any]:
        """What `_is_recordable` and `_structure` follow from, in the attributes of these names.
        Each replay looks at it, so it is quick to get and to compare."""
        own = vars(self)
        schedules = list(map(own.get, hyperparameters))
        scaler = own["_scaler"]
        factors = None if scaler is None else scaler.factors
        starts = list(map(_INIT_VALUE, schedules))
        usual = own.keys().isdisjoint(_METHODS)
        return [schedules, starts, list(map(own.get, others)), factors, usual]

    def _slot_values(self, keys: list[str]) -> list[Tensor | None]:
        slots: list[dict[str, Tensor]] = [getattr(self, name) for name in self.used_slots()]
        return [slot.get(key) for slot in slots for key in keys]

    def _raw_tensors(self, keys: list[str], slots: Iterable[str], behind: int) -> list[Any]:
        """What an update of these parameters, which missed `behind` updates, changes or reads
        besides them."""
        table, scaler = self._tables.get(behind), self._scaler
        raw = [None if table is None else table.values]
        raw.append(None if scaler is None else scaler.state.data)
        for name in slots:
            slot = getattr(self, name)
            for key in keys:
                value = slot.get(key)
                raw.append(None if value is None else value.data)
        return raw

    def _is_recordable(self) -> bool:
        """Whether all steps run the same operations, with other scalars."""
        return self.accumulate == 1 and self._skips_on_device() and self._has_constant_structure()

    def _has_constant_structure(self) -> bool:
        return all([type(getattr(self, name)) is Constant for name in self.structural]) and (
            "epsilon" not in self.structural or self.now("epsilon") > 0
        )

    def _structure(self) -> tuple[Any, ...]:
        """What decides, besides the gradients, which operations a step consists of."""
        return (
            self.groups,
            self.used_slots(),
            [getattr(self, name).init_value for name in self.structural],
            [getattr(self, name) for name in self.flags],
            self._uses_table(),
            None if self.scaler is None else self.scaler.factors,
        )

    # Saved state.

    def state_types(self, name: str, param: Tensor | None) -> Collection[DType]:
        if name == "accumulated":
            return super().state_types(name, param)
        if param is None:
            return tensor.float32, tensor.float64
        return (wide_type(param.dtype),)

    def get_states(self) -> dict[str, Any]:
        return super().get_states() | {name: getattr(self, name) for name in self.used_slots()}

    def set_states(self, states: dict[str, Any]) -> None:
        kind = type(self).__name__
        copies = {}
        if isinstance(states, Mapping):
            slots = self.used_slots(self._restored(states))
            hyperparameters = {h.name for h in self._hyperparameters()}
            others = {*self.get_states()} - {*self.used_slots()} - hyperparameters
            known = {*others, *OPTIONAL_STATES, *slots}
            unknown = sorted(states.keys() - known - hyperparameters)
            missing = [name for name in slots if name not in states]
            if unknown or (missing and states.get("step_counter")):
                raise ValueError(
                    f"[{kind}] the state is another optimizer's: it has "
                    f"{', '.join(map(str, sorted(states)))}, expected {', '.join(sorted(known))}"
                )
            copies = {name: self._copied(name, states.get(name, {})) for name in slots}
            self._check_names({key for tensors in copies.values() for key in tensors})
        super().set_states(states)
        for name, tensors in copies.items():
            setattr(self, name, tensors)


_METHODS = frozenset(
    [name for name in dir(UpdateRule) if isinstance(getattr(UpdateRule, name), FunctionType)]
)
