"""Metrics by name, as `fit(metrics=["accuracy"])` gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .. import metric
from ..dtypes import is_float
from ..launcher.command_line import closest
from ..metric import Metric
from ..tensor import Tensor
from .totals import Measure


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
    if (meant := closest(measure, METRICS)) is not None and measure not in _OTHER_METRICS:
        advice = repr(meant)
    raise ValueError(f"[Trainer] there is no metric {measure!r}: use {advice}")
