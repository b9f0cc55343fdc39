"""Operators of two tensors with NumPy's broadcasting, and of lists of tensors.

`operate` is what `+`, `<` and the like on tensors stand on; it takes numbers and arrays too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from .._tensor import Tensor, as_raw, wrap
from ..dtypes import float32, is_float
from ..tape import Operator, apply
from .base import Constant, Op, tensor_of
from .elementwise import Scalar

if TYPE_CHECKING:
    from ..tape import Raw


class BinaryOperator(Op):
    """c = f(a, b). The gradients are summed to the shapes of a and b."""

    code: int

    def forward(self, a: Raw, b: Raw) -> Raw:
        c = _c.Binary(self.code, a, b)
        self.save(a, b, c)
        return c

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        a, b, c = self.load()
        return _c.BinaryBackward(self.code, dy, a, b, c, self._need(0), self._need(1))


class _Sum(Op):
    """a + b or a - b, whose gradients need shapes and types alone, so that neither operand is kept
    alive."""

    code: int
    _operands: tuple[tuple[tuple[int, ...], int], ...] | None = None  # None: like the result

    def forward(self, a: Raw, b: Raw) -> Raw:
        if not a.alike(b):
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

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        return self._to(0, dy), self._to(1, dy)


class Sub(_Sum):
    """a - b."""

    code = _c.BinaryOp_kSub

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        db = self._to(1, dy)
        return self._to(0, dy), None if db is None else _c.Unary(_c.UnaryOp_kNegative, db)


class Mul(BinaryOperator):
    """a·b, elementwise."""

    code = _c.BinaryOp_kMul


class Div(BinaryOperator):
    """a / b."""

    code = _c.BinaryOp_kDiv


class Pow(BinaryOperator):
    """a to the power of b."""

    code = _c.BinaryOp_kPow


class Mod(BinaryOperator):
    """Remainder of a / b, with b's sign."""

    code = _c.BinaryOp_kMod


class PRelu(BinaryOperator):
    """x where x >= 0, else slope·x."""

    code = _c.BinaryOp_kPRelu


class _Comparison(Constant):
    code: int

    def forward(self, a: Raw, b: Raw) -> Raw:
        return _c.Binary(self.code, a, b)


class Less(_Comparison):
    """1 where a < b, else 0."""

    code = _c.BinaryOp_kLess


class LessEqual(_Comparison):
    """1 where a <= b, else 0."""

    code = _c.BinaryOp_kLessEqual


class Greater(_Comparison):
    """1 where a > b, else 0."""

    code = _c.BinaryOp_kGreater


class GreaterEqual(_Comparison):
    """1 where a >= b, else 0."""

    code = _c.BinaryOp_kGreaterEqual


class Equal(_Comparison):
    """1 where a equals b, else 0."""

    code = _c.BinaryOp_kEqual


class NotEqual(_Comparison):
    """1 where a differs from b, else 0."""

    code = _c.BinaryOp_kNotEqual


class And(_Comparison):
    """1 where neither a nor b is 0, else 0."""

    code = _c.BinaryOp_kAnd


class Or(_Comparison):
    """1 where a or b is not 0, else 0."""

    code = _c.BinaryOp_kOr


class Xor(_Comparison):
    """1 where one of a and b is 0 and the other is not, else 0."""

    code = _c.BinaryOp_kXor


# Lists of tensors.


class Sum(Op):
    """xs[0] + xs[1] + ..."""

    _shapes: tuple[tuple[int, ...], ...] = ()

    def forward(self, *xs: Raw) -> Raw:
        y = xs[0]
        for x in xs[1:]:
            y = _c.Binary(_c.BinaryOp_kAdd, y, x)
        self._shapes = tuple(x.shape() for x in xs)
        return y

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        shape = dy.shape()
        return tuple(
            None if not self._need(i) else dy if wanted == shape else _c.SumTo(dy, wanted)
            for i, wanted in enumerate(self._shapes)
        )


class Mean(Sum):
    """(xs[0] + xs[1] + ...) / number of tensors."""

    def forward(self, *xs: Raw) -> Raw:
        return _c.Unary(_c.UnaryOp_kMulScalar, super().forward(*xs), 1.0 / len(xs))

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        return super().backward(_c.Unary(_c.UnaryOp_kMulScalar, dy, 1.0 / len(self._shapes)))


