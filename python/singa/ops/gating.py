"""Gated linear units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import singa_wrap as _c
from ..raw.check import integer
from ..tape.tensor import Tensor
from .base import BuiltinOperator

if TYPE_CHECKING:
    from ..tape.operator import Raw


class Glu(BuiltinOperator):
    """a·sigmoid(b), with a and b the halves of x along an axis. Dauphin et al. 2017."""

    fresh_gradients = True

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis: int = integer("Glu", "axis", axis)

    def forward(self, x: Raw) -> Raw:
        shape = x.shape()
        if not -len(shape) <= self.axis < len(shape) or shape[self.axis] % 2:
            raise ValueError(f"[Glu] axis {self.axis} of x {shape} must have an even length")
        half = shape[self.axis] // 2
        a, b = _c.Split(x, self.axis, (half, half))
        gate = _c.Unary(_c.UnaryOp_kSigmoid, b)
        self.save(a, gate)
        return _c.Binary(_c.BinaryOp_kMul, a, gate)

    def backward(self, dy: Raw) -> Raw:
        a, gate = self.load()
        da = _c.Binary(_c.BinaryOp_kMul, dy, gate)
        dgate = _c.Binary(_c.BinaryOp_kMul, dy, a)
        db = _c.UnaryBackward(_c.UnaryOp_kSigmoid, dgate, None, gate)
        return _c.Concat((da, db), self.axis)


def glu(x: Tensor, axis: int = -1) -> Tensor:
    """a·sigmoid(b), with a and b the halves of x along an axis (default: the last). Dauphin et al.
    2017. Raises ValueError if the axis has an odd length.

    >>> autograd.glu(tensor.Tensor(data=[1.0, 2.0, 0.0, 100.0]))
    Tensor([0.5, 2. ], dtype=float32)
    """
    return Glu(axis)(x)[0]
