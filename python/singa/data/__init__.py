"""Images for training: readers of data sets, generated sets, augmentation and a loader.

    from singa import data
    train = data.load_cifar10("data")            # or data.shapes(), which needs no files
    loader = data.DataLoader(train, 128, shuffle=True, seed=1,
                             transform=data.standard_augmentation(*train.mean_std()))
    for images, labels in loader: ...

Readers and generators return an `ImageSet`.
"""

from ..compat.image_batch_iter import ImageBatchIter
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
from .dataset import ImageSet
from .loader import DataLoader
from .mixing import CutMix, MixUp, RandomChoice
from .mnist import MNIST_MEAN, MNIST_STD, load_mnist
from .synthetic import SHAPES_CLASSES, SHAPES_MEAN, SHAPES_STD, shapes
from .synthetic_digits import DIGITS_CLASSES, DIGITS_MEAN, DIGITS_STD, digits
from .transforms import (
    Compose,
    Cutout,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
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
    "MNIST_MEAN",
    "MNIST_STD",
    "SHAPES_CLASSES",
    "SHAPES_MEAN",
    "SHAPES_STD",
    "Compose",
    "CutMix",
    "Cutout",
    "DataLoader",
    "ImageBatchIter",
    "ImageSet",
    "MixUp",
    "Normalize",
    "RandomChoice",
    "RandomCrop",
    "RandomHorizontalFlip",
    "digits",
    "download_cifar10",
    "download_cifar100",
    "load_cifar10",
    "load_cifar100",
    "load_mnist",
    "shapes",
    "standard_augmentation",
]
