"""Trained networks behind HTTP: what `singa serve` runs, and its parts for services of one's own.

    batches = serving.Batches(PictureClassifier.load("runs/pets"))
    batches.probabilities(batches.classifier.read(body))     # {"cat": 0.973, "dog": 0.027}

`Batches` lets requests of many threads share a batch. `Service` answers HTTP with it.
"""

from .batches import Batches, BusyError, PictureSizeError
from .counters import Counters
from .service import Limits, Service

__all__ = ["Batches", "BusyError", "Counters", "Limits", "PictureSizeError", "Service"]
