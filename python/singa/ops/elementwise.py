"""Elementwise functions of one tensor, with up to two constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .. import singa_wrap as _c
from ..dtypes import int64
from ..raw import compat_mode
from ..raw.arrays import full
from ..raw.check import number
from ..tape.tensor import Tensor
from .base import BuiltinOperator, Constant

if TYPE_CHECKING:
    from ..tape.operator import Raw

    class OfTensor(Protocol):
        """A function of one tensor."""

        def __call__(self, x: Tensor) -> Tensor: ...


#: What backward needs of each function, by its code: "x", "y" (x would do, too) or "".
_KEEPS: tuple[str, ...] = tuple(
    {_c.Saved_kNothing: "", _c.Saved_kX: "x"}.get(_c.NeededByBackward(code), "y")
    for code in range(_c.UnaryOp_kCount)
)


class Elementwise(BuiltinOperator):
    """Base class of elementwise functions y = f(x; a, b).

    `code` is the function. `keep` names what the derivative is computed from: "x", "y" or "".
    """

    code: int
    keep: str
    fresh_gradients = True
    a: float = 0.0
    b: float = 0.0

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in vars(cls):
            cls.keep = _KEEPS[cls.code]

    def forward(self, x: Raw) -> Raw:
        y = _c.Unary(self.code, x, self.a, self.b)
        self.save(x if "x" in self.keep else None, y if "y" in self.keep else None)
        return y

    def backward(self, dy: Raw) -> Raw:
        x, y = self.load()
        return _c.UnaryBackward(self.code, dy, x, y, self.a, self.b)


class Abs(Elementwise):
    """Absolute value."""

    code: int = _c.UnaryOp_kAbs


class Acos(Elementwise):
    """Inverse cosine in radians, in [0, pi]; NaN outside [-1, 1].

    >>> autograd.acos(tensor.Tensor(data=[1.0, 0.0, -1.0]))
    Tensor([0.    , 1.5708, 3.1416], dtype=float32)
    """

    code: int = _c.UnaryOp_kAcos


class Acosh(Elementwise):
    """Inverse hyperbolic cosine, which is not negative; NaN below 1.

    >>> autograd.acosh(tensor.Tensor(data=[1.0, 2.0]))
    Tensor([0.   , 1.317], dtype=float32)
    """

    code: int = _c.UnaryOp_kAcosh


class Asin(Elementwise):
    """Inverse sine in radians, in [-pi/2, pi/2]; NaN outside [-1, 1].

    >>> autograd.asin(tensor.Tensor(data=[0.0, 0.5, 1.0]))
    Tensor([0.    , 0.5236, 1.5708], dtype=float32)
    """

    code: int = _c.UnaryOp_kAsin


class Asinh(Elementwise):
    """Inverse hyperbolic sine.

    >>> autograd.asinh(tensor.Tensor(data=[0.0, 1.0]))
    Tensor([0.    , 0.8814], dtype=float32)
    """

    code: int = _c.UnaryOp_kAsinh


class Atan(Elementwise):
    """Inverse tangent in radians, in (-pi/2, pi/2).

    >>> autograd.atan(tensor.Tensor(data=[0.0, 1.0]))
    Tensor([0.    , 0.7854], dtype=float32)
    """

    code: int = _c.UnaryOp_kAtan


class Atanh(Elementwise):
    """Inverse hyperbolic tangent; NaN outside [-1, 1].

    >>> autograd.atanh(tensor.Tensor(data=[0.0, 0.5]))
    Tensor([0.    , 0.5493], dtype=float32)
    """

    code: int = _c.UnaryOp_kAtanh


class Cos(Elementwise):
    """Cosine of x in radians.

    >>> autograd.cos(tensor.Tensor(data=[0.0, np.pi]))
    Tensor([ 1., -1.], dtype=float32)
    """

    code: int = _c.UnaryOp_kCos


class Cosh(Elementwise):
    """Hyperbolic cosine.

    >>> autograd.cosh(tensor.Tensor(data=[0.0, 1.0]))
    Tensor([1.    , 1.5431], dtype=float32)
    """

    code: int = _c.UnaryOp_kCosh


class Erf(Elementwise):
    """Error function: 2 / sqrt(pi) times the integral of e^(-t²) from 0 to x.

    >>> autograd.erf(tensor.Tensor(data=[0.0, 0.5, 2.0]))
    Tensor([0.    , 0.5205, 0.9953], dtype=float32)
    """

    code: int = _c.UnaryOp_kErf


class Gelu(Elementwise):
    """GELU: x·Φ(x), with the standard normal distribution Φ. Hendrycks & Gimpel 2016."""

    code: int = _c.UnaryOp_kGelu


class GeluTanh(Elementwise):
    """x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2, which is within 5e-4 of Gelu. Hendrycks & Gimpel
    2016."""

    code: int = _c.UnaryOp_kGeluTanh


class HardSwish(Elementwise):
    """x·clip(x + 3, 0, 6) / 6. Howard et al. 2019.

    >>> autograd.hardswish(tensor.Tensor(data=[-1.0, 1.0, 4.0]))
    Tensor([-0.3333,  0.6667,  4.    ], dtype=float32)
    """

    code: int = _c.UnaryOp_kHardSwish


class Mish(Elementwise):
    """x·tanh(log(1 + e^x)). Misra 2019.

    >>> autograd.mish(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-0.3034,  0.    ,  1.944 ], dtype=float32)
    """

    code: int = _c.UnaryOp_kMish


class Log(Elementwise):
    """Natural logarithm; NaN below 0.

    >>> autograd.log(tensor.Tensor(data=[1.0, 10.0]))
    Tensor([0.    , 2.3026], dtype=float32)
    """

    code: int = _c.UnaryOp_kLog


class Silu(Elementwise):
    """SiLU, also called swish: x·sigmoid(x).

    >>> autograd.silu(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-0.2689,  0.    ,  1.7616], dtype=float32)
    """

    code: int = _c.UnaryOp_kSilu


class Sin(Elementwise):
    """Sine of x in radians.

    >>> autograd.sin(tensor.Tensor(data=[0.0, np.pi / 2]))
    Tensor([0., 1.], dtype=float32)
    """

    code: int = _c.UnaryOp_kSin


class Sinh(Elementwise):
    """Hyperbolic sine.

    >>> autograd.sinh(tensor.Tensor(data=[0.0, 1.0]))
    Tensor([0.    , 1.1752], dtype=float32)
    """

    code: int = _c.UnaryOp_kSinh


class SoftSign(Elementwise):
    """Softsign: x / (1 + |x|).

    >>> autograd.softsign(tensor.Tensor(data=[-1.0, 0.0, 3.0]))
    Tensor([-0.5 ,  0.  ,  0.75], dtype=float32)
    """

    code: int = _c.UnaryOp_kSoftSign


class Square(Elementwise):
    """x².

    >>> autograd.square(tensor.Tensor(data=[-3.0, 0.5]))
    Tensor([9.  , 0.25], dtype=float32)
    """

    code: int = _c.UnaryOp_kSquare


class Exp(Elementwise):
    """Exponential function."""

    code: int = _c.UnaryOp_kExp


class ReLU(Elementwise):
    """max(x, 0).

    >>> autograd.relu(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([0., 0., 2.], dtype=float32)
    """

    code: int = _c.UnaryOp_kRelu


class Reciprocal(Elementwise):
    """1 / x.

    >>> autograd.reciprocal(tensor.Tensor(data=[2.0, -4.0]))
    Tensor([ 0.5 , -0.25], dtype=float32)
    """

    code: int = _c.UnaryOp_kReciprocal


class Sigmoid(Elementwise):
    """Logistic sigmoid: 1 / (1 + e^-x).

    >>> autograd.sigmoid(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([0.2689, 0.5   , 0.8808], dtype=float32)
    """

    code: int = _c.UnaryOp_kSigmoid


class Sqrt(Elementwise):
    """Square root; NaN below 0.

    >>> autograd.sqrt(tensor.Tensor(data=[4.0, 2.0]))
    Tensor([2.    , 1.4142], dtype=float32)
    """

    code: int = _c.UnaryOp_kSqrt


class Tan(Elementwise):
    """Tangent of x in radians.

    >>> autograd.tan(tensor.Tensor(data=[0.0, np.pi / 4]))
    Tensor([0., 1.], dtype=float32)
    """

    code: int = _c.UnaryOp_kTan


class Tanh(Elementwise):
    """Hyperbolic tangent.

    >>> autograd.tanh(tensor.Tensor(data=[-1.0, 0.0, 1.0]))
    Tensor([-0.7616,  0.    ,  0.7616], dtype=float32)
    """

    code: int = _c.UnaryOp_kTanh


class Negative(Elementwise):
    """-x.

    >>> autograd.negative(tensor.Tensor(data=[-1.0, 2.0]))
    Tensor([ 1., -2.], dtype=float32)
    """

    code: int = _c.UnaryOp_kNegative


class Sign(Elementwise):
    """Sign: -1, 0 or 1. The gradient is 0."""

    code: int = _c.UnaryOp_kSign


class Ceil(Elementwise):
    """Smallest integer that is not less than x. The gradient is 0.

    >>> autograd.ceil(tensor.Tensor(data=[-1.5, 0.2, 2.0]))
    Tensor([-1.,  1.,  2.], dtype=float32)
    """

    code: int = _c.UnaryOp_kCeil


class Floor(Elementwise):
    """Largest integer that is not greater than x. The gradient is 0.

    >>> autograd.floor(tensor.Tensor(data=[-1.5, 0.2, 2.0]))
    Tensor([-2.,  0.,  2.], dtype=float32)
    """

    code: int = _c.UnaryOp_kFloor


class Round(Elementwise):
    """Rounds to the nearest integer, halves away from zero. The gradient is 0.

    >>> autograd.round(tensor.Tensor(data=[0.5, 1.5, -0.5, 2.4]))
    Tensor([ 1.,  2., -1.,  2.], dtype=float32)
    """

    code: int = _c.UnaryOp_kRound


class Rounde(Elementwise):
    """Rounds to the nearest integer, halves to even. The gradient is 0.

    >>> autograd.rounde(tensor.Tensor(data=[0.5, 1.5, -1.5, 2.4]))
    Tensor([ 0.,  2., -2.,  2.], dtype=float32)
    """

    code: int = _c.UnaryOp_kRoundE


# With constants.


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
        self.beta: float = number("SoftPlus", "beta", beta)
        if not 0 < self.beta < float("inf"):
            raise ValueError(f"[SoftPlus] beta must be positive and finite, got {self.beta}")
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


class Scalar(Elementwise):
    """A function of x and a Python number, such as x + 2. `code` is the function."""

    fresh_gradients = False  # the gradient of x + a is dy itself

    def __init__(self, code: int, value: float) -> None:
        super().__init__()
        self.code = code
        self.a: float = float(value)
        self.keep = _KEEPS[code]


class Not(Constant):
    """Logical not: whether x is 0, as bool; 1 or 0 in its own type with SINGA's behaviour."""

    def forward(self, x: Raw) -> Raw:
        return _c.Unary(_c.UnaryOp_kLogicalNot, x if compat_mode.enabled else x.AsType(_c.kBool))


def _function(operator: type[Elementwise], any_type: bool = False) -> OfTensor:
    """The function that applies an operator, with its docstring and a note on shapes and types."""

    def function(x: Tensor) -> Tensor:
        return operator()(x)[0]

    function.__name__ = function.__qualname__ = operator.__name__.lower()
    text, _, example = (operator.__doc__ or "").partition(">>> ")
    note = _ANY_TYPE if any_type else _FLOATS
    indent = text[text.rfind("\n") + 1 :]  # none from Python 3.13 on
    function.__doc__ = f"{text.rstrip()}\n\n{indent}{note}\n\n{indent}>>> {example}"
    return function


_ANY_TYPE = "The result has the shape and the type of x."
_FLOATS = (
    "The result has the shape and the type of x. Raises TypeError unless that is a float type."
)


acos: OfTensor = _function(Acos)
acosh: OfTensor = _function(Acosh)
asin: OfTensor = _function(Asin)
asinh: OfTensor = _function(Asinh)
atan: OfTensor = _function(Atan)
atanh: OfTensor = _function(Atanh)
ceil: OfTensor = _function(Ceil, any_type=True)
cos: OfTensor = _function(Cos)
cosh: OfTensor = _function(Cosh)
erf: OfTensor = _function(Erf)
floor: OfTensor = _function(Floor, any_type=True)
hardswish: OfTensor = _function(HardSwish)
log: OfTensor = _function(Log)
mish: OfTensor = _function(Mish)
negative: OfTensor = _function(Negative, any_type=True)
reciprocal: OfTensor = _function(Reciprocal)
relu: OfTensor = _function(ReLU, any_type=True)
relu6: OfTensor = _function(ReLU6, any_type=True)
round: OfTensor = _function(Round, any_type=True)
rounde: OfTensor = _function(Rounde, any_type=True)
sigmoid: OfTensor = _function(Sigmoid)
silu: OfTensor = _function(Silu)
sin: OfTensor = _function(Sin)
sinh: OfTensor = _function(Sinh)
softsign: OfTensor = _function(SoftSign)
sqrt: OfTensor = _function(Sqrt)
square: OfTensor = _function(Square, any_type=True)
tan: OfTensor = _function(Tan)
tanh: OfTensor = _function(Tanh)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x), with Φ the normal distribution, or with `approximate` of "tanh" its approximation.
    Hendrycks & Gimpel 2016. Raises ValueError for another `approximate`.

    >>> x = tensor.Tensor(data=[-1.0, 0.0, 2.0])
    >>> autograd.gelu(x)
    Tensor([-0.1587,  0.    ,  1.9545], dtype=float32)
    >>> autograd.gelu(x, "tanh")
    Tensor([-0.1588,  0.    ,  1.9546], dtype=float32)
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"[Gelu] approximate must be 'none' or 'tanh', got {approximate!r}")
    return (Gelu() if approximate == "none" else GeluTanh())(x)[0]


