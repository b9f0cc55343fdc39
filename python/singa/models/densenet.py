"""DenseNet (Huang et al. 2017), as in torchvision."""

from __future__ import annotations

import functools
from typing import Any

from .. import autograd, initializer, layer
from ..layer import AvgPool2d, Linear, MaxPool2d
from ..tensor import Tensor
from .common import Classifier, batch_norm, fan_in_uniform, global_average, same_conv

_conv = functools.partial(same_conv, initializer=initializer.he_normal)


class DenseLayer(layer.Layer):
    """1x1 and 3x3 convolution, each after batch norm and ReLU, to `growth` new channels."""

    def __init__(self, growth: int) -> None:
        super().__init__()
        self.norm1 = batch_norm()
        self.conv1 = _conv(4 * growth, 1)
        self.norm2 = batch_norm()
        self.conv2 = _conv(growth, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.norm2(self.conv1(self.norm1(x, relu=True)), relu=True))


class DenseBlock(layer.Layer):
    """Dense layers, each of which gets the channels of the input and of all layers before it."""

    def __init__(self, depth: int, growth: int) -> None:
        super().__init__()
        self.depth = depth
        for number in range(1, depth + 1):
            setattr(self, f"denselayer{number}", DenseLayer(growth))

    def forward(self, x: Tensor) -> Tensor:
        for number in range(1, self.depth + 1):
            x = autograd.cat([x, getattr(self, f"denselayer{number}")(x)], 1)
        return x


class Transition(layer.Layer):
    """1x1 convolution to `channels` after batch norm and ReLU, then 2x2 mean pooling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = batch_norm()
        self.conv = _conv(channels, 1)
        self.pool = AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(self.norm(x, relu=True)))


class Features(layer.Layer):
    """Stem, and dense blocks with transitions between them."""

    def __init__(self, depths: tuple[int, ...], growth: int, channels: int) -> None:
        super().__init__()
        self.conv0 = _conv(channels, 7, 2)
        self.norm0 = batch_norm()
        self.pool0 = MaxPool2d(3, stride=2, padding=1)
        self._stages: list[layer.Layer] = []
        for number, depth in enumerate(depths, 1):
            if number > 1:
                channels //= 2
                self._add(f"transition{number - 1}", Transition(channels))
            self._add(f"denseblock{number}", DenseBlock(depth, growth))
            channels += depth * growth
        self.norm5 = batch_norm()

    def _add(self, name: str, stage: layer.Layer) -> None:
        setattr(self, name, stage)
        self._stages.append(stage)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool0(self.norm0(self.conv0(x), relu=True))
        for stage in self._stages:
            x = stage(x)
        return self.norm5(x, relu=True)


class DenseNet(Classifier):
    """Four dense blocks of `depths` layers. Input 3 x 224 x 224.

    growth    channels that each layer adds
    channels  channels of the stem
    """

    def __init__(
        self,
        depths: tuple[int, int, int, int],
        growth: int,
        channels: int,
        num_classes: int = 1000,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        self.features = Features(depths, growth, channels)
        self.classifier = Linear(num_classes, initializer=fan_in_uniform)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(global_average(self.features(x)))


# Makers of `models.create`, whose table says what they are the same as.
densenet121 = functools.partial(DenseNet, (6, 12, 24, 16), 32, 64)
