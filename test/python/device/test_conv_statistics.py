"""Batch norms of fused steps use sums that the convolution before them has computed."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
import singa
from recorded import graphs
from singa import autograd, layer, model, opt, tensor

if TYPE_CHECKING:
    from singa.singa_wrap import Device

pytestmark = pytest.mark.cudnn

WITH_SUMS = " ConvForwardStatistics "
FROM_SUMS = " BatchNormForwardFromSums "


class Net(model.Model):
    """A stem, and a residual block with a projection; one convolution is depthwise."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = layer.Conv2d(8, 3, padding=1, bias=False)
        self.conv1 = layer.Conv2d(8, 3, stride=2, padding=1, bias=False)
        self.conv2 = layer.Conv2d(16, 1)
        self.depthwise = layer.Conv2d(16, 3, padding=1, group=16)
        self.project = layer.Conv2d(16, 1, stride=2, bias=False)
        self.norms = [layer.BatchNorm2d() for _ in range(5)]
        self.fc = layer.Linear(4)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        x = self.norms[0](self.stem(x), relu=True)
        y = self.norms[1](self.conv1(x), relu=True)
        y = self.norms[2](self.conv2(y), relu=True)
        y = self.norms[3](self.depthwise(y), add=self.norms[4](self.project(x)), relu=True)
        return self.fc(autograd.flatten(autograd.globalaveragepool(y)))


class Trained(NamedTuple):
    losses: list[float]
    states: dict[str, np.ndarray]
    operations: str  # of the recorded step
    checked: dict[str, dict[str, float]]


def trained(
    gpu: "Device", dtype: str, fuse: bool, recompute: bool = False, opcheck: bool = False
) -> Trained:
    gpu.SetRandSeed(1)
    random = np.random.default_rng(2)
    x = tensor.from_numpy(random.standard_normal((4, 3, 6, 6), dtype=np.float32), gpu)
    y = tensor.from_numpy(random.integers(0, 4, 4).astype(np.int32), gpu)
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.05))
    net.compile([x], use_graph=True, dtype=dtype, fuse=fuse, recompute=recompute)
    with singa.opcheck(every=int(opcheck), action="raise") as check:
        losses = [net(x, y)[1].item() for _ in range(5)]
    (graph,) = graphs(net)
    states = {name: tensor.to_numpy(value) for name, value in net.get_states().items()}
    return Trained(losses, states, graph.ToString(), check.stats())


def assert_same_bits(got: Trained, want: Trained) -> None:
    assert got.losses == want.losses
    for name, value in want.states.items():
        np.testing.assert_array_equal(got.states[name], value, err_msg=name)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_fused_steps_train_like_others(gpu: "Device", dtype: str) -> None:
    plain, fused = (trained(gpu, dtype, fuse) for fuse in (False, True))
    assert WITH_SUMS not in plain.operations
    assert FROM_SUMS not in plain.operations
    # cuDNN has no engine for the depthwise convolution.
    assert fused.operations.count(WITH_SUMS) == fused.operations.count(FROM_SUMS) == 4
    assert fused.operations.count(" ConvForward ") == 1
    assert fused.operations.count(" BatchNormForwardTraining ") == 1
    limit = 0.02 if dtype == "bfloat16" else 0.003
    np.testing.assert_allclose(fused.losses, plain.losses, rtol=limit)
    for name, want in plain.states.items():
        scale = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(
            fused.states[name], want, rtol=0, atol=limit * scale, err_msg=name
        )


def test_float32_is_left_alone(gpu: "Device") -> None:
    before = singa.is_tf32()
    singa.set_tf32(True)  # without it cuDNN has no engine
    try:
        plain, fused = (trained(gpu, "float32", fuse) for fuse in (False, True))
    finally:
        singa.set_tf32(before)
    assert fused.operations == plain.operations
    assert_same_bits(fused, plain)


def test_opcheck_compares_both_operations(gpu: "Device") -> None:
    checked = trained(gpu, "bfloat16", fuse=True, opcheck=True).checked
    for name in (WITH_SUMS, FROM_SUMS):
        assert checked[name.strip()]["checked"] >= 4, checked
        assert checked[name.strip()]["failed"] == 0


def test_what_was_normalised_can_be_computed_again(gpu: "Device") -> None:
    kept, again = (trained(gpu, "bfloat16", True, recompute) for recompute in (False, True))
    assert " BatchNormForwardInference " in again.operations
    assert again.operations.count(FROM_SUMS) == 4
    assert_same_bits(again, kept)
