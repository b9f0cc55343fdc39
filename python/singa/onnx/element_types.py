"""Element types of ONNX by name, and their counterparts in singa and NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Names by the numbers of TensorProto.DataType. Where singa has the type, its name is the same.
NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1fn",
    24: "float8e8m0fnu",
    25: "uint2",
    26: "int2",
}
NUMBERS = {name: number for number, name in NAMES.items()}

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGERS = frozenset({"int8", "uint8", "int32", "int64"})
NUMERIC = FLOATS | INTEGERS
BOOL = frozenset({"bool"})
ALL = NUMERIC | BOOL
#: Integers of which singa has no tensors: quantised values, which are held in tensors of int32.
HELD = frozenset({"int16", "uint16", "int4", "uint4", "int2", "uint2"})
#: Others, whose values come in tensors of int32 or int64, and which the host computes.
UNSIGNED = frozenset({"uint32", "uint64"})


def type_name(number: int) -> str:
    """The name of an element type, given by its number in a file."""
    return NAMES.get(number, f"type {number}")


def singas_name(name: str) -> str:
    """The name of an element type that the oldest operators name as TensorProto does."""
    return {"float": "float32", "double": "float64"}.get(name.lower(), name.lower())


def is_singas(name: str) -> bool:
    """Whether tensors of singa have this element type."""
    return name in DType.__members__


def numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type for values that the host computes.

    bfloat16 is that of ml_dtypes, which the onnx package needs, too. Raises TypeError for strings
    and for types of less than a byte.
    """
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    try:
        return np.dtype(name)
    except TypeError:
        raise TypeError(f"[onnx] values of type {name} cannot be computed") from None


def name_of(array: NDArray[Any]) -> str:
    """The element type of an array."""
    return "string" if array.dtype.kind in "OSU" else array.dtype.name.replace("_", "")
