"""Errors that say what to write: answers to names and arguments that singa does not have."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from typing import Any, TypeVar

from .module_words import MODULES as MODULES
from .word_tables import ARGUMENTS as ARGUMENTS
from .word_tables import AVERAGES as AVERAGES
from .word_tables import CALLBACKS as CALLBACKS
from .word_tables import DATASETS as DATASETS
from .word_tables import LAYERS as LAYERS
from .word_tables import LOADERS as LOADERS
from .word_tables import METRICS as METRICS
from .word_tables import MISSING as MISSING
from .word_tables import OPTIMIZERS as OPTIMIZERS
from .word_tables import PARTS as PARTS
from .word_tables import PROFILES as PROFILES
from .word_tables import SCALERS as SCALERS
from .word_tables import SCHEDULES as SCHEDULES
from .word_tables import TENSORS as TENSORS
from .word_tables import UNASSIGNED as UNASSIGNED

#: Where a name may be that was looked for in another module of singa.
_PLACES = (
    *("layer", "tensor", "autograd", "model", "models", "opt", "data", "metric", "training"),
    *("device", "initializer", "distributed"),
)

_Function = TypeVar("_Function", bound=Callable[..., Any])

_Class = TypeVar("_Class", bound=type)


def advice(answer: str) -> str:
    """What an error adds about a word that has this answer in a table."""
    return f": {answer}" if answer.startswith(("no ", "nothing")) else f": use {answer}"


def attribute_error(
    owner: str, name: str, words: Mapping[str, str], known: Iterable[str] = ()
) -> AttributeError:
    """The error for an attribute that `owner`, such as "'Tensor' object", does not have. `known`
    are names of which it may be a misspelling."""
    text = f"{owner} has no attribute {name!r}"
    if name in words:
        text += advice(words[name])
    elif known:
        from ..launcher.command_line import nearest

        text += nearest(name, known)
    return AttributeError(text, name=name)  # with its name, Python adds no guess of its own


def module_error(module: str, name: str) -> AttributeError:
    """As attribute_error, for a module. What another module of singa has is answered with its
    place, and a misspelling with the name that the module has."""
    owner, own = f"module {module!r}", MODULES.get(module, {})
    there = vars(sys.modules[module])
    if name in own or name.startswith("_"):  # such names Python itself looks for
        return attribute_error(owner, name, own)
    known = {*there.get("__all__", [name for name in there if name[0] != "_"])}
    if module == "singa":
        known |= {each.name for each in pkgutil.iter_modules(there["__path__"])}
    return attribute_error(owner, name, _elsewhere(name), known)


def _elsewhere(name: str) -> dict[str, str]:
    """What to write for a name that belongs to another module of singa, if there is one."""
    for place in _PLACES:
        home = vars(importlib.import_module(f"singa.{place}"))
        if name in home.get("__all__", ()):
            return {name: f"{place}.{name}"}
    tables = (MODULES.get(f"singa.{place}", {}) for place in _PLACES)
    return next((table for table in tables if name in table), {})


#: What an error adds where an optimizer is given parameters.
OF_PARAMETERS = "; net.set_optimizer(opt.SGD(lr=0.1)) gives an optimizer the network's parameters"


def of_tensors(functions: Iterable[str], methods: Iterable[str]) -> dict[str, str]:
    """What to write for names that tensors do not have: TENSORS, `functions` of autograd, and the
    names with an underscore by which PyTorch changes a tensor in place."""
    found = {name: f"autograd.{name}(x, ...)" for name in functions}
    found |= {**MODULES["singa.autograd"], **TENSORS}
    changing = {f"{name}_": f"x = {answer}" for name, answer in found.items()}
    changing |= {f"{name}_": f"x = x.{name}(...)" for name in methods}
    return {name: text for name, text in {**changing, **found}.items() if name[0].islower()}


def refuse_for_pytorch(cls: type, function: Any, *_: Any) -> Any:
    """PyTorch calls it for each of its functions that is given a tensor of singa.

    Raises TypeError, which says what to write. Of operators and functions that take arrays, such as
    `torch.as_tensor`, PyTorch catches it, or does not ask.
    """
    name = getattr(function, "__name__", str(function))
    ours = {"cross_entropy": "softmax_cross_entropy"}.get(name, name)
    known = vars(importlib.import_module("singa.autograd"))["__all__"]
    advice = (
        f"use autograd.{ours}(...), or torch.as_tensor(x)"
        if ours in known
        else ("use torch.as_tensor(x), which has its values")
    )
    raise TypeError(
        f"[{name}] is PyTorch's, and is given a tensor of singa: {advice}. "
        "singa.accelerate(module) gives tensors of PyTorch, for its losses and loops"
    )


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things as people write it: "1 thread", "2,000 threads"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def missing(module: str, name: str) -> Any:
    """For `__getattr__` of a module: a module in it that was not imported yet, what SINGA's name
    means (`compat.names`), or the error."""
    path = vars(sys.modules[module]).get("__path__")
    if path and not name.startswith("_") and PathFinder.find_spec(name, path):
        return importlib.import_module(f"{module}.{name}")
    aliases = {}
    if not name.startswith("__"):  # what Python asks for
        aliases = importlib.import_module("singa.compat.names").ALIASES
    if place := aliases.get(module, {}).get(name):
        home, _, own = place.partition(":")
        return getattr(importlib.import_module(home), own)
    raise module_error(module, name)


def spelled(*order: str, shared: int | None = None, **words: Any) -> Callable[[_Class], _Class]:
    """A class decorator: the constructor also takes PyTorch's words and PyTorch's order. A word
    that stands for another one is an attribute, too.

    words   PyTorch's keywords with singa's name for them, or a list of names if the word holds
            several; or a tuple of the values with which it means what singa does without it, of
            which others raise ValueError; or ..., for one without effect
    order   PyTorch's arguments by position behind those that both have in the same places
    shared  the number of these (default: all of singa's). Where singa has another argument behind
            them, it gets the values that its default says are its own: texts and functions, or
            bools
    """

    def decorate(cls: _Class) -> _Class:
        init = cls.__init__  # type: ignore[misc]
        own, defaults = _positional(init)
        start = len(own) if shared is None else shared

        @functools.wraps(init)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            op, others = type(self).__name__, args[start:]
            if 0 < len(others) <= len(order) and (
                len(own) == start or not _is_like(others[0], defaults.get(own[start]))
            ):
                for theirs, value in zip(order, others, strict=False):
                    if theirs in kwargs:
                        raise TypeError(f"[{op}] {theirs} is given twice")
                    kwargs[theirs] = value
                args = args[:start]
            for theirs in words.keys() & kwargs.keys():
                value, ours = kwargs.pop(theirs), words[theirs]
                if ours is ...:
                    continue
                if isinstance(ours, tuple):
                    if not any(value is each or value == each for each in ours):
                        accepted = " or ".join(map(repr, ours))
                        raise ValueError(
                            f"[{op}] {theirs} must be {accepted}, got {value!r}: there "
                            "is no other form"
                        )
                    continue
                names = ours if isinstance(ours, list) else [ours]
                if given := [each for each in names if each in kwargs]:
                    raise TypeError(f"[{op}] {theirs} and {given[0]} are the same argument")
                values = value if isinstance(ours, list) else [value]
                if not isinstance(values, Sequence) or len(values) != len(names):
                    each_one = " and ".join(names)
                    raise TypeError(f"[{op}] {theirs} must be {each_one}, got {value!r}")
                kwargs.update(zip(names, values, strict=True))
            init(self, *args, **kwargs)

        cls.__init__ = __init__  # type: ignore[misc]
        for theirs, ours in words.items():
            if isinstance(ours, str) and not hasattr(cls, theirs):
                setattr(cls, theirs, _OtherName(ours))
        return cls

    return decorate


class _OtherName:
    """Another name of an attribute, in a class."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        return self if instance is None else getattr(instance, self._name)

    def __set__(self, instance: object, value: Any) -> None:
        setattr(instance, self._name, value)


def _positional(function: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of a method's arguments by position, without the first, and their defaults."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    return names, dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value may be meant for an argument with this default."""
    if isinstance(default, str):
        return isinstance(value, str) or callable(value)
    return isinstance(value, bool) or not isinstance(default, bool)


def answers(
    cls: _Class, words: Mapping[str, str], unassigned: Mapping[str, str] | None = None
) -> _Class:
    """Gives the class answers to names that it does not have, and to those in `unassigned` also
    where a value is assigned to them, which nothing would read. `dir` of its objects leaves them
    out."""
    words = {**words, **(unassigned or {})}
    listed: Any = cls.__dir__

    def __dir__(self: Any) -> list[str]:  # noqa: N807
        import inspect  # which is slow to import

        return [
            name
            for name in listed(self)
            if name not in words or not isinstance(inspect.getattr_static(self, name), Absent)
        ]

    for name in words:
        if not hasattr(cls, name):
            kind = Unassigned if unassigned and name in unassigned else Absent
            setattr(cls, name, kind(name, words))
    cls.__dir__ = __dir__  # type: ignore[assignment, method-assign]
    return cls


class Absent:
    """An attribute that is not there, which says what to write.

    It costs other attributes nothing, where a `__getattr__` of the class would.
    """

    def __init__(self, name: str, words: Mapping[str, str]) -> None:
        self._name, self._words = name, words

    def __get__(self, instance: object, owner: type) -> Any:
        raise attribute_error(f"{owner.__name__!r} object", self._name, self._words)


class Unassigned(Absent):
    """An Absent attribute that cannot be assigned either."""

    def __set__(self, instance: object, value: Any) -> None:
        raise attribute_error(f"{type(instance).__name__!r} object", self._name, self._words)
