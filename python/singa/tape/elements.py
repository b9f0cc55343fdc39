"""Raw tensors of what Python code gives, and of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..device import checked_device, named_or_default
from ..dtypes import as_dtype
from ..raw.arrays import converted, narrowed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..singa_wrap import Device
    from .tensor import Tensor


def as_raw(value: object, dtype: int | None = None, device: Device | None = None) -> _c.Tensor:
    """The raw tensor of a Tensor, or of a copy of an array or number, in this type and place.

    Without a device, tensors stay where they are, and others go to the default one. Arrays keep
    their type unless `dtype` is given; Python numbers become float32, int32 or bool.
    """
    if isinstance(value, _c.TapeTensor):
        raw: _c.Tensor = value.data  # type: ignore[attr-defined]
    elif isinstance(value, _c.Tensor):
        raw = value
    else:
        array = np.asarray(value)
        if dtype is not None and array.dtype.kind in "biuf":
            array = converted(array, as_dtype(dtype))
        elif not isinstance(value, (np.ndarray, np.generic)):
            array = narrowed(array)
        if device is not None and not isinstance(device, _c.Device):
            checked_device("tensor", device)
        device = named_or_default(device)
        raw = from_array(array, device)
    if dtype is not None:
        raw = raw.AsType(int(dtype))
    return raw if device is None else raw.ToDevice(device)


def from_array(array: NDArray[Any], device: Device | None) -> _c.Tensor:
    """A copy on the CPU; or the memory itself, where a GPU takes a copy of it at once."""
    copied_anyway = device is not None and device.kind() != _c.DeviceKind_kCpu
    try:
        return _c.from_buffer(array, not (copied_anyway and array.flags.writeable))
    except TypeError:
        if array.dtype.kind not in "biuf":
            raise TypeError(
                f"[tensor] a tensor does not hold {array.dtype}: x.astype(np.float32) makes "
                "numbers of objects and texts"
            ) from None
        raise


def flattened(t: Tensor, function: str) -> _c.Tensor:
    """All elements as one axis, as a view: writes reach the tensor."""
    t.data.MakePlain()
    flat = t.data.Reshape((-1,))
    if not flat.SharesMemory(t.data):
        raise ValueError(f"[{function}] the tensor is a view that does not lie in row-major order")
    return flat
