"""What steps of random modules draw from, and the list of their kinds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Step = Callable[[Any, list[Any]], Any]  # of the module and its values
Kind = Callable[["Draw"], Step]
KINDS: list[Kind] = []


class UnfitError(Exception):
    """No value fits a kind of step."""


def kind(weight: int = 1) -> Callable[[Kind], Kind]:
    def add(kind: Kind) -> Kind:
        KINDS.extend([kind] * weight)
        return kind

    return add


class Draw:
    """What kinds of steps draw from. It stands for the module, too, while steps are drawn."""

    def __init__(self, torch: Any, seed: int) -> None:
        self.torch, self.nn, self.F = torch, torch.nn, torch.nn.functional
        self.random = random.Random(seed)
        self.layers: list[Any] = []
        self.values: list[Any] = []

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def number(self, low: float, high: float) -> float:
        return round(self.random.uniform(low, high), 2)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def value(self, *ranks: int, like: Any = None) -> int:
        """The place of a value, rather a late one, of one of these ranks, or of a shape."""
        fit = [
            i
            for i, x in enumerate(self.values)
            if (not ranks or x.ndim in ranks) and (like is None or x.shape == like)
        ]
        if not fit:
            raise UnfitError
        return self.random.choice(fit[-4:])

    def shape(self, i: int) -> tuple[int, ...]:
        return tuple(self.values[i].shape)

    def axis(self, i: int, least: int = 2) -> int:
        """An axis of a value other than the batch, with so many elements."""
        fit = [n for n, length in enumerate(self.shape(i)) if n and length >= least]
        if not fit:
            raise UnfitError
        axis = self.random.choice(fit)
        return self.one(axis, axis - self.values[i].ndim)

    def layer(self, layer: Any) -> int:
        self.layers.append(layer)
        return len(self.layers) - 1


def layer_step(d: Draw, i: int, make: Callable[[], Any], residual: bool = False) -> Step:
    place = d.layer(make())
    if residual:
        return lambda net, v: v[i] + net.layers[place](v[i])
    return lambda net, v: net.layers[place](v[i])


def divisor(d: Draw, n: int) -> int:
    return d.one(*(k for k in range(1, n + 1) if n % k == 0))
