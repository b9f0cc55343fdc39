"""Sorting, triangles of matrices, ranges of numbers; running sums, products, extrema and sums of
exponentials along an axis, and differences.

`_running` joins elements at distances of 1, 2, 4, ..., so that n elements take log2(n) operations
on the whole tensor, and the gradients are those of the joining function.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import as_dtype, bool_, int64, is_float, wide_type
from ..raw.check import axis_of, integer, number
from ..tape.arguments import also_named
from ..tape.elements import as_raw
from ..tape.grad_mode import no_grad
from ..tape.tensor import Tensor, wrap
from .arithmetic import _or, equal, not_equal
from .base import BuiltinOperator, tensor_of
from .conversion import cast, converted, floating
from .indexing import gather_elements, where
from .joining import cat
from .movement import reshape, slice
from .statistics import max, min
from .transcendental import logaddexp

if TYPE_CHECKING:
    from ..singa_wrap import Device
    from ..tape.operator import Raw


class TopK(BuiltinOperator):
    """The k largest or smallest elements along an axis, in order; `k` None means all of them.

    After a call `indices` holds their positions (a raw int64 tensor). Of equal elements the earlier
    one comes first. NaN counts as larger than all numbers.
    """

    fresh_gradients = True

    def __init__(self, k: int | None = None, axis: int = -1, largest: bool = True) -> None:
        super().__init__()
        self.k: int | None = None if k is None else integer("TopK", "k", k)
        self.axis: int = integer("TopK", "axis", axis)
        self.largest: bool = bool(largest)
        self.indices: Any = None
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        k = self.k
        if k is None:
            known = -x.rank() <= self.axis < x.rank()
            k = self._shape[self.axis] if known else 0  # TopK raises for the axis
        values, self.indices = _c.TopK(x, k, self.axis, self.largest)
        self.save(self.indices)
        return values

    def backward(self, dy: Raw) -> Raw:
        (indices,) = self.load()
        return _c.GatherElementsBackward(dy, self._shape, indices, self.axis)


class CumSum(BuiltinOperator):
    """Sums of the elements up to each position along an axis, as in ONNX.

    With `exclusive` an element is not part of its own sum; with `reverse` sums begin at the end.
    """

    fresh_gradients = True

    def __init__(self, axis: int, exclusive: bool = False, reverse: bool = False) -> None:
        super().__init__()
        self.axis: int = integer("CumSum", "axis", axis)
        self.exclusive: bool = bool(exclusive)
        self.reverse: bool = bool(reverse)

    def forward(self, x: Raw) -> Raw:
        return _c.CumSum(x, self.axis, self.exclusive, self.reverse)

    def backward(self, dy: Raw) -> Raw:
        return _c.CumSum(dy, self.axis, self.exclusive, not self.reverse)


class Triangle(BuiltinOperator):
    """The matrices in the last two axes with zeros below diagonal k (`upper`), or above it."""

    fresh_gradients = True

    def __init__(self, k: int = 0, upper: bool = True) -> None:
        super().__init__()
        self.k: int = integer("Triangle", "k", k)
        self.upper: bool = bool(upper)

    def forward(self, x: Raw) -> Raw:
        if x.rank() < 2:
            raise ValueError(f"[Triangle] x must have at least two axes, got {x.shape()}")
        return self._triangle(x)

    def backward(self, dy: Raw) -> Raw:
        return self._triangle(dy)

    def _triangle(self, x: Raw) -> Raw:
        rows, columns = x.shape()[-2:]
        # Beyond the matrix all diagonals are alike.
        k = builtins.min(builtins.max(self.k, -rows), columns)
        row, column = (
            _c.from_buffer(np.arange(start, start + n)).ToDevice(x.device())
            for start, n in ((k, rows), (0, columns))
        )
        code = _c.BinaryOp_kGreaterEqual if self.upper else _c.BinaryOp_kLessEqual
        kept = _c.Binary(code, column, row.Unsqueeze((1,)))
        return _c.Where(kept, x, _c.Full((), 0.0, x.device(), x.data_type()))


@also_named(dim="axis")
def topk(
    x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    """(values, indices) of the k largest elements along an axis (default: the last), or of the
    smallest, as torch.topk and ONNX's TopK.

    Values are in order, whatever `sorted` says. Of equal elements the earlier one comes first. NaN
    counts as larger than all numbers. Indices are int64 and have no gradient. Raises ValueError
    unless 0 <= k <= the length of the axis.

    >>> values, indices = autograd.topk(tensor.Tensor(data=[3.0, 1.0, 4.0, 1.0]), 2)
    >>> values, indices
    (Tensor([4., 3.], dtype=float32), Tensor([2, 0], dtype=int64))
    """
    return _sorted(TopK(k, axis, largest), x)


@also_named(dim="axis")
def sort(x: Tensor, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """(values, indices): x sorted along an axis (default: the last), as torch.sort(stable=True).

    Equal elements keep their order. NaN counts as larger than all numbers.

    Raises ValueError for an axis outside x.

    >>> values, indices = autograd.sort(tensor.Tensor(data=[3.0, 1.0, 2.0]))
    >>> values, indices
    (Tensor([1., 2., 3.], dtype=float32), Tensor([1, 2, 0], dtype=int64))
    """
    return _sorted(TopK(None, axis, descending), x)


def _sorted(operator: TopK, x: Tensor) -> tuple[Tensor, Tensor]:
    values = operator(x)[0]
    indices, operator.indices = operator.indices, None
    return values, wrap(indices, False)


@also_named(dim="axis")
def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The indices (int64) that sort x along an axis (default: the last); see `sort`.

    Raises ValueError for an axis outside x.

    >>> autograd.argsort(tensor.Tensor(data=[3.0, 1.0, 2.0]))
    Tensor([1, 2, 0], dtype=int64)
    """
    return sort(x, axis, descending)[1]


