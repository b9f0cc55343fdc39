"""Convolution, transposed convolution and pooling in one to three dimensions, beside PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from bits import check_replays, trained
from singa import autograd, layer, model, tensor

SIGNAL, IMAGE, VOLUME = (2, 4, 19), (2, 4, 9, 8), (2, 4, 5, 7, 6)


def values(shape: tuple[int, ...], seed: int = 3, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def test_pooling_along_the_width_takes_images_and_signals() -> None:
    x = values((2, 3, 1, 17))
    for pool in (layer.MaxPool1d(3, 2, 1), layer.AvgPool1d(3, 2), layer.AvgPool1d(4, 3, 1)):
        image = pool(tensor.from_numpy(x)).numpy()
        signal = pool(tensor.from_numpy(x[:, :, 0])).numpy()
        np.testing.assert_array_equal(image[:, :, 0], signal)
    same = layer.MaxPool1d(4, 3, pad_mode="SAME_UPPER")
    assert same(tensor.from_numpy(x)).shape == (2, 3, 1, 6)
    assert same(tensor.from_numpy(x[:, :, 0])).shape == (2, 3, 6)


def test_global_pooling_of_signals_and_volumes() -> None:
    for shape in (SIGNAL, IMAGE, VOLUME):
        x, axes = values(shape), tuple(range(2, len(shape)))
        moved = tensor.from_numpy(np.ascontiguousarray(np.moveaxis(x, 1, -1)))
        for pool, want in (
            (autograd.globalmaxpool, x.max(axes, keepdims=True)),
            (autograd.globalaveragepool, x.mean(axes, keepdims=True, dtype="float64")),
        ):
            np.testing.assert_allclose(pool(tensor.from_numpy(x)).numpy(), want, rtol=0, atol=1e-6)
            last = pool(moved, "channels_last").numpy()
            np.testing.assert_allclose(np.moveaxis(last, -1, 1), want, rtol=0, atol=1e-6)


class Volumes(model.Model):
    """A network of volumes whose features go through one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = layer.Conv3d(3, 32, 3, padding=1, bias=False)
        self.bn = layer.BatchNorm2d()
        self.pool = layer.MaxPool3d(2)
        self.conv = layer.Conv3d(32, 16, 3, padding=1)
        self.adaptive = layer.AdaptiveAvgPool3d((2, 3, 3))
        self.up = layer.ConvTranspose3d(16, 16, 2, 2)
        self.line = layer.Conv1d(16, 24, 5, 2)
        self.norm = layer.BatchNorm2d()
        self.pool1 = layer.AdaptiveMaxPool1d(4)
        self.head = layer.Linear(5)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.pool(self.bn(self.stem(x), relu=True))
        y = self.up(self.adaptive(autograd.relu(self.conv(y))))
        y = self.norm(self.line(autograd.reshape(y, (y.shape[0], 16, -1))), relu=True)
        return self.head(autograd.flatten(self.pool1(y)))


RNG = np.random.default_rng(6)
X = RNG.normal(size=(4, 3, 6, 8, 8)).astype(np.float32)
LABELS = RNG.integers(0, 5, 4).astype(np.int32)
BATCHES = [(X + i % 2, LABELS) for i in range(5)]


def test_training_of_volumes_replays_the_executed_bits() -> None:
    losses = check_replays(Volumes, BATCHES, {}, {"fuse": True}, {"recompute": True})
    assert losses[4] < losses[0]


def test_training_of_volumes_agrees_with_reference() -> None:
    with singa.opcheck(every=1, action="raise"):
        trained(Volumes, BATCHES[:2])


def test_training_of_volumes_in_bfloat16() -> None:
    wide, _ = trained(Volumes, BATCHES)
    with autograd.autocast("bfloat16"):
        narrow, _ = trained(Volumes, BATCHES)
    np.testing.assert_allclose(narrow, wide, rtol=0.1)


