"""Augmentation of batches of images with NumPy.

A transform is a function of images (N, C, H, W) and a `numpy.random.Generator` that returns new
images. It does not change its argument, and draws random numbers only from the generator, so the
same generator gives the same result. Any such function can be used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..raw.check import fraction, integer, number

Images = NDArray[Any]
Transform = Callable[[Images, np.random.Generator], Images]


def to_float(images: Images) -> NDArray[np.float32]:
    """Converts images to float32. uint8 images are scaled from 0 … 255 to 0 … 1."""
    if images.dtype == np.uint8:
        return images * np.float32(1.0 / 255.0)
    return images.astype(np.float32, copy=False)


class Compose:
    """Applies transforms in order: `Compose(RandomCrop(4), RandomHorizontalFlip(), ...)`.

    Raises TypeError if one of them is not callable.
    """

    def __init__(self, *transforms: Transform) -> None:
        for transform in transforms:
            if not callable(transform):
                raise TypeError(f"[Compose] {transform!r} cannot be called")
        self.transforms = transforms

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        for transform in self.transforms:
            images = transform(images, rng)
        return images

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.transforms))})"


@dataclass(frozen=True)
class RandomCrop:
    """Pads each image with `padding` pixels of zeros on all sides (default 4), and cuts out a part
    of the original size at a random position."""

    padding: int = 4

    def __post_init__(self) -> None:
        integer("RandomCrop", "padding", self.padding, 0)

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        _check_images("RandomCrop", images)
        offsets = rng.integers(-self.padding, self.padding + 1, (len(images), 2)).tolist()
        height, width = images.shape[2:]
        out = np.zeros(images.shape, images.dtype)
        # The visible part of each image is copied directly, without a padded image.
        for target, image, (down, right) in zip(out, images, offsets, strict=True):
            top, left = min(height, max(0, -down)), min(width, max(0, -right))
            bottom, end = max(top, min(height, height - down)), max(left, min(width, width - right))
            target[:, top:bottom, left:end] = image[
                :, top + down : bottom + down, left + right : end + right
            ]
        return out


@dataclass(frozen=True)
class RandomHorizontalFlip:
    """Mirrors each image left to right with probability `p` (default 0.5)."""

    p: float = 0.5

    def __post_init__(self) -> None:
        fraction("RandomHorizontalFlip", "p", self.p)

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        _check_images("RandomHorizontalFlip", images)
        out = images.copy()
        flipped = rng.random(len(images)) < self.p
        out[flipped] = images[flipped][..., ::-1]
        return out


@dataclass(frozen=True)
class Normalize:
    """Computes (images - mean) / std in float32, with one mean and std per channel.

    uint8 images are scaled to 0 … 1 first; other images are not, and if they seem to be levels of
    0 … 255 where `mean` is not, a warning says so. Raises ValueError if numbers of channels differ,
    or if a std is not positive.
    """

    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        _check_statistics("Normalize", self.mean, self.std)

    def __call__(self, images: Images, rng: np.random.Generator | None = None) -> Images:
        _check_images("Normalize", images, len(self.mean))
        mean, std = np.asarray(self.mean, np.float64), np.asarray(self.std, np.float64)
        unit = 255.0 if images.dtype == np.uint8 else 1.0
        if unit == 1.0 and mean.max() <= 1.0:
            warn_of_levels("Normalize", images)
        # (x / unit - mean) / std as one multiplication and one addition.
        out = images.astype(np.float32)
        out *= (1.0 / (unit * std)).astype(np.float32)[:, None, None]
        out -= (mean / std).astype(np.float32)[:, None, None]
        return out


@dataclass(frozen=True)
class Cutout:
    """Sets a square at a random position in each image to `fill`.

    `size` is its side in pixels (default 16). The centre of the square is inside the image, so part
    of it may lie outside. After `Normalize`, a `fill` of 0 (the default) is the mean colour.
    DeVries & Taylor 2017, "Improved Regularization of Convolutional Neural Networks with Cutout".
    """

    size: int = 16
    fill: float = 0.0

    def __post_init__(self) -> None:
        integer("Cutout", "size", self.size, 1)
        number("Cutout", "fill", self.fill)

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        _check_images("Cutout", images)
        count, _, height, width = images.shape
        corners = rng.integers(0, (height, width), (count, 2)) - self.size // 2
        out = images.copy()
        for image, (top, left) in zip(out, corners.tolist(), strict=True):
            image[:, max(top, 0) : top + self.size, max(left, 0) : left + self.size] = self.fill
        return out


def standard_augmentation(
    mean: Sequence[float],
    std: Sequence[float],
    *,
    padding: int = 4,
    flip: float = 0.5,
    cutout: int = 0,
) -> Compose:
    """The usual augmentation for CIFAR: random crop, random flip, normalisation and cutout.

    mean, std  of each channel, see `Normalize`
    padding    of the random crop (default 4)
    flip       probability of the random flip (default 0.5)
    cutout     side of the square in pixels; 0, the default, leaves it out
    """
    steps: list[Transform] = [RandomCrop(padding), RandomHorizontalFlip(flip), Normalize(mean, std)]
    return Compose(*steps, *([Cutout(cutout)] if cutout else []))


def warn_of_levels(op: str, images: Images) -> None:
    """Warns if images seem to be levels of 0 … 255 that nobody has scaled.

    Pictures reach a quarter of the range. Those that were normalised have negative values.
    """
    if images.size and images.min() >= 0 and 64 < images.max() <= 255:
        warnings.warn(
            f"[{op}] images of {images.dtype} have values from {images.min():g} to "
            f"{images.max():g}. Only uint8 images are scaled from 0 … 255 to 0 … 1: pass them as "
            f"uint8, or divide by 255",
            stacklevel=3,
        )


def warn_of_channels_last(op: str, shape: tuple[int, ...], stacklevel: int = 3) -> None:
    """Warns if images of this shape seem to be (N, H, W, C) instead of (N, C, H, W)."""
    _, height, width, channels = shape
    is_grey = channels == 1 and height == width
    if min(height, width) > 4 and (channels in (3, 4) or is_grey):
        warnings.warn(
            f"[{op}] images of shape {shape} have {height} channels and a width of {channels}. "
            "If that is (N, H, W, C), make it (N, C, H, W): "
            "np.ascontiguousarray(images.transpose(0, 3, 1, 2))",
            stacklevel=stacklevel,
        )


def _check_images(op: str, images: Images, channels: int | None = None) -> None:
    if images.ndim != 4:
        raise ValueError(f"[{op}] expected images (N, C, H, W), got shape {images.shape}")
    if channels is not None and images.shape[1] != channels:
        raise ValueError(
            f"[{op}] has statistics for {channels} channels, got images of shape {images.shape}"
        )


def _check_statistics(op: str, mean: Sequence[float], std: Sequence[float]) -> None:
    if not mean or len(mean) != len(std):
        raise ValueError(f"[{op}] expected one mean and std per channel, got {mean} and {std}")
    if not all(np.isfinite(value) for value in mean) or not all(
        np.isfinite(value) and value > 0.0 for value in std
    ):
        raise ValueError(f"[{op}] mean must be finite and std positive, got {mean} and {std}")
