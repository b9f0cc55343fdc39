"""Transforms that change sizes and positions, with Pillow: resize, crop, rotate.

Each gives Pillow's values for uint8 images, which are those of torchvision for Pillow images. A
single image may have any size; the images of a batch have one size. Masks move with their images
and keep their values (nearest neighbour).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..raw.check import number, one_of
from ..raw.words import spelled
from .pictures import from_array, require_pillow, scaled_size, to_array
from .transforms import Images, Masks, check_images, height_and_width, ordered_pair

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos")


class PerImage:
    """A transform that draws for each image, then changes the image, and its mask alike."""

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Any:
        """What is done to one image of this height and width."""
        raise NotImplementedError

    def change(self, image: Images, drawn: Any, is_mask: bool) -> Images:
        """An image (C, H, W), or a mask (1, H, W), changed as drawn."""
        raise NotImplementedError

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        """Changes images (N, C, H, W)."""
        check_images(type(self).__name__, images)
        drawn = [self.draw(images.shape[2:], rng) for _ in images]
        return self._changed(images, drawn, False)

    def with_masks(
        self, images: Images, masks: Masks, rng: np.random.Generator
    ) -> tuple[Images, Masks]:
        """Changes images (N, C, H, W) and their masks (N, H, W) alike."""
        check_images(type(self).__name__, images, masks=masks)
        drawn = [self.draw(images.shape[2:], rng) for _ in images]
        moved = self._changed(masks[:, None], drawn, True)
        return self._changed(images, drawn, False), moved[:, 0]

    def _changed(self, images: Images, drawn: list[Any], are_masks: bool) -> Images:
        if len(images) == 1:  # without a copy
            return self.change(images[0], drawn[0], are_masks)[None]
        if not len(images):  # the new size is that of any other batch
            blank = np.zeros(images.shape[1:], images.dtype)
            how = self.draw(images.shape[2:], np.random.default_rng(0))
            return self.change(blank, how, are_masks)[None][:0]
        return np.stack([self.change(*pair, are_masks) for pair in zip(images, drawn, strict=True)])


@spelled(antialias=(True, None))
@dataclass(frozen=True)
class Resize(PerImage):
    """Changes the size of images.

    size           an integer: the length of the shorter side, proportions stay; or (height, width)
    interpolation  "bilinear" (the default), "nearest", "bicubic" or "lanczos"; all but "nearest"
                   average over the pixels that become one (antialiasing)

    Raises ValueError for a size below 1 and for another interpolation.

    >>> data.Resize(16)(np.zeros((1, 3, 32, 48), np.uint8), np.random.default_rng(0)).shape
    (1, 3, 16, 24)
    """

    size: int | tuple[int, int]
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        height_and_width("Resize", self.size)
        check_interpolation("Resize", self.interpolation)

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[int, int]:
        """The new height and width."""
        if isinstance(self.size, int | np.integer):
            return scaled_size(shape, int(self.size))
        return height_and_width("Resize", self.size)

    def change(self, image: Images, drawn: tuple[int, int], is_mask: bool) -> Images:
        """The image in its new size."""
        return resized(image, drawn, "nearest" if is_mask else self.interpolation)


@dataclass(frozen=True)
class CenterCrop(PerImage):
    """Cuts out the middle of images. `size` is its side, or (height, width). Smaller images are
    padded with zeros.

    Raises ValueError for a size below 1.

    >>> images = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    >>> data.CenterCrop(2)(images, np.random.default_rng(0))
    array([[[[ 5,  6],
             [ 9, 10]]]], dtype=uint8)
    """

    size: int | tuple[int, int]
    mask_fill: int = 0

    def __post_init__(self) -> None:
        height_and_width("CenterCrop", self.size)

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[int, ...]:
        """Where the middle begins, and its size."""
        size = height_and_width("CenterCrop", self.size)
        begin = (_middle(length, wanted) for length, wanted in zip(shape, size, strict=True))
        return (*begin, *size)

    def change(self, image: Images, drawn: tuple[int, ...], is_mask: bool) -> Images:
        """The middle of the image."""
        top, left, height, width = drawn
        padding = (
            (0, 0),
            _padding(top, height, image.shape[1]),
            _padding(left, width, image.shape[2]),
        )
        if any(sum(sides) for sides in padding):
            fill = self.mask_fill if is_mask else 0
            image = np.pad(image, padding, constant_values=fill)
        top, left = max(top, 0), max(left, 0)
        return image[:, top : top + height, left : left + width]


@dataclass(frozen=True)
class RandomResizedCrop(PerImage):
    """Cuts out a random part of each image and resizes it to `size`, the usual augmentation for
    ImageNet. Szegedy et al. 2015, "Going Deeper with Convolutions", section 6.

    size           side of the result, or (height, width)
    scale          range of the part's share of the area (default 0.08 to 1)
    ratio          range of width / height (default 3/4 to 4/3); its logarithm is uniform
    interpolation  see `Resize`

    As in torchvision, ten parts are tried; if none fits, it is the largest one in the middle whose
    proportions are in the range.

    Raises ValueError for a size below 1, and for ranges whose first number is larger.

    >>> crop = data.RandomResizedCrop(16)
    >>> crop(np.zeros((1, 3, 32, 48), np.uint8), np.random.default_rng(0)).shape
    (1, 3, 16, 16)
    """

    size: int | tuple[int, int]
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0)
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        height_and_width("RandomResizedCrop", self.size)
        ordered_pair("RandomResizedCrop", "scale", self.scale, 0.0, 1.0)
        ordered_pair("RandomResizedCrop", "ratio", self.ratio, 1e-6)
        check_interpolation("RandomResizedCrop", self.interpolation)

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[int, int, int, int]:
        """The part: top, left, height, width."""
        height, width = shape
        for _ in range(10):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(*np.log(self.ratio)))
            columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < columns <= width and 0 < rows <= height:
                top = int(rng.integers(height - rows + 1))
                left = int(rng.integers(width - columns + 1))
                return top, left, rows, columns
        low, high = self.ratio
        rows, columns = height, width
        if width / height < low:
            rows = max(1, min(height, round(width / low)))
        elif width / height > high:
            columns = max(1, min(width, round(height * high)))
        return (height - rows) // 2, (width - columns) // 2, rows, columns

    def change(self, image: Images, drawn: tuple[int, int, int, int], is_mask: bool) -> Images:
        """The part of the image, resized."""
        top, left, rows, columns = drawn
        part = image[:, top : top + rows, left : left + columns]
        size = height_and_width("RandomResizedCrop", self.size)
        return resized(part, size, "nearest" if is_mask else self.interpolation)


@dataclass(frozen=True)
class RandomRotation(PerImage):
    """Rotates each image about its middle by a random angle. The size stays.

    degrees        counter-clockwise angles are drawn from -degrees … degrees, or from a pair
    interpolation  "bilinear" (the default), "nearest" or "bicubic"
    fill           value of pixels that come from outside (default 0)

    Raises ValueError for a range whose first number is larger.

    >>> data.RandomRotation(10)(np.zeros((1, 3, 32, 32), np.uint8), np.random.default_rng(0)).shape
    (1, 3, 32, 32)
    """

    degrees: float | tuple[float, float]
    interpolation: str = "bilinear"
    fill: float = 0
    mask_fill: int = 0

    def __post_init__(self) -> None:
        symmetric("RandomRotation", "degrees", self.degrees)
        check_interpolation("RandomRotation", self.interpolation, most=3)
        number("RandomRotation", "fill", self.fill)

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> float:
        """The angle in degrees."""
        return rng.uniform(*symmetric("RandomRotation", "degrees", self.degrees))

    def change(self, image: Images, drawn: float, is_mask: bool) -> Images:
        """The image, rotated."""
        resample = resampling("nearest" if is_mask else self.interpolation)
        fill = self.mask_fill if is_mask else self.fill
        return through_pillow(
            image, lambda picture: picture.rotate(drawn, resample, fillcolor=colour(picture, fill))
        )


def resized(image: Images, size: tuple[int, int], interpolation: str = "bilinear") -> Images:
    """An image (C, H, W) in another size (height, width), by Pillow's resize."""
    if image.shape[1:] == size:
        return image
    resample = resampling(interpolation)
    return through_pillow(image, lambda picture: picture.resize(size[::-1], resample))


