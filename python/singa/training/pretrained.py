"""Networks with weights from files of torchvision, timm and Hugging Face's transformers.

Files are read from disk, and nothing in them is executed: weights from .safetensors, the rest from
JSON.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import device as device_module
from .. import models
from ..data import CenterCrop, Compose, Normalize, Resize, describe_transform
from ..data.picture_list import some
from ..data.presets import IMAGENET_MEAN, IMAGENET_STD
from ..files.state_files import Arrays, load_safetensors
from ..models.foreign_configs import check_prepared, check_timm, check_transformers
from ..models.foreign_names import huggingface_network, timm_weights
from ..raw.words import counted
from ..tensor import Tensor
from .model_file import check_transform
from .picture_classifier import PictureClassifier
from .task import Regression, SeveralLabels, Task, set_task

#: Bytes of a JSON file. Names of 22,000 classes take 1 MB.
_LARGEST_JSON = 16 << 20
_HALVES = (0.5, 0.5, 0.5)
#: (crop, length of the shorter side before, interpolation) of torchvision's weights IMAGENET1K_V1,
#: where they are not (224, 256, "bilinear").
_TORCHVISION = {
    "convnext_tiny": (224, 236, "bilinear"),
    "efficientnet_b0": (224, 256, "bicubic"),
    "inception_v3": (299, 342, "bilinear"),
    "swin_tiny": (224, 232, "bicubic"),
}
#: Networks that torchvision makes with `transform_input=True` for its weights: they change images
#: that were normalised for ImageNet to these statistics.
_TRANSFORM_INPUT = ("googlenet", "inception_v3")


@dataclass
class _Found:
    """What a folder says: how to make the network, its weights by PyTorch's names, its inputs."""

    name: str
    weights: Arrays
    transform: Compose
    classes: int | None = None
    class_names: list[str] = field(default_factory=list)
    task: Task | None = None


def load_pretrained(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    class_names: Sequence[str] | None = None,
    device: Any = None,
) -> PictureClassifier:
    """A network with trained weights, its transforms and class names, from a local file or folder.

        classifier = load_pretrained("downloads/resnet50.a1_in1k")
        print(classifier.predict(["cat.jpg"])[0])
        net = classifier.net                      # to be trained further
        net.replace_head(37)

    path         a .safetensors file, or a folder with model.safetensors, in one of these layouts:
                 - timm: config.json with "architecture" and "pretrained_cfg". ResNets, ResNeXt,
                   wide ResNet, DenseNet, Inception v3 and v4, MobileNet v2, EfficientNet-B0,
                   ConvNeXt-T, Swin-T, ViT-Ti and ViT-S
                 - Hugging Face's transformers: config.json with "model_type" resnet, vit,
                   convnext or swin, and preprocessor_config.json, without which a warning says
                   what is guessed; "problem_type" becomes the network's task. Where the middle of
                   a picture lies between two pixels, the crop may begin one later than theirs, as
                   in torchvision
                 - torchvision: the state dict of a network in `models.names()`. Transforms are
                   those of the weights IMAGENET1K_V1, as a warning says
                 The configuration is read, too, where the only .safetensors file of a folder is
                 given
    name         the network, by its name in `models.names()`, torchvision or timm; needed for a
                 state dict alone whose file is not called like it ("resnet50-0676ba61.safetensors")
    class_names  of the outputs in their order (default: those of the folder, else "0", "1", ...)
    device       where it computes (default: the default device)

    Raises FileNotFoundError if there is no such file; ValueError if it is damaged, of an unknown
    layout or network, if weights do not fit, for another number of names, and for a configuration
    that says what the network is not, such as another activation: `models.foreign_configs` lists
    what each architecture has.
    """
    file, folder = _weights_file(Path(path))
    weights, _ = load_safetensors(file)
    config = _json(folder / "config.json") if folder else None
    missing = ""  # the file that would say how pictures are prepared
    try:
        if config is None:
            missing = "config.json"
            found = _of_torchvision(name or file.stem.partition("-")[0], weights)
        elif "model_type" in config:
            prepared = _json(file.parent / "preprocessor_config.json")
            found = _of_huggingface(config, prepared or {}, weights)
            missing = "" if prepared is not None else "preprocessor_config.json"
        else:
            found = _of_timm(name or config["architecture"], config, weights)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"[load_pretrained] {folder}: not a configuration of timm or transformers ({error!r})"
        ) from error
    names = [str(each) for each in class_names or _distinct(path, found.class_names)]
    classes = found.classes or len(names)
    described = describe_transform(found.transform)
    if classes and classes not in [value.shape[0] for value in weights.values() if value.ndim]:
        raise ValueError(f"[load_pretrained] {path}: no weight has {classes} outputs")
    try:
        check_transform(described)
    except ValueError as error:
        raise ValueError(f"[load_pretrained] {path}: {error}") from None
    net = models.create(found.name, **({"num_classes": classes} if classes else {}))
    names = names or [str(i) for i in range(net.num_classes)]
    classifier = PictureClassifier(net, names, found.transform)
    blank = classifier.inputs([np.zeros((3, 8, 8), np.uint8)])
    dev = device if device is not None else device_module.get_default_device()
    net.compile([Tensor(blank.shape, dev)], is_train=False, use_graph=False)
    net.load_torch(found.weights)
    net.class_names = names
    set_task(net, found.task)
    if missing:
        steps = ", ".join(map(repr, found.transform.transforms))
        _warn(
            f"{path} has no {missing}, so the transform is a guess, which classifier.transform may "
            f"replace: {steps}"
        )
    if len(names) == 1 and found.task is None:
        _warn(
            f"{path} has one output, so the probability of its class is always 1: `net.task` of "
            "singa.training.task says what a single number means"
        )
    return classifier


