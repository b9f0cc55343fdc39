"""Tensors, and SINGA's functions on them.

Functions that `autograd` has, too, are the same. The others are recorded on the tape, as `a + b`
is, if a gradient can flow to one of their arguments; those that fill or copy in place are not.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from . import ops
from . import singa_wrap as _c
from .dtypes import (
    DType,
    as_dtype,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)
from .ops.contraction import einsum, tensordot
from .ops.conversion import promoted
from .ops.elementwise import abs, ceil, exp, log, sigmoid, sign, sqrt, square, tanh
from .ops.matrices import eye
from .ops.movement import reshape, transpose
from .ops.types import result_type
from .raw import tracebacks, words
from .raw.arrays import as_shape
from .tape.arguments import names_arguments
from .tape.copies import contiguous, copy_data_to_from, copy_from_numpy, to_host, to_numpy
from .tape.creation import (
    from_dlpack,
    from_numpy,
    from_raw_tensor,
    from_raw_tensors,
    ones,
    ones_like,
    random,
    zeros,
    zeros_like,
)
from .tape.operator import apply
from .tape.reading import read_followers
from .tape.tensor import Tensor

words.answers(
    Tensor, words.of_tensors(vars(ops)["__all__"], [name for name in dir(Tensor) if name[0] != "_"])
)
Tensor.__torch_function__ = classmethod(words.refuse_for_pytorch)  # type: ignore[attr-defined]
tracebacks.install()  # every program that computes imports this module

__all__ = [
    "CTensor",  # noqa: F822 - an alias (`compat.names`)
    "DType",
    "PlaceHolder",  # noqa: F822
    "Tensor",
    "abs",
    "add",
    "add_column",
    "add_row",
    "average",
    "axpy",
    "bernoulli",
    "bfloat16",
    "bool_",
    "ceil",
    "concatenate",
    "contiguous",
    "copy_data_to_from",
    "copy_from_numpy",
    "div",
    "einsum",
    "eltwise_mult",
    "eq",
    "exp",
    "eye",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "from_raw_tensor",
    "from_raw_tensors",
    "gaussian",
    "ge",
    "gt",
    "int8",
    "int32",
    "int64",
    "le",
    "log",
    "lt",
    "mult",
    "ones",
    "ones_like",
    "pow",
    "product",
    "random",
    "repeat",
    "reshape",
    "result_type",
    "sigmoid",
    "sign",
    "sizeof",
    "softmax",
    "sqrt",
    "square",
    "sub",
    "sum",
    "sum_columns",
    "sum_rows",
    "tanh",
    "tensordot",
    "to_host",
    "to_numpy",
    "transpose",
    "uint8",
    "uniform",
    "zeros",
    "zeros_like",
]


def _call_singa_func(_singa_func: Callable[..., _c.Tensor], *args: Any) -> Tensor:
    """Calls a function of singa_wrap and wraps its result."""
    return from_raw_tensor(_singa_func(*args))


# Sizes.


def product(shape: Sequence[int]) -> int:
    """The product of a shape's entries, which is the number of elements.

    >>> tensor.product((2, 3, 4))
    24
    """
    return functools.reduce(operator.mul, as_shape(shape), 1)


def sizeof(dtype: object) -> int:
    """Bytes of one element of type `dtype`.

    Raises TypeError for an unknown type.

    >>> tensor.sizeof("float64")
    8
    """
    return _c.SizeOf(int(as_dtype(dtype)))


# Shape.


def concatenate(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Joins tensors along an existing axis. Their other dimensions must be equal.

    Raises ValueError if other dimensions differ.

    >>> tensor.concatenate([tensor.ones((2, 1)), tensor.zeros((2, 2))], 1)
    Tensor([[1., 0., 0.],
            [1., 0., 0.]], dtype=float32)
    """
    return apply(ops.Concat(axis), *promoted(tuple(tensors)))


def repeat(t: Tensor, repeats: int | Sequence[int], axis: int | None = None) -> Tensor:
    """Repeats elements along `axis`, as numpy.repeat; without an axis, of the flattened tensor.

    `repeats` is one count for all elements, or one for each along the axis.

    Raises ValueError for negative counts, or another number of them.

    >>> tensor.repeat(tensor.Tensor(data=[1.0, 2.0]), [1, 3])
    Tensor([1., 2., 2., 2.], dtype=float32)
    """
    return t.repeat(repeats, axis)


# Elementwise.


def pow(t: Tensor, x: Any, out: Tensor | None = None) -> Tensor:
    """t ** x elementwise, where x is a number or a tensor; written to `out` if that is given.

    >>> tensor.pow(tensor.Tensor(data=[2.0, 3.0]), 2)
    Tensor([4., 9.], dtype=float32)
    """
    return _into(t**x, out)