def softplus(x: Tensor, beta: float = 1.0, threshold: float | None = None) -> Tensor:
    """log(1 + e^(beta·x)) / beta, or x where beta·x is above `threshold`, if there is one.

    PyTorch's threshold is 20; SINGA needs none, because nothing overflows. Raises ValueError for a
    beta that is not positive and finite.

    >>> autograd.softplus(tensor.Tensor(data=[-1.0, 0.0, 30.0]))
    Tensor([ 0.3133,  0.6931, 30.    ], dtype=float32)
    """
    return SoftPlus(beta, threshold)(x)[0]


# As in SINGA, the argument of these three is called `a`.


def abs(a: Tensor) -> Tensor:
    """Absolute value.

    >>> autograd.abs(tensor.Tensor(data=[-2.0, 0.0, 3.0]))
    Tensor([2., 0., 3.], dtype=float32)
    """
    return Abs()(a)[0]


def exp(a: Tensor) -> Tensor:
    """Exponential function.

    Raises TypeError unless a has a float type.

    >>> autograd.exp(tensor.Tensor(data=[0.0, 1.0]))
    Tensor([1.    , 2.7183], dtype=float32)
    """
    return Exp()(a)[0]


def sign(a: Tensor) -> Tensor:
    """Sign: -1, 0 or 1. The gradient is 0.

    >>> autograd.sign(tensor.Tensor(data=[-3.0, 0.0, 0.5]))
    Tensor([-1.,  0.,  1.], dtype=float32)
    """
    return Sign()(a)[0]


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Limits x to [min_val, max_val], with gradient 0 at both, as torch's hardtanh. Raises
    ValueError if min_val is above max_val.

    >>> autograd.hardtanh(tensor.Tensor(data=[-2.0, 0.5, 3.0]))
    Tensor([-1. ,  0.5,  1. ], dtype=float32)
    """
    return HardTanh(min_val, max_val)(x)[0]


def elu(x: Tensor, alpha: float = 1) -> Tensor:
    """ELU: x where x >= 0, else alpha·(e^x - 1). Clevert et al. 2016.

    Raises TypeError unless x has a float type.

    >>> autograd.elu(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-0.6321,  0.    ,  2.    ], dtype=float32)
    """
    return Elu(alpha)(x)[0]


def selu(x: Tensor, alpha: float = 1.67326, gamma: float = 1.0507) -> Tensor:
    """SELU: gamma·x where x >= 0, else gamma·alpha·(e^x - 1). Klambauer et al. 2017.

    Raises TypeError unless x has a float type.

    >>> autograd.selu(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([-1.1113,  0.    ,  2.1014], dtype=float32)
    """
    return SeLU(alpha, gamma)(x)[0]


def leakyrelu(x: Tensor, a: float = 0.01) -> Tensor:
    """Leaky ReLU: x where x >= 0, else a·x.

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


def _not(x: Tensor) -> Tensor:
    """Logical not: whether x is 0, as bool."""
    return Not()(x)[0]
