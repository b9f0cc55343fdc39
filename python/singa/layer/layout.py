"""Layers that change the memory layout of a tensor, but not its values.

Operations choose layouts by themselves. These layers force a change at a certain place.
"""

from __future__ import annotations

from .. import autograd
from ..tensor import Tensor
from .base import Layer


class ToBlocked(Layer):
    """Converts images to the layout that convolutions of the device prefer.

    >>> x = tensor.random((1, 16, 4, 4))
    >>> bool((layer.ToBlocked()(x).numpy() == x.numpy()).all())  # only the layout changes
    True
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.to_blocked(x)


class ToPlain(Layer):
    """Converts to row-major order.

    >>> layer.ToPlain()(tensor.ones((1, 16, 4, 4))).is_blocked
    False
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous()
