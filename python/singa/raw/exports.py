"""The names that a package takes from its modules, so that `__all__` repeats none of them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Collection
from types import ModuleType
from typing import Any


def modules_of(package: str, internal: Collection[str] = ()) -> list[ModuleType]:
    """The modules of a package, imported, in the order of their names. Left out are those in
    `internal`, which are not imported."""
    found = [module.name for module in pkgutil.iter_modules(sys.modules[package].__path__)]
    return [importlib.import_module(f"{package}.{name}") for name in found if name not in internal]


def defined(*modules: ModuleType, internal: Collection[str] = ()) -> dict[str, Any]:
    """The functions and classes that the modules define, by name.

    Left out are names with an underscore, and those in `internal`, which the modules define for
    each other.
    """
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and not name.startswith("_")
        and name not in internal
    }
