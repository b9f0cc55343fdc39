"""The update rules. Each updates all parameters of a step by one call of the C++ core.

Every hyper-parameter is a number or a schedule over the steps. `p` is a parameter, `g` its gradient
plus weight_decay · p. Quantities that are kept are float32 (float64 for float64 parameters).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from .. import singa_wrap, tensor
from ..graph import record_update
from ..tensor import DType, Tensor
from .optimizer import OPTIONAL_STATES, Optimizer, Update, hyperparameter, scheduled
from .schedule import Constant, DecayScheduler

Number = float | DecayScheduler


class _Rule(Optimizer):
    """An optimizer whose arithmetic is one C++ function over lists."""

    weight_decay: Any = hyperparameter()
    decay_value = scheduled("weight_decay")

    not_settings = ("moments", "running_average", "history", "m", "v")  # what is kept

    #: Attributes that hold a tensor per parameter, which are also the names in the saved state.
    kept: tuple[str, ...] = ()
    #: Whether the numbers of an update depend on how many there were, schedules apart.
    counts = False
    #: Schedules that decide on more than numbers of the operation.
    deciding: tuple[str, ...] = ("weight_decay", "epsilon")

    def apply(self, param_name: str | None, param_value: Tensor, param_grad: Tensor) -> None:
        # Not self.apply_all: in a subclass with its own apply, that one calls apply.
        key = self._key(param_value) if param_name is None else param_name
        _Rule.apply_all(self, [(key, param_value, param_grad)])

    def apply_all(self, updates: Sequence[Update]) -> None:
        self._apply(updates, singa_wrap.UpdateConditions())

    def _apply(self, updates: Sequence[Update], conditions: Any) -> None:
        lr, decay = self._rate(conditions), self.now("weight_decay")
        for lr_scale, members in self._by_lr_scale(updates):
            groups = [self._group(key, param) for key, param, _ in members]
            self._update(
                [param.data for _, param, _ in members],
                [grad.data for _, _, grad in members],
                [[self._kept(name, *member[:2]).data for member in members] for name in self.kept],
                [decay if g.weight_decay is None else g.weight_decay for g in groups],
                lr * lr_scale,
                self._place(conditions),
                None,
                conditions,
            )

    def _decides_on_device(self) -> bool:
        return self._is_ours()

    def _is_ours(self) -> bool:
        """Whether it does what this module says: no subclass, and no method of it was replaced."""
        return type(self) in _RECORDED and vars(self).keys().isdisjoint(_METHODS)

    def _unwatched(self) -> set[str]:
        names = super()._unwatched()
        if self._is_ours():  # `ready` of `_renewal` asks for these
            names |= {h.name for h in self._hyperparameters()}
            names |= {"_groups", "_clip_norm", "_accumulate", "_nesterov", "_scaler"}
        return names

    def _apply_decided(self, updates: Sequence[Update]) -> None:
        grads = [grad for _, _, grad in updates]
        conditions = self._conditions(grads)
        if self._looks_ahead():
            conditions.numbers = self._numbers_ahead(grads[0].device)
        self._apply(updates, conditions)
        if self.scaler is not None:
            self.scaler.update(conditions.squares)

    def _conditions(self, grads: Sequence[Tensor]) -> Any:
        """What decides about the update beside the host, but for the numbers of `_looks_ahead`."""
        conditions = singa_wrap.UpdateConditions()
        if self.scaler is not None or self.clip_norm is not None:
            conditions.squares = singa_wrap.SumsOfSquares([grad.data for grad in grads])
            conditions.clip_norm = self.clip_norm or 0.0
        if self.scaler is not None:
            conditions.loss_scale = self.scaler.state_on(grads[0].device)
        return conditions

    # Where the device picks the numbers, the update takes some, which do not matter, and multiplies
    # the learning rate.

    def _rate(self, conditions: Any) -> float:
        return self.now("lr") if conditions.numbers.empty() else 1.0

    def _place(self, conditions: Any) -> int | None:
        return None if conditions.numbers.empty() else 0

    def _looks_ahead(self) -> bool:
        """Whether the numbers of an update follow from a count that the device has."""
        schedules = self._schedules()
        return (
            self.scaler is not None
            and self._decides_by_constants()
            and (self.counts or any([type(schedule) is not Constant for schedule in schedules]))
            and all([schedule.is_plain() for schedule in schedules])
        )

    def _numbers_ahead(self, device: Any) -> Any:
        """The table from which the device takes the numbers of the next update."""
        ahead, key, nothing = self._ahead, self._terms(), self._nothing()

        def collect(i: int, numbers: Any) -> None:
            step = self._steps + i
            self._update([], [], nothing, [], self.now("lr", step), step, numbers)

        while not self._is_ahead(device):
            if ahead.was_filled(key):
                self._count_updates()
            ahead.fill(key, self._made, collect, device)
        return ahead.table

    def _is_ahead(self, device: Any) -> bool:
        """Whether that table is there."""
        return self._ahead.holds(self._terms(), self._made + self._undecided, device)

    def _terms(self) -> Any:
        """What the numbers of an update follow from, beside the count that the device has."""
        return self._steps - self._made, [schedule.terms() for schedule in self._schedules()]

    def _schedules(self) -> list[DecayScheduler]:
        return [value for value in vars(self).values() if isinstance(value, DecayScheduler)]

    def _nothing(self) -> list[list]:
        return [[] for _ in self.kept]

    def _update(
        self,
        params: list,
        grads: list,
        kept: list[list],
        weight_decay: list[float],
        lr: float,
        step: int | None,
        *recorded: Any,
    ) -> None:
        """The C++ function, with the values at that step of all schedules but two. None: the
        present ones. `recorded`: its last arguments, UpdateNumbers and UpdateConditions."""
        raise NotImplementedError

    # As a part of a recorded step.

    def _record(self, gradients: Sequence[tuple[Tensor, Tensor]]) -> bool:
        plain = all([schedule.is_plain() for schedule in self._schedules()])
        if not self._is_ours() or not plain or not self._is_steady():
            return False
        updates = [(self._key(p), p, g) for p, g in gradients]
        decay = self.now("weight_decay")
        parts = []
        for lr_scale, members in self._by_lr_scale(updates):
            values = [self._present(name, [key for key, _, _ in members]) for name in self.kept]
            if any([value is None for one in values for value in one]):
                return False  # the first step makes them
            params = [param.data for _, param, _ in members]
            grads = [grad.data for _, _, grad in members]
            kept = [[value.data for value in one] for one in values]
            if not singa_wrap.UpdateMovesNothing(params, grads, [v for one in kept for v in one]):
                return False
            groups = [self._group(key, param) for key, param, _ in members]
            decays = [decay if g.weight_decay is None else g.weight_decay for g in groups]
            parts.append((lr_scale, params, grads, kept, decays))
        if self._looks_ahead() and not self._is_ahead(gradients[0][1].device):
            return False  # likewise
        conditions = self._conditions([grad for _, grad in gradients])
        if self._looks_ahead():
            conditions.numbers = self._ahead.table
        place, rate = self._place(conditions), self._rate(conditions)
        for lr_scale, params, grads, kept, decays in parts:
            numbers = None if self._looks_ahead() else singa_wrap.UpdateNumbers()
            self._update(params, grads, kept, decays, rate * lr_scale, place, numbers, conditions)
            record_update(*self._renewal([key for key, _, _ in updates], lr_scale, numbers))
        if self.scaler is not None:
            self.scaler.update(conditions.squares)
        return True

    def _renewal(
        self, keys: list[str], lr_scale: float, numbers: Any
    ) -> tuple[Callable[[], bool], Callable[[], None]]:
        """Whether what was recorded still is what a step does, and what gives it its numbers."""
        decision, held, nothing = self._decision(), self._held(keys), self._nothing()

        def ready() -> bool:
            if not self._is_steady() or self._decision() != decision:
                return False
            return all([now is then for now, then in zip(self._held(keys), held, strict=True)])

        def renew() -> None:
            if numbers is None:
                self._numbers_ahead(self._ahead.table.device())
            else:
                self._update([], [], nothing, [], self.now("lr") * lr_scale, None, numbers)

        return ready, renew

    def _present(self, name: str, keys: list[str]) -> list[Any]:
        values: dict[str, Tensor] = getattr(self, name)
        return [values.get(key) for key in keys]

    def _held(self, keys: list[str]) -> list[Any]:
        """The raw tensors that change with the parameters of these names."""
        values = [value for name in self.kept for value in self._present(name, keys)]
        if self.scaler is not None:
            values.append(self.scaler.state)
        return [*[None if value is None else value.data for value in values], self._ahead.table]

    def _is_steady(self) -> bool:
        """Whether one step does what the next one does, but for numbers."""
        return self.accumulate == 1 and self._decides_by_constants()

    def _decides_by_constants(self) -> bool:
        return all([type(getattr(self, name)) is Constant for name in self.deciding]) and (
            "epsilon" not in self.deciding or self.now("epsilon") > 0
        )

    def _decision(self) -> tuple[Any, ...]:
        """What decides, beside the gradients, which operations a step consists of."""
        return (
            self.groups,
            self.kept,
            [getattr(self, name).init_value for name in self.deciding],
            getattr(self, "nesterov", False),
            self.clip_norm,
            self._looks_ahead(),
            None if self.scaler is None else self.scaler.factors,
        )

    def _by_lr_scale(self, updates: Sequence[Update]) -> Iterator[tuple[float, Sequence[Update]]]:
        if not self.groups:
            yield 1.0, updates
            return
        parts: dict[float, list[Update]] = {}
        for update in updates:
            parts.setdefault(self._group(*update[:2]).lr_scale, []).append(update)
        yield from parts.items()

    def _kept(self, name: str, key: str, param: Tensor) -> Tensor:
        values: dict[str, Tensor] = getattr(self, name)
        if key not in values:
            (wide,) = self.state_types(name, param)
            buffered = param.device.graph_enabled()
            param.device.EnableGraph(False)  # RunGraph is not to start it afresh
            values[key] = Tensor(param.shape, param.device, wide, requires_grad=False)
            param.device.EnableGraph(buffered)
        return values[key]

    def state_types(self, name: str, param: Tensor | None) -> Collection[DType]:
        if name == "accumulated":
            return super().state_types(name, param)
        if param is None:
            return tensor.float32, tensor.float64
        return (tensor.float64 if param.dtype == tensor.float64 else tensor.float32,)

    def _kept_with(self, hyperparameters: Mapping[str, DecayScheduler]) -> tuple[str, ...]:
        """`kept`, when these have been assigned."""
        return self.kept

    def get_states(self) -> dict[str, Any]:
        return super().get_states() | {name: getattr(self, name) for name in self.kept}

    def set_states(self, states: dict[str, Any]) -> None:
        kind = type(self).__name__
        kept = {}
        if isinstance(states, Mapping):
            names = self._kept_with(self._restored(states))
            numbers = {h.name for h in self._hyperparameters()}
            others = {*self.get_states()} - {*self.kept} - numbers
            known = {*others, *OPTIONAL_STATES, *names}
            unknown = sorted(states.keys() - known - numbers)
            lacking = [name for name in names if name not in states]
            if unknown or (lacking and states.get("step_counter")):
                raise ValueError(
                    f"[{kind}] the state is another optimizer's: it has "
                    f"{', '.join(map(str, sorted(states)))}, expected {', '.join(sorted(known))}"
                )
            kept = {name: self._copied(name, states.get(name, {})) for name in names}
        super().set_states(states)
        for name, tensors in kept.items():
            setattr(self, name, tensors)


class SGD(_Rule):
    """m = momentum · m + (1 - dampening) · g;  p -= lr · m, or with `nesterov` lr · (g + momentum
    · m). Without momentum p -= lr · g.

    m starts at zero, as in SINGA (PyTorch leaves out the dampening in the first step).
    """

    deciding = ("weight_decay", "momentum")
    momentum: Any = hyperparameter(below=1.0)
    dampening: Any = hyperparameter(below=1.0)
    mom_value = scheduled("momentum")
    dam_value = scheduled("dampening")

    def __init__(
        self,
        lr: Number = 0.1,
        momentum: Number = 0,
        dampening: Number = 0,
        weight_decay: Number = 0,
        nesterov: bool = False,
        dtype: Any = tensor.float32,
        **kwargs: Any,
    ) -> None:
        super().__init__(lr, dtype, **kwargs)
        self.momentum = momentum
        self.dampening = dampening
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.moments: dict[str, Tensor] = {}

    @property
    def nesterov(self) -> bool:
        """Whether the momentum looks ahead."""
        return self._nesterov

    @nesterov.setter
    def nesterov(self, nesterov: bool) -> None:
        if nesterov and (self.momentum.init_value <= 0 or self.dampening.init_value != 0):
            raise ValueError("[SGD] nesterov needs a momentum and no dampening")
        self._nesterov = bool(nesterov)

    @property
    def kept(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._kept_with({})

    def _kept_with(self, hyperparameters: Mapping[str, DecayScheduler]) -> tuple[str, ...]:
        momentum = hyperparameters.get("momentum", self.momentum)
        return ("moments",) if momentum.init_value else ()

    def _update(
        self,
        params: list,
        grads: list,
        kept: list[list],
        weight_decay: list[float],
        lr: float,
        step: int | None,
        *recorded: Any,
    ) -> None:
        singa_wrap.SgdUpdate(
            params,
            grads,
            kept[0] if kept else [],
            weight_decay,
            lr,
            self.now("momentum", step),
            self.now("dampening", step),
            self.nesterov,
            False,
            *recorded,
        )


class RMSProp(_Rule):
    """v = rho · v + (1 - rho) · g²;  p -= lr · g / sqrt(v + epsilon). Tieleman & Hinton 2012."""

    kept = ("running_average",)
    rho: Any = hyperparameter(below=1.0)
    epsilon: Any = hyperparameter()
    rho_value = scheduled("rho")
    epsilon_value = scheduled("epsilon")

    def __init__(
        self,
        lr: Number = 0.1,
        rho: Number = 0.9,
        epsilon: Number = 1e-8,
        weight_decay: Number = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(lr, **kwargs)
        self.rho = rho
        self.epsilon = epsilon
        self.weight_decay = weight_decay
        self.running_average: dict[str, Tensor] = {}

    def _update(
        self,
        params: list,
        grads: list,
        kept: list[list],
        weight_decay: list[float],
        lr: float,
        step: int | None,
        *recorded: Any,
    ) -> None:
        rho, epsilon = self.now("rho", step), self.now("epsilon", step)
        singa_wrap.RmsPropUpdate(params, grads, kept[0], weight_decay, lr, rho, epsilon, *recorded)


class AdaGrad(_Rule):
    """v += g²;  p -= lr · g / sqrt(v + epsilon). Duchi et al. 2011."""

    kept = ("history",)
    epsilon: Any = hyperparameter()
    epsilon_value = scheduled("epsilon")

    def __init__(
        self, lr: Number = 0.1, epsilon: Number = 1e-8, weight_decay: Number = 0, **kwargs: Any
    ) -> None:
        super().__init__(lr, **kwargs)
        self.epsilon = epsilon
        self.weight_decay = weight_decay
        self.history: dict[str, Tensor] = {}

    def _update(
        self,
        params: list,
        grads: list,
        kept: list[list],
        weight_decay: list[float],
        lr: float,
        step: int | None,
        *recorded: Any,
    ) -> None:
        epsilon = self.now("epsilon", step)
        singa_wrap.AdaGradUpdate(params, grads, kept[0], weight_decay, lr, epsilon, *recorded)


class Adam(_Rule):
    """m = beta_1 · m + (1 - beta_1) · g;  v = beta_2 · v + (1 - beta_2) · g²;
    p -= lr · m' / (sqrt(v') + epsilon), where m' = m / (1 - beta_1^t), v' = v / (1 - beta_2^t) and
    t counts the optimizer's steps from 1. Kingma & Ba 2015.
    """

    kept = ("m", "v")
    counts = True
    decoupled = False
    beta_1: Any = hyperparameter(below=1.0)
    beta_2: Any = hyperparameter(below=1.0)
    epsilon: Any = hyperparameter()
    beta_1_value = scheduled("beta_1")
    beta_2_value = scheduled("beta_2")
    epsilon_value = scheduled("epsilon")

    def __init__(
        self,
        lr: Number = 0.1,
        beta_1: Number = 0.9,
        beta_2: Number = 0.999,
        epsilon: Number = 1e-8,
        weight_decay: Number = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(lr, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.weight_decay = weight_decay
        self.m: dict[str, Tensor] = {}
        self.v: dict[str, Tensor] = {}

    def _update(
        self,
        params: list,
        grads: list,
        kept: list[list],
        weight_decay: list[float],
        lr: float,
        step: int | None,
        *recorded: Any,
    ) -> None:
        singa_wrap.AdamUpdate(
            params,
            grads,
            *kept,
            weight_decay,
            lr,
            self.now("beta_1", step),
            self.now("beta_2", step),
            self.now("epsilon", step),
            (self.steps if step is None else step) + 1,
            self.decoupled,
            *recorded,
        )


class AdamW(Adam):
    """Adam whose weight decay does not go through the gradient: p -= lr · weight_decay · p first.

    Loshchilov & Hutter 2019. Defaults are PyTorch's.
    """

    decoupled = True

    def __init__(
        self,
        lr: Number = 1e-3,
        beta_1: Number = 0.9,
        beta_2: Number = 0.999,
        epsilon: Number = 1e-8,
        weight_decay: Number = 0.01,
        **kwargs: Any,
    ) -> None:
        super().__init__(lr, beta_1, beta_2, epsilon, weight_decay, **kwargs)


#: Subclasses may do something else at each step.
_RECORDED = (SGD, RMSProp, AdaGrad, Adam, AdamW)
_METHODS = frozenset(
    [name for name in dir(_Rule) if isinstance(getattr(_Rule, name), FunctionType)]
)
