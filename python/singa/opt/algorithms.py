"""The update rules. Each updates all parameters of a step by one call of the C++ core.

Every hyper-parameter is a number or a schedule over the steps. `p` is a parameter, `g` its gradient
plus weight_decay · p. Quantities that are kept are float32 (float64 for float64 parameters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import singa_wrap, tensor
from ..tensor import Tensor
from .optimizer import Optimizer, Update, copied, scheduled
from .schedule import DecayScheduler

Number = float | DecayScheduler


class _Rule(Optimizer):
    """An optimizer whose arithmetic is one C++ function over lists."""

    weight_decay: DecayScheduler
    decay_value = scheduled("weight_decay")

    #: Attributes that hold a tensor per parameter, which are also the names in the saved state.
    kept: tuple[str, ...] = ()

    def apply(self, param_name: str | None, param_value: Tensor, param_grad: Tensor) -> None:
        # Not self.apply_all: in a subclass with its own apply, that one calls apply.
        key = self._key(param_value) if param_name is None else param_name
        _Rule.apply_all(self, [(key, param_value, param_grad)])

    def apply_all(self, updates: Sequence[Update]) -> None:
        lr, decay = self.now("lr"), self.now("weight_decay")
        for lr_scale, members in self._by_lr_scale(updates):
            groups = [self._group(key, param) for key, param, _ in members]
            self._update(
                [param.data for _, param, _ in members],
                [grad.data for _, _, grad in members],
                [[self._kept(name, *member[:2]).data for member in members] for name in self.kept],
                [decay if g.weight_decay is None else g.weight_decay for g in groups],
                lr * lr_scale,
            )

    def _update(
        self, params: list, grads: list, kept: list[list], weight_decay: list[float], lr: float
    ) -> None:
        raise NotImplementedError

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
            wide = tensor.float64 if param.dtype == tensor.float64 else tensor.float32
            values[key] = Tensor(param.shape, param.device, wide, requires_grad=False)
        return values[key]

    def get_states(self) -> dict[str, Any]:
        return super().get_states() | {name: getattr(self, name) for name in self.kept}

    def set_states(self, states: dict[str, Any]) -> None:
        kind = type(self).__name__
        kept = {}
        if isinstance(states, Mapping):
            known = {*self.get_states(), "accumulated", "accumulated_calls"}
            unknown = sorted(states.keys() - known)
            lacking = [name for name in self.kept if name not in states]
            if unknown or (lacking and states.get("step_counter")):
                raise ValueError(
                    f"[{kind}] the state is another optimizer's: it has "
                    f"{', '.join(map(str, sorted(states)))}, expected {', '.join(sorted(known))}"
                )
            kept = {name: copied(kind, name, states.get(name, {})) for name in self.kept}
        super().set_states(states)
        for name, tensors in kept.items():
            setattr(self, name, tensors)


class SGD(_Rule):
    """m = momentum · m + (1 - dampening) · g;  p -= lr · m, or with `nesterov` lr · (g + momentum
    · m). Without momentum p -= lr · g.

    m starts at zero, as in SINGA (PyTorch leaves out the dampening in the first step).
    """

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
        self.momentum = self._schedule("momentum", momentum, below=1.0)
        self.dampening = self._schedule("dampening", dampening, below=1.0)
        self.weight_decay = self._schedule("weight_decay", weight_decay)
        self.nesterov = nesterov
        self.moments: dict[str, Tensor] = {}
        if nesterov and (self.momentum.init_value <= 0 or self.dampening.init_value != 0):
            raise ValueError("[SGD] nesterov needs a momentum and no dampening")

    @property
    def kept(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("moments",) if self.momentum.init_value else ()

    def _update(
        self, params: list, grads: list, kept: list[list], weight_decay: list[float], lr: float
    ) -> None:
        singa_wrap.SgdUpdate(
            params,
            grads,
            kept[0] if kept else [],
            weight_decay,
            lr,
            self.now("momentum"),
            self.now("dampening"),
            self.nesterov,
            False,
        )


class RMSProp(_Rule):
    """v = rho · v + (1 - rho) · g²;  p -= lr · g / sqrt(v + epsilon). Tieleman & Hinton 2012."""

    kept = ("running_average",)
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
        self.rho = self._schedule("rho", rho, below=1.0)
        self.epsilon = self._schedule("epsilon", epsilon)
        self.weight_decay = self._schedule("weight_decay", weight_decay)
        self.running_average: dict[str, Tensor] = {}

    def _update(
        self, params: list, grads: list, kept: list[list], weight_decay: list[float], lr: float
    ) -> None:
        singa_wrap.RmsPropUpdate(
            params, grads, kept[0], weight_decay, lr, self.now("rho"), self.now("epsilon")
        )


class AdaGrad(_Rule):
    """v += g²;  p -= lr · g / sqrt(v + epsilon). Duchi et al. 2011."""

    kept = ("history",)
    epsilon_value = scheduled("epsilon")

    def __init__(
        self, lr: Number = 0.1, epsilon: Number = 1e-8, weight_decay: Number = 0, **kwargs: Any
    ) -> None:
        super().__init__(lr, **kwargs)
        self.epsilon = self._schedule("epsilon", epsilon)
        self.weight_decay = self._schedule("weight_decay", weight_decay)
        self.history: dict[str, Tensor] = {}

    def _update(
        self, params: list, grads: list, kept: list[list], weight_decay: list[float], lr: float
    ) -> None:
        singa_wrap.AdaGradUpdate(params, grads, kept[0], weight_decay, lr, self.now("epsilon"))


class Adam(_Rule):
    """m = beta_1 · m + (1 - beta_1) · g;  v = beta_2 · v + (1 - beta_2) · g²;
    p -= lr · m' / (sqrt(v') + epsilon), where m' = m / (1 - beta_1^t), v' = v / (1 - beta_2^t) and
    t counts the optimizer's steps from 1. Kingma & Ba 2015.
    """

    kept = ("m", "v")
    decoupled = False
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
        self.beta_1 = self._schedule("beta_1", beta_1, below=1.0)
        self.beta_2 = self._schedule("beta_2", beta_2, below=1.0)
        self.epsilon = self._schedule("epsilon", epsilon)
        self.weight_decay = self._schedule("weight_decay", weight_decay)
        self.m: dict[str, Tensor] = {}
        self.v: dict[str, Tensor] = {}

    def _update(
        self, params: list, grads: list, kept: list[list], weight_decay: list[float], lr: float
    ) -> None:
        singa_wrap.AdamUpdate(
            params,
            grads,
            *kept,
            weight_decay,
            lr,
            self.now("beta_1"),
            self.now("beta_2"),
            self.now("epsilon"),
            self.steps + 1,
            self.decoupled,
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
