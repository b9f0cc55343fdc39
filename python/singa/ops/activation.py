"""Activations and other elementwise functions with constants, gated linear units, and dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import singa_wrap as _c
from ..dtypes import int64
from ..raw.arrays import full
from ..raw.calls import checks_flags
from ..raw.check import fraction, integer, number, one_of, positive
from ..tape.arguments import also_named
from ..tape.grad_mode import training as is_training
from ..tape.tensor import Tensor
from .base import BuiltinOperator
from .elementwise import Elementwise, Gelu, GeluTanh, function_of

if TYPE_CHECKING:
    from ..tape.operator import Raw
    from .elementwise import OfTensor


class Clip(Elementwise):
    """Limits x to [min, max]; None means no limit."""

    code: int = _c.UnaryOp_kClip

    def __init__(self, min: float | None = None, max: float | None = None) -> None:
        super().__init__()
        self.a: float = float("-inf") if min is None else number("Clip", "min", min)
        self.b: float = float("inf") if max is None else number("Clip", "max", max)
        rounded = [
            limit for limit in (min, max) if isinstance(limit, int) and float(limit) != limit
        ]
        self._limits = (min, max) if rounded else None

    def forward(self, x: Raw) -> Raw:
        if self._limits and x.data_type() == int64:
            for code, limit in zip((_c.BinaryOp_kMax, _c.BinaryOp_kMin), self._limits, strict=True):
                if limit is not None:
                    x = _c.Binary(code, x, full((), limit, x.device(), int64))
            return x
        return super().forward(x)


class ReLU6(Elementwise):
    """Limits x to [0, 6]. Unlike that of Clip, the gradient at 0 and 6 is 0. Howard et al. 2017.

    >>> autograd.relu6(tensor.Tensor(data=[-1.0, 2.0, 8.0]))
    Tensor([0., 2., 6.], dtype=float32)
    """

    code = _c.UnaryOp_kHardTanh
    b = 6.0


class HardTanh(Elementwise):
    """Limits x to [a, b]. Unlike that of Clip, the gradient at both is 0, as in PyTorch."""

    code = _c.UnaryOp_kHardTanh

    def __init__(self, a: float = -1.0, b: float = 1.0) -> None:
        super().__init__()
        self.a: float = number("HardTanh", "min_val", a)
        self.b: float = number("HardTanh", "max_val", b)
        if self.a > self.b:
            raise ValueError(f"[HardTanh] min_val {a} is above max_val {b}")


class Elu(Elementwise):
    """ELU: x where x >= 0, else alpha·(e^x - 1). Clevert et al. 2016."""

    code: int = _c.UnaryOp_kElu

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.a: float = number(type(self).__name__, "alpha", alpha)


class Celu(Elementwise):
    """CELU: x where x >= 0, else alpha·(e^(x / alpha) - 1). Barron 2017."""

    code: int = _c.UnaryOp_kCelu

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.a: float = number("Celu", "alpha", alpha)
        if not self.a:
            raise ValueError("[Celu] alpha must not be 0")


class LogSigmoid(Elementwise):
    """log(1 / (1 + e^-x)), which is finite for numbers of any size.

    >>> autograd.logsigmoid(tensor.Tensor(data=[-100.0, 0.0, 2.0]))
    Tensor([-100.    ,   -0.6931,   -0.1269], dtype=float32)
    """

    code: int = _c.UnaryOp_kLogSigmoid


class SeLU(Elementwise):
    """SELU: gamma·x where x >= 0, else gamma·alpha·(e^x - 1). Klambauer et al. 2017."""

    code: int = _c.UnaryOp_kSelu

    def __init__(self, alpha: float = 1.67326, gamma: float = 1.0507) -> None:
        super().__init__()
        op = type(self).__name__
        self.a: float = number(op, "alpha", alpha)
        self.b: float = number(op, "gamma", gamma)


class LeakyRelu(Elementwise):
    """Leaky ReLU: x where x >= 0, else a·x."""

    code: int = _c.UnaryOp_kLeakyRelu

    def __init__(self, a: float = 0.01) -> None:
        super().__init__()
        self.a: float = number("LeakyRelu", "a", a)
        self.keep = "y" if a >= 0 else "x"  # y has the sign of x unless a is negative


class HardSigmoid(Elementwise):
    """Hard sigmoid: alpha·x + gamma, clipped to [0, 1]."""

    code: int = _c.UnaryOp_kHardSigmoid

    def __init__(self, alpha: float = 0.2, gamma: float = 0.5) -> None:
        super().__init__()
        op = type(self).__name__
        self.a: float = number(op, "alpha", alpha)
        self.b: float = number(op, "gamma", gamma)


class SoftPlus(Elementwise):
    """Softplus: log(1 + e^(beta·x)) / beta, or x where beta·x is above `threshold`, if there is
    one."""

    code: int = _c.UnaryOp_kSoftPlus

    def __init__(self, beta: float = 1.0, threshold: float | None = None) -> None:
        super().__init__()
        self.beta: float = positive("SoftPlus", "beta", beta, finite=True)
        self.threshold: float | None = (
            None if threshold is None else number("SoftPlus", "threshold", threshold)
        )

    def forward(self, x: Raw) -> Raw:
        scaled = x if self.beta == 1 else _c.Unary(_c.UnaryOp_kMulScalar, x, self.beta)
        y = _c.Unary(self.code, scaled)
        if self.beta != 1:
            y = _c.Unary(_c.UnaryOp_kMulScalar, y, 1 / self.beta)
        self.save(scaled)
        return self._linear_above(scaled, x, y)

    def backward(self, dy: Raw) -> Raw:
        (scaled,) = self.load()
        return self._linear_above(scaled, dy, _c.UnaryBackward(self.code, dy, scaled, None))

    def _linear_above(self, scaled: Raw, x: Raw, y: Raw) -> Raw:
        if self.threshold is None:
            return y
        limit = _c.Full((), self.threshold, x.device(), x.data_type())
        return _c.Where(_c.Binary(_c.BinaryOp_kGreater, scaled, limit), x, y)


class Glu(BuiltinOperator):
    """a·sigmoid(b), with a and b the halves of x along an axis. Dauphin et al. 2017."""

    fresh_gradients = True

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis: int = integer("Glu", "axis", axis)

    def forward(self, x: Raw) -> Raw:
        shape = x.shape()
        if not -len(shape) <= self.axis < len(shape) or shape[self.axis] % 2:
            raise ValueError(f"[Glu] axis {self.axis} of x {shape} must have an even length")
        half = shape[self.axis] // 2
        a, b = _c.Split(x, self.axis, (half, half))
        gate = _c.Unary(_c.UnaryOp_kSigmoid, b)
        self.save(a, gate)
        return _c.Binary(_c.BinaryOp_kMul, a, gate)

    def backward(self, dy: Raw) -> Raw:
        a, gate = self.load()
        da = _c.Binary(_c.BinaryOp_kMul, dy, gate)
        dgate = _c.Binary(_c.BinaryOp_kMul, dy, a)
        db = _c.UnaryBackward(_c.UnaryOp_kSigmoid, dgate, None, gate)
        return _c.Concat((da, db), self.axis)


relu6: OfTensor = function_of(ReLU6, any_type=True, in_place=True)
logsigmoid: OfTensor = function_of(LogSigmoid)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x), with Φ the normal distribution, or with `approximate` of "tanh" its approximation.
    Hendrycks & Gimpel 2016. Raises ValueError for another `approximate`.

    >>> x = tensor.Tensor(data=[-1.0, 0.0, 2.0])
    >>> autograd.gelu(x)
    Tensor([-0.1587,  0.    ,  1.9545], dtype=float32)
    >>> autograd.gelu(x, "tanh")
    Tensor([-0.1588,  0.    ,  1.9546], dtype=float32)
    """
    one_of("Gelu", "approximate", approximate, ["none", "tanh"])
    return (Gelu() if approximate == "none" else GeluTanh())(x)[0]


