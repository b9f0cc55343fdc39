"""Functions of integers: their bits, and common divisors. They have no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..dtypes import BY_VALUE, bool_, is_float, uint8
from ..tape.tensor import Tensor
from .arithmetic import Binary, combined
from .base import Constant
from .elementwise import Not, Scalar

if TYPE_CHECKING:
    from ..tape.operator import Operator, Raw


class _OfBits(Constant, Binary):
    """Base class of functions of two tensors of integers or bools."""

    def forward(self, a: Raw, b: Raw) -> Raw:
        return _c.Binary(self.code, a, b)


class BitAnd(_OfBits):
    """The bits that a and b both have."""

    code = _c.BinaryOp_kBitAnd


class BitOr(_OfBits):
    """The bits that a or b have."""

    code = _c.BinaryOp_kBitOr


class BitXor(_OfBits):
    """The bits that exactly one of a and b has."""

    code = _c.BinaryOp_kBitXor


class _OfIntegers(_OfBits):
    """Base class of functions that bools do not have."""

    def forward(self, a: Raw, b: Raw) -> Raw:
        given = [BY_VALUE[x.data_type()] for x in (a, b)]
        if bool_ in given:
            raise TypeError(f"[{type(self).__name__}] takes integers, got {given[0]}, {given[1]}")
        return super().forward(a, b)


class ShiftLeft(_OfIntegers):
    """a·2^b."""

    code = _c.BinaryOp_kShiftLeft


class ShiftRight(_OfIntegers):
    """floor(a / 2^b)."""

    code = _c.BinaryOp_kShiftRight


class Gcd(_OfIntegers):
    """The greatest common divisor of a and b."""

    code = _c.BinaryOp_kGcd


class Lcm(_OfIntegers):
    """The least common multiple of a and b."""

    code = _c.BinaryOp_kLcm


def inverse(x: Tensor) -> tuple[Operator, Tensor]:
    """The operator that inverts all bits of x, and its argument: -1 - x, or the logical not of
    bools.

    Raises TypeError for floats.
    """
    if is_float(x.dtype):
        raise TypeError(f"[BitNot] ~ takes integers and bools, got {x.dtype}")
    if x.dtype == bool_:
        return Not(), x
    return Scalar(_c.UnaryOp_kScalarSub, 255 if x.dtype == uint8 else -1), x


def bitwise_and(a: Any, b: Any) -> Tensor:
    """The bits that a and b both have, as `a & b`: integers or bools, with broadcasting. One of
    them may be a number or an array, here and below.

    Raises TypeError for floats, ValueError for shapes that do not broadcast to each other.

    >>> autograd.bitwise_and(tensor.Tensor(data=[6, 12], dtype="int32"), 10)
    Tensor([2, 8], dtype=int32)
    """
    return combined(BitAnd, a, b)


def bitwise_or(a: Any, b: Any) -> Tensor:
    """The bits that a or b have, as `a | b`: integers or bools, with broadcasting.

    Raises TypeError for floats, ValueError for shapes that do not broadcast to each other.

    >>> autograd.bitwise_or(tensor.Tensor(data=[6, 12], dtype="int32"), 10)
    Tensor([14, 14], dtype=int32)
    """
    return combined(BitOr, a, b)


def bitwise_xor(a: Any, b: Any) -> Tensor:
    """The bits that exactly one of a and b has, as `a ^ b`: integers or bools, with broadcasting.

    Raises TypeError for floats, ValueError for shapes that do not broadcast to each other.

    >>> autograd.bitwise_xor(tensor.Tensor(data=[6, 12], dtype="int32"), 10)
    Tensor([12,  6], dtype=int32)
    """
    return combined(BitXor, a, b)


def bitwise_not(x: Tensor) -> Tensor:
    """x with all bits inverted, as `~x`: -1 - x for integers with a sign; of bools the logical not.

    Raises TypeError for floats.

    >>> autograd.bitwise_not(tensor.Tensor(data=[0, 5], dtype="int32"))
    Tensor([-1, -6], dtype=int32)
    """
    op, x = inverse(x)
    return op(x)[0]


def bitwise_left_shift(a: Any, b: Any) -> Tensor:
    """a·2^b, as `a << b`: integers, with broadcasting. It is 0 where b is negative or the number of
    a's bits or more.

    Raises TypeError for floats and bools, ValueError for shapes that do not broadcast.

    >>> autograd.bitwise_left_shift(tensor.Tensor(data=[1, 3], dtype="int32"), 4)
    Tensor([16, 48], dtype=int32)
    """
    return combined(ShiftLeft, a, b)


def bitwise_right_shift(a: Any, b: Any) -> Tensor:
    """floor(a / 2^b), as `a >> b`: integers, with broadcasting. Where b is negative or the number
    of a's bits or more, it is -1 for negative a, else 0.

    Raises TypeError for floats and bools, ValueError for shapes that do not broadcast.

    >>> autograd.bitwise_right_shift(tensor.Tensor(data=[-5, 48], dtype="int32"), 1)
    Tensor([-3, 24], dtype=int32)
    """
    return combined(ShiftRight, a, b)


def gcd(a: Any, b: Any) -> Tensor:
    """The greatest common divisor of integers, with broadcasting. It is not negative, and 0 where
    both are.

    Raises TypeError for floats and bools, ValueError for shapes that do not broadcast.

    >>> autograd.gcd(tensor.Tensor(data=[12, -8, 0], dtype="int32"), 18)
    Tensor([ 6,  2, 18], dtype=int32)
    """
    return combined(Gcd, a, b)


def lcm(a: Any, b: Any) -> Tensor:
    """The least common multiple of integers, with broadcasting. It is not negative, and 0 where one
    of them is.

    Raises TypeError for floats and bools, ValueError for shapes that do not broadcast.

    >>> autograd.lcm(tensor.Tensor(data=[4, -6, 0], dtype="int32"), 10)
    Tensor([20, 30,  0], dtype=int32)
    """
    return combined(Lcm, a, b)
