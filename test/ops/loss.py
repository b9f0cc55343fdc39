"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from ops.case import Family, functional, torch, uniform
from singa import autograd

CASES = Family()
add = CASES.add

_P = uniform(5, 4, low=0.05, high=0.95)
_T = np.array([0, 3, 1, 1, 2])
_SOFT = np.random.default_rng(3).dirichlet(np.ones(4), 5)
add(
    "softmax_cross_entropy, classes",
    "SoftMaxCrossEntropy",
    lambda x: autograd.softmax_cross_entropy(x, _T.astype(np.int32)),
    lambda x: functional.cross_entropy(x, torch.tensor(_T)).reshape(1),
    [uniform(5, 4)],
)
add(
    "softmax_cross_entropy, probabilities",
    "SoftMaxCrossEntropy",
    lambda x: autograd.softmax_cross_entropy(x, _SOFT),
    lambda x: functional.cross_entropy(x, torch.tensor(_SOFT, dtype=x.dtype)).reshape(1),
    [uniform(5, 4)],
)
add(
    "softmax_cross_entropy, smoothed",
    "SoftMaxCrossEntropy",
    lambda x: autograd.softmax_cross_entropy(x, _T, 0.1),
    lambda x: functional.cross_entropy(x, torch.tensor(_T), label_smoothing=0.1).reshape(1),
    [uniform(5, 4)],
)
add(
    "cross_entropy",
    "CrossEntropy",
    lambda x: autograd.cross_entropy(x, np.eye(4)[_T]),
    lambda x: -(torch.tensor(np.eye(4)[_T]) * torch.log(x)).sum().reshape(1) / 5,
    [_P],
)
add(
    "binary_cross_entropy",
    "BinaryCrossEntropy",
    lambda x: autograd.binary_cross_entropy(x, np.eye(4)[_T]),
    lambda x: (
        functional.binary_cross_entropy(
            x, torch.tensor(np.eye(4)[_T], dtype=x.dtype), reduction="sum"
        ).reshape(1)
        / 5
    ),
    [_P],
)
add(
    "mse_loss",
    "MeanSquareError",
    lambda x: autograd.mse_loss(x, _SOFT),
    lambda x: functional.mse_loss(x, torch.tensor(_SOFT, dtype=x.dtype)).reshape(1),
    [uniform(5, 4)],
)
# Targets that are tensors get a gradient, too.
for _smoothing in (0.0, 0.2):
    add(
        f"softmax_cross_entropy of a target, smoothing {_smoothing}",
        "SoftMaxCrossEntropy",
        lambda x, t, smoothing=_smoothing: autograd.softmax_cross_entropy(x, t, smoothing),
        lambda x, t, smoothing=_smoothing: functional.cross_entropy(
            x, t, label_smoothing=smoothing
        ).reshape(1),
        [uniform(5, 4), _SOFT],
    )
add(
    "cross_entropy of a target",
    "CrossEntropy",
    autograd.cross_entropy,
    lambda x, t: -(t * torch.log(x)).sum().reshape(1) / 5,
    [_P, _SOFT],
)
add(
    "binary_cross_entropy of a target",
    "BinaryCrossEntropy",
    autograd.binary_cross_entropy,
    lambda x, t: -(t * torch.log(x) + (1 - t) * torch.log(1 - x)).sum().reshape(1) / 5,
    [_P, _SOFT],
)

PIXELS = uniform(2, 3, 2, 4)
_MAP = np.array([[[0, 2, 1, 9], [1, 1, 0, 2]], [[2, 9, 9, 0], [0, 1, 2, 2]]])
_MASKS = (uniform(2, 3, 2, 4, seed=1) > 0.3).astype(np.float64)
_CLASS_WEIGHTS = np.array([0.5, 2.0, 1.25])


for _reduction in ("mean", "sum", "none"):
    add(
        f"softmax_cross_entropy of pixels, {_reduction}",
        "GatherElements LogSoftMax",
        lambda x, t, w, how=_reduction: autograd.softmax_cross_entropy(x, t, 0.1, w, 9, how),
        lambda x, t, w, how=_reduction: functional.cross_entropy(
            x, t, w.to(x.dtype), ignore_index=9, label_smoothing=0.1, reduction=how
        ).reshape((2, 2, 4) if how == "none" else 1),
        [PIXELS, _MAP, _CLASS_WEIGHTS],
        constants=(1, 2),
        one_step=False,
    )
    add(
        f"nll_loss, {_reduction}",
        "GatherElements",
        lambda x, t, how=_reduction: autograd.nll_loss(x, t, None, 9, how),
        lambda x, t, how=_reduction: functional.nll_loss(
            x, t, ignore_index=9, reduction=how
        ).reshape((2, 2, 4) if how == "none" else 1),
        [PIXELS, _MAP],
        constants=(1,),
        one_step=False,
    )
