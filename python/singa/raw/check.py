"""Checks of numeric arguments.

Each function returns a Python number. A wrong type raises TypeError, a wrong value ValueError. The
message names the operation `op` and the argument `name`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any


class InvalidInputError(ValueError, AssertionError):
    """An argument that SINGA rejects by an assertion, so scripts may catch AssertionError."""


def integer(op: str, name: str, value: Any, least: int | None = None) -> int:
    """An integer of 64 bits, at least `least`.

    Floats without a fraction are accepted, because arrays of floats and ONNX attributes hold them.
    """
    try:
        whole = operator.index(value)
    except TypeError:
        if not isinstance(value, float):
            kind = type(value).__name__
            raise TypeError(f"[{op}] {name} must be an integer, got {kind}") from None
        if not value.is_integer():  # also NaN and infinity
            raise ValueError(f"[{op}] {name} must be a whole number, got {value}") from None
        whole = int(value)
    if not -(1 << 63) <= whole < 1 << 63:
        raise ValueError(f"[{op}] {name} does not fit 64 bits: {whole}")
    if least is not None and whole < least:
        wrong = f"must be at least {least}" if least else "must not be negative"
        raise ValueError(f"[{op}] {name} {wrong}, got {whole}")
    return whole


def integers(op: str, name: str, values: Any, least: int | None = None) -> tuple[int, ...]:
    """A tuple of integers, each at least `least`."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise TypeError(f"[{op}] {name} must be integers, got {type(values).__name__}")
    return tuple([integer(op, name, value, least) for value in values])


def number(op: str, name: str, value: Any) -> float:
    """A float that is not NaN."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        result = float(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"[{op}] {name} must be a number, got {kind}") from None
    if math.isnan(result):
        raise ValueError(f"[{op}] {name} is NaN")
    return result


def fraction(op: str, name: str, value: Any, *, open_end: bool = False) -> float:
    """A float in [0, 1], or in [0, 1) with `open_end`."""
    result = number(op, name, value)
    if not 0.0 <= result <= 1.0 or (open_end and result == 1.0):
        end = ")" if open_end else "]"
        raise ValueError(f"[{op}] {name} must lie in [0, 1{end}, got {result:g}")
    return result
