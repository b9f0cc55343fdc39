"""Metrics of predictions.

A metric adds up batches, on all ranks of a job:

    accuracy, f1 = metric.Accuracy(), metric.F1(num_classes=10)
    for x, y in loader:
        scores = net(x)
        accuracy.update(scores, y)
        f1.update(scores, y)
    print(accuracy.compute(), f1.compute())   # all ranks call compute(), and get the same numbers

Predictions and targets are tensors or arrays. Predictions of classes are scores (N, C, ...), such
as those of pixels (N, C, H, W), of which the highest counts; or class indices in the shape of the
targets (N, ...). Targets of such scores may be one-hot, too. Other floats in the shape of the
targets, or (N, 1, ...), are of two classes: probabilities of class 1; or any scores with a
`threshold`, or `from_logits`. Nothing is guessed: what may mean two things raises ValueError.
"""

from typing import TYPE_CHECKING, Any

from ..raw import calls, words
from .base import Metric
from .classes import (
    AUC,
    F1,
    Accuracy,
    ConfusionMatrix,
    MeanIoU,
    Precision,
    Recall,
    count_top_k,
)
from .labels import AveragePrecision
from .regression import R2

__all__ = [
    "AUC",
    "F1",
    "R2",
    "Accuracy",
    "AveragePrecision",
    "ConfusionMatrix",
    "MeanIoU",
    "Metric",
    "Precision",
    "Recall",
    "count_top_k",
]

if not TYPE_CHECKING:
    words.answers(Metric, words.METRICS)
    calls.answers_calls([globals()[name] for name in __all__])

    def __getattr__(name: str) -> Any:
        return words.missing(__name__, name)
