"""Variance, standard deviation, whether any or all elements are true, and vectors of length one:
combinations of other operators."""

from __future__ import annotations

import math

from ..dtypes import bool_, float16, float32, is_float, wide_type
from ..raw.check import number
from ..tape.tensor import Tensor
from .arithmetic import clip, equal, greater, not_equal
from .base import axes_of
from .conversion import cast, converted
from .elementwise import abs, sqrt
from .reduction import (
    Axes,
    reduce_l1,
    reduce_l2,
    reduce_max,
    reduce_mean,
    reduce_sum,
    reduce_sum_square,
)


def _length(op: str, x: Tensor, axis: Axes) -> int:
    """The number of elements that are reduced to one."""
    shape = x.shape or (1,)
    axes = axes_of(op, axis)
    if wrong := [i for i in axes if not -len(shape) <= i < len(shape)]:
        raise ValueError(f"[{op}] axis {wrong[0]} is outside a tensor of shape {shape}")
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


def any(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether an element along an axis or axes (default: all) is not 0, as bool. NaN is not 0.

    Raises ValueError for an axis outside x.

    >>> autograd.any(tensor.Tensor(data=[[0.0, 1.0], [0.0, 0.0]]), 1)
    Tensor([ True, False], dtype=bool)
    """
    return greater(reduce_sum(not_equal(x, 0), axis, keepdims), 0)


def all(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether no element along an axis or axes (default: all) is 0, as bool.

    Raises ValueError for an axis outside x.

    >>> autograd.all(tensor.Tensor(data=[[0.0, 1.0], [1.0, 1.0]]), 1)
    Tensor([False,  True], dtype=bool)
    """
    return equal(reduce_sum(equal(x, 0), axis, keepdims), 0)


def count_nonzero(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements along an axis or axes (default: all) are not 0, as int64. NaN is not 0.

    Raises ValueError for an axis outside x.

    >>> autograd.count_nonzero(tensor.Tensor(data=[[0.0, 1.0], [2.0, 3.0]]), 1)
    Tensor([1, 2], dtype=int64)
    """
    return reduce_sum(cast(not_equal(x, 0), bool_), axis, keepdims)


def normalize(x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm along an axis (default 1), as torch.nn.functional.normalize. Norms
    count as `eps` at least. `p` is a positive number; infinity is the largest absolute value.

    Raises ValueError for another `p`, and for an axis outside x.

    >>> autograd.normalize(tensor.Tensor(data=[[3.0, 4.0]]))
    Tensor([[0.6, 0.8]], dtype=float32)
    """
    if not number("normalize", "p", p) > 0:
        raise ValueError(f"[normalize] p must be positive, got {p}")
    if p == 2:
        norm = reduce_l2(x, axis, 1)
    elif p == 1:
        norm = reduce_l1(x, axis, 1)
    elif p == math.inf:
        norm = reduce_max(abs(x), axis, 1)
    else:
        norm = reduce_sum(abs(x) ** p, axis, 1) ** (1.0 / p)
    least = eps if x.dtype != float16 else max(eps, 2.0**-24)  # its smallest number
    return x / clip(norm, min=least)
