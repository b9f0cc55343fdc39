"""What a trained network makes of the test pictures of its run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..training.picture_classifier import PictureClassifier
from ..training.progress import Progress
from . import picture_sets
from .outcomes import OUTCOMES, Outcome

_BATCH = 64
#: Settings of a run that say which pictures are its test pictures.
_NEEDED = ("data", "size", "split", "seed", "no_augment", "augment")
#: The same, with what they are in older runs, which have none.
_NEWER = {"columns": None, "multilabel": False, "regression": False}


def sets_of(settings: Mapping[str, Any]) -> picture_sets.PictureSets:
    """The data of a run with these settings.

    Raises ValueError if the settings do not tell, FileNotFoundError if there is nothing, and as
    `picture_sets.load` does.
    """
    if missing := [name for name in _NEEDED if name not in settings]:
        raise ValueError(f"the settings of the run lack {', '.join(missing)}")
    chosen = {name: settings[name] for name in _NEEDED}
    chosen |= {name: settings.get(name, value) for name, value in _NEWER.items()}
    options = {"images": None, "download": False, "cache": None, "class_weights": None}
    args = argparse.Namespace(**chosen, **options, given=())
    if args.size is None and picture_sets.kind_of(args.data) == "pictures":
        raise ValueError(f"{args.data} has pictures in files, and the run was trained on others")
    return picture_sets.load(args)


def ask(classifier: PictureClassifier, pictures: Any) -> Outcome:
    """Asks a classifier for all test pictures, which have its classes, labels or numbers. Raises
    ValueError if there are none."""
    if not len(pictures):
        raise ValueError("there are no test pictures")
    labels, rows = [], []
    with Progress(len(pictures), "test pictures") as bar:
        for start in range(0, len(pictures), _BATCH):
            batch = [pictures[i] for i in range(start, min(start + _BATCH, len(pictures)))]
            rows.append(classifier.values([image for image, _ in batch]))
            labels += [label for _, label in batch]
            bar.step(len(batch))
    task = classifier.task
    values = np.concatenate(rows)
    return OUTCOMES[task.kind](classifier.class_names, pictures, np.array(labels), values, task)
