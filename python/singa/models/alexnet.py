"""AlexNet in the one-tower form of Krizhevsky 2014 (arXiv 1404.5997), as in torchvision."""

from __future__ import annotations

from typing import Any

from .. import autograd, layer
from ..layer import Conv2d, Dropout, Linear, MaxPool2d, ReLU
from ..tensor import Tensor
from .common import Classifier, fan_in_uniform


class AlexNet(Classifier):
    """Five convolutions, three fully connected layers. Input 3 x 224 x 224."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        uniform = fan_in_uniform
        self.features = layer.Sequential(
            Conv2d(64, 11, stride=4, padding=2, initializer=uniform),
            ReLU(),
            MaxPool2d(3, stride=2),
            Conv2d(192, 5, padding=2, initializer=uniform),
            ReLU(),
            MaxPool2d(3, stride=2),
            Conv2d(384, 3, padding=1, initializer=uniform),
            ReLU(),
            Conv2d(256, 3, padding=1, initializer=uniform),
            ReLU(),
            Conv2d(256, 3, padding=1, initializer=uniform),
            ReLU(),
            MaxPool2d(3, stride=2),
        )
        self.classifier = layer.Sequential(
            Dropout(dropout),
            Linear(4096, initializer=uniform),
            ReLU(),
            Dropout(dropout),
            Linear(4096, initializer=uniform),
            ReLU(),
            Linear(num_classes, initializer=uniform),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(autograd.flatten(self.features(x)))
