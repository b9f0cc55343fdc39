"""Transforms that change colours or pick a change for each image, with Pillow: ColorJitter,
RandAugment, TrivialAugment.

Images are uint8, so these come before `Normalize`. Each change gives torchvision's values for
Pillow images.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..raw.check import integer, number
from .geometry import PerImage, check_interpolation, colour, resampling, symmetric, through_pillow
from .transforms import Images, ordered_pair

Range = float | tuple[float, float]


@dataclass(frozen=True)
class ColorJitter(PerImage):
    """Changes brightness, contrast, saturation and hue of each image, in random order.

    brightness, contrast, saturation
                factors are drawn from max(0, 1 - value) … 1 + value, or from a pair (low, high);
                0 (the default) changes nothing
    hue         shifts are drawn from -hue … hue or a pair, as parts of the circle of hues, at most
                0.5; 0 (the default) changes nothing

    Raises ValueError for negative numbers.

    >>> data.ColorJitter(0.4)(np.zeros((1, 3, 8, 8), np.uint8), np.random.default_rng(0)).shape
    (1, 3, 8, 8)
    """

    brightness: Range = 0.0
    contrast: Range = 0.0
    saturation: Range = 0.0
    hue: Range = 0.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            self._factors(name)
        ordered_pair("ColorJitter", "hue", symmetric("ColorJitter", "hue", self.hue), -0.5, 0.5)

    def _factors(self, name: str) -> tuple[float, float]:
        value = getattr(self, name)
        if isinstance(value, tuple | list):
            return ordered_pair("ColorJitter", name, value, 0.0)
        end = symmetric("ColorJitter", name, value)[1]
        return max(0.0, 1.0 - end), 1.0 + end

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> list[tuple[str, float]]:
        """Names of changes in their order, with factors."""
        changes = []
        for name in ("brightness", "contrast", "saturation", "hue"):
            low, high = symmetric("", "", self.hue) if name == "hue" else self._factors(name)
            if (low, high) != ((0.0, 0.0) if name == "hue" else (1.0, 1.0)):
                changes.append((name, rng.uniform(low, high)))
        return [changes[place] for place in rng.permutation(len(changes))]

    def change(self, image: Images, drawn: list[tuple[str, float]], is_mask: bool) -> Images:
        """The image in other colours; a mask as it is."""
        if is_mask or not drawn:
            return image
        _check_levels("ColorJitter", image)

        def adjust(picture: Any) -> Any:
            for name, factor in drawn:
                picture = _ADJUSTMENTS[name](picture, factor)
            return picture

        return through_pillow(image, adjust)


def _enhancing(name: str) -> Callable[[Any, float], Any]:
    def enhance(picture: Any, factor: float) -> Any:
        from PIL import ImageEnhance

        return getattr(ImageEnhance, name)(picture).enhance(factor)

    return enhance


def _shift_hue(picture: Any, shift: float) -> Any:
    if picture.mode == "L":
        return picture
    from PIL import Image

    hue, saturation, value = picture.convert("HSV").split()
    levels = (np.asarray(hue).astype(np.int32) + int(shift * 255)) % 256
    channels = (Image.fromarray(levels.astype(np.uint8)), saturation, value)
    return Image.merge("HSV", channels).convert("RGB")


_ADJUSTMENTS: dict[str, Callable[[Any, float], Any]] = {
    "brightness": _enhancing("Brightness"),
    "contrast": _enhancing("Contrast"),
    "saturation": _enhancing("Color"),
    "hue": _shift_hue,
}


class _RandomChanges(PerImage):
    """Applies drawn changes: names in the table of `magnitudes`, with a magnitude each."""

    num_magnitude_bins: int
    interpolation: str
    fill: float
    mask_fill: int

    def __post_init__(self) -> None:
        name = type(self).__name__
        integer(name, "num_magnitude_bins", self.num_magnitude_bins, 2)
        check_interpolation(name, self.interpolation, most=3)
        number(name, "fill", self.fill)

    def magnitudes(self, shape: tuple[int, int]) -> dict[str, tuple[float, float, bool]]:
        """For each change: magnitudes of the first and the last level, and whether a sign is
        drawn."""
        raise NotImplementedError

    def draw_one(
        self, shape: tuple[int, int], level: int, rng: np.random.Generator
    ) -> tuple[str, float]:
        """A change, and its magnitude at this level."""
        table = self.magnitudes(shape)
        name = list(table)[rng.integers(len(table))]
        first, last, has_sign = table[name]
        magnitude = first + (last - first) * level / (self.num_magnitude_bins - 1)
        if has_sign and rng.integers(2):
            magnitude = -magnitude
        return name, float(round(magnitude)) if name == "posterize" else magnitude

    def change(self, image: Images, drawn: list[tuple[str, float]], is_mask: bool) -> Images:
        """The image with all changes; the mask with those that move pixels."""
        if not is_mask:
            _check_levels(type(self).__name__, image)
        fill = self.mask_fill if is_mask else self.fill
        interpolation = "nearest" if is_mask else self.interpolation
        for name, magnitude in drawn:
            if not is_mask or name in _MOVES:
                image = changed(image, name, magnitude, interpolation, fill)
        return image


@dataclass(frozen=True)
class RandAugment(_RandomChanges):
    """Applies `num_ops` random changes of one strength to each image. Cubuk et al. 2020,
    "RandAugment: Practical automated data augmentation with a reduced search space".

    num_ops             changes for each image (default 2)
    magnitude           their strength, from 0 to num_magnitude_bins - 1 (default 9)
    num_magnitude_bins  number of strengths (default 31)
    interpolation       "nearest" (the default), "bilinear" or "bicubic"
    fill                value of pixels that come from outside (default 0)

    Changes and strengths are torchvision's.

    Raises ValueError for a negative number of operations.

    >>> data.RandAugment()(np.zeros((1, 3, 8, 8), np.uint8), np.random.default_rng(0)).shape
    (1, 3, 8, 8)
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: float = 0
    mask_fill: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("RandAugment", "num_ops", self.num_ops, 0)
        if not 0 <= integer("RandAugment", "magnitude", self.magnitude) < self.num_magnitude_bins:
            raise ValueError(
                f"[RandAugment] magnitude must lie in [0, {self.num_magnitude_bins}), "
                f"got {self.magnitude}"
            )

    def magnitudes(self, shape: tuple[int, int]) -> dict[str, tuple[float, float, bool]]:
        """As `_RandomChanges` describes."""
        height, width = shape
        return _magnitudes(0.3, 150.0 / 331.0 * width, 150.0 / 331.0 * height, 30.0, 0.9, 4.0)

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> list[tuple[str, float]]:
        """The changes of one image."""
        return [self.draw_one(shape, self.magnitude, rng) for _ in range(self.num_ops)]


