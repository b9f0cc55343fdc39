"""Batch normalisation, and local response normalisation."""

from __future__ import annotations

from typing import Any

from .. import autograd, singa_wrap, tensor
from .._check import fraction, number
from ..tensor import Tensor
from .base import Layer


class BatchNorm2d(Layer):
    """y = scale · (x - mean) / sqrt(var + eps) + bias over every axis but 1. Ioffe & Szegedy 2015.

    Training normalises by the batch and updates the running values: running = (1 - momentum) ·
    running + momentum · batch, so `momentum` weights the new batch, as in SINGA; networks in
    `singa.models` use 0.1. Otherwise the running values are used. With `fix_scale` the scale stays
    1. The older form `BatchNorm2d(channels[, momentum])` still works.

    Called as `bn(x, add=z, relu=True)` it gives `relu(bn(x) + z)` in one operation.
    """

    state_names = ("running_mean", "running_var")
    transient = ("handle",)
    scale: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    follows_dtype = False  # 16-bit floats are normalised by numbers of 32 bits

    def __init__(
        self, *args: Any, momentum: float = 0.9, eps: float = 1e-5, fix_scale: bool = False
    ) -> None:
        super().__init__()
        if len(args) > 2:
            raise TypeError(f"[BatchNorm2d] expected at most channels and momentum, got {args}")
        self.channels: int | None = args[0] if args else None
        self.momentum = args[1] if len(args) == 2 else momentum
        self.momentum = fraction("BatchNorm2d", "momentum", self.momentum)
        self.eps = number("BatchNorm2d", "eps", eps)
        if not 0.0 <= self.eps < float("inf"):
            raise ValueError(f"[BatchNorm2d] eps must be finite and not negative, got {eps}")
        self.fix_scale = fix_scale
        self.handle: Any = None

    def initialize(self, x: Tensor, add: Tensor | None = None, relu: bool = False) -> None:
        channels = x.shape[1] if len(x.shape) > 1 else 0
        if not channels or (self.channels is not None and self.channels != channels):
            raise ValueError(
                f"[{self.title}] expected (batch, {self.channels or 'channels'}, ...), got "
                f"{tuple(x.shape)}"
            )
        self.channels = channels
        wide = tensor.float64 if x.dtype == tensor.float64 else tensor.float32
        for attribute, value in (
            ("scale", 1.0),
            ("bias", 0.0),
            ("running_mean", 0.0),
            ("running_var", 1.0),
        ):
            trained = attribute not in self.state_names
            values = Tensor((channels,), x.device, wide, requires_grad=trained, stores_grad=trained)
            setattr(self, attribute, values.set_value(value))
        self.scale.requires_grad = not self.fix_scale

    def forward(self, x: Tensor, add: Tensor | None = None, relu: bool = False) -> Tensor:
        if self.handle is None:
            self.handle = singa_wrap.BatchNormHandle(self.momentum, x.data, self.eps)
        return autograd.batchnorm_2d(
            self.handle,
            x,
            self.scale,
            self.bias,
            self.running_mean,
            self.running_var,
            add,
            relu,
        )
