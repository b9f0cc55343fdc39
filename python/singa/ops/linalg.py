"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import singa_wrap as _c
from .._check import InvalidInputError, number
from .._tensor import Tensor
from ..autocast import lowered
from .base import Op

if TYPE_CHECKING:
    from ..tape import Raw


class Matmul(Op):
    """x·w with NumPy's rules for vectors and batches."""

    fresh_gradients = True

    def forward(self, x: Raw, w: Raw) -> Raw:
        self.save(x, w)
        return _c.MatMul(x, w)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        x, w = self.load()
        return _c.MatMulBackward(dy, x, w, False, False, self._need(0), self._need(1))


class Gemm(Op):
    """alpha·A'·B' + beta·C, where ' transposes if asked for; C broadcasts and may be left out."""

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: bool | int = 0,
        transB: bool | int = 0,
    ) -> None:
        super().__init__()
        self.alpha, self.beta = number("Gemm", "alpha", alpha), number("Gemm", "beta", beta)
        self.transA, self.transB = bool(transA), bool(transB)
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


class AddBias(Op):
    """Adds the vector b to each row (axis 0) or each column (axis 1) of the matrix x."""

    def __init__(self, axis: int = 0) -> None:
        super().__init__()
        if axis not in (0, 1):
            raise InvalidInputError(f"[AddBias] axis has to be 0 (rows) or 1 (columns), got {axis}")
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


class Linear(Op):
    """x·W + b, with W (in, out) as SINGA keeps it, or (out, in) if transposed; b is optional."""

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


def matmul(x: Tensor, w: Tensor) -> Tensor:
    """x·w with NumPy's rules for vectors and batches."""
    return Matmul()(*lowered(x, w))[0]


def gemm(
    A: Tensor,
    B: Tensor,
    C: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: bool | int = 0,
    transB: bool | int = 0,
) -> Tensor:
    """alpha·A'·B' + beta·C, where ' transposes if asked for; C broadcasts to the result."""
    op = Gemm(alpha, beta, transA, transB)
    A, B, C = lowered(A, B, C)
    return (op(A, B) if C is None else op(A, B, C))[0]


def add_bias(x: Tensor, b: Tensor, axis: int = 0) -> Tensor:
    """Adds the vector b to each row (axis 0) or each column (axis 1) of the matrix x."""
    return AddBias(axis)(x, b)[0]


def linear(x: Tensor, W: Tensor, b: Tensor | None = None, transposed: bool = False) -> Tensor:
    """x·W + b in one step, with W (in, out), or (out, in) if transposed."""
    op = Linear(transposed)
    x, W, b = lowered(x, W, b)
    return (op(x, W) if b is None else op(x, W, b))[0]
