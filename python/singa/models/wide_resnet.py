"""Wide residual networks for CIFAR (Zagoruyko & Komodakis 2016)."""

from __future__ import annotations

import functools
from typing import Any

from .. import layer
from ..layer import Dropout, Linear
from ..tensor import Tensor
from .common import Classifier, batch_norm, fan_in_uniform, global_average, same_conv


class PreactivatedBlock(layer.Layer):
    """Two 3x3 convolutions, each after batch norm and ReLU, and a shortcut.

    With `project` the shortcut is a 1x1 convolution after the first ReLU; otherwise it is the
    identity. `dropout` is the probability of dropout between the convolutions.
    """

    def __init__(self, width: int, stride: int, project: bool, dropout: float) -> None:
        super().__init__()
        self.bn1 = batch_norm()
        self.conv1 = same_conv(width, 3, stride)
        self.bn2 = batch_norm()
        self.dropout = Dropout(dropout)
        self.conv2 = same_conv(width, 3)
        self.shortcut = same_conv(width, 1, stride) if project else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(x, relu=True)
        if self.shortcut is not None:
            x = self.shortcut(y)
        y = self.dropout(self.bn2(self.conv1(y), relu=True))
        return x + self.conv2(y)


class WideResNet(Classifier):
    """Three stages of 16, 32 and 64 channels, times `factor`, of `depth` blocks each. With the stem
    that makes 6 · depth + 4 layers. Input 3 x 32 x 32."""

    image_shape = (3, 32, 32)

    def __init__(
        self, depth: int, factor: int, num_classes: int = 10, dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(num_classes, **kwargs)
        self.conv1 = same_conv(16, 3)
        for number, width in enumerate((16, 32, 64), 1):
            stride = 1 if number == 1 else 2
            blocks = [PreactivatedBlock(width * factor, stride, True, dropout)]
            blocks += [
                PreactivatedBlock(width * factor, 1, False, dropout) for _ in range(depth - 1)
            ]
            setattr(self, f"layer{number}", layer.Sequential(*blocks))
        self.bn1 = batch_norm()
        self.fc = Linear(num_classes, initializer=fan_in_uniform)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return self.fc(global_average(self.bn1(x, relu=True)))


# Makers of `models.create`, whose table says what they are the same as.
wrn28_10_cifar = functools.partial(WideResNet, 4, 10)
