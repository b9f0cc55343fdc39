"""Schedules: hyperparameters as functions of the step. Steps are updates of the parameters, counted
from 0.

    opt.AdamW(lr=opt.WarmUp(opt.CosineDecay(1e-3, decay_steps=9_500), steps=500))
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MethodType
from typing import Any, overload

from ..device import create_cpu_device
from ..raw import words
from ..raw.check import fraction, integer, integers, number, one_of, positive
from ..tensor import Tensor


class DecayScheduler:
    """A value for each step: a learning rate, a momentum, a weight decay.

    A subclass defines one of two methods: `value(step)` on Python numbers, which the optimizers
    call, or SINGA's `call(step)` on tensors of one element. The other one follows. Calling the
    schedule calls the one for the argument's type.

    Raises TypeError for an init_value that is no number.

    >>> class Halving(opt.DecayScheduler):
    ...     def value(self, step):
    ...         return self.init_value * 0.5**step
    ...
    >>> [Halving(0.8)(step) for step in range(3)]
    [0.8, 0.4, 0.2]
    >>> opt.SGD(lr=Halving(0.8)).now("lr")
    0.8
    """

    def __init__(self, init_value: float) -> None:
        self.init_value: float = number(type(self).__name__, "init_value", init_value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The method that the subclass did not write must not stay an ancestor's.
        if "call" in vars(cls) and "value" not in vars(cls):
            cls.value = DecayScheduler.value  # type: ignore[method-assign]
        elif "value" in vars(cls) and "call" not in vars(cls):
            cls.call = DecayScheduler.call  # type: ignore[method-assign]

    def is_plain(self) -> bool:
        """Whether the values follow from `terms()` alone: true for the classes of this module."""
        return type(self).__module__ == __name__

    def terms(self) -> tuple[Any, ...]:
        """What the values of a plain schedule follow from. Schedules of equal terms are equal."""
        return (type(self), [_term(value) for value in vars(self).values()])

    @overload
    def __call__(self, step: Tensor) -> Tensor: ...
    @overload
    def __call__(self, step: float) -> float: ...
    def __call__(self, step: Tensor | float) -> Tensor | float:
        return self.call(step) if isinstance(step, Tensor) else self.value(step)

    def value(self, step: float) -> float:
        """The value at `step`."""
        if type(self).call is DecayScheduler.call:
            raise NotImplementedError(f"{type(self).__name__} defines neither value() nor call()")
        counter = Tensor((1,), create_cpu_device())
        counter.set_value(step)
        return float(self.call(counter).numpy().reshape(-1)[0])

    def call(self, step: Tensor) -> Tensor:
        """The value at `step`, both tensors of one element."""
        result = Tensor((1,), device=step.device, requires_grad=False)
        result.set_value(self.value(float(step.numpy().reshape(-1)[0])))
        return result


class Constant(DecayScheduler):
    """`init_value` at every step. Multiplied or divided by a number it gives a number, so that
    `optimizer.lr *= 0.1` works.

    Raises TypeError for what is no number.

    >>> opt.Constant(0.1)(1000)
    0.1
    """

    def value(self, step: float) -> float:
        return self.init_value

    def __float__(self) -> float:
        return self.init_value

    def __mul__(self, factor: float) -> float:
        return self.init_value * factor

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> float:
        return self.init_value / divisor


class ExponentialDecay(DecayScheduler):
    """init_value · decay_rate^(step / decay_steps). `staircase` (default off) rounds the exponent
    down. Raises ValueError unless `decay_steps` and `decay_rate` are positive.

    >>> schedule = opt.ExponentialDecay(1.0, decay_steps=10, decay_rate=0.5)
    >>> [schedule(step) for step in (0, 10, 20)]
    [1.0, 0.5, 0.25]
    """

    def __init__(
        self, init_value: float, decay_steps: float, decay_rate: float, staircase: bool = False
    ) -> None:
        super().__init__(init_value)
        self.decay_steps: float = positive("ExponentialDecay", "decay_steps", decay_steps)
        self.decay_rate: float = positive("ExponentialDecay", "decay_rate", decay_rate)
        self.staircase = staircase

    def value(self, step: float) -> float:
        exponent = step / self.decay_steps
        return self.init_value * self.decay_rate ** (
            math.floor(exponent) if self.staircase else exponent
        )


@words.spelled(gamma="rate")
class StepDecay(DecayScheduler):
    """init_value · rate^floor(step / step_size): PyTorch's StepLR. `rate` is 0.1 by default. Raises
    ValueError unless `step_size` is positive.

    >>> schedule = opt.StepDecay(1.0, step_size=30)
    >>> [round(schedule(step), 4) for step in (0, 29, 30, 60)]
    [1.0, 1.0, 0.1, 0.01]
    """

    def __init__(self, init_value: float, step_size: int, rate: float = 0.1) -> None:
        super().__init__(init_value)
        self.step_size: float = positive("StepDecay", "step_size", step_size)
        self.rate: float = number("StepDecay", "rate", rate)

    def value(self, step: float) -> float:
        return self.init_value * self.rate ** (step // self.step_size)


@words.spelled(gamma="rate")
class MultiStepDecay(DecayScheduler):
    """init_value · rate^n, where n of the `milestones` are at most `step`: PyTorch's MultiStepLR.
    `rate` is 0.1 by default. Raises ValueError for a negative milestone.

    >>> schedule = opt.MultiStepDecay(1.0, [30, 80])
    >>> [round(schedule(step), 4) for step in (0, 30, 79, 80)]
    [1.0, 0.1, 0.1, 0.01]
    """

    def __init__(self, init_value: float, milestones: Sequence[int], rate: float = 0.1) -> None:
        super().__init__(init_value)
        self.milestones: list[int] = sorted(integers("MultiStepDecay", "milestones", milestones, 0))
        self.rate: float = number("MultiStepDecay", "rate", rate)

    def value(self, step: float) -> float:
        return self.init_value * self.rate ** bisect.bisect_right(self.milestones, step)


@words.spelled(T_max="decay_steps", eta_min="final_value")
class CosineDecay(DecayScheduler):
    """Half a cosine from `init_value` to `final_value` over `decay_steps` steps, then constant.
    Loshchilov & Hutter 2017 (SGDR), one cycle.

        final_value + (init_value - final_value) · (1 + cos(π · step / decay_steps)) / 2

    `final_value` is 0 by default. Raises ValueError unless `decay_steps` is positive.

    >>> schedule = opt.CosineDecay(1.0, decay_steps=100)
    >>> [round(schedule(step), 4) for step in (0, 50, 100, 200)]
    [1.0, 0.5, 0.0, 0.0]
    """

    def __init__(self, init_value: float, decay_steps: int, final_value: float = 0.0) -> None:
        super().__init__(init_value)
        self.decay_steps: float = positive("CosineDecay", "decay_steps", decay_steps)
        self.final_value: float = number("CosineDecay", "final_value", final_value)

    def value(self, step: float) -> float:
        return _cosine(self.init_value, self.final_value, step / self.decay_steps)


@words.spelled(T_0="first_steps", T_mult="factor", eta_min="final_value")
class CosineRestarts(DecayScheduler):
    """Half a cosine from `init_value` to `final_value` over `first_steps` steps, then again, each
    time over `factor` times as many: PyTorch's CosineAnnealingWarmRestarts. Loshchilov & Hutter
    2017 (SGDR).

    `factor` is a whole number, 1 by default, `final_value` 0. Raises ValueError unless
    `first_steps` and `factor` are at least 1.

    >>> schedule = opt.CosineRestarts(1.0, first_steps=10, factor=2)
    >>> [round(schedule(step), 4) for step in (0, 5, 10, 20, 30)]
    [1.0, 0.5, 1.0, 0.5, 1.0]
    """

    def __init__(
        self, init_value: float, first_steps: int, factor: int = 1, final_value: float = 0.0
    ) -> None:
        super().__init__(init_value)
        self.first_steps: int = integer("CosineRestarts", "first_steps", first_steps, 1)
        self.factor: int = integer("CosineRestarts", "factor", factor, 1)
        self.final_value: float = number("CosineRestarts", "final_value", final_value)

    def value(self, step: float) -> float:
        if self.factor == 1:
            return self._within(step % self.first_steps, self.first_steps)
        # first_steps · (factor^n - 1) / (factor - 1) steps are over after n cycles.
        cycles = 0
        while step >= self._end(cycles + 1):
            cycles += 1
        return self._within(step - self._end(cycles), self.first_steps * self.factor**cycles)

    def _end(self, cycles: int) -> int:
        return self.first_steps * (self.factor**cycles - 1) // (self.factor - 1)

    def _within(self, step: float, steps: int) -> float:
        return _cosine(self.init_value, self.final_value, step / steps)


@words.spelled(total_iters="decay_steps")
class PolynomialDecay(DecayScheduler):
    """final_value + (init_value - final_value) · (1 - step / decay_steps)^power, then constant:
    PyTorch's PolynomialLR.

    `power` is 1 by default, a straight line; `final_value` is 0. Raises ValueError unless
    `decay_steps` and `power` are positive.

    >>> schedule = opt.PolynomialDecay(1.0, decay_steps=100)
    >>> [schedule(step) for step in (0, 50, 100, 200)]
    [1.0, 0.5, 0.0, 0.0]
    """

    def __init__(
        self, init_value: float, decay_steps: int, power: float = 1.0, final_value: float = 0.0
    ) -> None:
        super().__init__(init_value)
        self.decay_steps: float = positive("PolynomialDecay", "decay_steps", decay_steps)
        self.power: float = positive("PolynomialDecay", "power", power)
        self.final_value: float = number("PolynomialDecay", "final_value", final_value)

    def value(self, step: float) -> float:
        left = 1.0 - min(step / self.decay_steps, 1.0)
        return self.final_value + (self.init_value - self.final_value) * left**self.power


class SequentialSchedule(DecayScheduler):
    """One schedule after the other, each from its own step 0: PyTorch's SequentialLR.

        opt.SequentialSchedule([opt.WarmUp(0.1, 100), opt.CosineDecay(0.1, 900)], [100])

    The second one begins at step `milestones[0]`, and so on. A schedule may be a number. Raises
    ValueError unless the milestones rise, and are one fewer than the schedules.

    >>> schedule = opt.SequentialSchedule([0.1, opt.StepDecay(1.0, 10)], [5])
    >>> [round(schedule(step), 4) for step in (0, 4, 5, 15)]
    [0.1, 0.1, 1.0, 0.1]
    """

    def __init__(
        self, schedules: Sequence[DecayScheduler | float], milestones: Sequence[int]
    ) -> None:
        self.schedules: list[DecayScheduler] = [as_schedule("schedules", s) for s in schedules]
        self.milestones: list[int] = list(integers("SequentialSchedule", "milestones", milestones))
        rising = all(a < b for a, b in itertools.pairwise([0, *self.milestones]))
        if len(self.schedules) != len(self.milestones) + 1 or not rising:
            raise ValueError(
                "[SequentialSchedule] needs rising milestones, one fewer than schedules, got "
                f"{self.milestones} for {len(self.schedules)} schedules"
            )
        super().__init__(self.schedules[0].init_value)

    def is_plain(self) -> bool:
        return super().is_plain() and all(schedule.is_plain() for schedule in self.schedules)

    def value(self, step: float) -> float:
        i = bisect.bisect_right(self.milestones, step)
        return self.schedules[i].value(step - self.milestones[i - 1] if i else step)


class FunctionSchedule(DecayScheduler):
    """function(step), as PyTorch's LambdaLR; `opt.SGD(lr=function)` means the same.

    It is not saved with the optimizer's state: who restores the optimizer gives it the function. In
    a recorded step the host makes the update. Raises TypeError for what cannot be called.

    >>> schedule = opt.FunctionSchedule(lambda step: 0.1 / (1 + step))
    >>> [schedule(step) for step in (0, 1)]
    [0.1, 0.05]
    """

    def __init__(self, function: Callable[[int], float]) -> None:
        if not callable(function) or isinstance(function, type):
            raise TypeError(
                f"[FunctionSchedule] needs a function of the step, got {function!r:.80}"
            )
        self.function = function
        super().__init__(function(0))

    def is_plain(self) -> bool:
        return False

    def value(self, step: float) -> float:
        return float(self.function(int(step)))


@words.spelled(min_lr="min_value")
class ReduceOnPlateau(DecayScheduler):
    """A value that is multiplied by `factor` when a metric stops improving: PyTorch's
    ReduceLROnPlateau, with its values.

        sgd = opt.SGD(lr=opt.ReduceOnPlateau(0.1, patience=5))
        for epoch in range(epochs):
            ...
            sgd.lr.update(validation_loss)

    factor: of a reduction. Default 0.1.
    patience: updates without improvement before a reduction. Default 10.
    mode: "min" if a smaller metric is better (default), or "max".
    threshold: the least improvement. Default 1e-4.
    relative: whether `threshold` is a share of the best metric (default), or a number.
    cooldown: updates after a reduction that do not count. Default 0.
    min_value: below which it does not go. Default 0.

    It is saved with the optimizer's state. Ranks have to update it with the same metric
    (`singa.metric` gives it). Raises ValueError for a factor outside [0, 1), and another mode.

    >>> lr = opt.ReduceOnPlateau(1.0, patience=1)
    >>> for loss in (0.9, 0.95, 0.95):
    ...     lr.update(loss)
    ...
    False
    False
    True
    >>> lr(0)
    0.1
    """

    def __init__(
        self,
        init_value: float,
        factor: float = 0.1,
        patience: int = 10,
        mode: str = "min",
        threshold: float = 1e-4,
        relative: bool = True,
        cooldown: int = 0,
        min_value: float = 0.0,
    ) -> None:
        kind = "ReduceOnPlateau"
        super().__init__(init_value)
        self.factor: float = fraction(kind, "factor", factor, open_end=True)
        self.patience: int = integer(kind, "patience", patience, 0)
        self.maximizes: bool = one_of(kind, "mode", mode, ["min", "max"]) == "max"
        self.threshold: float = number(kind, "threshold", threshold)
        self.relative: bool = bool(relative)
        self.cooldown: int = integer(kind, "cooldown", cooldown, 0)
        self.min_value: float = number(kind, "min_value", min_value)
        self.current: float = self.init_value
        self.best: float = -math.inf if self.maximizes else math.inf
        self.waited: int = 0  # updates without improvement
        self.cooling: int = 0  # updates that do not count yet

    def update(self, metric: float | Tensor) -> bool:
        """Takes the metric of an epoch. Returns whether the value was reduced.

        >>> lr = opt.ReduceOnPlateau(1.0, patience=0)
        >>> for loss in (0.9, 0.95):
        ...     lr.update(loss)
        ...
        False
        True
        >>> lr(0)
        0.1
        """
        metric = float(metric)
        self.waited += 1
        if self._improves(metric):
            self.best, self.waited = metric, 0
        if self.cooling:
            self.cooling -= 1
            self.waited = 0
        if self.waited <= self.patience:
            return False
        self.cooling, self.waited = self.cooldown, 0
        reduced = max(self.current * self.factor, self.min_value)
        if self.current - reduced <= 1e-8:  # PyTorch's eps
            return False
        self.current = reduced
        return True

    def _improves(self, metric: float) -> bool:
        sign = 1.0 if self.maximizes else -1.0
        if self.relative:
            return sign * metric > sign * self.best * (1.0 + sign * self.threshold)
        return sign * metric > sign * self.best + self.threshold

    def value(self, step: float) -> float:
        return self.current


@words.spelled(total_iters="steps")
class WarmUp(DecayScheduler):
    """A linear rise to another schedule over the first `steps` steps, then that schedule from its
    own step 0. Goyal et al. 2017.

        schedule(0) · (start_factor + (1 - start_factor) · step / steps)    step < steps
        schedule(step - steps)                                              from there on

    `schedule` is a schedule or a number, `start_factor` is 0 by default. Raises ValueError for
    negative `steps`. Warm-up with cosine decay: `WarmUp(CosineDecay(1e-3, 9_500), steps=500)`.

    >>> schedule = opt.WarmUp(opt.CosineDecay(1.0, decay_steps=100), steps=10)
    >>> [round(schedule(step), 4) for step in (0, 5, 10, 60)]
    [0.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self, schedule: DecayScheduler | float, steps: int, start_factor: float = 0.0
    ) -> None:
        self.schedule: DecayScheduler = as_schedule("schedule", schedule)
        super().__init__(self.schedule.init_value)
        self.steps: int = integer("WarmUp", "steps", steps, 0)
        self.start_factor: float = number("WarmUp", "start_factor", start_factor)

    def is_plain(self) -> bool:
        return super().is_plain() and self.schedule.is_plain()

    def value(self, step: float) -> float:
        if step >= self.steps:
            return self.schedule.value(step - self.steps)
        factor = self.start_factor + (1.0 - self.start_factor) * step / self.steps
        return self.schedule.value(0) * factor


