"""The networks of singa.models in PyTorch, for comparisons.

Parameters have torchvision's names (timm's for inception_v4), so singa's `model.load_torch` can
load the state dict. Those of inception_bn and the CIFAR networks have the names of singa.models.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the common name


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * 4)
        self.downsample = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)), inplace=True)


class ResNet(nn.Module):
    def __init__(self, block: type, depths: tuple[int, ...], classes: int, cifar: bool) -> None:
        super().__init__()
        stem = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.conv1 = stem if cifar else nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.Identity() if cifar else nn.MaxPool2d(3, 2, 1)
        channels = 64
        for stage, depth in enumerate(depths):
            width = 64 << stage
            blocks = []
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                out = width * block.expansion
                shortcut = None
                if stride != 1 or channels != out:
                    shortcut = nn.Sequential(
                        nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
                    )
                blocks.append(block(channels, width, stride, shortcut))
                channels = out
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class PadShortcut(nn.Module):
    """Takes every second pixel and zeros for the new channels (option A of He et al. 2016)."""

    def __init__(self, new_channels: int) -> None:
        super().__init__()
        self.new_channels = new_channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.new_channels // 2
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, before, self.new_channels - before))


class SmallResNet(nn.Module):
    def __init__(self, depth: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        channels = 16
        for stage in range(3):
            width = 16 << stage
            blocks = []
            for index in range(depth):
                halve = stage > 0 and index == 0
                shortcut = PadShortcut(width - channels) if halve else None
                blocks.append(BasicBlock(channels, width, 2 if halve else 1, shortcut))
                channels = width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
VGG19 = (64, 64, 0, 128, 128, 0, *(256,) * 4, 0, *(512,) * 4, 0, *(512,) * 4, 0)


def vgg_features(widths: tuple[int, ...], norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    channels = 3
    for width in widths:
        if not width:
            layers.append(nn.MaxPool2d(2))
            continue
        layers.append(nn.Conv2d(channels, width, 3, padding=1))
        if norm:
            layers.append(nn.BatchNorm2d(width))
        layers.append(nn.ReLU(inplace=True))
        channels = width
    return nn.Sequential(*layers)


class Features(nn.Module):
    """`features`, flatten, `classifier`: VGG and AlexNet."""

    def __init__(self, features: nn.Sequential, classifier: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.classifier = classifier

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).flatten(1))


def vgg(widths: tuple[int, ...], classes: int) -> Features:
    classifier = nn.Sequential(
        *(nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        nn.Linear(4096, classes),
    )
    return Features(vgg_features(widths, norm=False), classifier)


def alexnet(classes: int) -> Features:
    features = nn.Sequential(
        *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
    )
    classifier = nn.Sequential(
        *(nn.Dropout(), nn.Linear(256 * 36, 4096), nn.ReLU(inplace=True)),
        *(nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(inplace=True)),
        nn.Linear(4096, classes),
    )
    return Features(features, classifier)


class LeNet(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


# --- Inception networks: branches over the same input, concatenated along the channels


class ConvBN(nn.Module):
    def __init__(self, channels: int, out: int, kernel, stride=1, padding=0, eps=1e-3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(out, eps=eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Branches(nn.Module):
    """Concatenated chains. A chain is a list of stages; a stage is the name of a module, or a tuple
    of names of parallel modules."""

    def __init__(self, chains: list[list], modules: dict[str, nn.Module]) -> None:
        super().__init__()
        self.chains = chains
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = []
        for chain in self.chains:
            last = [x]
            for stage in chain:
                names = stage if isinstance(stage, tuple) else (stage,)
                last = [getattr(self, name)(last[0]) for name in names]
            outputs += last
        return torch.cat(outputs, 1)


class Net(nn.Module):
    """Named stages in sequence, then global average pooling, dropout and a linear layer."""

    def __init__(self, stages: dict[str, nn.Module], channels: int, classes: int, dropout: float,
                 head: str = "fc") -> None:  # fmt: skip
        super().__init__()
        self.order = list(stages)
        for name, module in stages.items():
            self.add_module(name, module)
        self.dropout = nn.Dropout(dropout)
        self.head = head
        self.add_module(head, nn.Linear(channels, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.order:
            x = getattr(self, name)(x)
        return getattr(self, self.head)(self.dropout(x.mean((2, 3))))


def googlenet(classes: int) -> Net:
    table = {
        "3a": (192, 64, 96, 128, 16, 32, 32),
        "3b": (256, 128, 128, 192, 32, 96, 64),
        "4a": (480, 192, 96, 208, 16, 48, 64),
        "4b": (512, 160, 112, 224, 24, 64, 64),
        "4c": (512, 128, 128, 256, 24, 64, 64),
        "4d": (512, 112, 144, 288, 32, 64, 64),
        "4e": (528, 256, 160, 320, 32, 128, 128),
        "5a": (832, 256, 160, 320, 32, 128, 128),
        "5b": (832, 384, 192, 384, 48, 128, 128),
    }
    stages: dict[str, nn.Module] = {
        "conv1": ConvBN(3, 64, 7, 2, 3),
        "maxpool1": nn.MaxPool2d(3, 2, ceil_mode=True),
        "conv2": ConvBN(64, 64, 1),
        "conv3": ConvBN(64, 192, 3, 1, 1),
        "maxpool2": nn.MaxPool2d(3, 2, ceil_mode=True),
    }
    for name, (n, c1, b2, c2, b3, c3, c4) in table.items():
        stages[f"inception{name}"] = Branches(
            [["branch1"], ["branch2"], ["branch3"], ["branch4"]],
            {
                "branch1": ConvBN(n, c1, 1),
                "branch2": nn.Sequential(ConvBN(n, b2, 1), ConvBN(b2, c2, 3, 1, 1)),
                "branch3": nn.Sequential(ConvBN(n, b3, 1), ConvBN(b3, c3, 3, 1, 1)),
                "branch4": nn.Sequential(nn.MaxPool2d(3, 1, 1), ConvBN(n, c4, 1)),
            },
        )
        if name in ("3b", "4e"):
            stages[f"pool{name}"] = nn.MaxPool2d(3 if name == "3b" else 2, 2, ceil_mode=True)
    return Net(stages, 1024, classes, 0.2)


def inception_bn(classes: int) -> Net:
    def conv(n: int, out: int, kernel: int, stride: int = 1, padding: int = 0) -> ConvBN:
        return ConvBN(n, out, kernel, stride, padding, eps=1e-5)

    def block(n: int, c1: int, b3: int, c3: int, bd: int, cd: int, pool: nn.Module, p: int):
        return Branches(
            [["conv1x1"], ["conv3x3_1", "conv3x3_2"], ["double_1", "double_2", "double_3"],
             ["pool_pooling", "pool"]],
            {
                "conv1x1": conv(n, c1, 1),
                "conv3x3_1": conv(n, b3, 1), "conv3x3_2": conv(b3, c3, 3, 1, 1),
                "double_1": conv(n, bd, 1), "double_2": conv(bd, cd, 3, 1, 1),
                "double_3": conv(cd, cd, 3, 1, 1),
                "pool_pooling": pool, "pool": conv(n, p, 1),
            },
        )  # fmt: skip

    def halving(n: int, b3: int, c3: int, bd: int, cd: int):
        return Branches(
            [["conv3x3_1", "conv3x3_2"], ["double_1", "double_2", "double_3"], ["pool"]],
            {
                "conv3x3_1": conv(n, b3, 1), "conv3x3_2": conv(b3, c3, 3, 2, 1),
                "double_1": conv(n, bd, 1), "double_2": conv(bd, cd, 3, 1, 1),
                "double_3": conv(cd, cd, 3, 2, 1), "pool": nn.MaxPool2d(3, 2, 1),
            },
        )  # fmt: skip

    def average() -> nn.Module:
        return nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    stem = nn.Sequential(
        conv(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2), conv(64, 64, 1), conv(64, 192, 3, 1, 1),
        nn.MaxPool2d(3, 2),
    )  # fmt: skip
    stages = {
        "stem": stem,
        "in3a": block(192, 64, 64, 64, 64, 96, average(), 32),
        "in3b": block(256, 64, 64, 96, 64, 96, average(), 64),
        "in3c": halving(320, 128, 160, 64, 96),
        "in4a": block(576, 224, 64, 96, 96, 128, average(), 128),
        "in4b": block(576, 192, 96, 128, 96, 128, average(), 128),
        "in4c": block(576, 160, 128, 160, 128, 160, average(), 128),
        "in4d": block(608, 96, 128, 192, 160, 192, average(), 128),
        "in4e": halving(608, 128, 192, 192, 256),
        "in5a": block(1056, 352, 192, 320, 160, 224, average(), 128),
        "in5b": block(1024, 352, 192, 320, 192, 224, nn.MaxPool2d(3, 1, 1), 128),
    }
    return Net(stages, 1024, classes, 0.0)


def inception_v3(classes: int) -> Net:
    def row(n: int, out: int) -> ConvBN:
        return ConvBN(n, out, (1, 7), 1, (0, 3))

    def column(n: int, out: int) -> ConvBN:
        return ConvBN(n, out, (7, 1), 1, (3, 0))

    def a(n: int, p: int) -> Branches:
        return Branches(
            [["branch1x1"], ["branch5x5_1", "branch5x5_2"],
             ["branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"], ["average", "branch_pool"]],
            {
                "branch1x1": ConvBN(n, 64, 1),
                "branch5x5_1": ConvBN(n, 48, 1), "branch5x5_2": ConvBN(48, 64, 5, 1, 2),
                "branch3x3dbl_1": ConvBN(n, 64, 1), "branch3x3dbl_2": ConvBN(64, 96, 3, 1, 1),
                "branch3x3dbl_3": ConvBN(96, 96, 3, 1, 1),
                "average": nn.AvgPool2d(3, 1, 1), "branch_pool": ConvBN(n, p, 1),
            },
        )  # fmt: skip

    def b(n: int) -> Branches:
        return Branches(
            [["branch3x3"], ["branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"], ["pool"]],
            {
                "branch3x3": ConvBN(n, 384, 3, 2),
                "branch3x3dbl_1": ConvBN(n, 64, 1), "branch3x3dbl_2": ConvBN(64, 96, 3, 1, 1),
                "branch3x3dbl_3": ConvBN(96, 96, 3, 2), "pool": nn.MaxPool2d(3, 2),
            },
        )  # fmt: skip

    def c(w: int) -> Branches:
        n = 768
        return Branches(
            [["branch1x1"], ["branch7x7_1", "branch7x7_2", "branch7x7_3"],
             [f"branch7x7dbl_{i}" for i in range(1, 6)], ["average", "branch_pool"]],
            {
                "branch1x1": ConvBN(n, 192, 1),
                "branch7x7_1": ConvBN(n, w, 1), "branch7x7_2": row(w, w),
                "branch7x7_3": column(w, 192),
                "branch7x7dbl_1": ConvBN(n, w, 1), "branch7x7dbl_2": column(w, w),
                "branch7x7dbl_3": row(w, w), "branch7x7dbl_4": column(w, w),
                "branch7x7dbl_5": row(w, 192),
                "average": nn.AvgPool2d(3, 1, 1), "branch_pool": ConvBN(n, 192, 1),
            },
        )  # fmt: skip

    def d(n: int) -> Branches:
        return Branches(
            [["branch3x3_1", "branch3x3_2"], [f"branch7x7x3_{i}" for i in range(1, 5)], ["pool"]],
            {
                "branch3x3_1": ConvBN(n, 192, 1), "branch3x3_2": ConvBN(192, 320, 3, 2),
                "branch7x7x3_1": ConvBN(n, 192, 1), "branch7x7x3_2": row(192, 192),
                "branch7x7x3_3": column(192, 192), "branch7x7x3_4": ConvBN(192, 192, 3, 2),
                "pool": nn.MaxPool2d(3, 2),
            },
        )  # fmt: skip

    def e(n: int) -> Branches:
        return Branches(
            [["branch1x1"], ["branch3x3_1", ("branch3x3_2a", "branch3x3_2b")],
             ["branch3x3dbl_1", "branch3x3dbl_2", ("branch3x3dbl_3a", "branch3x3dbl_3b")],
             ["average", "branch_pool"]],
            {
                "branch1x1": ConvBN(n, 320, 1), "branch3x3_1": ConvBN(n, 384, 1),
                "branch3x3_2a": ConvBN(384, 384, (1, 3), 1, (0, 1)),
                "branch3x3_2b": ConvBN(384, 384, (3, 1), 1, (1, 0)),
                "branch3x3dbl_1": ConvBN(n, 448, 1), "branch3x3dbl_2": ConvBN(448, 384, 3, 1, 1),
                "branch3x3dbl_3a": ConvBN(384, 384, (1, 3), 1, (0, 1)),
                "branch3x3dbl_3b": ConvBN(384, 384, (3, 1), 1, (1, 0)),
                "average": nn.AvgPool2d(3, 1, 1), "branch_pool": ConvBN(n, 192, 1),
            },
        )  # fmt: skip

    stages = {
        "Conv2d_1a_3x3": ConvBN(3, 32, 3, 2), "Conv2d_2a_3x3": ConvBN(32, 32, 3),
        "Conv2d_2b_3x3": ConvBN(32, 64, 3, 1, 1), "maxpool1": nn.MaxPool2d(3, 2),
        "Conv2d_3b_1x1": ConvBN(64, 80, 1), "Conv2d_4a_3x3": ConvBN(80, 192, 3),
        "maxpool2": nn.MaxPool2d(3, 2),
        "Mixed_5b": a(192, 32), "Mixed_5c": a(256, 64), "Mixed_5d": a(288, 64),
        "Mixed_6a": b(288), "Mixed_6b": c(128), "Mixed_6c": c(160), "Mixed_6d": c(160),
        "Mixed_6e": c(192), "Mixed_7a": d(768), "Mixed_7b": e(1280), "Mixed_7c": e(2048),
    }  # fmt: skip
    return Net(stages, 2048, classes, 0.5)


def inception_v4(classes: int) -> Net:
    def row(n: int, out: int) -> ConvBN:
        return ConvBN(n, out, (1, 7), 1, (0, 3))

    def column(n: int, out: int) -> ConvBN:
        return ConvBN(n, out, (7, 1), 1, (3, 0))

    def pooled(n: int, out: int) -> nn.Sequential:
        return nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), ConvBN(n, out, 1))

    def branches(**modules: nn.Module) -> Branches:
        return Branches([[name] for name in modules], modules)

    def block_a() -> Branches:
        n = 384
        return branches(
            branch0=ConvBN(n, 96, 1),
            branch1=nn.Sequential(ConvBN(n, 64, 1), ConvBN(64, 96, 3, 1, 1)),
            branch2=nn.Sequential(
                ConvBN(n, 64, 1), ConvBN(64, 96, 3, 1, 1), ConvBN(96, 96, 3, 1, 1)
            ),
            branch3=pooled(n, 96),
        )

    def block_b() -> Branches:
        n = 1024
        return branches(
            branch0=ConvBN(n, 384, 1),
            branch1=nn.Sequential(ConvBN(n, 192, 1), row(192, 224), column(224, 256)),
            branch2=nn.Sequential(
                ConvBN(n, 192, 1), column(192, 192), row(192, 224), column(224, 224), row(224, 256)
            ),
            branch3=pooled(n, 128),
        )

    def block_c() -> Branches:
        n = 1536
        return Branches(
            [["branch0"], ["branch1_0", ("branch1_1a", "branch1_1b")],
             ["branch2_0", "branch2_1", "branch2_2", ("branch2_3a", "branch2_3b")], ["branch3"]],
            {
                "branch0": ConvBN(n, 256, 1), "branch1_0": ConvBN(n, 384, 1),
                "branch1_1a": ConvBN(384, 256, (1, 3), 1, (0, 1)),
                "branch1_1b": ConvBN(384, 256, (3, 1), 1, (1, 0)),
                "branch2_0": ConvBN(n, 384, 1),
                "branch2_1": ConvBN(384, 448, (3, 1), 1, (1, 0)),
                "branch2_2": ConvBN(448, 512, (1, 3), 1, (0, 1)),
                "branch2_3a": ConvBN(512, 256, (1, 3), 1, (0, 1)),
                "branch2_3b": ConvBN(512, 256, (3, 1), 1, (1, 0)),
                "branch3": pooled(n, 256),
            },
        )  # fmt: skip

    features = nn.Sequential(
        ConvBN(3, 32, 3, 2), ConvBN(32, 32, 3), ConvBN(32, 64, 3, 1, 1),
        branches(maxpool=nn.MaxPool2d(3, 2), conv=ConvBN(64, 96, 3, 2)),
        branches(
            branch0=nn.Sequential(ConvBN(160, 64, 1), ConvBN(64, 96, 3)),
            branch1=nn.Sequential(
                ConvBN(160, 64, 1), row(64, 64), column(64, 64), ConvBN(64, 96, 3)
            ),
        ),
        branches(conv=ConvBN(192, 192, 3, 2), maxpool=nn.MaxPool2d(3, 2)),
        *(block_a() for _ in range(4)),
        branches(
            branch0=ConvBN(384, 384, 3, 2),
            branch1=nn.Sequential(
                ConvBN(384, 192, 1), ConvBN(192, 224, 3, 1, 1), ConvBN(224, 256, 3, 2)
            ),
            branch2=nn.MaxPool2d(3, 2),
        ),
        *(block_b() for _ in range(7)),
        branches(
            branch0=nn.Sequential(ConvBN(1024, 192, 1), ConvBN(192, 192, 3, 2)),
            branch1=nn.Sequential(
                ConvBN(1024, 256, 1), row(256, 256), column(256, 320), ConvBN(320, 320, 3, 2)
            ),
            branch2=nn.MaxPool2d(3, 2),
        ),
        *(block_c() for _ in range(3)),
    )  # fmt: skip
    return Net({"features": features}, 1536, classes, 0.2, head="last_linear")


BUILDERS = {
    "lenet": LeNet,
    "alexnet": alexnet,
    "vgg16": lambda classes: vgg(VGG16, classes),
    "vgg19": lambda classes: vgg(VGG19, classes),
    "vgg16_cifar": lambda classes: Features(
        vgg_features(VGG16, norm=True), nn.Linear(512, classes)
    ),
    "googlenet": googlenet,
    "inception_bn": inception_bn,
    "inception_v3": inception_v3,
    "inception_v4": inception_v4,
    "resnet18": lambda classes: ResNet(BasicBlock, (2, 2, 2, 2), classes, cifar=False),
    "resnet34": lambda classes: ResNet(BasicBlock, (3, 4, 6, 3), classes, cifar=False),
    "resnet101": lambda classes: ResNet(Bottleneck, (3, 4, 23, 3), classes, cifar=False),
    "resnet50": lambda classes: ResNet(Bottleneck, (3, 4, 6, 3), classes, cifar=False),
    "resnet152": lambda classes: ResNet(Bottleneck, (3, 8, 36, 3), classes, cifar=False),
    "resnet18_cifar": lambda classes: ResNet(BasicBlock, (2, 2, 2, 2), classes, cifar=True),
    "resnet50_cifar": lambda classes: ResNet(Bottleneck, (3, 4, 6, 3), classes, cifar=True),
    "resnet20_cifar": lambda classes: SmallResNet(3, classes),
    "resnet110_cifar": lambda classes: SmallResNet(18, classes),
}


def create(name: str, classes: int, **options: Any) -> nn.Module:
    """The network `name` with PyTorch's initial weights, in training mode. `options` are further
    arguments, for the networks of torch_networks."""
    if name in BUILDERS:
        return BUILDERS[name](classes, **options)
    import torch_networks  # imports torchvision and timm

    return torch_networks.create(name, classes, **options)
