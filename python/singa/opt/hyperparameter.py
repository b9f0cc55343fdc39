"""Hyperparameters as attributes of an optimizer: a schedule, and its value now."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..device import create_cpu_device
from ..tensor import Tensor
from .schedule import DecayScheduler, as_schedule, encoded

if TYPE_CHECKING:
    from .optimizer import Optimizer


def host_number() -> Tensor:
    """A tensor of one element on the CPU, which is how SINGA keeps numbers of the host."""
    return Tensor((1,), create_cpu_device(), requires_grad=False)


class scheduled:  # noqa: N801 - a descriptor, used like `property`
    """The current value of a schedule, as SINGA keeps it: a tensor of shape (1,)."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute

    def __get__(self, optimizer: Optimizer | None, owner: type | None = None) -> Any:
        if optimizer is None:
            return self
        values = optimizer._value_tensors
        if self.attribute not in values:
            values[self.attribute] = host_number()
        return values[self.attribute].set_value(optimizer.now(self.attribute))

    def __set__(self, optimizer: Optimizer, value: Tensor) -> None:
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

    def __get__(self, optimizer: Optimizer | None, owner: type | None = None) -> Any:
        if optimizer is None:
            return self
        try:
            return vars(optimizer)[self.name]
        except KeyError:
            raise AttributeError(
                f"[{type(optimizer).__name__}] has no {self.name}: __init__ has not set it"
            ) from None

    def __set__(self, optimizer: Optimizer, value: float | DecayScheduler) -> None:
        vars(optimizer)[self.name] = schedule = self.checked(optimizer, value)
        made_with: dict[str, Any] = vars(optimizer).setdefault("_made_with", {})
        if self.name not in made_with:
            saved = encoded(schedule)
            made_with[self.name] = schedule if saved is None else saved

    def checked(self, optimizer: Optimizer, value: Any) -> DecayScheduler:
        """The schedule that `value` becomes. Raises as assigning does."""
        where = f"[{type(optimizer).__name__}] {self.name}"
        schedule = as_schedule(where, value)
        start = schedule.init_value
        # A schedule may start at `below`. `Optimizer.now` refuses infinite values.
        if not 0 <= start < self.below and not (schedule is value and start == self.below):
            wrong = f"must be below {self.below:g}" if start >= 0 else "must not be negative"
            raise ValueError(f"{where} {wrong}: {start}")
        return schedule