@dataclass(frozen=True)
class TrivialAugment(_RandomChanges):
    """Applies one random change of random strength to each image. Müller & Hutter 2021,
    "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation", the wide form.

    Arguments are those of `RandAugment`, without `num_ops` and `magnitude`. Changes and strengths
    are those of torchvision's TrivialAugmentWide.

    >>> data.TrivialAugment()(np.zeros((1, 3, 8, 8), np.uint8), np.random.default_rng(0)).shape
    (1, 3, 8, 8)
    """

    num_magnitude_bins: int = 31
    interpolation: str = "nearest"
    fill: float = 0
    mask_fill: int = 0

    def magnitudes(self, shape: tuple[int, int]) -> dict[str, tuple[float, float, bool]]:
        """As `_RandomChanges` describes."""
        return _magnitudes(0.99, 32.0, 32.0, 135.0, 0.99, 6.0)

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> list[tuple[str, float]]:
        """The change of one image."""
        return [self.draw_one(shape, int(rng.integers(self.num_magnitude_bins)), rng)]


def _magnitudes(
    shear: float, right: float, down: float, degrees: float, factor: float, bits: float
) -> dict[str, tuple[float, float, bool]]:
    return {
        "identity": (0.0, 0.0, False),
        "shear_x": (0.0, shear, True),
        "shear_y": (0.0, shear, True),
        "translate_x": (0.0, right, True),
        "translate_y": (0.0, down, True),
        "rotate": (0.0, degrees, True),
        "brightness": (0.0, factor, True),
        "color": (0.0, factor, True),
        "contrast": (0.0, factor, True),
        "sharpness": (0.0, factor, True),
        "posterize": (8.0, 8.0 - bits, False),
        "solarize": (255.0, 0.0, False),
        "autocontrast": (0.0, 0.0, False),
        "equalize": (0.0, 0.0, False),
    }


_MOVES = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")


def changed(
    image: Images, name: str, magnitude: float, interpolation: str = "nearest", fill: float = 0
) -> Images:
    """An image (C, H, W) after one change of RandAugment."""
    resample = resampling(interpolation)

    def affine(picture: Any, *matrix: float) -> Any:
        from PIL import Image

        return picture.transform(
            picture.size,
            Image.Transform.AFFINE,
            matrix,
            resample,
            fillcolor=colour(picture, fill),
        )

    def change(picture: Any) -> Any:
        from PIL import ImageOps

        if name == "shear_x":
            return affine(picture, 1, magnitude, 0, 0, 1, 0)
        if name == "shear_y":
            return affine(picture, 1, 0, 0, magnitude, 1, 0)
        if name == "translate_x":
            return affine(picture, 1, 0, -math.trunc(magnitude), 0, 1, 0)
        if name == "translate_y":
            return affine(picture, 1, 0, 0, 0, 1, -math.trunc(magnitude))
        if name == "rotate":
            return picture.rotate(magnitude, resample, fillcolor=colour(picture, fill))
        if name in ("brightness", "color", "contrast", "sharpness"):
            return _enhancing(name.capitalize())(picture, 1.0 + magnitude)
        if name == "posterize":
            return ImageOps.posterize(picture, int(magnitude))
        if name == "solarize":
            return ImageOps.solarize(picture, math.ceil(magnitude))
        return (
            ImageOps.autocontrast(picture) if name == "autocontrast" else ImageOps.equalize(picture)
        )

    return image if name == "identity" else through_pillow(image, change)


def _check_levels(op: str, image: Images) -> None:
    if image.dtype != np.uint8 or len(image) not in (1, 3):
        raise TypeError(
            f"[{op}] needs uint8 images with 1 or 3 channels, got {image.dtype} with "
            f"{len(image)}: it comes before Normalize"
        )
