"""Images keep their layout between convolutions on a GPU, without reorders."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import singa
from singa import autograd, device, layer, model, opt, tensor

if TYPE_CHECKING:
    from singa.singa_wrap import Device

pytestmark = pytest.mark.cudnn


class Block(layer.Layer):
    """A residual block, with addition and ReLU as part of batch norm or as operations of their
    own."""

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


class Net(model.Model):
    """Classifies images by the mean of each channel of the output of `body`."""

    rate = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.stem = layer.Conv2d(8, 3, padding=1)
        self.bn = layer.BatchNorm2d()
        self.pool = layer.MaxPool2d(3, stride=2, padding=1)
        self.fc = layer.Linear(4)
        self.loss = autograd.softmax_cross_entropy

    def body(self, x: tensor.Tensor) -> tensor.Tensor:
        raise NotImplementedError

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.body(self.pool(self.bn(self.stem(x), relu=True)))
        return self.fc(autograd.flatten(autograd.globalaveragepool(y)))


class ResNet(Net):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = layer.Sequential(Block(8, 1, fused=True), Block(12, 2, fused=False))

    def body(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.blocks(autograd.lrn(x, 3))


class Branches(layer.Layer):
    """An inception block. Images with one channel, as in the last branch, have only one layout."""

    def __init__(self) -> None:
        super().__init__()
        narrow, wide = layer.Conv2d(4, 1), layer.Conv2d(6, 3, padding=1)
        self.convs = layer.Sequential(narrow, layer.ReLU(), wide)
        self.pooled = layer.Sequential(layer.AvgPool2d(3, 1, 1), layer.Conv2d(3, 1))
        self.single = layer.Conv2d(1, 1)

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return autograd.cat([x, self.convs(x), self.pooled(x), self.single(x)], 1)


class Inception(Net):
    rate = 0.01

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Branches(), Branches()
        self.last = layer.Conv2d(9, 3, stride=2)
        self.dropout = layer.Dropout(0.4)

    def body(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.second(self.dropout(self.first(x)))
        y = self.last(autograd.pad(y, "reflect", (0, 0, 1, 2, 0, 0, 1, 0)))
        y = autograd.cat(autograd.split(y, 1, (5, 4))[::-1], 1)
        y = autograd.cat([y[:, 6:], y[:, :2], y[:, 2:6]], 1)[:, :, 1:]
        return autograd.upsample(y, "nearest", (1, 1, 2, 2))


def trained(
    kind: type[Net], dev: "Device", use_graph: bool
) -> tuple[Net, list[float], list[dict[str, Any]]]:
    """The network, its losses, and the reorders of the last step."""
    dev.SetRandSeed(5)
    random = np.random.default_rng(3)
    x = tensor.from_numpy(random.standard_normal((6, 3, 12, 12), np.float32), dev)
    y = tensor.from_numpy(random.integers(0, 4, 6).astype(np.int32), dev)
    net = kind()
    net.set_optimizer(opt.SGD(lr=kind.rate, momentum=0.9, weight_decay=1e-3))
    net.compile([x], is_train=True, use_graph=use_graph)
    losses = []
    for _ in range(6):
        singa.layout_report()
        losses.append(net(x, y)[1].item())
    reorders = singa.layout_report(record=False)
    net.eval()
    losses.append(float(np.abs(net(x).numpy()).mean()))
    return net, losses, reorders


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize("kind", [ResNet, Inception])
def test_a_step_reorders_nothing_but_its_images(
    gpu: "Device", kind: type[Net], use_graph: bool
) -> None:
    _, expected, _ = trained(kind, device.create_cpu_device(separate=True), use_graph=False)
    net, losses, reorders = trained(kind, gpu, use_graph)
    assert expected[5] < expected[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-3)
    # x is row-major, but forward and the gradient of the stem's weights need another layout.
    found = [(r["op"], r["from"], r["to"], r["bytes"]) for r in reorders]
    image = 6 * 3 * 12 * 12 * 4
    assert found == [
        ("ConvForward", "plain", "nhwc", image),
        ("ConvBackwardW", "plain", "nhwc", image),
    ]
    assert net.stem.W.data.layout_name() == "nhwc"
