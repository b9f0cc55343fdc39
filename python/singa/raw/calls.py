"""Errors of calls that do not fit: what the function or class takes, and what to write.

All of it is looked up after Python's own error, so that a call that fits costs nothing more. Only
what is annotated as bool is looked at before: any value would do for Python, "no" for True.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import words
from .check import flag

if TYPE_CHECKING:
    import inspect

_Function = TypeVar("_Function", bound=Callable[..., Any])
#: What Python says of an argument that a function does not have, of too many, and of too few.
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")
_TOO_MANY = re.compile(r"([\w.<>]+)\(\) takes .* positional arguments? but ")
_TOO_FEW = re.compile(r"([\w.<>]+)\(\) missing .* required .* arguments?: (.*)")
_PACKAGE = __name__.partition(".")[0] + "."


def answers_calls(values: Iterable[Any], place: str = "") -> None:
    """Makes the constructors of the classes among the values say what to write. `place` is a table
    of `words.ARGUMENTS` for all of them. Layers and models have it from their metaclass."""
    for value in values:
        if not isinstance(value, type) or type(value).__call__ is not type.__call__:
            continue
        for each in value.__mro__:
            init = vars(each).get("__init__")
            ours = each.__module__.startswith(_PACKAGE) and not issubclass(each, BaseException)
            if ours and init is not None and not hasattr(init, "says_what_to_write"):
                each.__init__ = _answering(init, place)  # type: ignore[misc]


def _answering(init: Callable[..., None], place: str) -> Callable[..., None]:
    flags = flags_of(init)

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if flags:
            check_flags(type(self).__name__, flags, (self, *args), kwargs)
        try:
            init(self, *args, **kwargs)
        except TypeError as error:
            kind = type(self)
            if answer := call_error(kind, kind.__name__, args, kwargs, error, place):
                raise answer from None
            raise

    __init__.says_what_to_write = True  # type: ignore[attr-defined]
    return __init__


def says_what_to_write(op: str, place: str = "") -> Callable[[_Function], _Function]:
    """A decorator: the same for a function or method that errors call `op`."""

    def decorate(function: _Function) -> _Function:
        flags = flags_of(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if flags:
                check_flags(op, flags, args, kwargs)
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise  # by a function that this one has called
                if answer := call_error(function, op, args, kwargs, error, place):
                    raise answer from None
                raise

        return call  # type: ignore[return-value]

    return decorate


def with_checked_flags(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that checks its arguments of type bool."""
    if not (flags := flags_of(init)):
        return init

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        check_flags(type(self).__name__, flags, (self, *args), kwargs)
        init(self, *args, **kwargs)

    return __init__


def checks_flags(function: _Function) -> _Function:
    """A decorator: the arguments of type bool are checked before the call."""
    flags, op = flags_of(function), function.__name__

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check_flags(op, flags, args, kwargs)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def flags_of(function: Callable[..., Any]) -> dict[str, tuple[int | None, bool]]:
    """Arguments that are annotated as bool, with their places, and whether they may be None."""
    function = getattr(function, "__wrapped__", function)
    code, kinds = getattr(function, "__code__", None), getattr(function, "__annotations__", {})
    if code is None:
        return {}
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {
        name: (place if place < code.co_argcount else None, kinds[name] != "bool")
        for place, name in enumerate(names)
        if kinds.get(name) in ("bool", "bool | None")
    }


def check_flags(
    op: str,
    flags: Mapping[str, tuple[int | None, bool]],
    args: Sequence[Any],
    given: Mapping[str, Any],
) -> None:
    """Raises TypeError for one of the `flags_of` a function that is neither True nor False."""
    for name, (place, may_lack) in flags.items():
        value = given.get(name, False)
        if place is not None and place < len(args):
            value = args[place]
        if not (value is True or value is False or (may_lack and value is None)):
            flag(op, name, value, " or None" * may_lack)


def call_error(
    called: Callable[..., Any],
    op: str,
    args: Sequence[Any],
    given: Mapping[str, Any],
    error: TypeError,
    place: str = "",
) -> TypeError | None:
    """What to raise instead of Python's error about a call of a function or class: an answer of the
    tables `words.ARGUMENTS` for `op` and for `place`, or the arguments that there are. None for
    other errors. Where an argument is missing, an unknown one may stand for it."""
    said, known = str(error), keywords(called)
    answers = words.ARGUMENTS.get(place, {}) | words.ARGUMENTS.get(op, {})
    lacking, found = "required positional argument" in said, _UNKNOWN.search(said)
    named = [name for name in given if name not in known]
    if found is not None:
        named = [name for name in named if name == found[1]]
    elif lacking:
        named = [name for name in named if name in answers]
    else:
        named = []
    if named:
        return argument_error(op, named[0], known, answers)
    if lacking and op in words.MISSING:
        return TypeError(f"[{op}] takes {words.MISSING[op]}")
    if (less := _TOO_FEW.match(said)) and less[1] in _names(called):
        return TypeError(f"[{op}] lacks {less[2]}; it takes {', '.join(known)}")
    if "multiple values for argument" in said:
        advice = words.OF_PARAMETERS if "clip_norm" in known else ""
        there_are = ", ".join(known)
        return TypeError(f"[{op}] an argument is given twice: there are {there_are}{advice}")
    if (many := _TOO_MANY.match(said)) and many[1] in _names(called):
        parameters = _parameters(_functions(called)[0])
        taken = [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
        is_method = taken[:1] == ["self"]
        taken, count = taken[is_method:], len(args)
        if is_method and not isinstance(called, type):
            count -= 1
        text = f"[{op}] takes {words.counted(len(taken), 'argument')} without a name"
        text += f", {' and '.join(taken)}" if taken else ""
        text += f"; got {count}"
        rest = ", ".join([name for name in known if name not in taken])
        return TypeError(f"{text}. With a name it takes {rest}" if rest else text)
    return None


def argument_error(
    op: str, name: str, known: Iterable[str] = (), answers: Mapping[str, str] | None = None
) -> TypeError:
    """The error for an argument that a function does not have: an answer of a table, by default
    that of `op`, or those that are known."""
    answers = words.ARGUMENTS.get(op, {}) if answers is None else answers
    has = f"; it has {', '.join(known) or 'none with a name'}"
    rest = words.advice(answers[name]) if name in answers else has
    return TypeError(f"[{op}] has no argument {name!r}{rest}")


def keywords(called: Callable[..., Any]) -> list[str]:
    """Names of the arguments of a function or class, also of those that a constructor passes on as
    **kwargs."""
    names: list[str] = []
    for function in _functions(called):
        own = _parameters(function)
        names += [p.name for p in own if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if all(p.kind != p.VAR_KEYWORD for p in own):
            break
    return [name for name in dict.fromkeys(names) if name != "self"]


def _functions(called: Callable[..., Any]) -> list[Any]:
    """The function, or the constructors of the class and its bases."""
    if not isinstance(called, type):
        return [called]
    return [vars(each)["__init__"] for each in called.__mro__ if "__init__" in vars(each)]


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    import inspect  # which is slow to import

    return list(inspect.signature(function).parameters.values())


def _names(called: Callable[..., Any]) -> set[str]:
    """What Python calls them."""
    return {getattr(function, "__qualname__", "") for function in _functions(called)}