class _Extremum(Op):
    """The extreme of a list of tensors, elementwise; equals share the gradient, two by two."""

    code: int

    def forward(self, *xs: Raw) -> Raw:
        steps = [xs[0]]
        for x in xs[1:]:
            steps.append(_c.Binary(self.code, steps[-1], x))
        self.save(*xs, *steps)
        return steps[-1]

    def backward(self, dy: Raw) -> Raw | tuple[Raw | None, ...]:
        saved = self.load()
        count = len(saved) // 2
        xs, steps = saved[:count], saved[count:]
        gradients: list[Raw | None] = [None] * count
        for i in range(count - 1, 0, -1):
            dy, gradients[i] = _c.BinaryBackward(
                self.code, dy, steps[i - 1], xs[i], steps[i], True, self._need(i)
            )
        gradients[0] = dy
        return tuple(gradients) if count > 1 else dy


class Max(_Extremum):
    """The largest of xs, elementwise."""

    code = _c.BinaryOp_kMax


class Min(_Extremum):
    """The smallest of xs, elementwise."""

    code = _c.BinaryOp_kMin


# What the signs on tensors do.

_OPERATORS: dict[str, type[Op]] = {
    "add": Add,
    "sub": Sub,
    "mul": Mul,
    "div": Div,
    "pow": Pow,
    "mod": Mod,
    "less": Less,
    "less_equal": LessEqual,
    "greater": Greater,
    "greater_equal": GreaterEqual,
    "equal": Equal,
    "not_equal": NotEqual,
}
# tensor with number, and number with tensor, where one function does it
_TENSOR_SCALAR = {
    "add": _c.UnaryOp_kAddScalar,
    "mul": _c.UnaryOp_kMulScalar,
    "pow": _c.UnaryOp_kPowScalar,
}
_SCALAR_TENSOR = {
    "add": _c.UnaryOp_kAddScalar,
    "sub": _c.UnaryOp_kScalarSub,
    "mul": _c.UnaryOp_kMulScalar,
    "div": _c.UnaryOp_kScalarDiv,
    "pow": _c.UnaryOp_kScalarPow,
}


def operate(kind: str, a: Any, b: Any) -> Any:
    """`a kind b`, of which one may be a number or an array. Recorded as by `tape.apply`."""
    try:
        op, xs = _prepare(kind, a, b)
    except TypeError:
        if kind in ("equal", "not_equal"):
            return NotImplemented  # with None, a string ...: Python compares identities
        raise
    return apply(op, *xs)


def _call(kind: str, a: Any, b: Any) -> Tensor:
    """The same, recorded as by a call of the operator."""
    op, xs = _prepare(kind, a, b)
    return op(*xs)[0]


def _prepare(kind: str, a: Any, b: Any) -> tuple[Operator, tuple[Tensor, ...]]:
    number = (int, float)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        pass
    elif isinstance(a, Tensor) and isinstance(b, number):
        a = _widened(kind, a, b)
        if kind == "sub":
            return Scalar(_c.UnaryOp_kAddScalar, -b), (a,)
        if kind in _TENSOR_SCALAR:
            return Scalar(_TENSOR_SCALAR[kind], b), (a,)
        b = _full(b, a)
    elif isinstance(b, Tensor) and isinstance(a, number):
        b = _widened(kind, b, a)
        if kind in _SCALAR_TENSOR:
            return Scalar(_SCALAR_TENSOR[kind], a), (b,)
        a = _full(a, b)
    elif isinstance(a, Tensor):
        b = _constant(b, a)
    else:
        a = _constant(a, b)
    if kind == "div" and not is_float(a.dtype) and not is_float(b.dtype):
        a = wrap(a.data.AsType(int(float32)), a.requires_grad)
    return _OPERATORS[kind](), (a, b)


def _widened(kind: str, t: Tensor, number: float) -> Tensor:
    """An integer tensor as float32 where it meets a number with a fraction, or is divided."""
    if is_float(t.dtype) or (isinstance(number, int) and kind != "div"):
        return t
    return wrap(t.data.AsType(int(float32)), t.requires_grad)


def _full(number: float, like: Tensor) -> Tensor:
    return wrap(_c.Full((), float(number), like.device, int(like.dtype)), False)