def _warn(text: str, stacklevel: int = 3) -> None:
    warnings.warn(f"[load_pretrained] {text}", stacklevel=stacklevel)


def _distinct(path: Any, names: Sequence[str]) -> list[str]:
    """Names of classes, since answers are by name: those that several have, such as ImageNet's two
    cranes, get their numbers. Warns of them."""
    given = [str(each) for each in names]
    counts = Counter(given)
    found = [f"{n} ({i})" if counts[n] > 1 else n for i, n in enumerate(given)]
    if changed := [new for old, new in zip(given, found, strict=True) if old != new]:
        _warn(f"{path}: classes with the same name get their numbers: {some(changed)}", 4)
    return found


def _weights_file(path: Path) -> tuple[Path, Path | None]:
    """The file with the weights, and the folder whose other files describe it."""
    if not path.exists():
        raise FileNotFoundError(
            f"[load_pretrained] {path} does not exist: it reads files that are on disk, and "
            "downloads none"
        )
    if not path.is_dir():
        if path.suffix.lower() != ".safetensors":
            raise ValueError(
                f"[load_pretrained] {path}: expected a .safetensors file; convert a pickled file "
                "with safetensors.torch.save_file(torch.load(path, weights_only=True), new_path)"
            )
        is_alone = [path] == sorted(path.parent.glob("*.safetensors"))
        if path.name == "model.safetensors" or is_alone:
            return path, path.parent
        if (path.parent / "config.json").exists():
            raise ValueError(
                f"[load_pretrained] {path.parent} has a config.json and several .safetensors "
                "files: put those of one network into a folder"
            )
        return path, None
    file = path / "model.safetensors"
    if not file.exists():
        others = sorted(path.glob("*.safetensors"))
        if len(others) != 1:
            names = ", ".join(other.name for other in others[:5])
            also = f"; give one of {names}" if others else " and no other .safetensors file"
            raise FileNotFoundError(f"[load_pretrained] {path} holds no model.safetensors{also}")
        file = others[0]
    return file, path


