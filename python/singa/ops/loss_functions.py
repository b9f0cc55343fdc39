"""Losses as functions, with PyTorch's arguments and values.

`reduction` is "mean", "sum" or "none". Means and sums have shape (1,), as SINGA's losses do; "none"
gives the loss of each element. The plain mean of a softmax cross-entropy and of squares is one
operation (`loss.py`); the others are combinations of operators, so their targets may have
gradients, too. Of scores in 16 bits they are computed in float32, the type of the result.

Targets are tensors, arrays or lists. Targets and weights that a recorded step takes should be
tensors: an array becomes another tensor in each step, which is then not replayed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import bool_, float32, float64, int64, is_float
from ..raw.calls import checks_flags
from ..raw.check import (
    InvalidInputError,
    facts_of,
    fraction,
    integer,
    number,
    one_of,
    positive,
    with_facts,
)
from ..tape.tensor import Tensor, wrap
from .activation import softplus
from .arithmetic import clip, equal, less, not_equal
from .base import indices_of, tensor_of
from .conversion import Cast, cast, converted
from .elementwise import abs, exp, log, negative, sigmoid, square
from .indexing import gather, gather_elements, onehot, where
from .loss import MeanSquareError, SoftMaxCrossEntropy
from .movement import reshape, squeeze, unsqueeze
from .reduction import log_softmax, reduce_mean, reduce_sum, softmax_along
from .statistics import any


def softmax_cross_entropy(
    x: Tensor,
    t: Any,
    smoothing: float = 0.0,
    weight: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Softmax cross-entropy -Σ t·log softmax(x) over the classes, as torch's cross_entropy.

    x             scores (N, C), or (N, C, ...), such as those of pixels (N, C, H, W)
    t             class indices (N, ...), or probabilities in the shape of x
    smoothing     label smoothing s in [0, 1] (default 0): targets become (1 - s)·t + s / C
                  (Szegedy et al. 2016)
    weight        a weight for each class, of shape (C). The mean over class indices is divided by
                  the weights of the targets, other means by the number of targets.
    ignore_index  a class index, such as 255 or PyTorch's -100, whose targets count as if they were
                  not there: scores there may be -inf or NaN. (As PyTorch's, the gradient of such
                  scores is NaN where softmax is.) If no target counts, the mean is NaN and the
                  gradient 0. Default None: there is none.
    reduction     "mean", "sum" or "none"

    Raises ValueError for other shapes, IndexError for a class index outside [0, C).

    >>> scores = tensor.Tensor(data=[[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> autograd.softmax_cross_entropy(scores, np.array([0, 2]))
    Tensor([0.8955], dtype=float32)
    >>> autograd.softmax_cross_entropy(scores, np.array([0, 2]), reduction="none")
    Tensor([0.2395, 1.5514], dtype=float32)
    """
    plain = weight is None and ignore_index is None and reduction == "mean"
    if plain and len(x.shape) <= 2:
        return SoftMaxCrossEntropy(t, smoothing)(x)[0]
    op = "softmax_cross_entropy"
    share = fraction(op, "smoothing", smoothing)
    _check_reduction(op, reduction)
    target, wide = tensor_of(t, x).to(x.device), _wide(op, x)
    weights = _weights(op, weight, wide) if len(x.shape) > 1 else _refuse_shapes(op, x, target)
    classes = wide.shape[1]
    if target.shape == x.shape and is_float(target.dtype):
        if ignore_index is not None:
            raise ValueError(f"[{op}] ignore_index needs class indices, not probabilities")
        target, scores = _as(target, wide), log_softmax(wide, 1)
        if share:
            target = target * (1.0 - share) + share / classes
        products = target * scores
        loss = negative(_sum_classes(products if weights is None else products * weights))
        return _reduced(op, loss, reduction)
    target, kept = _kept(op, wide, target, ignore_index)
    scores = log_softmax(wide, 1)
    loss, counts = _of_classes(op, scores, target, weights, kept)
    if share:
        uniform = _sum_classes(scores if weights is None else scores * weights)
        if kept is not None:
            uniform = where(uniform, 0.0, kept)
        loss = loss * (1.0 - share) - uniform * (share / classes)
    return _reduced(op, loss, reduction, counts, kept)


