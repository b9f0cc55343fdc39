"""Layers around a matrix product, and the look-up table that is one in disguise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .. import autograd, initializer
from .._assignment import checked, write
from .._check import integer
from ..tensor import Tensor
from .base import Layer

Fill = Callable[[Tensor], Any]


def zeros(t: Tensor) -> None:
    """The start value of a bias."""
    t.set_value(0.0)


class Linear(Layer):
    """Fully connected: y (N, out) = x (N, in) · W + b, with W (in, out) and b (out).

    Written `Linear(out)`; the older form `Linear(in, out[, bias])` still works, and `in` is then
    checked. W starts as `initializer(W)` makes it, by default `initializer.glorot_normal`; b at 0.
    Other keyword arguments are ignored with a warning: SINGA ignores them without.
    """

    W: Tensor
    b: Tensor | None

    def __init__(
        self,
        out_features: int,
        *args: Any,
        bias: bool = True,
        initializer: Fill = initializer.glorot_normal,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if kwargs:
            warnings.warn(f"[Linear] ignores {', '.join(kwargs)}", stacklevel=2)
        if len(args) > 2:
            raise TypeError(f"[Linear] expected out_features, or in, out and bias; got {args}")
        self.in_features: int | None = None
        self.out_features = out_features
        self.bias = bias
        if args:
            self.in_features, self.out_features = out_features, args[0]
            self.bias = args[1] if len(args) == 2 else bias
            integer("Linear", "in_features", self.in_features, 1)
        integer("Linear", "out_features", self.out_features, 1)
        self.initializer = initializer

    def initialize(self, x: Tensor) -> None:
        if not x.shape:
            raise ValueError(f"[{self.title}] expected (batch, features), got {x.shape}")
        features = x.shape[-1]
        if self.in_features is not None and self.in_features != features:
            raise ValueError(
                f"[{self.title}] in_features is {self.in_features}, got input {tuple(x.shape)}"
            )
        self.in_features = features
        self._new_param("W", (features, self.out_features), x, self.initializer)
        self.b = None
        if self.bias:
            self._new_param("b", (self.out_features,), x, zeros)

    def forward(self, x: Tensor) -> Tensor:
        return autograd.linear(x, self.W, self.b)


class Gemm(Layer):
    """y = alpha · op(x) · op(W) + beta · b (ONNX Gemm). W is (out, in) with `transB`, the default,
    else (in, out); b is (1, out) unless `bias_shape` says otherwise."""

    W: Tensor
    b: Tensor | None

    def __init__(
        self,
        nb_kernels: int,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: bool = False,
        transB: bool = True,
        bias: bool = True,
        bias_shape: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.nb_kernels = integer("Gemm", "nb_kernels", nb_kernels, 1)
        self.alpha = alpha
        self.beta = beta
        self.transA = int(transA)
        self.transB = int(transB)
        self.bias = bias
        self.bias_shape = bias_shape

    def initialize(self, x: Tensor) -> None:
        self.in_features = x.shape[0] if self.transA else x.shape[-1]
        shape = (self.in_features, self.nb_kernels)
        std = math.sqrt(2.0 / sum(shape))
        self._new_param("W", shape[::-1] if self.transB else shape, x, lambda t: t.gaussian(0, std))
        self.b = None
        if self.bias:
            self._new_param("b", tuple(self.bias_shape or (1, self.nb_kernels)), x, zeros)

    def forward(self, x: Tensor) -> Tensor:
        return autograd.gemm(x, self.W, self.b, self.alpha, self.beta, self.transA, self.transB)


class Embedding(Layer):
    """Row i of W (input_dim, output_dim) for every number i of the input, whatever its shape.

    `initializer` is "gaussian" (0, 1) or "uniform" over ±1.
    """

    W: Tensor
    follows_dtype = False

    def __init__(self, input_dim: int, output_dim: int, initializer: str = "gaussian") -> None:
        super().__init__()
        if initializer not in ("gaussian", "uniform"):
            raise ValueError(f"[Embedding] initializer {initializer!r}: 'gaussian' or 'uniform'")
        self.input_dim = integer("Embedding", "input_dim", input_dim, 1)
        self.output_dim = integer("Embedding", "output_dim", output_dim, 1)
        self.initializer = initializer

    def initialize(self, x: Tensor) -> None:
        uniform = self.initializer == "uniform"
        self._new_param(
            "W",
            (self.input_dim, self.output_dim),
            x,
            (lambda t: t.uniform(-1.0, 1.0)) if uniform else (lambda t: t.gaussian(0.0, 1.0)),
        )

    def from_pretrained(self, W: Tensor, freeze: bool = True) -> None:
        """Takes the rows from W; `freeze` keeps them as they are in training."""
        if not self._initialized:
            self.initialize(W)
        write(self.W, checked("[from_pretrained]", {"W": self.W}, {"W": W})["W"])
        self.W.requires_grad = not freeze

    def forward(self, x: Tensor) -> Tensor:
        return autograd.embedding(x, self.W)
