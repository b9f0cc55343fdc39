"""The networks of singa.models in PyTorch, for comparisons: torchvision's and timm's, and those
that neither has.

Parameters have the names that singa's `model.load_torch` expects. Auxiliary heads are left out.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the common name


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
        block = imported("torchvision").models.resnet.BasicBlock
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        channels = 16
        for stage in range(3):
            width = 16 << stage
            blocks = []
            for index in range(depth):
                halve = stage > 0 and index == 0
                shortcut = PadShortcut(width - channels) if halve else None
                blocks.append(block(channels, width, 2 if halve else 1, shortcut))
                channels = width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


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


class ConvBN(nn.Module):
    def __init__(self, channels: int, out: int, kernel: int, stride=1, padding=0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Branches(nn.Module):
    """Chains of named modules over the same input, concatenated along the channels."""

    def __init__(self, *chains: dict[str, nn.Module]) -> None:
        super().__init__()
        self.chains = [list(chain) for chain in chains]
        for chain in chains:
            for name, module in chain.items():
                self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = []
        for chain in self.chains:
            y = x
            for name in chain:
                y = getattr(self, name)(y)
            outputs.append(y)
        return torch.cat(outputs, 1)


def inception_bn(classes: int) -> nn.Module:
    def conv3x3(n: int, between: int, out: int, stride: int) -> dict[str, nn.Module]:
        last = ConvBN(between, out, 3, stride, 1)
        return {"conv3x3_1": ConvBN(n, between, 1), "conv3x3_2": last}

    def double(n: int, between: int, out: int, stride: int) -> dict[str, nn.Module]:
        first, last = ConvBN(between, out, 3, 1, 1), ConvBN(out, out, 3, stride, 1)
        return {"double_1": ConvBN(n, between, 1), "double_2": first, "double_3": last}

    def block(n: int, c1: int, b3: int, c3: int, bd: int, cd: int, p: int, pool: Any = None):
        return Branches(
            {"conv1x1": ConvBN(n, c1, 1)},
            conv3x3(n, b3, c3, 1),
            double(n, bd, cd, 1),
            {
                "pool_pooling": pool or nn.AvgPool2d(3, 1, 1, count_include_pad=False),
                "pool": ConvBN(n, p, 1),
            },
        )

    def halving(n: int, b3: int, c3: int, bd: int, cd: int):
        pool = {"pool": nn.MaxPool2d(3, 2, 1)}
        return Branches(conv3x3(n, b3, c3, 2), double(n, bd, cd, 2), pool)

    stem = nn.Sequential(
        *(ConvBN(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2)),
        *(ConvBN(64, 64, 1), ConvBN(64, 192, 3, 1, 1), nn.MaxPool2d(3, 2)),
    )
    return named(
        stem=stem,
        in3a=block(192, 64, 64, 64, 64, 96, 32),
        in3b=block(256, 64, 64, 96, 64, 96, 64),
        in3c=halving(320, 128, 160, 64, 96),
        in4a=block(576, 224, 64, 96, 96, 128, 128),
        in4b=block(576, 192, 96, 128, 96, 128, 128),
        in4c=block(576, 160, 128, 160, 128, 160, 128),
        in4d=block(608, 96, 128, 192, 160, 192, 128),
        in4e=halving(608, 128, 192, 192, 256),
        in5a=block(1056, 352, 192, 320, 160, 224, 128),
        in5b=block(1024, 352, 192, 320, 192, 224, 128, nn.MaxPool2d(3, 1, 1)),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc=nn.Linear(1024, classes),
    )


def named(**modules: nn.Module) -> nn.Sequential:
    """Modules in sequence, by name."""
    return nn.Sequential(OrderedDict(modules))


class WideBlock(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.shortcut = None
        if channels != width:
            self.shortcut = nn.Conv2d(channels, width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(x), inplace=True)
        if self.shortcut is not None:
            x = self.shortcut(y)
        return x + self.conv2(F.relu(self.bn2(self.conv1(y)), inplace=True))


class WideResNet(nn.Module):
    def __init__(self, depth: int, factor: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        channels = 16
        for stage in range(3):
            width = (16 << stage) * factor
            blocks = []
            for index in range(depth):
                blocks.append(WideBlock(channels, width, 2 if stage and not index else 1))
                channels = width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.bn1 = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return self.fc(F.relu(self.bn1(x), inplace=True).mean((2, 3)))


def double_conv(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)),
        nn.ReLU(inplace=True),
        *(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width, 16 * width]
        self.encoder = nn.ModuleList(map(double_conv, [3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.decoder = nn.ModuleList(double_conv(2 * w, w) for w in widths[-2::-1])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        down = [self.encoder[0](x)]
        for stage in self.encoder[1:]:
            down.append(stage(F.max_pool2d(down[-1], 2)))
        x = down.pop()
        for up, stage in zip(self.up, self.decoder, strict=True):
            x = stage(torch.cat([down.pop(), up(x)], 1))
        return self.head(x)


class CausalAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = self.c_attn(x).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(n, length, width))


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = CausalAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        inside = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](inside)


class GPT(nn.Module):
    def __init__(
        self, classes: int, context: int = 256, width: int = 384, depth: int = 6, heads: int = 6
    ) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(classes, width),
                "wpe": nn.Embedding(context, width),
                "h": nn.ModuleList(GPTBlock(width, heads) for _ in range(depth)),
                "ln_f": nn.LayerNorm(width),
            }
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"].weight[: tokens.shape[1]]
        for block in parts["h"]:
            x = block(x)
        return F.linear(parts["ln_f"](x), parts["wte"].weight)


class LSTM(nn.Module):
    """Two layers over sequences; the last step is classified."""

    def __init__(self, classes: int, inputs: int = 128, width: int = 256) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def imported(name: str) -> ModuleType:
    """torchvision or timm, also where torchvision's compiled operators cannot be loaded because
    they want another build of PyTorch. No network here uses them."""
    found = importlib.util.find_spec("torchvision")
    if found is None:
        raise ModuleNotFoundError("No module named 'torchvision'", name="torchvision")
    if "torchvision" not in sys.modules:
        folder = Path((found.submodule_search_locations or ["."])[0])
        try:
            for library in folder.glob("_C*.so"):
                torch.ops.load_library(library)
        except OSError:  # importing torchvision registers kernels of these operators
            _LIBRARY.append(torch.library.Library("torchvision", "FRAGMENT"))
            for operator in ("nms", "qnms"):
                arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                _LIBRARY[0].define(operator + arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about operators for image files
        return importlib.import_module(name)


_LIBRARY: list[torch.library.Library] = []  # its definitions last as long as the object


def vit(name: str, classes: int, **options: Any) -> nn.Module:
    timm = imported("timm")
    return timm.create_model(name, num_classes=classes, **options)


def vit_tiny_cifar(classes: int, **options: Any) -> nn.Module:
    return vit("vit_tiny_patch16_224", classes, **{"img_size": 32, "patch_size": 4, **options})


def convnext_cifar(classes: int, **options: Any) -> nn.Module:
    convnext = imported("torchvision").models.convnext
    sizes = ((48, 96, 2), (96, 192, 2), (192, 384, 6), (384, None, 2))
    options = {"stochastic_depth_prob": 0.1, **options}
    blocks = [convnext.CNBlockConfig(*each) for each in sizes]
    net = convnext.ConvNeXt(blocks, num_classes=classes, **options)
    net.features[0][0] = nn.Conv2d(3, 48, 2, 2)
    return net


def swin_tiny(classes: int, stochastic_depth_prob: float = 0.2) -> nn.Module:
    """torchvision's swin_t, whose stochastic depth can be chosen here."""
    return imported("torchvision").models.swin_transformer.SwinTransformer(
        [4, 4],
        96,
        [2, 2, 6, 2],
        [3, 6, 12, 24],
        [7, 7],
        stochastic_depth_prob=stochastic_depth_prob,
        num_classes=classes,
    )


