"""Batch normalisation, local response normalisation, dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from .. import tape
from .._check import fraction, integer, number
from .._tensor import Tensor, as_raw
from .base import Op

if TYPE_CHECKING:
    from ..tape import Raw


class _BatchNorm2d(Op):
    """Batch normalisation over every axis of x but 1, with scale and bias (C); then, if given, a
    residual of x's shape is added, and with `relu` what is negative is cut off.

    While training it normalises by the batch and updates the running statistics in place;
    otherwise, by those.
    """

    fresh_gradients = True

    def __init__(
        self,
        handle: _c.BatchNormHandle,
        running_mean: Any,
        running_var: Any,
        name: str | None = None,
        relu: bool = False,
    ) -> None:
        super().__init__(name)
        self.handle = handle
        self.running_mean = None if running_mean is None else as_raw(running_mean)
        self.running_var = None if running_var is None else as_raw(running_var)
        self.relu = relu
        self._batch = self._adds = False

    def forward(self, x: Raw, scale: Raw, bias: Raw, add: Raw | None = None) -> Raw:
        self._batch = tape.training()
        self._adds = add is not None
        # Without relu the gradient of what was added is dy itself.
        self.fresh_gradients = self.relu or not self._adds
        running = self.running_mean, self.running_var
        arguments = self.handle, x, scale, bias, *running, add, self.relu
        if self._batch:
            y, mean, var = _c.BatchNormForwardTraining(*arguments)
            statistics = mean, var
        else:
            y = _c.BatchNormForwardInference(*arguments)
            statistics = running
        # Where relu cut off can be told from y, or without a residual from bias and the others.
        signs = (bias if not self._adds else None, y if self._adds else None)
        self.save(x, scale, *statistics, *(signs if self.relu else (None, None)))
        return y

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        backward = _c.BatchNormBackward if self._batch else _c.BatchNormBackwardInference
        *inputs, bias, y = self.load()
        need_scale = self._need(1) or self._need(2)
        need_add = self._adds and self._need(3)
        gradients = backward(
            self.handle, dy, *inputs, self._need(0), need_scale, self.relu, bias, y, need_add
        )
        return (*gradients, None) if self._adds and not need_add else gradients


class LRN(Op):
    """x / (k + alpha / size · Σ x²)^beta, the sum over `size` neighbouring channels."""

    fresh_gradients = True

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        constants = {"alpha": alpha, "beta": beta, "k": k}
        self._constants = (
            integer("LRN", "size", size, 1),
            *(number("LRN", name, value) for name, value in constants.items()),
        )

    def forward(self, x: Raw) -> Raw:
        y, saved = _c.LrnForward(x, *self._constants, self.requires_grad is not False)
        self.save(x, y, saved)
        return y

    def backward(self, dy: Raw) -> Raw:
        return _c.LrnBackward(dy, *self.load(), *self._constants)


class Dropout(Op):
    """While training, zeroes each element with probability `ratio` and scales the others by
    1 / (1 - ratio); otherwise x itself.

    A seed (a whole number, not 0) gives the same mask at each call; without one, the mask comes
    from the device's sequence. A seed between 0 and 1 is ignored: scripts for SINGA call
    `dropout(x, 0.5)`, where 0.5 is the seed, which SINGA ignores.
    """

    fresh_gradients = True

    def __init__(self, seed: float = 0, ratio: float = 0.5) -> None:
        super().__init__()
        ignored = isinstance(seed, float) and 0.0 < seed < 1.0
        self.seed = 0 if ignored else integer("Dropout", "seed", seed, 0)
        self.ratio = fraction("Dropout", "ratio", ratio, open_end=True)
        self._active = True

    def forward(self, x: Raw) -> Raw:
        self._active = tape.training()
        if not self._active:
            return x
        device = x.device()
        state = device.random_state() if self.seed else None
        if state is not None:
            device.SetRandSeed(self.seed)
        try:
            y, mask = _c.DropoutForward(x, self.ratio)
        finally:
            if state is not None:
                device.set_random_state(state)
        self.save(mask)
        return y

    def backward(self, dy: Raw) -> Raw:
        if not self._active:
            return dy.Clone()
        (mask,) = self.load()
        return _c.DropoutBackward(dy, mask, self.ratio)


def batchnorm_2d(
    handle: _c.BatchNormHandle,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    add: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """Batch normalisation over every axis of x but 1; training updates the running statistics.

    `add`, of x's shape, is added to the result, and `relu` applied to that: `relu(bn(x) + add)` in
    one operation, which reads and writes its tensors once.
    """
    op = _BatchNorm2d(handle, running_mean, running_var, relu=relu)
    return op(x, scale, bias)[0] if add is None else op(x, scale, bias, add)[0]


def lrn(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha / size · Σ x²)^beta, the sum over `size` neighbouring channels."""
    return LRN(size, alpha, beta, k)(x)[0]


def dropout(x: Tensor, seed: float = 0, ratio: float = 0.5) -> Tensor:
    """While training, zeroes each element with probability `ratio` and scales the others. The
    second argument is the seed, as in SINGA; see `Dropout`."""
    return Dropout(seed, ratio)(x)[0]
