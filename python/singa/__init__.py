"""singa: a small autograd framework that trains convolutional networks.

Import the submodules that you need: `tensor`, `autograd`, `layer`, `model`, `opt`, `device`,
`data`, `models` and others. The package itself holds settings, reports and tools that concern the
whole process. All of them are imported on first use.

Examples in docstrings begin like this:

    import numpy as np
    import singa
    from singa import autograd, data, device, initializer, layer, metric, model, models, opt, tensor
    from singa import distributed, training
    np.set_printoptions(precision=4, suppress=True)
    singa.seed(0)
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import plan_cache, tuning
    from .raw.process import (
        get_num_threads,
        has_spot_checks,
        is_deterministic,
        is_strict,
        is_tf32,
        seed,
        set_deterministic,
        set_layout,
        set_num_threads,
        set_spot_checks,
        set_strict,
        set_tf32,
    )
    from .report.advice import advise
    from .report.anomaly import detect_anomaly
    from .report.diagnostics import device_memory, doctor, layout_report, opcheck
    from .report.explanation import explain
    from .report.profiling import profile
    from .torch_networks.accelerate import accelerate
    from .torch_networks.module import from_torch
    from .training.model_file import load

__all__ = [
    "__version__",
    "accelerate",
    "advise",
    "detect_anomaly",
    "device_memory",
    "doctor",
    "explain",
    "from_torch",
    "get_num_threads",
    "has_spot_checks",
    "is_deterministic",
    "is_strict",
    "is_tf32",
    "layout_report",
    "load",
    "opcheck",
    "plan_cache",
    "profile",
    "seed",
    "set_deterministic",
    "set_layout",
    "set_num_threads",
    "set_spot_checks",
    "set_strict",
    "set_tf32",
    "tuning",
]

_FUNCTIONS = {
    "accelerate": "torch_networks.accelerate",
    "advise": "report.advice",
    "detect_anomaly": "report.anomaly",
    "device_memory": "report.diagnostics",
    "doctor": "report.diagnostics",
    "explain": "report.explanation",
    "from_torch": "torch_networks.module",
    "layout_report": "report.diagnostics",
    "load": "training.model_file",
    "opcheck": "report.diagnostics",
    "profile": "report.profiling",
    "get_num_threads": "raw.process",
    "has_spot_checks": "raw.process",
    "is_deterministic": "raw.process",
    "is_strict": "raw.process",
    "is_tf32": "raw.process",
    "seed": "raw.process",
    "set_deterministic": "raw.process",
    "set_layout": "raw.process",
    "set_num_threads": "raw.process",
    "set_spot_checks": "raw.process",
    "set_strict": "raw.process",
    "set_tf32": "raw.process",
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


if "SINGA_COMPAT" in os.environ:  # replaces what differs before a script imports it
    importlib.import_module(".compat", __name__)


def __dir__() -> list[str]:
    import pkgutil

    modules = [module.name for module in pkgutil.iter_modules(__path__)]
    public = [name for name in modules if not name.startswith("_")]
    return sorted({*globals(), *__all__, *public})
