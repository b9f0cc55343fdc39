"""Blocks of mobile networks and of transformers, under torchvision's and timm's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import autograd, layer, tensor
from ..layer import Conv2d, Dropout, DropPath, Linear
from ..tensor import Tensor
from .common import batch_norm, he_fan_out, normal_002, same_conv

Activation = Callable[[], layer.Layer]


# Mobile networks.


def make_divisible(channels: float, divisor: int = 8) -> int:
    """The multiple of `divisor` nearest to `channels`, but at least 90 % of it, as in torchvision's
    mobile networks."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * channels else rounded + divisor


class ConvNormActivation(layer.Sequential):
    """Convolution without bias, which keeps the size at stride 1, batch norm and an activation.

    `activation` makes a layer; None leaves it out. `eps` and `momentum` are those of the norm.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int = 3,
        stride: int = 1,
        group: int = 1,
        activation: Activation | None = layer.ReLU,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        conv = same_conv(channels, kernel_size, stride, group)
        super().__init__(
            conv, batch_norm(eps, momentum), *([] if activation is None else [activation()])
        )

    def forward(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        """`add` is a residual to add to the result. Only a block without activation takes it."""
        if add is None:
            return super().forward(x)
        conv, norm = self[0], self[1]
        return norm(conv(x), add=add)


class SqueezeExcitation(layer.Layer):
    """Scales each channel by a function of the means of all channels. Hu, Shen & Sun 2018.

    channels    channels of the input
    squeezed    channels between the two 1x1 convolutions
    activation  after the first (default ReLU)
    scale       after the second (default Sigmoid)
    """

    def __init__(
        self,
        channels: int,
        squeezed: int,
        activation: Activation = layer.ReLU,
        scale: Activation = layer.Sigmoid,
    ) -> None:
        super().__init__()
        self.fc1: Conv2d = Conv2d(squeezed, 1, initializer=he_fan_out)
        self.fc2: Conv2d = Conv2d(channels, 1, initializer=he_fan_out)
        self.activation: layer.Layer = activation()
        self.scale_activation: layer.Layer = scale()

    def forward(self, x: Tensor) -> Tensor:
        means = autograd.globalaveragepool(x)
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(means))))


class InvertedResidual(layer.Layer):
    """1x1 convolution to more channels, depthwise convolution, 1x1 convolution to few channels, and
    a shortcut where input and output have the same shape. Sandler et al. 2018.

    channels   of the input
    expanded   of the depthwise convolution; if equal to `channels`, there is no convolution before
    out        of the output
    squeeze    after the depthwise convolution; None: nothing
    drop_path  probability of stochastic depth

    Further keyword arguments are those of ConvNormActivation.
    """

    def __init__(
        self,
        channels: int,
        expanded: int,
        out: int,
        kernel_size: int = 3,
        stride: int = 1,
        *,
        activation: Activation,
        squeeze: SqueezeExcitation | None = None,
        drop_path: float = 0.0,
        **norm: Any,
    ) -> None:
        super().__init__()
        stages: list[layer.Layer] = []
        if expanded != channels:
            stages.append(ConvNormActivation(expanded, 1, activation=activation, **norm))
        stages.append(
            ConvNormActivation(
                expanded, kernel_size, stride, group=expanded, activation=activation, **norm
            )
        )
        if squeeze is not None:
            stages.append(squeeze)
        self.block: layer.Sequential = layer.Sequential(
            *stages, ConvNormActivation(out, 1, activation=None, **norm)
        )
        self.stochastic_depth: DropPath = DropPath(drop_path)
        self.has_shortcut: bool = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        if not self.has_shortcut:
            return self.block(x)
        if self.stochastic_depth.drop_prob:
            return x + self.stochastic_depth(self.block(x))
        y = x
        *stages, project = self.block
        for stage in stages:
            y = stage(y)
        return project(y, add=x)


# Transformers.


class Permute(layer.Layer):
    """Permutes the axes of a tensor."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(self.axes)


