"""What a trained network makes of test pictures: figures, text and pages, for each task."""

from __future__ import annotations

import base64
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .. import metric
from ..data.pictures import require_pillow
from ..raw.words import counted
from ..training.task import OneClass, Regression, SeveralLabels, Task
from .pages import percent

_SIDE = 112  # of a picture on a page, in pixels
_MOST_ROWS = 50  # of the table of classes
#: A row of a table: a name, the number of pictures or None, and figures.
Row = tuple[Any, ...]


@dataclass
class Outcome(ABC):
    """Answers for the test pictures.

    classes   names of the classes, labels or numbers
    pictures  the test pictures: anything with a length and (picture, label) by number
    labels    the targets of the task
    values    what the network says, (n, classes)
    task      of the network
    """

    classes: tuple[str, ...]
    pictures: Any
    labels: NDArray[Any]
    values: NDArray[np.float64]
    task: Task

    #: For pages: the title, that of the table, what precedes a label in words, the heads of the
    #: table, and what they mean.
    title = ""
    each = ""
    picture = "Test image with"
    heads: ClassVar[Sequence[str]] = ()
    meaning = ""
    worst_are = best_are = ""

    @property
    @abstractmethod
    def losses(self) -> NDArray[np.float64]:
        """How wrong the network is about each picture."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """A row for each class, label or number, with `heads`."""

    @abstractmethod
    def cells(self) -> list[list[str]]:
        """`rows` as text for a page."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """All figures as JSON values."""

    @abstractmethod
    def text(self) -> str:
        """The figures as lines for a terminal."""

    @abstractmethod
    def summary(self) -> str:
        """A sentence for a page."""

    @abstractmethod
    def logged(self) -> tuple[str, float, float]:
        """The field of a log that says the same as `summary`, its value here, and what differs by
        rounding."""

    def mistakes(self, most: int = 20) -> list[tuple[str, str, int]]:
        """(class, predicted class, number of pictures) of the commonest mistakes, where a picture
        has one class."""
        return []

    def matrix(self) -> list[tuple[str, list[tuple[int, float, bool]]]]:
        """A row for each class: how many of its pictures were predicted as each class, which share
        of the row that is, and whether it is right; where a picture has one class."""
        return []

    def worst(self, count: int = 12) -> list[int]:
        """The numbers of the pictures with the largest losses, largest first."""
        return np.argsort(-self.losses, kind="stable")[:count].tolist()

    def best(self, count: int = 12) -> list[int]:
        """The numbers of the pictures with the smallest losses, smallest first."""
        return np.argsort(self.losses, kind="stable")[:count].tolist()

    def shown(self, number: int) -> dict[str, Any]:
        """A picture for a page: uri, file, label, and lines (class of the page, text) on what the
        network says."""
        image = self.pictures[number][0]
        paths = getattr(self.pictures, "paths", None)
        label, lines = self._said(number)
        return {
            "uri": data_uri(image),
            "file": paths[number].name if paths else f"number {number}",
            "label": label,
            "lines": lines,
        }

    @abstractmethod
    def _said(self, number: int) -> tuple[str, list[tuple[str, str]]]: ...


class ClassOutcome(Outcome):
    """That of pictures with one class: labels (n), values are probabilities."""

    title, each, picture = "Classes", "Each class", "Test image of class"
    heads = ("class", "images", "precision", "recall", "F1")
    meaning = (
        "Precision: of the images that the network called so, the share that are so. Recall: of "
        "the images of the class, the share that it found. F1: the harmonic mean of both."
    )
    worst_are = "The images whose own class got the smallest probability. Wrong labels are here."
    best_are = "The images whose own class got the largest probability."

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The most probable class of each picture."""
        return self.values.argmax(1)

    @property
    def losses(self) -> NDArray[np.float64]:
        """The cross-entropy of each picture: -log of the probability of its class."""
        right = self.values[np.arange(len(self.labels)), self.labels]
        return -np.log(np.maximum(right, 1e-300))

    def accuracy(self) -> float:
        """The share of pictures whose most probable class is theirs."""
        return float((self.predicted == self.labels).mean())

    def confusion(self) -> NDArray[np.int64]:
        """How many pictures of class i (row) were predicted as class j (column)."""
        matrix = metric.ConfusionMatrix(len(self.classes))
        matrix.update(self.predicted, self.labels)
        return matrix.compute()

    def matrix(self) -> list[tuple[str, list[tuple[int, float, bool]]]]:
        matrix = self.confusion()
        found = []
        for i, name in enumerate(self.classes):
            together = max(int(matrix[i].sum()), 1)
            row = [(int(n), int(n) / together, i == j) for j, n in enumerate(matrix[i])]
            found.append((name, row))
        return found

    def rows(self) -> list[Row]:
        """(name, number of pictures, precision, recall, F1 score) of each class."""
        figures = []
        for kind in (metric.Precision, metric.Recall, metric.F1):
            each = kind(len(self.classes), average="none")
            each.update(self.predicted, self.labels)
            figures.append([float(value) for value in each.compute()])
        counts = np.bincount(self.labels, minlength=len(self.classes)).tolist()
        return list(zip(self.classes, counts, *figures, strict=True))

    def cells(self) -> list[list[str]]:
        return [[name, f"{count:,}", *map(percent, rest)] for name, count, *rest in self.rows()]

    def mistakes(self, most: int = 20) -> list[tuple[str, str, int]]:
        matrix = self.confusion()
        np.fill_diagonal(matrix, 0)
        order = np.argsort(-matrix, axis=None, kind="stable")[:most]
        pairs = [divmod(int(place), len(self.classes)) for place in order]
        return [
            (self.classes[i], self.classes[j], int(matrix[i, j])) for i, j in pairs if matrix[i, j]
        ]

    def figures(self) -> dict[str, Any]:
        names = ("class", "pictures", "precision", "recall", "f1")
        return {
            "pictures": len(self.labels),
            "accuracy": self.accuracy(),
            "loss": float(self.losses.mean()),
            "classes": [dict(zip(names, row, strict=True)) for row in self.rows()],
            "mistakes": [
                {"class": own, "predicted": other, "pictures": count}
                for own, other, count in self.mistakes()
            ],
        }

    def text(self) -> str:
        lines = [
            f"{counted(len(self.labels), 'picture')}  accuracy {self.accuracy():.1%}  "
            f"loss {self.losses.mean():.3f}",
            "",
            *_table(self.rows(), "class", "classes"),
        ]
        if mistakes := self.mistakes(5):
            lines += ["", "commonest mistakes:"]
            lines += [f"  {own} taken for {other}: {count}" for own, other, count in mistakes]
        return "\n".join(lines)

    def summary(self) -> str:
        return (
            f"The saved network gets {percent(self.accuracy())} of the {len(self.labels)} test "
            "images right."
        )

    def logged(self) -> tuple[str, float, float]:
        return "test_top1", self.accuracy(), 0.5 / len(self.labels)

    def _said(self, number: int) -> tuple[str, list[tuple[str, str]]]:
        own, predicted = int(self.labels[number]), int(self.predicted[number])
        row = self.values[number]
        called = f"{self.classes[predicted]} {percent(float(row[predicted]))}"
        if own == predicted:
            return self.classes[own], [("right", f"✓ {called}")]
        expected = f"{self.classes[own]} {percent(float(row[own]))}"
        return self.classes[own], [("wrong", f"✗ {called}"), ("", expected)]


