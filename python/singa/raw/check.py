"""Checks of numeric arguments.

Each function returns a Python number. A wrong type raises TypeError, a wrong value ValueError. The
message names the operation `op` and the argument `name`.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from ..singa_wrap import TapeTensor
from . import words

_Class = TypeVar("_Class", bound=type)
_Choice = TypeVar("_Choice")
#: What Python says of an argument that a function does not have.
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")


class InvalidInputError(ValueError, AssertionError):
    """An argument that SINGA rejects by an assertion, so scripts may catch AssertionError.

    >>> from singa import utils
    >>> issubclass(utils.InvalidInputError, ValueError)
    True
    """


def names_keywords(cls: _Class) -> _Class:
    """A class decorator: a TypeError about an unknown keyword argument of the constructor lists the
    known ones. They are looked up after the error, so that a call that fits costs nothing."""
    init = cls.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            if "multiple values for argument" in str(error):
                all_of_them = _keywords(type(self))
                advice = words.OF_PARAMETERS if "clip_norm" in all_of_them else ""
                raise TypeError(
                    f"[{type(self).__name__}] an argument is given twice: there are "
                    f"{', '.join(all_of_them)}{advice}"
                ) from None
            kind = type(self).__name__
            place = kind if kind in words.ARGUMENTS else "optimizer"
            if answer := unknown_keyword(type(self), kwargs, error, place):
                raise answer from None
            raise

    cls.__init__ = __init__  # type: ignore[misc]
    return cls


def unknown_keyword(
    cls: type, given: Iterable[str], error: TypeError, place: str
) -> TypeError | None:
    """What to raise instead of an error about one of the keywords that are given to a constructor:
    an answer of the tables `words.ARGUMENTS` for the class and for `place`, or the keywords that
    there are. None for other errors. Where an argument is missing, an unknown one may stand for
    it."""
    said, kind, known = str(error), cls.__name__, _keywords(cls)
    answers = words.ARGUMENTS[place] | words.ARGUMENTS.get(kind, {})
    found = _UNKNOWN.search(said)
    if found is None and "required positional argument" in said:
        named = [name for name in given if name in answers and name not in known]
    else:
        named = [name for name in given if found and name == found[1] and name not in known]
    if not named:
        return None
    name = named[0]
    if answer := answers.get(name):
        return TypeError(f"[{kind}] has no argument {name!r}{words.advice(answer)}")
    return TypeError(f"[{kind}] has no argument {name!r}; it has {', '.join(known) or 'none'}")


def _keywords(cls: type) -> list[str]:
    """Names of the constructor's arguments, also of those that it passes on as **kwargs."""
    import inspect

    names: list[str] = []
    for each in cls.__mro__:
        if "__init__" not in vars(each):
            continue
        parameters = inspect.signature(vars(each)["__init__"]).parameters.values()
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        names += [p.name for p in parameters if p.kind in named and p.name != "self"]
        if all(p.kind != inspect.Parameter.VAR_KEYWORD for p in parameters):
            break
    return list(dict.fromkeys(names))


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
