"""Batches of the items of a `Dataset`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .transforms import Transform, to_float, with_mask

#: Makes a batch of items: an array, or a tuple of arrays.
Collate = Callable[[list[Any]], Any]


def transformed(
    dataset: object, item: Any, transform: Transform, rng: np.random.Generator
) -> tuple[Any, ...]:
    """An item whose image, its first part, is transformed, together with the mask, if it has one.

    Raises TypeError if the item does not begin with an image (C, H, W), ValueError if the transform
    returns something else than one image.
    """
    parts = item if isinstance(item, tuple) else (item,)
    image = np.asarray(parts[0])
    if image.ndim != 3 or image.dtype.kind not in "uif":
        raise TypeError(
            f"[DataLoader] a transform needs items that begin with an image (C, H, W); this one "
            f"begins with {image.dtype} of shape {image.shape}. Other items are changed in "
            f"__getitem__ or by collate="
        )
    others = parts[1:]
    if getattr(dataset, "has_masks", False):
        image, mask = with_mask(transform, image[None], np.asarray(others[0])[None], rng)
        others = (mask[0], *others[1:])
    else:
        image = transform(image[None], rng)
    if np.ndim(image) != 4 or len(image) != 1:
        raise ValueError(
            f"[DataLoader] transform returned shape {np.shape(image)} for an image (1, C, H, W)"
        )
    return (image[0], *others)


def collated(items: list[Any], collate: Collate | None) -> tuple[tuple[NDArray[Any], ...], bool]:
    """The arrays of a batch, and whether it is a tuple. Raises TypeError or ValueError for items
    that cannot be stacked."""
    if collate is not None:
        batch = collate(items)
        is_tuple = isinstance(batch, tuple) or _is_of_parts(batch, len(items))
        arrays = tuple(np.ascontiguousarray(part) for part in (batch if is_tuple else (batch,)))
        if len({array.shape[:1] for array in arrays}) != 1 or not arrays[0].ndim:
            shapes = ", ".join(str(array.shape) for array in arrays)
            raise ValueError(
                f"[DataLoader] collate returned shapes {shapes or 'of nothing'}; expected arrays "
                f"whose first axis is that of the items"
            )
        return arrays, is_tuple
    is_tuple = isinstance(items[0], tuple)
    rows = items if is_tuple else [(item,) for item in items]
    if len({len(row) for row in rows}) != 1:
        raise ValueError(
            f"[DataLoader] items have different numbers of parts: {[len(row) for row in rows]}"
        )
    columns = zip(*rows, strict=True)
    return tuple(_stacked(number, list(column)) for number, column in enumerate(columns)), is_tuple


def _is_of_parts(batch: Any, count: int) -> bool:
    """Whether a list has the arrays of a batch, as that of PyTorch's default_collate, and not an
    array for each of the `count` items."""
    if not isinstance(batch, list) or not all(hasattr(each, "shape") for each in batch):
        return False
    shapes = [tuple(each.shape) for each in batch]
    return all(s[:1] == (count,) for s in shapes) and (len(batch) != count or len({*shapes}) > 1)


def _stacked(number: int, values: list[Any]) -> NDArray[Any]:
    arrays = [np.asarray(value) for value in values]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) > 1:
        hint = "collate= can pad them"
        if number == 0 and len(shapes[0]) == 3:
            hint = "data.Resize or data.RandomResizedCrop in the transform gives them one size"
        raise ValueError(
            f"[DataLoader] part {number} of the items has different shapes, such as {shapes[0]} "
            f"and {shapes[-1]}: {hint}"
        )
    # Copied one by one: np.stack keeps the order of transposed pictures in memory.
    array = np.empty((len(arrays), *shapes[0]), np.result_type(*arrays))
    for place, value in enumerate(arrays):
        array[place] = value
    if array.dtype == np.uint8 and array.ndim == 4:
        return to_float(array)
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype.kind in "iu":
        if array.size and not -(1 << 31) <= int(array.min()) <= int(array.max()) < 1 << 31:
            raise ValueError(
                f"[DataLoader] part {number} of the items has numbers from {array.min()} to "
                f"{array.max()}, which do not fit int32"
            )
        return array.astype(np.int32, copy=False)
    if array.dtype.kind != "b":
        advice = ""
        if array.dtype.kind == "O":
            advice = "; x.astype(np.float32) makes numbers of objects"
        elif array.dtype.kind in "US":
            advice = "; classes, y = np.unique(names, return_inverse=True) numbers classes"
        raise TypeError(
            f"[DataLoader] part {number} of the items is {array.dtype}, not numbers: "
            f"{str(values[0])[:40]!r}{advice}"
        )
    return array
