"""What a network keeps of its training data, for pictures that it is asked for later: the names of
the classes, and the transform."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import (
    ArrayDataset,
    ImageFolder,
    ImageSet,
    Normalize,
    TarShards,
    describe_transform,
)
from ..data.transforms import Transform
from ..raw.words import counted
from .task import task_of

if TYPE_CHECKING:
    from ..model import Model

#: Parts of parts of a data set, such as PyTorch's Subset, that are looked into.
_DEEPEST = 8


def has_levels(dataset: Any) -> bool:
    """Whether it is a set of pictures with levels from 0 to 255."""
    if isinstance(dataset, ImageSet):
        return bool(dataset.images.dtype == np.uint8)
    if isinstance(dataset, ArrayDataset):
        return dataset.arrays[0].dtype == np.uint8 and dataset.arrays[0].ndim == 4
    return isinstance(dataset, ImageFolder | TarShards)


def keep_transform(model: Model, loader: Any, validation: Any) -> str:
    """Gives a model the transform that the validation, or else the training, makes its inputs of
    pictures with, where that is known and it has none, or that of an earlier call. Returns a
    name of what it has got, or "".

    A transform that draws is for training alone, and one that is not singa's cannot be saved.
    """
    before = vars(model).setdefault("_use_of_fit", {})
    if model.transform is not None and model.transform is not before.get("transform"):
        return ""
    transform = _transform(validation) or _transform(loader)
    if transform is None or transform is model.transform:
        return ""
    model.transform = before["transform"] = transform
    return "the transform of its pictures"


def keep_names(model: Model, loader: Any, outputs: Any) -> str:
    """The same for the names of the classes of the loader's data, if they are those of the model's
    `outputs`, a tensor (n, classes)."""
    before = vars(model).setdefault("_use_of_fit", {})
    if model.class_names is not None and model.class_names is not before.get("names"):
        return ""
    names = _names(model, loader)
    shape = tuple(getattr(outputs, "shape", ()))
    if names is None or names == model.class_names or shape[1:] != (len(names),):
        return ""
    model.class_names = before["names"] = names
    return f"the names of {counted(len(names), 'class', 'classes')}"


def check_classes(loader: Any, validation: Any) -> None:
    """Raises ValueError if the validation has other classes than the training, or in another
    order."""
    names, others = classes_of(loader), classes_of(validation)
    if names is None or others is None or names == others:
        return
    pairs = itertools.zip_longest(names, others)
    number, (first, other) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
    raise ValueError(
        f"[fit] class {number} is {first!r} in training and {other!r} in the validation: give "
        "both the same, such as data.ImageFolder(path, classes=train.classes)"
    )


def classes_of(loader: Any) -> list[str] | None:
    """The names of the classes of a loader's data, if it knows them."""
    dataset = _set_with("classes", loader)
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return None
    return list(names)


def _set_with(attribute: str, loader: Any) -> Any:
    """The data of a loader, or what they are a part of, that has an attribute."""
    dataset: Any = getattr(loader, "dataset", None)
    for _ in range(_DEEPEST):
        if hasattr(dataset, attribute) or not hasattr(dataset, "dataset"):
            break
        dataset = dataset.dataset
    return dataset


def _names(model: Model, loader: Any) -> list[str] | None:
    """The names of the classes of the loader's data, if the model's task is theirs."""
    dataset, own = _set_with("classes", loader), task_of(model).kind
    if getattr(dataset, "has_masks", False) or getattr(dataset, "task", own) != own:
        return None
    return classes_of(loader)


def _transform(loader: Any) -> Transform | None:
    """What a loader makes inputs of pictures with, if pictures alone decide it."""
    dataset, transform = getattr(loader, "dataset", None), getattr(loader, "transform", None)
    if not has_levels(dataset):
        return None
    image = np.zeros((1, *_shape(dataset)), np.uint8)
    if transform is None:  # levels become 0 … 1
        channels = image.shape[1]
        return Normalize((0.0,) * channels, (1.0,) * channels)
    random = np.random.default_rng(0)
    before = random.bit_generator.state
    try:
        describe_transform(transform)
        transform(image, random)
    except (TypeError, ValueError):
        return None
    return transform if random.bit_generator.state == before else None


def _shape(dataset: Any) -> tuple[int, ...]:
    """The shape of a picture, or one like it."""
    if isinstance(dataset, ImageSet):
        return dataset.images.shape[1:]
    if isinstance(dataset, ArrayDataset):
        return tuple(dataset.arrays[0].shape[1:])
    return dataset.channels, 64, 64
