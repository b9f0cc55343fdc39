"""Decodes picture files with Pillow, which loads when the first one is read."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import sys
import threading
import warnings
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..raw.check import integer

#: Suffixes of files that are taken for pictures.
SUFFIXES = frozenset(
    (
        *(".avif", ".bmp", ".dib", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg"),
        *(".j2k", ".jp2", ".jpx", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tga", ".tif"),
        *(".tiff", ".webp"),
    )
)
#: Suffixes of pictures, arrays and films that are not read.
UNREADABLE_SUFFIXES = frozenset(
    (
        *(".arw", ".avi", ".cr2", ".cr3", ".dcm", ".dng", ".exr", ".fits", ".hdr", ".heic"),
        *(".heif", ".ico", ".jxl", ".mat", ".mov", ".mp4", ".nef", ".nii", ".npy", ".npz", ".orf"),
        *(".pcx", ".pdf", ".psd", ".raw", ".sgi", ".svg", ".webm"),
    )
)

# Formats that Pillow decodes by itself. EPS, for example, would start another program.
_FORMATS = (
    *("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA", "TIFF"),
    "WEBP",
)
_GREY_16 = ("I;16", "I;16B", "I;16L", "I;16N", "I")
#: How Pillow calls the bytes of such colours.
_COLOURS_16 = re.compile(r"(RGB[AXa]?|LA);16")
#: Levels of 16 bits that are all smaller are said: cameras write 10 to 14 bits of them.
_DARK = 1 << 14
_has_warned = threading.Event()

#: A file's name, or an open binary file.
File = str | os.PathLike[str] | IO[bytes]


class BrokenPictureError(ValueError):
    """A file that cannot be decoded. The message names it; `reason` is the message without it.

    >>> from pathlib import Path
    >>> Path("broken.png").write_bytes(b"no picture")
    10
    >>> try:
    ...     data.read_picture("broken.png")
    ... except data.BrokenPictureError as error:
    ...     print(error)
    ...
    [read_picture] broken.png: not a picture
    """

    def __init__(self, op: str, path: File, error: Exception | str) -> None:
        unidentified = type(error).__name__ == "UnidentifiedImageError"
        name = _name_of(path)
        suffix = os.path.splitext(name)[1].lower()
        if not unidentified:
            self.reason = str(error) or type(error).__name__
        elif suffix in UNREADABLE_SUFFIXES:
            self.reason = f"{suffix} is not read: convert it to PNG or JPEG"
        else:
            self.reason = "not a picture"
        super().__init__(f"[{op}] {name}: {self.reason}")


def require_pillow(what: str) -> None:
    """Raises ImportError that says what needs Pillow, if it is not installed."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise ImportError(f"[{what}] needs Pillow: pip install pillow") from None


def read_picture(
    path: Any, channels: int = 3, shorter_side: int | None = None
) -> NDArray[np.uint8]:
    """Decodes a picture to uint8 (channels, H, W), values from 0 to 255.

    path          a file's name, or an open binary file, such as io.BytesIO; the bytes of a file; or
                  a Pillow image
    channels      3 (the default): red, green, blue; 1: grey
    shorter_side  a picture whose shorter side is longer than this is reduced to it while it is
                  decoded, which is much faster for JPEG files; None (the default): never

    The picture is turned as its EXIF orientation says. Grey, palette, CMYK and other colours are
    converted, 16-bit values are scaled. Transparent pixels are blended with white. Of an animation,
    the first image counts. A warning, one in a process, says if the 16-bit values of a picture use
    14 bits or fewer, which makes it dark: which level is white is not guessed.

    Raises FileNotFoundError if there is no such file, BrokenPictureError, a ValueError, if it
    cannot be decoded, and ImportError without Pillow.

    >>> from PIL import Image
    >>> Image.new("RGB", (8, 6), "red").save("red.png")
    >>> picture = data.read_picture("red.png")
    >>> picture.shape, picture[:, 0, 0]
    ((3, 6, 8), array([255,   0,   0], dtype=uint8))
    """
    check_channels("read_picture", channels)
    picture, has_16_bits = _decoded("read_picture", path, shorter_side)
    try:
        if has_16_bits:
            _check_levels(picture, path)
        picture = _converted(picture, channels)
    except ValueError as error:
        raise BrokenPictureError("read_picture", path, error) from error
    if shorter_side is not None and min(picture.size) > shorter_side:
        from PIL import Image

        size = scaled_size(picture.size, shorter_side)
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    return to_array(picture)


def read_mask(path: File) -> NDArray[np.int32]:
    """Reads the class of each pixel, int32 (H, W), from a picture without loss, such as PNG.

    Of a palette picture the numbers are the classes, of a grey one (8 or 16 bits) the values, of a
    black and white one 0 and 1. An EXIF orientation is applied.

    Raises as read_picture does, and BrokenPictureError for a picture with several channels, and for
    JPEG, which changes numbers.

    >>> from PIL import Image
    >>> Image.new("L", (3, 1), 2).save("mask.png")
    >>> data.read_mask("mask.png")
    array([[2, 2, 2]], dtype=int32)
    """
    mask, _ = _decoded("read_mask", path, None)
    if getattr(mask, "format", None) in ("JPEG", "MPO"):
        reason = "a mask must be a picture without loss, such as PNG: JPEG changes numbers"
        raise BrokenPictureError("read_mask", path, reason)
    if mask.mode not in ("1", "L", "P", *_GREY_16):
        reason = f"a mask must be grey or have a palette, this one is {mask.mode}"
        raise BrokenPictureError("read_mask", path, reason)
    return np.array(mask).astype(np.int32)