class LabelOutcome(Outcome):
    """That of pictures with several labels: labels (n, labels), values are probabilities."""

    title, each = "Labels", "Each label"
    heads = ("label", "images", "precision", "recall", "F1", "average precision")
    meaning = (
        "A probability above 50 % says a label. Precision: of the images for which the network "
        "says it, the share that have it. Recall: of the images that have it, the share for which "
        "the network says it. F1: the harmonic mean of both. Average precision: the mean precision "
        "over all limits instead of 50 %."
    )
    worst_are = "The images with the largest loss. Wrong labels are here."
    best_are = "The images with the smallest loss."

    @property
    def predicted(self) -> NDArray[np.bool_]:
        """The labels that the network says, (n, labels)."""
        return self.values > 0.5

    @property
    def losses(self) -> NDArray[np.float64]:
        """The binary cross-entropy of each picture, averaged over the labels."""
        right = np.where(self.labels > 0, self.values, 1 - self.values)
        return -np.log(np.maximum(right, 1e-300)).mean(1)

    def exact(self) -> float:
        """The share of pictures all of whose labels are right."""
        return float((self.predicted == (self.labels > 0)).all(1).mean())

    def f1(self) -> float:
        """The F1 score of all labels together."""
        f1 = metric.F1()
        f1.update(self.predicted.astype(np.int64), self.labels.astype(np.int64))
        return float(f1.compute())

    def average_precisions(self) -> NDArray[np.float64]:
        """The average precision of each label; NaN for one that no picture has."""
        precision = metric.AveragePrecision()
        precision.update(self.values, self.labels)
        return precision.per_label()

    def mean_average_precision(self) -> float:
        """The mean over the labels that some picture has."""
        each = self.average_precisions()
        return float(np.nanmean(each)) if not np.isnan(each).all() else float("nan")

    def rows(self) -> list[Row]:
        """(name, number of pictures, precision, recall, F1 score, average precision) of each
        label; None for an average precision that there is not."""
        said, own = self.predicted, self.labels > 0
        both, counts = (said & own).sum(0), own.sum(0)
        precision = both / np.maximum(said.sum(0), 1)
        recall = both / np.maximum(counts, 1)
        f1 = 2 * both / np.maximum(said.sum(0) + counts, 1)
        mean = [None if np.isnan(each) else float(each) for each in self.average_precisions()]
        figures = [each.tolist() for each in (counts, precision, recall, f1)]
        return list(zip(self.classes, *figures, mean, strict=True))

    def cells(self) -> list[list[str]]:
        return [
            [name, f"{count:,}", *("-" if each is None else percent(each) for each in rest)]
            for name, count, *rest in self.rows()
        ]

    def figures(self) -> dict[str, Any]:
        names = ("label", "pictures", "precision", "recall", "f1", "average_precision")
        mean = self.mean_average_precision()
        return {
            "pictures": len(self.labels),
            "map": None if np.isnan(mean) else mean,
            "f1": self.f1(),
            "exact": self.exact(),
            "loss": float(self.losses.mean()),
            "labels": [dict(zip(names, row, strict=True)) for row in self.rows()],
        }

    def text(self) -> str:
        lines = [
            f"{counted(len(self.labels), 'picture')}  mean average precision "
            f"{self.mean_average_precision():.3f}  F1 {self.f1():.3f}  all labels right "
            f"{self.exact():.1%}  loss {self.losses.mean():.3f}",
            "",
            *_table([row[:5] for row in self.rows()], "label", "labels"),
        ]
        return "\n".join(lines)

    def summary(self) -> str:
        return (
            f"The saved network gets all labels of {percent(self.exact())} of the "
            f"{len(self.labels)} test images right. The mean average precision is "
            f"{percent(self.mean_average_precision())}."
        )

    def logged(self) -> tuple[str, float, float]:
        return "test_exact", self.exact(), 0.5 / len(self.labels)

    def _said(self, number: int) -> tuple[str, list[tuple[str, str]]]:
        own, row = self.labels[number] > 0, self.values[number]
        lines = []
        for place in np.argsort(-row, kind="stable"):
            if not (own[place] or row[place] > 0.5):
                continue
            right = own[place] == (row[place] > 0.5)
            sign, kind = ("✓", "right") if right else ("✗", "wrong")
            lines.append((kind, f"{sign} {self.classes[place]} {percent(float(row[place]))}"))
        names = [name for name, there in zip(self.classes, own, strict=True) if there]
        return ", ".join(names) or "no label", lines or [("right", "✓ no label")]


