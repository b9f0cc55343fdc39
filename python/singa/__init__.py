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

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import plan_cache as plan_cache
    from . import tuning as tuning
    from .raw.process import get_float32_precision as get_float32_precision
    from .raw.process import get_num_threads as get_num_threads
    from .raw.process import has_spot_checks as has_spot_checks
    from .raw.process import is_deterministic as is_deterministic
    from .raw.process import is_strict as is_strict
    from .raw.process import is_tf32 as is_tf32
    from .raw.process import seed as seed
    from .raw.process import set_deterministic as set_deterministic
    from .raw.process import set_float32_precision as set_float32_precision
    from .raw.process import set_layout as set_layout
    from .raw.process import set_num_threads as set_num_threads
    from .raw.process import set_spot_checks as set_spot_checks
    from .raw.process import set_strict as set_strict
    from .raw.process import set_tf32 as set_tf32
    from .report.advice import advise as advise
    from .report.anomaly import detect_anomaly as detect_anomaly
    from .report.diagnostics import device_memory as device_memory
    from .report.diagnostics import doctor as doctor
    from .report.diagnostics import layout_report as layout_report
    from .report.diagnostics import opcheck as opcheck
    from .report.explanation import explain as explain
    from .report.profiling import profile as profile
    from .torch_networks.accelerate import accelerate as accelerate
    from .torch_networks.module import from_torch as from_torch
    from .training.model_file import load as load

#: Functions, by the modules that define them.
_FUNCTIONS = {
    "raw.process": (
        *("get_float32_precision", "get_num_threads", "has_spot_checks", "is_deterministic"),
        *("is_strict", "is_tf32", "seed", "set_deterministic", "set_float32_precision"),
        *("set_layout", "set_num_threads", "set_spot_checks", "set_strict", "set_tf32"),
    ),
    "report.advice": ("advise",),
    "report.anomaly": ("detect_anomaly",),
    "report.diagnostics": ("device_memory", "doctor", "layout_report", "opcheck"),
    "report.explanation": ("explain",),
    "report.profiling": ("profile",),
    "torch_networks.accelerate": ("accelerate",),
    "torch_networks.module": ("from_torch",),
    "training.model_file": ("load",),
}
_MODULES = {name: module for module, names in _FUNCTIONS.items() for name in names}
if not TYPE_CHECKING:
    __all__ = ["__version__", *sorted(["plan_cache", "tuning", *_MODULES])]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
        importlib.import_module(".raw.calls", __name__).answers_calls([value])
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise importlib.import_module(".raw.words", __name__).module_error(__name__, name)


if "SINGA_COMPAT" in os.environ:  # replaces what differs before a script imports it
    importlib.import_module(".compat", __name__)


def __dir__() -> list[str]:
    import pkgutil

    modules = [module.name for module in pkgutil.iter_modules(__path__)]
    public = [name for name in modules if not name.startswith("_")]
    return sorted({*globals(), *_MODULES, *public})
