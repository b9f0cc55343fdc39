"""Logarithms and powers of other bases, functions without a kernel of their own, functions of two
tensors beyond arithmetic, and whether numbers are finite or close to each other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import BY_VALUE, bfloat16, bool_, float64, is_float, wide_type
from ..raw.calls import checks_flags
from ..tape.grad_mode import no_grad
from ..tape.tensor import Tensor
from .arithmetic import (
    BinaryOperator,
    _and,
    _or,
    equal,
    greater_equal,
    less,
    less_equal,
    not_equal,
    with_operands,
)
from .base import tensor_of
from .conversion import Promoting, cast, converted, floating
from .elementwise import Elementwise, abs, reciprocal, sqrt
from .indexing import where

if TYPE_CHECKING:
    from ..tape.operator import Raw


def _wide(kind: int) -> int:
    """The type in which numbers of this type are computed."""
    return int(wide_type(BY_VALUE[kind]))


def _compared(code: int, x: Raw, number: float) -> Raw:
    return _c.Compare(code, x, _c.Full((), number, x.device(), x.data_type()))


class Expm1(Elementwise):
    """e^x - 1, exact to rounding near 0 as well."""

    code: int = _c.UnaryOp_kExpm1


class Log1p(Elementwise):
    """log(1 + x), exact to rounding near 0 as well; NaN below -1."""

    code: int = _c.UnaryOp_kLog1p


def _has_sign(x: Raw) -> Raw:
    """Whether the sign of each number is negative, that of -0 included."""
    below = [
        _compared(_c.BinaryOp_kLess, number, 0.0)
        for number in (x, _c.Unary(_c.UnaryOp_kReciprocal, x))
    ]
    return _c.Compare(_c.BinaryOp_kOr, *below)


class Atan2(Promoting):
    """The angle of the point (x, y) in radians, in [-pi, pi], with broadcasting. Zeros and
    infinities count as in IEEE 754."""

    def forward(self, y: Raw, x: Raw) -> Raw:
        self.save(y, x)
        kind = y.data_type()
        wide = _wide(kind)
        y, x = y.AsType(wide), x.AsType(wide)
        height, width = (_c.Unary(_c.UnaryOp_kAbs, t) for t in (y, x))
        # The slope is 0 for 0 / 0, and 1 for inf / inf.
        slope = _c.Where(
            _c.Compare(_c.BinaryOp_kEqual, height, width),
            _c.Unary(_c.UnaryOp_kSign, height),
            _c.Binary(_c.BinaryOp_kDiv, height, width),
        )
        angle = _c.Unary(_c.UnaryOp_kAtan, slope)
        angle = _c.Where(_has_sign(x), _c.Unary(_c.UnaryOp_kScalarSub, angle, math.pi), angle)
        angle = _c.Where(_has_sign(y), _c.Unary(_c.UnaryOp_kNegative, angle), angle)
        return angle.AsType(kind)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        kind, shapes = dy.data_type(), [t.shape() for t in self.load()]
        wide = _wide(kind)
        y, x = (t.AsType(wide) for t in self.load())
        square = _c.Binary(
            _c.BinaryOp_kAdd, _c.Unary(_c.UnaryOp_kSquare, y), _c.Unary(_c.UnaryOp_kSquare, x)
        )
        zero = _c.Full((), 0.0, dy.device(), wide)
        share = _c.Where(
            _c.Compare(_c.BinaryOp_kEqual, square, zero),
            zero,
            _c.Binary(_c.BinaryOp_kDiv, dy.AsType(wide), square),
        )

        def gradient(i: int, other: Raw) -> Raw | None:
            if not self._need(i):
                return None
            product = _c.Binary(_c.BinaryOp_kMul, share, other)
            return _c.SumTo(product, shapes[i]).AsType(kind)

        return gradient(0, x), gradient(1, _c.Unary(_c.UnaryOp_kNegative, y))


class Log2(Elementwise):
    """Logarithm to base 2; NaN below 0."""

    code: int = _c.UnaryOp_kLog2


class Log10(Elementwise):
    """Logarithm to base 10; NaN below 0."""

    code: int = _c.UnaryOp_kLog10


class Exp2(Elementwise):
    """2^x."""

    code: int = _c.UnaryOp_kExp2


def expm1(x: Tensor) -> Tensor:
    """e^x - 1, exact to rounding near 0 as well. Integers count as float32.

    >>> autograd.expm1(tensor.Tensor(data=[0.0, 1.0]))
    Tensor([0.    , 1.7183], dtype=float32)
    """
    return Expm1()(floating(x))[0]


def log1p(x: Tensor) -> Tensor:
    """log(1 + x), exact to rounding near 0 as well; NaN below -1. Integers count as float32.

    >>> autograd.log1p(tensor.Tensor(data=[0.0, 1.0]))
    Tensor([0.    , 0.6931], dtype=float32)
    """
    return Log1p()(floating(x))[0]


def atan2(y: Any, x: Any) -> Tensor:
    """The angle of the point (x, y) in radians, in [-pi, pi], with broadcasting, as numpy.arctan2:
    the sign of a zero counts, and two infinities are a diagonal. One of them may be a number or an
    array; integers count as float32. The gradient at the origin is 0, as PyTorch's, and NaN at
    infinities.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.atan2(tensor.Tensor(data=[1.0, 0.0]), tensor.Tensor(data=[1.0, -1.0]))
    Tensor([0.7854, 3.1416], dtype=float32)
    """
    like = y if isinstance(y, Tensor) else x if isinstance(x, Tensor) else None
    return Atan2()(floating(tensor_of(y, like)), floating(tensor_of(x, like)))[0]


def log2(x: Tensor) -> Tensor:
    """Logarithm to base 2; NaN below 0. Integers count as float32.

    >>> autograd.log2(tensor.Tensor(data=[1.0, 8.0]))
    Tensor([0., 3.], dtype=float32)
    """
    return Log2()(floating(x))[0]


def log10(x: Tensor) -> Tensor:
    """Logarithm to base 10; NaN below 0. Integers count as float32.

    >>> autograd.log10(tensor.Tensor(data=[1.0, 1000.0]))
    Tensor([0., 3.], dtype=float32)
    """
    return Log10()(floating(x))[0]


def exp2(x: Tensor) -> Tensor:
    """2^x. Integers count as float32.

    >>> autograd.exp2(tensor.Tensor(data=[-1.0, 3.0]))
    Tensor([0.5, 8. ], dtype=float32)
    """
    return Exp2()(floating(x))[0]


def rsqrt(x: Tensor) -> Tensor:
    """1 / √x; NaN below 0. Integers count as float32.

    >>> autograd.rsqrt(tensor.Tensor(data=[4.0, 0.25]))
    Tensor([0.5, 2. ], dtype=float32)
    """
    return reciprocal(sqrt(floating(x)))


def nan_to_num(
    x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with numbers instead of NaN and the infinities, as torch.nan_to_num: by default 0, and the
    largest and smallest numbers of the type. They have gradient 0.

    >>> autograd.nan_to_num(tensor.Tensor(data=[np.nan, 1.0, np.inf]), posinf=9.0)
    Tensor([0., 1., 9.], dtype=float32)
    """
    if not is_float(x.dtype):
        return x
    largest = 3.3895313892515355e38  # of bfloat16
    if x.dtype != bfloat16:
        largest = float(np.finfo(x.dtype.name).max)
    x = where(nan, x, not_equal(x, x))
    x = where(largest if posinf is None else posinf, x, equal(x, math.inf))
    return where(-largest if neginf is None else neginf, x, equal(x, -math.inf))


