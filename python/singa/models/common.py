"""What the networks share: the step that trains them, and convolution + batch norm + ReLU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import autograd, initializer, layer, model
from ..layer.conv import Pair
from ..tensor import Tensor

#: Start values of weights, as torchvision chooses them.
he_fan_out = initializer.he_normal_fan_out
normal_001 = functools.partial(initializer.normal, std=0.01)
normal_01 = functools.partial(initializer.normal, std=0.1)
fan_in_uniform = initializer.fan_in_uniform


class Classifier(model.Model):
    """An image classifier: forward gives scores (batch, num_classes).

    `train_one_batch(x, y)` trains on class numbers y (batch) by the cross-entropy of softmax, with
    `label_smoothing` mixed with the uniform distribution (Szegedy et al. 2016), and returns
    (scores, loss).
    """

    #: (channels, height, width) of the images that it was designed for.
    image_shape: tuple[int, int, int] = (3, 224, 224)

    def __init__(self, num_classes: int, label_smoothing: float = 0.0) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"[{type(self).__name__}] num_classes must be positive: {num_classes}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"[{type(self).__name__}] label_smoothing must lie in [0, 1): {label_smoothing}"
            )
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        """What is minimised: the mean over the batch."""
        return autograd.softmax_cross_entropy(out, y, self.label_smoothing)

    def train_one_batch(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = self.forward(x)
        loss = self.loss(out, y)
        self.optimizer(loss)
        return out, loss


class ConvBN(layer.Layer):
    """Convolution without bias, batch norm, ReLU. Named as in torchvision's BasicConv2d."""

    def __init__(
        self,
        channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        *,
        eps: float = 1e-3,
        initializer: Callable[[Tensor], Any] = he_fan_out,
    ) -> None:
        super().__init__()
        self.conv = layer.Conv2d(
            channels,
            kernel_size,
            stride=stride,
            padding=padding,
            bias=False,
            initializer=initializer,
        )
        self.bn = batch_norm(eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x), relu=True)


def batch_norm(eps: float = 1e-5) -> layer.BatchNorm2d:
    """With PyTorch's momentum: a tenth of the new batch."""
    return layer.BatchNorm2d(momentum=0.1, eps=eps)


class Branches(layer.Layer):
    """Chains of layers over the same input, their outputs joined along the channels.

    Each keyword is a chain: a tuple of stages, the last of which may be a tuple of layers side by
    side. The layers of chain "b" are named "b" if it has one stage besides pooling, else "b_1",
    "b_2a", "b_2b" ..., counted from `first`, and its pooling "b_pooling": torchvision's names.
    """

    def __init__(self, first: int = 1, **chains: tuple[layer.Layer | tuple, ...]) -> None:
        super().__init__()
        self._chains = []
        for name, stages in chains.items():
            counted = sum(not isinstance(stage, layer.Pooling2d) for stage in stages)
            index = first
            chain = []
            for stage in stages:
                side_by_side = stage if isinstance(stage, tuple) else (stage,)
                if isinstance(stage, layer.Pooling2d) and len(stages) > 1:
                    suffix = "_pooling"
                else:
                    suffix = f"_{index}" if counted > 1 else ""
                    index += 1
                letters = "abc" if len(side_by_side) > 1 else [""]
                for letter, each in zip(letters, side_by_side, strict=False):
                    setattr(self, name + suffix + letter, each)
                chain.append(side_by_side)
            self._chains.append(chain)

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for chain in self._chains:
            last = [x]
            for side_by_side in chain:
                last = [each(last[0]) for each in side_by_side]
            outputs += last
        return autograd.cat(outputs, axis=1)


def global_average(x: Tensor) -> Tensor:
    """(N, C, H, W) → (N, C)."""
    return autograd.flatten(autograd.globalaveragepool(x))
