"""Images for training: readers of data sets, generated sets, augmentation and a loader.

    from singa import data
    train = data.load_cifar10("data")            # or data.shapes(), which needs no files
    loader = data.DataLoader(train, 128, shuffle=True, seed=1,
                             transform=data.standard_augmentation(*train.mean_std()))
    for images, labels in loader: ...

Readers and generators return an `ImageSet`, which is in memory. `ImageFolder` and `MaskFolder` read
pictures when they are asked for; any other `Dataset` goes through the loader, too:

    train, test = data.ImageFolder("pets").split(0.2, seed=1)
    transform = data.training_transform(224, data.IMAGENET_MEAN, data.IMAGENET_STD)
    loader = data.DataLoader(train, 32, shuffle=True, transform=transform, num_workers=2)
"""

from typing import TYPE_CHECKING, Any

from ..compat.image_batch_iter import ImageBatchIter
from ..raw import calls, words
from .cifar import (
    CIFAR10_CLASSES,
    CIFAR10_MEAN,
    CIFAR10_STD,
    CIFAR100_MEAN,
    CIFAR100_STD,
    download_cifar10,
    download_cifar100,
    load_cifar10,
    load_cifar100,
)
from .colour import ColorJitter, RandAugment, TrivialAugment
from .dataset import ArrayDataset, Dataset, ImageSet, split_indices
from .geometry import CenterCrop, RandomResizedCrop, RandomRotation, Resize
from .image_folder import ImageFolder
from .loader import DataLoader
from .mask_folder import MaskFolder
from .mixing import CutMix, MixUp, RandomChoice
from .mnist import MNIST_MEAN, MNIST_STD, load_mnist
from .pictures import BrokenPictureError, read_mask, read_picture
from .presets import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    build_transform,
    describe_transform,
    evaluation_transform,
    training_transform,
)
from .sampling import WeightedSampler
from .synthetic import SHAPES_CLASSES, SHAPES_MEAN, SHAPES_STD, shapes
from .synthetic_digits import DIGITS_CLASSES, DIGITS_MEAN, DIGITS_STD, digits
from .synthetic_masks import MASKS_CLASSES, MaskSet, shapes_with_masks
from .tar_shards import TarShards
from .transforms import (
    Compose,
    Cutout,
    Normalize,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    standard_augmentation,
)

__all__ = [
    "CIFAR10_CLASSES",
    "CIFAR10_MEAN",
    "CIFAR10_STD",
    "CIFAR100_MEAN",
    "CIFAR100_STD",
    "DIGITS_CLASSES",
    "DIGITS_MEAN",
    "DIGITS_STD",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "MASKS_CLASSES",
    "MNIST_MEAN",
    "MNIST_STD",
    "SHAPES_CLASSES",
    "SHAPES_MEAN",
    "SHAPES_STD",
    "ArrayDataset",
    "BrokenPictureError",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "CutMix",
    "Cutout",
    "DataLoader",
    "Dataset",
    "ImageBatchIter",
    "ImageFolder",
    "ImageSet",
    "MaskFolder",
    "MaskSet",
    "MixUp",
    "Normalize",
    "RandAugment",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "TarShards",
    "TrivialAugment",
    "WeightedSampler",
    "build_transform",
    "describe_transform",
    "digits",
    "download_cifar10",
    "download_cifar100",
    "evaluation_transform",
    "load_cifar10",
    "load_cifar100",
    "load_mnist",
    "read_mask",
    "read_picture",
    "shapes",
    "shapes_with_masks",
    "split_indices",
    "standard_augmentation",
    "training_transform",
]

words.answers(ImageSet, words.DATASETS)
words.answers(DataLoader, words.LOADERS, words.UNASSIGNED["DataLoader"])
if not TYPE_CHECKING:
    calls.answers_calls([globals()[name] for name in __all__])

    def __getattr__(name: str) -> Any:
        return words.missing(__name__, name)
