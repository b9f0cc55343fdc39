"""Layers that resize images or move pixels and channels, and a small U-Net that is recorded."""

from __future__ import annotations

import numpy as np
import pytest
import singa
from bits import check_replays
from singa import autograd, layer, model, tensor


class Net(model.Model):
    """A U-Net of two levels."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.down = layer.Conv2d(16, 3, padding=1)
        self.pool = layer.MaxPool2d(2)
        self.middle = layer.Conv2d(32, 3, padding=1)
        self.up = layer.Upsample(scale_factor=2, mode=mode)
        self.join = layer.Conv2d(16, 3, padding=1)
        self.out = layer.Conv2d(3, 1)
        self.loss = autograd.mse_loss

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        wide = autograd.relu(self.down(x))
        deep = self.up(autograd.relu(self.middle(self.pool(wide))))
        return self.out(autograd.relu(self.join(autograd.cat([wide, deep], 1))))


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_training_replays_the_executed_bits(mode: str) -> None:
    rng = np.random.default_rng(4)
    batches = [[rng.standard_normal((2, 3, 8, 12), np.float32) for _ in range(2)] for _ in range(5)]
    losses = check_replays(lambda: Net(mode), batches, {}, {"fuse": True})
    assert losses[-1] < losses[0]


@pytest.mark.cpu("reorders of the CPU's layouts")
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_images_are_not_reordered(mode: str) -> None:
    up = layer.Upsample(scale_factor=2, mode=mode)
    conv1, conv2 = layer.Conv2d(32, 3, padding=1), layer.Conv2d(32, 3, padding=1)
    x = tensor.from_numpy(np.ones((2, 16, 8, 8), np.float32))
    singa.layout_report()
    conv2(up(conv1(x)))
    assert "Interpolate" not in [reorder["op"] for reorder in singa.layout_report(record=False)]
