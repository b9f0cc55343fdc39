"""Transforms of torchvision, as those of singa."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np

from .pictures import from_array, to_array
from .transforms import Images, Masks, Transform

#: PyTorch has one random generator for all threads.
_lock = threading.Lock()


def adapted(transform: Any) -> Transform:
    """The transform as a function of images and a generator. Raises TypeError for a function of
    other arguments that is none of torchvision."""
    if (type(transform).__module__ or "").startswith("torchvision.transforms"):
        return _OfTorchvision(transform)
    try:
        inspect.signature(transform).bind(None, None)
    except ValueError:  # written in C: nothing is known of its arguments
        pass
    except TypeError:
        raise TypeError(
            "[DataLoader] transform is called as transform(images, rng) with images (N, C, H, W), "
            f"and a generator, which {transform!r:.80} does not take. For one image at a "
            "time, change items in the Dataset's __getitem__"
        ) from None
    return transform


class _OfTorchvision:
    """A transform of torchvision. It gets each image by itself: uint8 ones as Pillow images, others
    as tensors of PyTorch. PyTorch's generator is seeded from `rng` for it, and restored."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __repr__(self) -> str:
        return repr(self.transform)

    def __call__(self, images: Images, rng: np.random.Generator) -> Images:
        import torch

        seed, done = int(rng.integers(1 << 62)), []
        with _lock, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for image in images:
                is_picture = image.dtype == np.uint8 and len(image) in (1, 3)
                given = from_array(image) if is_picture else torch.from_numpy(image.copy())
                done.append(_as_array(self.transform(given)))
        return np.stack(done)

    def with_masks(self, images: Images, masks: Masks, rng: np.random.Generator) -> Any:
        """Raises TypeError: torchvision's transform would not move the masks."""
        raise TypeError(
            "[DataLoader] transforms of torchvision do not move masks here: use those of singa.data"
        )


def _as_array(image: Any) -> Images:
    """What a transform returned, (C, H, W)."""
    array = np.asarray(image) if hasattr(image, "numpy") else to_array(image)
    if array.ndim != 3:
        raise ValueError(
            f"[DataLoader] a transform of torchvision returned shape {array.shape} for one image; "
            "expected (C, H, W)"
        )
    return array
