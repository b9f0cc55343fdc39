"""Losses as operators. Each has shape (1,), because SINGA's scripts read `to_numpy(loss)[0]`.

A target that was computed from parameters gets a gradient, as in PyTorch; class indices have none.
`backward` takes the gradient of the loss as a tensor or a number, 1 by default. Wrong shapes and
labels raise InvalidInputError, which is a ValueError and an AssertionError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..raw.check import InvalidInputError, facts_of, fraction, number, with_facts
from ..tape.elements import as_raw
from ..tape.tensor import Tensor, is_computed
from .base import BuiltinOperator, loss_like

if TYPE_CHECKING:
    from ..tape.operator import Raw


def _checked(function: Callable[..., Any], x: Raw, t: Raw, *arguments: Any) -> Any:
    """function(x, t, *arguments), with InvalidInputError for a ValueError, because SINGA asserts
    here."""
    try:
        return function(x, t, *arguments)
    except ValueError as error:
        refused, facts = InvalidInputError(str(error)), facts_of(error)
        if not facts and not x.same_shape(t):
            facts = {"kind": "shapes", "x": x.shape(), "t": t.shape()}
        raise (with_facts(refused, **facts) if facts else refused) from None


class _Loss(BuiltinOperator):
    fresh_gradients = True

    def _slope(self, dy: Raw | float) -> Raw:
        """dy as a tensor, with the type and device of the saved x if it is a number."""
        if isinstance(dy, (int, float)):
            x = self.load()[0]
            assert x is not None
            return _c.Full((1,), float(dy), x.device(), x.data_type())
        return dy


class TargetLoss(_Loss):
    """A loss whose targets the constructor takes. It is applied to x alone, or, where a gradient of
    the targets is wanted, to x and them."""

    def __init__(self, t: Any) -> None:
        super().__init__()
        self.t: Raw = as_raw(t)
        wanted = isinstance(t, Tensor) and _c.IsFloat(t.dtype)
        self._learned = t if wanted and (is_computed(t) or _is_parameter(t)) else None

    def __call__(self, *xs: Tensor) -> tuple[Tensor, ...]:
        if self._learned is None or len(xs) != 1:
            return super().__call__(*xs)
        return super().__call__(*xs, self._learned)

    @property
    def rows(self) -> int:
        """The length of the first axis of x, after `forward`."""
        x = self.load()[0]
        assert x is not None
        return _rows(x)

    def forward(self, x: Raw, t: Raw | None = None) -> Raw:
        raise NotImplementedError

    def _target(self, x: Raw) -> Raw:
        """The targets on the device of x. Float targets also get its type."""
        t = self.t.ToDevice(x.device())
        if _c.IsFloat(t.data_type()):
            t = t.AsType(x.data_type())
        return t

    def _gradients(self, dx: Raw, dy: Raw, of_target: Callable[[], Raw]) -> Any:
        """The results of backward. `of_target` gives the gradient of the targets for dy = 1."""
        if self._learned is None:
            return dx
        if not self._need(1):
            return dx, None
        dt = _c.Binary(_c.BinaryOp_kMul, of_target(), dy).Reshape(self.t.shape())
        return dx, dt.AsType(self.t.data_type()).ToDevice(self.t.device())


def _is_parameter(t: Tensor) -> bool:
    return t.requires_grad and t.stores_grad


def _rows(x: Raw) -> int:
    """The length of the first axis; a number is one row."""
    return x.shape()[0] if x.rank() else 1


def _mean_of_logs(x: Raw, least: float) -> Raw:
    """-max(log x, least) / N, for N rows."""
    logs = _c.Unary(_c.UnaryOp_kClip, _c.Unary(_c.UnaryOp_kLog, x), least, math.inf)
    return _c.Unary(_c.UnaryOp_kMulScalar, logs, -1.0 / max(_rows(x), 1))


class SoftMaxCrossEntropy(TargetLoss):
    """Softmax cross-entropy: mean over the batch of -Σ t·log softmax(x), with x (N, C).

    `t` holds class indices (N), or probabilities (N, C), such as one-hot rows. Label smoothing s
    replaces them by (1 - s)·t + s / C.
    """

    def __init__(self, t: Any, smoothing: float = 0.0) -> None:
        super().__init__(t)
        self.smoothing: float = fraction("SoftMaxCrossEntropy", "smoothing", smoothing)

    def forward(self, x: Raw, t: Raw | None = None) -> Raw:
        target = self._target(x)
        loss, p = _checked(_c.SoftmaxCrossEntropyForward, x, target, self.smoothing)
        self.save(p, target, None if t is None else x)
        return loss_like(loss)

    def backward(self, dy: Raw | float = 1.0) -> Any:
        p, t, x = self.load()
        slope = self._slope(dy)
        dx = _c.SoftmaxCrossEntropyBackward(slope, p, t, self.smoothing)

        def of_target() -> Raw:
            share = (self.smoothing - 1.0) / max(_rows(x), 1)
            return _c.Unary(_c.UnaryOp_kMulScalar, _c.LogSoftmax(x, 1), share)

        return self._gradients(dx, slope, of_target)


class CrossEntropy(TargetLoss):
    """Cross-entropy: mean over the batch of -Σ t·log x, where x and t are probabilities (N, C)."""

    def forward(self, x: Raw, t: Raw | None = None) -> Raw:
        target = self._target(x)
        self.save(x, target)
        return loss_like(_checked(_c.CrossEntropyForward, x, target))

    def backward(self, dy: Raw | float = 1.0) -> Any:
        x, t = self.load()
        slope = self._slope(dy)
        dx = _c.CrossEntropyBackward(slope, x, t)
        return self._gradients(dx, slope, lambda: _mean_of_logs(x, math.log(1e-10)))


class BinaryCrossEntropy(TargetLoss):
    """Binary cross-entropy: mean over the batch of -Σ (t·log x + (1 - t)·log(1 - x)), where x and t
    are probabilities.

    With SINGA's behaviour (`singa.compat`) it is that of x + 1e-4 and 1 - x + 1e-4.
    """

    _is_shifted = False

    def forward(self, x: Raw, t: Raw | None = None) -> Raw:
        target = self._target(x)
        if not self._is_shifted:
            self.save(x, target)
            return loss_like(_checked(_c.BinaryCrossEntropyForward, x, target))
        target = target.AsType(x.data_type())
        self.save(x, target)
        logs = [_c.Unary(_c.UnaryOp_kLog, part) for part in _shifted(x)]
        weights = target, _c.Unary(_c.UnaryOp_kScalarSub, target, 1.0)
        terms = [_c.Binary(_c.BinaryOp_kMul, *pair) for pair in zip(weights, logs, strict=True)]
        total = _c.Reduce(_c.ReduceOp_kSum, _c.Binary(_c.BinaryOp_kAdd, *terms))
        return loss_like(_per_row(total, x, -1.0))

    def backward(self, dy: Raw | float = 1.0) -> Any:
        x, t = self.load()
        slope = self._slope(dy)
        if self._is_shifted:
            return self._shifted_backward(slope, x, t)
        dx = _c.BinaryCrossEntropyBackward(slope, x, t)

        def of_target() -> Raw:
            others = _c.Unary(_c.UnaryOp_kScalarSub, x, 1.0)
            logs, logs_of_others = _mean_of_logs(x, -100.0), _mean_of_logs(others, -100.0)
            return _c.Binary(_c.BinaryOp_kSub, logs, logs_of_others)

        return self._gradients(dx, slope, of_target)

    def _shifted_backward(self, slope: Raw, x: Raw, t: Raw) -> Any:
        p, q = _shifted(x)
        others = _c.Unary(_c.UnaryOp_kScalarSub, t, 1.0)
        quotients = _c.Binary(_c.BinaryOp_kDiv, others, q), _c.Binary(_c.BinaryOp_kDiv, t, p)
        dx = _per_row(_c.Binary(_c.BinaryOp_kSub, *quotients), x)

        def of_target() -> Raw:
            logs = [_c.Unary(_c.UnaryOp_kLog, part) for part in (q, p)]
            return _per_row(_c.Binary(_c.BinaryOp_kSub, *logs), x)

        return self._gradients(_c.Binary(_c.BinaryOp_kMul, dx, slope), slope, of_target)


def _shifted(x: Raw) -> tuple[Raw, Raw]:
    """x and 1 - x, which SINGA moves away from 0."""
    p = _c.Unary(_c.UnaryOp_kAddScalar, x, 1e-4)
    return p, _c.Unary(_c.UnaryOp_kScalarSub, x, 1.0001)


def _per_row(t: Raw, x: Raw, factor: float = 1.0) -> Raw:
    """factor · t / N, for the N rows of x."""
    return _c.Unary(_c.UnaryOp_kMulScalar, t, factor / max(_rows(x), 1))


class MeanSquareError(TargetLoss):
    """Mean of (x - t)² over all elements.

    With SINGA's behaviour (`singa.compat`) the targets are broadcast to the shape of x.
    """

    _broadcasts = False

    def forward(self, x: Raw, t: Raw | None = None) -> Raw:
        target = self._target(x).AsType(x.data_type())
        if self._broadcasts and not target.same_shape(x):
            target = _checked(lambda x, t: t.Broadcast(x.shape()), x, target)
        self.save(x, target)
        return loss_like(_checked(_c.MeanSquareErrorForward, x, target))

    def backward(self, dy: Raw | float = 1.0) -> Any:
        x, t = self.load()
        dx = _c.MeanSquareErrorBackward(self._slope(dy), x, t)
        minus_one = _c.Full((1,), -1.0, x.device(), x.data_type())
        return self._gradients(dx, minus_one, lambda: _c.SumTo(dx, self.t.shape()))


class RankingLoss(_Loss):
    """Margin ranking loss: mean of max(0, M - (pos - neg)) over all elements, with margin M.

    With SINGA's behaviour (`singa.compat`) it is the sum divided by the number of rows.
    """

    _by_rows = False
    _factor = 1.0

    def __init__(self, M: float = 0.2) -> None:
        super().__init__()
        self.M = number("RankingLoss", "M", M)

    def forward(self, pos: Raw, neg: Raw) -> Raw:
        self.save(pos, neg)
        loss = _checked(_c.RankingLossForward, pos, neg, self.M)
        if self._by_rows and pos.rank():
            self._factor = pos.size() / max(_rows(pos), 1)
            loss = _c.Unary(_c.UnaryOp_kMulScalar, loss, self._factor)
        return loss_like(loss)

    def backward(self, dy: Raw | float = 1.0) -> tuple[Raw | None, ...]:
        pos, neg = self.load()
        slope = self._slope(dy)
        if self._factor != 1.0:
            slope = _c.Unary(_c.UnaryOp_kMulScalar, slope, self._factor)
        return _c.RankingLossBackward(slope, pos, neg, self.M)


def cross_entropy(x: Tensor, t: Any) -> Tensor:
    """Cross-entropy: mean over the batch of -Σ t·log x, with shape (1,).

    x and t are probabilities of the same shape, (N, C). Logarithms are clamped at log(1e-10).

    Raises ValueError for targets of another shape. Scores, and class numbers, are for
    `softmax_cross_entropy`, which is PyTorch's cross_entropy.

    >>> autograd.cross_entropy(tensor.Tensor(data=[[0.2, 0.8]]), np.array([[0.0, 1.0]]))
    Tensor([0.2231], dtype=float32)
    """
    shape = getattr(t, "shape", None)
    if shape is not None and len(shape) == len(x.shape) - 1:
        raise InvalidInputError(
            f"[cross_entropy] x and t are probabilities of one shape, got {tuple(x.shape)} and "
            f"{tuple(shape)}: of scores and class numbers use autograd.softmax_cross_entropy(x, t)"
        )
    return CrossEntropy(t)(x)[0]


def binary_cross_entropy(x: Tensor, t: Any) -> Tensor:
    """Binary cross-entropy: mean over the batch (first axis) of -Σ (t·log x + (1 - t)·log(1 - x)),
    with shape (1,).

    x and t are probabilities of the same shape. Logarithms are clamped at -100, as in PyTorch.

    Raises ValueError for targets of another shape.

    >>> autograd.binary_cross_entropy(tensor.Tensor(data=[[0.2, 0.8]]), np.array([[0.0, 1.0]]))
    Tensor([0.4463], dtype=float32)
    """
    return BinaryCrossEntropy(t)(x)[0]


def ranking_loss(pos: Tensor, neg: Tensor, M: float = 0.2) -> Tensor:
    """Margin ranking loss: mean of max(0, M - (pos - neg)) over all elements, with shape (1,).

    `pos` and `neg` are scores of the same shape, M is the margin.

    Raises ValueError for different shapes.

    >>> pos, neg = tensor.Tensor(data=[0.9, 0.3]), tensor.Tensor(data=[0.1, 0.2])
    >>> autograd.ranking_loss(pos, neg)
    Tensor([0.05], dtype=float32)
    """
    return RankingLoss(M)(pos, neg)[0]
