"""Tensors and the arrays that have the same elements."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import autograd
from ..dtypes import DType
from ..tensor import Tensor
from .element_types import HELD, is_singas, name_of, numpy_type
from .errors import Refused

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_tensor(array: NDArray[Any], device: Any) -> Tensor:
    """A constant tensor with the elements of an array: of int32 for those of `HELD`.

    Raises Refused for an element type that singa does not have.
    """
    name = name_of(array)
    if name in HELD:
        name, array = "int32", array.astype(np.int32)
    if not is_singas(name):
        raise Refused(f"singa has no tensors of type {name}")
    if name == "bfloat16":
        array = array.astype(np.float32)
    contiguous = np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])
    return Tensor(array.shape, device, DType[name], contiguous, requires_grad=False)


def as_value(array: NDArray[Any], device: Any) -> Any:
    """A tensor with the elements of an array; texts as objects, and an array of a type that singa
    does not have, stay arrays."""
    array = array.astype(object) if array.dtype.kind in "US" else array
    return as_tensor(array, device) if is_singas(name_of(array)) else array


def as_array(t: Tensor) -> NDArray[Any]:
    """The elements of a tensor as an array of the same element type, also for bfloat16."""
    array = t.numpy()
    return array.astype(numpy_type("bfloat16")) if t.dtype == DType.bfloat16 else array


def same_type(x: Tensor, like: Tensor) -> Tensor:
    """x in the element type of `like`."""
    return x if x.dtype == like.dtype else autograd.cast(x, like.dtype)


def short_number(value: float) -> float:
    """A float of 32 bits as the number that was meant: 1e-5, not 9.99999975e-6.

    It is the shortest decimal number that rounds to these 32 bits, or where that has all digits a
    fraction that does, such as 1/6.
    """
    short = np.float32(value)
    if np.isfinite(short) and len(str(short).strip("-0.").partition("e")[0]) > 7:
        simple = Fraction(float(short)).limit_denominator(100)
        if np.float32(float(simple)) == short:
            return float(simple)
    return float(str(short))
