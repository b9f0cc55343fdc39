"""Functions of one element: y = f(x), with up to two constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from .._check import number
from .._tensor import Tensor
from .base import Constant, Op

if TYPE_CHECKING:
    from ..tape import Raw


class Elementwise(Op):
    """y = f(x; a, b). A subclass names f and which of x and y its derivative is computed from."""

    code: int
    keep = "x"
    fresh_gradients = True
    a = 0.0
    b = 0.0

    def forward(self, x: Raw) -> Raw:
        y = _c.Unary(self.code, x, self.a, self.b)
        self.save(x if "x" in self.keep else None, y if "y" in self.keep else None)
        return y

    def backward(self, dy: Raw) -> Raw:
        x, y = self.load()
        return _c.UnaryBackward(self.code, dy, x, y, self.a, self.b)


# Derivatives from x.


class Abs(Elementwise):
    """|x|."""

    code = _c.UnaryOp_kAbs


class Acos(Elementwise):
    """The angle in [0, pi] whose cosine is x; NaN outside [-1, 1]."""

    code = _c.UnaryOp_kAcos


class Acosh(Elementwise):
    """The number of 0 or more whose hyperbolic cosine is x; NaN below 1."""

    code = _c.UnaryOp_kAcosh


class Asin(Elementwise):
    """The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1]."""

    code = _c.UnaryOp_kAsin


class Asinh(Elementwise):
    """The number whose hyperbolic sine is x."""

    code = _c.UnaryOp_kAsinh


class Atan(Elementwise):
    """The angle in (-pi/2, pi/2) whose tangent is x."""

    code = _c.UnaryOp_kAtan


class Atanh(Elementwise):
    """The number whose hyperbolic tangent is x; NaN outside [-1, 1]."""

    code = _c.UnaryOp_kAtanh


class Cos(Elementwise):
    """Cosine of x in radians."""

    code = _c.UnaryOp_kCos


class Cosh(Elementwise):
    """(e^x + e^-x) / 2."""

    code = _c.UnaryOp_kCosh


class Erf(Elementwise):
    """2 / sqrt(pi) times the integral of e^-t² from 0 to x."""

    code = _c.UnaryOp_kErf


class Gelu(Elementwise):
    """x·Φ(x)."""

    code = _c.UnaryOp_kGelu


class Log(Elementwise):
    """Natural logarithm; NaN below 0."""

    code = _c.UnaryOp_kLog


class Silu(Elementwise):
    """x·sigmoid(x)."""

    code = _c.UnaryOp_kSilu


class Sin(Elementwise):
    """Sine of x in radians."""

    code = _c.UnaryOp_kSin


class Sinh(Elementwise):
    """(e^x - e^-x) / 2."""

    code = _c.UnaryOp_kSinh


class SoftPlus(Elementwise):
    """log(1 + e^x)."""

    code = _c.UnaryOp_kSoftPlus


class SoftSign(Elementwise):
    """x / (1 + |x|)."""

    code = _c.UnaryOp_kSoftSign


class Square(Elementwise):
    """x²."""

    code = _c.UnaryOp_kSquare


# Derivatives from y, which the next operator mostly keeps too.


class Exp(Elementwise):
    """e^x."""

    code = _c.UnaryOp_kExp
    keep = "y"


class ReLU(Elementwise):
    """max(x, 0)."""

    code = _c.UnaryOp_kRelu
    keep = "y"


class Reciprocal(Elementwise):
    """1 / x."""

    code = _c.UnaryOp_kReciprocal
    keep = "y"


class Sigmoid(Elementwise):
    """1 / (1 + e^-x)."""

    code = _c.UnaryOp_kSigmoid
    keep = "y"


class Sqrt(Elementwise):
    """Square root; NaN below 0."""

    code = _c.UnaryOp_kSqrt
    keep = "y"


class Tan(Elementwise):
    """Tangent of x in radians."""

    code = _c.UnaryOp_kTan
    keep = "y"


class Tanh(Elementwise):
    """(e^x - e^-x) / (e^x + e^-x)."""

    code = _c.UnaryOp_kTanh
    keep = "y"


# Derivatives from dy alone.


class Negative(Elementwise):
    """-x."""

    code = _c.UnaryOp_kNegative
    keep = ""


class Sign(Elementwise):
    """-1, 0 or 1. No gradient flows."""

    code = _c.UnaryOp_kSign
    keep = ""


class Ceil(Elementwise):
    """The next whole number upwards. No gradient flows."""

    code = _c.UnaryOp_kCeil
    keep = ""


class Floor(Elementwise):
    """The next whole number downwards. No gradient flows."""

    code = _c.UnaryOp_kFloor
    keep = ""


class Round(Elementwise):
    """To the nearest whole number, halves away from zero."""

    code = _c.UnaryOp_kRound
    keep = ""


class Rounde(Elementwise):
    """To the nearest whole number, halves to even."""

    code = _c.UnaryOp_kRoundE
    keep = ""


# With constants.


class Clip(Elementwise):
    """Into [min, max]; None is no bound."""

    code = _c.UnaryOp_kClip

    def __init__(self, min: float | None = None, max: float | None = None) -> None:
        super().__init__()
        self.a = float("-inf") if min is None else number("Clip", "min", min)
        self.b = float("inf") if max is None else number("Clip", "max", max)


class Elu(Elementwise):
    """x where x >= 0, else alpha·(e^x - 1)."""

    code = _c.UnaryOp_kElu

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.a = number(type(self).__name__, "alpha", alpha)


class SeLU(Elementwise):
    """gamma·x where x >= 0, else gamma·alpha·(e^x - 1)."""

    code = _c.UnaryOp_kSelu

    def __init__(self, alpha: float = 1.67326, gamma: float = 1.0507) -> None:
        super().__init__()
        op = type(self).__name__
        self.a, self.b = number(op, "alpha", alpha), number(op, "gamma", gamma)


class LeakyRelu(Elementwise):
    """x where x >= 0, else a·x."""

    code = _c.UnaryOp_kLeakyRelu

    def __init__(self, a: float = 0.01) -> None:
        super().__init__()
        self.a = number("LeakyRelu", "a", a)
        self.keep = "y" if a >= 0 else "x"  # y has x's sign unless the slope turns it around


class HardSigmoid(Elementwise):
    """alpha·x + gamma, clipped to [0, 1]."""

    code = _c.UnaryOp_kHardSigmoid

    def __init__(self, alpha: float = 0.2, gamma: float = 0.5) -> None:
        super().__init__()
        op = type(self).__name__
        self.a, self.b = number(op, "alpha", alpha), number(op, "gamma", gamma)


class Scalar(Elementwise):
    """x with a Python number: `code` is one of the scalar functions, `value` the number."""

    fresh_gradients = False  # that of x + a is dy itself

    def __init__(self, code: int, value: float) -> None:
        super().__init__()
        self.code = code
        self.a = float(value)
        self.keep = _SCALAR_KEEPS.get(code, "")


_SCALAR_KEEPS = {
    _c.UnaryOp_kScalarDiv: "x",
    _c.UnaryOp_kPowScalar: "x",
    _c.UnaryOp_kScalarPow: "y",
}


class Not(Constant):
    """1 where x is 0, else 0."""

    def forward(self, x: Raw) -> Raw:
        return _c.Unary(_c.UnaryOp_kLogicalNot, x)


def _function(operator: type[Elementwise]) -> Any:
    def function(x: Tensor) -> Tensor:
        return operator()(x)[0]

    name = operator.__name__.lower()
    function.__name__ = function.__qualname__ = name
    function.__doc__ = operator.__doc__ or f"{name} of each element."
    return function


acos = _function(Acos)
acosh = _function(Acosh)
asin = _function(Asin)
asinh = _function(Asinh)
atan = _function(Atan)
atanh = _function(Atanh)
ceil = _function(Ceil)
cos = _function(Cos)
cosh = _function(Cosh)
erf = _function(Erf)
floor = _function(Floor)
gelu = _function(Gelu)
log = _function(Log)
negative = _function(Negative)
reciprocal = _function(Reciprocal)
relu = _function(ReLU)
round = _function(Round)
rounde = _function(Rounde)
sigmoid = _function(Sigmoid)
silu = _function(Silu)
sin = _function(Sin)
sinh = _function(Sinh)
softplus = _function(SoftPlus)
softsign = _function(SoftSign)
sqrt = _function(Sqrt)
square = _function(Square)
tan = _function(Tan)
tanh = _function(Tanh)


# SINGA calls the argument of these three `a`.


def abs(a: Tensor) -> Tensor:
    """|a|."""
    return Abs()(a)[0]


def exp(a: Tensor) -> Tensor:
    """e^a."""
    return Exp()(a)[0]


def sign(a: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return Sign()(a)[0]


def clip(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """x limited to [min, max]; None is no bound."""
    return Clip(min, max)(x)[0]


def elu(x: Tensor, alpha: float = 1) -> Tensor:
    """x where x >= 0, else alpha·(e^x - 1)."""
    return Elu(alpha)(x)[0]


def selu(x: Tensor, alpha: float = 1.67326, gamma: float = 1.0507) -> Tensor:
    """gamma·x where x >= 0, else gamma·alpha·(e^x - 1)."""
    return SeLU(alpha, gamma)(x)[0]


def leakyrelu(x: Tensor, a: float = 0.01) -> Tensor:
    """x where x >= 0, else a·x."""
    return LeakyRelu(a)(x)[0]


def hardsigmoid(x: Tensor, alpha: float = 0.2, gamma: float = 0.5) -> Tensor:
    """alpha·x + gamma, clipped to [0, 1]."""
    return HardSigmoid(alpha, gamma)(x)[0]


def _not(x: Tensor) -> Tensor:
    """1 where x is 0, else 0."""
    return Not()(x)[0]
