"""ConvNeXt (Liu et al. 2022), as in torchvision, and a small one for CIFAR."""

from __future__ import annotations

import functools
from typing import Any

from .. import autograd, layer
from ..layer import GELU, Conv2d, DropPath, Flatten, LayerNorm, LayerNorm2d, Linear, Sequential
from ..tensor import Tensor
from .blocks import Permute, depth_rates
from .common import Classifier, normal_002


def _conv(channels: int, kernel: int, stride: int = 1, padding: int = 0, group: int = 1) -> Conv2d:
    return Conv2d(
        channels, kernel, stride=stride, padding=padding, group=group, initializer=normal_002
    )


class ConvNeXtBlock(layer.Layer):
    """7x7 depthwise convolution, layer norm, and at each pixel a linear layer to 4 · width
    features, GELU and a linear layer back; a learned scale of each channel, and a shortcut."""

    input_types = "own"
    layer_scale: Tensor

    def __init__(self, width: int, drop_path: float) -> None:
        super().__init__()
        self.width = width
        self.block = Sequential(
            _conv(width, 7, padding=3, group=width),
            Permute(0, 2, 3, 1),
            LayerNorm(width, eps=1e-6),
            Linear(4 * width, initializer=normal_002),
            GELU(),
            Linear(width, initializer=normal_002),
        )
        self.stochastic_depth = DropPath(drop_path)

    def initialize(self, x: Tensor) -> None:
        self._new_param("layer_scale", (self.width, 1, 1), x, lambda t: t.set_value(1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.block(x) * autograd.reshape(self.layer_scale, (self.width,))
        return x + self.stochastic_depth(y).transpose((0, 3, 1, 2))


class ConvNeXt(Classifier):
    """A stem with a kernel and a stride of `patch`, and stages of `depths` blocks of `widths`
    channels, each of which halves the size, except the first.

    Images are `size` x `size`. `drop_path` is the probability of stochastic depth that the blocks
    rise to.
    """

    def __init__(
        self,
        depths: tuple[int, ...],
        widths: tuple[int, ...],
        patch: int,
        num_classes: int = 1000,
        size: int = 224,
        drop_path: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        self.image_shape = (3, size, size)
        stages = [Sequential(_conv(widths[0], patch, patch), LayerNorm2d(widths[0]))]
        rates = depth_rates(drop_path, depths)
        for number, (width, stage_rates) in enumerate(zip(widths, rates, strict=True)):
            if number:
                stages.append(Sequential(LayerNorm2d(widths[number - 1]), _conv(width, 2, 2)))
            stages.append(Sequential(*(ConvNeXtBlock(width, rate) for rate in stage_rates)))
        self.features = Sequential(*stages)
        self.classifier = Sequential(
            LayerNorm2d(widths[-1]), Flatten(), Linear(num_classes, initializer=normal_002)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(autograd.globalaveragepool(self.features(x)))


# Makers of `models.create`, whose table says what they are the same as.
convnext_tiny = functools.partial(ConvNeXt, (3, 3, 9, 3), (96, 192, 384, 768), 4)
# The depths and widths of timm's convnext_femto.
convnext_cifar = functools.partial(
    ConvNeXt, (2, 2, 6, 2), (48, 96, 192, 384), 2, num_classes=10, size=32
)
