"""Elementwise operators of two tensors, with NumPy's broadcasting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import bool_, float32, is_float
from ..tape.grad_mode import state
from ..tape.tensor import Tensor, wrap
from .activation import Clip
from .base import BuiltinOperator, Constant, tensor_of
from .conversion import converted
from .elementwise import Scalar
from .indexing import where
from .types import constant, result_type

if TYPE_CHECKING:
    from ..tape.operator import Operator, Raw


class Binary(BuiltinOperator):
    """Base class of operators c = f(a, b).

    `code` is the function. `with_number` and `of_number` are the functions for a tensor and a
    number and for a number and a tensor, or None.
    """

    code: int
    with_number: int | None = None
    of_number: int | None = None


class BinaryOperator(Binary):
    """c = f(a, b), where gradients are summed to the shapes of a and b."""

    reads_result = False  #: whether backward needs c

    def forward(self, a: Raw, b: Raw) -> Raw:
        c = _c.Binary(self.code, a, b)
        self.save(a, b, c if self.reads_result else None)
        return c

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        a, b, c = self.load()
        return _c.BinaryBackward(self.code, dy, a, b, c, self._need(0), self._need(1))


class _Sum(Binary):
    """a + b or a - b. Their gradients need only shapes and types, so operands are not kept."""

    _operands: tuple[tuple[tuple[int, ...], int], ...] | None = None  # None: like the result

    def forward(self, a: Raw, b: Raw) -> Raw:
        if (self.requires_grad is not False or state.recording) and not a.alike(b):
            self._operands = (a.shape(), a.data_type()), (b.shape(), b.data_type())
        return _c.Binary(self.code, a, b)

    def _to(self, i: int, dy: Raw) -> Raw | None:
        if not self._need(i):
            return None
        if self._operands is None:
            return dy
        shape, dtype = self._operands[i]
        return _c.SumTo(dy, shape).AsType(dtype)


class Add(_Sum):
    """a + b."""

    code = _c.BinaryOp_kAdd
    with_number = of_number = _c.UnaryOp_kAddScalar

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        return (dy, dy) if self._operands is None else (self._to(0, dy), self._to(1, dy))


class Sub(_Sum):
    """a - b."""

    code = _c.BinaryOp_kSub
    of_number = _c.UnaryOp_kScalarSub  # a - 2 is computed as a + -2

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        db = self._to(1, dy)
        return self._to(0, dy), None if db is None else _c.Unary(_c.UnaryOp_kNegative, db)


class Mul(BinaryOperator):
    """a * b, elementwise."""

    code = _c.BinaryOp_kMul
    with_number = of_number = _c.UnaryOp_kMulScalar


class Div(BinaryOperator):
    """a / b."""

    code = _c.BinaryOp_kDiv
    of_number = _c.UnaryOp_kScalarDiv


class Pow(BinaryOperator):
    """a ** b, elementwise."""

    code = _c.BinaryOp_kPow
    reads_result = True
    with_number = _c.UnaryOp_kPowScalar
    of_number = _c.UnaryOp_kScalarPow


class Mod(BinaryOperator):
    """Remainder of a / b with the sign of b, as Python's %."""

    code = _c.BinaryOp_kMod


class FloorDiv(Constant, Binary):
    """The largest whole number that is at most a / b, as Python's //. It has no gradient."""

    code = _c.BinaryOp_kFloorDiv

    def forward(self, a: Raw, b: Raw) -> Raw:
        return _c.Binary(self.code, a, b)


class PRelu(BinaryOperator):
    """Parametric ReLU: x where x >= 0, else slope·x. He et al. 2015."""

    code = _c.BinaryOp_kPRelu


class _Comparison(Constant, Binary):
    """A comparison or logical function. The result is bool; with SINGA's behaviour
    (`singa.compat`), 1 or 0 in the type of the operands."""

    _compute = staticmethod(_c.Compare)

    def forward(self, a: Raw, b: Raw) -> Raw:
        return self._compute(self.code, a, b)


class Less(_Comparison):
    """Whether a < b."""

    code = _c.BinaryOp_kLess


class LessEqual(_Comparison):
    """Whether a <= b."""

    code = _c.BinaryOp_kLessEqual


class Greater(_Comparison):
    """Whether a > b."""

    code = _c.BinaryOp_kGreater


class GreaterEqual(_Comparison):
    """Whether a >= b."""

    code = _c.BinaryOp_kGreaterEqual


class Equal(_Comparison):
    """Whether a == b."""

    code = _c.BinaryOp_kEqual


class NotEqual(_Comparison):
    """Whether a != b."""

    code = _c.BinaryOp_kNotEqual


