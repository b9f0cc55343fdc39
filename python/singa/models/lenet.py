"""LeNet (LeCun et al. 1998) as in the MNIST examples of Caffe, MXNet and SINGA."""

from __future__ import annotations

from typing import Any

from .. import autograd, layer
from ..tensor import Tensor
from .common import Classifier, fan_in_uniform


class LeNet(Classifier):
    """Two 5x5 convolutions with pooling, two fully connected layers. Input 1 x 28 x 28."""

    image_shape = (1, 28, 28)

    def __init__(self, num_classes: int = 10, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        uniform = fan_in_uniform
        self.conv1 = layer.Conv2d(20, 5, initializer=uniform)
        self.pool1 = layer.MaxPool2d(2)
        self.conv2 = layer.Conv2d(50, 5, initializer=uniform)
        self.pool2 = layer.MaxPool2d(2)
        self.fc1 = layer.Linear(500, initializer=uniform)
        self.fc2 = layer.Linear(num_classes, initializer=uniform)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool1(autograd.relu(self.conv1(x)))
        x = self.pool2(autograd.relu(self.conv2(x)))
        return self.fc2(autograd.relu(self.fc1(autograd.flatten(x))))
