"""Elementwise operators of one or more tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..dtypes import float32, is_float
from ..raw import compat_mode
from ..tape.tensor import Tensor
from .base import BuiltinOperator
from .conversion import Promoting, converted
from .reduction import reduce_max, reduce_mean, reduce_min, reduce_sum

if TYPE_CHECKING:
    from ..tape.operator import Raw


class Sum(Promoting):
    """xs[0] + xs[1] + ..."""

    _shapes: tuple[tuple[int, ...], ...] = ()

    def forward(self, *xs: Raw) -> Raw:
        y = xs[0]
        for x in xs[1:]:
            y = _c.Binary(_c.BinaryOp_kAdd, y, x)
        self._shapes = tuple(x.shape() for x in xs)
        return y

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        shape = dy.shape()
        return tuple(
            None if not self._need(i) else dy if wanted == shape else _c.SumTo(dy, wanted)
            for i, wanted in enumerate(self._shapes)
        )


class Mean(Sum):
    """(xs[0] + xs[1] + ...) / len(xs)."""

    def forward(self, *xs: Raw) -> Raw:
        return _c.Unary(_c.UnaryOp_kMulScalar, super().forward(*xs), 1.0 / len(xs))

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        return super().backward(_c.Unary(_c.UnaryOp_kMulScalar, dy, 1.0 / len(self._shapes)))


class _Extremum(BuiltinOperator):
    """Elementwise maximum or minimum of a list of tensors, computed pair by pair. Equal elements of
    a pair share the gradient."""

    code: int

    def forward(self, *xs: Raw) -> Raw:
        steps = [xs[0]]
        for x in xs[1:]:
            steps.append(_c.Binary(self.code, steps[-1], x))
        self.save(*xs, *steps)
        return steps[-1]

    def backward(self, dy: Raw) -> Raw | tuple[Raw | None, ...]:
        saved = self.load()
        count = len(saved) // 2
        xs, steps = saved[:count], saved[count:]
        gradients: list[Raw | None] = [None] * count
        for i in range(count - 1, 0, -1):
            dy, gradients[i] = _c.BinaryBackward(
                self.code, dy, steps[i - 1], xs[i], steps[i], True, self._need(i)
            )
        gradients[0] = dy
        return tuple(gradients) if count > 1 else dy


class Max(_Extremum):
    """Elementwise maximum of a list of tensors."""

    code = _c.BinaryOp_kMax


class Min(_Extremum):
    """Elementwise minimum of a list of tensors."""

    code = _c.BinaryOp_kMin


def _listed(xs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    xs = tuple(xs[0]) if len(xs) == 1 and isinstance(xs[0], (list, tuple)) else xs
    if not xs:
        raise ValueError("[list] needs at least one tensor")
    return xs


def _only(xs: tuple[Any, ...]) -> bool:
    """Whether one tensor is given, whose elements are meant; in SINGA it is a list of one."""
    return len(xs) == 1 and isinstance(xs[0], Tensor) and not compat_mode.enabled


def sum(*xs: Tensor) -> Tensor:
    """Elementwise sum of tensors, given as arguments or as one list.

    Of one tensor it is the sum of its elements, with shape (); with SINGA's behaviour
    (`singa.compat`), the tensor. Raises ValueError for an empty list.

    >>> a, b = tensor.Tensor(data=[1.0, 2.0]), tensor.Tensor(data=[10.0, 20.0])
    >>> autograd.sum(a, b)
    Tensor([11., 22.], dtype=float32)
    >>> autograd.sum(a)
    Tensor(3., dtype=float32)
    """
    return reduce_sum(xs[0], None, 0) if _only(xs) else add_all(*xs)


def add_all(*xs: Tensor) -> Tensor:
    """Elementwise sum of tensors, given as arguments or as one list, also of one tensor. Raises
    ValueError for an empty list.

    >>> autograd.add_all([tensor.Tensor(data=[1.0, 2.0]), tensor.Tensor(data=[10.0, 20.0])])
    Tensor([11., 22.], dtype=float32)
    """
    return Sum()(*_listed(xs))[0]


def mean(*xs: Tensor) -> Tensor:
    """Elementwise mean of tensors, given as arguments or as one list.

    Of one tensor it is the mean of its elements, with shape (); with SINGA's behaviour
    (`singa.compat`), the tensor. Raises ValueError for an empty list.

    >>> a, b = tensor.Tensor(data=[1.0, 2.0]), tensor.Tensor(data=[10.0, 20.0])
    >>> autograd.mean(a, b)
    Tensor([ 5.5, 11. ], dtype=float32)
    >>> autograd.mean(a)
    Tensor(1.5, dtype=float32)
    """
    if not _only(xs):
        return Mean()(*_listed(xs))[0]
    (x,) = xs
    return reduce_mean(x if is_float(x.dtype) else converted(x, float32), None, 0)


def max(*xs: Tensor) -> Tensor:
    """Elementwise maximum of tensors, given as arguments or as one list.

    Of one tensor it is the maximum of its elements, with shape (); with SINGA's behaviour
    (`singa.compat`), the tensor. Raises ValueError for an empty list.

    >>> a, b = tensor.Tensor(data=[1.0, 5.0]), tensor.Tensor(data=[3.0, 2.0])
    >>> autograd.max(a, b)
    Tensor([3., 5.], dtype=float32)
    >>> autograd.max(a)
    Tensor(5., dtype=float32)
    """
    return reduce_max(xs[0], None, 0) if _only(xs) else Max()(*_listed(xs))[0]


def min(*xs: Tensor) -> Tensor:
    """Elementwise minimum of tensors, given as arguments or as one list.

    Of one tensor it is the minimum of its elements, with shape (); with SINGA's behaviour
    (`singa.compat`), the tensor. Raises ValueError for an empty list.

    >>> a, b = tensor.Tensor(data=[1.0, 5.0]), tensor.Tensor(data=[3.0, 2.0])
    >>> autograd.min(a, b)
    Tensor([1., 2.], dtype=float32)
    >>> autograd.min(a)
    Tensor(1., dtype=float32)
    """
    return reduce_min(xs[0], None, 0) if _only(xs) else Min()(*_listed(xs))[0]
