"""Building blocks that the networks share, and their training step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import autograd, initializer, layer, model
from ..layer.conv import Pair
from ..raw.check import fraction, integer
from ..tensor import Tensor

#: Fills a tensor with initial values.
Initializer = Callable[[Tensor], object]

#: Initial values of weights, as in torchvision.
he_fan_out: Initializer = initializer.he_normal_fan_out
normal_001: Initializer = functools.partial(initializer.normal, std=0.01)
normal_002: Initializer = functools.partial(initializer.normal, std=0.02)
normal_01: Initializer = functools.partial(initializer.normal, std=0.1)
fan_in_uniform: Initializer = initializer.fan_in_uniform


class Classifier(model.Model):
    """An image classifier. `forward` maps images (N, C, H, W) to scores (N, num_classes).

    num_classes      number of classes, at least 1
    label_smoothing  weight in [0, 1) of the uniform distribution in the targets of the loss
                     (Szegedy et al. 2016); default 0

    `train_one_batch(x, y, weight=1.0)` trains on images x and class indices y (N), and returns
    (scores, loss). `weight` is a factor of the gradients: that of `data.DataLoader.weight` where
    ranks have different numbers of images.
    Raises ValueError for other values of the arguments.
    """

    #: (channels, height, width) of the images for which the network was designed, or another shape
    #: of one input.
    image_shape: tuple[int, ...] = (3, 224, 224)
    #: Shape of the class indices of one input.
    label_shape: tuple[int, ...] = ()

    def __init__(self, num_classes: int, label_smoothing: float = 0.0) -> None:
        super().__init__()
        kind = type(self).__name__
        self.num_classes = integer(kind, "num_classes", num_classes, 1)
        self.label_smoothing = fraction(kind, "label_smoothing", label_smoothing, open_end=True)

    def replace_head(self, num_outputs: int) -> tuple[str, ...]:
        paths = super().replace_head(num_outputs)
        self.num_classes = num_outputs
        if self.architecture is not None:
            arguments = {**self.architecture["arguments"], "num_classes": num_outputs}
            self.architecture = {**self.architecture, "arguments": arguments}
        return paths

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        """Softmax cross-entropy of scores `out` (N, num_classes) for class indices y (N), averaged
        over the batch. Of no images it is 0: a rank may have no part of a short batch."""
        if not out.shape[0]:
            return autograd.reduce_sum(out)
        return autograd.softmax_cross_entropy(out, y, self.label_smoothing)

    def train_one_batch(self, x: Tensor, y: Tensor, weight: float = 1.0) -> tuple[Tensor, Tensor]:
        """Trains on images x and class indices y; returns (scores, loss)."""
        return super().train_one_batch(x, y, weight=weight)


class ConvBN(layer.Layer):
    """Convolution without bias, batch norm and ReLU. Names are those of torchvision's BasicConv2d.

    `channels` is the number of output channels; `eps` (default 1e-3) is that of the batch norm.
    """

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
        self.conv: layer.Conv2d = layer.Conv2d(
            channels,
            kernel_size,
            stride=stride,
            padding=padding,
            bias=False,
            initializer=initializer,
        )
        self.bn: layer.BatchNorm2d = batch_norm(eps)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x), relu=True)


def same_conv(
    channels: int,
    kernel: int,
    stride: int = 1,
    group: int = 1,
    *,
    initializer: Callable[[Tensor], Any] = he_fan_out,
) -> layer.Conv2d:
    """Convolution without bias, padded so that with stride 1 the size stays."""
    return layer.Conv2d(
        channels,
        kernel,
        stride=stride,
        padding=kernel // 2,
        group=group,
        bias=False,
        initializer=initializer,
    )


def batch_norm(eps: float = 1e-5, momentum: float = 0.1) -> layer.BatchNorm2d:
    """Batch norm with PyTorch's defaults; `momentum` is the weight of the new batch."""
    return layer.BatchNorm2d(momentum=momentum, eps=eps)


class Branches(layer.Layer):
    """Parallel chains of layers. Their outputs are concatenated along the channels.

    Each keyword argument is a chain: a tuple of stages. A stage is a layer; the last one may be a
    tuple of parallel layers. Layers have torchvision's names. In chain "b", a single stage besides
    pooling is called "b"; several are called "b_1", "b_2", ..., counted from `first`, with "a" and
    "b" appended for parallel layers. Pooling is called "b_pooling", or "b" if it is the only stage.
    """

    def __init__(
        self, first: int = 1, **chains: tuple[layer.Layer | tuple[layer.Layer, ...], ...]
    ) -> None:
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
    """Mean over height and width: (N, C, H, W) → (N, C)."""
    return autograd.flatten(autograd.globalaveragepool(x))
