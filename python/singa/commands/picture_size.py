"""What follows from a network and from the pictures: the side of the images that it gets, and how
often it sees them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import autograd, models, tensor
from ..data.pictures import BrokenPictureError, picture_size

_SAMPLE = 100  # pictures whose size is read
#: Networks for images of CIFAR and MNIST take up to this, and sides that are multiples of `_STEPS`.
_LARGEST = 64
_SMALLEST = (16, 64)  # of such networks, and of networks for larger pictures
_STEPS = (4, 32)
#: Epochs by default, and the pixels of all of them together that more than the first may take:
#: those of 2,000 pictures of 64 x 64.
_EPOCHS, _MOST_EPOCHS = 20, 60
_PIXELS = 2000 * 64**2 * _EPOCHS


def usual_sides(paths: Sequence[Path]) -> tuple[int, int]:
    """The medians of the shorter and the longer sides of some pictures, in pixels; 0 if none can be
    read."""
    step = max(len(paths) // _SAMPLE, 1)
    sides = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is read again later
        for path in paths[::step]:
            try:
                sides.append(sorted(picture_size(path)))
            except (BrokenPictureError, FileNotFoundError):
                continue
    shorter, longer = np.median(sides, 0) if sides else (0, 0)
    return int(shorter), int(longer)


def fitting_size(architecture: str, side: int) -> int:
    """The side for a network of `models.create` and pictures whose usual side is `side`: theirs, in
    so far as the network accepts it. Larger pictures are reduced to what the network was made for,
    at least 64."""
    own = models.create(architecture).image_shape[1]
    is_large = own > _LARGEST
    step = _STEPS[is_large]
    size = max(math.ceil(side / step) * step, _SMALLEST[is_large])
    size = min(size, max(own, _LARGEST)) if side else max(own, _LARGEST)
    return size if size >= own or _accepts(architecture, size) else own


def fitting_epochs(pictures: int, side: int) -> int:
    """Epochs for so many training pictures, of which the network gets side x side pixels: few or
    small ones are seen more often."""
    return min(max(_PIXELS // max(pictures * side**2, 1), _EPOCHS), _MOST_EPOCHS)


def _accepts(architecture: str, size: int) -> bool:
    net: Any = models.create(architecture)
    image = tensor.zeros((1, 3, size, size))
    try:
        net.compile([image], is_train=False, use_graph=False)
        with autograd.no_grad():
            net.eval()
            net(image)
    except ValueError:
        return False
    return True
