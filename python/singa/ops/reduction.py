"""Reductions over axes, arg max, softmax, and cosine similarity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .. import singa_wrap as _c
from ..raw.check import flag
from ..tape.arguments import also_named
from ..tape.tensor import Tensor
from .base import BuiltinOperator, Constant, axes_of
from .elementwise import log
from .movement import reshape

if TYPE_CHECKING:
    from ..tape.operator import Raw

Axes = int | Sequence[int] | None

if TYPE_CHECKING:

    class ReducesTensor(Protocol):
        """A function that reduces axes of a tensor."""

        def __call__(
            self, x: Tensor, axes: Axes = None, keepdims: bool | int = 1, *, axis: Axes = None
        ) -> Tensor: ...


class Reduction(BuiltinOperator):
    """Base class of reductions over `axes` (default: all), which stay with length 1 unless
    `keepdims` is 0."""

    code: int
    fresh_gradients = True

    def __init__(self, axes: Axes = None, keepdims: bool | int = 1) -> None:
        super().__init__()
        self.axes: tuple[int, ...] = axes_of(type(self).__name__, axes)
        if keepdims not in (0, 1):
            flag(type(self).__name__, "keepdims", keepdims)
        self.keepdims: bool = bool(keepdims)

    def forward(self, x: Raw) -> Raw:
        y = _c.Reduce(self.code, x, self.axes, self.keepdims)
        self.save(x, y)
        return y

    def backward(self, dy: Raw) -> Raw:
        x, y = self.load()
        return _c.ReduceBackward(self.code, dy, x, y, self.axes, self.keepdims)


# The gradients of sums and means do not depend on x, so x is not kept.


class ReduceSum(Reduction):
    """Sum over `axes` (default: all), which stay with length 1 unless `keepdims` is 0.

    Raises ValueError for an axis outside x.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
    >>> autograd.reduce_sum(x, 0)
    Tensor([[4., 6.]], dtype=float32)
    >>> autograd.reduce_sum(x, 0, keepdims=False)
    Tensor([4., 6.], dtype=float32)
    """

    code: int = _c.ReduceOp_kSum
    fresh_gradients = False
    _shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return _c.Reduce(self.code, x, self.axes, self.keepdims)

    def _count(self) -> int:
        shape = self._shape or (1,)
        count = 1
        for axis in self.axes or range(len(shape)):
            count *= shape[axis]
        return count

    def backward(self, dy: Raw) -> Raw:
        rank = len(self._shape)
        reduced = {axis % (rank or 1) for axis in self.axes} if self.axes else set(range(rank))
        kept = [1 if axis in reduced else size for axis, size in enumerate(self._shape)]
        return dy.Reshape(kept).Broadcast(self._shape)


class ReduceMean(ReduceSum):
    """Mean over `axes` (default: all), which stay with length 1 unless `keepdims` is 0.

    Raises ValueError for an axis outside x.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
    >>> autograd.reduce_mean(x, 1, keepdims=False)
    Tensor([1.5, 3.5], dtype=float32)
    """

    code: int = _c.ReduceOp_kMean

    #: Whether forward had images, and read them as they lie.
    _pools = False

    def forward(self, x: Raw) -> Raw:
        self._pools = x.is_blocked() and self._is_over_images(x)
        if not self._pools:
            return super().forward(x)
        self._shape = x.shape()
        self.save(x)
        y = _c.GlobalAveragePoolForward(x)
        return y if self.keepdims else y.Reshape(self._shape[:2])

    def _is_over_images(self, x: Raw) -> bool:
        """Whether the mean is that of each image and channel."""
        rank = len(x.shape())
        axes = sorted([axis + rank if axis < 0 else axis for axis in self.axes])
        return 3 <= rank <= 5 and axes == [*range(2, rank)] and bool(x.size())

    def backward(self, dy: Raw) -> Raw:
        if self._pools:
            (x,) = self.load()
            kept = (*self._shape[:2], *(1,) * (len(self._shape) - 2))
            return _c.GlobalAveragePoolBackward(dy.Reshape(kept), self._shape, x)
        count = self._count() or 1
        return super().backward(_c.Unary(_c.UnaryOp_kMulScalar, dy, 1.0 / count))


class ReduceMax(Reduction):
    """Maximum over `axes` (default: all), which stay with length 1 unless `keepdims` is 0. Equal
    maxima share the gradient.

    Raises ValueError for an axis outside x.

    >>> x = tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]])
    >>> autograd.reduce_max(x, 1, keepdims=False)
    Tensor([4., 3.], dtype=float32)
    """

    code: int = _c.ReduceOp_kMax


class ReduceMin(Reduction):
    """Minimum over `axes` (default: all), which stay with length 1 unless `keepdims` is 0. Equal
    minima share the gradient.

    Raises ValueError for an axis outside x.

    >>> x = tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]])
    >>> autograd.reduce_min(x, 1, keepdims=False)
    Tensor([1., 2.], dtype=float32)
    """

    code: int = _c.ReduceOp_kMin


class ReduceProd(Reduction):
    """Product over `axes` (default: all), which stay with length 1 unless `keepdims` is 0.

    Raises ValueError for an axis outside x.

    >>> x = tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]])
    >>> autograd.reduce_prod(x, 1, keepdims=False)
    Tensor([4., 6.], dtype=float32)
    """

    code: int = _c.ReduceOp_kProd


class ReduceL1(Reduction):
    """L1 norm, the sum of absolute values, over `axes` (default: all), which stay with length 1
    unless `keepdims` is 0.

    Raises ValueError for an axis outside x.

    >>> autograd.reduce_l1(tensor.Tensor(data=[[3.0, -4.0]]), 1, keepdims=False)
    Tensor([7.], dtype=float32)
    """

    code: int = _c.ReduceOp_kL1


class ReduceL2(Reduction):
    """L2 norm, the square root of the sum of squares, over `axes` (default: all), which stay with
    length 1 unless `keepdims` is 0.

    Raises ValueError for an axis outside x.

    >>> autograd.reduce_l2(tensor.Tensor(data=[[3.0, -4.0]]), 1, keepdims=False)
    Tensor([5.], dtype=float32)
    """

    code: int = _c.ReduceOp_kL2


class ReduceSumSquare(Reduction):
    """Sum of squares over `axes` (default: all), which stay with length 1 unless `keepdims` is
    0.

    Raises ValueError for an axis outside x.

    >>> autograd.reduce_sum_square(tensor.Tensor(data=[[3.0, -4.0]]), 1, keepdims=False)
    Tensor([25.], dtype=float32)
    """

    code: int = _c.ReduceOp_kSumSquare


class ReduceLogSumExp(Reduction):
    """log Σ e^x over `axes` (default: all), which stay with length 1 unless `keepdims` is 0. The
    largest element is subtracted first, so that nothing overflows. Of no elements it is -infinity.

    Raises ValueError for an axis outside x.

    >>> autograd.reduce_log_sum_exp(tensor.Tensor(data=[[1000.0, 1000.0]]), 1, keepdims=False)
    Tensor([1000.6932], dtype=float32)
    """

    def forward(self, x: Raw) -> Raw:
        if not x.size():
            total = _c.Reduce(_c.ReduceOp_kSum, x, self.axes, self.keepdims)
            self.save(x, None)
            return _c.Unary(_c.UnaryOp_kLog, total)
        largest = _c.Reduce(_c.ReduceOp_kMax, x, self.axes, True)
        # Nothing is subtracted from infinities and NaN, whose difference would be NaN.
        size = _c.Unary(_c.UnaryOp_kAbs, largest)
        finite = _c.Binary(_c.BinaryOp_kLess, size, _scalar(math.inf, x))
        shift = _c.Where(finite, largest, _scalar(0.0, x))
        powers = _c.Unary(_c.UnaryOp_kExp, _c.Binary(_c.BinaryOp_kSub, x, shift))
        total = _c.Reduce(_c.ReduceOp_kSum, powers, self.axes, True)
        y = _c.Binary(_c.BinaryOp_kAdd, _c.Unary(_c.UnaryOp_kLog, total), shift)
        self.save(x, y)
        return y if self.keepdims else y.Squeeze(self.axes or tuple(range(x.rank())))

    def backward(self, dy: Raw) -> Raw:
        x, y = self.load()
        if y is None:
            return _c.Full(x.shape(), 0.0, x.device(), x.data_type())
        share = _c.Unary(_c.UnaryOp_kExp, _c.Binary(_c.BinaryOp_kSub, x, y))
        return _c.Binary(_c.BinaryOp_kMul, share, dy.Reshape(y.shape()))


def _scalar(value: float, like: Raw) -> Raw:
    return _c.Full((), value, like.device(), like.data_type())


class ArgMax(Constant):
    """Index (int64) of the maximum along an axis: of several the first one, or with
    `select_last_index` the last one."""

    _arg = staticmethod(_c.ArgMax)

    def __init__(
        self, axis: int = -1, keepdims: bool = False, select_last_index: bool = False
    ) -> None:
        super().__init__()
        self.axis: int = axis
        self.keepdims: bool = keepdims
        self.select_last_index = select_last_index

    def forward(self, x: Raw) -> Raw:
        if not self.select_last_index or not -x.rank() <= self.axis < x.rank():
            return self._arg(x, self.axis, self.keepdims)
        length = x.shape()[self.axis]
        backwards = x.SliceAxis(self.axis, length, -length - 1, -1)
        index = self._arg(backwards, self.axis, self.keepdims)
        return _c.Unary(_c.UnaryOp_kScalarSub, index, length - 1)


class ArgMin(ArgMax):
    """Index (int64) of the minimum along an axis: of several the first one, or with
    `select_last_index` the last one."""

    _arg = staticmethod(_c.ArgMin)


class SoftMax(BuiltinOperator):
    """Softmax e^x / Σ e^x along an axis."""

    fresh_gradients = True
    #: Whether the sum goes over all axes from `axis` on.
    flattens: bool = False

    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Raw) -> Raw:
        y = _c.SoftMax(x, self.axis) if self.flattens else _c.Softmax(x, self.axis)
        self.save(y)
        return y

    def backward(self, dy: Raw) -> Raw:
        (y,) = self.load()
        if self.flattens:
            return _c.SoftMaxBackward(dy, self.axis, y)
        return _c.SoftmaxBackward(dy, y, self.axis)


class LogSoftMax(SoftMax):
    """Logarithm of softmax along an axis."""

    flattens = False

    def forward(self, x: Raw) -> Raw:
        y = _c.LogSoftmax(x, self.axis)
        self.save(y)
        return y

    def backward(self, dy: Raw) -> Raw:
        (y,) = self.load()
        return _c.LogSoftmaxBackward(dy, y, self.axis)


class CosSim(BuiltinOperator):
    """Cosine similarity of a and b along the last axis, which is removed. Norms count as 1e-8 at
    least, as in PyTorch, so that a zero vector gives 0."""

    def forward(self, a: Raw, b: Raw) -> Raw:
        norms = [_c.Reduce(_c.ReduceOp_kL2, t, (-1,), True) for t in (a, b)]
        least = 1e-8 if a.data_type() != _c.kFloat16 else 2.0**-24  # its smallest number
        norm_a, norm_b = (_c.Unary(_c.UnaryOp_kClip, norm, least, math.inf) for norm in norms)
        unit_a = _c.Binary(_c.BinaryOp_kDiv, a, norm_a)
        unit_b = _c.Binary(_c.BinaryOp_kDiv, b, norm_b)
        cosine = _c.Reduce(_c.ReduceOp_kSum, _c.Binary(_c.BinaryOp_kMul, unit_a, unit_b), (-1,))
        self.save(unit_a, unit_b, norm_a, norm_b, cosine)
        return cosine

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        unit_a, unit_b, norm_a, norm_b, cosine = self.load()
        # d cos / da = (b/|b| - cos·a/|a|) / |a|, and the same with a and b exchanged
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


def _axes(op: str, axes: Axes, axis: Axes) -> Axes:
    """The axes by either name."""
    if axes is not None and axis is not None:
        raise TypeError(f"[{op}] axes and axis are the same argument")
    return axes if axis is None else axis


def _function(operator: type[Reduction], name: str) -> ReducesTensor:
    def function(
        x: Tensor, axes: Axes = None, keepdims: bool | int = 1, *, axis: Axes = None
    ) -> Tensor:
        return operator(axes if axis is None else _axes(name, axes, axis), keepdims)(x)[0]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = operator.__doc__
    return function


reduce_sum: ReducesTensor = _function(ReduceSum, "reduce_sum")
reduce_mean: ReducesTensor = _function(ReduceMean, "reduce_mean")
reduce_max: ReducesTensor = _function(ReduceMax, "reduce_max")
reduce_min: ReducesTensor = _function(ReduceMin, "reduce_min")
reduce_prod: ReducesTensor = _function(ReduceProd, "reduce_prod")
reduce_l1: ReducesTensor = _function(ReduceL1, "reduce_l1")
reduce_l2: ReducesTensor = _function(ReduceL2, "reduce_l2")
reduce_sum_square: ReducesTensor = _function(ReduceSumSquare, "reduce_sum_square")
reduce_log_sum_exp: ReducesTensor = _function(ReduceLogSumExp, "reduce_log_sum_exp")


def reduce_log_sum(
    x: Tensor, axes: Axes = None, keepdims: bool | int = 1, *, axis: Axes = None
) -> Tensor:
    """log Σ x over `axes` (default: all), which stay with length 1 unless `keepdims` is 0.

    Raises ValueError for an axis outside x.

    >>> autograd.reduce_log_sum(tensor.Tensor(data=[[1.0, 3.0]]), 1, keepdims=False)
    Tensor([1.3863], dtype=float32)
    """
    return log(reduce_sum(x, _axes("reduce_log_sum", axes, axis), keepdims))


#: Where the axis of argmax and argmin is not given, it is the only one.
_ONLY: Any = ...


def _index(
    kind: type[ArgMax], x: Tensor, axis: Any, keepdims: bool, select_last_index: bool
) -> Tensor:
    if axis is _ONLY:
        if isinstance(x, Tensor) and x.ndim() > 1:
            raise ValueError(
                f"[{kind.__name__}] which axis of shape {x.shape}? Give axis=-1, which was the "
                "default, or axis=None for an index in the flattened tensor"
            )
        axis = -1
    if axis is not None:
        return kind(axis, keepdims, select_last_index)(x)[0]
    rank = x.ndim()
    index = kind(0, False, select_last_index)(reshape(x, (-1,)))[0]
    return reshape(index, (1,) * rank) if keepdims else index


@also_named(dim="axis", keepdim="keepdims")
def argmax(
    x: Tensor, axis: int | None = _ONLY, keepdims: bool = False, select_last_index: bool = False
) -> Tensor:
    """Index (int64) of the maximum along an axis; of several the first one, or with
    `select_last_index` the last one, as in ONNX.

    The axis is removed unless `keepdims` is set. None means an index in the flattened tensor; only
    vectors need no axis. A NaN counts as the maximum. Raises ValueError if the axis has length 0.

    >>> autograd.argmax(tensor.Tensor(data=[[1.0, 4.0, 4.0], [3.0, 2.0, 1.0]]), 1)
    Tensor([1, 0], dtype=int64)
    """
    return _index(ArgMax, x, axis, keepdims, select_last_index)


@also_named(dim="axis", keepdim="keepdims")
def argmin(
    x: Tensor, axis: int | None = _ONLY, keepdims: bool = False, select_last_index: bool = False
) -> Tensor:
    """Index (int64) of the minimum along an axis; of several the first one, or with
    `select_last_index` the last one, as in ONNX.

    The axis is removed unless `keepdims` is set. None means an index in the flattened tensor; only
    vectors need no axis. A NaN counts as the minimum. Raises ValueError if the axis has length 0.

    >>> autograd.argmin(tensor.Tensor(data=[[1.0, 4.0, 4.0], [3.0, 2.0, 1.0]]), 1)
    Tensor([0, 2], dtype=int64)
    """
    return _index(ArgMin, x, axis, keepdims, select_last_index)


@also_named(dim="axis")
def softmax(x: Tensor, axis: int = 1) -> Tensor:
    """Softmax e^x / Σ e^x along an axis (default 1).

    Raises ValueError for an axis outside x.

    >>> autograd.softmax(tensor.Tensor(data=[[0.0, 1.0, 2.0]]))
    Tensor([[0.09  , 0.2447, 0.6652]], dtype=float32)
    """
    return SoftMax(axis)(x)[0]


def softmax_along(x: Tensor, axis: int) -> Tensor:
    """Softmax along one axis, for what is not SINGA's."""
    op = SoftMax(axis)
    op.flattens = False
    return op(x)[0]


@also_named(dim="axis")
def log_softmax(x: Tensor, axis: int = 1) -> Tensor:
    """Logarithm of softmax along an axis (default 1).

    Raises ValueError for an axis outside x.

    >>> autograd.log_softmax(tensor.Tensor(data=[[0.0, 1.0, 2.0]]))
    Tensor([[-2.4076, -1.4076, -0.4076]], dtype=float32)
    """
    return LogSoftMax(axis)(x)[0]


def cossim(a: Tensor, b: Tensor) -> Tensor:
    """Cosine similarity of a and b along the last axis, which is removed: a·b / (|a| |b|), where
    norms count as 1e-8 at least, so that a zero vector gives 0.

    Raises ValueError for shapes that differ.

    >>> autograd.cossim(tensor.Tensor(data=[[1.0, 0.0]]), tensor.Tensor(data=[[1.0, 1.0]]))
    Tensor([0.7071], dtype=float32)
    """
    return CosSim()(a, b)[0]
