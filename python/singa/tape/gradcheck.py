"""Gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtypes import float64, is_float
from .backward import backward
from .grad_mode import enable_grad, no_grad
from .tensor import Tensor


class GradientError(AssertionError):
    """A gradient disagrees with finite differences.

    >>> class Wrong(autograd.Operator):
    ...     def forward(self, x):
    ...         return 2 * x
    ...     def backward(self, dy):
    ...         return 3 * dy
    ...
    >>> try:
    ...     autograd.gradcheck(lambda x: Wrong()(x)[0], tensor.ones((2,)))
    ... except autograd.GradientError as error:
    ...     print("caught")
    ...
    caught
    """


def gradcheck(
    fn: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Tensor | Sequence[Tensor],
    eps: float = 1e-6,
    atol: float = 1e-6,
    rtol: float = 1e-5,
    directions: int = 3,
    seed: int = 0,
) -> bool:
    """Checks the gradients of `fn` for every float input; returns True, or raises GradientError.

    fn takes Tensors and returns one or several. Everything runs in float64, at the inputs' values:
    the outputs are projected on random weights, and the slope of that number along random
    directions of each input, by central differences of width `eps`, is compared with the tape's.
    A function that is not smooth within eps of the inputs fails; so does one that draws random
    numbers.

    >>> x, w = tensor.random((4, 3)), tensor.random((3, 2))
    >>> autograd.gradcheck(lambda x, w: autograd.tanh(x @ w), [x, w])
    True
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    random = np.random.default_rng(seed)
    values = [x.numpy() for x in given]
    checked = [i for i, x in enumerate(given) if is_float(x.dtype)]
    if not checked:
        raise ValueError("[gradcheck] no input is of a float type")

    def tensors(changed: int | None = None, change: Any = 0.0) -> list[Tensor]:
        result = []
        for i, value in enumerate(values):
            if i in checked:
                new = value.astype(np.float64) + (change if i == changed else 0.0)
                x = Tensor((), given[i].device, float64, new, stores_grad=True)
            else:
                x = given[i].detach()
            result.append(x)
        return result

    def outputs(xs: list[Tensor]) -> list[Tensor]:
        ys = fn(*xs)
        return [ys] if isinstance(ys, Tensor) else [y for y in ys if is_float(y.dtype)]

    def project(ys: list[Tensor]) -> float:
        return sum(
            float(np.sum(w * y.numpy().astype(np.float64)))
            for w, y in zip(weights, ys, strict=True)
        )

    xs = tensors()
    with enable_grad():
        ys = outputs(xs)
    weights = [random.standard_normal(y.shape) for y in ys]
    analytic = [np.zeros(x.shape) for x in xs]
    for w, y in zip(weights, ys, strict=True):
        for x, gradient in backward(y, w, retain_graph=True):
            analytic[next(i for i, own in enumerate(xs) if own is x)] += gradient.numpy()
    with no_grad():
        for i in checked:
            for _ in range(directions if values[i].size else 0):
                direction = random.standard_normal(values[i].shape)
                direction /= max(float(np.linalg.norm(direction)), 1e-300)
                above = project(outputs(tensors(i, eps * direction)))
                below = project(outputs(tensors(i, -eps * direction)))
                numeric = (above - below) / (2 * eps)
                slope = float(np.sum(analytic[i] * direction))
                if not abs(slope - numeric) <= atol + rtol * max(abs(numeric), abs(slope)):
                    raise GradientError(
                        f"[gradcheck] input {i} of shape {values[i].shape}: along a direction the "
                        f"tape says {slope:.9g}, finite differences {numeric:.9g}"
                    )
    return True
