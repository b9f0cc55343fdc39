"""Augmentation of batches of images with NumPy.

A transform is a function of images (N, C, H, W) and a `numpy.random.Generator` that returns new
images. It does not change its argument, and draws random numbers only from the generator, so the
same generator gives the same result. Any such function can be used.

A transform that moves pixels also has a method `with_masks(images, masks, rng)`, which returns
images and masks (N, H, W) that were moved alike. Where an image was padded, the mask is
`mask_fill`.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..raw.check import fraction, integer, integers, number

Images = NDArray[Any]
Masks = NDArray[Any]
#: Twice the padding from which it may be the size that torchvision's RandomCrop takes first.
_NO_SIZE = 20
Transform = Callable[[Images, np.random.Generator], Images]


def to_float(images: Images) -> NDArray[np.float32]:
    """Converts images to float32. uint8 images are scaled from 0 … 255 to 0 … 1."""
    if images.dtype == np.uint8:
        return images * np.float32(1.0 / 255.0)
    return images.astype(np.float32, copy=False)


def with_mask(
    transform: Any, images: Images, masks: Masks, rng: np.random.Generator
) -> tuple[Images, Masks]:
    """Images (N, C, H, W) and their masks (N, H, W), transformed alike.

    A transform with a method `with_masks(images, masks, rng)` does both; any other one leaves masks
    as they are. Raises ValueError if it changes the size of images.
    """
    if hasattr(transform, "with_masks"):
        return transform.with_masks(images, masks, rng)
    changed = transform(images, rng)
    if changed.shape[2:] != masks.shape[1:]:
        raise ValueError(
            f"[{type(transform).__name__}] changes images from {masks.shape[1:]} to "
            f"{changed.shape[2:]}, and has no method with_masks(images, masks, rng)"
        )
    return changed, masks


class Compose:
    """Applies transforms in order: `Compose(RandomCrop(4), RandomHorizontalFlip(), ...)`, or a list
    of them.

    Raises TypeError if one of them is not callable.

    >>> transform = data.Compose(data.RandomHorizontalFlip(), data.Normalize([0.5], [0.25]))
    >>> images = np.full((1, 1, 2, 2), 255, np.uint8)
    >>> transform(images, np.random.default_rng(0))
    array([[[[2., 2.],
             [2., 2.]]]], dtype=float32)
    """

    def __init__(self, *transforms: Transform | Sequence[Transform]) -> None:
        first: Any = transforms[0] if len(transforms) == 1 else None
        is_list = isinstance(first, list | tuple)
        self.transforms: tuple[Any, ...] = tuple(first) if is_list else transforms
        for transform in self.transforms:
            if not callable(transform):
                raise TypeError(f"[Compose] {transform!r} cannot be called")

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        for transform in self.transforms:
            images = transform(images, rng)
        return images

    def with_masks(
        self, images: Images, masks: Masks, rng: np.random.Generator
    ) -> tuple[Images, Masks]:
        """Images and their masks (N, H, W), which all transforms that move pixels move alike."""
        for transform in self.transforms:
            images, masks = with_mask(transform, images, masks, rng)
        return images, masks

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.transforms))})"


def _size_first(cls: type[RandomCrop]) -> type[RandomCrop]:
    """A decorator: RandomCrop also takes torchvision's `(size, padding=...)`."""
    init = cls.__init__

    @functools.wraps(init)
    def __init__(self: RandomCrop, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if len(args) == 1 and "padding" in kwargs and "size" not in kwargs:
            init(self, size=args[0], **kwargs)
        else:
            init(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls


@_size_first
@dataclass(frozen=True)
class RandomCrop:
    """Pads each image with `padding` pixels of zeros on all sides (default 4), and cuts out a part
    at a random position.

    `size` is the part's side, or (height, width); None, the default, is the image's own size. A
    smaller image lies at a random position in a part of that size. The first argument is the
    padding, but `RandomCrop(32, padding=4)` means what it does in torchvision.

    Raises ValueError for a negative padding, a size below 1, and a padding larger than the size.
    Warns of a padding from 10 on that is half of the images or more: torchvision's first argument
    is the size.

    >>> images = np.ones((1, 1, 4, 4), np.uint8)
    >>> data.RandomCrop(1)(images, np.random.default_rng(0)).shape
    (1, 1, 4, 4)
    """

    padding: int = 4
    size: int | tuple[int, int] | None = None
    mask_fill: int = 0

    def __post_init__(self) -> None:
        integer("RandomCrop", "padding", self.padding, 0)
        if self.size is not None:
            side = min(height_and_width("RandomCrop", self.size))
            if self.padding > side:
                raise ValueError(
                    f"[RandomCrop] padding {self.padding} is larger than size {self.size}: write "
                    f"RandomCrop(padding={side}, size={self.padding}) for torchvision's "
                    f"RandomCrop({self.padding}, {side})"
                )

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        check_images("RandomCrop", images)
        if self.size is None and 2 * self.padding >= max(_NO_SIZE, min(images.shape[2:])):
            warnings.warn(
                f"[RandomCrop] pads images of shape {images.shape[2:]} by {self.padding}: write "
                f"RandomCrop(padding=0, size={self.padding}) for parts of that size",
                stacklevel=2,
            )
        return self._cut(images, self._offsets(images.shape, rng), 0)

    def with_masks(
        self, images: Images, masks: Masks, rng: np.random.Generator
    ) -> tuple[Images, Masks]:
        """The same part of images and masks."""
        check_images("RandomCrop", images, masks=masks)
        offsets = self._offsets(images.shape, rng)
        moved = self._cut(masks[:, None], offsets, self.mask_fill)
        return self._cut(images, offsets, 0), moved[:, 0]

    def _offsets(self, shape: tuple[int, ...], rng: np.random.Generator) -> list[list[int]]:
        """Where the part begins in each image: rows, columns."""
        if self.size is None:
            return rng.integers(-self.padding, self.padding + 1, (shape[0], 2)).tolist()
        last = np.array(shape[2:]) + self.padding - height_and_width("RandomCrop", self.size)
        low, high = np.minimum(-self.padding, last), np.maximum(-self.padding, last)
        return rng.integers(low, high + 1, (shape[0], 2)).tolist()

    def _cut(self, images: Images, offsets: list[list[int]], fill: int) -> Images:
        height, width = images.shape[2:]
        rows, columns = (height, width)
        if self.size is not None:
            rows, columns = height_and_width("RandomCrop", self.size)
        out = np.full((*images.shape[:2], rows, columns), fill, images.dtype)
        # The visible part of each image is copied directly, without a padded image.
        for target, image, (down, right) in zip(out, images, offsets, strict=True):
            top, left = min(rows, max(0, -down)), min(columns, max(0, -right))
            bottom = max(top, min(rows, height - down))
            end = max(left, min(columns, width - right))
            target[:, top:bottom, left:end] = image[
                :, top + down : bottom + down, left + right : end + right
            ]
        return out


@dataclass(frozen=True)
class _RandomFlip:
    """Mirrors each image along `_axis` with probability `p` (default 0.5)."""

    p: float = 0.5

    _axis: ClassVar[int]

    def __post_init__(self) -> None:
        fraction(type(self).__name__, "p", self.p)

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        check_images(type(self).__name__, images)
        return self._mirrored(images, rng.random(len(images)) < self.p)

    def with_masks(
        self, images: Images, masks: Masks, rng: np.random.Generator
    ) -> tuple[Images, Masks]:
        """Mirrors the masks of mirrored images."""
        check_images(type(self).__name__, images, masks=masks)
        chosen = rng.random(len(images)) < self.p
        return self._mirrored(images, chosen), self._mirrored(masks, chosen)

    def _mirrored(self, images: Images, chosen: NDArray[np.bool_]) -> Images:
        if not chosen.any():
            return images
        if chosen.all():
            return np.flip(images, self._axis).copy()
        out = images.copy()
        out[chosen] = np.flip(images[chosen], self._axis)
        return out


@dataclass(frozen=True)
class RandomHorizontalFlip(_RandomFlip):
    """Mirrors each image left to right with probability `p` (default 0.5).

    Raises ValueError for a p outside [0, 1].

    >>> data.RandomHorizontalFlip(1.0)(np.array([[[[1, 2]]]], np.uint8), np.random.default_rng(0))
    array([[[[2, 1]]]], dtype=uint8)
    """

    _axis: ClassVar[int] = -1


@dataclass(frozen=True)
class RandomVerticalFlip(_RandomFlip):
    """Mirrors each image top to bottom with probability `p` (default 0.5).

    Raises ValueError for a p outside [0, 1].

    >>> data.RandomVerticalFlip(1.0)(np.array([[[[1], [2]]]], np.uint8), np.random.default_rng(0))
    array([[[[2],
             [1]]]], dtype=uint8)
    """

    _axis: ClassVar[int] = -2


@dataclass(frozen=True)
class Normalize:
    """Computes (images - mean) / std in float32, with one mean and std per channel.

    uint8 images are scaled to 0 … 1 first; other images are not, and if they seem to be levels of
    0 … 255 where `mean` is not, a warning says so. Raises ValueError if numbers of channels differ,
    if a std is not positive, and for uint8 images if `mean` is of levels 0 … 255.

    >>> data.Normalize([0.5], [0.25])(np.array([[[[0, 255]]]], np.uint8), np.random.default_rng(0))
    array([[[[-2.,  2.]]]], dtype=float32)
    """

    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        _check_statistics("Normalize", self.mean, self.std)

    def __call__(self, images: Images, rng: np.random.Generator | None = None) -> Images:
        check_images("Normalize", images, len(self.mean))
        mean, std = np.asarray(self.mean, np.float64), np.asarray(self.std, np.float64)
        unit = 255.0 if images.dtype == np.uint8 else 1.0
        if unit != 1.0 and mean.max() > 1.0:
            raise ValueError(
                f"[Normalize] mean {self.mean} is of levels 0 to 255, but pixels are scaled to 0 "
                "to 1 before: divide mean and std by 255"
            )
        if unit == 1.0 and mean.max() <= 1.0:
            warn_of_levels("Normalize", images)
        # (x / unit - mean) / std as one multiplication and one addition.
        # In C order: pictures lie as (H, W, C), where NumPy takes five times as long.
        out = np.empty(images.shape, np.float32)
        out[...] = images
        out *= (1.0 / (unit * std)).astype(np.float32)[:, None, None]
        out -= (mean / std).astype(np.float32)[:, None, None]
        return out


@dataclass(frozen=True)
class Cutout:
    """Sets a square at a random position in each image to `fill`.

    `size` is its side in pixels (default 16). The centre of the square is inside the image, so part
    of it may lie outside. After `Normalize`, a `fill` of 0 (the default) is the mean colour.
    DeVries & Taylor 2017, "Improved Regularization of Convolutional Neural Networks with Cutout".

    Raises ValueError for a size below 1.

    >>> images = np.ones((1, 1, 8, 8), np.float32)
    >>> bool((data.Cutout(4)(images, np.random.default_rng(0)) == 0).any())
    True
    """

    size: int = 16
    fill: float = 0.0

    def __post_init__(self) -> None:
        integer("Cutout", "size", self.size, 1)
        number("Cutout", "fill", self.fill)

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        check_images("Cutout", images)
        count, _, height, width = images.shape
        corners = rng.integers(0, (height, width), (count, 2)) - self.size // 2
        out = images.copy()
        for image, (top, left) in zip(out, corners.tolist(), strict=True):
            image[:, max(top, 0) : top + self.size, max(left, 0) : left + self.size] = self.fill
        return out


@dataclass(frozen=True)
class RandomErasing:
    """Erases a rectangle of each image with probability `p` (default 0.5). Zhong et al. 2020,
    "Random Erasing Data Augmentation".

    scale  range of the rectangle's share of the area (default 0.02 to 0.33)
    ratio  range of height / width (default 0.3 to 3.3); its logarithm is uniform
    value  what is written: a number (default 0, which after `Normalize` is the mean colour), or
           "random" for normally distributed noise in each pixel

    As in torchvision, ten rectangles are tried, and if none fits, the image stays as it is.

    Raises ValueError for a p outside [0, 1], and for ranges whose first number is larger.

    >>> images = np.ones((1, 1, 8, 8), np.float32)
    >>> bool((data.RandomErasing(1.0)(images, np.random.default_rng(0)) == 0).any())
    True
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | str = 0.0

    def __post_init__(self) -> None:
        fraction("RandomErasing", "p", self.p)
        ordered_pair("RandomErasing", "scale", self.scale, 0.0, 1.0)
        ordered_pair("RandomErasing", "ratio", self.ratio, 1e-6)
        if self.value != "random":
            number("RandomErasing", "value", self.value)

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        check_images("RandomErasing", images)
        _, channels, height, width = images.shape
        out = images.copy()
        for image in out:
            if rng.random() >= self.p:
                continue
            for _ in range(10):
                area = height * width * rng.uniform(*self.scale)
                ratio = math.exp(rng.uniform(*np.log(self.ratio)))
                rows, columns = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
                if rows < height and columns < width:
                    top = int(rng.integers(height - rows + 1))
                    left = int(rng.integers(width - columns + 1))
                    shape = (channels, rows, columns)
                    image[:, top : top + rows, left : left + columns] = (
                        rng.standard_normal(shape) if self.value == "random" else self.value
                    )
                    break
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

    Raises ValueError for a negative padding and a flip outside [0, 1].

    >>> transform = data.standard_augmentation(data.CIFAR10_MEAN, data.CIFAR10_STD, cutout=8)
    >>> images = np.zeros((2, 3, 32, 32), np.uint8)
    >>> transform(images, np.random.default_rng(0)).shape
    (2, 3, 32, 32)
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


def height_and_width(op: str, size: int | Sequence[int]) -> tuple[int, int]:
    """The (height, width) that a size means: a side of a square, or both.

    Raises TypeError or ValueError for anything else.
    """
    pair = integers(op, "size", [size] * 2 if isinstance(size, int | np.integer) else size, 1)
    if len(pair) != 2:
        raise ValueError(f"[{op}] size must be a side or (height, width), got {size!r}")
    return pair[0], pair[1]


def check_images(
    op: str, images: Images, channels: int | None = None, masks: Masks | None = None
) -> None:
    """Raises ValueError unless images are (N, C, H, W), with `channels`, and masks fit them."""
    if images.ndim != 4:
        raise ValueError(f"[{op}] expected images (N, C, H, W), got shape {images.shape}")
    if channels is not None and images.shape[1] != channels:
        raise ValueError(
            f"[{op}] has statistics for {channels} channels, got images of shape {images.shape}"
        )
    if masks is not None and masks.shape != (len(images), *images.shape[2:]):
        raise ValueError(
            f"[{op}] expected masks (N, H, W) of images {images.shape}, got shape {masks.shape}"
        )


def ordered_pair(
    op: str, name: str, pair: Sequence[float], low: float, high: float = math.inf
) -> tuple[float, float]:
    """Two numbers in [low, high], the smaller one first. Raises TypeError or ValueError."""
    values = [number(op, name, value) for value in pair]
    if len(values) != 2 or not low <= values[0] <= values[1] <= high:
        raise ValueError(
            f"[{op}] {name} must be two numbers from {low:g} to {high:g}, the smaller first, "
            f"got {pair}"
        )
    return values[0], values[1]


def _check_statistics(op: str, mean: Sequence[float], std: Sequence[float]) -> None:
    if isinstance(mean, int | float) or isinstance(std, int | float):
        raise TypeError(
            f"[{op}] mean and std are lists with a number for each channel, such as "
            f"({mean},) of grey images; got {mean} and {std}"
        )
    if not mean or len(mean) != len(std):
        raise ValueError(f"[{op}] expected one mean and std per channel, got {mean} and {std}")
    if not all(np.isfinite(value) for value in mean) or not all(
        np.isfinite(value) and value > 0.0 for value in std
    ):
        raise ValueError(f"[{op}] mean must be finite and std positive, got {mean} and {std}")
