"""Matrices from vectors and numbers, and diagonals of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..device import named_or_default
from ..dtypes import as_dtype, float32
from ..raw.check import integer, one_of
from ..tape.arguments import names_arguments
from ..tape.tensor import Tensor, wrap
from .base import tensor_of
from .movement import expand, reshape, slice, transpose
from .reduction import reduce_sum
from .resampling import pad

if TYPE_CHECKING:
    from ..singa_wrap import Device


@names_arguments
def eye(
    n: int,
    m: int | None = None,
    k: int = 0,
    device: Device | None = None,
    dtype: object = float32,
) -> Tensor:
    """A matrix of n rows and m columns (default: n) with ones on diagonal k and zeros elsewhere, as
    numpy.eye. It is a constant.

    Raises ValueError for a negative length, TypeError for an unknown type.

    >>> autograd.eye(2, 3)
    Tensor([[1., 0., 0.],
            [0., 1., 0.]], dtype=float32)
    """
    rows = integer("eye", "n", n, 0)
    columns = rows if m is None else integer("eye", "m", m, 0)
    down, right, length = _start(rows, columns, integer("eye", "k", k))
    device = named_or_default(device)
    ones = diag(wrap(_c.Full((length,), 1.0, device, int(as_dtype(dtype))), False))
    if not length:
        down = right = 0
    pads = [down, right, rows - length - down, columns - length - right]
    return pad(ones, "constant", pads, 0)


def _start(rows: int, columns: int, k: int) -> tuple[int, int, int]:
    """The row and the column in which diagonal k begins, and its length."""
    down, right = max(-k, 0), max(k, 0)
    return down, right, max(min(rows - down, columns - right), 0)


def _axes(op: str, x: Tensor, axis1: int, axis2: int) -> tuple[int, int]:
    rank = len(x.shape)
    given = integer(op, "axis1", axis1), integer(op, "axis2", axis2)
    if not all(-rank <= axis < rank for axis in given) or (given[0] - given[1]) % rank == 0:
        raise ValueError(f"[{op}] axes {given} are not two axes of a tensor of shape {x.shape}")
    return given[0] % rank, given[1] % rank


def diagonal(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal `offset` of the matrices in two axes, which becomes the last axis, as
    numpy.diagonal: x[i, i + offset]. It is a copy.

    Raises ValueError unless there are two such axes.

    >>> autograd.diagonal(tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]]))
    Tensor([1., 4.], dtype=float32)
    """
    first, second = _axes("diagonal", x, axis1, axis2)
    rows, columns = x.shape[first], x.shape[second]
    rest = [i for i in range(len(x.shape)) if i not in (first, second)]
    flat = reshape(
        transpose(x, [*rest, first, second]), [*(x.shape[i] for i in rest), rows * columns]
    )
    down, right, length = _start(rows, columns, integer("diagonal", "offset", offset))
    begin = down * columns + right if length else 0
    # The matrix as one row: its diagonal is every (columns + 1)-th element.
    return slice(flat, [begin], [begin + length * (columns + 1)], [len(rest)], [columns + 1])


def diag(x: Tensor, k: int = 0) -> Tensor:
    """The matrix with the vector x on diagonal k and zeros elsewhere, or diagonal k of the matrix
    x, as numpy.diag.

    Raises ValueError for other numbers of axes.

    >>> autograd.diag(tensor.Tensor(data=[1.0, 2.0]))
    Tensor([[1., 0.],
            [0., 2.]], dtype=float32)
    >>> autograd.diag(tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]]), 1)
    Tensor([2.], dtype=float32)
    """
    if len(x.shape) == 2:
        return diagonal(x, k)
    if len(x.shape) != 1:
        raise ValueError(f"[diag] x must be a vector or a matrix, got shape {x.shape}")
    n, k = x.shape[0], integer("diag", "k", k)
    # Each element and n zeros behind it, as one row: the next element is in the next row's column.
    row = reshape(pad(reshape(x, (n, 1)), "constant", [0, 0, 0, n], 0), (n * (n + 1),))
    matrix = reshape(slice(row, [0], [n * n], [0]), (n, n))
    above, below = max(k, 0), max(-k, 0)
    return pad(matrix, "constant", [below, above, above, below], 0) if k else matrix


def trace(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Sums of `diagonal`, as numpy.trace. Those of integers and bools are int64.

    Raises ValueError unless there are two such axes.

    >>> autograd.trace(tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]]))
    Tensor(5., dtype=float32)
    """
    return reduce_sum(diagonal(x, offset, axis1, axis2), -1, 0)


def outer(a: Any, b: Any) -> Tensor:
    """The products of each element of a with each of b, a row for each of a, as numpy.outer, which
    flattens both. One of them may be an array.

    >>> autograd.outer(tensor.Tensor(data=[1.0, 2.0]), tensor.Tensor(data=[3.0, 4.0, 5.0]))
    Tensor([[ 3.,  4.,  5.],
            [ 6.,  8., 10.]], dtype=float32)
    """
    a, b = _tensors(a, b)
    return reshape(a, (a.size(), 1)) * reshape(b, (1, b.size()))


def kron(a: Any, b: Any) -> Tensor:
    """Kronecker product: b times each element of a, in a's place, as numpy.kron. The shorter shape
    gets ones in front. One of them may be an array.

    >>> autograd.kron(tensor.Tensor(data=[1.0, 10.0]), tensor.Tensor(data=[1.0, 2.0]))
    Tensor([ 1.,  2., 10., 20.], dtype=float32)
    """
    a, b = _tensors(a, b)
    rank = max(len(a.shape), len(b.shape))
    lengths = [((1,) * (rank - len(x.shape)) + tuple(x.shape)) for x in (a, b)]
    apart = [
        [n for pair in zip(*pairs, strict=True) for n in pair]
        for pairs in ((lengths[0], (1,) * rank), ((1,) * rank, lengths[1]))
    ]
    product = reshape(a, apart[0]) * reshape(b, apart[1])
    return reshape(product, [n * m for n, m in zip(*lengths, strict=True)])


def _tensors(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    like = a if isinstance(a, Tensor) else b if isinstance(b, Tensor) else None
    return tensor_of(a, like), tensor_of(b, like)


def meshgrid(*xs: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: each vector x along its own axis, repeated along those of the
    others. `indexing` of "ij", the default as in PyTorch, gives the axes in the order of the
    vectors; "xy", NumPy's default, swaps the first two. Numbers count as vectors of length 1.

    Raises ValueError for another `indexing` and for tensors of more axes.

    >>> x, y = tensor.Tensor(data=[1.0, 2.0]), tensor.Tensor(data=[3.0, 4.0, 5.0])
    >>> autograd.meshgrid(x, y)[1]
    Tensor([[3., 4., 5.],
            [3., 4., 5.]], dtype=float32)
    """
    one_of("meshgrid", "indexing", indexing, ["ij", "xy"])
    if wrong := [x.shape for x in xs if len(x.shape) > 1]:
        raise ValueError(f"[meshgrid] takes vectors, got shape {wrong[0]}")
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[:2] = [1, 0]
    lengths: Sequence[int] = [xs[i].size() for i in order]
    return tuple(
        expand(reshape(x, [-1 if at == i else 1 for at in order]), lengths)
        for i, x in enumerate(xs)
    )
