"""What a trained classifier makes of the test pictures of its run."""

from __future__ import annotations

import argparse
import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import metric
from ..data.pictures import require_pillow
from ..training.picture_classifier import PictureClassifier
from ..training.progress import Progress
from . import picture_sets

_BATCH = 64
_SIDE = 112  # of a picture on a page, in pixels
#: Settings of a run that say which pictures are its test pictures.
_NEEDED = ("data", "size", "split", "seed", "no_augment", "augment")


def sets_of(settings: Mapping[str, Any]) -> picture_sets.PictureSets:
    """The data of a run with these settings.

    Raises ValueError if the settings do not tell, FileNotFoundError if there is nothing, and as
    `picture_sets.load` does.
    """
    if missing := [name for name in _NEEDED if name not in settings]:
        raise ValueError(f"the settings of the run lack {', '.join(missing)}")
    chosen = {name: settings[name] for name in _NEEDED}
    chosen["columns"] = settings.get("columns")  # older runs have none
    options = {"images": None, "download": False, "cache": None, "class_weights": None}
    args = argparse.Namespace(**chosen, **options)
    return picture_sets.load(args)


@dataclass
class Outcome:
    """Predictions of the test pictures.

    classes        names of the classes
    pictures       the test pictures: anything with a length and (picture, label) by number
    labels         the class of each, (n)
    probabilities  of each class for each picture, (n, classes)
    """

    classes: tuple[str, ...]
    pictures: Any
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The most probable class of each picture."""
        return self.probabilities.argmax(1)

    @property
    def losses(self) -> NDArray[np.float64]:
        """The cross-entropy of each picture: -log of the probability of its class."""
        right = self.probabilities[np.arange(len(self.labels)), self.labels]
        return -np.log(np.maximum(right, 1e-300))

    def accuracy(self) -> float:
        """The share of pictures whose most probable class is theirs."""
        return float((self.predicted == self.labels).mean())

    def confusion(self) -> NDArray[np.int64]:
        """How many pictures of class i (row) were predicted as class j (column)."""
        matrix = metric.ConfusionMatrix(len(self.classes))
        matrix.update(self.predicted, self.labels)
        return matrix.compute()

    def by_class(self) -> list[tuple[str, int, float, float, float]]:
        """(name, number of pictures, precision, recall, F1 score) of each class."""
        figures = []
        for kind in (metric.Precision, metric.Recall, metric.F1):
            each = kind(len(self.classes), average="none")
            each.update(self.predicted, self.labels)
            figures.append([float(value) for value in each.compute()])
        counts = np.bincount(self.labels, minlength=len(self.classes)).tolist()
        return list(zip(self.classes, counts, *figures, strict=True))

    def mistakes(self, most: int = 20) -> list[tuple[str, str, int]]:
        """(class, predicted class, number of pictures) of the commonest mistakes."""
        matrix = self.confusion()
        np.fill_diagonal(matrix, 0)
        order = np.argsort(-matrix, axis=None, kind="stable")[:most]
        pairs = [divmod(int(place), len(self.classes)) for place in order]
        return [
            (self.classes[i], self.classes[j], int(matrix[i, j])) for i, j in pairs if matrix[i, j]
        ]

    def worst(self, count: int = 12) -> list[int]:
        """The numbers of the pictures with the largest losses, largest first."""
        return np.argsort(-self.losses, kind="stable")[:count].tolist()

    def best(self, count: int = 12) -> list[int]:
        """The numbers of the pictures with the smallest losses, smallest first."""
        return np.argsort(self.losses, kind="stable")[:count].tolist()

    def shown(self, number: int) -> dict[str, Any]:
        """A picture for a page: uri, file, label, predicted, probability (of the predicted class),
        right, expected (the probability of its own class)."""
        image, label = self.pictures[number]
        predicted = int(self.predicted[number])
        paths = getattr(self.pictures, "paths", None)
        return {
            "uri": data_uri(image),
            "file": paths[number].name if paths else f"number {number}",
            "label": self.classes[label],
            "predicted": self.classes[predicted],
            "probability": float(self.probabilities[number, predicted]),
            "expected": float(self.probabilities[number, label]),
            "right": predicted == label,
        }


def classify(classifier: PictureClassifier, pictures: Any) -> Outcome:
    """Asks a classifier for all test pictures, which have its classes. Raises ValueError if there
    are none."""
    if not len(pictures):
        raise ValueError("there are no test pictures")
    labels, rows = [], []
    with Progress(len(pictures), "test pictures") as bar:
        for start in range(0, len(pictures), _BATCH):
            batch = [pictures[i] for i in range(start, min(start + _BATCH, len(pictures)))]
            rows.append(classifier.probabilities([image for image, _ in batch]))
            labels += [int(label) for _, label in batch]
            bar.step(len(batch))
    return Outcome(classifier.class_names, pictures, np.array(labels), np.concatenate(rows))


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
