"""Dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import singa_wrap as _c
from ..raw.check import fraction, integer
from ..tape.grad_mode import training as is_training
from ..tape.tensor import Tensor
from .base import BuiltinOperator

if TYPE_CHECKING:
    from ..tape.operator import Raw


class Dropout(BuiltinOperator):
    """Dropout. Srivastava et al. 2014.

    In training it sets each element to zero with probability `ratio` and scales the others by
    1 / (1 - ratio). In inference it returns x.

    With an integer `seed` other than 0, each call has the same mask. Otherwise masks come from the
    random generator of the device. A seed between 0 and 1 is ignored, because SINGA's scripts call
    `dropout(x, 0.5)`, where 0.5 is the seed, and SINGA ignores it.
    """

    fresh_gradients = True

    def __init__(self, seed: float = 0, ratio: float = 0.5) -> None:
        super().__init__()
        ignored = isinstance(seed, float) and 0.0 < seed < 1.0
        self.seed: int = 0 if ignored else integer("Dropout", "seed", seed, 0)
        self.ratio: float = fraction("Dropout", "ratio", ratio, open_end=True)
        self._active = True

    def forward(self, x: Raw) -> Raw:
        self._active = is_training()
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


def dropout(x: Tensor, seed: float = 0, ratio: float = 0.5) -> Tensor:
    """In training, sets each element to zero with probability `ratio` in [0, 1), and scales the
    others by 1 / (1 - ratio). Returns x in inference.

    The second argument is the seed, as in SINGA; see `Dropout`.

    Raises ValueError for a ratio outside [0, 1).

    >>> autograd.training = True
    >>> autograd.dropout(tensor.ones((2, 4)), ratio=0.5).max().item()
    2.0
    """
    return Dropout(seed, ratio)(x)[0]
