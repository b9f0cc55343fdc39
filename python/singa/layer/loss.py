"""Losses as layers, under PyTorch's names. Each applies the function of `singa.autograd` that it
names, which describes arguments, shapes and errors.

Means and sums have shape (1,), as all losses of singa.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import autograd, tensor
from ..raw.check import fraction
from ..raw.words import spelled
from ..tensor import Tensor
from .base import Layer


def _constant(weight: Any) -> Tensor | None:
    """A weight as a tensor, made once, so that recorded steps are replayed."""
    if weight is None or isinstance(weight, Tensor):
        return weight
    constant = tensor.from_numpy(np.asarray(weight, np.float32))
    constant.requires_grad = False
    return constant


class SoftMaxCrossEntropy(Layer):
    """SINGA's loss of class numbers (N,) or probabilities (N, classes): `CrossEntropyLoss` without
    weights. `smoothing` in [0, 1] is its `label_smoothing` (Szegedy et al. 2016).

    Raises ValueError for another `smoothing`.

    >>> scores = tensor.Tensor(data=[[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> layer.SoftMaxCrossEntropy()(scores, tensor.from_numpy(np.array([0, 2])))
    Tensor([0.8955], dtype=float32)
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        super().__init__()
        self.smoothing: float = fraction("SoftMaxCrossEntropy", "smoothing", smoothing)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return autograd.softmax_cross_entropy(x, t, self.smoothing)


@spelled(smoothing="label_smoothing")
class CrossEntropyLoss(Layer):
    """`autograd.softmax_cross_entropy` of scores x (N, C, ...) for class indices t (N, ...), or
    probabilities in the shape of x.

    `weight` has a number for each class. `ignore_index` is None by default, where PyTorch's is
    -100: then every index has to be a class. `label_smoothing` in [0, 1] mixes targets with equal
    probabilities.

    Raises ValueError for another `reduction` or `label_smoothing`, and for targets of another
    shape.

    >>> scores = tensor.Tensor(data=[[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> layer.CrossEntropyLoss()(scores, np.array([0, 2]))
    Tensor([0.8955], dtype=float32)
    """

    def __init__(
        self,
        weight: Any = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.weight = _constant(weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing: float = fraction(
            "CrossEntropyLoss", "label_smoothing", label_smoothing
        )

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.softmax_cross_entropy(
            x, t, self.label_smoothing, self.weight, self.ignore_index, self.reduction
        )


class NLLLoss(Layer):
    """`autograd.nll_loss` of log-probabilities x (N, C, ...) for class indices t (N, ...).

    Raises ValueError for targets of another shape, IndexError for an index that is no class.

    >>> layer.NLLLoss()(tensor.Tensor(data=np.log([[0.7, 0.3], [0.4, 0.6]])), np.array([0, 1]))
    Tensor([0.4338], dtype=float32)
    """

    def __init__(
        self, weight: Any = None, ignore_index: int | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.weight = _constant(weight)
        self.ignore_index = ignore_index
        self.reduction = reduction

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.nll_loss(x, t, self.weight, self.ignore_index, self.reduction)


class BCEWithLogitsLoss(Layer):
    """`autograd.binary_cross_entropy_with_logits` of scores x for targets t in [0, 1].

    Raises ValueError for targets of another shape.

    >>> layer.BCEWithLogitsLoss()(tensor.Tensor(data=[3.0, -1.0]), np.array([1.0, 0.0]))
    Tensor([0.1809], dtype=float32)
    """

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__()
        self.weight = _constant(weight)
        self.pos_weight = _constant(pos_weight)
        self.reduction = reduction

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.binary_cross_entropy_with_logits(
            x, t, self.weight, self.pos_weight, self.reduction
        )


class FocalLoss(Layer):
    """`autograd.sigmoid_focal_loss` of scores x for targets t of 0 and 1.

    Raises ValueError for targets of another shape.

    >>> layer.FocalLoss()(tensor.Tensor(data=[3.0, -1.0]), np.array([1.0, 0.0]))
    Tensor([0.0085], dtype=float32)
    """

    def __init__(self, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "mean") -> None:
        super().__init__()
        self.alpha = alpha
        self.gamma = gamma
        self.reduction = reduction

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.sigmoid_focal_loss(x, t, self.alpha, self.gamma, self.reduction)


class DiceLoss(Layer):
    """`autograd.dice_loss` of scores x (N, C, ...) for classes t (N, ...), or masks in the shape of
    x.

    Raises ValueError for targets of another shape.

    >>> scores = tensor.Tensor(data=[[[5.0, -5.0], [-5.0, 5.0]]])  # two classes, two pixels
    >>> layer.DiceLoss()(scores, np.array([[0, 1]]))
    Tensor([0.], dtype=float32)
    """

    def __init__(self, smooth: float = 1.0, reduction: str = "mean") -> None:
        super().__init__()
        self.smooth = smooth
        self.reduction = reduction

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.dice_loss(x, t, self.smooth, self.reduction)


class KLDivLoss(Layer):
    """`autograd.kl_div` of log-probabilities x for probabilities t, or their logarithms.

    Raises ValueError for targets of another shape.

    >>> x, t = tensor.Tensor(data=np.log([[0.5, 0.5]])), np.array([[0.9, 0.1]])
    >>> layer.KLDivLoss("batchmean")(x, t)
    Tensor([0.3681], dtype=float32)
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__()
        self.reduction = reduction
        self.log_target = log_target

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.kl_div(x, t, self.reduction, self.log_target)


class L1Loss(Layer):
    """`autograd.l1_loss`: |x - t|.

    Raises ValueError for targets of another shape.

    >>> layer.L1Loss()(tensor.Tensor(data=[1.0, 4.0]), np.array([1.0, 2.0]))
    Tensor([1.], dtype=float32)
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.l1_loss(x, t, self.reduction)


class MSELoss(Layer):
    """`autograd.mse_loss`: (x - t)². `layer.MeanSquareError` is SINGA's name.

    Raises ValueError for targets of another shape.

    >>> layer.MSELoss()(tensor.Tensor(data=[1.0, 4.0]), np.array([1.0, 2.0]))
    Tensor([2.], dtype=float32)
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.mse_loss(x, t, self.reduction)


class HuberLoss(Layer):
    """`autograd.huber_loss`: squares near 0, and a slope of `delta` beyond it.

    Raises ValueError for targets of another shape, and unless `delta` is positive.

    >>> layer.HuberLoss("none")(tensor.Tensor(data=[0.5, 4.0]), np.array([0.0, 0.0]))
    Tensor([0.125, 3.5  ], dtype=float32)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__()
        self.reduction = reduction
        self.delta = delta

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.huber_loss(x, t, self.reduction, self.delta)


class SmoothL1Loss(Layer):
    """`autograd.smooth_l1_loss`: squares up to `beta`, and a slope of 1 beyond it.

    Raises ValueError for targets of another shape, and for a negative `beta`.

    >>> layer.SmoothL1Loss("none", beta=2.0)(tensor.Tensor(data=[0.5, 4.0]), np.array([0.0, 0.0]))
    Tensor([0.0625, 3.    ], dtype=float32)
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__()
        self.reduction = reduction
        self.beta = beta

    def forward(self, x: Tensor, t: Any) -> Tensor:
        return autograd.smooth_l1_loss(x, t, self.reduction, self.beta)
