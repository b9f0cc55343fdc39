"""SINGA's image_tool: augmentation of Pillow images.

Functions work on one image. `ImageTool` applies them to lists of images:

    tool = ImageTool()
    def transform(path):  # for data.ImageBatchIter
        return tool.load(path).resize_by_range((112, 128)).random_crop((96, 96)).flip().get()

Random numbers come from Python's `random` module; `random.seed` makes results reproducible.
"""

from __future__ import annotations

import importlib
import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..raw.check import one_of

if TYPE_CHECKING:
    from PIL.Image import Image

Size = tuple[int, int]

_CORNERS = ("left_top", "left_bottom", "right_top", "right_bottom", "center")


def load_img(path: str | os.PathLike[str], grayscale: bool = False) -> Image:
    """Reads an image file as RGB, or as greyscale. 16-bit levels are scaled to 8 bits.

    Raises OSError that names the file if it cannot be read, ImportError if Pillow is missing.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> Image.new("RGB", (8, 6)).save("cat.png")
    >>> image_tool.load_img("cat.png").size
    (8, 6)
    """
    pillow = _pillow("Image")
    try:
        with pillow.open(path) as image:
            return _in_8_bits(image).convert("L" if grayscale else "RGB")
    except Exception as error:  # Pillow raises many types, also SyntaxError
        named = isinstance(error, OSError) and os.fspath(path) in str(error)
        if named or isinstance(error, MemoryError):
            raise
        raise OSError(f"[load_img] {os.fspath(path)}: {error}") from error