_constants: dict[tuple[Any, ...], Tensor] = {}


def constant(name: str, like: Tensor, make: Callable[..., np.ndarray], *arguments: int) -> Tensor:
    """`make(*arguments)` as a tensor on the device of `like`.

    It is kept, because recorded steps cannot create tensors from host data.
    """
    key = (name, *arguments, like.device.id())
    if key not in _constants:
        if len(_constants) >= 256:
            _constants.clear()
        made = tensor.from_numpy(make(*arguments), like.device)
        made.requires_grad = False
        _constants[key] = made
    return _constants[key]


def heads_apart(x: Tensor, heads: int) -> Tensor:
    """(N, L, heads · d) → (N, heads, L, d)."""
    n, length, width = x.shape
    return x.reshape((n, length, heads, width // heads)).transpose((0, 2, 1, 3))


class SelfAttention(layer.Layer):
    """Attention of x (N, L, width) to itself, with `heads` heads. Vaswani et al. 2017.

    causal   each position sees itself and those before it (default False)
    dropout  probability of dropout of the result (default 0)
    project  initial values of the last linear layer
    """

    def __init__(
        self,
        width: int,
        heads: int,
        causal: bool = False,
        dropout: float = 0.0,
        project: Callable[[Tensor], Any] = normal_002,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv: Linear = Linear(3 * width, initializer=normal_002)
        self.proj: Linear = Linear(width, initializer=project)
        self.proj_drop: Dropout = Dropout(dropout)

    def forward(self, x: Tensor, cache: layer.KeyValueCache | None = None) -> Tensor:
        """`cache` has keys and values of the positions before those of x, which are appended."""
        q, k, v = (
            heads_apart(part, self.heads) for part in autograd.split(self.qkv(x), 2, num_output=3)
        )
        first = 0
        if cache is not None:
            first = cache.length
            cache.append(k, v)
            k, v = cache.read(whole=self.causal)
        y = autograd.scaled_dot_product_attention(q, k, v, is_causal=self.causal, first_query=first)
        return self.proj_drop(self.proj(y.transpose((0, 2, 1, 3)).reshape(x.shape)))


class MLP(layer.Layer):
    """Linear layer to `hidden` features, GELU, linear layer to `width` features, dropout.

    `project` fills the second matrix.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        approximate: str = "none",
        dropout: float = 0.0,
        project: Callable[[Tensor], Any] = normal_002,
    ) -> None:
        super().__init__()
        self.fc1: Linear = Linear(hidden, initializer=normal_002)
        self.act: layer.GELU = layer.GELU(approximate)
        self.fc2: Linear = Linear(width, initializer=project)
        self.drop: Dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.fc2(self.act(self.fc1(x))))


class TransformerBlock(layer.Layer):
    """x + attention(norm(x)), then x + mlp(norm(x)), with stochastic depth. Dosovitskiy et al.
    2021.

    attn, mlp  maps x (..., width) to its shape; the former gets further arguments of a call
    eps        of the layer norms
    drop_path  probability of stochastic depth (default 0)
    """

    def __init__(
        self, width: int, attn: layer.Layer, mlp: layer.Layer, eps: float, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        self.norm1: layer.LayerNorm = layer.LayerNorm(width, eps)
        self.attn = attn
        self.norm2: layer.LayerNorm = layer.LayerNorm(width, eps)
        self.mlp = mlp
        self.drop_path: DropPath = DropPath(drop_path)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), *context))
        return x + self.drop_path(self.mlp(self.norm2(x)))


def depth_rates(drop_path: float, depths: Sequence[int]) -> list[list[float]]:
    """Probabilities of stochastic depth of the blocks of each stage, which rise linearly from 0 to
    `drop_path`. Huang et al. 2016."""
    last = max(sum(depths) - 1, 1)
    rates = iter(range(sum(depths)))
    return [[drop_path * next(rates) / last for _ in range(depth)] for depth in depths]