@pytest.mark.cpu("layouts of the CPU's kernels")
def test_volumes_keep_their_layout() -> None:
    """Behind the first convolution, nothing but parameters is reordered."""
    net = Volumes()
    x = tensor.from_numpy(values((2, 3, 6, 8, 8)))
    autograd.training = True
    try:
        net.stem(x)
        y = net.stem(x)
        if y.is_blocked:  # not with SINGA_LAYOUT=plain, nor without oneDNN
            for each in (net.bn, net.pool, net.adaptive):
                y = each(y)
                assert y.is_blocked, each.name
    finally:
        autograd.training = False


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: layer.Conv1d(4, 6, (3, 3)), TypeError, r"kernel_size must be an int, got"),
        (lambda: layer.Conv3d(4, 6, (3, 3)), TypeError, r"must be an int or three, got \(3, 3\)"),
        (lambda: layer.Conv3d(4, 6, 0), ValueError, "must be at least 1"),
        (lambda: layer.Conv1d(4, 6, 3, padding="full"), ValueError, "'same' or 'valid'"),
        (lambda: layer.Conv1d(4, 6, 3, 2, "same"), ValueError, "needs a stride of 1"),
        (lambda: layer.Conv1d(0, 6, 3), ValueError, r"\[Conv1d\] in_channels"),
        (
            lambda: layer.Conv1d(4, 6, 3)(tensor.Tensor(IMAGE)),
            ValueError,
            r"expected \(batch, channels, length\), got \(2, 4, 9, 8\)",
        ),
        (
            lambda: layer.Conv3d(3, 6, 3)(tensor.Tensor(VOLUME)),
            ValueError,
            r"in_channels is 3, got input \(2, 4, 5, 7, 6\)",
        ),
        (
            lambda: layer.Conv3d(4, 6, 3, groups=4)(tensor.Tensor(VOLUME)),
            ValueError,
            "must divide the numbers of channels: 4 in, 6 out",
        ),
        (
            lambda: layer.ConvTranspose2d(4, 6, 3, output_padding=1)(tensor.Tensor(IMAGE)),
            ValueError,
            "smaller than the stride",
        ),
        (
            lambda: layer.MaxPool3d(2)(tensor.Tensor(IMAGE)),
            ValueError,
            r"kernel must be \(h, w\); got \(2, 2, 2\)",
        ),
        (lambda: layer.LPPool2d(0, 2), ValueError, "norm_type must be positive and finite"),
        (lambda: layer.AdaptiveAvgPool2d(0), ValueError, "output_size must be at least 1"),
        (lambda: layer.AdaptiveAvgPool2d((1, 2, 3)), ValueError, "one number or 2"),
        (lambda: layer.AdaptiveAvgPool2d("a"), TypeError, "output_size must be an integer"),
        (
            lambda: layer.AdaptiveAvgPool2d(2)(tensor.Tensor(SIGNAL)),
            ValueError,
            r"\[AdaptiveAvgPool\] output_size must be one or 1 for x \(2, 4, 19\)",
        ),
        (
            lambda: autograd.adaptive_max_pool(tensor.Tensor((2, 3)), 1),
            ValueError,
            r"\[AdaptivePoolForward\] input must be .* got shape \(2, 3\)",
        ),
        (
            lambda: autograd.globalmaxpool(tensor.Tensor(IMAGE), "nchw"),
            ValueError,
            r"\[GlobalMaxPool\] data_format",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_max_pooling_returns_indices(torch: ModuleType) -> None:
    random = np.random.default_rng(0)
    for kind, shape, arguments in (
        ("MaxPool1d", (2, 3, 11), (3, 2, 1)),
        ("MaxPool2d", (2, 3, 9, 7), (3, 2, 1)),
        ("MaxPool3d", (2, 3, 4, 5, 6), (2,)),
    ):
        x = random.normal(size=shape).astype(np.float32)
        theirs = torch.tensor(x, requires_grad=True)
        expected, places = getattr(torch.nn, kind)(*arguments, return_indices=True)(theirs)
        expected.square().sum().backward()
        t = tensor.Tensor(data=x, stores_grad=True)
        y, indices = getattr(layer, kind)(*arguments, return_indices=True)(t)
        assert indices.dtype == tensor.int64
        np.testing.assert_array_equal(y.numpy(), expected.detach().numpy())
        np.testing.assert_array_equal(indices.numpy(), places.numpy())
        autograd.training = True
        y, _ = getattr(layer, kind)(*arguments, return_indices=True)(t)
        got = autograd.gradients(autograd.reduce_sum(y * y))[t]
        autograd.training = False
        np.testing.assert_allclose(got.numpy(), theirs.grad.numpy(), rtol=1e-6)
