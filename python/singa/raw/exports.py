"""The names that a package takes from its modules, so that `__all__` repeats none of them."""

from __future__ import annotations

from collections.abc import Collection
from types import ModuleType
from typing import Any


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