def nll_loss(
    x: Tensor,
    t: Any,
    weight: Any = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood -x[t], for log-probabilities x (N, C, ...) and class indices t
    (N, ...). Arguments are those of `softmax_cross_entropy`.

    Raises ValueError for other shapes, IndexError for a class index outside [0, C).

    >>> x = tensor.Tensor(data=np.log([[0.7, 0.3], [0.4, 0.6]]))
    >>> autograd.nll_loss(x, np.array([0, 1]))
    Tensor([0.4338], dtype=float32)
    """
    op = "nll_loss"
    _check_reduction(op, reduction)
    scores, target = _wide(op, x), tensor_of(t, x).to(x.device)
    target, kept = _kept(op, scores, target, ignore_index)
    loss, counts = _of_classes(op, scores, target, _weights(op, weight, scores), kept)
    return _reduced(op, loss, reduction, counts, kept)


def binary_cross_entropy_with_logits(
    x: Tensor,
    t: Any,
    weight: Any = None,
    pos_weight: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross-entropy -(t·log p + (1 - t)·log(1 - p)) with p = sigmoid(x), of scores x.

    t           targets in [0, 1], in the shape of x
    weight      of each element; it broadcasts to x
    pos_weight  multiplies the part of t, such as negatives / positives; it broadcasts to x
    reduction   "mean" over all elements, "sum" or "none"

    No score overflows. Raises ValueError for targets of another shape.

    >>> scores = tensor.Tensor(data=[3.0, -1.0])
    >>> autograd.binary_cross_entropy_with_logits(scores, np.array([1.0, 0.0]))
    Tensor([0.1809], dtype=float32)
    """
    op = "binary_cross_entropy_with_logits"
    scores, target = _pair(op, x, t, reduction)
    # log p = -softplus(-x), and log(1 - p) = -x - softplus(-x)
    part = softplus(negative(scores))
    if pos_weight is not None:
        part = part * (target * (_as(tensor_of(pos_weight, x), scores) - 1.0) + 1.0)
    loss = (1.0 - target) * scores + part
    if weight is not None:
        loss = loss * _as(tensor_of(weight, x), scores)
    return _reduced(op, loss, reduction)


def sigmoid_focal_loss(
    x: Tensor, t: Any, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "mean"
) -> Tensor:
    """Focal loss alpha_t·(1 - p_t)^gamma·(-log p_t), where p_t is sigmoid(x) for a target 1, and
    1 - sigmoid(x) for a target 0. Lin et al. 2017; torchvision.ops.sigmoid_focal_loss.

    alpha_t is `alpha` for a target 1 and 1 - alpha for a target 0; a negative `alpha` means no
    weights. t has the shape of x. Raises ValueError for targets of another shape.

    >>> scores = tensor.Tensor(data=[3.0, -1.0])
    >>> autograd.sigmoid_focal_loss(scores, np.array([1.0, 0.0]), reduction="none")
    Tensor([0.   , 0.017], dtype=float32)
    """
    op = "sigmoid_focal_loss"
    scores, target = _pair(op, x, t, reduction)
    alpha, gamma = number(op, "alpha", alpha), number(op, "gamma", gamma)
    # 1 - p_t, without a difference that rounds to 0, where a root has an infinite slope.
    missed = sigmoid(negative(scores)) * target + sigmoid(scores) * (1.0 - target)
    missed = clip(missed, min=float(np.finfo(scores.dtype.name).tiny))
    loss = binary_cross_entropy_with_logits(scores, target, reduction="none") * missed**gamma
    if alpha >= 0:
        loss = loss * (target * (2.0 * alpha - 1.0) + (1.0 - alpha))
    return _reduced(op, loss, reduction)


def dice_loss(x: Tensor, t: Any, smooth: float = 1.0, reduction: str = "mean") -> Tensor:
    """Dice loss 1 - (2·Σ p·t + smooth) / (Σ p + Σ t + smooth) of each image and class, with sums
    over the pixels, for masks. Milletari et al. 2016.

    x          scores (N, C, ...)
    t          class indices (N, ...), with p = softmax of x over the classes; or masks of 0 and 1
               in the shape of x, one for each class, with p = sigmoid(x)
    smooth     keeps empty masks from 0 / 0 (default 1)
    reduction  "mean" and "sum" are over images and classes; "none" gives (N, C)

    Raises ValueError for other shapes, IndexError for a class index outside [0, C).

    >>> scores = tensor.Tensor(data=[[[5.0, -5.0], [-5.0, 5.0]]])  # two classes, two pixels
    >>> autograd.dice_loss(scores, np.array([[0, 1]]))
    Tensor([0.], dtype=float32)
    """
    op = "dice_loss"
    _check_reduction(op, reduction)
    smooth = number(op, "smooth", smooth)
    scores, target = _wide(op, x), tensor_of(t, x).to(x.device)
    shape = scores.shape
    if len(shape) < 3 or target.shape not in (shape, (shape[0], *shape[2:])):
        _refuse_shapes(op, x, target)
    if target.shape == shape:
        p, target = sigmoid(scores), _as(target, scores)
    else:
        p = softmax_along(scores, 1)
        marks = onehot(1, _checked_classes(_whole(op, target, x), shape[1]), shape[1], (0.0, 1.0))
        target = _as(marks, scores)
    pixels = list(range(2, len(shape)))
    both, each = reduce_sum(p * target, pixels, 0), reduce_sum(p + target, pixels, 0)
    loss = 1.0 - (both * 2.0 + smooth) / (each + smooth)
    return _reduced(op, loss, reduction)


@checks_flags
def kl_div(x: Tensor, t: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Kullback-Leibler divergence t·(log t - x) of each element, for log-probabilities x.

    t           probabilities in the shape of x, or their logarithms with `log_target`
    reduction   "mean" over all elements, "sum", "none", or "batchmean": the sum divided by the
                rows, which is the mean divergence of distributions

    Where t is 0, so is the loss. Raises ValueError for targets of another shape.

    >>> x, t = tensor.Tensor(data=np.log([[0.5, 0.5]])), np.array([[0.9, 0.1]])
    >>> autograd.kl_div(x, t, reduction="batchmean")
    Tensor([0.3681], dtype=float32)
    """
    op = "kl_div"
    scores, target = _pair(op, x, t, "sum" if reduction == "batchmean" else reduction)
    if log_target:
        loss = exp(target) * (target - scores)
    else:
        # log(1) for a target of 0, so that neither value nor gradient is 0 · inf
        loss = target * (log(where(1.0, target, equal(target, 0))) - scores)
    if reduction == "batchmean":
        return _reduced(op, loss, "sum") * (1.0 / max(x.shape[0], 1))
    return _reduced(op, loss, reduction)


def l1_loss(x: Tensor, t: Any, reduction: str = "mean") -> Tensor:
    """|x - t|. Raises ValueError for targets of another shape.

    >>> autograd.l1_loss(tensor.Tensor(data=[1.0, 4.0]), np.array([1.0, 2.0]))
    Tensor([1.], dtype=float32)
    """
    scores, target = _pair("l1_loss", x, t, reduction)
    return _reduced("l1_loss", abs(scores - target), reduction)


def mse_loss(x: Tensor, t: Any, reduction: str = "mean") -> Tensor:
    """(x - t)²: by default the mean over all elements. Raises ValueError for targets of another
    shape.

    >>> autograd.mse_loss(tensor.Tensor(data=[1.0, 4.0]), np.array([1.0, 2.0]))
    Tensor([2.], dtype=float32)
    """
    if reduction == "mean":
        return MeanSquareError(t)(x)[0]
    scores, target = _pair("mse_loss", x, t, reduction)
    return _reduced("mse_loss", square(scores - target), reduction)


def huber_loss(x: Tensor, t: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """With d = |x - t|: d² / 2 where d < delta, else delta·(d - delta / 2). Huber 1964.

    Raises ValueError for targets of another shape, and unless `delta` is positive.

    >>> autograd.huber_loss(tensor.Tensor(data=[0.5, 4.0]), np.array([0.0, 0.0]), reduction="none")
    Tensor([0.125, 3.5  ], dtype=float32)
    """
    delta = positive("huber_loss", "delta", delta, finite=True)
    return _huber("huber_loss", x, t, reduction, delta, 1.0)


def smooth_l1_loss(x: Tensor, t: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """With d = |x - t|: d² / (2·beta) where d < beta, else d - beta / 2. Girshick 2015. A beta of 0
    gives `l1_loss`.

    Raises ValueError for targets of another shape, and for a negative `beta`.

    >>> x, t = tensor.Tensor(data=[0.5, 4.0]), np.array([0.0, 0.0])
    >>> autograd.smooth_l1_loss(x, t, reduction="none", beta=2.0)
    Tensor([0.0625, 3.    ], dtype=float32)
    """
    if beta == 0:
        return l1_loss(x, t, reduction)
    beta = positive("smooth_l1_loss", "beta", beta, finite=True)
    return _huber("smooth_l1_loss", x, t, reduction, beta, 1.0 / beta)


def _huber(op: str, x: Tensor, t: Any, reduction: str, delta: float, factor: float) -> Tensor:
    scores, target = _pair(op, x, t, reduction)
    d = abs(scores - target)
    near = clip(d, max=delta)  # d²/2 + 0 where d < delta, else delta²/2 + delta·(d - delta)
    loss = square(near) * 0.5 + (d - near) * delta
    return _reduced(op, loss if factor == 1.0 else loss * factor, reduction)


# Parts that they share.

_REDUCTIONS = ("mean", "sum", "none")


def _check_reduction(op: str, reduction: str) -> None:
    one_of(op, "reduction", reduction, _REDUCTIONS)


def _refuse_shapes(op: str, x: Tensor, t: Tensor) -> Any:
    error = InvalidInputError(
        f"[{op}] x must be scores (N, C, ...) and t class indices (N, ...) or of the shape of x, "
        f"got x {x.shape} and t {t.shape}"
    )
    raise with_facts(error, "no_scores")


def _wide(op: str, x: Tensor) -> Tensor:
    """x in the type in which losses are computed."""
    if not is_float(x.dtype):
        raise TypeError(f"[{op}] x must have a float type, got {x.shape} {x.dtype}")
    return x if x.dtype in (float32, float64) else cast(x, float32)


def _as(t: Tensor, like: Tensor) -> Tensor:
    """A target or weight on the device and in the type of `like`. Gradients flow back to floats."""
    t = t.to(like.device)
    if t.dtype == like.dtype:
        return t
    return Cast(like.dtype)(t)[0] if is_float(t.dtype) else converted(t, like.dtype)


def _pair(op: str, x: Tensor, t: Any, reduction: str) -> tuple[Tensor, Tensor]:
    """x and targets of its shape, in one type."""
    _check_reduction(op, reduction)
    scores, target = _wide(op, x), tensor_of(t, x)
    if target.shape != x.shape:
        error = f"[{op}] t must have the shape of x {x.shape}, got {target.shape}"
        raise with_facts(InvalidInputError(error), "shapes", x=x.shape, t=target.shape)
    return scores, _as(target, scores)


def _weights(op: str, weight: Any, scores: Tensor) -> Tensor | None:
    """Weights of the classes, with axes of length 1 behind, or None."""
    if weight is None:
        return None
    weights = _as(tensor_of(weight, scores), scores)
    if weights.shape != scores.shape[1:2]:
        raise InvalidInputError(
            f"[{op}] weight must have shape {scores.shape[1:2]}, one number for each class, got "
            f"{weights.shape}"
        )
    return weights.reshape((-1, *(1,) * (len(scores.shape) - 2)))


def _whole(op: str, t: Tensor, x: Tensor) -> Tensor:
    """Class indices as int64. Floats are read to see that they are whole numbers."""
    if t.dtype == bool_ or is_float(t.dtype):
        t = wrap(indices_of(op, t.data, x.data), False)
    return t if t.dtype == int64 else converted(t, int64)


def _checked_classes(t: Tensor, classes: int) -> Tensor:
    """Indices in which negative ones are `classes`, which the operator that uses them refuses,
    where it would count them from the end."""
    return where(classes, t, less(t, 0))


def _kept(
    op: str, scores: Tensor, t: Tensor, ignore_index: int | None
) -> tuple[Tensor, Tensor | None]:
    """Class indices (N, ...) for scores (N, C, ...), 0 where they do not count; and which count, if
    not all do."""
    shape, kept = scores.shape, None
    if len(shape) < 2 or t.shape != (shape[0], *shape[2:]):
        _refuse_shapes(op, scores, t)
    target = _whole(op, t, scores)
    if ignore_index is not None:
        kept = not_equal(target, integer(op, "ignore_index", ignore_index))
    target = _checked_classes(target, shape[1])
    return (target if kept is None else where(target, 0, kept)), kept


def _of_classes(
    op: str, scores: Tensor, target: Tensor, weights: Tensor | None, kept: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """For logarithms of probabilities (N, C, ...) and what `_kept` returns: the loss of each
    target, and the weights of the targets, if they differ. Both are selected, so that it does not
    matter what lies where no target counts."""
    try:
        loss = negative(squeeze(gather_elements(scores, unsqueeze(target, 1), 1), 1))
    except IndexError as error:  # of gather_elements, which takes negative places, too
        facts = {**facts_of(error), "op": op, "low": 0}
        said = "[{op}] index {value} at position {position} is outside [{low}, {high})"
        raise with_facts(IndexError(said.format_map(facts)), **facts) from None
    counts = None if kept is None else converted(kept, scores.dtype)
    if weights is not None:
        counts = gather(reshape(weights, (-1,)), 0, target)
        loss = loss * counts
        if kept is not None:
            counts = where(counts, 0.0, kept)
    return (loss if kept is None else where(loss, 0.0, kept)), counts


def _sum_classes(t: Tensor) -> Tensor:
    return reduce_sum(t, 1, 0)


def _reduced(
    op: str,
    loss: Tensor,
    reduction: str,
    counts: Tensor | None = None,
    kept: Tensor | None = None,
) -> Tensor:
    """The loss of each element, or its sum or mean with shape (1,). `counts` are the weights in a
    weighted mean, `kept` says which targets count, if not all do."""
    if reduction == "none":
        return loss
    if reduction == "mean" and counts is None:
        return reshape(reduce_mean(loss, None, 0), (1,))
    total = reduce_sum(loss, None, 0)
    if reduction == "sum":
        return reshape(total, (1,))
    count = reduce_sum(counts, None, 0)  # type: ignore[arg-type]
    if kept is None:
        mean = reshape(total / count, (1,))
    else:
        some = any(kept)
        # Selected: the mean of nothing is NaN, but its gradient is 0.
        mean = reshape(where(total / where(count, 1.0, some), math.nan, some), (1,))
    mean.counted = reshape(count, (1,)).detach()
    return mean
