"""ShuffleNet v2 (Ma et al. 2018), as in torchvision."""

from __future__ import annotations

import functools
from typing import Any

from .. import autograd, layer
from ..layer import Conv2d, Linear, MaxPool2d, ReLU, Sequential
from ..tensor import Tensor
from .common import Classifier, batch_norm, fan_in_uniform, global_average, same_conv

_conv = functools.partial(same_conv, initializer=fan_in_uniform)


def _depthwise(channels: int, stride: int) -> Conv2d:
    return _conv(channels, 3, stride, group=channels)


class ShuffleUnit(layer.Layer):
    """Two branches with half of the `out` channels each, joined and shuffled.

    With stride 1, each branch gets half of the input, and the first one is the identity. With
    stride 2, each gets the whole input of `channels` channels.
    """

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        half = out // 2
        self.branch1: Sequential | None = None
        if stride > 1:
            self.branch1 = Sequential(
                _depthwise(channels, stride), batch_norm(), _conv(half, 1), batch_norm(), ReLU()
            )
        self.branch2 = Sequential(
            *(_conv(half, 1), batch_norm(), ReLU()),
            *(_depthwise(half, stride), batch_norm()),
            *(_conv(half, 1), batch_norm(), ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.branch1 is not None:
            parts = self.branch1(x), self.branch2(x)
        else:
            kept, changed = autograd.split(x, 1, num_output=2)
            parts = kept, self.branch2(changed)
        return autograd.channel_shuffle(autograd.cat(parts, 1), 2)


class ShuffleNetV2(Classifier):
    """Stem, three stages of units, and a 1x1 convolution. Input 3 x 224 x 224.

    `channels` are those of the stem, of the stages, and of the last convolution.
    """

    def __init__(
        self, channels: tuple[int, int, int, int, int], num_classes: int = 1000, **kwargs: Any
    ) -> None:
        super().__init__(num_classes, **kwargs)
        self.conv1 = Sequential(_conv(channels[0], 3, 2), batch_norm(), ReLU())
        self.maxpool = MaxPool2d(3, stride=2, padding=1)
        for number, depth in ((2, 4), (3, 8), (4, 4)):
            before, out = channels[number - 2], channels[number - 1]
            units = [ShuffleUnit(before, out, 2)]
            units += [ShuffleUnit(out, out, 1) for _ in range(depth - 1)]
            setattr(self, f"stage{number}", Sequential(*units))
        self.conv5 = Sequential(_conv(channels[4], 1), batch_norm(), ReLU())
        self.fc = Linear(num_classes, initializer=fan_in_uniform)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.conv1(x))
        x = self.conv5(self.stage4(self.stage3(self.stage2(x))))
        return self.fc(global_average(x))


# Makers of `models.create`, whose table says what they are the same as.
shufflenet_v2_x1_0 = functools.partial(ShuffleNetV2, (24, 116, 232, 464, 1024))
