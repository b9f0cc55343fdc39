"""Networks by name.

    models.names()
    net = models.create("resnet50", num_classes=1000, label_smoothing=0.1)

Parameters, with the default number of classes (batch norm's running values not counted):

    name            input         parameters    counted the same by
    alexnet         3 x 224 x 224 61,100,840    torchvision alexnet
    googlenet       3 x 224 x 224 6,624,904     torchvision googlenet, without aux1 and aux2
    inception_bn    3 x 224 x 224 11,285,224    BNInception less its 10,016 biases of convolutions
    inception_v3    3 x 299 x 299 23,834,568    torchvision inception_v3, without AuxLogits
    inception_v4    3 x 299 x 299 42,679,816    timm inception_v4
    lenet           1 x 28 x 28   431,080       Caffe lenet
    resnet152       3 x 224 x 224 60,192,808    torchvision resnet152
    resnet18_cifar  3 x 32 x 32   11,173,962    ResNet-18, 3x3 stem, 10 classes
    resnet20_cifar  3 x 32 x 32   269,722       He et al. 2016, section 4.2, shortcuts of option A
    resnet50        3 x 224 x 224 25,557,032    torchvision resnet50
    resnet50_cifar  3 x 32 x 32   23,520,842    ResNet-50, 3x3 stem, 10 classes
    vgg16           3 x 224 x 224 138,357,544   torchvision vgg16
    vgg16_cifar     3 x 32 x 32   14,728,266    VGG-16 with batch norm, one linear layer, 10 classes
    vgg19           3 x 224 x 224 143,667,240   torchvision vgg19
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .common import Classifier

# name: (module, what makes it)
_MODELS = {
    "alexnet": ("alexnet", "AlexNet"),
    "googlenet": ("googlenet", "GoogLeNet"),
    "inception_bn": ("inception_bn", "InceptionBN"),
    "inception_v3": ("inception_v3", "InceptionV3"),
    "inception_v4": ("inception_v4", "InceptionV4"),
    "lenet": ("lenet", "LeNet"),
    "resnet152": ("resnet", "resnet152"),
    "resnet18_cifar": ("resnet", "resnet18_cifar"),
    "resnet20_cifar": ("resnet", "resnet20_cifar"),
    "resnet50": ("resnet", "resnet50"),
    "resnet50_cifar": ("resnet", "resnet50_cifar"),
    "vgg16": ("vgg", "vgg16"),
    "vgg16_cifar": ("vgg", "vgg16_cifar"),
    "vgg19": ("vgg", "vgg19"),
}


def names() -> list[str]:
    """All names that `create` knows."""
    return sorted(_MODELS)


def create(name: str, **kwargs: Any) -> Classifier:
    """The network of that name, not compiled yet.

    Keyword arguments: num_classes, label_smoothing, and dropout where it has any. Raises ValueError
    for an unknown name, TypeError for an unknown argument.
    """
    if name not in _MODELS:
        raise ValueError(f"[models.create] no model {name!r}; there are {', '.join(names())}")
    module, maker = _MODELS[name]
    return getattr(importlib.import_module(f".{module}", __name__), maker)(**kwargs)


__all__ = ["create", "names"]