@words.spelled(max_lr="max_value", pct_start="warmup")
class OneCycle(DecayScheduler):
    """Half a cosine up to `max_value`, then half a cosine down: PyTorch's OneCycleLR with its
    defaults. Smith & Topin 2018.

    Starts at max_value / div_factor, reaches `max_value` after the fraction `warmup` of
    `total_steps`, ends at max_value / (div_factor · final_div_factor). Raises ValueError for a
    `warmup` outside [0, 1], and unless `total_steps` and the factors are positive.

    >>> schedule = opt.OneCycle(1.0, total_steps=100)
    >>> [round(schedule(step), 4) for step in (0, 29, 99)]
    [0.04, 1.0, 0.0]
    """

    def __init__(
        self,
        max_value: float,
        total_steps: int,
        warmup: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> None:
        positive("OneCycle", "total_steps", total_steps)
        positive("OneCycle", "div_factor", div_factor)
        positive("OneCycle", "final_div_factor", final_div_factor)
        super().__init__(max_value / div_factor)
        self.max_value = max_value
        self.total_steps = total_steps
        self.warmup: float = fraction("OneCycle", "warmup", warmup)
        self.final_value: float = self.init_value / final_div_factor

    def value(self, step: float) -> float:
        return self._between(step, self.init_value, self.max_value, self.final_value)

    def momentum(self, low: float = 0.85, high: float = 0.95) -> DecayScheduler:
        """The momentum schedule of the same cycle: `low` where the learning rate is highest.

        >>> cycle = opt.OneCycle(1.0, total_steps=100)
        >>> [round(cycle.momentum()(step), 4) for step in (0, 29, 99)]
        [0.95, 0.85, 0.95]
        """
        return _OneCycleMomentum(self, low, high)

    def _between(self, step: float, start: float, middle: float, end: float) -> float:
        # Counted as PyTorch does it: the peak is one step early, the last step is the end.
        peak = self.warmup * self.total_steps - 1.0
        if step <= peak:
            return _cosine(start, middle, step / peak if peak > 0 else 1.0)
        rest = self.total_steps - 1.0 - peak
        return _cosine(middle, end, (step - peak) / rest if rest > 0 else 1.0)


class _OneCycleMomentum(DecayScheduler):
    def __init__(self, cycle: OneCycle, low: float, high: float) -> None:
        super().__init__(high)
        self.cycle = cycle
        self.low = low

    def is_plain(self) -> bool:
        return super().is_plain() and self.cycle.is_plain()

    def value(self, step: float) -> float:
        return self.cycle._between(step, self.init_value, self.low, self.init_value)


def as_schedule(
    name: str, value: DecayScheduler | Callable[[int], float] | float
) -> DecayScheduler:
    """`value` itself if it is a schedule, a FunctionSchedule of a function, else a Constant. Raises
    TypeError for anything else but a number, ValueError for NaN."""
    if isinstance(value, DecayScheduler):
        return value
    if isinstance(value, FunctionType | MethodType | functools.partial):
        return FunctionSchedule(value)
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        plain = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        given = (
            f"{type(value).__name__}{words.OF_PARAMETERS if isinstance(value, Iterable) else ''}"
        )
        raise TypeError(
            f"{name} must be a number, a DecayScheduler or a function, got {given}"
        ) from None
    if math.isnan(plain):
        raise ValueError(f"{name} must not be negative: {plain}")
    return Constant(plain)


def encoded(schedule: DecayScheduler) -> float | str | None:
    """How a schedule is saved: a number for a Constant, JSON for other classes of this module, None
    for a user's class."""
    if type(schedule) is Constant:
        return schedule.init_value
    if not schedule.is_plain():
        return None
    import json  # only when a state is saved

    return json.dumps(schedule, default=_attributes)


def decoded(where: str, saved: str) -> DecayScheduler:
    """The schedule that was saved as JSON. Raises ValueError for anything else."""
    import json

    try:
        schedule = json.loads(saved, object_hook=_from_attributes)
        if not isinstance(schedule, DecayScheduler):
            raise TypeError
        schedule.value(0)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
        raise ValueError(f"{where} is saved as {saved:.80}, which is no schedule") from None
    return schedule


def _attributes(value: Any) -> Any:
    if isinstance(value, DecayScheduler):
        return {"class": type(value).__name__, **vars(value)}
    return value.item()  # a NumPy scalar


def _from_attributes(attributes: dict[str, Any]) -> DecayScheduler:
    kind = globals()[attributes.pop("class")]
    if not (isinstance(kind, type) and issubclass(kind, DecayScheduler)):
        raise TypeError
    schedule = object.__new__(kind)
    for name, value in attributes.items():
        if isinstance(value, list):
            if not all(isinstance(item, DecayScheduler) for item in value):
                integers(kind.__name__, name, value)
        elif not isinstance(value, DecayScheduler):
            number(kind.__name__, name, value)
    vars(schedule).update(attributes)
    return schedule


def _term(value: Any) -> Any:
    if isinstance(value, DecayScheduler):
        return value.terms()
    return tuple(map(_term, value)) if isinstance(value, list) else value


def _cosine(start: float, end: float, fraction: float) -> float:
    fraction = min(max(fraction, 0.0), 1.0)
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * fraction))