def _decoded(op: str, path: Any, shorter_side: int | None) -> tuple[Any, bool]:
    """The Pillow image in a file, turned as its EXIF orientation says, and whether the file has
    levels of 16 bits. A JPEG picture may be reduced, to more than `shorter_side`."""
    require_pillow(op)
    from PIL import Image, ImageOps

    if isinstance(path, bytes | bytearray | memoryview):
        path = io.BytesIO(path)
    try:
        if isinstance(path, Image.Image):
            return ImageOps.exif_transpose(path), path.mode in _GREY_16
        with Image.open(path, formats=_known_formats()) as file:
            if shorter_side is not None and file.format == "JPEG":
                # The decoder halves sides up to three times, and leaves them long enough.
                scale = shorter_side / min(file.size)
                if scale <= 0.5:
                    file.draft(
                        None, (math.ceil(file.width * scale), math.ceil(file.height * scale))
                    )
            kinds = [str(tile[3]) for tile in file.tile]
            has_16_bits = file.mode in _GREY_16 or any(map(_COLOURS_16.match, kinds))
            file.load()
            with contextlib.suppress(Exception):  # damaged EXIF data do not spoil the pixels
                ImageOps.exif_transpose(file, in_place=True)
            return file, has_16_bits
    except FileNotFoundError:
        raise
    except Exception as error:  # decoders raise anything for damaged files
        raise BrokenPictureError(op, path, error) from error


def picture_size(path: Any) -> tuple[int, int]:
    """(width, height) of a picture in a file as it is stored, or in its bytes, without decoding it.
    Raises as `read_picture` does."""
    require_pillow("picture_size")
    from PIL import Image

    if isinstance(path, bytes):
        path = io.BytesIO(path)
    try:
        with Image.open(path, formats=_known_formats()) as file:
            return file.size
    except FileNotFoundError:
        raise
    except Exception as error:  # decoders raise anything for damaged files
        raise BrokenPictureError("picture_size", path, error) from error


def scaled_size(size: tuple[int, int], shorter_side: int) -> tuple[int, int]:
    """The size with the same proportions and this shorter side, rounded as torchvision does."""
    first, second = size
    if first <= second:
        return shorter_side, int(shorter_side * second / first)
    return int(shorter_side * first / second), shorter_side


def is_pillow(value: object) -> bool:
    """Whether it is an image of Pillow, which is not imported for that."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def check_channels(op: str, channels: int) -> int:
    """The number of channels of decoded pictures. Raises ValueError unless it is 1 or 3."""
    if integer(op, "channels", channels) not in (1, 3):
        raise ValueError(f"[{op}] channels must be 1 or 3, got {channels}")
    return int(channels)


def to_array(picture: Any) -> NDArray[np.uint8]:
    """A Pillow image as an array (C, H, W)."""
    array = np.asarray(picture)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def from_array(image: NDArray[np.uint8]) -> Any:
    """An array uint8 (C, H, W) with 1 or 3 channels as a Pillow image."""
    from PIL import Image

    return Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))


def _name_of(path: Any) -> str:
    is_path = isinstance(path, str | os.PathLike)
    return os.fsdecode(path) if is_path else str(getattr(path, "name", "the file"))


def _check_levels(picture: Any, path: Any) -> None:
    """Warns once in a process of a picture with 16 bits that is dark, perhaps since its levels use
    fewer of them. Of colours Pillow has kept the upper 8 bits."""
    if _has_warned.is_set():
        return
    is_grey = picture.mode in _GREY_16
    levels = np.asarray(picture)
    most = int((levels if is_grey else levels[..., : 1 if picture.mode == "LA" else 3]).max())
    if not is_grey:
        most = 256 * most + 255
    if not 0 < most < _DARK:
        return
    _has_warned.set()
    bits = max(most.bit_length(), 8)
    warnings.warn(
        f"[read_picture] {_name_of(path)}: no level is above {most}, and white is 65535, so it "
        f"becomes dark. If {2**bits - 1} is white, multiply the levels by {2 ** (16 - bits)} and "
        "save them with 16 bits. Other pictures may be so, too: this is said once",
        stacklevel=3,
    )


def _converted(picture: Any, channels: int) -> Any:
    from PIL import Image

    mode = "RGB" if channels == 3 else "L"
    if picture.mode in _GREY_16:
        levels = np.asarray(picture).astype(np.int64)
        if levels.min() < 0 or levels.max() > 65535:
            raise ValueError(f"levels from {levels.min()} to {levels.max()} are not 16 bits")
        picture = Image.fromarray(((levels * 255 + 32767) // 65535).astype(np.uint8))
    elif picture.mode == "F":
        raise ValueError("float pixels have no known range; convert it to 8 or 16 bits")
    elif picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, picture)
    return picture if picture.mode == mode else picture.convert(mode)


def _known_formats() -> list[str]:
    from PIL import Image

    Image.init()
    return [name for name in _FORMATS if name in Image.OPEN]
