"""EfficientNet (Tan & Le 2019), as in torchvision."""

from __future__ import annotations

from typing import Any

from .. import layer
from ..initializer import variance_scaling
from ..layer import Dropout, Linear, SiLU
from ..tensor import Tensor
from .blocks import ConvNormActivation, InvertedResidual, SqueezeExcitation
from .common import Classifier, global_average

# Expansion, kernel, stride of the first block, channels, number of blocks.
_B0 = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def _fan_out_uniform(t: Tensor) -> None:
    variance_scaling(t, 1 / 3, "fan_out", "uniform")


class EfficientNetB0(Classifier):
    """16 inverted residual blocks with squeeze and excitation. Input 3 x 224 x 224.

    `drop_path` is the probability of stochastic depth that the blocks rise to (default 0.2).
    """

    def __init__(
        self,
        num_classes: int = 1000,
        dropout: float = 0.2,
        drop_path: float = 0.2,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        stages = []
        channels, number = 32, 0
        total = sum(depth for *_, depth in _B0)
        for expansion, kernel, first_stride, out, depth in _B0:
            blocks = []
            for index in range(depth):
                expanded = expansion * channels
                blocks.append(
                    InvertedResidual(
                        channels,
                        expanded,
                        out,
                        kernel,
                        first_stride if index == 0 else 1,
                        activation=SiLU,
                        squeeze=SqueezeExcitation(expanded, channels // 4, SiLU),
                        drop_path=drop_path * number / total,
                    )
                )
                channels = out
                number += 1
            stages.append(layer.Sequential(*blocks))
        self.features = layer.Sequential(
            ConvNormActivation(32, 3, 2, activation=SiLU),
            *stages,
            ConvNormActivation(1280, 1, activation=SiLU),
        )
        self.classifier = layer.Sequential(
            Dropout(dropout), Linear(num_classes, initializer=_fan_out_uniform)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(global_average(self.features(x)))
