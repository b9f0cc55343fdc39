"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from ops.case import Family, functional, torch, uniform
from singa import autograd

CASES = Family()
add, call = CASES.add, CASES.call

_P = uniform(5, 4, low=0.05, high=0.95)
_T = np.array([0, 3, 1, 1, 2])
_SOFT = np.random.default_rng(3).dirichlet(np.ones(4), 5)
_ONE_HOT = np.eye(4)[_T]
_SCORES = uniform(5, 4)


def _softmax_cross_entropy(x: Any, t: Any, smoothing: float = 0.0) -> Any:
    t = torch.as_tensor(t, dtype=x.dtype if t.ndim > 1 else torch.int64)
    return functional.cross_entropy(x, t, label_smoothing=smoothing).reshape(1)


def _cross_entropy(x: Any, t: Any) -> Any:
    return -(torch.as_tensor(t) * torch.log(x)).sum().reshape(1) / 5


for _name, *_arguments in [
    ("classes", _T.astype(np.int32)), ("probabilities", _SOFT), ("smoothed", _T, 0.1)
]:  # fmt: skip
    call(
        *(f"softmax_cross_entropy, {_name}", "SoftMaxCrossEntropy", [_SCORES], *_arguments),
        theirs=_softmax_cross_entropy,
    )
call("cross_entropy", "CrossEntropy", [_P], _ONE_HOT, theirs=_cross_entropy)
call(
    *("binary_cross_entropy", "BinaryCrossEntropy", [_P], _ONE_HOT),
    theirs=lambda x, t: (
        functional.binary_cross_entropy(x, torch.tensor(t, dtype=x.dtype), reduction="sum") / 5
    ).reshape(1),
)
call(
    *("mse_loss", "MeanSquareError", [_SCORES], _SOFT),
    theirs=lambda x, t: functional.mse_loss(x, torch.tensor(t, dtype=x.dtype)).reshape(1),
)
# Targets that are tensors get a gradient, too.
for _smoothing in (0.0, 0.2):
    call(
        f"softmax_cross_entropy of a target, smoothing {_smoothing}",
        *("SoftMaxCrossEntropy", [_SCORES, _SOFT], _smoothing),
        theirs=_softmax_cross_entropy,
    )
call("cross_entropy of a target", "CrossEntropy", [_P, _SOFT], theirs=_cross_entropy)
call(
    *("binary_cross_entropy of a target", "BinaryCrossEntropy", [_P, _SOFT]),
    theirs=lambda x, t: -(t * torch.log(x) + (1 - t) * torch.log(1 - x)).sum().reshape(1) / 5,
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


loss("l1_loss", _SCORES, _SOFT, "Abs")
loss("mse_loss", _SCORES, _SOFT, "Square")
loss("huber_loss", _SCORES, _SOFT, "Clip", delta=0.7)
loss("smooth_l1_loss", _SCORES, _SOFT, "Clip", beta=0.7)
loss("kl_div", np.log(_P), _SOFT, "Log")
loss("kl_div", np.log(_P), np.log(_SOFT), "Exp", log_target=True)
loss("binary_cross_entropy_with_logits", 3 * _SCORES, _SOFT, "SoftPlus")
call(
    *("kl_div, batchmean", "Log", [np.log(_P), _SOFT], "batchmean"),
    theirs=lambda x, t, how: functional.kl_div(x, t, reduction=how).reshape(1),
    one_step=False,
)


def _with_logits(x: Any, t: Any, w: Any, p: Any) -> Any:
    return functional.binary_cross_entropy_with_logits(x, t, w, pos_weight=p).reshape(1)


call(
    "binary_cross_entropy_with_logits, weights",
    "SoftPlus",
    [3 * _SCORES, _SOFT, *(np.array(w) for w in ([[0.5]] * 5, [2.0, 0.25, 1.0, 3.5]))],
    theirs=_with_logits,
    constants=(2, 3),
    one_step=False,
)


def _focal(x: Any, t: Any, alpha: float, gamma: float) -> Any:
    p = torch.sigmoid(x)
    loss = -t * (1 - p) ** gamma * torch.log(p) * (alpha if alpha >= 0 else 1)
    other = -(1 - t) * p**gamma * torch.log(1 - p) * (1 - alpha if alpha >= 0 else 1)
    return (loss + other).mean().reshape(1)


def _dice(p: Any, t: Any) -> Any:
    both, each = (p * t).sum((2, 3)), (p + t).sum((2, 3))
    return (1 - (2 * both + 0.5) / (each + 0.5)).mean().reshape(1)


_TARGETS = {"constants": (1,), "one_step": False}
for _alpha, _gamma in ((0.25, 2.0), (-1.0, 1.5)):
    call(
        f"sigmoid_focal_loss, alpha {_alpha}",
        *("SoftPlus Sigmoid", [PIXELS, _MASKS], _alpha, _gamma),
        theirs=_focal,
        **_TARGETS,
    )
call(
    *("dice_loss of masks", "Sigmoid", [PIXELS, _MASKS], 0.5),
    theirs=lambda x, t, _: _dice(torch.sigmoid(x), t),
    **_TARGETS,
)
call(
    *("dice_loss of classes", "SoftMax OneHot", [PIXELS, np.where(_MAP == 9, 0, _MAP)], 0.5),
    theirs=lambda x, t, _: _dice(torch.softmax(x, 1), functional.one_hot(t, 3).permute(0, 3, 1, 2)),
    **_TARGETS,
)
