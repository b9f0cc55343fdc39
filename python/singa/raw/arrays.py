"""Shapes, and conversion of NumPy arrays to types that singa has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import DType, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as a tuple. Raises TypeError if it is not a sequence."""
    try:
        return tuple(shape)
    except TypeError:
        kind = type(shape).__name__
        raise TypeError(f"[tensor] shape must be a sequence of integers, got {kind}") from None


def converted(array: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Converts an array to `dtype`. Floats are truncated to integers.

    Raises ValueError if `dtype` is an integer type and a value is NaN or outside its range.
    """
    target = numpy_dtype(dtype)
    if target.kind in "iu" and array.size and not np.can_cast(array.dtype, target):
        limits = np.iinfo(target)
        low, high = array.min(), array.max()
        # The largest int64 rounds up to a power of two as a float, which is out of range.
        above = high > limits.max if array.dtype.kind != "f" else high >= float(limits.max) + 1.0
        if not (low >= limits.min and high == high) or above:
            raise ValueError(f"[tensor] values from {low} to {high} do not fit {dtype}")
    return array.astype(target, copy=False)


def narrowed(array: NDArray[Any]) -> NDArray[Any]:
    """Converts an array to the types that SINGA uses: float64 to float32, int64 to int32.

    Raises ValueError if a value does not fit int32.
    """
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype.kind in "iu" and array.dtype not in (np.int8, np.uint8, np.int32):
        narrow = array.astype(np.int32)
        if not np.array_equal(narrow, array):
            raise ValueError(
                f"[from_numpy] {array.dtype} values do not fit int32; pass dtype=tensor.int64"
            )
        return narrow
    return array
