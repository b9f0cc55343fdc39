"""Element types of values by name, and their counterparts in singa and NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGERS = frozenset({"int8", "uint8", "int32", "int64"})
NUMERIC = FLOATS | INTEGERS
BOOL = frozenset({"bool"})
ALL = NUMERIC | BOOL
#: Integers of which singa has no tensors: quantised values, which are held in tensors of int32.
HELD = frozenset({"int16", "uint16", "int4", "uint4", "int2", "uint2"})
#: Others, whose values come in tensors of int32 or int64, and which the host computes.
UNSIGNED = frozenset({"uint32", "uint64"})


def is_singas(name: str) -> bool:
    """Whether tensors of singa have this element type."""
    return name in DType.__members__


def numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type for values that the host computes.

    bfloat16 is that of ml_dtypes, which the onnx package needs, too. Raises ImportError without it,
    and TypeError for strings and for types of less than a byte.
    """
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise ImportError(
                f"a network of bfloat16 needs arrays of it: {error}: pip install ml_dtypes"
            ) from error
        return np.dtype(ml_dtypes.bfloat16)
    try:
        return np.dtype(name)
    except TypeError:
        raise TypeError(f"values of type {name} cannot be computed") from None


def name_of(array: NDArray[Any]) -> str:
    """The element type of an array."""
    return "string" if array.dtype.kind in "OSU" else array.dtype.name.replace("_", "")
