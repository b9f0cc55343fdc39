"""Optimizers, and schedules for their learning rate, momentum and weight decay.

sgd = opt.SGD(lr=opt.OneCycle(0.1, total_steps=1000), momentum=0.9, weight_decay=5e-4)
sgd(loss)  # backward, one update of each parameter, next step of the schedules
"""

from typing import TYPE_CHECKING

from ..raw.exports import defined
from . import (
    algorithms,
    averaging,
    clipping,
    depth,
    dist_opt,
    optimizer,
    parameter_group,
    scaler,
    schedule,
)

#: What the modules define for each other.
_INTERNAL = frozenset(
    [
        *("Average", "as_schedule", "checked_norm_type", "decoded", "encoded", "limit_all"),
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
    _public = defined(
        algorithms,
        averaging,
        clipping,
        depth,
        dist_opt,
        optimizer,
        parameter_group,
        scaler,
        schedule,
        internal=_INTERNAL,
    )
    globals().update(_public)
    __all__ = [*_public]
