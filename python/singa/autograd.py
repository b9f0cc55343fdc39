"""Automatic differentiation: the tape, its operators, and functions that apply them.

    autograd.training = True
    loss = autograd.softmax_cross_entropy(autograd.matmul(x, w), labels)
    for parameter, gradient in autograd.backward(loss):
        parameter -= 0.1 * gradient

`training` is a flag of the calling thread: batch norm and dropout follow it, and so does recording,
unless `no_grad()` or `enable_grad()` say otherwise.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from . import ops, tape
from . import singa_wrap as _c
from ._tensor import Tensor, wrap
from .autocast import autocast
from .gradcheck import GradientError, gradcheck
from .ops import *  # noqa: F403
from .tape import (
    Dummy,
    Operator,
    enable_grad,
    infer_dependency,
    is_recording,
    no_grad,
)
from .walk import Gradients, backward, gradients

if TYPE_CHECKING:
    import numpy as np

CTensor = _c.Tensor

#: This thread's training flag; assign to it.
training: bool

__all__ = [
    *ops.__all__,
    "CTensor",
    "Dummy",
    "GradientError",
    "Gradients",
    "Operator",
    "Tensor",
    "autocast",
    "axis_helper",
    "back_broadcast",
    "backward",
    "ctensor2numpy",
    "enable_grad",
    "gradcheck",
    "gradients",
    "infer_dependency",
    "is_recording",
    "no_grad",
    "training",
]


def axis_helper(y_shape: tuple[int, ...], x_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of y along which x was broadcast to y's shape."""
    missing = len(y_shape) - len(x_shape)
    return tuple(
        axis
        for axis, length in enumerate(y_shape)
        if axis < missing or (x_shape[axis - missing] == 1 and length != 1)
    )


def back_broadcast(y_shape: tuple[int, ...], x_shape: tuple[int, ...], x: Any) -> Any:
    """The raw tensor x, of shape y_shape, summed to x_shape, which was broadcast to y_shape."""
    return x if tuple(y_shape) == tuple(x_shape) else _c.SumTo(x, x_shape)


def ctensor2numpy(x: Any) -> np.ndarray[Any, Any]:
    """A copy of a raw tensor as an array."""
    return wrap(x, False).numpy()


Operation = Operator  # its older name


class _Autograd(types.ModuleType):
    """The module's class, which makes `training` a flag of each thread."""

    @property
    def training(self) -> bool:
        return tape.training()

    @training.setter
    def training(self, flag: bool) -> None:
        tape.set_training(flag)


sys.modules[__name__].__class__ = _Autograd