def _constant(value: Any, like: Tensor) -> Tensor:
    if value is None or isinstance(value, str):
        raise TypeError(f"[arithmetic] a Tensor with {type(value).__name__}")
    return tensor_of(value, like)


def operate_into(kind: str, t: Tensor, other: Any) -> Tensor:
    """`t kind= other`, into t's memory.

    Raises TypeError where an integer tensor cannot hold the result, ValueError where other does not
    broadcast to t's shape.
    """
    number = other if isinstance(other, (int, float)) else None
    if not is_float(t.dtype) and (kind == "div" or isinstance(number, float)):
        raise TypeError(f"[{kind}] the result does not fit a tensor of {t.dtype}, in place")
    raw = t.data
    if number is not None and kind in ("add", "sub", "mul", "pow"):
        code = _TENSOR_SCALAR["add" if kind == "sub" else kind]
        _c.UnaryInto(code, raw, raw, float(-number if kind == "sub" else number))
        return t
    if number is not None:
        operand = _full(number, t).data
    else:
        operand = as_raw(other, device=t.device)
        if is_float(t.dtype):
            operand = operand.AsType(int(t.dtype))
    _c.BinaryInto(_OPERATORS[kind].code, raw, operand, raw)  # type: ignore[attr-defined]
    return t


# Functions.


def add(a: Any, b: Any) -> Tensor:
    """a + b."""
    return _call("add", a, b)


def sub(a: Any, b: Any) -> Tensor:
    """a - b."""
    return _call("sub", a, b)


def mul(x: Any, y: Any) -> Tensor:
    """x·y, elementwise."""
    return _call("mul", x, y)


def div(a: Any, b: Any) -> Tensor:
    """a / b."""
    return _call("div", a, b)


def pow(a: Any, b: Any) -> Tensor:
    """a to the power of b."""
    return _call("pow", a, b)


def mod(a: Any, b: Any) -> Tensor:
    """Remainder of a / b, with b's sign."""
    return _call("mod", a, b)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """x where x >= 0, else slope·x; slope broadcasts to x."""
    return PRelu()(x, tensor_of(slope, x))[0]


def less(x: Any, y: Any) -> Tensor:
    """1 where x < y, else 0."""
    return _call("less", x, y)


def less_equal(x: Any, y: Any) -> Tensor:
    """1 where x <= y, else 0."""
    return _call("less_equal", x, y)


def greater(x: Any, y: Any) -> Tensor:
    """1 where x > y, else 0."""
    return _call("greater", x, y)


def greater_equal(x: Any, y: Any) -> Tensor:
    """1 where x >= y, else 0."""
    return _call("greater_equal", x, y)


def equal(x: Any, y: Any) -> Tensor:
    """1 where x equals y, else 0."""
    return _call("equal", x, y)


def not_equal(x: Any, y: Any) -> Tensor:
    """1 where x differs from y, else 0."""
    return _call("not_equal", x, y)


def _and(a: Tensor, b: Tensor) -> Tensor:
    """1 where both are not 0, else 0."""
    return And()(a, b)[0]


def _or(a: Tensor, b: Tensor) -> Tensor:
    """1 where one is not 0, else 0."""
    return Or()(a, b)[0]


def _xor(a: Tensor, b: Tensor) -> Tensor:
    """1 where one and only one is not 0, else 0."""
    return Xor()(a, b)[0]


def _listed(xs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    xs = tuple(xs[0]) if len(xs) == 1 and isinstance(xs[0], (list, tuple)) else xs
    if not xs:
        raise ValueError("[list] needs at least one tensor")
    return xs


def sum(*xs: Tensor) -> Tensor:
    """Sum of a list of tensors, elementwise. (`reduce_sum` sums the elements of one.)"""
    return Sum()(*_listed(xs))[0]


add_all = sum


def mean(*xs: Tensor) -> Tensor:
    """Mean of a list of tensors, elementwise. (`reduce_mean` is that of one tensor's elements.)"""
    return Mean()(*_listed(xs))[0]


def max(*xs: Tensor) -> Tensor:
    """The largest of a list of tensors, elementwise."""
    return Max()(*_listed(xs))[0]


def min(*xs: Tensor) -> Tensor:
    """The smallest of a list of tensors, elementwise."""
    return Min()(*_listed(xs))[0]
