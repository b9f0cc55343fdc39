"""Element types by the numbers and names that files have."""

from __future__ import annotations

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


def type_name(number: int) -> str:
    """The name of an element type, given by its number in a file."""
    return NAMES.get(number, f"type {number}")


def singas_name(name: str) -> str:
    """The name of an element type that the oldest operators name as TensorProto does."""
    return {"float": "float32", "double": "float64"}.get(name.lower(), name.lower())
