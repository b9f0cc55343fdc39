"""Vision transformers (Dosovitskiy et al. 2021; sizes of Touvron et al. 2021), as in timm."""

from __future__ import annotations

import functools
from typing import Any

from .. import autograd, layer
from ..initializer import normal
from ..layer import Conv2d, Linear
from ..tensor import Tensor
from .blocks import MLP, SelfAttention, TransformerBlock, depth_rates
from .common import Classifier, fan_in_uniform, normal_002


class PatchEmbedding(layer.Layer):
    """A linear function of each patch: images (N, C, H, W) → (N, patches, width).

    Raises ValueError if `patch` does not divide height and width.
    """

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.proj = Conv2d(width, patch, stride=patch, initializer=fan_in_uniform)

    def forward(self, x: Tensor) -> Tensor:
        patch = self.proj.stride[0]
        if x.shape[2] % patch or x.shape[3] % patch:
            raise ValueError(
                f"[{self.title}] patches of {patch} x {patch} do not divide images {x.shape}"
            )
        x = self.proj(x)
        return x.reshape((*x.shape[:2], x.shape[2] * x.shape[3])).transpose((0, 2, 1))


class VisionTransformer(Classifier):
    """Transformer over patches and a class token, whose output is classified.

    patch      height and width of a patch, in pixels
    width      number of features of a token
    depth      number of blocks
    heads      heads of the attention
    size       height and width of the images for which the network was designed (default 224)
    drop_path  probability of stochastic depth that the blocks rise to (default 0)

    The first call determines the size of the images, because each position has parameters.
    """

    input_types = "own"
    cls_token: Tensor
    pos_embed: Tensor

    def __init__(
        self,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        num_classes: int = 1000,
        size: int = 224,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        self.image_shape = (3, size, size)
        self.width = width
        self.patch = patch
        self.patch_embed = PatchEmbedding(patch, width)
        self.blocks = layer.Sequential(
            *(
                TransformerBlock(
                    width,
                    SelfAttention(width, heads, dropout=dropout),
                    MLP(width, 4 * width, dropout=dropout),
                    1e-6,
                    rate,
                )
                for rate in depth_rates(drop_path, [depth])[0]
            )
        )
        self.norm = layer.LayerNorm(width, eps=1e-6)
        self.head = Linear(num_classes, initializer=normal_002)

    def initialize(self, x: Tensor) -> None:
        patches = (x.shape[2] // self.patch) * (x.shape[3] // self.patch)
        self._new_param("cls_token", (1, 1, self.width), x, lambda t: normal(t, 1e-6))
        self._new_param("pos_embed", (1, 1 + patches, self.width), x, normal_002)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        first = autograd.cast(self.cls_token, x.dtype)
        first = autograd.expand(first, (x.shape[0], 1, self.width))
        x = self.blocks(autograd.cat([first, x], 1) + self.pos_embed)
        return self.head(self.norm(x[:, 0]))


# Makers of `models.create`, whose table says what they are the same as.
vit_tiny_16 = functools.partial(VisionTransformer, 16, 192, 12, 3)
vit_small_16 = functools.partial(VisionTransformer, 16, 384, 12, 6)
vit_tiny_cifar = functools.partial(VisionTransformer, 4, 192, 12, 3, num_classes=10, size=32)
