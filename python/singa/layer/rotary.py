"""Rotary position embedding as a layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import autograd, tensor
from ..dtypes import wide_type
from ..raw.check import integer, positive
from ..tensor import Tensor
from .base import Layer


class RotaryEmbedding(Layer):
    """Turns queries or keys x (B, H, N, D) by angles that grow with the position. Su et al. 2021.

    dim            how many features are turned, the first ones: even, at most D
    max_positions  number of positions, from 0 on (default 2048)
    base           pair i turns by base^(-2i / dim) radians for each position (default 10000)
    interleaved    pairs are neighbours, as in the paper and GPT-J; otherwise the two halves, as in
                   GPT-NeoX and Llama, the default

    The layer is called with x and optionally `positions`, whole numbers (B, N), or `first`, the
    first of N positions (default 0). It has no parameters. See `autograd.rotary_embedding`.

    Raises ValueError for an odd dim, and for positions beyond max_positions.

    >>> layer.RotaryEmbedding(8)(tensor.ones((1, 2, 5, 8))).shape
    (1, 2, 5, 8)
    """

    transient = ("_tables",)
    handle_settings = ("dim", "max_positions", "base")

    def __init__(
        self,
        dim: int,
        max_positions: int = 2048,
        base: float = 10000.0,
        interleaved: bool = False,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.max_positions = max_positions
        self.base = base
        self.interleaved = bool(interleaved)
        self._tables: tuple[Tensor, Tensor] | None = None

    def _checked_setting(self, name: str, value: Any) -> Any:
        kind = "RotaryEmbedding"
        if name == "base":
            return positive(kind, name, value, finite=True)
        value = integer(kind, name, value, 2 if name == "dim" else 1)
        if name == "dim" and value % 2:
            raise ValueError(f"[{kind}] dim must be even, got {value}")
        return value

    def initialize(self, x: Tensor, *others: Any, **options: Any) -> None:
        self._tables = self._tables_for(x)

    def forward(self, x: Tensor, positions: Any = None, first: int = 0) -> Tensor:
        cos, sin = self._tables_for(x)
        return autograd.rotary_embedding(x, cos, sin, positions, first, self.interleaved)

    def _tables_for(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (max_positions, dim / 2), on x's device."""
        kind = wide_type(x.dtype).name
        kept = self._tables
        if kept and kept[0].device.id() == x.device.id() and kept[0].dtype.name == kind:
            return kept
        speeds = self.base ** (-np.arange(0, self.dim, 2) / self.dim)
        angles = np.outer(np.arange(self.max_positions), speeds)
        cos, sin = (
            tensor.from_numpy(table.astype(kind), x.device, dtype=kind)
            for table in (np.cos(angles), np.sin(angles))
        )
        cos.requires_grad = sin.requires_grad = False
        self._tables = cos, sin
        return self._tables