def _in_8_bits(image: Image) -> Image:
    """The image; one of 16 or 32 bits, which Pillow would cut off at 255, with levels of 8 bits."""
    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    levels = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
    return cast("Image", _pillow("Image").fromarray(((levels + 128) // 257).astype(np.uint8)))


def crop(img: Image, patch: Size, position: str) -> Image:
    """Cuts out the part of size `patch` (width, height) at `position`.

    `position` is left_top, left_bottom, right_top, right_bottom or center. Raises ValueError for
    another position, or if the image is smaller than the patch.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> image_tool.crop(Image.new("RGB", (8, 6)), (4, 4), "center").size
    (4, 4)
    """
    width, height = _check_patch("crop", img, patch)
    free = img.size[0] - width, img.size[1] - height
    one_of("crop", "position", position, _CORNERS)
    if position == "center":
        left, top = free[0] // 2, free[1] // 2
    else:
        left = free[0] if position.startswith("right") else 0
        top = free[1] if position.endswith("bottom") else 0
    return img.crop((left, top, left + width, top + height))


def crop_and_resize(img: Image, patch: Size, position: str) -> Image:
    """Cuts out the largest square at `position` and resizes it to `patch` (width, height).

    `position` is left, center or right for a wide image, and top, middle or bottom for a high one.
    Raises ValueError for another position.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> image_tool.crop_and_resize(Image.new("RGB", (8, 6)), (4, 4), "left").size
    (4, 4)
    """
    width, height = img.size
    side = min(width, height)
    places = {
        "left": (0, 0),
        "center": ((width - side) // 2, 0),
        "right": (width - side, 0),
        "top": (0, 0),
        "middle": (0, (height - side) // 2),
        "bottom": (0, height - side),
    }
    left, top = places[one_of("crop_and_resize", "position", position, places)]
    return img.crop((left, top, left + side, top + side)).resize((patch[0], patch[1]))


def resize(img: Image, small_size: int | Size) -> Image:
    """Resizes an image.

    With a number, the smaller side gets this length and the aspect ratio is kept. A pair is the new
    (width, height). Raises ValueError for a number below 1.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> image_tool.resize(Image.new("RGB", (8, 6)), 3).size
    (4, 3)
    """
    if isinstance(small_size, Sequence):
        return img.resize((int(small_size[0]), int(small_size[1])))
    if small_size < 1:
        raise ValueError(f"[resize] small_size must be positive, got {small_size}")
    width, height = img.size
    smaller = min(width, height)
    return img.resize((width * small_size // smaller, height * small_size // smaller))


scale = resize


def resize_by_hw(img: Image, size: Size) -> Image:
    """Resizes an image to `size`, which is (height, width).

    Raises ValueError for sizes below 1.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> image_tool.resize_by_hw(Image.new("RGB", (8, 6)), (3, 5)).size
    (5, 3)
    """
    height, width = size
    return img.resize((int(width), int(height)))


def flip(img: Image) -> Image:
    """Mirrors an image left to right.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> img = Image.new("L", (2, 1))
    >>> img.putpixel((0, 0), 255)
    >>> image_tool.flip(img).getpixel((1, 0))
    255
    """
    return _pillow("ImageOps").mirror(img)


def flip_down(img: Image) -> Image:
    """Mirrors an image top to bottom.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> img = Image.new("L", (1, 2))
    >>> img.putpixel((0, 0), 255)
    >>> image_tool.flip_down(img).getpixel((0, 1))
    255
    """
    return _pillow("ImageOps").flip(img)


def rotate(img: Image, angle: float) -> Image:
    """Rotates an image counter-clockwise by `angle` degrees. The size stays, corners are black.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> image_tool.rotate(Image.new("RGB", (8, 6)), 10).size
    (8, 6)
    """
    return img.rotate(angle)


def color_cast(img: Image, offset: int) -> Image:
    """Adds a random number from -offset to offset to each channel. Values are clipped to 0 … 255.

    Raises ValueError if `offset` is negative.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> image_tool.color_cast(Image.new("RGB", (8, 6)), 20).size
    (8, 6)
    """
    if offset < 0:
        raise ValueError(f"[color_cast] offset must not be negative, got {offset}")
    shifts = [random.randint(-offset, offset) for _ in img.getbands()]
    # `point` takes a lookup table with 256 entries per channel.
    return img.point([min(max(value + shift, 0), 255) for shift in shifts for value in range(256)])


def enhance(img: Image, scale: float) -> Image:
    """Changes colour, brightness, contrast and sharpness, each by a random factor from 1 - scale
    to 1 + scale.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> image_tool.enhance(Image.new("RGB", (8, 6)), 0.2).size
    (8, 6)
    """
    module = _pillow("ImageEnhance")
    for kind in (module.Color, module.Brightness, module.Contrast, module.Sharpness):
        img = kind(img).enhance(random.uniform(1.0 - scale, 1.0 + scale))
    return img


def get_list_sample(l: Iterable[Any], sample_size: int) -> list[Any]:  # noqa: E741 (SINGA's name)
    """A random sample of `sample_size` elements without replacement, in their original order.

    >>> from singa import image_tool
    >>> image_tool.get_list_sample([1, 2, 3], 3)
    [1, 2, 3]
    """
    samples = list(l)
    return [samples[index] for index in sorted(random.sample(range(len(samples)), sample_size))]


class ImageTool:
    """A list of images, with methods that replace each image by one or more augmented ones.

    A method returns the tool, so that calls can be chained. With `inplace=False` it returns a list
    of the new images and leaves those of the tool unchanged. `num_case` is the number of results
    per image, which are chosen at random from all cases. Raises ValueError if `num_case` is less
    than 1 or greater than the number of cases.

    >>> from PIL import Image
    >>> from singa import image_tool
    >>> tool = image_tool.ImageTool().set([Image.new("RGB", (8, 6))])
    >>> [img.size for img in tool.resize_by_list([3]).get()]
    [(4, 3)]
    """

    def __init__(self) -> None:
        self.imgs: list[Image] = []
        self._cases = 1

    def load(self, path: str | os.PathLike[str], grayscale: bool = False) -> ImageTool:
        """Replaces the images by the image in a file."""
        return self.set([load_img(path, grayscale)])

    def append(self, img: Image) -> ImageTool:
        """Adds an image."""
        self.imgs.append(img)
        return self

    def append_list(self, imgs: Iterable[Image]) -> ImageTool:
        """Adds images."""
        self.imgs.extend(imgs)
        return self

    def set(self, imgs: Iterable[Image]) -> ImageTool:
        """Replaces the images by `imgs`."""
        self.imgs = list(imgs)
        self._cases = 1
        return self

    def get(self) -> list[Image]:
        """The images."""
        return self.imgs

    def num_augmentation(self) -> int:
        """Number of images that one image has become since `load` or `set`."""
        return self._cases

    def resize_by_range(self, rng: Size, inplace: bool = True) -> Any:
        """`resize` with a random length of the smaller side, from rng[0] to rng[1] - 1."""
        return self.resize_by_list(range(rng[0], rng[1]), 1, inplace)

    def resize_by_list(
        self, size_list: Sequence[int | Size], num_case: int = 1, inplace: bool = True
    ) -> Any:
        """`resize` to `num_case` of the sizes."""
        return self._apply("resize_by_list", size_list, resize, num_case, inplace)

    def resize_by_hw_range(self, rng: tuple[Size, Size], inplace: bool = True) -> Any:
        """`resize` to a random (height, width), from rng[0] inclusive to rng[1] exclusive.

        ((64, 96), (80, 128)) gives heights from 64 to 79 and widths from 96 to 127.
        """
        (top, left), (bottom, right) = rng
        if not (0 < top < bottom and 0 < left < right):
            raise ValueError(
                f"[resize_by_hw_range] the range from {rng[0]} to {rng[1]} (exclusive) is empty"
            )

        def change(img: Image, _: None) -> Image:
            height, width = random.randrange(top, bottom), random.randrange(left, right)
            return resize(img, (width, height))

        return self._apply("resize_by_hw_range", (None,), change, 1, inplace)

    def resize_by_hw_list(
        self, size_list: Sequence[Size], num_case: int = 1, inplace: bool = True
    ) -> Any:
        """`resize` to `num_case` of the sizes (height, width)."""
        sizes = [(width, height) for height, width in size_list]
        return self._apply("resize_by_hw_list", sizes, resize, num_case, inplace)

    def scale_by_range(self, rng: Size, inplace: bool = True) -> Any:
        """Same as `resize_by_range`."""
        return self.resize_by_range(rng, inplace)

    def scale_by_list(
        self, size_list: Sequence[int | Size], num_case: int = 1, inplace: bool = True
    ) -> Any:
        """Same as `resize_by_list`."""
        return self.resize_by_list(size_list, num_case, inplace)

    def rotate_by_range(self, rng: Size, inplace: bool = True) -> Any:
        """`rotate` by a random integer angle from rng[0] to rng[1] - 1 degrees."""
        return self.rotate_by_list(range(rng[0], rng[1]), 1, inplace)

    def rotate_by_list(
        self, angle_list: Sequence[float], num_case: int = 1, inplace: bool = True
    ) -> Any:
        """`rotate` by `num_case` of the angles."""
        return self._apply("rotate_by_list", angle_list, rotate, num_case, inplace)

    def crop5(self, patch: Size, num_case: int = 1, inplace: bool = True) -> Any:
        """`crop` at `num_case` of the four corners and the centre."""
        return self._apply(
            "crop5", _CORNERS, lambda img, place: crop(img, patch, place), num_case, inplace
        )

    def crop3(self, patch: Size, num_case: int = 1, inplace: bool = True) -> Any:
        """`crop_and_resize` at `num_case` of three positions along the longer side."""
        return self._apply(
            "crop3",
            range(3),
            lambda img, place: crop_and_resize(img, patch, _along(img)[place]),
            num_case,
            inplace,
        )

    def crop8(self, patch: Size, num_case: int = 1, inplace: bool = True) -> Any:
        """`num_case` of the eight results of `crop5` and `crop3`."""

        def cut(img: Image, place: str | int) -> Image:
            if isinstance(place, str):
                return crop(img, patch, place)
            return crop_and_resize(img, patch, _along(img)[place])

        return self._apply("crop8", (*_CORNERS, 0, 1, 2), cut, num_case, inplace)

    def random_crop(self, patch: Size, inplace: bool = True) -> Any:
        """Cuts out a part of size `patch` (width, height) at a random position."""

        def cut(img: Image, _: None) -> Image:
            width, height = _check_patch("random_crop", img, patch)
            left = random.randint(0, img.size[0] - width)
            top = random.randint(0, img.size[1] - height)
            return img.crop((left, top, left + width, top + height))

        return self._apply("random_crop", (None,), cut, 1, inplace)

    def random_crop_resize(self, patch: Size, inplace: bool = True) -> Any:
        """Cuts out a random part and resizes it to `patch` (width, height).

        The part has 8 % to 100 % of the area and an aspect ratio from 3:4 to 4:3, as
        torchvision's RandomResizedCrop. After ten parts that do not fit, the largest square is
        used.
        """

        def cut(img: Image, _: None) -> Image:
            width, height = img.size
            for _attempt in range(10):
                area = random.uniform(0.08, 1.0) * width * height
                ratio = random.uniform(3 / 4, 4 / 3)
                part = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
                if 0 < part[0] <= width and 0 < part[1] <= height:
                    break
            else:
                part = (min(img.size), min(img.size))
            left = random.randint(0, width - part[0])
            top = random.randint(0, height - part[1])
            return img.crop((left, top, left + part[0], top + part[1])).resize((patch[0], patch[1]))

        return self._apply("random_crop_resize", (None,), cut, 1, inplace)

    def flip(self, num_case: int = 1, inplace: bool = True) -> Any:
        """The image or its left-right mirror image, at random; both with num_case=2."""
        return self._apply("flip", (False, True), _maybe(flip), num_case, inplace)

    def flip_down(self, num_case: int = 1, inplace: bool = True) -> Any:
        """The image or its top-bottom mirror image, at random; both with num_case=2."""
        return self._apply("flip_down", (False, True), _maybe(flip_down), num_case, inplace)

    def color_cast(self, offset: int = 20, inplace: bool = True) -> Any:
        """`color_cast` of each image."""
        return self._apply("color_cast", (offset,), color_cast, 1, inplace)

    def enhance(self, scale: float = 0.2, inplace: bool = True) -> Any:
        """`enhance` of each image."""
        return self._apply("enhance", (scale,), enhance, 1, inplace)

    def _apply(
        self,
        name: str,
        cases: Sequence[Any],
        change: Callable[[Any, Any], Image],
        num_case: int,
        inplace: bool,
    ) -> Any:
        if not 1 <= num_case <= len(cases):
            raise ValueError(f"[{name}] num_case must be from 1 to {len(cases)}, got {num_case}")
        changed = [
            change(img, case) for img in self.imgs for case in get_list_sample(cases, num_case)
        ]
        if not inplace:
            return changed
        self.imgs = changed
        self._cases *= num_case
        return self


def _maybe(change: Callable[[Any], Image]) -> Callable[[Any, bool], Image]:
    return lambda img, really: change(img) if really else img


def _along(img: Image) -> tuple[str, str, str]:
    wide = img.size[0] > img.size[1]
    return ("left", "center", "right") if wide else ("top", "middle", "bottom")


def _check_patch(op: str, img: Image, patch: Size) -> Size:
    width, height = patch
    if not (0 < width <= img.size[0] and 0 < height <= img.size[1]):
        raise ValueError(
            f"[{op}] the patch {width} x {height} does not fit the image of "
            f"{img.size[0]} x {img.size[1]}"
        )
    return width, height


def _pillow(module: str) -> Any:
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise ImportError("[image_tool] needs Pillow: pip install pillow") from error
