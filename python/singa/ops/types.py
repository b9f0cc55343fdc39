"""The element type of a result: one rule for all operators, PyTorch's.

Tensors that have axes decide first, then tensors without axes, then Python's numbers, which count
as bool, int64 and float32. Those that decide later change the type only if their kind is higher
(bool < integer < float). Among themselves types promote (`singa_wrap.Promote`). Division of
integers gives float32, comparisons and logical functions give bool.

C++ applies the same rule to two tensors (`ResultType`, in singa/operation/elementwise.h). Both read
the table of types in src/core/tensor/dtype.cc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import BY_VALUE, DType, as_dtype, bool_, float32, int64, is_float
from ..raw.arrays import full
from ..tape.tensor import Tensor

if TYPE_CHECKING:
    from ..tape.operator import Raw

#: What the elements of a list count as, by the kind of its array.
_KINDS = {"b": bool_, "i": int64, "u": int64, "f": float32}


def number_type(number: float) -> DType:
    """The type as which a Python number counts."""
    if isinstance(number, bool):
        return bool_
    return int64 if isinstance(number, int) else float32


def result_type(*operands: Any) -> DType:
    """The element type of arithmetic on tensors and Python numbers, as torch.result_type.

    A type or its name counts as a tensor of this type that has axes, as in numpy.result_type.
    Arrays count as tensors, numbers of NumPy as Python's. int8 with uint8 gives int32, because
    singa has no int16. Raises TypeError without an operand, and for other operands.

    >>> tensor.result_type(tensor.ones((2,), dtype="int32"), 0.5)
    singa.float32
    >>> tensor.result_type(tensor.float16, tensor.bfloat16)
    singa.float32
    """
    found: list[int | None] = [None, None, None]  # of tensors with axes, without axes, numbers
    for x in operands:
        if isinstance(x, Tensor | np.ndarray):
            place, dtype = (0 if x.shape else 1), int(as_dtype(x.dtype))
        elif isinstance(x, int | float | np.number | np.bool_) and not isinstance(x, DType):
            place, dtype = 2, int(number_type(x.item() if isinstance(x, np.generic) else x))
        else:
            place, dtype = 0, int(as_dtype(x))
        known = found[place]
        found[place] = dtype if known is None else _c.Promote(known, dtype)
    types = [dtype for dtype in found if dtype is not None]
    if not types:
        raise TypeError("[result_type] needs at least one operand")
    result = types[0]
    for dtype in types[1:]:
        result = _c.PromoteNumber(result, dtype)
    return BY_VALUE[result]


def type_beside(value: object, dtype: DType) -> DType:
    """The type that a number, or a list of numbers, gets beside a tensor of type `dtype`."""
    kind = _KINDS.get(np.asarray(value).dtype.kind)
    return dtype if kind is None else BY_VALUE[_c.PromoteNumber(int(dtype), int(kind))]


def constant(number: float, like: Tensor, exact: bool = False) -> Raw:
    """A Python number as a raw tensor without axes beside `like`, whose type it gets.

    An integer that this type cannot hold becomes int64. Beside a tensor without axes, where int64
    would decide, it wraps around instead, unless `exact` is set. Raises ValueError for integers of
    more than 64 bits.
    """
    dtype = like.dtype
    if not is_float(dtype) and dtype != bool_:
        limits = np.iinfo(dtype.name)
        if not limits.min <= number <= limits.max:
            raw = full((), number, like.device, int64)
            return raw if exact or like.ndim() else raw.AsType(int(dtype))
    return full((), number, like.device, dtype)
