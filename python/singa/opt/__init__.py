"""Optimizers, and schedules for their learning rate, momentum and weight decay.

sgd = opt.SGD(lr=opt.OneCycle(0.1, total_steps=1000), momentum=0.9, weight_decay=5e-4)
sgd(loss)  # backward, one update of each parameter, next step of the schedules
"""

from typing import TYPE_CHECKING, Any

from ..raw import calls, words
from ..raw.exports import defined, modules_of

#: Modules whose names are not offered.
_INTERNAL_MODULES = frozenset(
    [
        *("agreement", "buckets", "collectives", "compression", "counting", "hyperparameter"),
        *("hyperparameter_table", "parameter_keys", "sharding", "update_rule", "variants"),
    ]
)
#: What the modules define for each other.
_INTERNAL = frozenset(
    [
        *("Average", "as_schedule", "decoded", "encoded", "limit_all"),
    ]
)

if TYPE_CHECKING:  # type checkers follow the imports
    from .algorithms import *
    from .averaging import *
    from .clipping import *
    from .depth import *
    from .dist_opt import *
    from .optimizer import *
    from .parameter_group import *
    from .scaler import *
    from .schedule import *
else:
    _public = defined(*modules_of(__name__, _INTERNAL_MODULES), internal=_INTERNAL)
    globals().update(_public)
    calls.answers_calls(_public.values(), "optimizer")
    words.answers(_public["Optimizer"], words.OPTIMIZERS, words.UNASSIGNED["Optimizer"])
    words.answers(_public["DecayScheduler"], words.SCHEDULES)
    words.answers(_public["ReduceOnPlateau"], {"step": "update(metric)"})
    words.answers(_public["GradScaler"], words.SCALERS)
    words.answers(_public["EMA"], words.AVERAGES)
    words.answers(_public["SWA"], words.AVERAGES)
    __all__ = [*_public]

    def __getattr__(name: str) -> Any:
        return words.missing(__name__, name)
