"""Activation functions as layers, under PyTorch's names, and drop path."""

from __future__ import annotations

from .. import autograd, tensor
from ..raw.check import fraction
from ..tape.grad_mode import training
from ..tensor import Tensor
from .base import Layer

__all__ = [
    "GELU",
    "GLU",
    "DropPath",
    "Hardsigmoid",
    "Hardswish",
    "Mish",
    "ReLU6",
    "SiLU",
    "Softplus",
]


class GELU(Layer):
    """x·Φ(x); with `approximate` of "tanh" its approximation. Hendrycks & Gimpel 2016."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ValueError(f"[GELU] approximate must be 'none' or 'tanh', got {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return autograd.gelu(x, self.approximate)


class GLU(Layer):
    """a·sigmoid(b), with a and b the halves of x along `dim` (default: the last). Dauphin et al.
    2017."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return autograd.glu(x, self.dim)


class Softplus(Layer):
    """log(1 + e^(beta·x)) / beta, or x where beta·x is above `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta: float = beta
        self.threshold: float = threshold

    def forward(self, x: Tensor) -> Tensor:
        # From 20 on, log(1 + e^x) rounds to x in all types but float64.
        same = self.beta == 1 and self.threshold >= 20 and x.dtype != tensor.float64
        return autograd.softplus(x, self.beta, None if same else self.threshold)


class SiLU(Layer):
    """x·sigmoid(x), also called swish."""

    def forward(self, x: Tensor) -> Tensor:
        return autograd.silu(x)


class Hardsigmoid(Layer):
    """clip(x / 6 + 1/2, 0, 1). Howard et al. 2019."""

    def forward(self, x: Tensor) -> Tensor:
        return autograd.hardsigmoid(x, 1 / 6, 0.5)


class Hardswish(Layer):
    """x·clip(x + 3, 0, 6) / 6. Howard et al. 2019."""

    def forward(self, x: Tensor) -> Tensor:
        return autograd.hardswish(x)


class Mish(Layer):
    """x·tanh(log(1 + e^x)). Misra 2019."""

    def forward(self, x: Tensor) -> Tensor:
        return autograd.mish(x)


class ReLU6(Layer):
    """Limits x to [0, 6], with gradient 0 at both, as PyTorch's. Howard et al. 2017."""

    def forward(self, x: Tensor) -> Tensor:
        return autograd.relu6(x)


class DropPath(Layer):
    """In training, zeroes each sample with probability `drop_prob` and scales the others up by
    1 / (1 - drop_prob): stochastic depth, for the branch of a residual block. Huang et al. 2016."""

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob: float = fraction("DropPath", "drop_prob", drop_prob, open_end=True)

    def forward(self, x: Tensor) -> Tensor:
        if not training() or self.drop_prob == 0.0:
            return x
        shape = (x.shape[0],) + (1,) * (len(x.shape) - 1)
        ones = tensor.ones(shape, x.device, x.dtype)
        ones.requires_grad = False
        return x * autograd.dropout(ones, ratio=self.drop_prob)
