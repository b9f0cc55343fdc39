"""singa: a small autograd framework that trains convolutional networks.

The parts are modules, imported as they are used: `tensor`, `autograd`, `layer`, `model`, `opt`,
`device`, `data`, `models`, ...; see each for what it holds. Here is what concerns the process:
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import plan_cache, tuning
    from .diagnostics import device_memory, doctor, layout_report, opcheck
    from .explanation import explain
    from .process import (
        get_num_threads,
        is_deterministic,
        is_strict,
        is_tf32,
        seed,
        set_deterministic,
        set_layout,
        set_num_threads,
        set_strict,
        set_tf32,
    )
    from .profiling import profile

__all__ = [
    "__version__",
    "device_memory",
    "doctor",
    "explain",
    "get_num_threads",
    "is_deterministic",
    "is_strict",
    "is_tf32",
    "layout_report",
    "opcheck",
    "plan_cache",
    "profile",
    "seed",
    "set_deterministic",
    "set_layout",
    "set_num_threads",
    "set_strict",
    "set_tf32",
    "tuning",
]

_FUNCTIONS = {
    "device_memory": "diagnostics",
    "doctor": "diagnostics",
    "explain": "explanation",
    "layout_report": "diagnostics",
    "opcheck": "diagnostics",
    "profile": "profiling",
    "get_num_threads": "process",
    "is_deterministic": "process",
    "is_strict": "process",
    "is_tf32": "process",
    "seed": "process",
    "set_deterministic": "process",
    "set_layout": "process",
    "set_num_threads": "process",
    "set_strict": "process",
    "set_tf32": "process",
}


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        value = getattr(importlib.import_module(f".{_FUNCTIONS[name]}", __name__), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module 'singa' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
