"""Values for tensors: all of them are checked before the first one is written."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import is_float, is_known, numpy_dtype
from ..raw.arrays import converted
from .elements import from_array
from .tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

Value = Tensor | np.ndarray[Any, Any]


def checked(where: str, own: Mapping[str, Tensor], values: Mapping[str, Any]) -> dict[str, Value]:
    """Those of `values` (tensors, arrays, numbers) that have a place in `own`, as `write` takes
    them. Other names are left out.

    Raises TypeError for what is no number, ValueError for another shape, for values that the
    tensor's type does not have, and for a tensor that cannot be written. Messages begin with
    `where`.
    """
    return {name: _checked(where, name, own[name], values[name]) for name in own if name in values}


def _checked(where: str, name: str, own: Tensor, value: Any) -> Value:
    if not isinstance(value, Tensor):
        value = np.asarray(value)
        if value.dtype.kind not in "biuf":
            raise TypeError(f"{where} {name}: expected numbers, got {value!r:.60}")
    elif value.data.empty():
        raise ValueError(f"{where} {name}: the tensor is empty")
    shape = tuple(value.shape)
    if shape != own.shape:
        raise ValueError(f"{where} {name}: shape {shape} does not fit {own.shape}")
    strides = () if own.data.is_blocked() else own.data.strides()
    if any(stride == 0 and length > 1 for stride, length in zip(strides, shape, strict=False)):
        raise ValueError(f"{where} {name}: elements of a broadcast tensor share their memory")
    if isinstance(value, Tensor) and value.dtype == own.dtype:
        return value
    lost = _lost(value.numpy() if isinstance(value, Tensor) else value, own)
    if lost is not None:
        raise ValueError(f"{where} {name}: {lost:g} would be infinite in {own.dtype.name}")
    if isinstance(value, Tensor):
        return value
    try:
        return _readable(value, own)
    except ValueError as error:
        raise ValueError(f"{where} {name}: {error}") from None


def _lost(array: NDArray[Any], own: Tensor) -> float | None:
    """A finite number of an array that the tensor's float type does not hold; None if there is
    none."""
    narrow = numpy_dtype(own.dtype)
    wider = array.dtype.kind == "f" and array.dtype.itemsize > narrow.itemsize
    if not wider or not is_float(own.dtype):
        return None
    with np.errstate(over="ignore"):
        lost = array[np.isinf(array.astype(narrow)) & np.isfinite(array)]
    return float(lost[0]) if lost.size else None


def _readable(array: NDArray[Any], own: Tensor) -> NDArray[Any]:
    """The array in a type that singa has, with elements that the tensor has."""
    if not is_float(own.dtype):
        array = converted(array, own.dtype)
    elif not is_known(array.dtype):
        with np.errstate(over="ignore"):
            array = array.astype(numpy_dtype(own.dtype))
    return np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])


def write(own: Tensor, value: Value) -> None:
    """Copies what `checked` returned for this tensor into it."""
    if isinstance(value, Tensor):
        own.copy_from(value)
    else:
        own.data.CopyFrom(from_array(value, own.device))


def write_all(where: str, own: Mapping[str, Tensor], values: Mapping[str, Value]) -> None:
    """Copies all that `checked` returned.

    Warns, beginning with `where`, if tensors with several names get different values.
    """
    given: dict[int, tuple[str, Value]] = {}
    for name, value in values.items():
        first, other = given.setdefault(id(own[name]), (name, value))
        if first != name and not np.array_equal(_numbers(other), _numbers(value)):
            warnings.warn(
                f"{where} {first} and {name} are one tensor, but their values differ: it gets "
                f"those of {name}",
                stacklevel=3,
            )
        write(own[name], value)


def _numbers(value: Value) -> NDArray[Any]:
    return value.numpy() if isinstance(value, Tensor) else value
