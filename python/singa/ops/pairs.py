"""Functions of two tensors beyond arithmetic, and interpolation between two."""

from __future__ import annotations

from typing import Any

from .. import singa_wrap as _c
from ..dtypes import float32, is_float
from ..tape.tensor import Tensor
from .arithmetic import BinaryOperator, greater_equal, with_operands
from .base import tensor_of
from .conversion import cast, converted
from .indexing import where


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
    return [x if is_float(x.dtype) else converted(x, float32) for x in tensors]


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
