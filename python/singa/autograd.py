"""Automatic differentiation: the tape, its operators, and functions that apply them.

    autograd.training = True
    loss = autograd.softmax_cross_entropy(autograd.matmul(x, w), labels)
    for parameter, gradient in autograd.backward(loss):
        parameter -= 0.1 * gradient

`training` is a flag of the calling thread, False at first. Batch norm and dropout read it. It also
turns recording on the tape on and off; `no_grad()` and `enable_grad()` override that.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from . import ops
from . import singa_wrap as _c
from .ops import *  # noqa: F403
from .raw import words
from .tape import grad_mode
from .tape.autocast import autocast as autocast
from .tape.backward import Gradients as Gradients
from .tape.backward import backward as backward
from .tape.backward import gradients as gradients
from .tape.backward import input_gradients as input_gradients
from .tape.grad_mode import enable_grad as enable_grad
from .tape.grad_mode import is_recording as is_recording
from .tape.grad_mode import no_grad as no_grad
from .tape.gradcheck import GradientError as GradientError
from .tape.gradcheck import gradcheck as gradcheck
from .tape.operator import Dummy as Dummy
from .tape.operator import Operator as Operator
from .tape.operator import infer_dependency as infer_dependency
from .tape.tensor import Tensor as Tensor
from .tape.tensor import wrap

if TYPE_CHECKING:  # mypy's `*` leaves out SINGA's names with an underscore
    import numpy as np

    from .ops import _RNN as _RNN
    from .ops import _and as _and
    from .ops import _BatchNorm2d as _BatchNorm2d
    from .ops import _Conv as _Conv
    from .ops import _Conv2d as _Conv2d
    from .ops import _ConvTranspose as _ConvTranspose
    from .ops import _ConvTranspose2d as _ConvTranspose2d
    from .ops import _not as _not
    from .ops import _or as _or
    from .ops import _Pooling as _Pooling
    from .ops import _Pooling2d as _Pooling2d
    from .ops import _xor as _xor

#: This thread's training flag; assign to it.
training: bool

if not TYPE_CHECKING:  # mypy reads no computed list; it follows the imports
    __all__ = [
        *ops.__all__,
        "CTensor",  # noqa: F405 - an alias (`compat.names`)
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
        "input_gradients",
        "is_recording",
        "no_grad",
        "training",
    ]


def axis_helper(y_shape: tuple[int, ...], x_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a tensor of shape `y_shape` along which one of `x_shape` was broadcast to it.

    >>> autograd.axis_helper((2, 3, 4), (3, 1))
    (0, 2)
    """
    missing = len(y_shape) - len(x_shape)
    return tuple(
        axis
        for axis, length in enumerate(y_shape)
        if axis < missing or (x_shape[axis - missing] == 1 and length != 1)
    )


def back_broadcast(y_shape: tuple[int, ...], x_shape: tuple[int, ...], x: Any) -> Any:
    """Sums the raw tensor x of shape `y_shape` to `x_shape`: the gradient of a broadcast from
    `x_shape` to `y_shape`.

    >>> dy = tensor.ones((2, 3))
    >>> tensor.from_raw_tensor(autograd.back_broadcast((2, 3), (3,), dy.data))
    Tensor([2., 2., 2.], dtype=float32)
    """
    return x if tuple(y_shape) == tuple(x_shape) else _c.SumTo(x, x_shape)


def ctensor2numpy(x: Any) -> np.ndarray[Any, Any]:
    """Copies a raw tensor to a NumPy array; bfloat16 becomes float32.

    >>> autograd.ctensor2numpy(tensor.ones((2,)).data)
    array([1., 1.], dtype=float32)
    """
    return wrap(x, False).numpy()


# In the class below it would take 700 instructions of each `autograd.relu`.
def __getattr__(name: str) -> Any:
    return words.missing(__name__, name)


class _Autograd(types.ModuleType):
    """Class of this module. It makes `training` a property, with one value per thread."""

    @property
    def training(self) -> bool:
        return grad_mode.training()

    @training.setter
    def training(self, flag: bool) -> None:
        grad_mode.set_training(flag)


sys.modules[__name__].__class__ = _Autograd