def through_pillow(image: Images, change: Callable[[Any], Any]) -> Images:
    """An image (C, H, W) of any type, changed by a function of Pillow images.

    uint8 images with 1 or 3 channels are one Pillow image; the channels of others are one each, as
    float32, or int32 for integers of more than 8 bits. The result has the image's type.
    """
    require_pillow("transforms")
    if image.dtype == np.uint8 and len(image) in (1, 3):
        return to_array(change(from_array(image)))
    from PIL import Image

    planes: NDArray[Any] = image
    if image.dtype != np.uint8:
        planes = image.astype(np.float32 if image.dtype.kind == "f" else np.int32)
    changed = [np.asarray(change(Image.fromarray(plane))) for plane in planes]
    return np.stack(changed).astype(image.dtype, copy=False)


def colour(picture: Any, value: float) -> Any:
    """A grey value as a colour of a Pillow image."""
    bands = len(picture.getbands())
    level = value if picture.mode == "F" else int(value)
    return level if bands == 1 else (level,) * bands


def resampling(name: str) -> Any:
    """Pillow's constant for an interpolation."""
    require_pillow("transforms")
    from PIL import Image

    return Image.Resampling[name.upper()]


def check_interpolation(op: str, name: str, most: int = 4) -> None:
    """Raises ValueError unless it is one of the first `most` of INTERPOLATIONS."""
    one_of(op, "interpolation", name, INTERPOLATIONS[:most])


def symmetric(op: str, name: str, value: float | tuple[float, float]) -> tuple[float, float]:
    """A range: -value … value, or a pair as it is. Raises TypeError or ValueError."""
    if isinstance(value, tuple | list):
        return ordered_pair(op, name, value, -math.inf)
    end = number(op, name, value)
    if not 0.0 <= end < math.inf:
        raise ValueError(f"[{op}] {name} must not be negative, got {value}; or give (low, high)")
    return -end, end


def _middle(length: int, wanted: int) -> int:
    """Where the middle begins, rounded as torchvision does; negative if it is longer."""
    if length >= wanted:
        return round((length - wanted) / 2.0)
    return -((wanted - length) // 2)


def _padding(begin: int, wanted: int, length: int) -> tuple[int, int]:
    """Pixels to add before and after."""
    before = max(-begin, 0)
    return before, max(wanted - length - before, 0)
