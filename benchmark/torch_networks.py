"""The newer networks of singa.models in PyTorch: torchvision's and timm's, those that neither has,
and an LSTM. Parameters have the names that singa's `model.load_torch` expects."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the common name


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


BUILDERS = {
    "convnext_cifar": convnext_cifar,
    "gpt_small": GPT,
    "lstm": LSTM,
    "swin_tiny": swin_tiny,
    "unet": UNet,
    "vit_small_16": lambda classes, **o: vit("vit_small_patch16_224", classes, **o),
    "vit_tiny_16": lambda classes, **o: vit("vit_tiny_patch16_224", classes, **o),
    "vit_tiny_cifar": vit_tiny_cifar,
    "wrn28_10_cifar": lambda classes: WideResNet(4, 10, classes),
}


def create(name: str, classes: int, **options: Any) -> nn.Module:
    """The network `name`, which is torchvision's if it is not among BUILDERS. `options` are further
    arguments of its constructor."""
    if name in BUILDERS:
        return BUILDERS[name](classes, **options)
    maker = getattr(imported("torchvision").models, name)
    return maker(num_classes=classes, **options)
