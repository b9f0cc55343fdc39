"""Losses and metrics by name, as `fit(loss="mse", metrics=["accuracy"])` gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .. import layer, metric
from ..dtypes import is_float
from ..metric import Metric
from ..tensor import Tensor
from .totals import Measure

_SCORES = "loss='cross_entropy', of scores without a softmax"

#: Losses of outputs and targets.
LOSSES: dict[str, Callable[[], layer.Layer]] = {
    "cross_entropy": layer.CrossEntropyLoss,
    "bce_with_logits": layer.BCEWithLogitsLoss,
    "mse": layer.MSELoss,
    "mae": layer.L1Loss,
    "l1": layer.L1Loss,
    "smooth_l1": layer.SmoothL1Loss,
    "huber": layer.HuberLoss,
    "nll": layer.NLLLoss,
    "focal": layer.FocalLoss,
}
_OF_NUMBERS = (layer.MSELoss, layer.L1Loss, layer.SmoothL1Loss, layer.HuberLoss)
#: Other names of losses, with what to write.
_OTHER_LOSSES = {
    "bce": "loss='bce_with_logits', of scores without a sigmoid",
    "binary_cross_entropy": "loss='bce_with_logits', of scores without a sigmoid",
    "binary_crossentropy": "loss='bce_with_logits', of scores without a sigmoid",
    "categorical_crossentropy": _SCORES,
    "crossentropy": _SCORES,
    "mean_absolute_error": "loss='mae'",
    "mean_squared_error": "loss='mse'",
    "softmax_cross_entropy": _SCORES,
    "sparse_categorical_crossentropy": _SCORES,
}


def _accuracy(top_k: int) -> Measure:
    def right(out: Any, y: Any) -> float:
        """The sum over the rows of the share of right targets."""
        batch = metric.Accuracy(top_k)
        batch.update(out, _likeliest(y))
        return batch.rows_right(len(y))

    return right


def _likeliest(y: Any) -> Any:
    """The class with the largest share in each row of soft labels, such as those of `data.MixUp`;
    other targets come back."""
    if not isinstance(y, Tensor) or len(y.shape) != 2 or not is_float(y.dtype):
        return y
    shares = y.numpy()
    is_soft = (shares >= 0).all() and np.allclose(shares.sum(1), 1.0, atol=1e-3)
    return shares.argmax(1) if is_soft and shares.shape[1] > 1 else y


def _mean_of(error: Callable[[Any], Any]) -> Measure:
    def total(out: Any, y: Any) -> float:
        outputs, targets = (np.asarray(each.numpy(), np.float64) for each in (out, y))
        if outputs.shape != targets.shape:
            raise ValueError(f"[Trainer] outputs {outputs.shape}, but targets {targets.shape}")
        return float(error(outputs - targets).reshape(len(targets), -1).mean(1).sum())

    return total


#: Metrics. Those that are functions are computed in training, too.
METRICS: dict[str, Callable[[], Measure]] = {
    "accuracy": lambda: _accuracy(1),
    "acc": lambda: _accuracy(1),
    "top5": lambda: _accuracy(5),
    "mae": lambda: _mean_of(np.abs),
    "mse": lambda: _mean_of(np.square),
    "auc": metric.AUC,
    "r2": metric.R2,
}
#: Other names of metrics, with what to write.
_OTHER_METRICS = {
    "binary_accuracy": "{'accuracy': metric.Accuracy(from_logits=True)}",
    "categorical_accuracy": "'accuracy'",
    "error_rate": "'accuracy', which is 1 less it",
    "f1": "{'f1': metric.F1(num_classes)}",
    "mean_absolute_error": "'mae'",
    "mean_squared_error": "'mse'",
    "miou": "{'miou': metric.MeanIoU(num_classes)}",
    "precision": "{'precision': metric.Precision(num_classes)}",
    "recall": "{'recall': metric.Recall(num_classes)}",
    "sparse_categorical_accuracy": "'accuracy'",
}


def named_loss(loss: Any) -> Any:
    """The loss of this name; another value comes back. Raises TypeError for what is no function,
    ValueError for another name."""
    if isinstance(loss, str):
        if loss in LOSSES:
            return LOSSES[loss]()
        advice = _OTHER_LOSSES.get(loss, f"one of {', '.join(LOSSES)}; or a layer or a function")
        raise ValueError(f"[Trainer] there is no loss {loss!r}: use {advice}")
    if not callable(loss) or isinstance(loss, type):
        raise TypeError(
            "[Trainer] loss: expected a layer or a function of outputs and targets, such as "
            f"layer.MSELoss() or layer.CrossEntropyLoss(), or a name, got {loss!r:.80}"
        )
    return loss


def for_numbers(name: str, error: ValueError) -> str:
    """What to tell a user whose targets do not have the shape of the outputs, which the loss of
    this name compares; "" for other errors and losses."""
    if LOSSES.get(name) not in _OF_NUMBERS or "must have the shape of" not in str(error):
        return ""
    return (
        f"[Trainer] loss={name!r} compares outputs with numbers of the same shape: {error}; for "
        "classes use loss='cross_entropy'"
    )


def named_metrics(metrics: Any) -> dict[str, Measure]:
    """Metrics by name, from a dict of them, or from a list of names of METRICS. Raises TypeError or
    ValueError for others."""
    if metrics is None:
        return {}
    if isinstance(metrics, Mapping):
        found = {name: _named(each) for name, each in metrics.items()}
    elif isinstance(metrics, Iterable) and not isinstance(metrics, str):
        names = list(metrics)
        if wrong := [each for each in names if not isinstance(each, str)]:
            raise TypeError(
                "[Trainer] metrics: expected names, or a dict such as {'accuracy': "
                f"metric.Accuracy()}}, got {wrong[0]!r:.80} in a list"
            )
        found = {name: _named(name) for name in names}
    else:
        raise TypeError(
            "[Trainer] metrics: expected a dict by name, such as {'accuracy': metric.Accuracy()}, "
            f"or a list of names, such as ['accuracy'], got {metrics!r:.80}"
        )
    for name, measure in found.items():
        if isinstance(measure, type) or not (callable(measure) or isinstance(measure, Metric)):
            raise TypeError(
                f"[Trainer] metrics: {name!r} is {measure!r:.80}; expected a Metric, or a "
                "function of outputs and targets"
            )
    return found


def _named(measure: Any) -> Any:
    if not isinstance(measure, str):
        return measure
    if measure in METRICS:
        return METRICS[measure]()
    advice = _OTHER_METRICS.get(measure, f"one of {', '.join(METRICS)}; or a metric in a dict")
    raise ValueError(f"[Trainer] there is no metric {measure!r}: use {advice}")