add(
    "softmax_cross_entropy of pixels, probabilities",
    "LogSoftMax",
    lambda x, t, w: autograd.softmax_cross_entropy(x, t, 0.2, w),
    lambda x, t, w: functional.cross_entropy(x, t, w, label_smoothing=0.2).reshape(1),
    [PIXELS, uniform(2, 3, 2, 4, seed=3, low=0.1, high=1.0), _CLASS_WEIGHTS],
    one_step=False,
)


def _reduced(loss: Any, how: str) -> Any:
    return loss if how == "none" else getattr(loss, how)().reshape(1)


def loss(name: str, x: Any, t: Any, covers: str, **options: Any) -> None:
    """A loss of pairs of elements. Targets get gradients, too."""
    for how in ("mean", "sum", "none")[name == "mse_loss" :]:
        add(
            f"{name} over pairs, {how}{' in logarithms' * ('log_target' in options)}",
            covers,
            lambda x, t, how=how: getattr(autograd, name)(x, t, reduction=how, **options),
            lambda x, t, how=how: _reduced(
                getattr(functional, name)(x, t, reduction="none", **options), how
            ),
            [x, t],
            one_step=False,
        )


loss("l1_loss", uniform(5, 4), _SOFT, "Abs")
loss("mse_loss", uniform(5, 4), _SOFT, "Square")
loss("huber_loss", uniform(5, 4), _SOFT, "Clip", delta=0.7)
loss("smooth_l1_loss", uniform(5, 4), _SOFT, "Clip", beta=0.7)
loss("kl_div", np.log(_P), _SOFT, "Log")
loss("kl_div", np.log(_P), np.log(_SOFT), "Exp", log_target=True)
loss("binary_cross_entropy_with_logits", 3 * uniform(5, 4), _SOFT, "SoftPlus")
add(
    "kl_div, batchmean",
    "Log",
    lambda x, t: autograd.kl_div(x, t, "batchmean"),
    lambda x, t: functional.kl_div(x, t, reduction="batchmean").reshape(1),
    [np.log(_P), _SOFT],
    one_step=False,
)
add(
    "binary_cross_entropy_with_logits, weights",
    "SoftPlus",
    lambda x, t, w, p: autograd.binary_cross_entropy_with_logits(x, t, w, p),
    lambda x, t, w, p: functional.binary_cross_entropy_with_logits(x, t, w, pos_weight=p).reshape(
        1
    ),
    [3 * uniform(5, 4), _SOFT, *(np.array(w) for w in ([[0.5]] * 5, [2.0, 0.25, 1.0, 3.5]))],
    constants=(2, 3),
    one_step=False,
)


def _focal(torch: Any, x: Any, t: Any, alpha: float, gamma: float) -> Any:
    p = torch.sigmoid(x)
    loss = -t * (1 - p) ** gamma * torch.log(p) * (alpha if alpha >= 0 else 1)
    other = -(1 - t) * p**gamma * torch.log(1 - p) * (1 - alpha if alpha >= 0 else 1)
    return (loss + other).mean().reshape(1)


for _alpha, _gamma in ((0.25, 2.0), (-1.0, 1.5)):
    add(
        f"sigmoid_focal_loss, alpha {_alpha}",
        "SoftPlus Sigmoid",
        lambda x, t, a=_alpha, g=_gamma: autograd.sigmoid_focal_loss(x, t, a, g),
        lambda x, t, a=_alpha, g=_gamma: _focal(torch, x, t, a, g),
        [PIXELS, _MASKS],
        constants=(1,),
        one_step=False,
    )


def _dice(torch: Any, p: Any, t: Any) -> Any:
    both, each = (p * t).sum((2, 3)), (p + t).sum((2, 3))
    return (1 - (2 * both + 0.5) / (each + 0.5)).mean().reshape(1)


add(
    "dice_loss of masks",
    "Sigmoid",
    lambda x, t: autograd.dice_loss(x, t, 0.5),
    lambda x, t: _dice(torch, torch.sigmoid(x), t),
    [PIXELS, _MASKS],
    constants=(1,),
    one_step=False,
)
add(
    "dice_loss of classes",
    "SoftMax OneHot",
    lambda x, t: autograd.dice_loss(x, t, 0.5),
    lambda x, t: _dice(torch, torch.softmax(x, 1), functional.one_hot(t, 3).permute(0, 3, 1, 2)),
    [PIXELS, np.where(_MAP == 9, 0, _MAP)],
    constants=(1,),
    one_step=False,
)
