"""VGG (Simonyan & Zisserman 2015), and a variant with batch norm for CIFAR-10."""

from __future__ import annotations

import functools
from typing import Any

from .. import autograd, layer
from ..layer import Conv2d, Dropout, Linear, MaxPool2d, ReLU
from ..tensor import Tensor
from .common import Classifier, batch_norm, fan_in_uniform, he_fan_out, normal_001

# Channels of the 3x3 convolutions; 0 stands for 2x2 max pooling.
_VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
_VGG19 = (64, 64, 0, 128, 128, 0, *(256,) * 4, 0, *(512,) * 4, 0, *(512,) * 4, 0)


def _features(channels: tuple[int, ...], norm: bool) -> layer.Sequential:
    layers: list[layer.Layer] = []
    for width in channels:
        if not width:
            layers.append(MaxPool2d(2))
            continue
        initializer = fan_in_uniform if norm else he_fan_out
        layers.append(Conv2d(width, 3, padding=1, initializer=initializer))
        if norm:
            layers.append(batch_norm())
        layers.append(ReLU())
    return layer.Sequential(*layers)


class VGG(Classifier):
    """VGG without batch norm, as published and as in torchvision. Input 3 x 224 x 224."""

    def __init__(
        self,
        channels: tuple[int, ...],
        num_classes: int = 1000,
        dropout: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        self.features = _features(channels, norm=False)
        self.classifier = layer.Sequential(
            Linear(4096, initializer=normal_001),
            ReLU(),
            Dropout(dropout),
            Linear(4096, initializer=normal_001),
            ReLU(),
            Dropout(dropout),
            Linear(num_classes, initializer=normal_001),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(autograd.flatten(self.features(x)))


class CifarVGG(Classifier):
    """The convolutions of VGG-16, each with batch norm, and one fully connected layer.

    This is the variant in common use for CIFAR, in which convolutions have biases. Input
    3 x 32 x 32.
    """

    image_shape = (3, 32, 32)

    def __init__(self, num_classes: int = 10, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.features = _features(_VGG16, norm=True)
        self.classifier = Linear(num_classes, initializer=fan_in_uniform)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(autograd.flatten(self.features(x)))


# Makers of `models.create`, whose table says what they are the same as.
vgg16 = functools.partial(VGG, _VGG16)  # configuration D
vgg19 = functools.partial(VGG, _VGG19)  # configuration E
