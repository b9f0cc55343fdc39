"""Sum, mean, maximum and minimum, of the elements of one tensor and of several tensors; variance,
standard deviation, whether any or all elements are true, and vectors of length one."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..dtypes import bool_, float16, float32, is_float, wide_type
from ..raw.calls import checks_flags
from ..raw.check import axis_of, number, positive
from ..tape.arguments import also_named
from ..tape.tensor import Tensor
from .arithmetic import clip, equal, greater, not_equal
from .base import BuiltinOperator, axes_of
from .conversion import Promoting, as_float, cast, converted, floating, in_type
from .elementwise import abs, sqrt
from .reduction import (
    Axes,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceSum,
    reduce_l1,
    reduce_l2,
    reduce_max,
    reduce_mean,
    reduce_sum,
    reduce_sum_square,
)

if TYPE_CHECKING:
    from ..tape.operator import Raw


def _length(op: str, x: Tensor, axis: Axes) -> int:
    """The number of elements that are reduced to one."""
    shape = x.shape or (1,)
    axes = [axis_of(op, i, shape) for i in axes_of(op, axis)]
    return math.prod(shape[i] for i in axes) if axes else x.size()


def _spread(op: str, x: Tensor, axis: Axes, correction: float) -> tuple[Tensor, float]:
    """x minus its mean, and 1 / (n - correction): infinity where nothing is left, as in PyTorch.
    Integers count as float32, in which 16-bit floats are computed, too."""
    left = _length(op, x, axis) - number(op, "correction", correction)
    if not is_float(x.dtype):
        x = converted(x, float32)
    elif x.dtype != (wide := wide_type(x.dtype)):
        x = cast(x, wide)
    return x - reduce_mean(x, axis, 1), 1.0 / left if left > 0 else math.inf


def _typed(y: Tensor, x: Tensor) -> Tensor:
    """y in the type of x, if that is a float."""
    return cast(y, x.dtype) if is_float(x.dtype) and y.dtype != x.dtype else y


@also_named(dim="axis", keepdim="keepdims")
def var(x: Tensor, axis: Axes = None, keepdims: bool = False, correction: float = 1) -> Tensor:
    """Variance Σ (x - mean)² / (n - correction) over an axis or axes (default: all), as torch.var.

    The axes are removed unless `keepdims` is set. `correction` is 1 by default (Bessel's); with 0
    it is numpy.var. Integers count as float32. Of no more than `correction` elements it is NaN.

    Raises ValueError for an axis outside x.

    >>> autograd.var(tensor.Tensor(data=[1.0, 2.0, 3.0]))
    Tensor(1., dtype=float32)
    """
    centred, share = _spread("var", x, axis, correction)
    return _typed(reduce_sum_square(centred, axis, keepdims) * share, x)


@also_named(dim="axis", keepdim="keepdims")
def std(x: Tensor, axis: Axes = None, keepdims: bool = False, correction: float = 1) -> Tensor:
    """Standard deviation, the root of `var`. Its gradient is 0 where all elements are equal, and
    NaN where `var` is NaN.

    Raises ValueError for an axis outside x.

    >>> autograd.std(tensor.Tensor(data=[1.0, 2.0, 3.0]))
    Tensor(1., dtype=float32)
    """
    centred, share = _spread("std", x, axis, correction)
    if math.isinf(share):  # NaN, not a slope of 0
        return _typed(sqrt(reduce_sum_square(centred, axis, keepdims) * share), x)
    return _typed(reduce_l2(centred, axis, keepdims) * math.sqrt(share), x)


@also_named(dim="axis", keepdim="keepdims")
def any(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether an element along an axis or axes (default: all) is not 0, as bool. NaN is not 0.

    Raises ValueError for an axis outside x.

    >>> autograd.any(tensor.Tensor(data=[[0.0, 1.0], [0.0, 0.0]]), 1)
    Tensor([ True, False], dtype=bool)
    """
    return greater(reduce_sum(not_equal(x, 0), axis, keepdims), 0)


@also_named(dim="axis", keepdim="keepdims")
def all(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether no element along an axis or axes (default: all) is 0, as bool.

    Raises ValueError for an axis outside x.

    >>> autograd.all(tensor.Tensor(data=[[0.0, 1.0], [1.0, 1.0]]), 1)
    Tensor([False,  True], dtype=bool)
    """
    return equal(reduce_sum(equal(x, 0), axis, keepdims), 0)


@also_named(dim="axis", keepdim="keepdims")
def count_nonzero(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements along an axis or axes (default: all) are not 0, as int64. NaN is not 0.

    Raises ValueError for an axis outside x.

    >>> autograd.count_nonzero(tensor.Tensor(data=[[0.0, 1.0], [2.0, 3.0]]), 1)
    Tensor([1, 2], dtype=int64)
    """
    return reduce_sum(cast(not_equal(x, 0), bool_), axis, keepdims)


@also_named(dim="axis")
def normalize(x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm along an axis (default 1), as torch.nn.functional.normalize. Norms
    count as `eps` at least. `p` is a positive number; infinity is the largest absolute value.

    Raises ValueError for another `p`, and for an axis outside x.

    >>> autograd.normalize(tensor.Tensor(data=[[3.0, 4.0]]))
    Tensor([[0.6, 0.8]], dtype=float32)
    """
    positive("normalize", "p", p)
    if p == 2:
        norm = reduce_l2(x, axis, 1)
    elif p == 1:
        norm = reduce_l1(x, axis, 1)
    elif p == math.inf:
        norm = reduce_max(abs(x), axis, 1)
    else:
        norm = reduce_sum(abs(x) ** p, axis, 1) ** (1.0 / p)
    least = eps if x.dtype != float16 else builtins.max(eps, 2.0**-24)  # its smallest number
    return x / clip(norm, min=least)


class Sum(Promoting):
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
    """(xs[0] + xs[1] + ...) / len(xs)."""

    def forward(self, *xs: Raw) -> Raw:
        return _c.Unary(_c.UnaryOp_kMulScalar, super().forward(*xs), 1.0 / len(xs))

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        return super().backward(_c.Unary(_c.UnaryOp_kMulScalar, dy, 1.0 / len(self._shapes)))


class _Extremum(BuiltinOperator):
    """Elementwise maximum or minimum of a list of tensors, computed pair by pair. Equal elements of
    a pair share the gradient."""

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
    """Elementwise maximum of a list of tensors."""

    code = _c.BinaryOp_kMax


class Min(_Extremum):
    """Elementwise minimum of a list of tensors."""

    code = _c.BinaryOp_kMin


def _listed(xs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    xs = tuple(xs[0]) if len(xs) == 1 and isinstance(xs[0], (list, tuple)) else xs
    if not xs:
        raise ValueError("[list] needs at least one tensor")
    return xs


def _listed_alone(op: str, xs: tuple[Any, ...], options: dict[str, Any]) -> tuple[Tensor, ...]:
    """The tensors of a list, for which there are no options."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise TypeError(f"[{op}] {name} is for one tensor, not for a list")
    return _listed(xs)


def is_one(xs: tuple[Any, ...]) -> bool:
    """Whether one tensor is given, whose elements are meant."""
    return len(xs) == 1 and isinstance(xs[0], Tensor)


@also_named(dim="axis", keepdim="keepdims")
def sum(*xs: Tensor, axis: Axes = None, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """Sum over an axis or axes of one tensor (default: all); of several tensors, given as arguments
    or as one list, their elementwise sum.

    The axes are removed unless `keepdims` is set. `dtype` is a type to convert to before, and the
    type of the result; the sum of integers and bools is int64 without it. Raises ValueError for an
    axis outside, and for an empty list. With SINGA's behaviour (`singa.compat`), one tensor without
    options is a list of one.

    >>> a, b = tensor.Tensor(data=[1.0, 2.0]), tensor.Tensor(data=[10.0, 20.0])
    >>> autograd.sum(a, b)
    Tensor([11., 22.], dtype=float32)
    >>> autograd.sum(a)
    Tensor(3., dtype=float32)
    """
    if not is_one(xs):
        options = {"axis": axis, "keepdims": keepdims, "dtype": dtype}
        return Sum()(*_listed_alone("sum", xs, options))[0]
    if dtype is None:
        return ReduceSum(axis, keepdims)(xs[0])[0]
    return in_type(lambda x: ReduceSum(axis, keepdims)(x)[0], xs[0], dtype)


def add_all(*xs: Tensor) -> Tensor:
    """Elementwise sum of tensors, given as arguments or as one list, also of one tensor. Raises
    ValueError for an empty list.

    >>> autograd.add_all([tensor.Tensor(data=[1.0, 2.0]), tensor.Tensor(data=[10.0, 20.0])])
    Tensor([11., 22.], dtype=float32)
    """
    return Sum()(*_listed(xs))[0]


@also_named(dim="axis", keepdim="keepdims")
def mean(*xs: Tensor, axis: Axes = None, keepdims: bool = False, dtype: Any = None) -> Tensor:
    """Mean over an axis or axes of one tensor (default: all); of several tensors, given as
    arguments or as one list, their elementwise mean.

    The axes are removed unless `keepdims` is set. Integers and bools count as float32. `dtype` is a
    float type to convert to before. Raises ValueError for an axis outside, and for an empty list,
    TypeError for a `dtype` that is no float type. With SINGA's behaviour (`singa.compat`), one
    tensor without options is a list of one.

    >>> a, b = tensor.Tensor(data=[1.0, 2.0]), tensor.Tensor(data=[10.0, 20.0])
    >>> autograd.mean(a, b)
    Tensor([ 5.5, 11. ], dtype=float32)
    >>> autograd.mean(a)
    Tensor(1.5, dtype=float32)
    """
    if not is_one(xs):
        options = {"axis": axis, "keepdims": keepdims, "dtype": dtype}
        return Mean()(*_listed_alone("mean", xs, options))[0]
    x = as_float("mean", xs[0], dtype)
    return ReduceMean(axis, keepdims)(floating(x))[0]


@checks_flags
def max(*xs: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Maximum over an axis or axes of one tensor (default: all): the values alone, as in NumPy. Of
    several tensors, given as arguments or as one list, it is their elementwise maximum.

    The axes are removed unless `keepdims` is set. Equal maxima share the gradient. Raises
    ValueError for an axis outside, and for an empty list. With SINGA's behaviour (`singa.compat`),
    one tensor without options is a list of one.

    >>> a, b = tensor.Tensor(data=[1.0, 5.0]), tensor.Tensor(data=[3.0, 2.0])
    >>> autograd.max(a, b)
    Tensor([3., 5.], dtype=float32)
    >>> autograd.max(a)
    Tensor(5., dtype=float32)
    """
    if not is_one(xs):
        return Max()(*_listed_alone("max", xs, {"axis": axis, "keepdims": keepdims}))[0]
    return ReduceMax(axis, keepdims)(xs[0])[0]


@checks_flags
def min(*xs: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Minimum over an axis or axes of one tensor (default: all): the values alone, as in NumPy. Of
    several tensors, given as arguments or as one list, it is their elementwise minimum.

    The axes are removed unless `keepdims` is set. Equal minima share the gradient. Raises
    ValueError for an axis outside, and for an empty list. With SINGA's behaviour (`singa.compat`),
    one tensor without options is a list of one.

    >>> a, b = tensor.Tensor(data=[1.0, 5.0]), tensor.Tensor(data=[3.0, 2.0])
    >>> autograd.min(a, b)
    Tensor([1., 2.], dtype=float32)
    >>> autograd.min(a)
    Tensor(1., dtype=float32)
    """
    if not is_one(xs):
        return Min()(*_listed_alone("min", xs, {"axis": axis, "keepdims": keepdims}))[0]
    return ReduceMin(axis, keepdims)(xs[0])[0]
