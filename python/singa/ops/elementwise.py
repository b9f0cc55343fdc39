"""Elementwise functions of one tensor. Those with constants are in activation.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .. import singa_wrap as _c
from ..raw.check import flag
from ..tape.arguments import also_named
from ..tape.tensor import Tensor
from .base import BuiltinOperator, Constant

if TYPE_CHECKING:
    from ..tape.operator import Raw

    class OfTensor(Protocol):
        """A function of one tensor."""

        def __call__(self, x: Tensor) -> Tensor: ...

    class OfA(Protocol):
        """The same, whose argument SINGA calls `a`."""

        def __call__(self, a: Tensor) -> Tensor: ...


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
    """Absolute value.

    >>> autograd.abs(tensor.Tensor(data=[-2.0, 0.0, 3.0]))
    Tensor([2., 0., 3.], dtype=float32)
    """

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
    """Exponential function.

    >>> autograd.exp(tensor.Tensor(data=[0.0, 1.0]))
    Tensor([1.    , 2.7183], dtype=float32)
    """

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
    """Sign: -1, 0 or 1. The gradient is 0.

    >>> autograd.sign(tensor.Tensor(data=[-3.0, 0.0, 0.5]))
    Tensor([-1.,  0.,  1.], dtype=float32)
    """

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


class Trunc(Elementwise):
    """The whole number next to x towards zero. The gradient is 0.

    >>> autograd.trunc(tensor.Tensor(data=[-1.5, 0.2, 2.0]))
    Tensor([-1.,  0.,  2.], dtype=float32)
    """

    code: int = _c.UnaryOp_kTrunc


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

    _of_bools = True

    def forward(self, x: Raw) -> Raw:
        return _c.Unary(_c.UnaryOp_kLogicalNot, x.AsType(_c.kBool) if self._of_bools else x)


def function_of(
    operator: type[Elementwise],
    any_type: bool = False,
    of_tensors: bool = False,
    in_place: bool = False,
) -> OfTensor:
    """The function that applies an operator, with its docstring and a note on shapes and types.
    Those that SINGA's tensor module has, too, call their argument `t` there. Those that PyTorch has
    `in_place`, too, take its argument, which changes nothing."""
    if in_place:

        def function(x: Tensor, inplace: bool = False) -> Tensor:
            if inplace is not False:
                flag(function.__name__, "inplace", inplace)
            return operator()(x)[0]

    else:

        def function(x: Tensor) -> Tensor:  # type: ignore[misc]
            return operator()(x)[0]

    return _described(function, operator, any_type, {"t": "x"} if of_tensors else {})


def _function_of_a(operator: type[Elementwise], any_type: bool = False) -> OfA:
    """As `function_of`, for those of which SINGA's autograd calls the argument `a`."""

    def function(a: Tensor) -> Tensor:
        return operator()(a)[0]

    return _described(function, operator, any_type, {"t": "a"})


def _described(
    function: Any, operator: type[Elementwise], any_type: bool, names: dict[str, str]
) -> Any:
    function.__name__ = function.__qualname__ = operator.__name__.lower()
    function.__module__ = operator.__module__
    text, _, example = (operator.__doc__ or "").partition(">>> ")
    note = _ANY_TYPE if any_type else _FLOATS
    indent = text[text.rfind("\n") + 1 :]  # none from Python 3.13 on
    function.__doc__ = f"{text.rstrip()}\n\n{indent}{note}\n\n{indent}>>> {example}"
    return also_named(**names)(function) if names else function


_ANY_TYPE = "The result has the shape and the type of x."
_FLOATS = (
    "The result has the shape and the type of x. Raises TypeError unless that is a float type."
)


abs: OfA = _function_of_a(Abs, any_type=True)
acos: OfTensor = function_of(Acos)
acosh: OfTensor = function_of(Acosh)
asin: OfTensor = function_of(Asin)
asinh: OfTensor = function_of(Asinh)
atan: OfTensor = function_of(Atan)
atanh: OfTensor = function_of(Atanh)
ceil: OfTensor = function_of(Ceil, any_type=True, of_tensors=True)
cos: OfTensor = function_of(Cos)
cosh: OfTensor = function_of(Cosh)
erf: OfTensor = function_of(Erf)
exp: OfA = _function_of_a(Exp)
floor: OfTensor = function_of(Floor, any_type=True)
hardswish: OfTensor = function_of(HardSwish, in_place=True)
log: OfTensor = function_of(Log, of_tensors=True)
mish: OfTensor = function_of(Mish, in_place=True)
negative: OfTensor = function_of(Negative, any_type=True)
reciprocal: OfTensor = function_of(Reciprocal)
relu: OfTensor = function_of(ReLU, any_type=True, in_place=True)
round: OfTensor = function_of(Round, any_type=True)
rounde: OfTensor = function_of(Rounde, any_type=True)
sigmoid: OfTensor = function_of(Sigmoid, of_tensors=True)
sign: OfA = _function_of_a(Sign, any_type=True)
silu: OfTensor = function_of(Silu, in_place=True)
sin: OfTensor = function_of(Sin)
sinh: OfTensor = function_of(Sinh)
softsign: OfTensor = function_of(SoftSign)
sqrt: OfTensor = function_of(Sqrt, of_tensors=True)
square: OfTensor = function_of(Square, any_type=True, of_tensors=True)
tan: OfTensor = function_of(Tan)
tanh: OfTensor = function_of(Tanh, of_tensors=True)
trunc: OfTensor = function_of(Trunc, any_type=True)


def _not(x: Tensor) -> Tensor:
    """Logical not: whether x is 0, as bool."""
    return Not()(x)[0]
