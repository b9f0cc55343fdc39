"""Inception with batch norm ("v2"; Ioffe & Szegedy 2015, figure 5).

Numbers of channels are those of MXNet's "inception-bn". Convolutions have no bias, because the
batch norm after them would cancel it (section 3.2 of the paper).
"""

from __future__ import annotations

import functools
from typing import Any

from .. import layer
from ..layer import AvgPool2d, Linear, MaxPool2d
from ..tensor import Tensor
from .common import Branches, Classifier, ConvBN, global_average, he_fan_out

_conv = functools.partial(ConvBN, eps=1e-5, initializer=he_fan_out)


def _block(
    c1: int, c3_before: int, c3: int, cd_before: int, cd: int, pool: type, projection: int
) -> Branches:
    """Branches 1x1 | 3x3 | two 3x3 | pooling and 1x1, all with stride 1."""
    return Branches(
        conv1x1=(_conv(c1, 1),),
        conv3x3=(_conv(c3_before, 1), _conv(c3, 3, padding=1)),
        double=(_conv(cd_before, 1), _conv(cd, 3, padding=1), _conv(cd, 3, padding=1)),
        pool=(pool(3, stride=1, padding=1), _conv(projection, 1)),
    )


def _halving_block(c3_before: int, c3: int, cd_before: int, cd: int) -> Branches:
    """Branches 3x3 | two 3x3 | pooling, all with stride 2."""
    return Branches(
        conv3x3=(_conv(c3_before, 1), _conv(c3, 3, stride=2, padding=1)),
        double=(_conv(cd_before, 1), _conv(cd, 3, padding=1), _conv(cd, 3, stride=2, padding=1)),
        pool=(MaxPool2d(3, stride=2, padding=1),),
    )


class InceptionBN(Classifier):
    """Ten inception blocks. Input 3 x 224 x 224."""

    def __init__(self, num_classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.stem = layer.Sequential(
            _conv(64, 7, stride=2, padding=3),
            MaxPool2d(3, stride=2),
            _conv(64, 1),
            _conv(192, 3, padding=1),
            MaxPool2d(3, stride=2),
        )
        self.in3a = _block(64, 64, 64, 64, 96, AvgPool2d, 32)
        self.in3b = _block(64, 64, 96, 64, 96, AvgPool2d, 64)
        self.in3c = _halving_block(128, 160, 64, 96)
        self.in4a = _block(224, 64, 96, 96, 128, AvgPool2d, 128)
        self.in4b = _block(192, 96, 128, 96, 128, AvgPool2d, 128)
        self.in4c = _block(160, 128, 160, 128, 160, AvgPool2d, 128)
        self.in4d = _block(96, 128, 192, 160, 192, AvgPool2d, 128)
        self.in4e = _halving_block(128, 192, 192, 256)
        self.in5a = _block(352, 192, 320, 160, 224, AvgPool2d, 128)
        self.in5b = _block(352, 192, 320, 192, 224, MaxPool2d, 128)
        self.fc = Linear(num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.in3c(self.in3b(self.in3a(self.stem(x))))
        x = self.in4e(self.in4d(self.in4c(self.in4b(self.in4a(x)))))
        return self.fc(global_average(self.in5b(self.in5a(x))))
