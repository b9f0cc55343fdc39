"""Which modules, classes and functions belong to the program, to singa or to other packages, and
what can change of objects."""

from __future__ import annotations

import functools
import io
import os
import sys
import threading
import types
from collections.abc import Set
from typing import Any

import numpy as np

_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # Py_TPFLAGS_...: classes that can be changed, or not
#: Classes, and modules of classes, of opaque objects.
_OPAQUE = (types.ModuleType, io.IOBase, threading.Thread)
_OPAQUE_MODULES = {
    *("_thread", "threading", "queue", "multiprocessing", "concurrent", "asyncio", "logging"),
}
_PACKAGE = __name__.partition(".")[0]
_LIBRARY = os.path.dirname(os.__file__) + os.sep  # of Python
#: Classes of objects that lead to none, and of those that lead to too many: a cache, and whatever
#: was on the stack.
_NOT_FOLLOWED = (
    *(int, float, complex, str, bytes, type, BaseException, types.FrameType, types.TracebackType),
    *(types.CodeType, type(functools.lru_cache(int))),
)
_CODE = (types.FunctionType, staticmethod, classmethod, property)


def package(module: object) -> str:
    """The package in which a module lies, by its name."""
    return str(module).partition(".")[0]


def is_program(namespace: dict[str, Any], packages: Set[str]) -> bool:
    """Whether a module belongs to the program, so that its variables may change.

    Modules of installed packages do not, unless their package is one of `packages`.
    """
    own = package(namespace.get("__name__", ""))
    if own in (_PACKAGE, "numpy"):
        return False
    file = namespace.get("__file__")
    if file is None:
        return getattr(namespace.get("__spec__"), "origin", None) not in ("built-in", "frozen")
    installed = not {"site-packages", "dist-packages"}.isdisjoint(str(file).split(os.sep))
    return own in packages or not (installed or str(file).startswith(_LIBRARY))


def is_ours(kind: type) -> bool:
    """Whether it is a class of singa."""
    return package(kind.__module__) == _PACKAGE and _is_of_module(kind)


def is_of_program(kind: type, packages: Set[str]) -> bool:
    """Whether it is a class of the program, as `is_program`."""
    module = sys.modules.get(str(kind.__module__))
    return module is None or is_program(vars(module), packages) or not _is_of_module(kind)


def _is_of_module(kind: type) -> bool:
    """Whether a class is what its module has under its name, or was made in a function of it. A
    class that `type` makes may have the name of any module."""
    found: Any = sys.modules.get(str(kind.__module__))
    for name in kind.__qualname__.split("."):
        if name == "<locals>":
            return True
        found = getattr(found, name, None)
    return found is kind


def is_own(value: Any) -> bool:
    """Whether it is code of singa's own, which does not change."""
    function = getattr(value, "fget", None) or getattr(value, "__func__", value)
    return type(value) in _CODE and package(getattr(function, "__module__", "")) == _PACKAGE


def can_change(kind: type) -> bool:
    """Whether attributes of the class can be set."""
    return kind.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE


def slots(kind: type) -> list[str]:
    """Names of attributes in __slots__."""
    return [
        name
        for each in kind.__mro__
        if each.__flags__ & _HEAP_TYPE
        for name, value in vars(each).items()
        if isinstance(value, types.MemberDescriptorType)
    ]


def is_opaque(kind: type) -> bool:
    """Whether objects of the class are compared by identity, such as locks and files, so that only
    those of their attributes count that code names."""
    return issubclass(kind, _OPAQUE) or any(
        [package(each.__module__) in _OPAQUE_MODULES for each in kind.__mro__]
    )


def leads_in_c(kind: type) -> bool:
    """Whether objects of the class may lead to others by a part that is written in C, which tells
    Python's garbage collector of them, as `operator.methodcaller` does of its arguments."""
    if is_opaque(kind) or issubclass(kind, _NOT_FOLLOWED):
        return False
    return any(
        [
            not can_change(each) and package(each.__module__) != _PACKAGE
            for each in kind.__mro__
            if each is not object
        ]
    )


def is_iterator(value: Any) -> bool:
    """Whether it is an iterator written in C, whose position cannot be read."""
    written_in_c = isinstance(getattr(type(value), "__next__", None), types.WrapperDescriptorType)
    return written_in_c and not isinstance(value, io.IOBase)


def is_frozen(value: np.ndarray) -> bool:
    """Whether the array and all arrays under it are read-only."""
    owner: Any = value
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or type(owner).__name__ in ("bytes", "mmap")
