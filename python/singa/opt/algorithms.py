"""The update rules: formulas, their state slots and hyperparameters.

`p` is a parameter, `g` its gradient plus weight_decay · p. Slots start at zero. They are float32,
or float64 for float64 parameters. Each hyperparameter is a number or a schedule over the steps. All
rules also take the keyword arguments of `Optimizer`, such as `groups` and `clip_norm`.

All rules raise ValueError for a hyperparameter that is negative or not below its limit, and
TypeError for one that is neither a number nor a schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import singa_wrap, tensor
from ..raw.words import spelled
from ..tensor import Tensor
from .hyperparameter import hyperparameter, scheduled
from .schedule import Constant, DecayScheduler
from .update_rule import Lists, UpdateRule
from .variants import amsgrad, rmsprop

Number = float | DecayScheduler


def _may_count(momentum: DecayScheduler) -> bool:
    """Whether it is other than 0 at some step, so that there has to be a slot for it."""
    return type(momentum) is not Constant or momentum.init_value != 0


class SGD(UpdateRule):
    """Stochastic gradient descent, with momentum (Polyak 1964) or Nesterov's (Sutskever et al.
    2013).

        p -= lr · g                                          without momentum
        m = momentum · m + (1 - dampening) · g;  p -= lr · m
        m = momentum · m + g;  p -= lr · (g + momentum · m)  with `nesterov`

    The first step differs from PyTorch where there is dampening: PyTorch leaves it out there, singa
    starts from m = 0, as SINGA does. `momentum` and `dampening` are below 1. `nesterov` needs a
    momentum and no dampening, else ValueError.

    Raises ValueError for numbers outside their ranges.

    >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
    >>> net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    >>> x, y = tensor.ones((4, 2)), tensor.zeros((4, 1))
    >>> net.compile([x], is_train=True)
    >>> losses = [float(net(x, y)[1]) for _ in range(20)]
    >>> losses[-1] < losses[0]
    True
    """

    slots: tuple[str, ...] = ("moments",)
    structural: tuple[str, ...] = ("weight_decay", "momentum")
    flags: tuple[str, ...] = (*UpdateRule.flags, "nesterov")
    moments: dict[str, Tensor]
    momentum: Any = hyperparameter(below=1.0)
    dampening: Any = hyperparameter(below=1.0)
    mom_value: scheduled = scheduled("momentum")
    dam_value: scheduled = scheduled("dampening")

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

    @property
    def nesterov(self) -> bool:
        """Whether the momentum looks ahead."""
        return self._nesterov

    @nesterov.setter
    def nesterov(self, nesterov: bool) -> None:
        if nesterov and (self.momentum.init_value <= 0 or self.dampening.init_value != 0):
            raise ValueError("[SGD] nesterov needs a momentum and no dampening")
        self._nesterov = bool(nesterov)

    def used_slots(self, restored: Mapping[str, DecayScheduler] | None = None) -> tuple[str, ...]:
        momentum = (restored or {}).get("momentum", self.momentum)
        return self.slots if _may_count(momentum) else ()

    def raw_update(
        self, lists: Lists, lr: float, step: int | None, behind: int, *recorded: Any
    ) -> None:
        params, grads, *moments, weight_decay = lists
        singa_wrap.SgdUpdate(
            params,
            grads,
            moments[0] if moments else [],
            weight_decay,
            lr,
            self.now("momentum", step),
            self.now("dampening", step),
            self._nesterov,
            False,
            *recorded,
        )


class RMSProp(UpdateRule):
    """Gradients divided by a running average of their magnitude. Tieleman & Hinton 2012.

        v = rho · v + (1 - rho) · g²;  d = g / sqrt(v + epsilon);  p -= lr · d

    `rho` and `momentum` are below 1. As in SINGA, epsilon is under the root; PyTorch adds it to the
    root. With `centered`, v - a² takes the place of v under the root, where a = rho · a + (1 - rho)
    · g (Graves 2013). With a `momentum`, b = momentum · b + d takes the place of d. Both make an
    update slower, and recorded steps leave it to the host.

    Raises ValueError for numbers outside their ranges.

    >>> w = tensor.Tensor(data=[1.0], stores_grad=True)
    >>> opt.RMSProp(lr=0.1).update(w, tensor.Tensor(data=[2.0]))
    >>> w
    Tensor([0.6838], dtype=float32)
    """

    slots: tuple[str, ...] = ("running_average", "mean", "momentum_buffer")
    structural: tuple[str, ...] = ("weight_decay", "epsilon", "momentum")
    flags: tuple[str, ...] = (*UpdateRule.flags, "centered")
    running_average: dict[str, Tensor]
    mean: dict[str, Tensor]
    momentum_buffer: dict[str, Tensor]
    rho: Any = hyperparameter(below=1.0)
    epsilon: Any = hyperparameter()
    momentum: Any = hyperparameter(below=1.0)
    rho_value: scheduled = scheduled("rho")
    epsilon_value: scheduled = scheduled("epsilon")

    def __init__(
        self,
        lr: Number = 0.1,
        rho: Number = 0.9,
        epsilon: Number = 1e-8,
        weight_decay: Number = 0,
        momentum: Number = 0,
        centered: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(lr, **kwargs)
        self.rho = rho
        self.epsilon = epsilon
        self.weight_decay = weight_decay
        self.momentum = momentum
        self._centered = bool(centered)

    @property
    def centered(self) -> bool:
        """Whether the mean of the gradients is subtracted."""
        return self._centered

    def used_slots(self, restored: Mapping[str, DecayScheduler] | None = None) -> tuple[str, ...]:
        momentum = (restored or {}).get("momentum", self.momentum)
        used = {"mean": self.centered, "momentum_buffer": _may_count(momentum)}
        return tuple([name for name in self.slots if used.get(name, True)])

    def _is_variant(self) -> bool:
        return len(self.used_slots()) > 1

    def raw_update(
        self, lists: Lists, lr: float, step: int | None, behind: int, *recorded: Any
    ) -> None:
        rho, epsilon = self.now("rho", step), self.now("epsilon", step)
        if self._is_variant():
            rmsprop(lists, lr, rho, epsilon, self.now("momentum", step), self.centered)
            return
        singa_wrap.RmsPropUpdate(*lists, lr, rho, epsilon, *recorded)


class AdaGrad(UpdateRule):
    """Gradients divided by the root of the sum of all their squares so far. Duchi et al. 2011.

        v += g²;  p -= lr · g / sqrt(v + epsilon)

    As in SINGA, epsilon is under the root; PyTorch adds it to the root.

    Raises ValueError for negative numbers.

    >>> w = tensor.Tensor(data=[1.0], stores_grad=True)
    >>> opt.AdaGrad(lr=0.1).update(w, tensor.Tensor(data=[2.0]))
    >>> w
    Tensor([0.9], dtype=float32)
    """

    slots: tuple[str, ...] = ("history",)
    structural: tuple[str, ...] = ("weight_decay", "epsilon")
    history: dict[str, Tensor]
    epsilon: Any = hyperparameter()
    epsilon_value: scheduled = scheduled("epsilon")

    def __init__(
        self, lr: Number = 0.1, epsilon: Number = 1e-8, weight_decay: Number = 0, **kwargs: Any
    ) -> None:
        super().__init__(lr, **kwargs)
        self.epsilon = epsilon
        self.weight_decay = weight_decay

    def raw_update(
        self, lists: Lists, lr: float, step: int | None, behind: int, *recorded: Any
    ) -> None:
        singa_wrap.AdaGradUpdate(*lists, lr, self.now("epsilon", step), *recorded)


@spelled(betas=["beta_1", "beta_2"], eps="epsilon")
class Adam(UpdateRule):
    """Momentum and RMSProp with bias correction. Kingma & Ba 2015.

        m = beta_1 · m + (1 - beta_1) · g;   v = beta_2 · v + (1 - beta_2) · g²
        m' = m / (1 - beta_1^t);             v' = v / (1 - beta_2^t)
        p -= lr · m' / (sqrt(v') + epsilon)

    `t` counts the updates of each parameter from 1. `beta_1` and `beta_2` are below 1. The default
    `lr` is SINGA's 0.1; 0.001 is usual. With `amsgrad`, the largest v so far takes the place of v
    in v' (Reddi et al. 2018); this makes an update slower, and recorded steps leave it to the host.

    Raises ValueError for numbers outside their ranges.

    >>> w = tensor.Tensor(data=[1.0], stores_grad=True)
    >>> opt.Adam(lr=0.1).update(w, tensor.Tensor(data=[2.0]))
    >>> w
    Tensor([0.9], dtype=float32)
    """

    slots: tuple[str, ...] = ("m", "v", "v_max")
    structural: tuple[str, ...] = ("weight_decay", "epsilon")
    flags: tuple[str, ...] = (*UpdateRule.flags, "amsgrad")
    depends_on_step = True
    decoupled = False
    m: dict[str, Tensor]
    v: dict[str, Tensor]
    v_max: dict[str, Tensor]
    beta_1: Any = hyperparameter(below=1.0)
    beta_2: Any = hyperparameter(below=1.0)
    epsilon: Any = hyperparameter()
    beta_1_value: scheduled = scheduled("beta_1")
    beta_2_value: scheduled = scheduled("beta_2")
    epsilon_value: scheduled = scheduled("epsilon")

    def __init__(
        self,
        lr: Number = 0.1,
        beta_1: Number = 0.9,
        beta_2: Number = 0.999,
        epsilon: Number = 1e-8,
        weight_decay: Number = 0,
        amsgrad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(lr, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.weight_decay = weight_decay
        self._amsgrad = bool(amsgrad)

    @property
    def amsgrad(self) -> bool:
        """Whether the largest v so far is used."""
        return self._amsgrad

    def used_slots(self, restored: Mapping[str, DecayScheduler] | None = None) -> tuple[str, ...]:
        return self.slots if self.amsgrad else self.slots[:2]

    def _is_variant(self) -> bool:
        return self.amsgrad

    def raw_update(
        self, lists: Lists, lr: float, step: int | None, behind: int, *recorded: Any
    ) -> None:
        if self._amsgrad:
            amsgrad(
                lists,
                lr,
                self.now("beta_1", step),
                self.now("beta_2", step),
                self.now("epsilon", step),
                self.steps + 1 - behind,
                self.decoupled,
            )
            return
        singa_wrap.AdamUpdate(
            *lists,
            lr,
            self.now("beta_1", step),
            self.now("beta_2", step),
            self.now("epsilon", step),
            (self.steps if step is None else step) + 1 - behind,
            self.decoupled,
            *recorded,
        )


@spelled(betas=["beta_1", "beta_2"], eps="epsilon")
class AdamW(Adam):
    """Adam with decoupled weight decay: p -= lr · weight_decay · p, and `g` is the gradient alone.
    Loshchilov & Hutter 2019.

    Defaults are PyTorch's. Norms and biases are usually left without decay:

        opt.AdamW(1e-3, weight_decay=0.05, groups=[opt.ParamGroup(opt.norm_and_bias, 0.0)])

    Raises ValueError for numbers outside their ranges.

    >>> w = tensor.Tensor(data=[1.0], stores_grad=True)
    >>> opt.AdamW(lr=0.1, weight_decay=0.5).update(w, tensor.Tensor(data=[2.0]))
    >>> w
    Tensor([0.85], dtype=float32)
    """

    decoupled = True

    def __init__(
        self,
        lr: Number = 1e-3,
        beta_1: Number = 0.9,
        beta_2: Number = 0.999,
        epsilon: Number = 1e-8,
        weight_decay: Number = 0.01,
        amsgrad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(lr, beta_1, beta_2, epsilon, weight_decay, amsgrad, **kwargs)