def softplus(x: Tensor, beta: float = 1.0, threshold: float | None = None) -> Tensor:
    """log(1 + e^(beta·x)) / beta, or x where beta·x is above `threshold`, if there is one.

    PyTorch's threshold is 20; SINGA needs none, because nothing overflows. Raises ValueError for a
    beta that is not positive and finite.

    >>> autograd.softplus(tensor.Tensor(data=[-1.0, 0.0, 30.0]))
    Tensor([ 0.3133,  0.6931, 30.    ], dtype=float32)
    """
    return SoftPlus(beta, threshold)(x)[0]


@checks_flags
def hardtanh(
    x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Limits x to [min_val, max_val], with gradient 0 at both, as torch's hardtanh. Raises
    ValueError if min_val is above max_val. `inplace` is PyTorch's, and changes nothing.

    >>> autograd.hardtanh(tensor.Tensor(data=[-2.0, 0.5, 3.0]))
    Tensor([-1. ,  0.5,  1. ], dtype=float32)
    """
    return HardTanh(min_val, max_val)(x)[0]


@checks_flags
def elu(x: Tensor, alpha: float = 1, inplace: bool = False) -> Tensor:
    """ELU: x where x >= 0, else alpha·(e^x - 1). Clevert et al. 2016. `inplace` is PyTorch's, and
    changes nothing.

    Raises TypeError unless x has a float type.

    >>> autograd.elu(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-0.6321,  0.    ,  2.    ], dtype=float32)
    """
    return Elu(alpha)(x)[0]


@checks_flags
def celu(x: Tensor, alpha: float = 1, inplace: bool = False) -> Tensor:
    """CELU: x where x >= 0, else alpha·(e^(x / alpha) - 1). Barron 2017. `inplace` is PyTorch's,
    and changes nothing.

    Raises TypeError unless x has a float type, ValueError for an alpha of 0.

    >>> autograd.celu(tensor.Tensor(data=[-1.0, 0.0, 2.0]), 0.5)
    Tensor([-0.4323,  0.    ,  2.    ], dtype=float32)
    """
    return Celu(alpha)(x)[0]


def selu(x: Tensor, alpha: float = 1.67326, gamma: float = 1.0507) -> Tensor:
    """SELU: gamma·x where x >= 0, else gamma·alpha·(e^x - 1). Klambauer et al. 2017.

    Raises TypeError unless x has a float type.

    >>> autograd.selu(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-1.1113,  0.    ,  2.1014], dtype=float32)
    """
    return SeLU(alpha, gamma)(x)[0]


@checks_flags
def leakyrelu(x: Tensor, a: float = 0.01, inplace: bool = False) -> Tensor:
    """Leaky ReLU: x where x >= 0, else a·x. `inplace` is PyTorch's, and changes nothing.

    Raises TypeError unless x has a float type.

    >>> autograd.leakyrelu(tensor.Tensor(data=[-2.0, 3.0]), 0.1)
    Tensor([-0.2,  3. ], dtype=float32)
    """
    return LeakyRelu(a)(x)[0]


def hardsigmoid(x: Tensor, alpha: float = 0.2, gamma: float = 0.5) -> Tensor:
    """Hard sigmoid: alpha·x + gamma, clipped to [0, 1].

    Raises TypeError unless x has a float type.

    >>> autograd.hardsigmoid(tensor.Tensor(data=[-4.0, 0.0, 1.0]))
    Tensor([0. , 0.5, 0.7], dtype=float32)
    """
    return HardSigmoid(alpha, gamma)(x)[0]


@also_named(dim="axis")
def glu(x: Tensor, axis: int = -1) -> Tensor:
    """a·sigmoid(b), with a and b the halves of x along an axis (default: the last). Dauphin et al.
    2017. Raises ValueError if the axis has an odd length.

    >>> autograd.glu(tensor.Tensor(data=[1.0, 2.0, 0.0, 100.0]))
    Tensor([0.5, 2. ], dtype=float32)
    """
    return Glu(axis)(x)[0]


class Dropout(BuiltinOperator):
    """Dropout. Srivastava et al. 2014.

    In training it sets each element to zero with probability `ratio` and scales the others by
    1 / (1 - ratio). In inference it returns x.

    With an integer `seed` other than 0, each call has the same mask. Otherwise masks come from the
    random generator of the device.

    SINGA's scripts call `dropout(x, 0.5)`, where 0.5 is the seed, which SINGA ignores. It is taken
    where it is the ratio, too. Any other float in [0, 1] raises ValueError, since it may be meant
    as the ratio; with SINGA's behaviour (`singa.compat`) a fraction is ignored.
    """

    fresh_gradients = True
    _ignores_fractions = False

    def __init__(self, seed: float = 0, ratio: float = 0.5) -> None:
        super().__init__()
        self.ratio: float = fraction("Dropout", "ratio", ratio, open_end=True)
        if isinstance(seed, float) and 0.0 <= seed <= 1.0:
            if seed != self.ratio and not (self._ignores_fractions and 0.0 < seed < 1.0):
                raise ValueError(
                    f"[Dropout] seed is the second argument, and {seed} looks like a ratio: write "
                    f"ratio={seed}"
                )
            seed = 0
        self.seed: int = integer("Dropout", "seed", seed, 0)
        self._active = True

    def forward(self, x: Raw) -> Raw:
        self._active = is_training()
        if not self._active:
            return x
        device = x.device()
        state = device.random_state() if self.seed else None
        if state is not None:
            device.SetRandSeed(self.seed)
        try:
            y, mask = _c.DropoutForward(x, self.ratio)
        finally:
            if state is not None:
                device.set_random_state(state)
        self.save(mask)
        return y

    def backward(self, dy: Raw) -> Raw:
        if not self._active:
            return dy.Clone()
        (mask,) = self.load()
        return _c.DropoutBackward(dy, mask, self.ratio)


@also_named(p="ratio")
def dropout(
    x: Tensor, seed: float = 0, ratio: float = 0.5, *, training: bool | None = None
) -> Tensor:
    """In training, sets each element to zero with probability `ratio` in [0, 1), and scales the
    others by 1 / (1 - ratio). Returns x in inference, and if `training` is False.

    The second argument is the seed, as in SINGA; see `Dropout`. `p` is PyTorch's name of `ratio`,
    and `dropout(x, p, training)` means what it does there. The mode decides, so that `training` may
    not be True in inference.

    Raises ValueError for a ratio outside [0, 1), for a seed that looks like one, and for
    training=True in inference.

    >>> autograd.training = True
    >>> autograd.dropout(tensor.ones((2, 4)), ratio=0.5).max().item()
    2.0
    """
    if isinstance(ratio, bool):  # PyTorch's order
        training, ratio, seed = bool(ratio), seed, 0
    if training is False:
        return x
    if training and not is_training():
        raise ValueError(
            "[dropout] training=True in inference: call train(), or set autograd.training = True"
        )
    return Dropout(seed, ratio)(x)[0]
