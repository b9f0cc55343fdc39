"""Losses. Each has shape (1,), because SINGA's scripts read `to_numpy(loss)[0]`.

Targets are constants without gradient. `backward` takes the gradient of the loss as a tensor or a
number, 1 by default. Wrong shapes and labels raise InvalidInputError, which is a ValueError and an
AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..raw.check import InvalidInputError, fraction, number
from ..tape.tensor import Tensor, as_raw
from .base import BuiltinOperator, loss_like

if TYPE_CHECKING:
    from ..tape.operator import Raw

__all__ = [
    "BinaryCrossEntropy",
    "CrossEntropy",
    "MeanSquareError",
    "RankingLoss",
    "SoftMaxCrossEntropy",
    "binary_cross_entropy",
    "cross_entropy",
    "mse_loss",
    "ranking_loss",
    "softmax_cross_entropy",
]


def _checked(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), with InvalidInputError for a ValueError, because SINGA asserts here."""
    try:
        return function(*arguments)
    except ValueError as error:
        raise InvalidInputError(str(error)) from None


class _Loss(BuiltinOperator):
    fresh_gradients = True

    def _slope(self, dy: Raw | float) -> Raw:
        """dy as a tensor, with the type and device of the saved x if it is a number."""
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
        """The targets on the device of x. Float targets also get its type."""
        t = self.t.ToDevice(x.device())
        if _c.IsFloat(t.data_type()):
            t = t.AsType(x.data_type())
        return t


class SoftMaxCrossEntropy(_TargetLoss):
    """Softmax cross-entropy: mean over the batch of -Σ t·log softmax(x), with x (N, C).

    `t` holds class indices (N), or probabilities (N, C), such as one-hot rows. Label smoothing s
    replaces them by (1 - s)·t + s / C.
    """

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
    """Cross-entropy: mean over the batch of -Σ t·log x, where x and t are probabilities (N, C)."""

    def forward(self, x: Raw) -> Raw:
        t = self._target(x)
        self.save(x, t)
        return loss_like(_checked(_c.CrossEntropyForward, x, t))

    def backward(self, dy: Raw | float = 1.0) -> Raw:
        x, t = self.load()
        return _c.CrossEntropyBackward(self._slope(dy), x, t)


class BinaryCrossEntropy(_TargetLoss):
    """Binary cross-entropy: mean over the batch of -Σ (t·log x + (1 - t)·log(1 - x)), where x and t
    are probabilities."""

    def forward(self, x: Raw) -> Raw:
        t = self._target(x)
        self.save(x, t)
        return loss_like(_checked(_c.BinaryCrossEntropyForward, x, t))

    def backward(self, dy: Raw | float = 1.0) -> Raw:
        x, t = self.load()
        return _c.BinaryCrossEntropyBackward(self._slope(dy), x, t)


class MeanSquareError(_TargetLoss):
    """Mean of (x - t)² over all elements."""

    def forward(self, x: Raw) -> Raw:
        t = self._target(x).AsType(x.data_type())
        self.save(x, t)
        return loss_like(_checked(_c.MeanSquareErrorForward, x, t))

    def backward(self, dy: Raw | float = 1.0) -> Raw:
        x, t = self.load()
        return _c.MeanSquareErrorBackward(self._slope(dy), x, t)


class RankingLoss(_Loss):
    """Margin ranking loss: mean of max(0, M - (pos - neg)) over all elements, with margin M."""

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
    """Softmax cross-entropy: mean over the batch of -Σ t·log softmax(x), with shape (1,).

    x          scores (N, C)
    t          class indices (N), or probabilities (N, C)
    smoothing  label smoothing s in [0, 1] (default 0): targets become (1 - s)·t + s / C
               (Szegedy et al. 2016)

    Raises ValueError for other shapes, and for a class index outside [0, C).
    """
    return SoftMaxCrossEntropy(t, smoothing)(x)[0]


def cross_entropy(x: Tensor, t: Any) -> Tensor:
    """Cross-entropy: mean over the batch of -Σ t·log x, with shape (1,).

    x and t are probabilities of the same shape, (N, C). Logarithms are clamped at log(1e-10).
    """
    return CrossEntropy(t)(x)[0]


def binary_cross_entropy(x: Tensor, t: Any) -> Tensor:
    """Binary cross-entropy: mean over the batch (first axis) of -Σ (t·log x + (1 - t)·log(1 - x)),
    with shape (1,).

    x and t are probabilities of the same shape. Logarithms are clamped at -100, as in PyTorch.
    """
    return BinaryCrossEntropy(t)(x)[0]


def mse_loss(x: Tensor, t: Any) -> Tensor:
    """Mean of (x - t)² over all elements, with shape (1,)."""
    return MeanSquareError(t)(x)[0]


def ranking_loss(pos: Tensor, neg: Tensor, M: float = 0.2) -> Tensor:
    """Margin ranking loss: mean of max(0, M - (pos - neg)) over all elements, with shape (1,).

    `pos` and `neg` are scores of the same shape, M is the margin.
    """
    return RankingLoss(M)(pos, neg)[0]