def _json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None without the file."""
    if not path.exists():
        return None
    if path.stat().st_size > _LARGEST_JSON:
        raise ValueError(f"[load_pretrained] {path}: larger than {_LARGEST_JSON} bytes")
    try:
        value = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"[load_pretrained] {path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"[load_pretrained] {path}: expected a JSON object")
    return value


def _of_torchvision(name: str, weights: Arrays) -> _Found:
    known = models.canonical_name(name)
    if known is None:
        raise ValueError(
            f"[load_pretrained] there is no network {name!r}; give its name as in models.names()"
        )
    size, shorter, interpolation = _TORCHVISION.get(known, (224, 256, "bilinear"))
    mean, std = (IMAGENET_MEAN, IMAGENET_STD)
    if known in _TRANSFORM_INPUT:
        mean = std = _HALVES
    crop = [Resize(shorter, interpolation), CenterCrop(size)]
    head = next((weights[n] for n in _HEADS if n in weights), None)
    classes = None if head is None else head.shape[0]
    return _Found(known, weights, Compose(*crop, Normalize(mean, std)), classes)


#: Names of the last biases in torchvision's networks, the outermost first.
_HEADS = (
    *("fc.bias", "head.bias", "classifier.bias", "classifier.6.bias", "classifier.3.bias"),
    *("classifier.2.bias", "classifier.1.bias"),
)


def _of_timm(name: str, config: Mapping[str, Any], weights: Arrays) -> _Found:
    known, renamed = timm_weights(name, weights)
    check_timm(name, config)
    given = {**config["pretrained_cfg"], **config}  # as timm itself reads them
    _, height, width = given.get("input_size", (3, 224, 224))
    before = math.floor(height / float(given.get("crop_pct", 0.875)))
    mode = given.get("crop_mode", "center")
    if height != width or mode not in ("center", "squash"):
        raise ValueError(f"[load_pretrained] images {height} x {width}, crop_mode {mode!r}")
    resize = Resize((before, before) if mode == "squash" else before, _interpolation(given))
    normalize = _normalize(given.get("mean", IMAGENET_MEAN), given.get("std", IMAGENET_STD))
    transform = Compose(resize, CenterCrop(height), normalize)
    names = _in_order(given.get("label_names") or [])
    texts = given.get("label_descriptions") or {}
    class_names = [str(texts.get(each, each)) for each in names]
    return _Found(known, renamed, transform, int(given["num_classes"]), class_names)


def _normalize(mean: Sequence[float], std: Sequence[float]) -> Normalize:
    return Normalize(tuple(map(float, mean)), tuple(map(float, std)))


def _interpolation(given: Mapping[str, Any]) -> str:
    kind = given.get("interpolation", "bicubic")
    return "bilinear" if kind == "random" else str(kind)


def _in_order(names: Sequence[str] | Mapping[str, str]) -> list[str]:
    """Names that are in a list, or in a dict by their numbers."""
    if not isinstance(names, Mapping):
        return list(names)
    by_number = {int(number): name for number, name in names.items()}
    return [by_number[i] for i in range(len(by_number))]


#: Pillow's numbers of interpolations.
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


def _of_huggingface(
    config: Mapping[str, Any], prepared: Mapping[str, Any], weights: Arrays
) -> _Found:
    name, renamed = huggingface_network(config, weights)
    check_transformers(config)
    check_prepared(prepared)
    steps: list[Any] = []
    interpolation = _RESAMPLE.get(prepared.get("resample", 2))
    if interpolation is None:
        raise ValueError(
            f"[load_pretrained] preprocessor_config.json: resample is {prepared['resample']!r:.80}"
        )
    size = prepared.get("size", config.get("image_size", 224))
    edge = size.get("shortest_edge") if isinstance(size, Mapping) else None
    if not prepared.get("do_resize", True):
        pass
    elif edge is not None and "crop_pct" in prepared:  # ConvNextImageProcessor
        if edge < 384:
            resize = Resize(int(edge / float(prepared["crop_pct"] or 1.0)), interpolation)
            steps += [resize, CenterCrop(edge)]
        else:
            steps.append(Resize((edge, edge), interpolation))
    else:
        if edge is None:
            edge = (size["height"], size["width"]) if isinstance(size, Mapping) else (size, size)
        steps.append(Resize(edge, interpolation))
    if prepared.get("do_center_crop"):
        crop = prepared.get("crop_size", size)
        crop = (crop["height"], crop["width"]) if isinstance(crop, Mapping) else (crop, crop)
        steps.append(CenterCrop(crop))
    factor = prepared.get("rescale_factor", 1 / 255) if prepared.get("do_rescale", True) else 1
    if not math.isclose(factor, 1 / 255):
        raise ValueError(f"[load_pretrained] pixels are multiplied by {factor}, not by 1 / 255")
    mean, std = prepared.get("image_mean", _HALVES), prepared.get("image_std", _HALVES)
    if not prepared.get("do_normalize", True):
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    steps.append(_normalize(mean, std))
    names = _in_order(config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"})
    if (outputs := config.get("num_labels")) not in (None, len(names)):
        raise ValueError(
            f"[load_pretrained] config.json: num_labels is {outputs!r:.80}, and id2label has "
            f"{counted(len(names), 'name')}"
        )
    task = _task(config.get("problem_type"), len(names))
    return _Found(name, renamed, Compose(*steps), len(names), names, task)


def _task(problem: Any, outputs: int) -> Task | None:
    """What outputs mean by the `problem_type` of transformers."""
    if problem == "multi_label_classification":
        return SeveralLabels()
    if problem == "regression":
        return Regression([0.0] * outputs, [1.0] * outputs)
    if problem not in (None, "single_label_classification"):
        raise ValueError(f"[load_pretrained] config.json: problem_type is {problem!r:.80}")
    return None
