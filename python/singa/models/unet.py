"""U-Net (Ronneberger, Fischer & Brox 2015), which classifies each pixel."""

from __future__ import annotations

from typing import Any

from .. import autograd, layer
from ..layer import Conv2d, ConvTranspose2d, MaxPool2d, ReLU, Sequential
from ..tensor import Tensor
from .common import Classifier, batch_norm, fan_in_uniform, he_fan_out


def _double_conv(channels: int) -> Sequential:
    """Two 3x3 convolutions, each with batch norm and ReLU."""
    stages: list[layer.Layer] = []
    for _ in range(2):
        conv = Conv2d(channels, 3, padding=1, bias=False, initializer=he_fan_out)
        stages += [conv, batch_norm(), ReLU()]
    return Sequential(*stages)


class UNet(Classifier):
    """Four halvings by max pooling, four doublings by transposed convolution, each joined with the
    features of the same size on the way down.

    Unlike the original, convolutions keep the size of the image, as is usual today, and are
    followed by batch norm. `width` is the number of channels at full size (default 64). The scores
    are (N, num_classes, H, W), the labels (N, H, W). Height and width are multiples of 16, else
    ValueError.
    """

    image_shape = (3, 256, 256)
    label_shape = (256, 256)

    def __init__(self, num_classes: int = 2, width: int = 64, **kwargs: Any) -> None:
        super().__init__(num_classes, **kwargs)
        widths = [width << number for number in range(5)]
        self.encoder = Sequential(*map(_double_conv, widths))
        self.pool = MaxPool2d(2)
        self.up = Sequential(*(ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[-2::-1]))
        self.decoder = Sequential(*map(_double_conv, widths[-2::-1]))
        self.head = Conv2d(num_classes, 1, initializer=fan_in_uniform)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] % 16 or x.shape[3] % 16:
            raise ValueError(f"[UNet] height and width must be multiples of 16, got {x.shape}")
        down = []
        for number, stage in enumerate(self.encoder):
            x = stage(x if number == 0 else self.pool(x))
            down.append(x)
        for up, stage, same_size in zip(self.up, self.decoder, down[-2::-1], strict=True):
            x = stage(autograd.cat([same_size, up(x)], 1))
        return self.head(x)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        """Softmax cross-entropy of scores `out` (N, num_classes, H, W) for class indices y (N, H,
        W), averaged over the pixels."""
        scores = out.transpose((0, 2, 3, 1)).reshape((-1, self.num_classes))
        try:
            return super().loss(scores, y.reshape((-1,)))
        except IndexError as error:
            raise IndexError(
                f"{error}: the masks have numbers that are no classes. data.MaskFolder(classes=) "
                "names the file; layer.CrossEntropyLoss(ignore_index=255) leaves 255 out"
            ) from error