class And(_Comparison):
    """Logical and: whether neither a nor b is 0."""

    code = _c.BinaryOp_kAnd


class Or(_Comparison):
    """Logical or: whether a or b is not 0."""

    code = _c.BinaryOp_kOr


class Xor(_Comparison):
    """Logical exclusive or: whether exactly one of a and b is 0."""

    code = _c.BinaryOp_kXor


def combined(kind: type[Binary], a: Any, b: Any) -> Tensor:
    """Applies an operator to a and b, one of which may be a number or an array."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and kind is not Div:
        return kind()(a, b)[0]
    op, xs = with_operands(kind, a, b)
    return op(*xs)[0]


def with_operands(kind: type[Binary], a: Any, b: Any) -> tuple[Operator, tuple[Tensor, ...]]:
    """An operator that computes `kind` of a and b, one of which may be a number or an array, and
    the tensors to apply it to."""
    number = (int, float)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        pass
    elif isinstance(a, Tensor) and isinstance(b, number):
        fits = is_float(a.dtype)
        if not fits:
            a, fits = beside_number(kind, a, b)
        if fits and kind is Sub:
            return Scalar(_c.UnaryOp_kAddScalar, -b), (a,)
        if fits and kind.with_number is not None:
            return Scalar(kind.with_number, b), (a,)
        b = constant_beside(b, a, kind)
    elif isinstance(b, Tensor) and isinstance(a, number):
        fits = is_float(b.dtype)
        if not fits:
            b, fits = beside_number(kind, b, a)
            fits = fits and (kind is not Pow or is_float(b.dtype))  # exponents are checked
        if fits and kind.of_number is not None:
            return Scalar(kind.of_number, a), (b,)
        a = constant_beside(a, b, kind)
    elif isinstance(a, Tensor):
        b = constant_beside(b, a, kind)
    else:
        a = constant_beside(a, b, kind)
    if kind is Div and not is_float(a.dtype) and not is_float(b.dtype):
        a = converted(a, float32)
    return kind(), (a, b)


def beside_number(kind: type[Binary], t: Tensor, number: float) -> tuple[Tensor, bool]:
    """An integer or bool tensor in the type of the result of `kind` with a number, and whether
    `Scalar` can compute it: a difference of bools is refused elsewhere, and an integer must fit
    the type in which the smallest integers are computed."""
    dtype = result_type(t, number)
    if kind is Div or is_float(dtype):
        return converted(t, float32), True
    if dtype != t.dtype:
        t = converted(t, dtype)
    return t, dtype != bool_ and -(1 << 31) <= number < 1 << 31


def constant_beside(value: Any, like: Tensor, kind: type[Binary]) -> Tensor:
    """A number, array or list as an operand beside `like`."""
    if isinstance(value, (int, float)):
        return wrap(constant(value, like, issubclass(kind, _Comparison)), False)
    if value is None or isinstance(value, str):
        raise TypeError(f"[arithmetic] a Tensor cannot be combined with {type(value).__name__}")
    return tensor_of(value, like)


# Functions.


def add(a: Any, b: Any) -> Tensor:
    """a + b, with broadcasting. One of them may be a number or an array, here and below. The type
    of the result is that of `result_type`.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.add(tensor.Tensor(data=[[1.0], [2.0]]), tensor.Tensor(data=[10.0, 20.0]))
    Tensor([[11., 21.],
            [12., 22.]], dtype=float32)
    """
    return combined(Add, a, b)


def sub(a: Any, b: Any) -> Tensor:
    """a - b, with broadcasting.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.sub(tensor.Tensor(data=[3.0, 5.0]), 1)
    Tensor([2., 4.], dtype=float32)
    """
    return combined(Sub, a, b)


def mul(x: Any, y: Any) -> Tensor:
    """x * y elementwise, with broadcasting.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.mul(tensor.Tensor(data=[3.0, 5.0]), tensor.Tensor(data=[2.0, 0.5]))
    Tensor([6. , 2.5], dtype=float32)
    """
    return combined(Mul, x, y)


def div(a: Any, b: Any) -> Tensor:
    """a / b, with broadcasting. Integers are divided as float32.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.div(tensor.Tensor(data=[3, 5], dtype="int32"), 2)
    Tensor([1.5, 2.5], dtype=float32)
    """
    return combined(Div, a, b)


def pow(a: Any, b: Any) -> Tensor:
    """a ** b elementwise, with broadcasting.

    Raises ValueError for an integer to a negative power; on GPUs powers by tensors of integers are
    truncated instead.

    >>> autograd.pow(tensor.Tensor(data=[2.0, 3.0]), 2)
    Tensor([4., 9.], dtype=float32)
    """
    return combined(Pow, a, b)


def mod(a: Any, b: Any) -> Tensor:
    """Remainder of a / b with the sign of b, as Python's %, with broadcasting.

    Raises ZeroDivisionError for integers that are divided by zero; on GPUs the result is 0 there.

    >>> autograd.mod(tensor.Tensor(data=[-7, 7], dtype="int32"), 3)
    Tensor([2, 1], dtype=int32)
    """
    return combined(Mod, a, b)


def floor_divide(a: Any, b: Any) -> Tensor:
    """The largest whole number that is at most a / b, as Python's //, with broadcasting. Integers
    stay integers. It has no gradient.

    Raises ZeroDivisionError for integers that are divided by zero; on GPUs the result is 0 there.

    >>> autograd.floor_divide(tensor.Tensor(data=[-7, 7], dtype="int32"), 2)
    Tensor([-4,  3], dtype=int32)
    """
    return combined(FloorDiv, a, b)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """Parametric ReLU: x where x >= 0, else slope·x. He et al. 2015. slope broadcasts to x.

    Raises ValueError if slope does not broadcast to x.

    >>> autograd.prelu(tensor.Tensor(data=[[-2.0, -2.0, 3.0]]), tensor.Tensor(data=[0.1, 0.5, 0.5]))
    Tensor([[-0.2, -1. ,  3. ]], dtype=float32)
    """
    return PRelu()(x, tensor_of(slope, x))[0]


def less(x: Any, y: Any) -> Tensor:
    """Whether x < y, as bool, with broadcasting.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.less(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([ True, False, False], dtype=bool)
    """
    return combined(Less, x, y)


def less_equal(x: Any, y: Any) -> Tensor:
    """Whether x <= y, as bool, with broadcasting.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.less_equal(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([ True,  True, False], dtype=bool)
    """
    return combined(LessEqual, x, y)


def greater(x: Any, y: Any) -> Tensor:
    """Whether x > y, as bool, with broadcasting.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.greater(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([False, False,  True], dtype=bool)
    """
    return combined(Greater, x, y)


def greater_equal(x: Any, y: Any) -> Tensor:
    """Whether x >= y, as bool, with broadcasting.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.greater_equal(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([False,  True,  True], dtype=bool)
    """
    return combined(GreaterEqual, x, y)


def equal(x: Any, y: Any) -> Tensor:
    """Whether x == y, as bool, with broadcasting.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.equal(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([False,  True, False], dtype=bool)
    """
    return combined(Equal, x, y)


def not_equal(x: Any, y: Any) -> Tensor:
    """Whether x != y, as bool, with broadcasting.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.not_equal(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([ True, False,  True], dtype=bool)
    """
    return combined(NotEqual, x, y)


def _and(a: Tensor, b: Tensor) -> Tensor:
    """Logical and: whether neither a nor b is 0."""
    return And()(a, b)[0]


def _or(a: Tensor, b: Tensor) -> Tensor:
    """Logical or: whether a or b is not 0."""
    return Or()(a, b)[0]


def _xor(a: Tensor, b: Tensor) -> Tensor:
    """Logical exclusive or: whether exactly one of a and b is 0."""
    return Xor()(a, b)[0]


def clip(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Limits x to [min, max]; None means no limit. Floats as limits make integers float32.

    A limit may also be a tensor or an array, as in torch.clamp: it broadcasts, and what it replaces
    gets its gradient. Where min is above max, the result is max. A limit that is NaN gives NaN.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> autograd.clip(tensor.Tensor(data=[-2.0, 0.5, 3.0]), 0.0, 1.0)
    Tensor([0. , 0.5, 1. ], dtype=float32)
    >>> autograd.clip(tensor.Tensor(data=[-2.0, 0.5, 3.0]), max=np.float32([-3.0, 0.0, 4.0]))
    Tensor([-3.,  0.,  3.], dtype=float32)
    """
    if any(isinstance(limit, Tensor | np.ndarray) for limit in (min, max)):
        for limit, outside in ((min, less), (max, greater)):
            if limit is not None:
                bound = tensor_of(limit, x)
                x = where(bound, x, _or(outside(x, bound), not_equal(bound, bound)))
        return x
    if isinstance(x, Tensor) and not is_float(x.dtype):
        limits = [limit for limit in (min, max) if limit is not None]
        if (dtype := result_type(x, *limits)) != x.dtype:
            x = converted(x, dtype)
    return Clip(min, max)(x)[0]
