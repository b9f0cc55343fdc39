"""Swin transformer (Liu et al. 2021), as in torchvision."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .. import autograd, layer
from ..layer import GELU, Conv2d, Dropout, LayerNorm, Linear, Sequential
from ..tensor import Tensor
from .blocks import (
    Permute,
    TransformerBlock,
    constant,
    depth_rates,
    heads_apart,
)
from .common import Classifier, fan_in_uniform, normal_002


class WindowAttention(layer.Layer):
    """Attention inside windows of `window` x `window` pixels of x (N, H, W, width), with a learned
    bias for each relative position. The windows are shifted by `shift` pixels.

    Images are padded with zeros to whole windows. An axis of a single window is not shifted.
    """

    input_types = "own"
    relative_position_bias_table: Tensor

    def __init__(self, width: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.heads = heads
        self.window = window
        self.shift = shift
        self.qkv = Linear(3 * width, initializer=normal_002)
        self.proj = Linear(width, initializer=normal_002)

    def initialize(self, x: Tensor) -> None:
        shape = ((2 * self.window - 1) ** 2, self.heads)
        self._new_param("relative_position_bias_table", shape, x, normal_002)

    def forward(self, x: Tensor) -> Tensor:
        n, height, width, channels = x.shape
        window, heads, area = self.window, self.heads, self.window**2
        rows, columns = -(-height // window), -(-width // window)
        below, right = rows * window - height, columns * window - width
        shifts = [0 if count == 1 else self.shift for count in (rows, columns)]
        if below or right:
            x = autograd.pad(x, "constant", [0, 0, 0, 0, 0, below, right, 0])
        if any(shifts):
            x = autograd.roll(x, [-shift for shift in shifts], (1, 2))
        x = x.reshape((n, rows, window, columns, window, channels))
        x = x.transpose((0, 1, 3, 2, 4, 5)).reshape((-1, area, channels))

        mask = self._position_bias()
        if any(shifts):  # the sum of both for each window of an image, which repeats
            mask = mask + constant("shift", x, _shift_mask, rows, columns, window, *shifts)
        q, k, v = (
            heads_apart(part, heads) for part in autograd.split(self.qkv(x), 2, num_output=3)
        )
        y = autograd.scaled_dot_product_attention(q, k, v, mask)
        y = self.proj(y.transpose((0, 2, 1, 3)).reshape((-1, area, channels)))

        y = y.reshape((n, rows, columns, window, window, channels)).transpose((0, 1, 3, 2, 4, 5))
        y = y.reshape((n, rows * window, columns * window, channels))
        if any(shifts):
            y = autograd.roll(y, shifts, (1, 2))
        return y[:, :height, :width] if below or right else y

    def _position_bias(self) -> Tensor:
        """The bias of each pair of pixels of a window: (heads, area, area)."""
        table = self.relative_position_bias_table
        index = constant("relative position", table, _relative_positions, self.window)
        bias = autograd.gather(table, 0, index)
        return bias.transpose((1, 0)).reshape((self.heads, self.window**2, self.window**2))


def _relative_positions(window: int) -> np.ndarray:
    """The place in the table of each pair of pixels (area · area), where the table has an entry for
    each difference of rows and columns."""
    row, column = np.divmod(np.arange(window**2), window)
    rows = row[:, None] - row + window - 1
    columns = column[:, None] - column + window - 1
    return (rows * (2 * window - 1) + columns).reshape(-1)


def _shift_mask(rows: int, columns: int, window: int, down: int, across: int) -> np.ndarray:
    """(windows, 1, area, area): -100 for pairs of pixels of a window that the shift has brought
    together from opposite edges of the image, and 0 for others."""

    def regions(count: int, shift: int) -> np.ndarray:
        found = np.zeros(count * window, np.int64)
        if shift:
            found[-window:-shift], found[-shift:] = 1, 2
        return found.reshape(count, 1, window, 1)

    vertical, horizontal = regions(rows, down), regions(columns, across)
    region = 3 * vertical + horizontal.reshape(1, columns, 1, window)
    region = region.reshape(rows * columns, 1, window**2)
    return np.where(region[..., None] == region[..., None, :], 0, -100).astype(np.float32)


class PatchMerging(layer.Layer):
    """Joins the features of 2 x 2 pixels, and maps them to `width`: (N, H, W, C) → (N, ⌈H/2⌉,
    ⌈W/2⌉, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = LayerNorm(2 * width)
        self.reduction = Linear(width, bias=False, initializer=normal_002)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] % 2 or x.shape[2] % 2:
            x = autograd.pad(x, "constant", [0] * 5 + [x.shape[1] % 2, x.shape[2] % 2, 0])
        n, height, width, channels = x.shape
        x = x.reshape((n, height // 2, 2, width // 2, 2, channels)).transpose((0, 1, 3, 4, 2, 5))
        x = x.reshape((n, height // 2, width // 2, 4 * channels))
        return self.reduction(self.norm(x))


class SwinTransformer(Classifier):
    """Stages of `depths` blocks, whose windows are shifted in every second block. Input 3 x 224 x
    224.

    width      features of the first stage; each later one has twice as many
    heads      heads of the attention, by stage
    drop_path  probability of stochastic depth that the blocks rise to (default 0.2)
    """

    torch_ignore = (*Classifier.torch_ignore, "*.relative_position_index")

    def __init__(
        self,
        depths: tuple[int, ...],
        width: int,
        heads: tuple[int, ...],
        num_classes: int = 1000,
        dropout: float = 0.0,
        drop_path: float = 0.2,
        window: int = 7,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        stages: list[layer.Layer] = [
            Sequential(
                Conv2d(width, 4, stride=4, initializer=fan_in_uniform),
                Permute(0, 2, 3, 1),
                LayerNorm(width),
            )
        ]
        for number, rates in enumerate(depth_rates(drop_path, depths)):
            if number:
                width *= 2
                stages.append(PatchMerging(width))
            blocks = [
                TransformerBlock(
                    width,
                    WindowAttention(width, heads[number], window, index % 2 * (window // 2)),
                    Sequential(
                        Linear(4 * width, initializer=normal_002),
                        GELU(),
                        Dropout(dropout),
                        Linear(width, initializer=normal_002),
                        Dropout(dropout),
                    ),
                    1e-5,
                    rate,
                )
                for index, rate in enumerate(rates)
            ]
            stages.append(Sequential(*blocks))
        self.features = Sequential(*stages)
        self.norm = LayerNorm(width)
        self.head = Linear(num_classes, initializer=normal_002)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.features(x))
        return self.head(autograd.reduce_mean(x, [1, 2], 0))


# Makers of `models.create`, whose table says what they are the same as.
swin_tiny = functools.partial(SwinTransformer, (2, 2, 6, 2), 96, (3, 6, 12, 24))
