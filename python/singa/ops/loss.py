"""Losses. Each has shape (1,): SINGA's scripts read `to_numpy(loss)[0]`.

The targets are constants of the operator. `backward` takes the gradient of the loss as a tensor or
a number; 1 by default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from .._check import InvalidInputError, fraction, number
from .._tensor import Tensor, as_raw
from .base import Op, loss_like

if TYPE_CHECKING:
    from ..tape import Raw


def _checked(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments). Its ValueError becomes an AssertionError, too: SINGA asserts here."""
    try:
        return function(*arguments)
    except ValueError as error:
        raise InvalidInputError(str(error)) from None


class _Loss(Op):
    fresh_gradients = True

    def _slope(self, dy: Raw | float) -> Raw:
        """dy as a tensor like the saved x."""
        if isinstance(dy, (int, float)):
            x = self.load()[0]
            assert x is not None
            return _c.Full((1,), float(dy), x.device(), x.data_type())
        return dy


class _TargetLoss(_Loss):
    def __init__(self, t: Any) -> None:
        super().__init__()
        self.t = as_raw(t)

    def _target(self, x: Raw) -> Raw:
        """Targets like x where they are of another float type or device."""
        t = self.t.ToDevice(x.device())
        if _c.IsFloat(t.data_type()):
            t = t.AsType(x.data_type())
        return t


class SoftMaxCrossEntropy(_TargetLoss):
    """Mean over the batch of -Σ t·log softmax(x). `t` holds class numbers (N), or one-hot or other
    probabilities (N, C); smoothing s mixes them with the uniform ones: (1 - s)·t + s / C."""

    def __init__(self, t: Any, smoothing: float = 0.0) -> None:
        super().__init__(t)
        self.smoothing = fraction("SoftMaxCrossEntropy", "smoothing", smoothing)

    def forward(self, x: Raw) -> Raw:
        t = self._target(x)
        loss, p = _checked(_c.SoftmaxCrossEntropyForward, x, t, self.smoothing)
        self.save(p, t)
        return loss_like(loss)

    def backward(self, dy: Raw | float = 1.0) -> Raw:
        p, t = self.load()
        return _c.SoftmaxCrossEntropyBackward(self._slope(dy), p, t, self.smoothing)


class CrossEntropy(_TargetLoss):
    """Mean over the batch of -Σ t·log x, where x are probabilities already."""

    def forward(self, x: Raw) -> Raw:
        t = self._target(x)
        self.save(x, t)
        return loss_like(_checked(_c.CrossEntropyForward, x, t))

    def backward(self, dy: Raw | float = 1.0) -> Raw:
        x, t = self.load()
        return _c.CrossEntropyBackward(self._slope(dy), x, t)


class BinaryCrossEntropy(_TargetLoss):
    """Mean over the batch of -Σ (t·log x + (1 - t)·log(1 - x)), where x are probabilities."""

    def forward(self, x: Raw) -> Raw:
        t = self._target(x)
        self.save(x, t)
        return loss_like(_checked(_c.BinaryCrossEntropyForward, x, t))

    def backward(self, dy: Raw | float = 1.0) -> Raw:
        x, t = self.load()
        return _c.BinaryCrossEntropyBackward(self._slope(dy), x, t)


class MeanSquareError(_TargetLoss):
    """Mean of (x - t)²."""

    def forward(self, x: Raw) -> Raw:
        t = self._target(x).AsType(x.data_type())
        self.save(x, t)
        return loss_like(_checked(_c.MeanSquareErrorForward, x, t))

    def backward(self, dy: Raw | float = 1.0) -> Raw:
        x, t = self.load()
        return _c.MeanSquareErrorBackward(self._slope(dy), x, t)


class RankingLoss(_Loss):
    """Mean of max(0, M - (pos - neg))."""

    def __init__(self, M: float = 0.2) -> None:
        super().__init__()
        self.M = number("RankingLoss", "M", M)

    def forward(self, pos: Raw, neg: Raw) -> Raw:
        self.save(pos, neg)
        return loss_like(_checked(_c.RankingLossForward, pos, neg, self.M))

    def backward(self, dy: Raw | float = 1.0) -> tuple[Raw | None, ...]:
        pos, neg = self.load()
        return _c.RankingLossBackward(self._slope(dy), pos, neg, self.M)


def softmax_cross_entropy(x: Tensor, t: Any, smoothing: float = 0.0) -> Tensor:
    """Mean over the batch of -Σ t·log softmax(x); t holds class numbers (N) or probabilities
    (N, C), mixed with the uniform ones by `smoothing`."""
    return SoftMaxCrossEntropy(t, smoothing)(x)[0]


def cross_entropy(x: Tensor, t: Any) -> Tensor:
    """Mean over the batch of -Σ t·log x, where x are probabilities already."""
    return CrossEntropy(t)(x)[0]


def binary_cross_entropy(x: Tensor, t: Any) -> Tensor:
    """Mean over the batch of -Σ (t·log x + (1 - t)·log(1 - x)), where x are probabilities."""
    return BinaryCrossEntropy(t)(x)[0]


def mse_loss(x: Tensor, t: Any) -> Tensor:
    """Mean of (x - t)²."""
    return MeanSquareError(t)(x)[0]


def ranking_loss(pos: Tensor, neg: Tensor, M: float = 0.2) -> Tensor:
    """Mean of max(0, M - (pos - neg))."""
    return RankingLoss(M)(pos, neg)[0]
