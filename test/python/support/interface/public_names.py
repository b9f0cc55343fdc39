"""The public names of singa with their docstrings. As a program, it counts what they lack:

PYTHONPATH=build/debug/python python test/python/support/interface/public_names.py
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from singa import singa_wrap

#: The modules that users import. Aliases, such as singa.sonnx, are listed by what they stand for.
MODULES = (
    "singa",
    "singa.tensor",
    "singa.autograd",
    "singa.data",
    "singa.device",
    "singa.distributed",
    "singa.initializer",
    "singa.layer",
    "singa.metric",
    "singa.model",
    "singa.models",
    "singa.onnx",
    "singa.opt",
    "singa.serving",
    "singa.report.bench",
    "singa.report.plan_cache",
    "singa.training",
    "singa.training.checkpoint",
    "singa.training.picture_classifier",
    "singa.training.task",
    "singa.training.pretrained",
    "singa.tuning",
    "singa.compat",
    "singa.compat.image_tool",
    "singa.compat.snapshot",
    "singa.compat.sonnx",
    "singa.compat.utils",
)


@dataclass(frozen=True)
class Name:
    """A public function, class, method or property, and the first module that has it."""

    module: str
    path: str
    value: Any

    @property
    def doc(self) -> str:
        """Its docstring, or that of what it overrides."""
        return inspect.getdoc(self.value) or self._overridden()

    def _overridden(self) -> str:
        owner, _, method = self.path.rpartition(".")
        if not owner:
            return ""
        kind = getattr(importlib.import_module(self.module), owner)
        docs = (inspect.getdoc(vars(base).get(method)) for base in kind.__mro__)
        return next((doc for doc in docs if doc), "")

    @property
    def is_member(self) -> bool:
        return "." in self.path

    @property
    def is_operator(self) -> bool:
        """Whether it is a class of operators, which is documented at the function for it."""
        from singa.autograd import Operator

        return isinstance(self.value, type) and issubclass(self.value, Operator)

    def __str__(self) -> str:
        return f"{self.module}.{self.path}"


def exported(module: ModuleType) -> list[str]:
    """The names that a module has for its users. Those with an underscore are SINGA's."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__
        ]
    return [name for name in names if not name.startswith("_")]


def public_names(modules: tuple[str, ...] = MODULES) -> list[Name]:
    """All of them, each once. Constants, and modules in modules, have no docstrings."""
    found: dict[int, Name] = {}
    for module_name in modules:
        module = importlib.import_module(module_name)
        for name in exported(module):
            value = getattr(module, name)
            of_singa = (getattr(value, "__module__", "") or "").startswith("singa")
            if callable(value) and of_singa and value is not singa_wrap.Tensor:
                for each in (Name(module_name, name, value), *_members(module_name, name, value)):
                    found.setdefault(id(each.value), each)
    return list(found.values())


def _members(module: str, owner: str, kind: Any) -> Iterator[Name]:
    """The methods and properties that a class of singa defines itself or gets from a base class
    that is not public."""
    if not isinstance(kind, type):
        return
    for base in kind.__mro__:
        if not base.__module__.startswith("singa") or base.__module__ == "singa.singa_wrap":
            continue
        for name, value in vars(base).items():
            if name.startswith("_"):
                continue
            if isinstance(value, staticmethod | classmethod):
                value = value.__func__
            if inspect.isfunction(value) or isinstance(value, property):
                yield Name(module, f"{owner}.{name}", value)


def main() -> None:
    """Prints a row for each module."""
    print(f"{'':34} names  no docstring  no example  says no errors")
    for module in MODULES:
        names = [name for name in public_names() if name.module == module]
        shown = [name for name in names if not name.is_member and not name.is_operator]
        none = [name for name in names if not name.doc]
        plain = [name for name in shown if ">>>" not in name.doc]
        silent = [name for name in shown if not re.search(r"\b[Rr]aises?\b", name.doc)]
        print(f"{module:34} {len(names):5}  {len(none):12}  {len(plain):10}  {len(silent):14}")
        for name in none:
            print(f"    no docstring: {name.path}")


if __name__ == "__main__":
    main()