def softmax(t: Tensor, out: Tensor | None = None) -> Tensor:
    """Softmax of each row of a matrix, or of a vector; written to `out` if that is given.

    With SINGA's behaviour (`singa.compat`) it is that of each row of any tensor, over all axes but
    the first. Without, raises ValueError for more than two axes.

    >>> tensor.softmax(tensor.Tensor(data=[[0.0, 1.0, 2.0]]))
    Tensor([[0.09  , 0.2447, 0.6652]], dtype=float32)
    """
    if t.ndim() > 2:
        raise ValueError(
            f"[softmax] which axis of shape {t.shape}? Write autograd.softmax(t, -1), which was "
            "the default, or use SINGA's behaviour (SINGA_COMPAT=1)"
        )
    return _into(t.softmax(), out)


def lt(t: Tensor, x: Any) -> Tensor:
    """1 where t < x, else 0.

    >>> tensor.lt(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([ True, False, False], dtype=bool)
    """
    return t < x


def le(t: Tensor, x: Any) -> Tensor:
    """1 where t <= x, else 0.

    >>> tensor.le(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([ True,  True, False], dtype=bool)
    """
    return t <= x


def gt(t: Tensor, x: Any) -> Tensor:
    """1 where t > x, else 0.

    >>> tensor.gt(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([False, False,  True], dtype=bool)
    """
    return t > x


def ge(t: Tensor, x: Any) -> Tensor:
    """1 where t >= x, else 0.

    >>> tensor.ge(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([False,  True,  True], dtype=bool)
    """
    return t >= x


def eq(t: Tensor, x: Any) -> Tensor:
    """1 where t == x, else 0.

    >>> tensor.eq(tensor.Tensor(data=[1.0, 2.0, 3.0]), 2)
    Tensor([False,  True, False], dtype=bool)
    """
    return t == x


def add(lhs: Any, rhs: Any, ret: Tensor | None = None) -> Tensor:
    """lhs + rhs with broadcasting. One of them may be a number.

    The result is written to `ret` if that is given, and must broadcast to its shape.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> out = tensor.zeros((2,))
    >>> tensor.add(tensor.Tensor(data=[1.0, 2.0]), 10, out) is out
    True
    >>> out
    Tensor([11., 12.], dtype=float32)
    """
    return _into(lhs + rhs, ret)


def sub(lhs: Any, rhs: Any, ret: Tensor | None = None) -> Tensor:
    """lhs - rhs; see `add`.

    >>> tensor.sub(tensor.Tensor(data=[3.0, 5.0]), 1)
    Tensor([2., 4.], dtype=float32)
    """
    return _into(lhs - rhs, ret)


def eltwise_mult(lhs: Any, rhs: Any, ret: Tensor | None = None) -> Tensor:
    """lhs * rhs elementwise; see `add`.

    >>> tensor.eltwise_mult(tensor.Tensor(data=[3.0, 5.0]), tensor.Tensor(data=[2.0, 0.5]))
    Tensor([6. , 2.5], dtype=float32)
    """
    return _into(lhs * rhs, ret)


def div(lhs: Any, rhs: Any, ret: Tensor | None = None) -> Tensor:
    """lhs / rhs; see `add`.

    >>> tensor.div(tensor.Tensor(data=[3.0, 5.0]), 2)
    Tensor([1.5, 2.5], dtype=float32)
    """
    return _into(lhs / rhs, ret)


def _into(result: Tensor, out: Tensor | None) -> Tensor:
    if out is None:
        return result
    out.data.CopyFrom(result.data)
    return out


def axpy(alpha: float | Tensor, x: Tensor, y: Tensor) -> Tensor:
    """y += alpha * x in place, where alpha is a number or a tensor of one element. Returns y.

    Raises ValueError if x and y have different shapes.

    >>> y = tensor.Tensor(data=[1.0, 2.0])
    >>> tensor.axpy(10, tensor.ones((2,)), y)
    Tensor([11., 12.], dtype=float32)
    """
    _c.Axpy(alpha.data if isinstance(alpha, Tensor) else float(alpha), x.data, y.data)
    return y


# Reductions.


def sum(t: Tensor, axis: int | Sequence[int] | None = None, out: Tensor | None = None) -> Tensor:
    """Sum over one or more axes, which are removed. It is written to `out` if that is given.

    With SINGA's behaviour (`singa.compat`), the sum without `axis` is that of all elements, with
    shape (1,). Without, raises ValueError, unless there is an `out`, since `t.sum()` has shape ().
    Raises ValueError for an axis outside t.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
    >>> tensor.sum(x, axis=0)
    Tensor([4., 6.], dtype=float32)
    """
    if axis is None and out is None:
        raise ValueError(
            "[sum] write t.sum() for the sum of all elements with shape (), or "
            "t.sum().reshape((1,)) for shape (1,), which tensor.sum(t) had; SINGA's behaviour "
            "(SINGA_COMPAT=1) keeps it"
        )
    return _into(t.sum(axis), out)


