"""Sorting, running sums, triangles of matrices, and ranges of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import as_dtype
from ..raw.check import integer, number
from ..tape.elements import as_raw
from ..tape.tensor import Tensor, wrap
from .base import BuiltinOperator

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
        k = min(max(self.k, -rows), columns)
        row, column = (
            _c.from_buffer(np.arange(start, start + n)).ToDevice(x.device())
            for start, n in ((k, rows), (0, columns))
        )
        code = _c.BinaryOp_kGreaterEqual if self.upper else _c.BinaryOp_kLessEqual
        kept = _c.Binary(code, column, row.Unsqueeze((1,)))
        return _c.Where(kept, x, _c.Full((), 0.0, x.device(), x.data_type()))


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


def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The indices (int64) that sort x along an axis (default: the last); see `sort`.

    Raises ValueError for an axis outside x.

    >>> autograd.argsort(tensor.Tensor(data=[3.0, 1.0, 2.0]))
    Tensor([1, 2, 0], dtype=int64)
    """
    return sort(x, axis, descending)[1]


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
