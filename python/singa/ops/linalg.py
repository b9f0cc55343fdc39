"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..dtypes import is_float
from ..raw.check import InvalidInputError, flag, number
from ..tape.tensor import Tensor
from .base import BuiltinOperator
from .conversion import autocast_operands, promoted

if TYPE_CHECKING:
    from ..tape.operator import Raw


class Matmul(BuiltinOperator):
    """Matrix product x @ w, with NumPy's rules for vectors and batches."""

    fresh_gradients = True

    def forward(self, x: Raw, w: Raw) -> Raw:
        self.save(x, w)
        try:
            return _c.MatMul(x, w)
        except TypeError:  # looking at the types before would cost every product of floats
            if _are_integers(x, w):
                return _integer_product(x, w)
            raise

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        x, w = self.load()
        return _c.MatMulBackward(dy, x, w, False, False, self._need(0), self._need(1))


#: Bytes of the integer types.
_INTEGERS = {_c.kInt8: 1, _c.kUInt8: 1, _c.kInt32: 4, _c.kInt64: 8}


def _are_integers(*xs: Raw) -> bool:
    return all([x.data_type() in _INTEGERS for x in xs])


def _integer_product(x: Raw, w: Raw) -> Raw:
    """The product of integers, which wraps around, by products of parts of 16 or 8 bits whose sums
    float64 holds exactly."""
    dtype = _c.Promote(x.data_type(), w.data_type())
    bits = 16 if x.shape()[-1:] < (1 << 20,) else 8
    count = max(8 * _INTEGERS[dtype] // bits, 1)

    def number(value: int) -> Raw:
        return _c.Full((), value, x.device(), _c.kInt64)

    def parts(t: Raw) -> list[Raw]:
        t = t.AsType(_c.kInt64)
        if count > 1:
            shifted = [
                _c.Binary(_c.BinaryOp_kShiftRight, t, number(bits * i)) for i in range(count)
            ]
            mask = number((1 << bits) - 1)
            return [_c.Binary(_c.BinaryOp_kBitAnd, s, mask).AsType(_c.kFloat64) for s in shifted]
        return [t.AsType(_c.kFloat64)]

    left, right = parts(x), parts(w)
    total = None
    for i in range(count):
        for j in range(count - i):
            part = _c.MatMul(left[i], right[j]).AsType(_c.kInt64)
            part = _c.Binary(_c.BinaryOp_kShiftLeft, part, number(bits * (i + j)))
            total = part if total is None else _c.Binary(_c.BinaryOp_kAdd, total, part)
    assert total is not None
    return total.AsType(dtype)


class Gemm(BuiltinOperator):
    """alpha·A'·B' + beta·C, as ONNX's Gemm. A' and B' are transposed with `transA` and `transB`.
    C is optional and broadcasts."""

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: bool | int = 0,
        transB: bool | int = 0,
    ) -> None:
        super().__init__()
        self.alpha: float = number("Gemm", "alpha", alpha)
        self.beta: float = number("Gemm", "beta", beta)
        self.transA: bool = flag("Gemm", "transA", transA)
        self.transB: bool = flag("Gemm", "transB", transB)
        self._c_shape: tuple[int, ...] | None = None

    def forward(self, A: Raw, B: Raw, C: Raw | None = None) -> Raw:
        self._c_shape = None if C is None else C.shape()
        self.save(A, B)
        return _c.Gemm(A, B, C, self.alpha, self.beta, self.transA, self.transB)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        A, B = self.load()
        bias = self._c_shape is not None
        gradients = _c.GemmBackward(
            dy, A, B, self._c_shape or (), self.alpha, self.beta, self.transA, self.transB,
            self._need(0), self._need(1), bias and self._need(2),
        )  # fmt: skip
        return gradients if bias else gradients[:2]


class AddBias(BuiltinOperator):
    """Adds the vector b to each row (axis 0) or each column (axis 1) of the matrix x."""

    def __init__(self, axis: int = 0) -> None:
        super().__init__()
        if axis not in (0, 1):
            raise InvalidInputError(f"[AddBias] axis must be 0 (rows) or 1 (columns), got {axis}")
        self.axis = axis
        self._shape: tuple[int, ...] = ()
        self._types = 0, 0

    def forward(self, x: Raw, b: Raw) -> Raw:
        self._shape = b.shape()
        self._types = x.data_type(), b.data_type()
        return _c.Binary(_c.BinaryOp_kAdd, x, b.Reshape((-1, 1)) if self.axis else b)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        db = None
        if self._need(1):
            db = _c.Reduce(_c.ReduceOp_kSum, dy, (self.axis,)).Reshape(self._shape)
            db = db.AsType(self._types[1])
        return dy.AsType(self._types[0]) if self._need(0) else None, db


