"""Optimizers, and schedules for their learning rates (or momentum, or weight decay).

sgd = opt.SGD(lr=opt.OneCycle(0.1, total_steps=1000), momentum=0.9, weight_decay=5e-4)
sgd(loss)  # backward, one update of every parameter, next step of the schedule
"""

from .algorithms import SGD, AdaGrad, Adam, AdamW, RMSProp
from .distributed import DistOpt
from .optimizer import Optimizer, ParamGroup, clip_by_global_norm, norm_and_bias
from .scaler import GradScaler
from .schedule import (
    Constant,
    CosineDecay,
    DecayScheduler,
    ExponentialDecay,
    MultiStepDecay,
    OneCycle,
    StepDecay,
    WarmUp,
)

__all__ = [
    "SGD",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Constant",
    "CosineDecay",
    "DecayScheduler",
    "DistOpt",
    "ExponentialDecay",
    "GradScaler",
    "MultiStepDecay",
    "OneCycle",
    "Optimizer",
    "ParamGroup",
    "RMSProp",
    "StepDecay",
    "WarmUp",
    "clip_by_global_norm",
    "norm_and_bias",
]
