"""Optimizers, and schedules for their learning rate, momentum and weight decay.

sgd = opt.SGD(lr=opt.OneCycle(0.1, total_steps=1000), momentum=0.9, weight_decay=5e-4)
sgd(loss)  # backward, one update of each parameter, next step of the schedule
"""

from typing import TYPE_CHECKING

from . import algorithms, averaging, clipping, depth, dist_opt, optimizer, scaler, schedule
from .algorithms import *
from .averaging import *
from .clipping import *
from .depth import *
from .dist_opt import *
from .optimizer import *
from .scaler import *
from .schedule import *

if not TYPE_CHECKING:  # mypy reads no computed list; it follows the imports
    __all__ = [
        *algorithms.__all__,
        *averaging.__all__,
        *clipping.__all__,
        *depth.__all__,
        *dist_opt.__all__,
        *optimizer.__all__,
        *scaler.__all__,
        *schedule.__all__,
    ]
