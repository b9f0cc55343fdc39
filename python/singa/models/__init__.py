"""Networks, by name or as a chain of layers.

    models.names()
    net = models.create("resnet50", num_classes=1000, label_smoothing=0.1)
    net = models.Sequential(layer.Conv2d(16, 3), layer.ReLU(), layer.Flatten(), layer.Linear(10))

Numbers of parameters with the default number of classes, without running statistics of batch norm:

    name               input         parameters   same as
    alexnet            3 x 224 x 224 61,100,840   torchvision alexnet
    convnext_cifar     3 x 32 x 32   4,834,906    torchvision ConvNeXt, sizes of timm convnext_femto
    convnext_tiny      3 x 224 x 224 28,589,128   torchvision convnext_tiny
    densenet121        3 x 224 x 224 7,978,856    torchvision densenet121
    efficientnet_b0    3 x 224 x 224 5,288,548    torchvision efficientnet_b0
    googlenet          3 x 224 x 224 6,624,904    torchvision googlenet, without aux1 and aux2
    gpt_small          256 tokens    10,844,160   nanoGPT, 6 blocks of width 384, bytes
    inception_bn       3 x 224 x 224 11,285,224   BNInception less its 10,016 biases of convolutions
    inception_v3       3 x 299 x 299 23,834,568   torchvision inception_v3, without AuxLogits
    inception_v4       3 x 299 x 299 42,679,816   timm inception_v4
    lenet              1 x 28 x 28   431,080      Caffe lenet
    mobilenet_v2       3 x 224 x 224 3,504,872    torchvision mobilenet_v2
    mobilenet_v3_large 3 x 224 x 224 5,483,032    torchvision mobilenet_v3_large
    mobilenet_v3_small 3 x 224 x 224 2,542,856    torchvision mobilenet_v3_small
    resnet101          3 x 224 x 224 44,549,160   torchvision resnet101
    resnet110_cifar    3 x 32 x 32   1,727,962    He et al. 2016, section 4.2, shortcuts of option A
    resnet152          3 x 224 x 224 60,192,808   torchvision resnet152
    resnet18           3 x 224 x 224 11,689,512   torchvision resnet18
    resnet18_cifar     3 x 32 x 32   11,173,962   ResNet-18, 3x3 stem, 10 classes
    resnet20_cifar     3 x 32 x 32   269,722      He et al. 2016, section 4.2, shortcuts of option A
    resnet34           3 x 224 x 224 21,797,672   torchvision resnet34
    resnet50           3 x 224 x 224 25,557,032   torchvision resnet50
    resnet50_cifar     3 x 32 x 32   23,520,842   ResNet-50, 3x3 stem, 10 classes
    resnext50_32x4d    3 x 224 x 224 25,028,904   torchvision resnext50_32x4d
    shufflenet_v2_x1_0 3 x 224 x 224 2,278,604    torchvision shufflenet_v2_x1_0
    squeezenet1_1      3 x 224 x 224 1,235,496    torchvision squeezenet1_1
    swin_tiny          3 x 224 x 224 28,288,354   torchvision swin_t
    unet               3 x 256 x 256 31,037,698   Ronneberger et al. 2015 with batch norm, 2 classes
    vgg16              3 x 224 x 224 138,357,544  torchvision vgg16
    vgg16_cifar        3 x 32 x 32   14,728,266   VGG-16, batch norm, one linear layer, 10 classes
    vgg19              3 x 224 x 224 143,667,240  torchvision vgg19
    vit_small_16       3 x 224 x 224 22,050,664   timm vit_small_patch16_224
    vit_tiny_16        3 x 224 x 224 5,717,416    timm vit_tiny_patch16_224
    vit_tiny_cifar     3 x 32 x 32   5,362,762    timm VisionTransformer, patches of 4, 10 classes
    wide_resnet50_2    3 x 224 x 224 68,883,240   torchvision wide_resnet50_2
    wrn28_10_cifar     3 x 32 x 32   36,479,194   Zagoruyko & Komodakis 2016, 10 classes
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..raw import calls, words

if TYPE_CHECKING:
    from .common import Classifier
    from .sequential import Sequential

# name: (module, class or function)
_MODELS = {
    "alexnet": ("alexnet", "AlexNet"),
    "convnext_cifar": ("convnext", "convnext_cifar"),
    "convnext_tiny": ("convnext", "convnext_tiny"),
    "densenet121": ("densenet", "densenet121"),
    "efficientnet_b0": ("efficientnet", "EfficientNetB0"),
    "googlenet": ("googlenet", "GoogLeNet"),
    "gpt_small": ("gpt", "GPT"),
    "inception_bn": ("inception_bn", "InceptionBN"),
    "inception_v3": ("inception_v3", "InceptionV3"),
    "inception_v4": ("inception_v4", "InceptionV4"),
    "lenet": ("lenet", "LeNet"),
    "mobilenet_v2": ("mobilenet", "MobileNetV2"),
    "mobilenet_v3_large": ("mobilenet", "mobilenet_v3_large"),
    "mobilenet_v3_small": ("mobilenet", "mobilenet_v3_small"),
    "resnet101": ("resnet", "resnet101"),
    "resnet110_cifar": ("resnet", "resnet110_cifar"),
    "resnet152": ("resnet", "resnet152"),
    "resnet18": ("resnet", "resnet18"),
    "resnet18_cifar": ("resnet", "resnet18_cifar"),
    "resnet20_cifar": ("resnet", "resnet20_cifar"),
    "resnet34": ("resnet", "resnet34"),
    "resnet50": ("resnet", "resnet50"),
    "resnet50_cifar": ("resnet", "resnet50_cifar"),
    "resnext50_32x4d": ("resnet", "resnext50_32x4d"),
    "shufflenet_v2_x1_0": ("shufflenet", "shufflenet_v2_x1_0"),
    "squeezenet1_1": ("squeezenet", "SqueezeNet"),
    "swin_tiny": ("swin", "swin_tiny"),
    "unet": ("unet", "UNet"),
    "vgg16": ("vgg", "vgg16"),
    "vgg16_cifar": ("vgg", "CifarVGG"),
    "vgg19": ("vgg", "vgg19"),
    "vit_small_16": ("vit", "vit_small_16"),
    "vit_tiny_16": ("vit", "vit_tiny_16"),
    "vit_tiny_cifar": ("vit", "vit_tiny_cifar"),
    "wide_resnet50_2": ("resnet", "wide_resnet50_2"),
    "wrn28_10_cifar": ("wide_resnet", "wrn28_10_cifar"),
}

#: Other names of torchvision and timm for the same networks.
_ALIASES = {
    "swin_t": "swin_tiny",
    "vit_small_patch16_224": "vit_small_16",
    "vit_tiny_patch16_224": "vit_tiny_16",
}


def names() -> list[str]:
    """The names of all networks, sorted.

    >>> models.names()[:3]
    ['alexnet', 'convnext_cifar', 'convnext_tiny']
    """
    return sorted(_MODELS)


def canonical_name(name: str) -> str | None:
    """The name in `names()` for this one, which may be torchvision's or timm's. None if there is no
    such network.

    >>> models.canonical_name("swin_t"), models.canonical_name("unknown")
    ('swin_tiny', None)
    """
    name = _ALIASES.get(name, name)
    return name if name in _MODELS else None


@calls.says_what_to_write("models.create")
def create(name: str, **kwargs: Any) -> Classifier:
    """Creates the network `name`, which is not compiled yet. Where torchvision or timm have another
    name for it, such as swin_t, that does as well.

    num_classes      number of classes (default: 1000, 10 for LeNet and the CIFAR networks, 2 for
                     U-Net, 256 for GPT)
    label_smoothing  see `singa.models.common.Classifier` (default 0)
    dropout          probability of dropout, for networks that have it
    drop_path        probability of stochastic depth in the last block, for networks that have it

    Raises ValueError for an unknown name, TypeError for an unknown argument.

    >>> net = models.create("lenet", num_classes=3)
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> net.eval()
    >>> net(tensor.zeros((5, 1, 28, 28))).shape
    (5, 3)
    """
    known = canonical_name(name)
    if known is None:
        from ..launcher.command_line import nearest

        raise ValueError(
            f"[models.create] no model {name!r}; there are {', '.join(names())}"
            f"{nearest(str(name), names())}"
        )
    module, maker = _MODELS[known]
    # Files keep the arguments as JSON.
    kwargs = {k: v.item() if isinstance(v, np.generic) else v for k, v in kwargs.items()}
    make = getattr(importlib.import_module(f".{module}", __name__), maker)
    taken = _keywords(make)
    if wrong := next((name for name in kwargs if name not in taken), None):
        answers = words.ARGUMENTS["models.create"]
        raise calls.argument_error(f"models.create({known!r})", wrong, taken, answers)
    net: Classifier = make(**kwargs)
    net.architecture = {"name": known, "arguments": kwargs}
    return net


def _keywords(maker: Any) -> list[str]:
    """Names of the arguments that this class, or partial call of it, leaves open."""
    given = 0
    while isinstance(maker, functools.partial):
        given += len(maker.args)
        maker = maker.func
    return calls.keywords(maker)[given:]


def __getattr__(name: str) -> Any:
    if name == "Sequential":
        from .sequential import Sequential

        return Sequential
    answer = ""
    if name.endswith("_Weights"):  # torchvision's
        answer = "singa.training.pretrained.load_pretrained(folder)"
    elif not name.startswith("_"):  # what Python asks for
        from ..launcher.command_line import closest

        network = canonical_name(name) or closest(name, names())
        answer = f"models.create({network!r})" if network else ""
    if answer:
        raise words.attribute_error(f"module {__name__!r}", name, {name: answer})
    return words.missing(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = ["Sequential", "canonical_name", "create", "names"]
