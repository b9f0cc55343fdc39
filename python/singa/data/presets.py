"""Transforms as JSON values, and the usual ones for pictures.

Only transforms of this package are written and read, by name, so reading executes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..raw.calls import says_what_to_write
from ..raw.check import fraction, integer, one_of
from .colour import ColorJitter, RandAugment, TrivialAugment
from .geometry import CenterCrop, RandomResizedCrop, RandomRotation, Resize
from .transforms import (
    Compose,
    Cutout,
    Normalize,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    Transform,
)

#: Of ImageNet's training images; usual for any photographs.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(CenterCrop, ColorJitter, Cutout, Normalize, RandAugment, RandomCrop, RandomErasing),
        *(RandomHorizontalFlip, RandomResizedCrop, RandomRotation, RandomVerticalFlip, Resize),
        TrivialAugment,
    )
}


@says_what_to_write("evaluation_transform", "transform")
def evaluation_transform(
    size: int, mean: Sequence[float], std: Sequence[float], crop: float = 0.875
) -> Compose:
    """The usual preparation of pictures of any size for a network that takes `size` x `size`:
    the shorter side is reduced to size / crop, and the middle is cut out.

    mean, std  of each channel, see `Normalize`
    crop       share of the shorter side that is kept (default 0.875, usual for ImageNet)

    Raises ValueError unless `crop` lies in (0, 1].

    >>> transform = data.evaluation_transform(16, data.IMAGENET_MEAN, data.IMAGENET_STD)
    >>> transform(np.zeros((1, 3, 32, 48), np.uint8), np.random.default_rng(0)).shape
    (1, 3, 16, 16)
    """
    integer("evaluation_transform", "size", size, 1)
    if not fraction("evaluation_transform", "crop", crop):
        raise ValueError("[evaluation_transform] crop must be positive")
    return Compose(Resize(round(size / crop)), CenterCrop(size), Normalize(mean, std))


@says_what_to_write("training_transform", "transform")
def training_transform(
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    augment: str = "standard",
    scale: tuple[float, float] = (0.35, 1.0),
) -> Compose:
    """The usual augmentation of pictures of any size for a network that takes `size` x `size`.

    mean, std  of each channel, see `Normalize`
    augment    "standard" (the default): random resized crop and horizontal flip; "trivial": also
               TrivialAugment; "rand": also RandAugment
    scale      range of the crop's share of the area (default 0.35 to 1; 0.08 to 1 is usual for
               ImageNet, whose runs are long)

    Raises ValueError for another `augment`.

    >>> transform = data.training_transform(16, data.IMAGENET_MEAN, data.IMAGENET_STD)
    >>> transform(np.zeros((1, 3, 32, 48), np.uint8), np.random.default_rng(0)).shape
    (1, 3, 16, 16)
    """
    more: dict[str, list[Transform]] = {
        "standard": [],
        "trivial": [TrivialAugment()],
        "rand": [RandAugment()],
    }
    one_of("training_transform", "augment", augment, more)
    crop = RandomResizedCrop(size, scale)
    return Compose(crop, RandomHorizontalFlip(), *more[augment], Normalize(mean, std))


def describe_transform(transform: Transform) -> list[dict[str, Any]]:
    """A transform of this package, or a Compose of such, as JSON values: its steps with names and
    arguments. Raises TypeError for another function.

    >>> data.describe_transform(data.Normalize([0.5], [0.25]))
    [{'name': 'Normalize', 'arguments': {'mean': [0.5], 'std': [0.25]}}]
    """
    steps = transform.transforms if isinstance(transform, Compose) else (transform,)
    described = []
    for step in steps:
        if isinstance(step, Compose):
            described += describe_transform(step)
        elif type(step).__name__ in _KINDS and _KINDS[type(step).__name__] is type(step):
            arguments = dataclasses.asdict(step)
            described.append({"name": type(step).__name__, "arguments": _as_json(arguments)})
        else:
            raise TypeError(f"[describe_transform] {step!r} is no transform of singa.data")
    return described


def build_transform(described: Sequence[dict[str, Any]]) -> Compose:
    """The transform that `describe_transform` described. Raises ValueError for anything else.

    >>> described = data.describe_transform(data.evaluation_transform(224, [0.5], [0.25]))
    >>> data.build_transform(described).transforms[-1]
    Normalize(mean=(0.5,), std=(0.25,))
    """
    steps = []
    try:
        for step in described:
            if step["name"] not in _KINDS:
                raise ValueError(f"there is no transform {step['name']!r}")
            steps.append(
                _KINDS[step["name"]](**{k: _as_tuple(v) for k, v in step["arguments"].items()})
            )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"[build_transform] not a description of transforms: {error}") from None
    return Compose(*steps)


def _as_json(arguments: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in arguments.items()}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
