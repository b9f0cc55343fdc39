"""Reductions, sorting and sums along an axis."""

from __future__ import annotations

import math
from typing import Any

from ... import autograd
from ...dtypes import is_float
from ...tensor import Tensor
from .movement import select, slice_
from .registry import Call, along_axis, computes, in_type_of_result


def _axes(x: Tensor, axes: Any) -> list[int]:
    rank = len(x.shape)
    if axes is None or axes == []:
        return list(range(rank))
    return [axis % max(rank, 1) for axis in ([axes] if isinstance(axes, int) else axes)]


@computes("mean.dim", "mean")
def mean(call: Call, x: Tensor, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The mean."""
    return _reduced(autograd.reduce_mean, in_type_of_result(call, x), axes, keepdim)


@computes("sum.dim_IntList", "sum")
def sum_(call: Call, x: Tensor, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The sum."""
    return _reduced(autograd.reduce_sum, in_type_of_result(call, x), axes, keepdim)


@computes("prod.dim_int")
def prod(call: Call, x: Tensor, axis: int, keepdim: bool = False, dtype: Any = None) -> Any:
    """The product."""
    return _reduced(autograd.reduce_prod, in_type_of_result(call, x), axis, keepdim)


@computes("prod")
def prod_of_all(call: Call, x: Tensor, dtype: Any = None) -> Any:
    """The product of all elements."""
    return _reduced(autograd.reduce_prod, in_type_of_result(call, x), None, False)


@computes("max")
def max_of_all(call: Call, x: Tensor) -> Any:
    """The largest element."""
    return _reduced(autograd.reduce_max, x, None, False)


@computes("min")
def min_of_all(call: Call, x: Tensor) -> Any:
    """The smallest element."""
    return _reduced(autograd.reduce_min, x, None, False)


@computes("amax")
def amax(call: Call, x: Tensor, axes: Any = (), keepdim: bool = False) -> Any:
    """The largest element."""
    return _reduced(autograd.reduce_max, x, list(axes), keepdim)


@computes("amin")
def amin(call: Call, x: Tensor, axes: Any = (), keepdim: bool = False) -> Any:
    """The smallest element."""
    return _reduced(autograd.reduce_min, x, list(axes), keepdim)


def _reduced(function: Any, x: Tensor, axes: Any, keepdim: bool) -> Tensor:
    if not x.shape:
        return x
    return function(x, _axes(x, axes), int(keepdim))


@computes("var.dim")
def var_dim(
    call: Call, x: Tensor, axes: Any, unbiased: bool = True, keepdim: bool = False
) -> Tensor:
    """The variance."""
    return autograd.var(x, _axes(x, axes), keepdim, int(unbiased))


@computes("std.dim")
def std_dim(
    call: Call, x: Tensor, axes: Any, unbiased: bool = True, keepdim: bool = False
) -> Tensor:
    """The standard deviation."""
    return autograd.std(x, _axes(x, axes), keepdim, int(unbiased))


@computes("var.correction")
def var(
    call: Call, x: Tensor, axes: Any = None, correction: Any = None, keepdim: bool = False
) -> Tensor:
    """The variance."""
    return autograd.var(x, _axes(x, axes), keepdim, 1 if correction is None else correction)


@computes("std.correction")
def std(
    call: Call, x: Tensor, axes: Any = None, correction: Any = None, keepdim: bool = False
) -> Tensor:
    """The standard deviation."""
    return autograd.std(x, _axes(x, axes), keepdim, 1 if correction is None else correction)


@computes("var_mean.correction")
def var_mean(
    call: Call, x: Tensor, axes: Any = None, correction: Any = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The variance and the mean."""
    mean_ = _reduced(autograd.reduce_mean, x, axes, keepdim)
    return var(call, x, axes, correction, keepdim), mean_


@computes("linalg_vector_norm")
def vector_norm(
    call: Call, x: Tensor, order: float = 2, axes: Any = None, keepdim: bool = False, **_: Any
) -> Tensor:
    """The norm of any order."""
    x = in_type_of_result(call, x)
    known = {
        1.0: autograd.reduce_l1,
        2.0: autograd.reduce_l2,
        math.inf: lambda x, *rest: autograd.reduce_max(autograd.abs(x), *rest),
        -math.inf: lambda x, *rest: autograd.reduce_min(autograd.abs(x), *rest),
    }
    if order == 0:
        return _reduced(autograd.reduce_sum, autograd.cast(x != 0, x.dtype), axes, keepdim)
    if not x.shape:
        return autograd.abs(x)
    if order in known:
        return _reduced(known[order], x, axes, keepdim)
    return _reduced(autograd.reduce_sum, autograd.abs(x) ** order, axes, keepdim) ** (1 / order)


@computes("dist")
def distance(call: Call, a: Tensor, b: Tensor, order: float = 2) -> Tensor:
    """The norm of the difference."""
    return vector_norm(call, a - b, order)


@computes("_cdist_forward")
def distances(call: Call, a: Tensor, b: Tensor, order: float, mode: int | None) -> Tensor:
    """The norms of the differences of all rows of a and b."""
    *outer, rows, length = a.shape
    a = autograd.reshape(a, (*outer, rows, 1, length))
    b = autograd.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    return vector_norm(call, a - b, order, [-1])


@computes("logsumexp")
def logsumexp(call: Call, x: Tensor, axes: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials."""
    return _reduced(autograd.reduce_log_sum_exp, in_type_of_result(call, x), axes, keepdim)


@computes("max.dim", "min.dim")
@along_axis
def extreme(call: Call, x: Tensor, axis: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The largest or smallest element along an axis, and where it is: of equal ones, the first."""
    find = autograd.argmax if call.node.op == "max.dim" else autograd.argmin
    places = find(x, axis, True)
    best = autograd.take_along_axis(x, places, axis)
    if keepdim:
        return best, places
    axis %= len(x.shape)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return autograd.reshape(best, rest), autograd.reshape(places, rest)


@computes("argmax", "argmin")
@along_axis
def argmax(call: Call, x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the largest or smallest element is: of equal ones, the first."""
    find = autograd.argmax if call.node.op == "argmax" else autograd.argmin
    shape = (1,) * len(x.shape) if keepdim and axis is None else None
    if axis is None:
        x, axis = autograd.reshape(x, (-1,)), 0
    places = find(x, axis, keepdim)
    return places if shape is None else autograd.reshape(places, shape)


@computes("topk")
@along_axis
def topk(
    call: Call, x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along an axis, and where they are."""
    return autograd.topk(x, k, axis, largest, True)


@computes("sort")
@along_axis
def sort(call: Call, x: Tensor, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The elements in order along an axis, equal ones in theirs, and where they were."""
    return autograd.sort(x, axis, descending)


@computes("sort.stable")
def sort_stable(
    call: Call, x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Any:
    """The same."""
    return sort(call, x, dim, descending)


@computes("kthvalue")
@along_axis
def kthvalue(
    call: Call, x: Tensor, k: int, axis: int = -1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The k-th smallest element along an axis, and where it is."""
    found = sort(call, x, axis)
    if keepdim:
        return tuple(slice_(call, y, axis, k - 1, k) for y in found)
    return tuple(select(call, y, axis, k - 1) for y in found)


@computes("median.dim", "nanmedian.dim")
@along_axis
def median(call: Call, x: Tensor, axis: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The middle element along an axis, of two the smaller one, and where it is. NaN, which sort
    puts last, is that of `median` where there is one; `nanmedian` leaves it out."""
    length = x.shape[axis]
    if not is_float(x.dtype):
        return kthvalue(call, x, (length + 1) // 2, axis, keepdim)
    numbers = length - autograd.count_nonzero(autograd.isnan(x), axis, True)
    if call.node.op.startswith("nanmedian"):
        place = autograd.clip(numbers - 1, 0, None) // 2
    else:
        place = autograd.where((length - 1) // 2, numbers, autograd.equal(numbers, length))
    found = [autograd.gather_elements(y, place, axis) for y in sort(call, x, axis)]
    values, indices = found if keepdim else [autograd.squeeze(y, axis) for y in found]
    return values, indices


@computes("median", "nanmedian")
def median_of_all(call: Call, x: Tensor) -> Tensor:
    """The middle element, of two the smaller one, likewise."""
    return median(call, autograd.reshape(x, (-1,)), 0)[0]


@computes("cumsum")
@along_axis
def cumsum(call: Call, x: Tensor, axis: int, dtype: Any = None) -> Tensor:
    """Sums up to each element."""
    return autograd.cumsum(in_type_of_result(call, x), axis)


@computes("cumprod")
@along_axis
def cumprod(call: Call, x: Tensor, axis: int, dtype: Any = None) -> Tensor:
    """Products up to each element."""
    return autograd.cumprod(in_type_of_result(call, x), axis)


def _running(name: str, function: Any) -> None:
    @computes(name)
    @along_axis
    def row(call: Call, x: Tensor, axis: int) -> Any:
        return function(x, axis)


_running("cummax", autograd.cummax)
_running("cummin", autograd.cummin)
_running("logcumsumexp", autograd.logcumsumexp)


@computes("any", "any.dim", "any.dims")
def any_(call: Call, x: Tensor, axes: Any = None, keepdim: bool = False) -> Tensor:
    """Whether an element is true."""
    return autograd.any(x, tuple(_axes(x, axes)), keepdim)


@computes("all", "all.dim", "all.dims")
def all_(call: Call, x: Tensor, axes: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all elements are true."""
    return autograd.all(x, tuple(_axes(x, axes)), keepdim)
