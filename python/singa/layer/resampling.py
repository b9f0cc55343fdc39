"""Layers that resize images and rearrange their pixels and channels."""

from __future__ import annotations

from collections.abc import Sequence

from .. import autograd
from ..tensor import Tensor
from .base import Layer


class Upsample(Layer):
    """Resizes x (N, C, ...) along the axes behind the channels, with torch.nn.Upsample's arguments.

    size           the new lengths, or one for all axes
    scale_factor   or factors by which lengths are multiplied
    mode           "nearest" (the default), "linear", "bilinear", "bicubic", "trilinear" or "area"
    align_corners  whether the centres of the corners are in one place before and after
    recompute_scale_factor  coordinates follow the lengths instead of `scale_factor`

    See `autograd.interpolate`.

    Raises ValueError unless either `size` or `scale_factor` is given, and for another mode.

    >>> layer.Upsample(scale_factor=2)(tensor.Tensor(data=[[[[1.0, 2.0]]]]))
    Tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.]]]], dtype=float32)
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size: int | Sequence[int] | None = size
        self.scale_factor: float | Sequence[float] | None = scale_factor
        self.mode: str = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        return autograd.interpolate(
            x,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )


class ChannelShuffle(Layer):
    """Divides the channels into groups that take turns in the result. Zhang et al. 2017.

    groups  their number; must divide the channels

    Raises ValueError if `groups` does not divide the channels.

    >>> layer.ChannelShuffle(2)(tensor.Tensor(data=[[[0.0], [1.0], [2.0], [3.0]]])).reshape((4,))
    Tensor([0., 2., 1., 3.], dtype=float32)
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        return autograd.channel_shuffle(x, self.groups)


class PixelShuffle(Layer):
    """Moves channels to pixels: (N, C·r², H, W) becomes (N, C, H·r, W·r). Shi et al. 2016.

    Raises ValueError if r² does not divide the channels.

    >>> layer.PixelShuffle(2)(tensor.ones((1, 12, 4, 4))).shape
    (1, 3, 8, 8)
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return autograd.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Layer):
    """The inverse of PixelShuffle: (N, C, H·r, W·r) becomes (N, C·r², H, W).

    Raises ValueError if r does not divide height and width.

    >>> layer.PixelUnshuffle(2)(tensor.ones((1, 3, 8, 8))).shape
    (1, 12, 4, 4)
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        return autograd.pixel_unshuffle(x, self.downscale_factor)