class NumberOutcome(Outcome):
    """That of pictures with numbers: labels and values are numbers (n, numbers)."""

    title, each = "Numbers", "Each number"
    heads = ("number", "mean absolute error", "root mean squared error", "R²")
    meaning = (
        "R²: 1 less the mean squared error divided by the variance. 0 is what the mean of the test "
        "images as a guess gets."
    )
    worst_are = "The images with the largest errors. Wrong numbers are here."
    best_are = "The images with the smallest errors."

    @property
    def errors(self) -> NDArray[np.float64]:
        """Predicted less true numbers."""
        return self.values - self.labels.astype(np.float64)

    @property
    def losses(self) -> NDArray[np.float64]:
        """The squared error of each picture in standard deviations, averaged over the numbers."""
        assert isinstance(self.task, Regression)
        return ((self.errors / np.array(self.task.std)) ** 2).mean(1)

    def r2(self) -> float:
        """The mean of R² over the numbers."""
        return self._r2(slice(None))

    def _r2(self, columns: Any) -> float:
        r2 = metric.R2()
        r2.update(self.values[:, columns], self.labels[:, columns])
        return r2.compute()

    def mae(self) -> float:
        """The absolute error, averaged over pictures and numbers."""
        return float(np.abs(self.errors).mean())

    def rows(self) -> list[Row]:
        """(name, mean absolute error, root mean squared error, R²) of each number."""
        mae = np.abs(self.errors).mean(0).tolist()
        rmse = np.sqrt((self.errors**2).mean(0)).tolist()
        r2 = [self._r2(column) for column in range(len(self.classes))]
        return list(zip(self.classes, mae, rmse, r2, strict=True))

    def cells(self) -> list[list[str]]:
        return [
            [name, f"{mae:.4g}", f"{rmse:.4g}", f"{r2:.3f}"] for name, mae, rmse, r2 in self.rows()
        ]

    def figures(self) -> dict[str, Any]:
        names = ("number", "mae", "rmse", "r2")
        return {
            "pictures": len(self.labels),
            "mae": self.mae(),
            "r2": self.r2(),
            "loss": float(self.losses.mean()),
            "numbers": [dict(zip(names, row, strict=True)) for row in self.rows()],
        }

    def text(self) -> str:
        width = max(len("number"), *map(len, self.classes))
        return "\n".join(
            [
                f"{counted(len(self.labels), 'picture')}  mean absolute error {self.mae():.4g}  "
                f"R2 {self.r2():.3f}  loss {self.losses.mean():.3f}",
                "",
                f"{'number':{width}}  {'mae':>10}  {'rmse':>10}  {'R2':>6}",
                *(
                    f"{name:{width}}  {mae:10.4g}  {rmse:10.4g}  {r2:6.3f}"
                    for name, mae, rmse, r2 in self.rows()
                ),
            ]
        )

    def summary(self) -> str:
        return (
            f"The saved network is wrong by {self.mae():.4g} on average over the "
            f"{len(self.labels)} test images. R² is {self.r2():.3f}."
        )

    def logged(self) -> tuple[str, float, float]:
        return "test_mae", self.mae(), 1e-3 * self.mae()

    def _said(self, number: int) -> tuple[str, list[tuple[str, str]]]:
        shown = self.task.shown
        own = zip(self.classes, self.labels[number], strict=True)
        said = zip(self.classes, self.values[number], strict=True)
        label = ", ".join(f"{name} {shown(float(value))}" for name, value in own)
        return label, [("", f"predicted: {name} {value:.4g}") for name, value in said]


