"""ImageSet: labelled images in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .transforms import warn_of_channels_last


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Labelled images, which all readers and generators of this package return.

    images   uint8 (N, C, H, W), values from 0 to 255
    labels   int32 (N,), values from 0 to len(classes) - 1; other integers are converted
    classes  names of the classes
    name     name of the set for logs, such as "cifar10 train (4000 of 50000)"

    Raises TypeError for other element types, ValueError for other shapes and for a label outside
    the range. Warns if the shape of the images looks like (N, H, W, C).
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int32]
    classes: tuple[str, ...]
    name: str = "images"

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.labels.dtype.kind not in "ui":
            raise TypeError(
                f"[{self.name}] expected uint8 images and integer labels, "
                f"got {self.images.dtype} and {self.labels.dtype}"
            )
        if self.images.ndim != 4 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"[{self.name}] expected images (N, C, H, W) and labels (N,), "
                f"got {self.images.shape} and {self.labels.shape}"
            )
        check_labels(self.labels, len(self.classes), f"[{self.name}]")
        object.__setattr__(self, "labels", self.labels.astype(np.int32, copy=False))
        warn_of_channels_last(self.name, self.images.shape, stacklevel=4)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.images.shape))
        return f"<ImageSet {self.name}: {shape}, {len(self.classes)} classes>"

    def __len__(self) -> int:
        return len(self.labels)

    def head(self, count: int) -> ImageSet:
        """The first `count` images, or all if there are fewer, without a copy.

        Raises ValueError for a negative count.
        """
        if count < 0:
            raise ValueError(f"[{self.name}] head: count must not be negative, got {count}")
        return ImageSet(self.images[:count], self.labels[:count], self.classes, self.name)

    def mean_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel, for pixels scaled to 0 … 1.

        Raises ValueError for an empty set.
        """
        if not len(self):
            raise ValueError(f"[{self.name}] mean_std: the set is empty")
        means, deviations = [], []
        levels = np.arange(256) / 255.0
        for channel in range(self.images.shape[1]):
            # Computed from the histogram, which is exact and needs no float copy of the images.
            share = np.bincount(self.images[:, channel].ravel(), minlength=256)
            share = share / share.sum()
            mean = float(share @ levels)
            means.append(mean)
            deviations.append(float(np.sqrt(share @ (levels - mean) ** 2)))
        return tuple(means), tuple(deviations)


def check_labels(labels: NDArray[np.integer], classes: int, what: str) -> None:
    """Raises ValueError if a label is outside 0 … classes - 1. The message begins with `what`."""
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(bad):
        raise ValueError(
            f"{what}: label {labels[bad[0]]} of record {bad[0]} is out of range: "
            f"expected 0 to {classes - 1}"
        )
