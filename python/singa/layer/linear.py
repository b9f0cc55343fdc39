"""Layers that compute a matrix product, and embeddings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from .. import autograd, initializer
from ..raw.check import flag, integer, one_of
from ..raw.words import spelled
from ..tape.assignment import checked, write
from ..tape.behaviour import behaviour
from ..tensor import Tensor
from .base import Layer

Fill = Callable[[Tensor], Any]


def zeros(t: Tensor) -> None:
    """Fills t with 0, the initial value of biases."""
    t.set_value(0.0)


class Linear(Layer):
    """Fully connected layer: y (..., out) = x (..., in) · W + b, with W (in, out) and b (out).

    out_features  number of outputs
    bias          whether to add b (default True)
    initializer   function that fills W (default `initializer.glorot_normal`); b is initialized
                  with 0

    SINGA's older form `Linear(in, out[, bias])` works, too, also with `in_features=`; the first
    call then checks `in`. Raises TypeError for other keyword arguments, which SINGA ignores; with
    its behaviour (`singa.compat`) a warning names them. The first call raises ValueError for a
    wrong number of input features.

    >>> linear = layer.Linear(4)
    >>> linear(tensor.ones((2, 3))).shape
    (2, 4)
    >>> linear.W.shape, linear.b.shape
    ((3, 4), (4,))
    """

    fixed_settings = ("in_features", "out_features", "bias")
    input_types = "own"
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
        if "in_features" in kwargs and not args:
            args, out_features = (out_features,), kwargs.pop("in_features")
        if kwargs and not behaviour.name:
            raise TypeError(f"[Linear] got an unexpected keyword argument {next(iter(kwargs))!r}")
        if kwargs:
            warnings.warn(f"[Linear] ignores {', '.join(kwargs)}", stacklevel=3)
        if len(args) > 2:
            raise TypeError(f"[Linear] expected out_features, or in, out and bias; got {args}")
        self.in_features: int | None = None
        self.out_features: int = out_features
        if args:
            self.in_features, self.out_features = out_features, args[0]
            bias = args[1] if len(args) == 2 else bias
            integer("Linear", "in_features", self.in_features, 1)
        integer("Linear", "out_features", self.out_features, 1)
        self.bias: bool = flag("Linear", "bias", bias)
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
    """y = alpha · op(x) · op(W) + beta · b, as ONNX's Gemm.

    nb_kernels    number of outputs
    alpha, beta   factors (default 1)
    transA        whether to transpose x (default False)
    transB        whether to transpose W, which then has shape (out, in) (default True); otherwise
                  (in, out)
    bias          whether to add b (default True)
    bias_shape    shape of b, which broadcasts to y (default (1, out))

    W is initialized normally with variance 2 / (in + out), b with 0.

    Raises ValueError at the first call for x that is no matrix.

    >>> gemm = layer.Gemm(4)
    >>> gemm(tensor.ones((2, 3))).shape
    (2, 4)
    >>> gemm.W.shape
    (4, 3)
    """

    fixed_settings = ("in_features", "nb_kernels", "transA", "transB", "bias", "bias_shape")
    input_types = "own"
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
        self.nb_kernels: int = integer("Gemm", "nb_kernels", nb_kernels, 1)
        self.alpha = alpha
        self.beta = beta
        self.transA: int = int(transA)
        self.transB: int = int(transB)
        self.bias = bias
        self.bias_shape = bias_shape

    def initialize(self, x: Tensor) -> None:
        self.in_features: int = x.shape[0] if self.transA else x.shape[-1]
        shape = (self.in_features, self.nb_kernels)
        std = math.sqrt(2.0 / sum(shape))
        self._new_param("W", shape[::-1] if self.transB else shape, x, lambda t: t.gaussian(0, std))
        self.b = None
        if self.bias:
            self._new_param("b", tuple(self.bias_shape or (1, self.nb_kernels)), x, zeros)

    def forward(self, x: Tensor) -> Tensor:
        return autograd.gemm(x, self.W, self.b, self.alpha, self.beta, self.transA, self.transB)


_FILLS: dict[str, Fill] = {
    "gaussian": lambda t: t.gaussian(0.0, 1.0),
    "uniform": lambda t: t.uniform(-1.0, 1.0),
}


@spelled(
    *("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
    shared=2,
    num_embeddings="input_dim",
    embedding_dim="output_dim",
    max_norm=(None,),
    norm_type=...,
    scale_grad_by_freq=(False,),
    sparse=(False,),
)
class Embedding(Layer):
    """Replaces each index i of the input by row i of W (input_dim, output_dim).

    The input has any shape; the output has one more axis of length output_dim. `initializer` is
    "gaussian" (mean 0, standard deviation 1; the default), "uniform" over ±1, or a function that
    fills W. Row `padding_idx`, if there is one, begins as zeros and is not trained: its gradient is
    0. A negative one counts from the end; ValueError for one outside.

    >>> words = layer.Embedding(100, 8)
    >>> words(tensor.from_numpy(np.array([[1, 2, 3]]))).shape
    (1, 3, 8)
    """

    fixed_settings = ("input_dim", "output_dim")
    W: Tensor

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        initializer: str | Fill = "gaussian",
        padding_idx: int | None = None,
    ) -> None:
        super().__init__()
        if not callable(initializer):
            one_of("Embedding", "initializer", initializer, _FILLS)
        self.input_dim: int = integer("Embedding", "input_dim", input_dim, 1)
        self.output_dim: int = integer("Embedding", "output_dim", output_dim, 1)
        self.initializer = initializer
        if padding_idx is not None:
            padding_idx = integer("Embedding", "padding_idx", padding_idx)
            if not -self.input_dim <= padding_idx < self.input_dim:
                raise ValueError(
                    f"[Embedding] padding_idx {padding_idx} is outside {self.input_dim} rows"
                )
            padding_idx %= self.input_dim
        self.padding_idx = padding_idx

    def initialize(self, x: Tensor) -> None:
        fill = self.initializer
        fill = fill if callable(fill) else _FILLS[fill]
        self._new_param("W", (self.input_dim, self.output_dim), x, fill)
        if self.padding_idx is not None:
            self.W[self.padding_idx] = 0.0

    def from_pretrained(self, W: Tensor, freeze: bool = True) -> None:
        """Copies W (input_dim, output_dim) to the layer. With `freeze` it is not trained.

        Raises ValueError for another shape.

        >>> words = layer.Embedding(2, 3)
        >>> words.from_pretrained(tensor.Tensor(data=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
        >>> words(tensor.from_numpy(np.array([1])))
        Tensor([[4., 5., 6.]], dtype=float32)
        """
        if not self._initialized:
            self.initialize(W)
        write(self.W, checked("[from_pretrained]", {"W": self.W}, {"W": W})["W"])
        self.W.requires_grad = not freeze

    def forward(self, x: Tensor) -> Tensor:
        y = autograd.embedding(x, self.W)
        if self.padding_idx is None:
            return y
        return autograd.where(y.detach(), y, (x == self.padding_idx).unsqueeze(-1))
