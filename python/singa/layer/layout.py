"""Layers that change how a tensor lies in memory, never its values.

The layout follows the operations by itself; these two are for those who want to say where.
"""

from __future__ import annotations

from .. import autograd
from ..tensor import Tensor
from .base import Layer


class ToBlocked(Layer):
    """x in the layout that the device's convolutions prefer."""

    def forward(self, x: Tensor) -> Tensor:
        return autograd.to_blocked(x)


class ToPlain(Layer):
    """x in row-major order."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous()
