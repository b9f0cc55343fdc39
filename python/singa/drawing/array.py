"""What is in an array, as HTML: shape, type, statistics, and a picture of images."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .html import Markup, table

#: Most values that are listed, most images that are shown, and the side of one in pixels.
_VALUES, _IMAGES, _SIDE = 32, 8, 96
#: Shorter sides are no images, but more likely filters.
_SMALLEST = 8


def array_table(array: NDArray[Any], kind: str, where: str = "") -> Markup:
    """A table of what is in an array: shape and type, least, mean and largest value, standard
    deviation, numbers of NaN and infinities. Few values are listed. Images (C, H, W) or
    (N, C, H, W) of one or three channels are shown, if Pillow is there.

    kind   the name of the type
    where  the device, unless it is the usual one
    """
    rows: list[tuple[object, object]] = [("shape", array.shape), ("type", kind)]
    if where:
        rows.append(("device", where))
    if array.size and array.size <= _VALUES:
        rows.append(("values", np.array2string(array, separator=", ", precision=4)))
    numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    if finite.size and array.size > 1:
        rows += [("least", f"{finite.min():.6g}"), ("largest", f"{finite.max():.6g}")]
        rows += [("mean", f"{finite.mean():.6g}"), ("standard deviation", f"{finite.std():.6g}")]
    rows += [("NaN", f"{count:,}")] if (count := int(np.isnan(numbers).sum())) else []
    rows += [("infinite", f"{count:,}")] if (count := int(np.isinf(numbers).sum())) else []
    if finite.size and (shown := _images(numbers)) is not None:
        uri = _picture(shown, float(finite.min()), float(finite.max()), array.dtype == np.uint8)
        if uri:
            which = f"first {_IMAGES} images" if len(numbers) > len(shown) else "images"
            alt = f"The {which} of the tensor" if array.ndim == 4 else "The tensor as an image"
            rows.append(("picture", Markup(f'<img src="{uri}" alt="{alt}">')))
    return table(["Tensor", "value"], rows)


def _images(numbers: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The images (N, C, H, W) to show; None if the array holds none."""
    if numbers.ndim == 3:
        numbers = numbers[None]
    if numbers.ndim != 4 or not len(numbers) or numbers.shape[1] not in (1, 3):
        return None
    return numbers[:_IMAGES] if min(numbers.shape[2:]) >= _SMALLEST else None


def _picture(images: NDArray[np.float64], low: float, high: float, as_is: bool) -> str:
    """A URI that holds the images side by side; empty without Pillow. Unless their values are
    `as_is`, black is `low` and white is `high`."""
    try:
        from PIL import Image
    except ImportError:
        return ""
    if not as_is:
        images = (images - low) * (255.0 / ((high - low) or 1.0))
    levels = np.nan_to_num(images, nan=0.0).clip(0, 255).astype(np.uint8)
    row = np.concatenate(list(np.pad(levels, ((0, 0), (0, 0), (0, 0), (0, 1)))), axis=2)
    pixels = row[0] if row.shape[0] == 1 else np.moveaxis(row, 0, -1)
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    scale = _SIDE / max(images.shape[2:])
    size = max(round(picture.width * scale), 1), max(round(picture.height * scale), 1)
    way = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX
    file = io.BytesIO()
    picture.resize(size, way).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
