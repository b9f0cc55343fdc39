"""Layer, group, instance and RMS norm as layers, beside those of PyTorch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from bits import check_replays
from singa import autograd, layer, model, tensor


def test_layer_norm_2d_is_layer_norm_of_each_pixel() -> None:
    x = np.random.default_rng(4).normal(size=(2, 20, 5, 3)).astype(np.float32)
    images = tensor.from_numpy(x)
    rows = tensor.from_numpy(np.ascontiguousarray(np.moveaxis(x, 1, -1)))
    want = np.moveaxis(layer.LayerNorm(20, eps=1e-6)(rows).numpy(), -1, 1)
    np.testing.assert_allclose(layer.LayerNorm2d(20)(images).numpy(), want, rtol=0, atol=2e-6)


def test_bfloat16_keeps_its_type_and_wide_weights() -> None:
    x = tensor.from_numpy(np.linspace(-2, 2, 48, dtype=np.float32).reshape(2, 24))
    norm = layer.LayerNorm(24)
    wide = norm(x).numpy()
    y = norm(x.as_type(tensor.bfloat16))
    assert y.dtype == tensor.bfloat16
    assert norm.weight.dtype == tensor.float32
    np.testing.assert_allclose(y.as_type(tensor.float32).numpy(), wide, rtol=0, atol=2**-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer.LayerNorm(()), "normalized_shape must not be empty"),
        (lambda: layer.LayerNorm(0), r"\[LayerNorm\] normalized_shape"),
        (lambda: layer.GroupNorm(5, 24), "num_groups must divide num_channels"),
        (
            lambda: layer.LayerNorm(5)(tensor.Tensor((2, 4))),
            r"expected \(\.\.\., 5\), got \(2, 4\)",
        ),
        (lambda: layer.GroupNorm(2, 4)(tensor.Tensor((2, 6))), r"expected \(N, 4, \.\.\.\), got"),
        (
            lambda: autograd.layer_norm(tensor.Tensor((2, 4)), bias=tensor.Tensor((3,))),
            r"\[LayerNorm\] scale must have shape \(4,\)",
        ),
        (
            lambda: autograd.layer_norm(tensor.Tensor((2, 4)), tensor.Tensor((3,))),
            r"\[LayerNorm\] scale must have shape \(4,\)",
        ),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_bias_alone() -> None:
    """None as the weight is 1."""
    random = np.random.default_rng(0)
    x = tensor.from_numpy(random.standard_normal((2, 4, 3)).astype(np.float32))
    for norm, shape in (
        (lambda *tensors: autograd.layer_norm(*tensors, -2), (4, 3)),
        (lambda *tensors: autograd.group_norm(tensors[0], 2, *tensors[1:]), (4,)),
        (autograd.instance_norm, (4,)),
        (autograd.channel_norm, (4,)),
    ):
        bias = tensor.from_numpy(random.standard_normal(shape).astype(np.float32))
        y, wanted = norm(x, None, bias), norm(x, tensor.ones(shape), bias)
        np.testing.assert_array_equal(y.numpy(), wanted.numpy())


class Mixed(model.Model):
    """All norms and the newer activations in one network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = layer.Conv2d(16, 3, padding=1)
        self.stem = layer.Sequential(layer.GroupNorm(4, 16), layer.GELU("tanh"))
        self.branch = layer.Sequential(
            layer.LayerNorm2d(16),
            layer.Conv2d(16, 3, padding=1),
            layer.InstanceNorm2d(16, affine=True),
            layer.Mish(),
            layer.DropPath(0.3),
        )
        self.hidden = layer.Linear(32)
        self.head = layer.Sequential(
            layer.LayerNorm(32), layer.Hardswish(), layer.RMSNorm(32), layer.Linear(5)
        )
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.stem(self.conv1(x))
        y = y + self.branch(y)
        return self.head(self.hidden(autograd.flatten(y)))


def test_training_replays_the_executed_bits() -> None:
    rng = np.random.default_rng(6)
    batches = [
        (rng.normal(size=(6, 3, 8, 8)).astype(np.float32), rng.integers(0, 5, 6).astype(np.int32))
        for _ in range(6)
    ]
    check_replays(Mixed, batches, {}, {"fuse": True}, {"recompute": True})


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (layer.BatchNorm1d, (1, 3)),
        (layer.BatchNorm1d, (1, 3, 1)),
        (layer.BatchNorm2d, (1, 3, 1, 1)),
        (layer.BatchNorm3d, (1, 3, 1, 1, 1)),
        (layer.SyncBatchNorm, (1, 3, 1, 1)),
    ],
)
def test_one_value_for_each_channel_has_no_variance(
    kind: Any, shape: tuple[int, ...], training: None
) -> None:
    """As PyTorch refuses it: the result would be the bias, whatever x is."""
    norm = kind(3) if kind in (layer.BatchNorm1d, layer.BatchNorm3d) else kind()
    x = tensor.ones(shape)
    message = f"several values for each channel, got x of shape {re.escape(str(shape))}"
    with pytest.raises(ValueError, match=f"{message}: .*drop_last"):
        norm(x)
    two = tensor.from_numpy(np.stack([np.zeros(shape[1:]), np.ones(shape[1:])]).astype(np.float32))
    np.testing.assert_allclose(norm(two).numpy()[1].ravel(), 1.0, rtol=1e-4)
    norm.frozen_statistics = True
    assert norm(x).shape == shape
    autograd.training = False
    norm.frozen_statistics = False
    assert norm(x).shape == shape
