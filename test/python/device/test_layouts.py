"""Between convolutions of a GPU, images stay as those leave them: nothing reorders them."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import singa
from singa import autograd, device, layer, model, opt, tensor

if TYPE_CHECKING:
    from singa.singa_wrap import Device


class Block(layer.Layer):
    """A residual block; what it adds and cuts off is part of its batch norm, or not."""

    def __init__(self, width: int, stride: int, fused: bool) -> None:
        super().__init__()
        self.conv1 = layer.Conv2d(width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = layer.BatchNorm2d()
        self.conv2 = layer.Conv2d(width, 3, padding=1)
        self.bn2 = layer.BatchNorm2d()
        self.fused = fused
        self.shortcut = None
        if stride > 1:
            projection = layer.Conv2d(width, 1, bias=False), layer.BatchNorm2d()
            self.shortcut = layer.Sequential(layer.AvgPool2d(stride), *projection)

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.conv2(autograd.relu(self.bn1(self.conv1(x))))
        shortcut = x if self.shortcut is None else self.shortcut(x)
        if self.fused:
            return self.bn2(y, add=shortcut, relu=True)
        return autograd.relu(autograd.add(self.bn2(y), shortcut))


class ResNet(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.stem = layer.Conv2d(8, 3, padding=1)
        self.bn = layer.BatchNorm2d()
        self.pool = layer.MaxPool2d(3, stride=2, padding=1)
        self.blocks = layer.Sequential(Block(8, 1, fused=True), Block(12, 2, fused=False))
        self.fc = layer.Linear(4)

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.pool(self.bn(self.stem(x), relu=True))
        y = self.blocks(autograd.lrn(y, 3))
        return self.fc(autograd.flatten(autograd.globalaveragepool(y)))

    def train_one_batch(self, x: tensor.Tensor, y: tensor.Tensor) -> tensor.Tensor:
        loss = autograd.softmax_cross_entropy(self.forward(x), y)
        self.optimizer(loss)
        return loss


def trained(dev: "Device", use_graph: bool) -> tuple[ResNet, list[float], list[dict[str, Any]]]:
    """The network, its losses, and the reorders of the last step."""
    dev.SetRandSeed(5)
    random = np.random.default_rng(3)
    x = tensor.from_numpy(random.standard_normal((6, 3, 12, 12), np.float32), dev)
    y = tensor.from_numpy(random.integers(0, 4, 6).astype(np.int32), dev)
    net = ResNet()
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9, weight_decay=1e-3))
    net.compile([x], is_train=True, use_graph=use_graph)
    losses = []
    for _ in range(6):
        singa.layout_report()
        losses.append(net(x, y).numpy().item())
    reorders = singa.layout_report(record=False)
    net.eval()
    losses.append(float(np.abs(net(x).numpy()).mean()))
    return net, losses, reorders


@pytest.mark.parametrize("use_graph", [False, True])
def test_a_step_reorders_nothing_but_its_images(gpu: "Device", use_graph: bool) -> None:
    _, expected, _ = trained(device.create_cpu_device(separate=True), use_graph=False)
    net, losses, reorders = trained(gpu, use_graph)
    assert expected[5] < expected[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-3)
    # x comes row-major: forward and the gradient of the stem's filters want it otherwise.
    found = [(r["op"], r["from"], r["to"], r["bytes"]) for r in reorders]
    image = 6 * 3 * 12 * 12 * 4
    assert found == [
        ("ConvForward", "plain", "nhwc", image),
        ("ConvBackwardW", "plain", "nhwc", image),
    ]
    assert net.stem.W.data.layout_name() == "nhwc"
