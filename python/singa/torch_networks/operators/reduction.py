"""Reductions, sorting and sums along an axis."""

from __future__ import annotations

from typing import Any

from ... import autograd, tensor
from ...dtypes import DType
from ...networks.errors import Refused
from ...tensor import Tensor
from .registry import Call, computes, equals


def _axes(x: Tensor, axes: Any) -> list[int]:
    rank = len(x.shape)
    if axes is None or axes == []:
        return list(range(rank))
    return [axis % max(rank, 1) for axis in ([axes] if isinstance(axes, int) else axes)]


def _in_type(call: Call, x: Tensor) -> Tensor:
    kind = call.node.output_types[0].type
    assert kind is not None
    return x if x.dtype.name == kind else autograd.cast(x, DType[kind])


@computes("mean.dim", "mean")
def mean(call: Call, x: Tensor, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The mean."""
    return _reduced(autograd.reduce_mean, _in_type(call, x), axes, keepdim)


@computes("sum.dim_IntList", "sum")
def sum_(call: Call, x: Tensor, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The sum."""
    return _reduced(autograd.reduce_sum, _in_type(call, x), axes, keepdim)


@computes("prod.dim_int")
def prod(call: Call, x: Tensor, axis: int, keepdim: bool = False, dtype: Any = None) -> Any:
    """The product."""
    return _reduced(autograd.reduce_prod, _in_type(call, x), axis, keepdim)


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
    """The norm, of order 1 or 2."""
    functions = {1: autograd.reduce_l1, 2: autograd.reduce_l2}
    if order not in functions:
        raise Refused(f"a norm of order {order}")
    return _reduced(functions[int(order)], x, axes, keepdim)


@computes("logsumexp")
def logsumexp(call: Call, x: Tensor, axes: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials."""
    return _reduced(autograd.reduce_log_sum_exp, x, axes, keepdim)


@computes("max.dim", "min.dim")
def extreme(call: Call, x: Tensor, axis: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The largest or smallest element along an axis, and where it is: of equal ones, the first."""
    find = autograd.argmax if call.node.op == "max.dim" else autograd.argmin
    places = autograd.cast(find(x, axis, True), tensor.int64)
    best = autograd.take_along_axis(x, places, axis)
    if keepdim:
        return best, places
    axis %= len(x.shape)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return autograd.reshape(best, rest), autograd.reshape(places, rest)


@computes("argmax", "argmin")
def argmax(call: Call, x: Tensor, axis: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the largest or smallest element is: of equal ones, the first."""
    find = autograd.argmax if call.node.op == "argmax" else autograd.argmin
    if axis is None:
        if keepdim:
            raise Refused("keepdim without an axis")
        x, axis = autograd.reshape(x, (-1,)), 0
    return autograd.cast(find(x, axis, keepdim), tensor.int64)


@computes("topk")
def topk(
    call: Call, x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """The k largest or smallest elements along an axis, and where they are."""
    values, places = autograd.topk(x, k, axis, largest, True)
    return values, autograd.cast(places, tensor.int64)


@computes("sort", "sort.stable")
def sort(
    call: Call, x: Tensor, axis: int = -1, descending: bool = False, **options: Any
) -> tuple[Tensor, Tensor]:
    """The elements in order along an axis, and where they were."""
    values, places = autograd.sort(x, axis, descending)
    return values, autograd.cast(places, tensor.int64)


@computes("cumsum")
def cumsum(call: Call, x: Tensor, axis: int, dtype: Any = None) -> Tensor:
    """Sums up to each element."""
    return autograd.cumsum(_in_type(call, x), axis)


@computes("cumprod")
def cumprod(call: Call, x: Tensor, axis: int, dtype: Any = None) -> Tensor:
    """Products up to each element."""
    return autograd.cumprod(_in_type(call, x), axis)


for _name, _running in (
    ("cummax", autograd.cummax),
    ("cummin", autograd.cummin),
    ("logcumsumexp", autograd.logcumsumexp),
):
    equals(_name, _running)


@computes("any", "any.dim", "any.dims")
def any_(call: Call, x: Tensor, axes: Any = None, keepdim: bool = False) -> Tensor:
    """Whether an element is true."""
    return autograd.cast(autograd.any(x, tuple(_axes(x, axes)), keepdim), tensor.bool_)


@computes("all", "all.dim", "all.dims")
def all_(call: Call, x: Tensor, axes: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all elements are true."""
    return autograd.cast(autograd.all(x, tuple(_axes(x, axes)), keepdim), tensor.bool_)
