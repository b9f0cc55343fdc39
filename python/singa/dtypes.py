"""Element types: the names that users write, and their NumPy counterparts."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from . import singa_wrap as _c


class DType(enum.IntEnum):
    """An element type. Equal to the integer that SINGA's scripts and files use for it."""

    float32 = _c.kFloat32
    float16 = _c.kFloat16
    int32 = _c.kInt32
    int8 = _c.kInt8
    float64 = _c.kFloat64
    uint8 = _c.kUInt8
    bfloat16 = _c.kBFloat16
    int64 = _c.kInt64
    bool = _c.kBool

    def __repr__(self) -> str:
        return f"singa.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


float32 = DType.float32
float16 = DType.float16
float64 = DType.float64
bfloat16 = DType.bfloat16
int8 = DType.int8
int32 = DType.int32
int64 = DType.int64
uint8 = DType.uint8
bool_ = DType.bool

# By value, for the way from C++ to Python.
BY_VALUE: tuple[DType, ...] = tuple(DType(value) for value in range(len(DType)))

# bfloat16 is left out: NumPy has no such type.
_NUMPY: dict[DType, np.dtype[Any]] = {
    dtype: np.dtype(dtype.name) for dtype in DType if dtype is not DType.bfloat16
}
_FROM_NUMPY = {numpy: dtype for dtype, numpy in _NUMPY.items()}


def as_dtype(value: object) -> DType:
    """The element type meant by a DType, an integer, a name or a NumPy type.

    Raises TypeError for anything else.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value < len(BY_VALUE):
            return BY_VALUE[value]
    elif isinstance(value, str) and value in DType.__members__:
        return DType[value]
    elif value is not None:
        try:
            return _FROM_NUMPY[np.dtype(value)]  # type: ignore[call-overload]
        except (KeyError, TypeError):
            pass
    raise TypeError(f"[dtype] {value!r} is none of {', '.join(DType.__members__)}")


def is_known(dtype: np.dtype[Any]) -> bool:
    """Whether singa has NumPy's type, in its byte order."""
    return dtype in _FROM_NUMPY


def is_float(dtype: int) -> bool:
    """True for float16, bfloat16, float32 and float64."""
    return _c.IsFloat(int(dtype))


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's type of the same values; float32, which holds them exactly, for bfloat16."""
    return _NUMPY.get(dtype) or _NUMPY[DType.float32]
