"""Inputs of models: arrays that become tensors, and examples of what `compile` was given."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from .. import tensor
from ..dtypes import is_float
from ..raw.arrays import kind_of
from ..tape.tensor import wrap
from ..tensor import Tensor

if TYPE_CHECKING:
    from .base import Model

#: Element types of arrays that tensors keep.
KEPT = frozenset(map(np.dtype, ("float32", "float16", "int32", "int8", "uint8", "bool")))
#: Types of arguments in which there is no array.
NO_ARRAYS = frozenset({Tensor, type(None), bool, int, float, str})
#: Most elements of an input that `compile` keeps.
_MOST_KEPT = 1 << 16
#: Shape, type and, if they are few, elements of an input, or those of a list of inputs.
Like = tuple[Any, ...] | list["Like"]


def like_of(x: Any) -> Like:
    """What is kept of an argument of `compile`."""
    if isinstance(x, list | tuple):
        return [like_of(item) for item in x]
    if not isinstance(x, Tensor):
        raise TypeError(
            f"[compile] expected examples of the inputs, such as tensor.zeros((1, 3, 32, 32)), got "
            f"{kind_of(x)}"
        )
    elements = () if x.size() > _MOST_KEPT else (x.numpy().copy(),)
    return tuple(x.shape), x.dtype, *elements


def with_type(like: Any, dtype: Any) -> Any:
    """The inputs, in which floats have this type."""
    if isinstance(like, list):
        return [with_type(item, dtype) for item in like]
    shape, its_type, *elements = like
    return (shape, dtype if is_float(its_type) else its_type, *elements)


def example(like: Like, device: Any) -> Any:
    """A tensor like that argument: its elements if they were few, or zeros."""
    if isinstance(like, list):
        return [example(item, device) for item in like]
    shape, dtype, *elements = like
    return Tensor(shape, device, dtype, *elements)


def as_tensor(array: np.ndarray, device: Any = None) -> Tensor:
    """Converts an array as `from_numpy` does; int64 stays where values do not fit int32."""
    try:
        return tensor.from_numpy(array, device)
    except ValueError:
        return tensor.from_numpy(array, device, dtype=tensor.int64)


def as_tensors(model: Model, values: Any) -> Any:
    """The values, also in lists and tuples, in which arrays are tensors on the model's device."""
    if type(values) not in (list, tuple):
        return as_tensors(model, (values,))[0] if _is_array(values) else values
    found: list[Any] = []
    device, copies = None, True
    for value in values:
        is_numpys = type(value) is np.ndarray  # the usual one, with few calls of Python
        if not is_numpys and not _is_array(value):
            found.append(as_tensors(model, value))
            continue
        if device is None and (device := model._place.device(model)) is not None:
            copies = device.kind() == _c.DeviceKind_kCpu
        # NumPy does not have it.
        if not is_numpys and str(getattr(value, "dtype", "")) == "torch.bfloat16":
            found.append(tensor.from_dlpack(value, device, copy=True))
            continue
        array = value if is_numpys else np.asarray(value)
        if array.dtype.kind not in "biuf":
            found.append(value)
            continue
        if array.dtype == np.float64 and model._place.dtype(model) == tensor.float64:
            found.append(tensor.from_numpy(array, device, dtype=tensor.float64))
        elif device is None or type(array) is not np.ndarray or array.dtype not in KEPT:
            found.append(as_tensor(array, device))
        else:  # the same with fewer calls
            raw = _c.from_buffer(array, copies or not array.flags.writeable)
            found.append(wrap(raw.ToDevice(device), True))
    return values if all(map(is_, found, values)) else type(values)(found)


def _is_array(value: Any) -> bool:
    """Whether it is an array of NumPy, or one of another library, such as a tensor of PyTorch or a
    table of pandas, of which NumPy makes one."""
    kind = type(value)
    if kind in NO_ARRAYS or isinstance(value, Tensor | _c.Tensor | np.generic):
        return False
    return kind is np.ndarray or hasattr(kind, "__array__")
