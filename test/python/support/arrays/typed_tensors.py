"""Tensors of all element types, for tests."""

import numpy as np
from singa.tensor import Tensor

TYPES = [
    "float32", "float16", "int32", "int8", "float64", "uint8", "bfloat16", "int64", "bool",
]  # fmt: skip
INTEGERS = ["int8", "uint8", "int32", "int64"]


def of(values, dtype="int32"):
    return Tensor(data=np.array(values), dtype=dtype)


def elements(t):
    return np.ravel(t.as_type("float64").numpy() if "float" in str(t.dtype) else t.numpy()).tolist()
