"""Inception v4 (Szegedy et al. 2017), without residual connections. Names as in timm."""

from __future__ import annotations

import functools
from typing import Any

from ..layer import AvgPool2d, Dropout, Linear, MaxPool2d, Sequential
from ..tensor import Tensor
from .common import Branches, Classifier, ConvBN, fan_in_uniform, global_average

_conv = functools.partial(ConvBN, initializer=fan_in_uniform)
_row = functools.partial(_conv, kernel_size=(1, 7), padding=(0, 3))
_column = functools.partial(_conv, kernel_size=(7, 1), padding=(3, 0))


def _pooled(channels: int) -> Sequential:
    return Sequential(AvgPool2d(3, stride=1, padding=1), _conv(channels, 1))


def _stem() -> list[Branches]:
    return [
        Branches(maxpool=(MaxPool2d(3, stride=2),), conv=(_conv(96, 3, stride=2),)),
        Branches(
            branch0=(Sequential(_conv(64, 1), _conv(96, 3)),),
            branch1=(Sequential(_conv(64, 1), _row(64), _column(64), _conv(96, 3)),),
        ),
        Branches(conv=(_conv(192, 3, stride=2),), maxpool=(MaxPool2d(3, stride=2),)),
    ]


def _block_a() -> Branches:
    return Branches(
        branch0=(_conv(96, 1),),
        branch1=(Sequential(_conv(64, 1), _conv(96, 3, padding=1)),),
        branch2=(Sequential(_conv(64, 1), _conv(96, 3, padding=1), _conv(96, 3, padding=1)),),
        branch3=(_pooled(96),),
    )


def _reduction_a() -> Branches:
    return Branches(
        branch0=(_conv(384, 3, stride=2),),
        branch1=(Sequential(_conv(192, 1), _conv(224, 3, padding=1), _conv(256, 3, stride=2)),),
        branch2=(MaxPool2d(3, stride=2),),
    )


def _block_b() -> Branches:
    return Branches(
        branch0=(_conv(384, 1),),
        branch1=(Sequential(_conv(192, 1), _row(224), _column(256)),),
        branch2=(Sequential(_conv(192, 1), _column(192), _row(224), _column(224), _row(256)),),
        branch3=(_pooled(128),),
    )


def _reduction_b() -> Branches:
    return Branches(
        branch0=(Sequential(_conv(192, 1), _conv(192, 3, stride=2)),),
        branch1=(Sequential(_conv(256, 1), _row(256), _column(320), _conv(320, 3, stride=2)),),
        branch2=(MaxPool2d(3, stride=2),),
    )


def _short_row(channels: int) -> ConvBN:
    return _conv(channels, (1, 3), padding=(0, 1))


def _short_column(channels: int) -> ConvBN:
    return _conv(channels, (3, 1), padding=(1, 0))


def _block_c() -> Branches:
    def cross() -> tuple[ConvBN, ConvBN]:
        return (_short_row(256), _short_column(256))

    return Branches(
        first=0,
        branch0=(_conv(256, 1),),
        branch1=(_conv(384, 1), cross()),
        branch2=(_conv(384, 1), _short_column(448), _short_row(512), cross()),
        branch3=(_pooled(256),),
    )


class InceptionV4(Classifier):
    """Stem and fourteen inception blocks. Input 3 x 299 x 299."""

    image_shape = (3, 299, 299)

    def __init__(self, num_classes: int = 1000, dropout: float = 0.2, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.features = Sequential(
            _conv(32, 3, stride=2),
            _conv(32, 3),
            _conv(64, 3, padding=1),
            *_stem(),
            *(_block_a() for _ in range(4)),
            _reduction_a(),
            *(_block_b() for _ in range(7)),
            _reduction_b(),
            *(_block_c() for _ in range(3)),
        )
        self.dropout = Dropout(dropout)
        self.last_linear = Linear(num_classes, initializer=fan_in_uniform)

    def forward(self, x: Tensor) -> Tensor:
        return self.last_linear(self.dropout(global_average(self.features(x))))