def isnan(x: Tensor) -> Tensor:
    """Whether elements are NaN, as bool. No integer is.

    >>> autograd.isnan(tensor.Tensor(data=[1.0, np.nan, np.inf]))
    Tensor([False,  True, False], dtype=bool)
    """
    return _truth(not_equal(x, x))


def isinf(x: Tensor) -> Tensor:
    """Whether elements are infinite, as bool. No integer is.

    >>> autograd.isinf(tensor.Tensor(data=[1.0, np.nan, -np.inf]))
    Tensor([False, False,  True], dtype=bool)
    """
    return _truth(equal(abs(x), math.inf) if is_float(x.dtype) else not_equal(x, x))


def isfinite(x: Tensor) -> Tensor:
    """Whether elements are neither infinite nor NaN, as bool. All integers are finite.

    >>> autograd.isfinite(tensor.Tensor(data=[1.0, np.nan, -np.inf]))
    Tensor([ True, False, False], dtype=bool)
    """
    return _truth(less(abs(x), math.inf) if is_float(x.dtype) else equal(x, x))


def signbit(x: Tensor) -> Tensor:
    """Whether the sign of elements is negative, as bool: that of -0, and a NaN's, count.

    >>> autograd.signbit(tensor.Tensor(data=[-2.0, -0.0, 0.0]))
    Tensor([ True,  True, False], dtype=bool)
    """
    with no_grad():
        return _truth(less(copysign(1.0, x) if is_float(x.dtype) else x, 0))


