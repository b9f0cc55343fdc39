"""Running products, extrema and sums of exponentials along an axis, and differences.

`_running` joins elements at distances of 1, 2, 4, ..., so that n elements take log2(n) operations
on the whole tensor, and the gradients are those of the joining function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import singa_wrap as _c
from ..dtypes import bool_, float32, int64, is_float, wide_type
from ..raw.check import integer
from ..tape.grad_mode import no_grad
from ..tape.tensor import Tensor, wrap
from .arithmetic import _or, equal, not_equal
from .base import tensor_of
from .conversion import cast, converted
from .indexing import gather_elements, where
from .joining import cat
from .lists import max, min
from .movement import reshape, slice
from .pairs import logaddexp


def _place(op: str, x: Tensor, axis: int) -> int:
    """The axis, counted from the front. A tensor without axes has axis 0."""
    place, rank = integer(op, "axis", axis), len(x.shape) or 1
    if not -rank <= place < rank:
        raise ValueError(f"[{op}] axis {place} is outside a tensor of shape {x.shape}")
    return place % rank


def _running(join: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int) -> Tensor:
    """join(join(x[0], x[1]), ...) up to each element."""
    length, distance = (x.shape[axis] if x.shape else 1), 1
    while distance < length:
        later = slice(x, [distance], [length], [axis])
        earlier = slice(x, [0], [length - distance], [axis])
        x = cat([slice(x, [0], [distance], [axis]), join(earlier, later)], axis)
        distance *= 2
    return x


def _widely(join: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int) -> Tensor:
    """_running of floats, 16-bit floats in float32."""
    wide = wide_type(x.dtype)
    if wide == x.dtype:
        return _running(join, x, axis)
    return cast(_running(join, cast(x, wide), axis), x.dtype)


def cumprod(x: Tensor, axis: int) -> Tensor:
    """Products of the elements up to each position along an axis. Those of integers and bools are
    int64.

    Raises ValueError for an axis outside x.

    >>> autograd.cumprod(tensor.Tensor(data=[2.0, 3.0, 4.0]), 0)
    Tensor([ 2.,  6., 24.], dtype=float32)
    """
    axis = _place("cumprod", x, axis)
    if not is_float(x.dtype):
        return _running(lambda a, b: a * b, converted(x, int64), axis)
    return _widely(lambda a, b: a * b, x, axis)


def logcumsumexp(x: Tensor, axis: int) -> Tensor:
    """log of the sum of e^x up to each position along an axis, which is finite for numbers of any
    size. Integers count as float32.

    Raises ValueError for an axis outside x.

    >>> autograd.logcumsumexp(tensor.Tensor(data=[0.0, 0.0, 1000.0]), 0)
    Tensor([   0.    ,    0.6931, 1000.    ], dtype=float32)
    """
    axis = _place("logcumsumexp", x, axis)
    return _widely(logaddexp, x if is_float(x.dtype) else converted(x, float32), axis)


def cummax(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The largest elements up to each position along an axis, and their indices (int64), as
    torch.cummax: of equal elements the last; NaN is larger than all numbers.

    Raises ValueError for an axis outside x.

    >>> autograd.cummax(tensor.Tensor(data=[1.0, 3.0, 2.0, 3.0]), 0)
    (Tensor([1., 3., 3., 3.], dtype=float32), Tensor([0, 1, 1, 3], dtype=int64))
    """
    return _extremes("cummax", max, x, axis)


def cummin(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The smallest elements up to each position along an axis, and their indices (int64), as
    torch.cummin: of equal elements the last; NaN is smaller than all numbers.

    Raises ValueError for an axis outside x.

    >>> autograd.cummin(tensor.Tensor(data=[2.0, 1.0, 3.0]), 0)
    (Tensor([2., 1., 1.], dtype=float32), Tensor([0, 1, 1], dtype=int64))
    """
    return _extremes("cummin", min, x, axis)


def _extremes(
    op: str, join: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int
) -> tuple[Tensor, Tensor]:
    axis = _place(op, x, axis)
    shape = tuple(x.shape)
    row = reshape(x, shape or (1,))
    with no_grad():
        found = equal(row, _running(join, row, axis))
        if is_float(x.dtype):
            found = _or(found, not_equal(row, row))
        places = _c.Full((row.shape[axis],), 1.0, x.device, _c.kInt64)
        places = wrap(_c.CumSum(places, 0, True), False)  # by operations, which replays repeat
        places = reshape(places, [-1 if i == axis else 1 for i in range(len(row.shape))])
        indices = _running(max, where(places, 0, found), axis)
    values = gather_elements(row, indices, axis)
    return (values, indices) if shape else (reshape(values, shape), reshape(indices, shape))


def diff(x: Tensor, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Differences x[i + 1] - x[i] along an axis (default: the last), n times, as torch.diff. Those
    of bools say whether neighbours differ.

    prepend, append  tensors or arrays that are joined to x along the axis before

    Raises ValueError for an axis outside x, a tensor without axes and a negative n.

    >>> autograd.diff(tensor.Tensor(data=[1.0, 4.0, 9.0, 16.0]))
    Tensor([3., 5., 7.], dtype=float32)
    """
    times = integer("diff", "n", n, 0)
    if not x.shape:
        raise ValueError("[diff] a tensor without axes has no differences")
    axis = _place("diff", x, axis)
    if prepend is not None or append is not None:
        pieces = (prepend, x, append)
        x = cat([tensor_of(piece, x) for piece in pieces if piece is not None], axis)
    for _ in range(times):
        length = x.shape[axis]
        later = slice(x, [1], [length], [axis])
        earlier = slice(x, [0], [length - 1 if length else 0], [axis])
        x = converted(not_equal(later, earlier), bool_) if x.dtype == bool_ else later - earlier
    return x
