"""Datasets: the protocol, labelled images in memory, and how they are split."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..raw.check import fraction as checked_fraction
from ..raw.check import integer
from ..raw.words import counted
from .transforms import warn_of_channels_last


@runtime_checkable
class Dataset(Protocol):
    """What `DataLoader` reads item by item: anything with a length and items by number.

    An item is a tuple of numbers and arrays, such as (image, label), or one of them. Threads of the
    loader read several items at a time. If `has_masks` is a true attribute, the second part of an
    item is a mask (H, W) of the image (C, H, W), and transforms move both alike.

    >>> class Squares:
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, index):
    ...         return np.float32(index), np.float32(index**2)
    ...
    >>> next(iter(data.DataLoader(Squares(), 3)))
    (array([0., 1., 2.], dtype=float32), array([0., 1., 4.], dtype=float32))
    """

    def __len__(self) -> int:
        """The number of items."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """The item with a number from 0 to len - 1."""
        ...


class ArrayDataset:
    """The rows of arrays as a Dataset: item i is (arrays[0][i], arrays[1][i], ...), or the row
    itself if there is one array.

        loader = data.DataLoader(data.ArrayDataset(x, y), 32, shuffle=True)

    Takes NumPy arrays, and what NumPy makes arrays of, such as tensors. Raises ValueError for
    arrays of different lengths, and for numbers without an axis.

    >>> dataset = data.ArrayDataset(np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]))
    >>> len(dataset), dataset[1]
    (3, (array([2., 3.]), np.int64(1)))
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = tuple(np.asarray(array) for array in arrays)
        if not arrays or len({array.shape[:1] for array in self.arrays}) > 1:
            shapes = ", ".join(str(array.shape) for array in self.arrays)
            raise ValueError(
                f"[ArrayDataset] expected arrays with equally many rows, got shapes {shapes}"
            )
        if not self.arrays[0].ndim:
            raise ValueError("[ArrayDataset] expected arrays of rows, got numbers")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> Any:
        row = tuple(array[index] for array in self.arrays)
        return row if len(row) > 1 else row[0]


class ItemLists:
    """Base class of sets whose attributes `_lists` hold an entry for each picture, or are None."""

    _lists: ClassVar[tuple[str, ...]]
    labels: NDArray[Any]

    def __len__(self) -> int:
        """The number of pictures."""
        return len(getattr(self, self._lists[0]))

    def take(self, indices: Sequence[int] | NDArray[np.integer]) -> Self:
        """The pictures with these numbers, in this order."""
        part = copy.copy(self)
        part._keep(indices)
        return part

    def split(self, fraction: float = 0.2, seed: int = 0) -> tuple[Self, Self]:
        """Two sets: `fraction` of the pictures, of each class the same, drawn with `seed`, is in
        the second.

        Raises ValueError unless `fraction` lies in [0, 1].
        """
        first, second = split_indices(self._groups(), fraction, seed)
        return self.take(first), self.take(second)

    def _groups(self) -> NDArray[np.integer]:
        """A number for each picture; a split takes the same share of pictures with each number."""
        return self.labels

    def _keep(self, indices: Sequence[int] | NDArray[np.integer]) -> None:
        chosen = np.asarray(indices, np.intp)
        for name in self._lists:
            entries = getattr(self, name)
            if isinstance(entries, np.ndarray):
                setattr(self, name, entries[chosen])
            elif entries is not None:
                setattr(self, name, tuple(entries[index] for index in chosen.tolist()))


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Labelled images, which all readers and generators of this package return.

    images   uint8 (N, C, H, W), values from 0 to 255
    labels   int32 (N,), values from 0 to len(classes) - 1; other integers are converted
    classes  names of the classes
    name     name of the set for logs, such as "cifar10 train (4000 of 50000)"

    Raises TypeError for other element types, ValueError for other shapes and for a label outside
    the range. Warns if the shape of the images looks like (N, H, W, C).

    >>> images = np.zeros((4, 3, 8, 8), np.uint8)
    >>> train = data.ImageSet(images, np.array([0, 1, 1, 0]), ("cat", "dog"))
    >>> len(train), train.classes[train.labels[1]]
    (4, 'dog')
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
        return f"<ImageSet {self.name}: {shape}, {counted(len(self.classes), 'class', 'classes')}>"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        """An image (C, H, W) and its label. Raises IndexError outside the set."""
        return self.images[index], int(self.labels[index])

    def take(self, indices: Sequence[int] | NDArray[np.integer]) -> ImageSet:
        """The images with these numbers, in this order, as a copy.

        >>> data.digits("train", 32).take([3, 1]).images.shape
        (2, 1, 28, 28)
        """
        chosen = np.asarray(indices, np.intp)
        return ImageSet(self.images[chosen], self.labels[chosen], self.classes, self.name)

    def split(self, fraction: float = 0.2, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Two sets: `fraction` of each class is in the second. See `split_indices`.

        >>> first, second = data.digits("train", 100).split(0.2)
        >>> len(first), len(second)
        (82, 18)
        """
        first, second = split_indices(self.labels, fraction, seed)
        return self.take(first), self.take(second)

    def head(self, count: int) -> ImageSet:
        """The first `count` images, or all if there are fewer, without a copy.

        Raises ValueError for a negative count.

        >>> len(data.digits("train", 100).head(10))
        10
        """
        if count < 0:
            raise ValueError(f"[{self.name}] head: count must not be negative, got {count}")
        return ImageSet(self.images[:count], self.labels[:count], self.classes, self.name)

    def mean_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel, for pixels scaled to 0 … 1.

        Raises ValueError for an empty set.

        >>> images = np.array([[[[0, 255]]]], np.uint8)
        >>> data.ImageSet(images, np.array([0]), ("cat",)).mean_std()
        ((0.5,), (0.5,))
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


def split_indices(
    labels: NDArray[np.integer], fraction: float, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Splits items at random, but with the same share of each class, into two lists of numbers.

    Of each class, `fraction` goes to the second list, rounded to whole items; where there are two
    items or more, each list gets one at least, unless `fraction` is 0 or 1. Both lists are sorted,
    and depend on the labels, `fraction` and `seed` only.

    Raises ValueError unless `fraction` lies in [0, 1], or for a negative seed.

    >>> labels = np.array([0] * 10 + [1] * 10)
    >>> first, second = data.split_indices(labels, 0.2, seed=0)
    >>> len(first), labels[second]
    (16, array([0, 0, 1, 1]))
    """
    checked_fraction("split", "fraction", fraction)
    rng = np.random.default_rng(integer("split", "seed", seed, 0))
    second = []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        count = int(fraction * len(members) + 0.5)
        if 0.0 < fraction < 1.0 and len(members) > 1:
            count = min(max(count, 1), len(members) - 1)
        second.append(members[:count])
    chosen = np.sort(np.concatenate(second)) if second else np.empty(0, np.intp)
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen
