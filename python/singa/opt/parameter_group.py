"""Parameters with settings of their own."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..raw.check import number
from ..tensor import Tensor


def norm_and_bias(name: str, param: Tensor) -> bool:
    """True for parameters of one dimension: scales and biases of norms, and biases of layers. False
    for weights, which layers call W, also where they are packed in one dimension, as in `CudnnRNN`.

    Weight decay is usually left out for them: `ParamGroup(norm_and_bias, weight_decay=0.0)`.

    >>> opt.norm_and_bias("conv1.b", tensor.zeros((4,)))
    True
    >>> opt.norm_and_bias("conv1.W", tensor.zeros((4, 3, 3, 3)))
    False
    """
    return len(param.shape) <= 1 and name.rpartition(".")[2] != "W"


@dataclass(frozen=True)
class ParamGroup:
    """Parameters with a weight decay or a learning rate of their own.

    params: which ones: a predicate of (name, parameter), or names, where * and ? match as in file
        names. A name that matches no parameter of the model raises ValueError at the first update.
    weight_decay: replaces the optimizer's; None keeps it.
    lr_scale: multiplies the optimizer's learning rate.

        opt.SGD(lr=0.1, weight_decay=5e-4, groups=[opt.ParamGroup(opt.norm_and_bias, 0.0)])

    Raises ValueError for a number that is negative or infinite.

    >>> group = opt.ParamGroup(["*.b"], weight_decay=0.0)
    >>> group.matches("conv1.b", tensor.zeros((4,))), group.matches("conv1.W", tensor.zeros((4, 4)))
    (True, False)
    """

    params: Callable[[str, Tensor], bool] | Collection[str]
    weight_decay: float | None = None
    lr_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("weight_decay", "lr_scale"):
            value = getattr(self, name)
            if value is not None and not 0 <= number("ParamGroup", name, value) < math.inf:
                raise ValueError(f"[ParamGroup] {name} must be finite and not negative: {value}")

    def matches(self, name: str, param: Tensor) -> bool:
        """Whether the parameter of that name is one of the group's."""
        if callable(self.params):
            return bool(self.params(name, param))
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns())

    def _patterns(self) -> Collection[str]:
        """The names; none where `params` is a predicate."""
        if callable(self.params):
            return ()
        return [self.params] if isinstance(self.params, str) else self.params