def average(t: Tensor, axis: int | None = None) -> Any:
    """Mean over an axis, which is removed. Without `axis`, the mean of all elements as a Python
    float, which is not recorded on the tape.

    Raises ValueError for an axis outside t.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
    >>> tensor.average(x), tensor.average(x, axis=0)
    (2.5, Tensor([2., 3.], dtype=float32))
    """
    if axis is None:
        for follow in read_followers:
            follow(t)
        return _c.Reduce(_c.ReduceOp_kMean, t.data).Item()
    return apply(ops.ReduceMean(axis, False), t)


def sum_columns(M: Tensor) -> Tensor:
    """Sum of the columns of a matrix (R, C), with shape (R,); (R, 1) with SINGA's behaviour
    (`singa.compat`).

    Raises ValueError if M has no axis 1.

    >>> tensor.sum_columns(tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]]))
    Tensor([3., 7.], dtype=float32)
    """
    return sum(M, 1)


def sum_rows(M: Tensor) -> Tensor:
    """Sum of the rows of a matrix (R, C), with shape (C,); (1, C) with SINGA's behaviour
    (`singa.compat`).

    >>> tensor.sum_rows(tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]]))
    Tensor([4., 6.], dtype=float32)
    """
    return sum(M, 0)


# Matrices.


def mult(
    A: Tensor, B: Tensor, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
) -> Tensor:
    """alpha · A @ B for matrices or vectors.

    With C, it writes alpha · A @ B + beta · C to C and returns C; this is not recorded on the tape.
    `beta` is ignored without C.

    Raises ValueError for shapes that do not fit.

    >>> A, C = tensor.Tensor(data=[[1.0, 2.0]]), tensor.Tensor(data=[[100.0]])
    >>> tensor.mult(A, A.T())
    Tensor([[5.]], dtype=float32)
    >>> tensor.mult(A, A.T(), C, alpha=2.0, beta=1.0)
    Tensor([[110.]], dtype=float32)
    """
    if C is None:
        product = A @ B
        return product if alpha == 1.0 else product * alpha
    C.data.CopyFrom(_c.Gemm(A.data, B.data, C.data if beta else None, alpha, beta))
    return C


def add_column(alpha: float, v: Tensor, beta: float, M: Tensor) -> Tensor:
    """Adds alpha · v to each column of beta · M, in place. v has one element per row. Returns M.

    Raises ValueError if v does not have one element for each row.

    >>> tensor.add_column(2.0, tensor.Tensor(data=[1.0, 2.0]), 1.0, tensor.ones((2, 3)))
    Tensor([[3., 3., 3.],
            [5., 5., 5.]], dtype=float32)
    """
    return _add_vector(alpha, v.data.Reshape((-1, 1)), beta, M)


def add_row(alpha: float, v: Tensor, beta: float, M: Tensor) -> Tensor:
    """Adds alpha · v to each row of beta · M, in place. v has one element per column. Returns M.

    Raises ValueError if v does not have one element for each column.

    >>> tensor.add_row(2.0, tensor.Tensor(data=[1.0, 2.0]), 1.0, tensor.ones((2, 2)))
    Tensor([[3., 5.],
            [3., 5.]], dtype=float32)
    """
    return _add_vector(alpha, v.data.Reshape((1, -1)), beta, M)


def _add_vector(alpha: float, v: _c.Tensor, beta: float, M: Tensor) -> Tensor:
    _c.UnaryInto(_c.UnaryOp_kMulScalar, M.data, M.data, float(beta))
    scaled = _c.Unary(_c.UnaryOp_kMulScalar, v, float(alpha))
    _c.BinaryInto(_c.BinaryOp_kAdd, M.data, scaled, M.data)
    return M


# Random fills, in place.


def bernoulli(p: float, t: Tensor) -> Tensor:
    """Fills t with 1 with probability p, else 0. Returns t.

    Raises ValueError for a p outside [0, 1].

    >>> tensor.bernoulli(1.0, tensor.zeros((3,)))
    Tensor([1., 1., 1.], dtype=float32)
    """
    return t.bernoulli(p)


def gaussian(mean: float, std: float, t: Tensor) -> Tensor:
    """Fills t with normally distributed numbers. Returns t.

    Raises ValueError for a negative std.

    >>> x = tensor.gaussian(5.0, 0.1, tensor.zeros((1000,)))
    >>> round(x.mean().item())
    5
    """
    return t.gaussian(mean, std)


def uniform(low: float, high: float, t: Tensor) -> Tensor:
    """Fills t with numbers that are uniform in [low, high). Returns t.

    Raises ValueError if low is above high.

    >>> x = tensor.uniform(2.0, 3.0, tensor.zeros((1000,)))
    >>> x.min().item() >= 2, x.max().item() < 3
    (True, True)
    """
    return t.uniform(low, high)


for _name, _value in list(globals().items()):
    if _name in __all__ and isinstance(_value, FunctionType) and _value.__module__ == __name__:
        globals()[_name] = names_arguments(_value)


def __getattr__(name: str) -> Any:
    return words.missing(__name__, name)
