"""Inception v3 (Szegedy et al. 2016) without auxiliary classifier. Names as in torchvision."""

from __future__ import annotations

import functools
from typing import Any

from ..layer import AvgPool2d, Dropout, Linear, MaxPool2d
from ..tensor import Tensor
from .common import Branches, Classifier, ConvBN, global_average, normal_01

_conv = functools.partial(ConvBN, initializer=normal_01)
_row = functools.partial(_conv, kernel_size=(1, 7), padding=(0, 3))
_column = functools.partial(_conv, kernel_size=(7, 1), padding=(3, 0))


def _average() -> AvgPool2d:
    return AvgPool2d(3, stride=1, padding=1, count_include_pad=True)


def _block_a(projection: int) -> Branches:
    return Branches(
        branch1x1=(_conv(64, 1),),
        branch5x5=(_conv(48, 1), _conv(64, 5, padding=2)),
        branch3x3dbl=(_conv(64, 1), _conv(96, 3, padding=1), _conv(96, 3, padding=1)),
        branch_pool=(_average(), _conv(projection, 1)),
    )


def _block_b() -> Branches:
    return Branches(
        branch3x3=(_conv(384, 3, stride=2),),
        branch3x3dbl=(_conv(64, 1), _conv(96, 3, padding=1), _conv(96, 3, stride=2)),
        pool=(MaxPool2d(3, stride=2),),
    )


def _block_c(width: int) -> Branches:
    return Branches(
        branch1x1=(_conv(192, 1),),
        branch7x7=(_conv(width, 1), _row(width), _column(192)),
        branch7x7dbl=(_conv(width, 1), _column(width), _row(width), _column(width), _row(192)),
        branch_pool=(_average(), _conv(192, 1)),
    )


def _block_d() -> Branches:
    return Branches(
        branch3x3=(_conv(192, 1), _conv(320, 3, stride=2)),
        branch7x7x3=(_conv(192, 1), _row(192), _column(192), _conv(192, 3, stride=2)),
        pool=(MaxPool2d(3, stride=2),),
    )


def _cross() -> tuple[ConvBN, ConvBN]:
    return (_conv(384, (1, 3), padding=(0, 1)), _conv(384, (3, 1), padding=(1, 0)))


def _block_e() -> Branches:
    return Branches(
        branch1x1=(_conv(320, 1),),
        branch3x3=(_conv(384, 1), _cross()),
        branch3x3dbl=(_conv(448, 1), _conv(384, 3, padding=1), _cross()),
        branch_pool=(_average(), _conv(192, 1)),
    )


class InceptionV3(Classifier):
    """Eleven inception blocks. Input 3 x 299 x 299."""

    image_shape = (3, 299, 299)
    torch_ignore = ("*.num_batches_tracked", "AuxLogits.*")

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.Conv2d_1a_3x3 = _conv(32, 3, stride=2)
        self.Conv2d_2a_3x3 = _conv(32, 3)
        self.Conv2d_2b_3x3 = _conv(64, 3, padding=1)
        self.maxpool1 = MaxPool2d(3, stride=2)
        self.Conv2d_3b_1x1 = _conv(80, 1)
        self.Conv2d_4a_3x3 = _conv(192, 3)
        self.maxpool2 = MaxPool2d(3, stride=2)
        self.Mixed_5b = _block_a(32)
        self.Mixed_5c = _block_a(64)
        self.Mixed_5d = _block_a(64)
        self.Mixed_6a = _block_b()
        self.Mixed_6b = _block_c(128)
        self.Mixed_6c = _block_c(160)
        self.Mixed_6d = _block_c(160)
        self.Mixed_6e = _block_c(192)
        self.Mixed_7a = _block_d()
        self.Mixed_7b = _block_e()
        self.Mixed_7c = _block_e()
        self.dropout = Dropout(dropout)
        self.fc = Linear(num_classes, initializer=normal_01)

    def forward(self, x: Tensor) -> Tensor:
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(self.maxpool2(x))))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        return self.fc(self.dropout(global_average(x)))
