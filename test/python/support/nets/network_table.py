"""The networks that are compared with torchvision's, timm's, and those of torch_models.py."""

import os
from dataclasses import dataclass, field
from typing import Any

#: Whether this is the lane `networks`, which runs also what takes minutes.
ALL_NETWORKS = os.environ.get("SINGA_TEST_ALL_NETWORKS") == "1"
#: Networks whose layers a smaller one has, too. Only the lane `networks` trains them and compares
#: the scores of those that are not in CASES.
LARGER = {"convnext_tiny", "resnet101", "resnet152", "vgg19", "vit_small_16", "wide_resnet50_2"}


@dataclass(frozen=True)
class Case:
    """A network and inputs on which it is quick.

    parameters  their number, as published where the network is
    shape       batch for scores in float32
    small       batch for gradients and training steps; None: `shape`
    ours        arguments of singa's constructor for the gradients, which leave nothing to chance
    size        arguments of PyTorch's constructor that say the size of the images
    rate        learning rate for the losses; tiny where batch norm over the three pixels of images
                of 1x1 amplifies rounding errors
    slow        whether it takes more than a few seconds
    gradients   whether the gradients are compared; they are of one network of each family
    """

    parameters: int
    shape: tuple[int, ...]
    small: tuple[int, ...] | None = None
    ours: dict[str, Any] = field(default_factory=dict)
    size: dict[str, Any] = field(default_factory=dict)
    rate: float = 1e-3
    slow: bool = False
    gradients: bool = False


_NO_PATH = {"drop_path": 0.0}
_NO_DROPOUT = {"dropout": 0.0}

# The number of parameters of a ViT is that for the images of `shape`.
CASES = {
    "convnext_cifar": Case(4_834_906, (3, 3, 32, 32), ours=_NO_PATH, gradients=True),
    "convnext_tiny": Case(28_589_128, (2, 3, 64, 64), (2, 3, 32, 32), ours=_NO_PATH, slow=True),
    "densenet121": Case(7_978_856, (2, 3, 64, 64), (3, 3, 32, 32), rate=1e-10, gradients=True),
    "efficientnet_b0": Case(
        5_288_548,
        (2, 3, 64, 64),
        (3, 3, 64, 64),
        ours=_NO_PATH | _NO_DROPOUT,
        rate=1e-10,
        gradients=True,
    ),
    "gpt_small": Case(10_844_160, (2, 40), (2, 12), gradients=True),
    "mobilenet_v2": Case(
        3_504_872, (2, 3, 64, 64), (3, 3, 32, 32), ours=_NO_DROPOUT, rate=1e-10, gradients=True
    ),
    "mobilenet_v3_large": Case(5_483_032, (2, 3, 64, 64), (3, 3, 32, 32), ours=_NO_DROPOUT),
    "mobilenet_v3_small": Case(
        2_542_856, (2, 3, 64, 64), (3, 3, 64, 64), ours=_NO_DROPOUT, gradients=True
    ),
    "resnet110_cifar": Case(1_727_962, (2, 3, 32, 32), (3, 3, 16, 16)),
    "resnext50_32x4d": Case(25_028_904, (2, 3, 64, 64), (3, 3, 64, 64), gradients=True),
    "shufflenet_v2_x1_0": Case(
        2_278_604, (2, 3, 64, 64), (3, 3, 32, 32), rate=1e-10, gradients=True
    ),
    "squeezenet1_1": Case(
        1_235_496, (2, 3, 64, 64), (2, 3, 32, 32), ours=_NO_DROPOUT, gradients=True
    ),
    "swin_tiny": Case(28_288_354, (2, 3, 64, 96), (2, 3, 64, 32), ours=_NO_PATH, gradients=True),
    "unet": Case(31_037_698, (2, 3, 32, 48), (2, 3, 16, 32), gradients=True),
    "vit_small_16": Case(21_981_544, (2, 3, 64, 64), size={"img_size": 64}, slow=True),
    "vit_tiny_16": Case(5_682_856, (2, 3, 64, 64), size={"img_size": 64}, gradients=True),
    "vit_tiny_cifar": Case(5_362_762, (2, 3, 32, 32)),
    "wide_resnet50_2": Case(68_883_240, (2, 3, 64, 64), (3, 3, 64, 64), slow=True),
    "wrn28_10_cifar": Case(36_479_194, (2, 3, 16, 16), gradients=True, slow=True),
}
