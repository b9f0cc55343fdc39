"""Names of weights in files of timm and of Hugging Face's transformers, and those that `load_torch`
expects: torchvision's, and timm's for vision transformers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..files.state_files import Arrays

#: (pattern of a whole name, the new name: as in re.Match.expand, or a function of the match)
_Rules = Sequence[tuple[str, str | Callable[[re.Match[str]], str]]]

#: timm's networks whose names are torchvision's, or those of singa.models.
_SAME = frozenset(
    [
        *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d"),
        *("wide_resnet50_2", "densenet121", "inception_v3", "inception_v4"),
        *("vit_tiny_patch16_224", "vit_small_patch16_224"),
    ]
)
#: Places of a ConvNeXt block's layers in torchvision.
_CONVNEXT = {
    "conv_dw": 0,
    "norm": 2,
    "mlp.fc1": 3,
    "mlp.fc2": 5,
    "dwconv": 0,
    "layernorm": 2,
    "pwconv1": 3,
    "pwconv2": 5,
}


def _convnext_block(found: re.Match[str]) -> str:
    stage, block, part, kind = found.groups()
    return f"features.{2 * int(stage) + 1}.{block}.block.{_CONVNEXT[part]}.{kind}"


def _convnext_scale(found: re.Match[str]) -> str:
    return f"features.{2 * int(found[1]) + 1}.{found[2]}.layer_scale"


def _convnext_downsampling(found: re.Match[str]) -> str:
    return f"features.{2 * int(found[1])}.{found[2]}.{found[3]}"


#: Places of the layers of an inverted residual block in torchvision, without and with a first
#: convolution that widens it: (stage, place in it). MobileNetV2 does not nest the last stage.
_NARROW = {"conv_dw": (0, 0), "bn1": (0, 1), "conv_pw": (1, 0), "bn2": (1, 1)}
_WIDENED = {
    "conv_pw": (0, 0),
    "bn1": (0, 1),
    "conv_dw": (1, 0),
    "bn2": (1, 1),
    "conv_pwl": (2, 0),
    "bn3": (2, 1),
}
#: Numbers of blocks before each stage of MobileNetV2.
_MOBILENET_BEFORE = (1, 2, 4, 7, 11, 14, 17)


def _mobilenet_block(found: re.Match[str]) -> str:
    stage, block, part, kind = found.groups()
    places = _NARROW if stage == "0" else _WIDENED
    (step, place), last = places[part], 1 if stage == "0" else 2
    inside = f"{last + place}" if step == last else f"{step}.{place}"
    return f"features.{_MOBILENET_BEFORE[int(stage)] + int(block)}.conv.{inside}.{kind}"


def _efficientnet_block(found: re.Match[str]) -> str:
    stage, block, part, kind = found.groups()
    block = f"features.{int(stage) + 1}.{block}.block"
    squeeze = 1 if stage == "0" else 2  # behind the depthwise convolution
    if part.startswith("se."):
        return f"{block}.{squeeze}.fc{1 if part == 'se.conv_reduce' else 2}.{kind}"
    step, place = (_NARROW if stage == "0" else _WIDENED)[part]
    return f"{block}.{step + (step == squeeze)}.{place}.{kind}"


#: Names of a Swin block's layers in torchvision.
_SWIN = {
    "mlp.fc1": "mlp.0",
    "mlp.fc2": "mlp.3",
    "intermediate.dense": "mlp.0",
    "output.dense": "mlp.3",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "attention.output.dense": "attn.proj",
}


def _swin_block(found: re.Match[str]) -> str:
    stage, block, inside, kind = found.groups()
    inside = _SWIN.get(inside, inside.replace("attention.self", "attn"))
    begin = f"features.{2 * int(stage) + 1}.{block}"
    return f"{begin}.{inside}.{kind}"


_STEM_AND_HEAD: _Rules = (
    (r"conv_stem\.(\w+)", r"features.0.0.\1"),
    (r"bn1\.(\w+)", r"features.0.1.\1"),
    (r"classifier\.(\w+)", r"classifier.1.\1"),
)
_BLOCK = r"blocks\.(\d)\.(\d+)\.(conv_pwl?|conv_dw|bn\d|se\.conv_\w+)\.(\w+)"
#: timm's name: (network of singa.models, rules)
_TIMM: dict[str, tuple[str, _Rules]] = {
    "convnext_tiny": (
        "convnext_tiny",
        (
            (r"stem\.(\d)\.(\w+)", r"features.0.\1.\2"),
            (r"stages\.(\d)\.downsample\.(\d)\.(\w+)", _convnext_downsampling),
            (r"stages\.(\d)\.blocks\.(\d+)\.gamma", _convnext_scale),
            (
                r"stages\.(\d)\.blocks\.(\d+)\.(conv_dw|norm|mlp\.fc[12])\.(\w+)",
                _convnext_block,
            ),
            (r"head\.norm\.(\w+)", r"classifier.0.\1"),
            (r"head\.fc\.(\w+)", r"classifier.2.\1"),
        ),
    ),
    "efficientnet_b0": (
        "efficientnet_b0",
        (
            *_STEM_AND_HEAD,
            (_BLOCK, _efficientnet_block),
            (r"conv_head\.(\w+)", r"features.8.0.\1"),
            (r"bn2\.(\w+)", r"features.8.1.\1"),
        ),
    ),
    "mobilenetv2_100": (
        "mobilenet_v2",
        (
            *_STEM_AND_HEAD,
            (_BLOCK, _mobilenet_block),
            (r"conv_head\.(\w+)", r"features.18.0.\1"),
            (r"bn2\.(\w+)", r"features.18.1.\1"),
        ),
    ),
    "swin_tiny_patch4_window7_224": (
        "swin_tiny",
        (
            (r"patch_embed\.proj\.(\w+)", r"features.0.0.\1"),
            (r"patch_embed\.norm\.(\w+)", r"features.0.2.\1"),
            (r"layers\.(\d)\.blocks\.(\d+)\.(.+)\.(\w+)", _swin_block),
            (
                r"layers\.(\d)\.downsample\.(.+)",
                lambda found: f"features.{2 * int(found[1])}.{found[2]}",
            ),
            (r"head\.fc\.(\w+)", r"head.\1"),
        ),
    ),
}
_CONVNEXT_LAYERS = r"convnext\.encoder\.stages\.(\d)\.layers\.(\d+)\."
_HUGGINGFACE: dict[str, _Rules] = {
    "convnext": (
        (r"convnext\.embeddings\.patch_embeddings\.(\w+)", r"features.0.0.\1"),
        (r"convnext\.embeddings\.layernorm\.(\w+)", r"features.0.1.\1"),
        (
            r"convnext\.encoder\.stages\.(\d)\.downsampling_layer\.(\d)\.(\w+)",
            _convnext_downsampling,
        ),
        (_CONVNEXT_LAYERS + "layer_scale_parameter", _convnext_scale),
        (_CONVNEXT_LAYERS + r"(dwconv|layernorm|pwconv[12])\.(\w+)", _convnext_block),
        (r"convnext\.layernorm\.(\w+)", r"classifier.0.\1"),
        (r"classifier\.(\w+)", r"classifier.2.\1"),
    ),
    "resnet": (
        (r"resnet\.embedder\.embedder\.convolution\.(\w+)", r"conv1.\1"),
        (r"resnet\.embedder\.embedder\.normalization\.(\w+)", r"bn1.\1"),
        (
            r"resnet\.encoder\.stages\.(\d)\.layers\.(\d+)\.layer\.(\d)\.(conv|norm)\w+\.(\w+)",
            lambda m: (
                f"layer{int(m[1]) + 1}.{m[2]}.{'conv' if m[4] == 'conv' else 'bn'}"
                f"{int(m[3]) + 1}.{m[5]}"
            ),
        ),
        (
            r"resnet\.encoder\.stages\.(\d)\.layers\.(\d+)\.shortcut\.(conv|norm)\w+\.(\w+)",
            lambda m: f"layer{int(m[1]) + 1}.{m[2]}.downsample.{0 if m[3] == 'conv' else 1}.{m[4]}",
        ),
        (r"classifier\.1\.(\w+)", r"fc.\1"),
    ),
    "swin": (
        (r"swin\.embeddings\.patch_embeddings\.projection\.(\w+)", r"features.0.0.\1"),
        (r"swin\.embeddings\.norm\.(\w+)", r"features.0.2.\1"),
        (r"swin\.encoder\.layers\.(\d)\.blocks\.(\d+)\.(.+)\.(\w+)", _swin_block),
        (
            r"swin\.encoder\.layers\.(\d)\.downsample\.(.+)",
            lambda found: f"features.{2 * int(found[1]) + 2}.{found[2]}",
        ),
        (r"swin\.layernorm\.(\w+)", r"norm.\1"),
        (r"classifier\.(\w+)", r"head.\1"),
    ),
    "vit": (
        (r"vit\.embeddings\.cls_token", "cls_token"),
        (r"vit\.embeddings\.position_embeddings", "pos_embed"),
        (r"vit\.embeddings\.patch_embeddings\.projection\.(\w+)", r"patch_embed.proj.\1"),
        (
            r"vit\.encoder\.layer\.(\d+)\.attention\.attention\.(query|key|value)\.(\w+)",
            r"blocks.\1.attn.\2.\3",
        ),
        (r"vit\.encoder\.layer\.(\d+)\.attention\.output\.dense\.(\w+)", r"blocks.\1.attn.proj.\2"),
        (r"vit\.encoder\.layer\.(\d+)\.intermediate\.dense\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
        (r"vit\.encoder\.layer\.(\d+)\.output\.dense\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
        (r"vit\.encoder\.layer\.(\d+)\.layernorm_before\.(\w+)", r"blocks.\1.norm1.\2"),
        (r"vit\.encoder\.layer\.(\d+)\.layernorm_after\.(\w+)", r"blocks.\1.norm2.\2"),
        (r"vit\.layernorm\.(\w+)", r"norm.\1"),
        (r"classifier\.(\w+)", r"head.\1"),
    ),
}
#: The network by what the configuration says.
_RESNETS = {
    ("basic", (2, 2, 2, 2)): "resnet18",
    ("basic", (3, 4, 6, 3)): "resnet34",
    ("bottleneck", (3, 4, 6, 3)): "resnet50",
    ("bottleneck", (3, 4, 23, 3)): "resnet101",
    ("bottleneck", (3, 8, 36, 3)): "resnet152",
}
_VITS = {(192, 3): "vit_tiny_16", (384, 6): "vit_small_16"}


def timm_weights(name: str, weights: Arrays) -> tuple[str, Arrays]:
    """(network of singa.models, weights by the names of its `load_torch`) for one of timm's.

    Raises ValueError for a network that singa does not have, or whose names it does not know.
    """
    if name in _SAME:
        return name, weights
    if name in _TIMM:
        ours, rules = _TIMM[name]
        return ours, _renamed(weights, rules)
    known = ", ".join(sorted([*_SAME, *_TIMM]))
    raise ValueError(f"[load_pretrained] cannot read timm's {name!r}; it reads {known}")


def huggingface_network(config: Mapping[str, Any], weights: Arrays) -> tuple[str, Arrays]:
    """As timm_weights, for the configuration of a network of transformers."""
    kind = config["model_type"]
    name = None
    if kind == "resnet" and not config.get("downsample_in_bottleneck", False):
        name = _RESNETS.get((config["layer_type"], tuple(config["depths"])))
    elif kind == "vit" and (config["patch_size"], config["num_hidden_layers"]) == (16, 12):
        name = _VITS.get((config["hidden_size"], config["num_attention_heads"]))
    elif kind == "convnext" and (*config["depths"], *config["hidden_sizes"]) == (
        *(3, 3, 9, 3),
        *(96, 192, 384, 768),
    ):
        name = "convnext_tiny"
    elif kind == "swin" and (config["embed_dim"], config["window_size"]) == (96, 7):
        depths = (*config["depths"], *config["num_heads"])
        name = "swin_tiny" if depths == (2, 2, 6, 2, 3, 6, 12, 24) else None
    if name is None:
        raise ValueError(
            f"[load_pretrained] cannot read this network of transformers, a {kind!r}; it reads "
            "resnet (18 to 152, stride in the 3x3 convolutions), vit (ViT-Ti/16, ViT-S/16), "
            "convnext and swin (tiny)"
        )
    renamed = _renamed(weights, _HUGGINGFACE[kind])
    return name, _joined(renamed) if kind in ("swin", "vit") else renamed


def _renamed(weights: Arrays, rules: _Rules) -> Arrays:
    """The weights under new names. A name that no rule has stays, so that load_torch refuses it."""
    return {_new_name(name, rules): value for name, value in weights.items()}


def _new_name(name: str, rules: _Rules) -> str:
    for pattern, new in rules:
        if found := re.fullmatch(pattern, name):
            return found.expand(new) if isinstance(new, str) else new(found)
    return name


def _joined(weights: Arrays) -> Arrays:
    """With the projections of queries, keys and values of each block in one."""
    joined = dict(weights)
    for name in weights:
        if ".attn.query." in name:
            parts = [name.replace("query", part) for part in ("query", "key", "value")]
            if all(part in joined for part in parts):
                joined[name.replace("query", "qkv")] = np.concatenate(
                    [joined.pop(p) for p in parts]
                )
    return joined
