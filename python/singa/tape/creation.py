"""Functions that make tensors: of raw tensors, arrays, other libraries' memory, and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..device import named_or_default
from ..dtypes import as_dtype, float32
from ..raw.arrays import as_shape, narrowed
from .arguments import names_arguments
from .elements import as_raw
from .tensor import Tensor, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..singa_wrap import Device


@names_arguments
def from_raw_tensor(t: _c.Tensor) -> Tensor:
    """Wraps a raw tensor (`singa_wrap.Tensor`) without a copy.

    >>> raw = tensor.ones((2,)).data
    >>> tensor.from_raw_tensor(raw)
    Tensor([1., 1.], dtype=float32)
    """
    return Tensor(data=t)


@names_arguments
def from_raw_tensors(tt: Sequence[_c.Tensor]) -> list[Tensor]:
    """Wraps each raw tensor without a copy.

    >>> raw = tensor.ones((2,)).data
    >>> tensor.from_raw_tensors([raw, raw])
    [Tensor([1., 1.], dtype=float32), Tensor([1., 1.], dtype=float32)]
    """
    return [from_raw_tensor(t) for t in tt]


@names_arguments
def from_numpy(np_array: NDArray[Any], dev: Device | None = None, dtype: object = None) -> Tensor:
    """Copies an array to a tensor on `dev` (default: the default device).

    Without `dtype`, float64 becomes float32, and integers other than int8 and uint8 become int32,
    as in SINGA. Raises ValueError if a value does not fit the type, TypeError for element types
    that singa does not have.

    >>> tensor.from_numpy(np.array([1.0, 2.0]))
    Tensor([1., 2.], dtype=float32)
    >>> tensor.from_numpy(np.array([1, 2])).dtype
    singa.int32
    >>> tensor.from_numpy(np.array([1.0, 2.0]), dtype="float64").dtype
    singa.float64
    """
    array = np.asarray(np_array)
    if dtype is None:
        return Tensor(data=as_raw(narrowed(array), device=dev))
    return Tensor(data=as_raw(array, as_dtype(dtype), dev))


@names_arguments
def from_dlpack(t: Any, device: Device | None = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares memory with a CPU tensor of another library (PyTorch, NumPy, ...).

    `t` is a DLPack capsule, or an object with `__dlpack__`. With `copy=True` the tensor has memory
    of its own; so it has on a `device` other than the CPU. Raises TypeError for element types that
    singa does not have, ValueError if `copy` is False and the device needs a copy.

    >>> array = np.zeros(3, np.float32)
    >>> t = tensor.from_dlpack(array)
    >>> array[0] = 5
    >>> t
    Tensor([5., 0., 0.], dtype=float32)
    """
    raw = _c.from_dlpack(t.__dlpack__() if hasattr(t, "__dlpack__") else t)
    moved = raw if device is None else raw.ToDevice(device)
    if copy is False and not moved.SharesMemory(raw):
        raise ValueError("[from_dlpack] another device needs a copy, but copy is False")
    return wrap(raw.Clone() if copy and moved.SharesMemory(raw) else moved, True)


@names_arguments
def zeros(shape: Sequence[int], device: Device | None = None, dtype: object = float32) -> Tensor:
    """A tensor of zeros.

    Raises ValueError for a negative length, TypeError for an unknown type.

    >>> tensor.zeros((2, 3))
    Tensor([[0., 0., 0.],
            [0., 0., 0.]], dtype=float32)
    """
    return Tensor(shape, device, as_dtype(dtype))


@names_arguments
def ones(shape: Sequence[int], device: Device | None = None, dtype: object = float32) -> Tensor:
    """A tensor of ones.

    Raises ValueError for a negative length, TypeError for an unknown type.

    >>> tensor.ones((2,), dtype="int32")
    Tensor([1, 1], dtype=int32)
    """
    device = named_or_default(device)
    return Tensor(data=_c.Full(as_shape(shape), 1.0, device, int(as_dtype(dtype))))


@names_arguments
def random(shape: Sequence[int], device: Device | None = None, dtype: object = float32) -> Tensor:
    """Random numbers, uniform in [0, 1), from the generator of the device.

    Raises ValueError for a negative length, TypeError for a type that is not a float.

    >>> x = tensor.random((2, 3))
    >>> x.shape, bool((x < 1).all())
    ((2, 3), True)
    """
    return Tensor(shape, device, as_dtype(dtype)).uniform(0.0, 1.0)


@names_arguments
def zeros_like(t: Tensor) -> Tensor:
    """Zeros with the shape, type and device of `t`.

    >>> tensor.zeros_like(tensor.ones((2,)))
    Tensor([0., 0.], dtype=float32)
    """
    return Tensor(t.shape, t.device, t.dtype)


@names_arguments
def ones_like(t: Tensor) -> Tensor:
    """Ones with the shape, type and device of `t`.

    >>> tensor.ones_like(tensor.zeros((2,)))
    Tensor([1., 1.], dtype=float32)
    """
    return ones(t.shape, t.device, t.dtype)
