"""Shapes, and conversion of NumPy arrays to types that singa has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import DType, int64, numpy_dtype
from .check import integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..singa_wrap import Device

_EXACT = 1 << 53  # up to here a double holds every integer


def as_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as a tuple. Raises TypeError if it is not a sequence."""
    try:
        return tuple(shape)
    except TypeError:
        kind = type(shape).__name__
        given = f"{shape}: write ({shape},)" if isinstance(shape, int) else kind
        raise TypeError(f"[tensor] shape must be a sequence of integers, got {given}") from None


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


def full(shape: tuple[int, ...], value: float, device: Device, dtype: DType) -> _c.Tensor:
    """A raw tensor filled with a number. Large integers keep all bits in an int64 tensor, though
    C++ takes the number as a double.

    Raises ValueError if `dtype` is an integer type that cannot hold it.
    """
    if dtype != int64 or not isinstance(value, int) or -_EXACT <= value <= _EXACT:
        return _c.Full(shape, float(value), device, int(dtype))
    value = integer("fill", "value", value)
    high = _c.Full(shape, float(value >> 32), device, int(int64))
    shifted = _c.Unary(_c.UnaryOp_kMulScalar, high, 2.0**32)
    return _c.Unary(_c.UnaryOp_kAddScalar, shifted, float(value & 0xFFFFFFFF))


def fill(t: _c.Tensor, value: float) -> None:
    """Fills a raw tensor with a number, as `full` does."""
    dtype = DType(t.data_type())
    if dtype != int64 or not isinstance(value, int) or -_EXACT <= value <= _EXACT:
        t.Fill(float(value))
    else:
        t.CopyFrom(full((), value, t.device(), dtype))


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


def kind_of(value: object) -> str:
    """How an error names the type of an argument: a Tensor of another library with its module."""
    kind = type(value)
    home = kind.__module__.partition(".")[0]
    is_ours = kind.__name__ != "Tensor" or home in ("singa", "__main__")
    if is_ours and kind is not np.ndarray:
        return kind.__name__
    name = kind.__name__ if is_ours else f"{home}.Tensor"
    return f"{name}, which tensor.from_numpy converts"