@checks_flags
def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |a - b| <= atol + rtol·|b|, as bool, with broadcasting, as numpy.isclose. Infinities
    are close to themselves alone; NaN is close to NaN with `equal_nan`. Integers are compared as
    float64.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.isclose(tensor.Tensor(data=[1.0, 1.0]), tensor.Tensor(data=[1.0000001, 1.1]))
    Tensor([ True, False], dtype=bool)
    """
    like = a if isinstance(a, Tensor) else b if isinstance(b, Tensor) else None
    with no_grad():
        a, b = (_of_float(tensor_of(x, like)) for x in (a, b))
        same = equal(a, b)
        if equal_nan:
            same = _or(same, _and(not_equal(a, a), not_equal(b, b)))
        difference = abs(a - b)
        near = _and(less(difference, math.inf), less_equal(difference, abs(b) * rtol + atol))
        return _truth(_or(same, near))


def _of_float(x: Tensor) -> Tensor:
    return x if is_float(x.dtype) else converted(x, float64)


def _truth(x: Tensor) -> Tensor:
    """A comparison as bool, also with SINGA's behaviour."""
    return x if x.dtype == bool_ else converted(x, bool_)


class Fmod(BinaryOperator):
    """Remainder of a / b with the sign of a, as C's %."""

    code = _c.BinaryOp_kFmod


class Hypot(BinaryOperator):
    """√(a² + b²)."""

    code = _c.BinaryOp_kHypot


class CopySign(BinaryOperator):
    """|a| with the sign of b."""

    code = _c.BinaryOp_kCopySign


class LogAddExp(BinaryOperator):
    """log(e^a + e^b)."""

    code = _c.BinaryOp_kLogAddExp


def _floats(*xs: Any) -> list[Tensor]:
    """Operands as tensors, integers as float32."""
    like = next((x for x in xs if isinstance(x, Tensor)), None)
    tensors = [tensor_of(x, like) for x in xs]
    return [floating(x) for x in tensors]


def fmod(a: Any, b: Any) -> Tensor:
    """Remainder of a / b with the sign of a, as C's fmod and %, with broadcasting; `mod` has the
    sign of b. One of them may be a number or an array, here and below.

    Raises ZeroDivisionError for integers that are divided by zero; on GPUs the result is 0 there.

    >>> autograd.fmod(tensor.Tensor(data=[-7, 7], dtype="int32"), 3)
    Tensor([-1,  1], dtype=int32)
    """
    op, xs = with_operands(Fmod, a, b)
    return op(*xs)[0]


def hypot(a: Any, b: Any) -> Tensor:
    """√(a² + b²) without overflow on the way, with broadcasting. Integers count as float32. The
    gradient at the origin is NaN, as PyTorch's.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.hypot(tensor.Tensor(data=[3.0, 3e30]), tensor.Tensor(data=[4.0, 4e30]))
    Tensor([5.e+00, 5.e+30], dtype=float32)
    """
    return Hypot()(*_floats(a, b))[0]


def copysign(a: Any, b: Any) -> Tensor:
    """|a| with the sign of b, that of -0 included, with broadcasting. Integers count as float32. b
    has gradient 0.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.copysign(tensor.Tensor(data=[1.0, -2.0, 3.0]), [-1.0, 5.0, -0.0])
    Tensor([-1.,  2., -3.], dtype=float32)
    """
    return CopySign()(*_floats(a, b))[0]


def logaddexp(a: Any, b: Any) -> Tensor:
    """log(e^a + e^b), which is finite for numbers of any size, with broadcasting. Integers count as
    float32.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.logaddexp(tensor.Tensor(data=[0.0, 1000.0]), tensor.Tensor(data=[0.0, 999.0]))
    Tensor([   0.6931, 1000.3132], dtype=float32)
    """
    return LogAddExp()(*_floats(a, b))[0]


def lerp(start: Any, end: Any, weight: Any) -> Tensor:
    """start + weight·(end - start), with broadcasting: `end` exactly where the weight is 1.
    Integers count as float32.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.lerp(tensor.Tensor(data=[0.0, 10.0]), tensor.Tensor(data=[1.0, 20.0]), 0.25)
    Tensor([ 0.25, 12.5 ], dtype=float32)
    """
    if isinstance(weight, (int, float)):
        start, end = _floats(start, end)
        if weight < 0.5:
            return start + (end - start) * weight
        return end + (end - start) * (weight - 1)
    start, end, weight = _floats(start, end, weight)
    is_late = greater_equal(weight, 0.5)
    return where(end, start, is_late) + (end - start) * (weight - cast(is_late, weight.dtype))
