"""Operators that reduce axes, softmax, and the cosine of two lists of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from .._tensor import Tensor
from .base import Constant, Op, axes_of

if TYPE_CHECKING:
    from ..tape import Raw

Axes = int | Sequence[int] | None


class Reduction(Op):
    """Reduces over `axes` (None: all), which stay as length 1 with keepdims."""

    code: int
    fresh_gradients = True

    def __init__(self, axes: Axes = None, keepdims: bool | int = 1) -> None:
        super().__init__()
        self.axes = axes_of(type(self).__name__, axes)
        self.keepdims = bool(keepdims)

    def forward(self, x: Raw) -> Raw:
        y = _c.Reduce(self.code, x, self.axes, self.keepdims)
        self.save(x, y)
        return y

    def backward(self, dy: Raw) -> Raw:
        x, y = self.load()
        return _c.ReduceBackward(self.code, dy, x, y, self.axes, self.keepdims)


class ReduceSum(Reduction):
    """Sum over axes. Its gradient is dy, repeated: a view, for which x need not be kept."""

    code = _c.ReduceOp_kSum
    fresh_gradients = False
    _shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return _c.Reduce(self.code, x, self.axes, self.keepdims)

    def _count(self) -> int:
        count = 1
        for axis in self.axes or range(len(self._shape)):
            count *= self._shape[axis]
        return count

    def backward(self, dy: Raw) -> Raw:
        rank = len(self._shape)
        reduced = {axis % rank for axis in self.axes} if self.axes else set(range(rank))
        kept = [1 if axis in reduced else size for axis, size in enumerate(self._shape)]
        return dy.Reshape(kept).Broadcast(self._shape)


class ReduceMean(ReduceSum):
    """Mean over axes."""

    code = _c.ReduceOp_kMean

    def backward(self, dy: Raw) -> Raw:
        count = self._count() or 1
        return super().backward(_c.Unary(_c.UnaryOp_kMulScalar, dy, 1.0 / count))


class ReduceMax(Reduction):
    """The largest over axes; equals share the gradient."""

    code = _c.ReduceOp_kMax


class ReduceMin(Reduction):
    """The smallest over axes; equals share the gradient."""

    code = _c.ReduceOp_kMin


class ReduceProd(Reduction):
    """Product over axes."""

    code = _c.ReduceOp_kProd


class ReduceL1(Reduction):
    """Sum of absolute values over axes."""

    code = _c.ReduceOp_kL1


class ReduceL2(Reduction):
    """Root of the sum of squares over axes."""

    code = _c.ReduceOp_kL2


class ReduceSumSquare(Reduction):
    """Sum of squares over axes."""

    code = _c.ReduceOp_kSumSquare


class ArgMax(Constant):
    """int64 position of the largest along an axis, the first of equals."""

    def __init__(self, axis: int = -1, keepdims: bool = False) -> None:
        super().__init__()
        self.axis, self.keepdims = axis, keepdims

    def forward(self, x: Raw) -> Raw:
        return _c.ArgMax(x, self.axis, self.keepdims)


class ArgMin(ArgMax):
    """int64 position of the smallest along an axis, the first of equals."""

    def forward(self, x: Raw) -> Raw:
        return _c.ArgMin(x, self.axis, self.keepdims)


class SoftMax(Op):
    """e^x / Σ e^x along an axis."""

    fresh_gradients = True

    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Raw) -> Raw:
        y = _c.Softmax(x, self.axis)
        self.save(y)
        return y

    def backward(self, dy: Raw) -> Raw:
        (y,) = self.load()
        return _c.SoftmaxBackward(dy, y, self.axis)


class LogSoftMax(SoftMax):
    """log softmax along an axis."""

    def forward(self, x: Raw) -> Raw:
        y = _c.LogSoftmax(x, self.axis)
        self.save(y)
        return y

    def backward(self, dy: Raw) -> Raw:
        (y,) = self.load()
        return _c.LogSoftmaxBackward(dy, y, self.axis)


class CosSim(Op):
    """Cosine of the angle between the rows (last axis) of a and b."""

    def forward(self, a: Raw, b: Raw) -> Raw:
        norm_a, norm_b = (_c.Reduce(_c.ReduceOp_kL2, t, (-1,), True) for t in (a, b))
        unit_a = _c.Binary(_c.BinaryOp_kDiv, a, norm_a)
        unit_b = _c.Binary(_c.BinaryOp_kDiv, b, norm_b)
        cosine = _c.Reduce(_c.ReduceOp_kSum, _c.Binary(_c.BinaryOp_kMul, unit_a, unit_b), (-1,))
        self.save(unit_a, unit_b, norm_a, norm_b, cosine)
        return cosine

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        unit_a, unit_b, norm_a, norm_b, cosine = self.load()
        # d cos / da = (b/|b| - cos·a/|a|) / |a|, and the same the other way round
        slope, cosine = dy.Unsqueeze((-1,)), cosine.Unsqueeze((-1,))

        def gradient(unit: Raw, norm: Raw, other: Raw) -> Raw:
            along = _c.Binary(_c.BinaryOp_kMul, cosine, unit)
            across = _c.Binary(_c.BinaryOp_kSub, other, along)
            factor = _c.Binary(_c.BinaryOp_kDiv, slope, norm)
            return _c.Binary(_c.BinaryOp_kMul, across, factor)

        return (
            gradient(unit_a, norm_a, unit_b) if self._need(0) else None,
            gradient(unit_b, norm_b, unit_a) if self._need(1) else None,
        )


def _function(operator: type[Reduction], name: str) -> Any:
    def function(x: Tensor, axes: Axes = None, keepdims: bool | int = 1) -> Tensor:
        return operator(axes, keepdims)(x)[0]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = operator.__doc__
    return function


reduce_sum = _function(ReduceSum, "reduce_sum")
reduce_mean = _function(ReduceMean, "reduce_mean")
reduce_max = _function(ReduceMax, "reduce_max")
reduce_min = _function(ReduceMin, "reduce_min")
reduce_prod = _function(ReduceProd, "reduce_prod")
reduce_l1 = _function(ReduceL1, "reduce_l1")
reduce_l2 = _function(ReduceL2, "reduce_l2")
reduce_sum_square = _function(ReduceSumSquare, "reduce_sum_square")


def argmax(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """int64 position of the largest along an axis, the first of equals."""
    return ArgMax(axis, keepdims)(x)[0]


def argmin(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """int64 position of the smallest along an axis, the first of equals."""
    return ArgMin(axis, keepdims)(x)[0]


def softmax(x: Tensor, axis: int = 1) -> Tensor:
    """e^x / Σ e^x along an axis."""
    return SoftMax(axis)(x)[0]


def log_softmax(x: Tensor, axis: int = 1) -> Tensor:
    """log softmax along an axis."""
    return LogSoftMax(axis)(x)[0]


def cossim(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between the rows (last axis) of a and b."""
    return CosSim()(a, b)[0]
