"""Activation functions as layers, under PyTorch's names; dropout of channels and of paths."""

from __future__ import annotations

from .. import autograd, tensor
from ..ops.reduction import softmax_along
from ..raw.check import fraction, integer, number, one_of
from ..raw.words import spelled
from ..tape.grad_mode import training
from ..tensor import Tensor
from .base import Layer


class GELU(Layer):
    """x·Φ(x); with `approximate` of "tanh" its approximation. Hendrycks & Gimpel 2016.

    Raises ValueError for another `approximate`.

    >>> layer.GELU()(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-0.1587,  0.    ,  1.9545], dtype=float32)
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = one_of("GELU", "approximate", approximate, ["none", "tanh"])

    def forward(self, x: Tensor) -> Tensor:
        return autograd.gelu(x, self.approximate)


class GLU(Layer):
    """a·sigmoid(b), with a and b the halves of x along `dim` (default: the last). Dauphin et al.
    2017.

    Raises ValueError if the axis has an odd length.

    >>> layer.GLU()(tensor.Tensor(data=[1.0, 2.0, 0.0, 100.0]))
    Tensor([0.5, 2. ], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return autograd.glu(x, self.dim)


class Softplus(Layer):
    """log(1 + e^(beta·x)) / beta, or x where beta·x is above `threshold`.

    Raises ValueError for a beta that is not positive and finite.

    >>> layer.Softplus()(tensor.Tensor(data=[-1.0, 0.0, 30.0]))
    Tensor([ 0.3133,  0.6931, 30.    ], dtype=float32)
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta: float = beta
        self.threshold: float = threshold

    def forward(self, x: Tensor) -> Tensor:
        # From 20 on, log(1 + e^x) rounds to x in all types but float64.
        same = self.beta == 1 and self.threshold >= 20 and x.dtype != tensor.float64
        return autograd.softplus(x, self.beta, None if same else self.threshold)


@spelled("inplace", inplace=(True, False))
class SiLU(Layer):
    """x·sigmoid(x), also called swish.

    >>> layer.SiLU()(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-0.2689,  0.    ,  1.7616], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.silu(x)


@spelled("inplace", inplace=(True, False))
class Hardsigmoid(Layer):
    """clip(x / 6 + 1/2, 0, 1). Howard et al. 2019.

    >>> layer.Hardsigmoid()(tensor.Tensor(data=[-4.0, 0.0, 1.0]))
    Tensor([0.    , 0.5   , 0.6667], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.hardsigmoid(x, 1 / 6, 0.5)


@spelled("inplace", inplace=(True, False))
class Hardswish(Layer):
    """x·clip(x + 3, 0, 6) / 6. Howard et al. 2019.

    >>> layer.Hardswish()(tensor.Tensor(data=[-1.0, 1.0, 4.0]))
    Tensor([-0.3333,  0.6667,  4.    ], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.hardswish(x)


@spelled("inplace", inplace=(True, False))
class Mish(Layer):
    """x·tanh(log(1 + e^x)). Misra 2019.

    >>> layer.Mish()(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-0.3034,  0.    ,  1.944 ], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.mish(x)


@spelled("inplace", inplace=(True, False))
class ReLU6(Layer):
    """Limits x to [0, 6], with gradient 0 at both, as PyTorch's. Howard et al. 2017.

    >>> layer.ReLU6()(tensor.Tensor(data=[-1.0, 2.0, 8.0]))
    Tensor([0., 2., 6.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.relu6(x)


class Tanh(Layer):
    """Hyperbolic tangent.

    >>> layer.Tanh()(tensor.Tensor(data=[-1.0, 0.0, 1.0]))
    Tensor([-0.7616,  0.    ,  0.7616], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.tanh(x)


@spelled("inplace", inplace=(True, False))
class Hardtanh(Layer):
    """Limits x to [min_val, max_val], by default [-1, 1]. Raises ValueError if min_val is above
    max_val.

    >>> layer.Hardtanh()(tensor.Tensor(data=[-2.0, 0.5, 3.0]))
    Tensor([-1. ,  0.5,  1. ], dtype=float32)
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        super().__init__()
        self.min_val: float = number("Hardtanh", "min_val", min_val)
        self.max_val: float = number("Hardtanh", "max_val", max_val)
        if self.min_val > self.max_val:
            raise ValueError(f"[Hardtanh] min_val {min_val} is above max_val {max_val}")

    def forward(self, x: Tensor) -> Tensor:
        return autograd.hardtanh(x, self.min_val, self.max_val)


@spelled("inplace", inplace=(True, False))
class LeakyReLU(Layer):
    """x where x >= 0, else negative_slope·x. Maas et al. 2013.

    >>> layer.LeakyReLU(0.1)(tensor.Tensor(data=[-2.0, 3.0]))
    Tensor([-0.2,  3. ], dtype=float32)
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope: float = number("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        return autograd.leakyrelu(x, self.negative_slope)


class PReLU(Layer):
    """x where x >= 0, else weight·x, with a trained weight. He et al. 2015.

    num_parameters is 1 (the default), or the number of channels, axis 1 of x. `init` is what the
    weights begin with (default 0.25).

    Raises ValueError for another number of parameters than channels.

    >>> layer.PReLU()(tensor.Tensor(data=[-2.0, 3.0]))
    Tensor([-0.5,  3. ], dtype=float32)
    """

    fixed_settings = ("num_parameters",)
    input_types = "own"
    weight: Tensor

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.num_parameters: int = integer("PReLU", "num_parameters", num_parameters, 1)
        self.init: float = number("PReLU", "init", init)

    def initialize(self, x: Tensor) -> None:
        channels = x.shape[1] if len(x.shape) > 1 else 1
        if self.num_parameters not in (1, channels):
            raise ValueError(
                f"[{self.title}] {self.num_parameters} parameters for {channels} channels of "
                f"{tuple(x.shape)}"
            )
        self._new_param("weight", (self.num_parameters,), x, lambda t: t.set_value(self.init))

    def forward(self, x: Tensor) -> Tensor:
        if self.num_parameters == 1:
            return autograd.prelu(x, self.weight)
        return autograd.prelu(x, self.weight.reshape((-1, *(1,) * (len(x.shape) - 2))))


@spelled("inplace", inplace=(True, False))
class ELU(Layer):
    """x where x >= 0, else alpha·(e^x - 1). Clevert et al. 2016.

    >>> layer.ELU()(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-0.6321,  0.    ,  2.    ], dtype=float32)
    """

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha: float = number("ELU", "alpha", alpha)

    def forward(self, x: Tensor) -> Tensor:
        return autograd.elu(x, self.alpha)


@spelled("inplace", inplace=(True, False))
class SELU(Layer):
    """1.0507·x where x >= 0, else 1.0507·1.67326·(e^x - 1), with more digits. Klambauer et al.
    2017.

    >>> layer.SELU()(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-1.1113,  0.    ,  2.1014], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.selu(x, 1.6732632423543772, 1.0507009873554805)


@spelled(dim="axis")
class Softmax(Layer):
    """Softmax e^x / Σ e^x along one axis (default: the last).

    Raises ValueError for an axis outside x.

    >>> layer.Softmax()(tensor.Tensor(data=[[0.0, 1.0, 2.0]]))
    Tensor([[0.09  , 0.2447, 0.6652]], dtype=float32)
    """

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return softmax_along(x, self.axis)


@spelled(dim="axis")
class SoftMax(Softmax):
    """SINGA's softmax: along axis 1 by default, and with SINGA's behaviour over all axes from it on
    (`autograd.softmax`).

    Raises ValueError for an axis outside x.

    >>> layer.SoftMax()(tensor.Tensor(data=[[0.0, 1.0, 2.0]]))
    Tensor([[0.09  , 0.2447, 0.6652]], dtype=float32)
    """

    def __init__(self, axis: int = 1) -> None:
        super().__init__(axis)

    def forward(self, x: Tensor) -> Tensor:
        return autograd.softmax(x, self.axis)


@spelled(dim="axis")
class LogSoftmax(Layer):
    """Logarithm of softmax along one axis (default: the last).

    Raises ValueError for an axis outside x.

    >>> layer.LogSoftmax()(tensor.Tensor(data=[[0.0, 1.0, 2.0]]))
    Tensor([[-2.4076, -1.4076, -0.4076]], dtype=float32)
    """

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return x.log_softmax(self.axis)


def _dropped(x: Tensor, axes: int, ratio: float) -> Tensor:
    """x in which slices along the first axes are zero at random, and the others scaled up."""
    shape = x.shape[:axes] + (1,) * (len(x.shape) - axes)
    ones = tensor.ones(shape, x.device, x.dtype)
    ones.requires_grad = False
    return x * autograd.dropout(ones, ratio=ratio)


@spelled("inplace", inplace=(True, False))
class Dropout2d(Layer):
    """In training, zeroes each channel of each image (N, C, ...) with probability `p` in [0, 1)
    (default 0.5) and scales the others by 1 / (1 - p). Tompson et al. 2015.

    Raises ValueError for a p outside [0, 1), and in training for x with fewer than two axes.

    >>> autograd.training = True
    >>> y = layer.Dropout2d()(tensor.ones((1, 4, 2, 2)))
    >>> [len(set(channel.ravel())) for channel in y.numpy()[0]]  # each channel is one number
    [1, 1, 1, 1]
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p: float = fraction("Dropout2d", "p", p, open_end=True)

    def forward(self, x: Tensor) -> Tensor:
        if len(x.shape) < 2:
            raise ValueError(f"[{self.title}] expected (batch, channels, ...), got {x.shape}")
        return x if not training() or self.p == 0.0 else _dropped(x, 2, self.p)


class DropPath(Layer):
    """In training, zeroes each sample with probability `drop_prob` and scales the others up by
    1 / (1 - drop_prob): stochastic depth, for the branch of a residual block. Huang et al. 2016.

    Raises ValueError for a probability outside [0, 1).

    >>> layer.DropPath(0.1)(tensor.ones((2,)))  # in inference
    Tensor([1., 1.], dtype=float32)
    """

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob: float = fraction("DropPath", "drop_prob", drop_prob, open_end=True)

    def forward(self, x: Tensor) -> Tensor:
        if not training() or self.drop_prob == 0.0:
            return x
        return _dropped(x, 1, self.drop_prob)
