"""Generated images for segmentation: figures of `shapes` on uneven ground, with their masks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..raw.calls import says_what_to_write
from .synthetic import SHAPES_CLASSES, draw_figures, generate

MASKS_CLASSES = ("background", *SHAPES_CLASSES)


class MaskSet:
    """Images in memory with masks; a `Dataset` for segmentation.

    images   uint8 (N, C, H, W), values from 0 to 255
    masks    int32 (N, H, W), the class of each pixel
    classes  names of the classes
    name     name of the set for logs

    Raises ValueError if the shapes do not fit, TypeError for other types.

    >>> images, masks = np.zeros((4, 3, 8, 8), np.uint8), np.ones((4, 8, 8), np.int32)
    >>> train = data.MaskSet(images, masks, ("background", "cell"))
    >>> len(train), train[0][1].max()
    (4, np.int32(1))
    """

    has_masks = True

    def __init__(
        self,
        images: NDArray[np.uint8],
        masks: NDArray[np.int32],
        classes: tuple[str, ...],
        name: str = "masks",
    ) -> None:
        if images.dtype != np.uint8 or masks.dtype.kind not in "ui":
            raise TypeError(
                f"[{name}] expected uint8 images and masks of integers, got {images.dtype} and "
                f"{masks.dtype}"
            )
        if images.ndim != 4 or masks.shape != (len(images), *images.shape[2:]):
            raise ValueError(
                f"[{name}] expected images (N, C, H, W) and masks (N, H, W), got {images.shape} "
                f"and {masks.shape}"
            )
        self.images = images
        self.masks = masks.astype(np.int32, copy=False)
        self.classes = classes
        self.name = name

    def __len__(self) -> int:
        """The number of images."""
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """An image (C, H, W) and its mask (H, W)."""
        return self.images[index], self.masks[index]


@says_what_to_write("shapes_with_masks", "pictures")
def shapes_with_masks(split: str = "train", count: int | None = None, seed: int = 0) -> MaskSet:
    """Images (N, 3, 32, 32) with one figure each, and masks of it: 0 is the background, 1 to 10 are
    the figures in the order of SHAPES_CLASSES.

    `count` defaults to 2,000 for "train" and 400 for "test". The same seed gives the same images,
    and a smaller set is the beginning of a larger one. A pixel belongs to the figure if at least
    half of it is covered. Raises ValueError for another split, a negative count or a negative seed.

    >>> train = data.shapes_with_masks("train", 10)
    >>> image, mask = train[0]
    >>> image.shape, mask.shape
    ((3, 32, 32), (32, 32))
    """
    masks: list[NDArray[np.int32]] = []

    def draw(labels: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.floating]:
        images, covered = draw_figures(labels, rng)
        masks.append(np.where(covered >= 0.5, labels[:, None, None] + 1, 0).astype(np.int32))
        return images

    drawn = generate(
        "shapes_with_masks", draw, (3, 32, 32), SHAPES_CLASSES, split, count, seed, 2_000
    )
    joined = np.concatenate([*masks, np.zeros((0, 32, 32), np.int32)])[: len(drawn)]
    return MaskSet(drawn.images, joined, MASKS_CLASSES, drawn.name)