def resnet_cifar(name: str, classes: int) -> nn.Module:
    """torchvision's, for images of 32 x 32."""
    net = getattr(imported("torchvision").models, name)(num_classes=classes)
    net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return net


def vgg16_cifar(classes: int) -> nn.Module:
    vgg = imported("torchvision").models.vgg
    features = vgg.make_layers(vgg.cfgs["D"], batch_norm=True)
    return named(features=features, flatten=nn.Flatten(), classifier=nn.Linear(512, classes))


def inception_v4(classes: int, drop_rate: float = 0.2) -> nn.Module:
    return imported("timm").create_model("inception_v4", num_classes=classes, drop_rate=drop_rate)


BUILDERS = {
    "convnext_cifar": convnext_cifar,
    "gpt_small": GPT,
    "inception_bn": inception_bn,
    "inception_v4": inception_v4,
    "lenet": LeNet,
    "lstm": LSTM,
    "resnet110_cifar": lambda classes: SmallResNet(18, classes),
    "resnet18_cifar": lambda classes: resnet_cifar("resnet18", classes),
    "resnet20_cifar": lambda classes: SmallResNet(3, classes),
    "resnet50_cifar": lambda classes: resnet_cifar("resnet50", classes),
    "swin_tiny": swin_tiny,
    "unet": UNet,
    "vgg16_cifar": vgg16_cifar,
    "vit_small_16": lambda classes, **o: vit("vit_small_patch16_224", classes, **o),
    "vit_tiny_16": lambda classes, **o: vit("vit_tiny_patch16_224", classes, **o),
    "vit_tiny_cifar": vit_tiny_cifar,
    "wrn28_10_cifar": lambda classes: WideResNet(4, 10, classes),
}
#: Arguments of torchvision's networks: no auxiliary heads, no slow initial values.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"aux_logits": False, "init_weights": False},
    "vgg16": {"init_weights": False},
    "vgg19": {"init_weights": False},
}


def create(name: str, classes: int, **options: Any) -> nn.Module:
    """The network `name`, in training mode, which is torchvision's if it is not among BUILDERS.
    `options` are further arguments of its constructor."""
    if name in BUILDERS:
        return BUILDERS[name](classes, **options)
    maker = getattr(imported("torchvision").models, name)
    return maker(num_classes=classes, **ARGUMENTS.get(name, {}), **options)
