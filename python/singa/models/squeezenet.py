"""SqueezeNet 1.1 (Iandola et al. 2016), as in torchvision."""

from __future__ import annotations

from typing import Any

from .. import autograd, initializer, layer
from ..layer import Conv2d, Dropout, MaxPool2d, ReLU, Sequential
from ..tensor import Tensor
from .common import Classifier, global_average, normal_001

# Channels of the 1x1 convolution, and of each of the two after it; None stands for max pooling.
_FIRES = (
    *(None, (16, 64), (16, 64)),
    *(None, (32, 128), (32, 128)),
    *(None, (48, 192), (48, 192), (64, 256), (64, 256)),
)


def _conv(channels: int, kernel: int, stride: int = 1, padding: int = 0) -> Conv2d:
    return Conv2d(
        channels, kernel, stride=stride, padding=padding, initializer=initializer.he_uniform
    )


class Fire(layer.Layer):
    """1x1 convolution to few channels, then 1x1 and 3x3 convolutions side by side."""

    def __init__(self, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = _conv(squeezed, 1)
        self.expand1x1 = _conv(expanded, 1)
        self.expand3x3 = _conv(expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = autograd.relu(self.squeeze(x))
        return autograd.relu(autograd.cat([self.expand1x1(x), self.expand3x3(x)], 1))


class SqueezeNet(Classifier):
    """Eight fire modules. Input 3 x 224 x 224."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.features = Sequential(
            _conv(64, 3, stride=2),
            ReLU(),
            *(
                MaxPool2d(3, stride=2, ceil_mode=True) if each is None else Fire(*each)
                for each in _FIRES
            ),
        )
        self.classifier = Sequential(
            Dropout(dropout), Conv2d(num_classes, 1, initializer=normal_001), ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        return global_average(self.classifier(self.features(x)))
