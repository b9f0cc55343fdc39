"""ResNet (He et al. 2016), ResNeXt (Xie et al. 2017) and wide ResNet (Zagoruyko & Komodakis 2016)
for ImageNet, as in torchvision, and ResNet for CIFAR.

The 3x3 convolution of a bottleneck has the stride ("ResNet v1.5"), as in torchvision.
"""

from __future__ import annotations

import functools
from typing import Any

from .. import autograd, layer
from ..layer import Linear
from ..tensor import Tensor
from .common import Classifier, batch_norm, fan_in_uniform, global_average, same_conv


class BasicBlock(layer.Layer):
    """Two 3x3 convolutions and a shortcut. `shortcut` None is the identity."""

    expansion = 1

    def __init__(self, width: int, stride: int, shortcut: layer.Layer | None) -> None:
        super().__init__()
        self.conv1 = same_conv(width, 3, stride)
        self.bn1 = batch_norm()
        self.conv2 = same_conv(width, 3)
        self.bn2 = batch_norm()
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.bn1(self.conv1(x), relu=True))
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.bn2(y, add=shortcut, relu=True)


class Bottleneck(layer.Layer):
    """1x1, 3x3 and 1x1 convolutions, of which the last has 4 · width channels, and a shortcut.

    shortcut  None is the identity
    group     groups of the 3x3 convolution (default 1)
    inner     channels of the 3x3 convolution (default `width`)
    """

    expansion = 4

    def __init__(
        self,
        width: int,
        stride: int,
        shortcut: layer.Layer | None,
        group: int = 1,
        inner: int | None = None,
    ) -> None:
        super().__init__()
        inner = inner or width
        self.conv1 = same_conv(inner, 1)
        self.bn1 = batch_norm()
        self.conv2 = same_conv(inner, 3, stride, group)
        self.bn2 = batch_norm()
        self.conv3 = same_conv(width * self.expansion, 1)
        self.bn3 = batch_norm()
        self.downsample = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x), relu=True)
        y = self.conv3(self.bn2(self.conv2(y), relu=True))
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.bn3(y, add=shortcut, relu=True)


class PadShortcut(layer.Layer):
    """Shortcut without parameters (He et al. 2016, option A).

    It takes every second pixel, and adds `new_channels` channels of zeros, half of them before and
    half after the others.
    """

    def __init__(self, new_channels: int) -> None:
        super().__init__()
        self.new_channels = new_channels
        self.subsample = layer.AvgPool2d(1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        before = self.new_channels // 2
        after = self.new_channels - before
        return autograd.pad(self.subsample(x), "constant", [0, before, 0, 0, 0, after, 0, 0], 0.0)


BlockType = type[BasicBlock] | type[Bottleneck]


def _stage(
    block: BlockType, width: int, depth: int, stride: int, project: bool = True, **inside: int
) -> layer.Sequential:
    """`depth` blocks. The first has the stride, and with `project` a shortcut that is a 1x1
    convolution. `inside` are further arguments of the blocks."""
    shortcut = None
    if project:
        shortcut = layer.Sequential(same_conv(width * block.expansion, 1, stride), batch_norm())
    return layer.Sequential(
        block(width, stride, shortcut, **inside),
        *(block(width, 1, None, **inside) for _ in range(depth - 1)),
    )


class ResNet(Classifier):
    """Four stages of 64, 128, 256 and 512 channels, times the expansion of `block`.

    `depths` are the numbers of blocks in the stages. With `cifar` the stem is a 3x3 convolution
    without pooling, for images of 32 x 32; otherwise a 7x7 convolution with stride 2 and max
    pooling, for 224 x 224. The 3x3 convolutions of bottlenecks have `group` groups, and in the
    first stage `group` · `group_width` channels (default 64), in each later one twice as many.
    """

    def __init__(
        self,
        block: BlockType,
        depths: tuple[int, int, int, int],
        num_classes: int = 1000,
        cifar: bool = False,
        group: int = 1,
        group_width: int = 64,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        self.image_shape = (3, 32, 32) if cifar else (3, 224, 224)
        self.conv1 = same_conv(64, 3) if cifar else same_conv(64, 7, 2)
        self.bn1 = batch_norm()
        self.maxpool = None if cifar else layer.MaxPool2d(3, stride=2, padding=1)
        for number, depth in enumerate(depths):
            scale = 1 << number
            inside = {}
            if (group, group_width) != (1, 64):
                inside = {"group": group, "inner": group * group_width * scale}
            stride = 1 if number == 0 else 2
            project = number > 0 or block.expansion > 1
            stage = _stage(block, 64 * scale, depth, stride, project, **inside)
            setattr(self, f"layer{number + 1}", stage)
        self.fc = Linear(num_classes, initializer=fan_in_uniform)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x), relu=True)
        if self.maxpool is not None:
            x = self.maxpool(x)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(global_average(x))


class SmallResNet(Classifier):
    """ResNet for CIFAR with 6 · depth + 2 layers (He et al. 2016, section 4.2).

    Three stages of 16, 32 and 64 channels have `depth` basic blocks each. Shortcuts are identities
    padded with zeros (option A).
    """

    image_shape = (3, 32, 32)

    def __init__(self, depth: int, num_classes: int = 10, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        self.conv1 = same_conv(16, 3)
        self.bn1 = batch_norm()
        self.layer1 = self._stage(BasicBlock(16, 1, None), depth)
        self.layer2 = self._stage(BasicBlock(32, 2, PadShortcut(16)), depth)
        self.layer3 = self._stage(BasicBlock(64, 2, PadShortcut(32)), depth)
        self.fc = Linear(num_classes, initializer=fan_in_uniform)

    @staticmethod
    def _stage(first: BasicBlock, depth: int) -> layer.Sequential:
        width = first.conv1.nb_kernels
        return layer.Sequential(first, *(BasicBlock(width, 1, None) for _ in range(depth - 1)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x), relu=True)
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(global_average(x))


# Makers of `models.create`, whose table says what they are the same as.
resnet18 = functools.partial(ResNet, BasicBlock, (2, 2, 2, 2))
resnet34 = functools.partial(ResNet, BasicBlock, (3, 4, 6, 3))
resnet50 = functools.partial(ResNet, Bottleneck, (3, 4, 6, 3))
resnet101 = functools.partial(ResNet, Bottleneck, (3, 4, 23, 3))
resnet152 = functools.partial(ResNet, Bottleneck, (3, 8, 36, 3))
resnext50_32x4d = functools.partial(resnet50, group=32, group_width=4)  # Xie et al. 2017
wide_resnet50_2 = functools.partial(resnet50, group_width=128)  # Zagoruyko & Komodakis 2016
resnet18_cifar = functools.partial(resnet18, num_classes=10, cifar=True)
resnet50_cifar = functools.partial(resnet50, num_classes=10, cifar=True)
resnet20_cifar = functools.partial(SmallResNet, 3)
resnet110_cifar = functools.partial(SmallResNet, 18)