#: By the kind of the task.
OUTCOMES: dict[str, type[Outcome]] = {
    OneClass.kind: ClassOutcome,
    SeveralLabels.kind: LabelOutcome,
    Regression.kind: NumberOutcome,
}


def _table(rows: list[Row], head: str, several: str) -> list[str]:
    """Lines with (name, pictures, precision, recall, F1) of what occurs."""
    rows = [row for row in rows if row[1]]
    shown = rows
    if len(rows) > _MOST_ROWS:
        shown = sorted(rows, key=lambda row: row[4])[:_MOST_ROWS]
    width = max([len(head), *(len(row[0]) for row in rows)])
    lines = [f"{head:{width}}  pictures  precision  recall     F1"]
    lines += [
        f"{name:{width}}  {count:8}  {precision:9.1%}  {recall:6.1%}  {f1:5.3f}"
        for name, count, precision, recall, f1 in shown
    ]
    if len(shown) < len(rows):
        lines.append(f"({len(rows) - len(shown)} {several} with a higher F1 are not shown)")
    return lines


def data_uri(image: NDArray[np.uint8], side: int = _SIDE) -> str:
    """A picture uint8 (C, H, W) as a URI that holds it, with at most `side` pixels a side. Small
    ones are enlarged by a whole factor. Raises ImportError without Pillow."""
    require_pillow("report")
    from PIL import Image

    pixels = image[0] if image.shape[0] == 1 else np.moveaxis(image, 0, -1)
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    picture.thumbnail((side, side))
    if (factor := side // max(picture.size)) > 1:
        width, height = picture.size
        picture = picture.resize((width * factor, height * factor), Image.Resampling.NEAREST)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