class Linear(BuiltinOperator):
    """x·W + b, with W (in, out) as in SINGA, or (out, in) with `transposed`. b is optional."""

    fresh_gradients = True

    def __init__(self, transposed: bool = False) -> None:
        super().__init__()
        self.transposed = transposed
        self._bias = False

    def forward(self, x: Raw, W: Raw, b: Raw | None = None) -> Raw:
        self._bias = b is not None
        self.save(x, W)
        return _c.LinearForward(x, W, b, self.transposed)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        x, W = self.load()
        need_b = self._bias and self._need(2)
        gradients = _c.LinearBackward(
            dy, x, W, self.transposed, self._need(0), self._need(1), need_b
        )
        return gradients if self._bias else gradients[:2]


def _factors(*xs: Any) -> tuple[Any, ...]:
    """Operands of several float types, promoted. Integers are not multiplied with floats."""
    floats = all([is_float(x.dtype) for x in xs if isinstance(x, Tensor)])
    return promoted(xs) if floats else xs


def wider(refusal: TypeError, *xs: Any) -> tuple[Any, ...]:
    """The factors after a product refused their types: looking at these before would take a third
    of a small product's time. Raises the refusal if they cannot be promoted."""
    factors = _factors(*xs)
    if factors is xs:
        raise refusal
    return factors


def matmul(x: Tensor, w: Tensor) -> Tensor:
    """Matrix product x @ w, with NumPy's rules for vectors and batches.

    Under `autocast` it computes in 16 bits. Float types promote. Products of integers wrap around.

    Raises ValueError for shapes that do not fit.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
    >>> autograd.matmul(x, tensor.Tensor(data=[[1.0], [10.0]]))
    Tensor([[21.],
            [43.]], dtype=float32)
    """
    operands = autocast_operands(x, w)
    try:
        return Matmul()(*operands)[0]
    except TypeError as error:
        return Matmul()(*wider(error, *operands))[0]


def gemm(
    A: Tensor,
    B: Tensor,
    C: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: bool | int = 0,
    transB: bool | int = 0,
) -> Tensor:
    """alpha·A'·B' + beta·C, as ONNX's Gemm.

    A' and B' are the matrices A and B, transposed with `transA` and `transB`. C is optional and
    broadcasts to the result. Under `autocast` it computes in 16 bits.

    Raises ValueError for shapes that do not fit.

    >>> A, B = tensor.Tensor(data=[[1.0, 2.0]]), tensor.Tensor(data=[[3.0, 4.0]])
    >>> autograd.gemm(A, B, transB=True, alpha=0.5)
    Tensor([[5.5]], dtype=float32)
    """
    op = Gemm(alpha, beta, transA, transB)
    A, B, C = _factors(*autocast_operands(A, B, C))
    return (op(A, B) if C is None else op(A, B, C))[0]


def add_bias(x: Tensor, b: Tensor, axis: int = 0) -> Tensor:
    """Adds the vector b to each row (axis 0) or each column (axis 1) of the matrix x.

    Raises ValueError for another axis.

    >>> autograd.add_bias(tensor.zeros((2, 3)), tensor.Tensor(data=[1.0, 2.0, 3.0]))
    Tensor([[1., 2., 3.],
            [1., 2., 3.]], dtype=float32)
    """
    return AddBias(axis)(x, b)[0]


def linear(x: Tensor, W: Tensor, b: Tensor | None = None, transposed: bool = False) -> Tensor:
    """x·W + b in one operation, for x (..., in), W (in, out) and an optional b (out).

    With `transposed`, W has shape (out, in). Float types promote. Under `autocast` it computes in
    16 bits.

    Raises ValueError for shapes that do not fit.

    >>> x, W = tensor.Tensor(data=[[1.0, 2.0]]), tensor.Tensor(data=[[1.0], [10.0]])
    >>> autograd.linear(x, W, tensor.Tensor(data=[0.5]))
    Tensor([[21.5]], dtype=float32)
    """
    operands = autocast_operands(*((x, W) if b is None else (x, W, b)))
    try:
        return Linear(transposed)(*operands)[0]
    except TypeError as error:
        return Linear(transposed)(*wider(error, *operands))[0]
