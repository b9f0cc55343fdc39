"""Inputs of models: arrays that become tensors, and examples of what `compile` was given."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import tensor
from ..dtypes import is_float
from ..tensor import Tensor

#: Element types of arrays that tensors keep.
KEPT = frozenset(map(np.dtype, ("float32", "float16", "int32", "int8", "uint8", "bool")))
#: Most elements of an input that `compile` keeps.
_MOST_KEPT = 1 << 16
#: Shape, type and, if they are few, elements of an input, or those of a list of inputs.
Like = tuple[Any, ...] | list["Like"]


def like_of(x: Any) -> Like:
    """What is kept of an argument of `compile`."""
    if isinstance(x, list | tuple):
        return [like_of(item) for item in x]
    if not isinstance(x, Tensor):
        raise TypeError(f"[compile] expected tensors, got {type(x).__name__}")
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
