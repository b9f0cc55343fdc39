"""Functions that say which argument is not what it has to be."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, SupportsFloat, TypeVar

from .. import singa_wrap as _c
from ..device import WANTED
from ..raw.arrays import kind_of
from ..raw.calls import check_flags, flags_of
from .tensor import Tensor

_Function = TypeVar("_Function", bound=Callable[..., Any])

# By annotation: the types that it stands for, and how a message calls them.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "Tensor": ((Tensor,), "a Tensor"),
    "Tensor | None": ((Tensor, type(None)), "a Tensor"),
    "_c.Tensor": ((_c.Tensor,), "a raw tensor"),
    "_c.Tensor | Tensor": ((_c.Tensor, Tensor), "a Tensor"),
    "Device | None": ((_c.Device, type(None)), WANTED),
    "float": ((SupportsFloat,), "a number"),
}


def names_arguments(function: _Function) -> _Function:
    """A decorator: where an argument that is annotated as a tensor, a device or a number is none,
    the error to which that leads becomes a TypeError that names the argument.

    Looked at after the error, so that a call that fits costs nothing. Flags are looked at before,
    since any value would do for one.
    """
    flags = flags_of(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if flags:
            check_flags(function.__name__, flags, args, kwargs)
        try:
            return function(*args, **kwargs)
        except (AttributeError, TypeError, ValueError) as error:
            _complain(function, args, kwargs, error)
            raise

    return call  # type: ignore[return-value]


def also_named(**names: str) -> Callable[[_Function], _Function]:
    """A decorator: as `names_arguments`, and the function also takes the arguments `names`: {other
    name: its own}."""

    def decorate(function: _Function) -> _Function:
        flags = flags_of(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                for other in names.keys() & kwargs.keys():
                    own = names[other]
                    if own in kwargs:
                        op = function.__name__
                        raise TypeError(f"[{op}] {other} and {own} are the same argument")
                    kwargs[own] = kwargs.pop(other)
            if flags:
                check_flags(function.__name__, flags, args, kwargs)
            try:
                return function(*args, **kwargs)
            except (AttributeError, TypeError, ValueError) as error:
                _complain(function, args, kwargs, error)
                raise

        call.also_named = names  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def _complain(
    function: Callable[..., Any], args: tuple, kwargs: dict[str, Any], error: Exception
) -> None:
    if complaint := _complaint(function, args, kwargs):
        raise TypeError(f"[{function.__name__}] {complaint}") from error


def _complaint(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> str:
    import inspect

    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs)
    except TypeError:  # too many, too few, or unknown ones
        unknown = kwargs.keys() - signature.parameters.keys()
        known = ", ".join(signature.parameters)
        return f"there is no argument {min(unknown)!r}; there are {known}" if unknown else ""
    for name, value in given.arguments.items():
        parameter = given.signature.parameters[name]
        annotation = str(parameter.annotation)
        several = parameter.kind is parameter.VAR_POSITIONAL
        if annotation.startswith("Sequence["):
            annotation, several = annotation[len("Sequence[") : -1], True
        if annotation not in _KINDS:
            continue
        types, what = _KINDS[annotation]
        if several and not isinstance(value, Iterable):
            return f"{name} must be a sequence, got {type(value).__name__}"
        for each in value if several else (value,):
            if not isinstance(each, types):
                number = " each" if several else ""
                kind = kind_of(each)
                if isinstance(each, _c.Tensor):
                    kind = "a raw tensor, which functions of singa_wrap and signs take"
                is_length = isinstance(each, int) and annotation.startswith("Device")
                shape = "; a shape is one tuple" if is_length else ""
                return f"{name} must{number} be {what}, got {kind}{shape}"
    return ""
