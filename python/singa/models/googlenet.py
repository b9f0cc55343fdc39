"""GoogLeNet (Szegedy et al. 2015) with batch norm and without auxiliary classifiers.

As in torchvision, the third branch has 3x3 convolutions, where the paper has 5x5.
"""

from __future__ import annotations

from typing import Any

from .. import layer
from ..layer import Dropout, Linear, MaxPool2d, Sequential
from ..tensor import Tensor
from .common import Branches, Classifier, ConvBN, global_average, normal_001

# Channels: 1x1 | 1x1 before 3x3, 3x3 | 1x1 before the second 3x3, second 3x3 | 1x1 after pooling.
_BLOCKS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
_POOLED_AFTER = {"3b": 3, "4e": 2}  # block: window of the pooling after it


def _conv(channels: int, kernel: int = 1, stride: int = 1, padding: int = 0) -> ConvBN:
    return ConvBN(channels, kernel, stride, padding, initializer=normal_001)


class GoogLeNet(Classifier):
    """Nine inception blocks. Input 3 x 224 x 224."""

    torch_ignore = ("*.num_batches_tracked", "aux1.*", "aux2.*")

    def __init__(self, num_classes: int = 1000, dropout: float = 0.2, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.conv1 = _conv(64, 7, stride=2, padding=3)
        self.conv2 = _conv(64)
        self.conv3 = _conv(192, 3, padding=1)
        self.stem_pool1 = MaxPool2d(3, stride=2, ceil_mode=True)
        self.stem_pool2 = MaxPool2d(3, stride=2, ceil_mode=True)
        self._trunk: list[layer.Layer] = []
        for name, (c1, c2_before, c2, c3_before, c3, c4) in _BLOCKS.items():
            block = Branches(
                branch1=(_conv(c1),),
                branch2=(Sequential(_conv(c2_before), _conv(c2, 3, padding=1)),),
                branch3=(Sequential(_conv(c3_before), _conv(c3, 3, padding=1)),),
                branch4=(Sequential(MaxPool2d(3, stride=1, padding=1), _conv(c4)),),
            )
            setattr(self, f"inception{name}", block)
            self._trunk.append(block)
            if name in _POOLED_AFTER:
                pool = MaxPool2d(_POOLED_AFTER[name], stride=2, ceil_mode=True)
                setattr(self, f"pool{name}", pool)
                self._trunk.append(pool)
        self.dropout = Dropout(dropout)
        self.fc = Linear(num_classes, initializer=normal_001)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem_pool1(self.conv1(x))
        x = self.stem_pool2(self.conv3(self.conv2(x)))
        for each in self._trunk:
            x = each(x)
        return self.fc(self.dropout(global_average(x)))
