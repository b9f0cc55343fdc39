"""Mixing of images and their labels within a batch, with NumPy.

A mix is called with images (N, C, H, W), labels and a `numpy.random.Generator`. It returns new
images and soft labels (N, num_classes), float32, whose rows add up to 1. Labels are class numbers
(N,) or soft labels; or masks (N, H, W) of class numbers, for segmentation. `DataLoader(mix=...)`
calls one for each batch, after its `transform`.

    mix = data.RandomChoice(data.MixUp(10, alpha=0.2), data.CutMix(10))
    loader = data.DataLoader(train, 128, shuffle=True, seed=1, transform=augment, mix=mix)
    for images, targets in loader:
        net(images, targets)  # autograd.softmax_cross_entropy takes soft labels
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..raw.check import integer, positive
from .transforms import Images, to_float

Labels = NDArray[Any]
Mix = Callable[[Images, Labels, np.random.Generator], tuple[Images, Labels]]


@dataclass(frozen=True)
class _Mixing:
    num_classes: int
    alpha: float = 1.0

    def __post_init__(self) -> None:
        kind = type(self).__name__
        integer(kind, "num_classes", self.num_classes, 1)
        positive(kind, "alpha", self.alpha, finite=True)


class MixUp(_Mixing):
    """Each image becomes ratio · image + (1 - ratio) · partner, and its label likewise. Zhang et
    al. 2018, "mixup: Beyond Empirical Risk Minimization".

    Partners are a random permutation of the batch. One ratio for the batch is drawn from
    Beta(alpha, alpha). Images become float32; uint8 ones are scaled to 0 … 1. Masks become soft
    ones (N, num_classes, H, W).

    `alpha` is 1 by default, which draws uniformly; 0.2 is usual for ImageNet. Raises ValueError
    unless `alpha` is positive, and for labels that are no classes below `num_classes`.

    >>> mix = data.MixUp(3)
    >>> images, labels = np.zeros((2, 1, 4, 4), np.float32), np.array([0, 2])
    >>> mixed, targets = mix(images, labels, np.random.default_rng(0))
    >>> targets.shape, targets.sum(1)
    ((2, 3), array([1., 1.], dtype=float32))
    """

    def __call__(
        self, images: Images, labels: Labels, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        soft = soft_labels("MixUp", images, labels, self.num_classes)
        ratio, partner = rng.beta(self.alpha, self.alpha), rng.permutation(len(images))
        return _blend(to_float(images), partner, ratio), _blend(soft, partner, ratio)


class CutMix(_Mixing):
    """A rectangle of each image is replaced by its partner's; labels are mixed by area. Yun et al.
    2019, "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features".

    Partners are a random permutation of the batch. One rectangle for the batch has the image's
    proportions, the area 1 - ratio, where ratio is drawn from Beta(alpha, alpha), and its centre
    anywhere in the image. What lies outside of the image is cut off, and does not count as area.
    Images keep their type. Of masks, the same rectangle is the partner's; they keep their type, and
    may have other numbers besides classes, such as 255.

    `alpha` is 1 by default. Raises as `MixUp` does.

    >>> mix = data.CutMix(3)
    >>> images, labels = np.zeros((2, 1, 4, 4), np.float32), np.array([0, 2])
    >>> mixed, targets = mix(images, labels, np.random.default_rng(0))
    >>> targets.shape, targets.sum(1)
    ((2, 3), array([1., 1.], dtype=float32))
    """

    def __call__(
        self, images: Images, labels: Labels, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        are_masks = labels.ndim == 3
        if not are_masks:
            labels = soft_labels("CutMix", images, labels, self.num_classes)
        elif labels.shape != (len(images), *images.shape[2:]):
            raise ValueError(
                f"[CutMix] masks of shape {labels.shape} do not fit images {images.shape}"
            )
        height, width = images.shape[2:]
        ratio, partner = rng.beta(self.alpha, self.alpha), rng.permutation(len(images))
        rows, columns = (
            _edges(int(rng.integers(length)), length, np.sqrt(1.0 - ratio))
            for length in (height, width)
        )
        out = images.copy()
        out[:, :, rows, columns] = images[partner][:, :, rows, columns]
        if are_masks:
            masks = labels.copy()
            masks[:, rows, columns] = labels[partner][:, rows, columns]
            return out, masks
        area = (rows.stop - rows.start) * (columns.stop - columns.start)
        return out, _blend(labels, partner, 1.0 - area / (height * width))


class RandomChoice:
    """One of several mixes for each batch, drawn with equal probability, or by the weights `p`.

    Raises ValueError without mixes, and for weights that are negative, all zero, too few or too
    many.

    >>> mix = data.RandomChoice(data.MixUp(3), data.CutMix(3))
    >>> images, labels = np.zeros((2, 1, 4, 4), np.float32), np.array([0, 2])
    >>> mix(images, labels, np.random.default_rng(0))[1].shape
    (2, 3)
    """

    def __init__(self, *mixes: Mix, p: Sequence[float] | None = None) -> None:
        for mix in mixes:
            if not callable(mix):
                raise TypeError(f"[RandomChoice] {mix!r} cannot be called")
        weights = np.ones(len(mixes)) if p is None else np.array(p, np.float64)
        if not mixes or weights.shape != (len(mixes),):
            raise ValueError(f"[RandomChoice] {len(mixes)} mixes and the weights {p}")
        if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.sum() > 0):
            raise ValueError(f"[RandomChoice] weights must not be negative or all zero, got {p}")
        self.mixes = mixes
        self.p: Any = weights / weights.sum()

    def __call__(
        self, images: Images, labels: Labels, rng: np.random.Generator
    ) -> tuple[Images, Labels]:
        return self.mixes[rng.choice(len(self.mixes), p=self.p)](images, labels, rng)

    def __repr__(self) -> str:
        return f"RandomChoice({', '.join(map(repr, self.mixes))}, p={self.p.tolist()})"


def soft_labels(op: str, images: Images, labels: Labels, num_classes: int) -> NDArray[np.float32]:
    """Labels of these images as float32 (N, num_classes): one-hot rows for class numbers (N,); for
    masks (N, H, W) likewise (N, num_classes, H, W).

    Raises ValueError for other shapes and for class numbers out of range.
    """
    if images.ndim != 4:
        raise ValueError(f"[{op}] expected images (N, C, H, W), got shape {images.shape}")
    count = len(images)
    if labels.shape == (count, num_classes) and labels.dtype.kind == "f":
        return labels.astype(np.float32, copy=False)
    are_masks = labels.shape == (count, *images.shape[2:])
    if not (labels.shape == (count,) or are_masks) or labels.dtype.kind not in "ui":
        raise ValueError(
            f"[{op}] expected {count} class numbers or soft labels ({count}, {num_classes}), got "
            f"{labels.dtype} of shape {labels.shape}"
        )
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(
            f"[{op}] labels from {labels.min()} to {labels.max()}, expected classes below "
            f"{num_classes}"
        )
    soft = np.eye(num_classes, dtype=np.float32)[labels]
    return np.ascontiguousarray(np.moveaxis(soft, -1, 1)) if are_masks else soft


def _blend(values: NDArray[np.float32], partner: Any, ratio: float) -> NDArray[np.float32]:
    return values * np.float32(ratio) + values[partner] * np.float32(1.0 - ratio)


def _edges(centre: int, length: int, side: float) -> slice:
    """Where the part `side` of a length lies around a centre, without what lies outside."""
    half = int(length * side) // 2
    return slice(max(centre - half, 0), min(centre + half, length))
