"""Metrics of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import singa_wrap
from ..raw.check import integer, number
from ..tape.elements import as_raw
from ..tensor import Tensor, int32, int64
from .base import (
    Array,
    Metric,
    as_array,
    as_indices,
    check_shapes,
    divided,
    is_one_hot,
    joined,
    total,
    wrong_shapes,
)


def count_top_k(scores: Tensor, labels: Tensor, k: int = 1) -> int:
    """Number of rows whose label has one of the `k` highest scores.

    `scores` has shape (N, C), `labels` has shape (N) and holds class indices, int32 or int64. A row
    counts if fewer than `k` scores are greater than the label's score, so ties count. A row whose
    label has the score NaN does not count. Raises IndexError for a label outside [0, C), and
    ValueError for other shapes.

    >>> scores = tensor.Tensor(data=[[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])
    >>> labels = tensor.from_numpy(np.array([1, 1]))
    >>> metric.count_top_k(scores, labels), metric.count_top_k(scores, labels, k=2)
    (1, 2)
    """
    return int(singa_wrap.CountTopK(scores.data, labels.data, k))


class _OfClasses(Metric):
    """Compares predicted classes with targets. See `ConfusionMatrix` for the arguments."""

    def __init__(
        self, ignore_index: int | None, threshold: float | None, from_logits: bool
    ) -> None:
        kind = type(self).__name__
        self.ignore_index = (
            None if ignore_index is None else integer(kind, "ignore_index", ignore_index)
        )
        if threshold is not None and from_logits:
            raise ValueError(f"[{kind}] from_logits is a threshold of 0: leave one of them out")
        self.threshold = None if threshold is None else number(kind, "threshold", threshold)
        if from_logits:
            self.threshold = 0.0
        self._one_hot: bool | None = None  # whether targets were, which scores' shape allows

    def reset(self) -> None:
        self._one_hot = None

    def _read(self, x: Any, y: Any, classes: int | None = None) -> tuple[Array, Array]:
        """Scores (N, C, ...) or predicted classes (N, ...), and targets (N, ...), of which there
        are `classes`, if that is known."""
        kind, scores, given = type(self).__name__, as_array(x), as_array(y)
        if scores.ndim == given.ndim + 1 and scores.shape[1] == 1:
            scores = scores[:, 0]
        asks = scores.dtype.kind == "f" and scores.shape == given.shape and self.threshold is None
        if asks and self._reads_one_hot(given):
            if classes not in (None, given.shape[1]):
                raise ValueError(
                    f"[{kind}] one-hot targets {given.shape} are not of {classes} classes; where "
                    "each is a label of its own, give a threshold"
                )
            given = given.argmax(1)
        targets = as_indices(kind, "targets", given)
        if scores.shape != targets.shape:
            check_shapes(kind, scores, targets)
            if self.threshold is not None:
                raise ValueError(
                    f"[{kind}] the highest score of {scores.shape} counts, whatever the threshold: "
                    "leave threshold and from_logits out"
                )
            return scores, targets
        if scores.dtype.kind != "f":
            return scores.astype(np.int64), targets
        wrong = targets[(targets != 0) & (targets != 1) & (targets != self.ignore_index)]
        if wrong.size or classes not in (None, 2):
            there = f"targets have class {wrong[0]}" if wrong.size else f"num_classes is {classes}"
            raise ValueError(
                f"[{kind}] floats in the shape of the targets {targets.shape} are scores of class "
                f"1 of two, but {there}: give scores (N, C, ...), or integers"
            )
        if self.threshold is None and not ((scores >= 0) & (scores <= 1)).all():
            raise ValueError(
                f"[{kind}] scores outside [0, 1] are no probabilities: give a threshold, or "
                "from_logits=True, which is a threshold of 0"
            )
        self._refuse_nan(scores, targets)
        limit = 0.5 if self.threshold is None else self.threshold
        return (scores > limit).astype(np.int64), targets

    def _reads_one_hot(self, y: Array) -> bool:
        """Whether targets in the shape of the scores are one-hot. Raises ValueError if earlier ones
        were otherwise."""
        if y.ndim < 2 or y.shape[1] < 2 or not y.size:
            return False
        found = is_one_hot(y)
        if self._one_hot not in (None, found):
            raise ValueError(
                f"[{type(self).__name__}] targets {y.shape} are one-hot in some batches and not in "
                "others: give class numbers; or a threshold, where each is a label of its own"
            )
        self._one_hot = found
        return found

    def _refuse_nan(self, scores: Array, targets: Array) -> None:
        """Raises ValueError for scores (N, ...) or (N, ..., C) of which one is NaN where the target
        counts: it is neither the highest one nor below a threshold."""
        counting = scores if self.ignore_index is None else scores[targets != self.ignore_index]
        if np.isnan(counting).any():
            raise ValueError(f"[{type(self).__name__}] scores have NaN")

    def _kept(self, predictions: Array, targets: Array) -> tuple[Array, Array]:
        """Rows of those whose target is not `ignore_index`."""
        if self.ignore_index is None:
            return predictions, targets
        kept = targets != self.ignore_index
        return predictions[kept], targets[kept]


class Accuracy(_OfClasses):
    """Fraction of targets whose class has one of the `top_k` highest scores.

    top_k: at least 1 (default). With 1, predictions may be class indices, or of two classes, too.
    ignore_index, threshold, from_logits: as for ConfusionMatrix.

    Raises ValueError for another `top_k`.

    >>> accuracy = metric.Accuracy()
    >>> accuracy.update(np.array([1, 2, 2]), np.array([1, 2, 0]))
    >>> accuracy.update(np.array([0]), np.array([0]))
    >>> accuracy.compute()
    0.75
    """

    def __init__(
        self,
        top_k: int = 1,
        ignore_index: int | None = None,
        threshold: float | None = None,
        from_logits: bool = False,
    ) -> None:
        if top_k < 1:
            raise ValueError(f"[Accuracy] top_k must be 1 or more, got {top_k}")
        self.top_k = top_k
        super().__init__(ignore_index, threshold, from_logits)
        self.reset()

    def evaluate(self, x: Tensor, y: Tensor) -> float:
        """Accuracy in [0, 1] of one batch alone, for scores x (N, C) and class indices y (N); see
        `count_top_k`.

        Raises ValueError if x has no rows.

        >>> scores = tensor.Tensor(data=[[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])
        >>> metric.Accuracy().evaluate(scores, tensor.from_numpy(np.array([1, 1])))
        0.5
        """
        if not x.shape or not x.shape[0]:
            raise ValueError(f"[Accuracy] no rows in scores of shape {tuple(x.shape)}")
        return count_top_k(x, y, self.top_k) / x.shape[0]

    def update(self, x: Any, y: Any) -> None:
        """Adds a batch. Raises ValueError for shapes that do not fit, for scores whose threshold is
        not clear, and for a `top_k` above 1 without scores; IndexError for a target outside the
        classes of the scores."""
        if (
            isinstance(x, Tensor)
            and isinstance(y, Tensor)
            and (len(x.shape), y.shape) == (2, x.shape[:1])
            and x.shape[1] > 1
            and y.dtype in (int32, int64)
            and (self.ignore_index, self.threshold) == (None, None)
        ):
            self._right += count_top_k(x, y, self.top_k)
            self._count += y.shape[0]
            return
        scores, targets = self._read(x, y)
        if scores.shape == targets.shape:
            if self.top_k > 1:
                raise wrong_shapes("Accuracy", scores, targets)
            predictions, targets = self._kept(scores, targets)
            self._right += int(np.count_nonzero(predictions == targets))
        else:
            rows = np.moveaxis(scores, 1, -1).reshape(-1, scores.shape[1])
            rows, targets = self._kept(rows, targets.reshape(-1))
            self._right += int(singa_wrap.CountTopK(as_raw(rows), as_raw(targets), self.top_k))
        self._count += targets.size

    def compute(self) -> float:
        """Accuracy in [0, 1]. Raises ValueError if nothing was added."""
        right, count = total(np.array([self._right, self._count], np.float64))
        if not count:
            raise self._nothing()
        return float(right / count)

    def rows_right(self, rows: int) -> float:
        """This rank's accuracy times `rows`, the number of rows that were added: with a target for
        each row, how many were right. 0 if nothing was added.

        >>> accuracy = metric.Accuracy()
        >>> accuracy.update(np.array([1, 2, 2]), np.array([1, 2, 0]))
        >>> accuracy.rows_right(3)
        2.0
        """
        return rows * self._right / self._count if self._count else 0.0

    def reset(self) -> None:
        """Forgets what was added."""
        super().reset()
        self._right = self._count = 0


class ConfusionMatrix(_OfClasses):
    """How often class i (row) was predicted as class j (column).

    num_classes: of targets and predictions.
    ignore_index: a class index of targets that do not count. Default None.
    threshold: a score above it means class 1, where predictions are floats in the shape of the
        targets. Default: 0.5 for probabilities; other scores raise ValueError.
    from_logits: the same as a threshold of 0.

    Raises ValueError for fewer classes than 1.

    >>> matrix = metric.ConfusionMatrix(2)
    >>> matrix.update(np.array([0, 1, 1]), np.array([0, 1, 0]))
    >>> matrix.compute()
    array([[1, 1],
           [0, 1]])
    """

    def __init__(
        self,
        num_classes: int,
        ignore_index: int | None = None,
        threshold: float | None = None,
        from_logits: bool = False,
    ) -> None:
        self.num_classes = integer(type(self).__name__, "num_classes", num_classes, 1)
        super().__init__(ignore_index, threshold, from_logits)
        self.reset()

    def update(self, x: Any, y: Any) -> None:
        """Adds a batch. Raises ValueError for shapes that do not fit, for scores whose threshold is
        not clear, and for NaN where a target counts; IndexError for a class outside [0,
        num_classes)."""
        kind, classes = type(self).__name__, self.num_classes
        predictions, targets = self._read(x, y, classes)
        if predictions.shape != targets.shape:
            self._refuse_nan(np.moveaxis(predictions, 1, -1), targets)
            predictions = predictions.argmax(1)
        predictions, targets = self._kept(predictions.reshape(-1), targets.reshape(-1))
        for name, indices in (("targets", targets), ("predictions", predictions)):
            wrong = indices[(indices < 0) | (indices >= classes)]
            if wrong.size:
                raise IndexError(f"[{kind}] {name} have class {wrong[0]} outside [0, {classes})")
        pairs = np.bincount(targets * classes + predictions, minlength=classes * classes)
        self._matrix += pairs.reshape(classes, classes)

    def compute(self) -> Array:
        """The matrix, int64, of shape (num_classes, num_classes)."""
        return total(self._matrix.astype(np.float64)).astype(np.int64)

    def reset(self) -> None:
        """Forgets what was added."""
        super().reset()
        self._matrix: Array = np.zeros((self.num_classes, self.num_classes), np.int64)

    def _counts(self) -> tuple[Array, Array, Array]:
        """Of each class: predicted rightly, predicted, and in the targets. Raises ValueError if
        nothing was added."""
        matrix = ConfusionMatrix.compute(self)
        if not matrix.sum():
            raise self._nothing()
        return np.diagonal(matrix), matrix.sum(0), matrix.sum(1)


class _Quotient(ConfusionMatrix):
    """A quotient for each class, and its average; see F1."""

    def __init__(
        self,
        num_classes: int = 2,
        average: str | None = None,
        ignore_index: int | None = None,
        threshold: float | None = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(num_classes, ignore_index, threshold, from_logits)
        self.average = average or ("binary" if self.num_classes == 2 else "macro")
        known = ("macro", "micro", "weighted", "none", "binary")
        if self.average not in known or (self.average == "binary" and self.num_classes != 2):
            raise ValueError(
                f"[{type(self).__name__}] average must be one of {', '.join(known)}, and 'binary' "
                f"for two classes only, got {average!r} for {self.num_classes}"
            )

    def _quotient(self, right: Array, predicted: Array, present: Array) -> tuple[Array, Array]:
        raise NotImplementedError

    def compute(self) -> Any:
        """The metric: a float, or an array with `average` of "none". Raises ValueError if nothing
        was added."""
        right, predicted, present = self._counts()
        if self.average == "micro":
            return float(divided(*self._quotient(right.sum(), predicted.sum(), present.sum())))
        each = divided(*self._quotient(right, predicted, present))
        if self.average == "none":
            return each
        if self.average == "binary":
            return float(each[1])
        if self.average == "weighted":
            return float((each * present).sum() / present.sum())
        return float(each[(predicted + present) > 0].mean())


class Precision(_Quotient):
    """Right predictions of a class / its predictions. Arguments are those of `F1`.

    Raises ValueError for another `average`.

    >>> precision = metric.Precision()
    >>> precision.update(np.array([1, 1, 0]), np.array([1, 0, 0]))
    >>> precision.compute()
    0.5
    """

    def _quotient(self, right: Array, predicted: Array, present: Array) -> tuple[Array, Array]:
        return right, predicted


class Recall(_Quotient):
    """Right predictions of a class / its targets. Arguments are those of `F1`.

    Raises ValueError for another `average`.

    >>> recall = metric.Recall()
    >>> recall.update(np.array([1, 0, 0]), np.array([1, 1, 0]))
    >>> recall.compute()
    0.5
    """

    def _quotient(self, right: Array, predicted: Array, present: Array) -> tuple[Array, Array]:
        return right, present


class F1(_Quotient):
    """F1 score: the harmonic mean of precision and recall.

    num_classes: of targets and predictions. Default 2.
    average: "macro", the mean over the classes that occur in targets or predictions; "micro", that
        of all counts together; "weighted", the mean by the number of targets; "none", an array with
        a number for each class; or "binary", the number of class 1. Default "binary" for two
        classes, otherwise "macro".
    ignore_index, threshold, from_logits: as for ConfusionMatrix.

    0 / 0 counts as 0, as in scikit-learn.

    Raises ValueError for another `average`.

    >>> f1 = metric.F1()
    >>> f1.update(np.array([1, 1, 0]), np.array([1, 0, 0]))
    >>> round(f1.compute(), 4)
    0.6667
    """

    def _quotient(self, right: Array, predicted: Array, present: Array) -> tuple[Array, Array]:
        return 2 * right, predicted + present


class MeanIoU(ConfusionMatrix):
    """Mean over the classes of intersection / union of predictions and targets, as for segmentation
    (Everingham et al. 2010). Classes that occur in neither do not count.

    Arguments are those of ConfusionMatrix. `per_class` gives the numbers that are averaged.

    Raises ValueError for fewer classes than 1.

    >>> iou = metric.MeanIoU(2)
    >>> iou.update(np.array([[0, 1], [1, 1]]), np.array([[0, 1], [0, 1]]))
    >>> round(iou.compute(), 4)
    0.5833
    """

    def per_class(self) -> Array:
        """Intersection over union of each class; NaN where it does not occur. All ranks have to
        call it.

        >>> iou = metric.MeanIoU(2)
        >>> iou.update(np.array([[0, 1], [1, 1]]), np.array([[0, 1], [0, 1]]))
        >>> iou.per_class()
        array([0.5   , 0.6667])
        """
        right, predicted, present = self._counts()
        union = predicted + present - right
        return np.where(union > 0, divided(right, union), np.nan)

    def compute(self) -> Any:
        """The mean, in [0, 1]. Raises ValueError if nothing was added."""
        return float(np.nanmean(self.per_class()))


class AUC(Metric):
    """Area under the ROC curve of two classes: the probability that a target 1 has a higher score
    than a target 0, where equal scores count half (Hanley & McNeil 1982).

    It is exact, and keeps the scores: 16 bytes for each.

    >>> auc = metric.AUC()
    >>> auc.update(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))
    >>> auc.compute()
    0.75
    """

    def __init__(self) -> None:
        self.reset()

    def update(self, x: Any, y: Any) -> None:
        """Adds scores x, of which higher ones mean class 1, for targets y of 0 and 1 in the same
        shape. x may also be scores of both classes, (N, 2), of which x[:, 1] - x[:, 0] counts.

        Raises ValueError for another shape, for targets other than 0 and 1, for one-hot targets,
        and for NaN.
        """
        scores, targets = as_array(x).astype(np.float64), as_indices("AUC", "targets", y)
        if targets.ndim > 1 and targets.shape[1] > 1 and targets.size and is_one_hot(targets):
            raise ValueError(
                f"[AUC] targets {targets.shape} are one-hot: give class numbers; or, where each is "
                "a label of its own, scores and targets as vectors"
            )
        if scores.ndim == targets.ndim + 1 and scores.shape[1:2] == (2,):
            scores = scores[:, 1] - scores[:, 0]
        if scores.shape != targets.shape:
            raise wrong_shapes("AUC", scores, targets)
        if np.isnan(scores).any() or ((targets != 0) & (targets != 1)).any():
            raise ValueError("[AUC] scores must not be NaN, and targets 0 or 1")
        self._pairs.append(np.stack([scores.reshape(-1), targets.reshape(-1)]))

    def compute(self) -> float:
        """The area, in [0, 1]. Raises ValueError unless there are targets of both classes."""
        scores, targets = joined(np.concatenate([np.zeros((2, 0)), *self._pairs], 1))
        positives = int(targets.sum())
        negatives = targets.size - positives
        if not positives or not negatives:
            raise ValueError(
                f"[AUC] needs targets of both classes, got {positives} of 1 and {negatives} of 0"
            )
        _, which, counts = np.unique(scores, return_inverse=True, return_counts=True)
        last = np.cumsum(counts)
        ranks = (last - (counts - 1) / 2)[which]  # equal scores share the mean of their ranks
        above = ranks[targets == 1].sum() - positives * (positives + 1) / 2
        return float(above / (positives * negatives))

    def reset(self) -> None:
        """Forgets what was added."""
        self._pairs: list[Array] = []
