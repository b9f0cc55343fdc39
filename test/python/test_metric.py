"""Streaming metrics, compared with their definitions on all predictions at once, on one rank and on
several."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from memory_ranks import on_ranks
from singa import metric, tensor

_RANDOM = np.random.default_rng(2)
_N, _C = 60, 4
_SCORES = _RANDOM.standard_normal((_N, _C)).astype(np.float32)
_targets = np.where(_RANDOM.random(_N) < 0.6, _SCORES.argmax(1), _RANDOM.integers(0, 3, _N))
_predicted = _SCORES.argmax(1)
_CHANCE = np.round(_RANDOM.random(_N), 1).astype(np.float32)  # with ties
_binary = (_RANDOM.random(_N) < 0.3 + 0.4 * _CHANCE).astype(np.int32)
_VALUES = 1e4 + _RANDOM.standard_normal((_N, 2))
_GUESSES = _VALUES + 0.3 * _RANDOM.standard_normal((_N, 2))
_SCORED = np.round(_RANDOM.standard_normal((_N, 3)), 1).astype(np.float32)  # with ties
_LABELLED = (_RANDOM.random((_N, 3)) < [0.2, 0.6, 0.0]).astype(np.float32)  # the last has none


def _counts(c: int) -> tuple[int, int, int]:
    """Of a class: true positives, false positives, false negatives."""
    hit, said, is_ = 0, 0, 0
    for p, t in zip(_predicted, _targets, strict=True):
        hit, said, is_ = hit + (p == t == c), said + (p == c), is_ + (t == c)
    return hit, said - hit, is_ - hit


def _each(formula: Callable[[int, int, int], float]) -> np.ndarray[Any, Any]:
    return np.array([formula(*_counts(c)) for c in range(_C)])


def _precision(tp: int, fp: int, fn: int) -> float:
    return tp / (tp + fp)


def _recall(tp: int, fp: int, fn: int) -> float:
    return tp / (tp + fn) if tp + fn else 0.0


def _f1(tp: int, fp: int, fn: int) -> float:
    return 2 * tp / (2 * tp + fp + fn)


def _area() -> float:
    pairs = [(p > n) + 0.5 * (p == n) for p in _CHANCE[_binary == 1] for n in _CHANCE[_binary == 0]]
    return float(np.mean(pairs))


def _average_precision() -> float:
    """By its definition, with each score as a threshold."""
    found = []
    columns = zip(_SCORED.T[:2], _LABELLED.T[:2].astype(np.float64), strict=True)
    for scores, labels in columns:
        before, area = 0.0, 0.0
        for threshold in sorted(set(scores.tolist()), reverse=True):
            said = scores >= np.float32(threshold)
            right = labels[said].sum()
            area += (right / labels.sum() - before) * right / said.sum()
            before = right / labels.sum()
        found.append(area)
    return float(np.mean(found))


def _r2() -> float:
    squares = ((_VALUES - _VALUES.mean(0)) ** 2).sum(0)
    return float((1 - ((_VALUES - _GUESSES) ** 2).sum(0) / squares).mean())


#: name: (a new metric, predictions, targets, the metric of all)
CASES: dict[str, tuple[Callable[[], metric.Metric], Any, Any, Callable[[], Any]]] = {
    "accuracy": (metric.Accuracy, _SCORES, _targets, lambda: (_predicted == _targets).mean()),
    "accuracy of classes": (
        metric.Accuracy,
        _predicted,
        _targets,
        lambda: (_predicted == _targets).mean(),
    ),
    "top 2": (
        lambda: metric.Accuracy(2),
        _SCORES,
        _targets,
        lambda: np.mean([t in np.argsort(s)[-2:] for s, t in zip(_SCORES, _targets, strict=True)]),
    ),
    "top 2 of pixels": (
        lambda: metric.Accuracy(2),
        _SCORES.reshape(10, 2, 3, _C).transpose(0, 3, 1, 2),
        _targets.reshape(10, 2, 3),
        lambda: np.mean([t in np.argsort(s)[-2:] for s, t in zip(_SCORES, _targets, strict=True)]),
    ),
    "confusion matrix": (
        lambda: metric.ConfusionMatrix(_C),
        _SCORES,
        _targets,
        lambda: [
            [((_targets == i) & (_predicted == j)).sum() for j in range(_C)] for i in range(_C)
        ],
    ),
    "precision": (
        lambda: metric.Precision(_C),
        _SCORES,
        _targets,
        lambda: _each(_precision).mean(),
    ),
    "recall": (lambda: metric.Recall(_C), _SCORES, _targets, lambda: _each(_recall).mean()),
    "recall, weighted": (
        lambda: metric.Recall(_C, "weighted"),
        _SCORES,
        _targets,
        lambda: (_predicted == _targets).mean(),
    ),
    "F1": (lambda: metric.F1(_C), _SCORES, _targets, lambda: _each(_f1).mean()),
    "F1 of each": (lambda: metric.F1(_C, "none"), _SCORES, _targets, lambda: _each(_f1)),
    "F1, micro": (
        lambda: metric.F1(_C, "micro"),
        _SCORES,
        _targets,
        lambda: (_predicted == _targets).mean(),
    ),
    "F1 of two classes": (
        lambda: metric.F1(threshold=0.6),
        _CHANCE,
        _binary,
        lambda: (
            2
            * ((_CHANCE > 0.6) & (_binary == 1)).sum()
            / ((_CHANCE > 0.6).sum() + (_binary == 1).sum())
        ),
    ),
    "F1 of logits": (
        lambda: metric.F1(from_logits=True),
        (_CHANCE - 0.6)[:, None] * 7,
        _binary,
        lambda: (
            2
            * ((_CHANCE > 0.6) & (_binary == 1)).sum()
            / ((_CHANCE > 0.6).sum() + (_binary == 1).sum())
        ),
    ),
    "accuracy of probabilities": (
        metric.Accuracy,
        _CHANCE.reshape(-1, 1),
        _binary.reshape(-1, 1),
        lambda: ((_CHANCE > 0.5) == _binary).mean(),
    ),
    "accuracy of several labels": (
        lambda: metric.Accuracy(threshold=0.6),
        _CHANCE.reshape(-1, 2),
        _binary.reshape(-1, 2),
        lambda: ((_CHANCE > 0.6) == _binary).mean(),
    ),
    "accuracy without a class": (
        lambda: metric.Accuracy(ignore_index=2),
        _SCORES,
        _targets,
        lambda: (_predicted == _targets)[_targets != 2].mean(),
    ),
    "accuracy of one-hot targets": (
        metric.Accuracy,
        _SCORES,
        np.eye(_C, dtype=np.float32)[_targets],
        lambda: (_predicted == _targets).mean(),
    ),
    "top 2 of one-hot targets": (
        lambda: metric.Accuracy(2),
        _SCORES,
        np.eye(_C, dtype=np.int64)[_targets],
        lambda: np.mean([t in np.argsort(s)[-2:] for s, t in zip(_SCORES, _targets, strict=True)]),
    ),
    "F1 of one-hot pixels": (
        lambda: metric.F1(_C, "micro"),
        _SCORES.reshape(10, 2, 3, _C).transpose(0, 3, 1, 2),
        np.eye(_C)[_targets].reshape(10, 2, 3, _C).transpose(0, 3, 1, 2),
        lambda: (_predicted == _targets).mean(),
    ),
    "mean IoU": (
        lambda: metric.MeanIoU(_C, ignore_index=2),
        _SCORES,
        _targets,
        lambda: _mean_iou(2),
    ),
    "AUC": (metric.AUC, _CHANCE, _binary, _area),
    "AUC of two scores": (
        metric.AUC,
        np.stack([1 - _CHANCE.astype(np.float64), _CHANCE], 1),
        _binary,
        _area,
    ),
    "AveragePrecision": (metric.AveragePrecision, _SCORED, _LABELLED, _average_precision),
    "R2": (metric.R2, _GUESSES, _VALUES, _r2),
    "R2 of one output": (
        metric.R2,
        _GUESSES[:, 0],
        _VALUES[:, 0],
        lambda: 1 - ((_VALUES[:, 0] - _GUESSES[:, 0]) ** 2).mean() / _VALUES[:, 0].var(),
    ),
}


def _mean_iou(ignored: int) -> float:
    kept = _targets != ignored
    p, t = _predicted[kept], _targets[kept]
    unions = [(((p == c) & (t == c)).sum(), ((p == c) | (t == c)).sum()) for c in range(_C)]
    return float(np.mean([both / union for both, union in unions if union]))


def _batches(x: Any, y: Any, step: int = 7) -> Iterator[tuple[Any, Any]]:
    for i in range(0, len(x), step):
        yield x[i : i + step], y[i : i + step]


@pytest.mark.parametrize("name", CASES)
def test_batches_add_up(name: str) -> None:
    make, x, y, expected = CASES[name]
    of_arrays, of_tensors = make(), make()
    for batch, targets in _batches(x, y):
        of_arrays.update(batch, targets)
        of_tensors.update(*(tensor.from_numpy(a, dtype=a.dtype) for a in (batch, targets)))
    assert np.shape(of_arrays.compute()) == np.shape(expected())
    np.testing.assert_allclose(of_arrays.compute(), expected(), rtol=1e-9)
    np.testing.assert_array_equal(of_tensors.compute(), of_arrays.compute())
    of_arrays.reset()
    if name != "confusion matrix":
        with pytest.raises(ValueError, match=r"update\(\)|targets of both"):
            of_arrays.compute()
    of_arrays.update(x, y)
    np.testing.assert_allclose(of_arrays.compute(), expected(), rtol=1e-9)


def _on_rank(communicator: Any) -> list[Any]:
    found = []
    for make, x, y, _ in CASES.values():
        each = make()
        # One rank has no batch, the others have different numbers of them.
        for i, batch in enumerate(_batches(x, y)):
            if i % 5 in ((0,), (), (1, 2, 3, 4))[communicator.global_rank]:
                each.update(*batch)
        found.append(np.asarray(each.compute()).tolist())
    return found


def test_ranks_add_up() -> None:
    first, *others = on_ranks(3, _on_rank)
    assert all(other == first for other in others)
    for value, (_, _, _, expected) in zip(first, CASES.values(), strict=True):
        np.testing.assert_allclose(value, expected(), rtol=1e-9)


def test_accuracy_of_one_batch() -> None:
    scores, labels = (tensor.from_numpy(a) for a in (_SCORES, _targets.astype(np.int32)))
    expected = float((_predicted == _targets).mean())
    assert metric.Accuracy().evaluate(scores, labels) == pytest.approx(expected)


def test_classes_that_do_not_occur() -> None:
    """They count in no average, and 0 / 0 is 0."""
    f1, iou = metric.F1(5), metric.MeanIoU(5)
    for each in (f1, iou):
        each.update(np.array([0, 1, 1]), np.array([0, 1, 2]))
    assert f1.compute() == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert iou.compute() == pytest.approx((1 + 1 / 2 + 0) / 3)
    np.testing.assert_array_equal(iou.per_class(), [1, 0.5, 0, np.nan, np.nan])


def test_equal_targets_have_no_variance() -> None:
    r2 = metric.R2()
    r2.update(np.array([[1.0, 2.0], [1.0, 3.0]]), np.array([[1.0, 2.0], [1.0, 2.0]]))
    assert r2.compute() == 0.5  # 1 for the first output, 0 for the second


_ROWS = np.array([[0.2, 0.7, 0.1], [0.6, 0.3, 0.1]])


def _twice(each: metric.Metric, *targets: Any) -> None:
    for y in targets:
        each.update(_ROWS, np.array(y))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: metric.Accuracy().update([-1.0, 2.0], [0, 1]), ValueError, "from_logits=True"),
        (lambda: metric.F1().update(np.array([[-1.0], [2.0]]), [0, 1]), ValueError, "threshold"),
        (lambda: metric.Accuracy().update([np.nan], [0]), ValueError, "threshold"),
        (lambda: metric.F1(threshold=0.5, from_logits=True), ValueError, "leave one"),
        (lambda: metric.F1(3, threshold=0.5).update(_ROWS, [0, 1]), ValueError, "leave threshold"),
        (lambda: metric.F1(3).update([0.0, 1.0], [0, 1]), ValueError, "num_classes is 3"),
        (lambda: metric.Accuracy().update([0.0, 1.0], [0, 2]), ValueError, "have class 2"),
        (lambda: metric.Accuracy().update(_ROWS, _ROWS), ValueError, "whole numbers, or one-hot"),
        (lambda: metric.F1(4).update(_ROWS, np.eye(3)[:2]), ValueError, "not of 4 classes"),
        (
            lambda: _twice(metric.Accuracy(), [[0, 1, 0], [1, 0, 0]], [[0, 1, 1], [1, 0, 0]]),
            ValueError,
            "one-hot in some batches and not in others",
        ),
        (lambda: metric.AUC().update(_ROWS, np.eye(3)[:2]), ValueError, "are one-hot"),
        (lambda: metric.Accuracy(0), ValueError, "top_k"),
        (lambda: metric.Accuracy(2).update([1, 2], [1, 2]), ValueError, r"\(2,\)"),
        (lambda: metric.Accuracy().update(np.ones((3, 2)), [0, 1]), ValueError, r"\(3, 2\)"),
        (lambda: metric.Accuracy().update(np.ones((2, 2)), [0, 2]), IndexError, "2"),
        (lambda: metric.Accuracy().update(np.ones((2, 2)), [0, 0.5]), ValueError, "whole"),
        (lambda: metric.ConfusionMatrix(2).update([0, 2], [0, 1]), IndexError, "predictions.*2"),
        (lambda: metric.ConfusionMatrix(2).update([0, 1], [-1, 1]), IndexError, "targets.*-1"),
        (lambda: metric.F1(3, "binary"), ValueError, "binary"),
        (lambda: metric.F1(3, "all"), ValueError, "macro"),
        (lambda: metric.AUC().update([0.5], [2]), ValueError, "0 or 1"),
        (lambda: metric.AUC().update([np.nan], [1]), ValueError, "NaN"),
        (lambda: metric.Accuracy(from_logits=True).update([np.nan], [1]), ValueError, "NaN"),
        (lambda: metric.F1(threshold=0.2).update([np.nan], [1]), ValueError, "NaN"),
        (lambda: metric.MeanIoU(2).update([[0.5, np.nan]], [0]), ValueError, "NaN"),
        (lambda: metric.AUC().update([0.5, 1.0], [1]), ValueError, r"\(2,\)"),
        (lambda: metric.R2().update([0.5, 1.0], [1]), ValueError, r"\(2,\)"),
        (lambda: metric.AveragePrecision().update([0.5], [1]), ValueError, r"\(1,\)"),
        (lambda: metric.AveragePrecision().update([[0.5]], [[2]]), ValueError, "0 or 1"),
        (lambda: metric.AveragePrecision().update([[np.nan]], [[1]]), ValueError, "NaN"),
        (lambda: metric.AveragePrecision().compute(), ValueError, "no predictions"),
        (lambda: metric.MeanIoU(0), ValueError, "num_classes"),
    ],
)
def test_wrong_calls(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_scores_of_targets_that_do_not_count_may_be_nan():
    scores = np.array([[[0.9, np.nan, 0.2]], [[0.1, 0.3, 0.8]]], np.float32).transpose(1, 0, 2)
    matrix = metric.ConfusionMatrix(2, ignore_index=255)
    matrix.update(scores, np.array([[0, 255, 1]]))
    np.testing.assert_array_equal(matrix.compute(), [[1, 0], [0, 1]])
    precision = metric.Precision(ignore_index=255, from_logits=True)
    precision.update(scores[:, 0], np.array([[1, 255, 0]]))
    assert precision.compute() == 0.5
