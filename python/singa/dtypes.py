"""Element types of tensors, and their NumPy counterparts."""

from __future__ import annotations

import enum
from typing import Any, Literal

import numpy as np

from . import singa_wrap as _c


class DType(enum.IntEnum):
    """An element type. Its value is the integer that SINGA's scripts and files use for the type.

    >>> tensor.DType.float32
    singa.float32
    >>> tensor.zeros((1,), dtype="int64").dtype == tensor.int64
    True
    """

    float32 = _c.kFloat32
    float16 = _c.kFloat16
    int32 = _c.kInt32
    int8 = _c.kInt8
    float64 = _c.kFloat64
    uint8 = _c.kUInt8
    bfloat16 = _c.kBFloat16
    int64 = _c.kInt64
    bool = _c.kBool

    def __bool__(self) -> Literal[True]:
        return True  # also float32, whose value is 0: `dtype or default`

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

# Types by value, for conversion from C++.
BY_VALUE: tuple[DType, ...] = tuple(DType(value) for value in range(len(DType)))

# bfloat16 is left out: NumPy has no such type.
_NUMPY: dict[DType, np.dtype[Any]] = {
    dtype: np.dtype(dtype.name) for dtype in DType if dtype is not DType.bfloat16
}
_FROM_NUMPY = {numpy: dtype for dtype, numpy in _NUMPY.items()}


def wide_type(dtype: DType) -> DType:
    """The type in which numbers of `dtype` are computed and summed where its own is too narrow:
    float64 for float64, float32 for all others."""
    return float64 if dtype == float64 else float32


def as_dtype(value: object) -> DType:
    """Converts a DType, an integer, a name or a type of NumPy or PyTorch to a DType.

    Raises TypeError for anything else, and for types that singa does not have.
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
            if (name := str(value).removeprefix("torch.")) in DType.__members__:  # of PyTorch
                return DType[name]
    raise TypeError(f"[dtype] {value!r} is none of {', '.join(DType.__members__)}")


def is_known(dtype: np.dtype[Any]) -> bool:
    """Whether singa has this NumPy type, in native byte order."""
    return dtype in _FROM_NUMPY


def is_float(dtype: int) -> bool:
    """True for float16, bfloat16, float32 and float64."""
    return _c.IsFloat(int(dtype))


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type for `dtype`; float32 for bfloat16, whose values it holds exactly."""
    return _NUMPY.get(dtype) or _NUMPY[DType.float32]