@also_named(dim="axis")
def cumsum(x: Tensor, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Sums of the elements up to each position along an axis.

    With `exclusive` an element is not part of its own sum; with `reverse` sums begin at the end.
    Sums of integers and bools are int64. Those of 16-bit and 32-bit floats are accumulated in
    float64.

    Raises ValueError for an axis outside x.

    >>> autograd.cumsum(tensor.Tensor(data=[1.0, 2.0, 3.0]), 0)
    Tensor([1., 3., 6.], dtype=float32)
    """
    return CumSum(axis, exclusive, reverse)(x)[0]


def triu(x: Tensor, k: int = 0) -> Tensor:
    """The matrices in the last two axes of x with zeros below diagonal k, as numpy.triu.

    Raises ValueError for fewer than two axes.

    >>> autograd.triu(tensor.ones((3, 3)))
    Tensor([[1., 1., 1.],
            [0., 1., 1.],
            [0., 0., 1.]], dtype=float32)
    """
    return Triangle(k, True)(x)[0]


def tril(x: Tensor, k: int = 0) -> Tensor:
    """The matrices in the last two axes of x with zeros above diagonal k, as numpy.tril.

    Raises ValueError for fewer than two axes.

    >>> autograd.tril(tensor.ones((3, 3)), -1)
    Tensor([[0., 0., 0.],
            [1., 0., 0.],
            [1., 1., 0.]], dtype=float32)
    """
    return Triangle(k, False)(x)[0]


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    device: Device | None = None,
    dtype: int | str | None = None,
) -> Tensor:
    """The numbers start, start + step, ... before stop, as numpy.arange. One number is `stop`.

    The type is int64 for integers and float32 otherwise, unless `dtype` is given. The tensor is a
    constant. Raises ValueError for a step of 0 and for numbers that are not finite.

    >>> autograd.arange(5)
    Tensor([0, 1, 2, 3, 4], dtype=int64)
    >>> autograd.arange(0, 1, 0.25)
    Tensor([0.  , 0.25, 0.5 , 0.75], dtype=float32)
    """
    begin, end = (0, start) if stop is None else (start, stop)
    numbers = [("start", begin), ("stop", end), ("step", step)]
    checked = [
        value if isinstance(value, int) else number("arange", name, value)
        for name, value in numbers
    ]
    if not checked[2] or not np.isfinite(checked).all():
        raise ValueError(f"[arange] cannot count from {begin} to {end} in steps of {step}")
    array = np.arange(*checked)
    if dtype is None and array.dtype.kind == "f":
        array = array.astype(np.float32)
    return wrap(as_raw(array, None if dtype is None else as_dtype(dtype), device), False)


def linspace(
    start: float,
    stop: float,
    num: int,
    device: Device | None = None,
    dtype: int | str = "float32",
) -> Tensor:
    """`num` numbers from `start` to `stop`, both included, at equal distances, as torch.linspace.

    The tensor is a constant, float32 by default. Raises ValueError for numbers that are not finite,
    and for a negative `num`.

    >>> autograd.linspace(0.0, 1.0, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    first, last = number("linspace", "start", start), number("linspace", "stop", stop)
    if not np.isfinite([first, last]).all():
        raise ValueError(f"[linspace] start and stop must be finite, got {start} and {stop}")
    array = np.linspace(first, last, integer("linspace", "num", num, 0))
    return wrap(as_raw(array, as_dtype(dtype), device), False)


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


@also_named(dim="axis")
def cumprod(x: Tensor, axis: int) -> Tensor:
    """Products of the elements up to each position along an axis. Those of integers and bools are
    int64.

    Raises ValueError for an axis outside x.

    >>> autograd.cumprod(tensor.Tensor(data=[2.0, 3.0, 4.0]), 0)
    Tensor([ 2.,  6., 24.], dtype=float32)
    """
    axis = axis_of("cumprod", axis, x.shape or (1,))
    if not is_float(x.dtype):
        return _running(lambda a, b: a * b, converted(x, int64), axis)
    return _widely(lambda a, b: a * b, x, axis)


@also_named(dim="axis")
def logcumsumexp(x: Tensor, axis: int) -> Tensor:
    """log of the sum of e^x up to each position along an axis, which is finite for numbers of any
    size. Integers count as float32.

    Raises ValueError for an axis outside x.

    >>> autograd.logcumsumexp(tensor.Tensor(data=[0.0, 0.0, 1000.0]), 0)
    Tensor([   0.    ,    0.6931, 1000.    ], dtype=float32)
    """
    axis = axis_of("logcumsumexp", axis, x.shape or (1,))
    return _widely(logaddexp, floating(x), axis)


@also_named(dim="axis")
def cummax(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The largest elements up to each position along an axis, and their indices (int64), as
    torch.cummax: of equal elements the last; NaN is larger than all numbers.

    Raises ValueError for an axis outside x.

    >>> autograd.cummax(tensor.Tensor(data=[1.0, 3.0, 2.0, 3.0]), 0)
    (Tensor([1., 3., 3., 3.], dtype=float32), Tensor([0, 1, 1, 3], dtype=int64))
    """
    return _extremes("cummax", max, x, axis)


@also_named(dim="axis")
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
    axis = axis_of(op, axis, x.shape or (1,))
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


@also_named(dim="axis")
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
    axis = axis_of("diff", axis, x.shape)
    if prepend is not None or append is not None:
        pieces = (prepend, x, append)
        x = cat([tensor_of(piece, x) for piece in pieces if piece is not None], axis)
    for _ in range(times):
        length = x.shape[axis]
        later = slice(x, [1], [length], [axis])
        earlier = slice(x, [0], [length - 1 if length else 0], [axis])
        x = converted(not_equal(later, earlier), bool_) if x.dtype == bool_ else later - earlier
    return x
