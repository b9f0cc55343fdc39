"""Checks of numeric arguments.

Each function returns a Python number. A wrong type raises TypeError, a wrong value ValueError. The
message names the operation `op` and the argument `name`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..singa_wrap import TapeTensor

_Choice = TypeVar("_Choice")
_Error = TypeVar("_Error", bound=Exception)


class InvalidInputError(ValueError, AssertionError):
    """An argument that SINGA rejects by an assertion, so scripts may catch AssertionError.

    >>> from singa import utils
    >>> issubclass(utils.InvalidInputError, ValueError)
    True
    """


def with_facts(error: _Error, kind: str, **facts: Any) -> _Error:
    """The error, with what code that catches it may ask by `facts_of`, since no code reads
    messages. `ErrorFacts` in include/singa/core/error.h has the kinds of C++."""
    error._singa_facts = {"kind": kind, **facts}  # type: ignore[attr-defined]
    return error


def facts_of(error: BaseException) -> Mapping[str, Any]:
    """What an error of singa is about: its kind, and more; {} for other errors."""
    found: Mapping[str, Any] = getattr(error, "_singa_facts", {})
    return found


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


def flag(op: str, name: str, value: Any, others: str = "") -> bool:
    """True or False, also as 1, 0 and NumPy's."""
    if value is True or value is False:
        return value
    whole = isinstance(value, (int, np.integer)) and value in (0, 1)
    if whole or isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(f"[{op}] {name} must be True or False{others}, got {value!r:.80}")


def axis_of(op: str, value: Any, shape: Sequence[int]) -> int:
    """An axis of this shape, counted from the front."""
    axis, rank = integer(op, "axis", value), len(shape)
    if not -rank <= axis < rank:
        raise ValueError(f"[{op}] axis {axis} is outside a tensor of shape {tuple(shape)}")
    return axis % rank


def number(op: str, name: str, value: Any) -> float:
    """A float that is not NaN. A tensor that leads to a parameter is none: its gradient would be
    lost."""
    if isinstance(value, TapeTensor) and _is_trained(value):
        raise TypeError(
            f"[{op}] {name} must be a number, since it gets no gradient: use operators on tensors, "
            "or float(t) for the present value of a tensor that trains"
        )
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


def _is_trained(t: Any) -> bool:
    """Whether t is a parameter that trains, or was computed from one on the tape."""
    creator = t._creator
    return bool(t.requires_grad and (t.stores_grad or (creator is not None and creator._leads)))


def positive(op: str, name: str, value: Any, *, finite: bool = False) -> float:
    """A float above 0, which may be infinite unless `finite`."""
    result = number(op, name, value)
    if result <= 0 or (finite and result == math.inf):
        wanted = "positive and finite" if finite else "positive"
        raise ValueError(f"[{op}] {name} must be {wanted}, got {value}")
    return result


def one_of(op: str, name: str, value: _Choice, known: Iterable[_Choice]) -> _Choice:
    """The value, which must be one of those that are known."""
    choices = list(known)
    if value not in choices:
        *others, last = map(repr, choices)
        listed = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"[{op}] {name} must be {listed}, got {value!r}")
    return value


def texts(op: str, name: str, values: Any) -> tuple[str, ...]:
    """A tuple of texts, from several names; one text alone would be as many as it has letters."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise TypeError(f"[{op}] {name} must be a list of names, got {values!r}")
    return tuple([str(value) for value in values])


def distinct_texts(op: str, name: str, values: Any) -> tuple[str, ...]:
    """The same for names none of which is there twice."""
    found = texts(op, name, values)
    if len(set(found)) < len(found):
        twice = next(each for i, each in enumerate(found) if each in found[:i])
        raise ValueError(f"[{op}] {name} has a name twice: {twice!r}")
    return found


def fraction(op: str, name: str, value: Any, *, open_end: bool = False) -> float:
    """A float in [0, 1], or in [0, 1) with `open_end`."""
    result = number(op, name, value)
    if not 0.0 <= result <= 1.0 or (open_end and result == 1.0):
        end = ")" if open_end else "]"
        raise ValueError(f"[{op}] {name} must lie in [0, 1{end}, got {result:g}")
    return result
