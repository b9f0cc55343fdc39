"""MobileNet v2 (Sandler et al. 2018) and v3 (Howard et al. 2019), as in torchvision."""

from __future__ import annotations

import functools
import re
from typing import Any

from .. import layer
from ..layer import Dropout, Hardswish, Linear, ReLU
from ..tensor import Tensor
from .blocks import ConvNormActivation, InvertedResidual, SqueezeExcitation, make_divisible
from .common import Classifier, global_average, normal_001

# Expansion, channels, number of blocks, stride of the first.
_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
# Kernel, channels of the depthwise convolution, of the output, whether it squeezes, whether its
# activation is hardswish, stride.
_V3_LARGE = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
_V3_SMALL = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


class MobileNetV2(Classifier):
    """17 inverted residual blocks. Input 3 x 224 x 224."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.2, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        blocks = []
        channels = 32
        for expansion, out, depth, first_stride in _V2:
            for index in range(depth):
                stride = first_stride if index == 0 else 1
                blocks.append(
                    InvertedResidual(
                        channels, expansion * channels, out, 3, stride, activation=layer.ReLU6
                    )
                )
                channels = out
        self.features = layer.Sequential(
            ConvNormActivation(32, 3, 2, activation=layer.ReLU6),
            *blocks,
            ConvNormActivation(1280, 1, activation=layer.ReLU6),
        )
        self.classifier = layer.Sequential(
            Dropout(dropout), Linear(num_classes, initializer=normal_001)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(global_average(self.features(x)))

    def torch_name(self, name: str) -> str:
        # torchvision's blocks are called conv, and do not nest the last convolution and its norm.
        found = re.fullmatch(r"features\.(\d+)\.block\.(\d)\.(\d)", name)
        if not found:
            return name
        block, stage, place = map(int, found.groups())
        if stage == (1 if block == 1 else 2):
            return f"features.{block}.conv.{stage + place}"
        return f"features.{block}.conv.{stage}.{place}"


class MobileNetV3(Classifier):
    """Inverted residual blocks by a table, some with squeeze and excitation. Input 3 x 224 x 224.

    `hidden` is the number of features between the two linear layers.
    """

    def __init__(
        self,
        table: tuple[tuple[int, int, int, bool, bool, int], ...],
        hidden: int,
        num_classes: int = 1000,
        dropout: float = 0.2,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        norm: dict[str, Any] = {"eps": 1e-3, "momentum": 0.01}
        blocks = []
        channels = 16
        for kernel, expanded, out, squeezes, hard, stride in table:
            squeeze = None
            if squeezes:
                squeezed = make_divisible(expanded // 4)
                squeeze = SqueezeExcitation(expanded, squeezed, scale=layer.Hardsigmoid)
            blocks.append(
                InvertedResidual(
                    channels,
                    expanded,
                    out,
                    kernel,
                    stride,
                    activation=Hardswish if hard else ReLU,
                    squeeze=squeeze,
                    **norm,
                )
            )
            channels = out
        self.features = layer.Sequential(
            ConvNormActivation(16, 3, 2, activation=Hardswish, **norm),
            *blocks,
            ConvNormActivation(6 * channels, 1, activation=Hardswish, **norm),
        )
        self.classifier = layer.Sequential(
            Linear(hidden, initializer=normal_001),
            Hardswish(),
            Dropout(dropout),
            Linear(num_classes, initializer=normal_001),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(global_average(self.features(x)))


# Makers of `models.create`, whose table says what they are the same as.
mobilenet_v3_small = functools.partial(MobileNetV3, _V3_SMALL, 1024)
mobilenet_v3_large = functools.partial(MobileNetV3, _V3_LARGE, 1280)
