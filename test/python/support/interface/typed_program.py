"""A typed program as users write it. `make lint` checks it with mypy --strict."""

from __future__ import annotations

import numpy as np
import singa
from singa import autograd, data, layer, model, models, opt, singa_wrap, tensor
from singa.tensor import Tensor


class Scale(layer.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def initialize(self, x: Tensor) -> None:
        self.W = Tensor((self.width,), x.device, stores_grad=True).set_value(1.0)

    def forward(self, x: Tensor, power: int = 1) -> Tensor:
        return x * self.W**power + 1.0


class Double(autograd.Operator):
    def forward(self, x: singa_wrap.Tensor) -> singa_wrap.Tensor:
        self.shape = x.shape()
        doubled: singa_wrap.Tensor = singa_wrap.Binary(singa_wrap.BinaryOp_kAdd, x, x)
        return doubled

    def backward(self, dy: singa_wrap.Tensor) -> singa_wrap.Tensor:
        assert dy.shape() == self.shape
        doubled: singa_wrap.Tensor = singa_wrap.Binary(singa_wrap.BinaryOp_kAdd, dy, dy)
        return doubled


class Net(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = layer.Conv2d(8, 3, padding=1)
        self.scale = Scale(8)
        self.fc = layer.Linear(10)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.scale(autograd.reduce_mean(autograd.relu(self.conv(x)), [2, 3], 0))
        scores: Tensor = self.fc(Double()(y)[0])
        return scores

    def train_one_batch(self, x: Tensor, y: Tensor, weight: float = 1.0) -> tuple[Tensor, Tensor]:
        out = self.forward(x)
        loss: Tensor = weight * self.loss(out, y)
        self.optimizer(loss)
        return out, loss


class Halved(opt.DecayScheduler):
    def value(self, step: float) -> float:
        return 0.1 / 2**step


class Descent(opt.Optimizer):
    def apply(self, param_name: str, param_value: Tensor, param_grad: Tensor) -> None:
        param_value -= 0.1 * param_grad


def main() -> list[float]:
    singa.seed(0)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (8, 3, 6, 6), np.uint8)
    loader = data.DataLoader((images, random.integers(0, 10, 8)), 4)
    net = Net()
    net.set_optimizer(opt.SGD(lr=Halved(0.1), momentum=0.9))
    net.compile([tensor.from_numpy(images[:4].astype(np.float32))], use_graph=True)
    losses: list[float] = []
    for _ in range(3):
        for x, y in loader:
            out, loss = net(tensor.from_numpy(x), tensor.from_numpy(y))
            losses.append(loss.mean().item())
            assert out.argmax(dim=1).view(-1, 1).shape == (4, 1)
            assert f"{loss.float():.3f}"
            assert out.shape == (4, 10)
    net.eval()
    with autograd.no_grad(), singa.detect_anomaly():
        scores: Tensor = net(images.astype(np.float32) / 255.0)
        assert scores.numpy().shape == (8, 10)
    known: model.Model = models.create("lenet", num_classes=10)
    known.set_optimizer(opt.Adam(lr=1e-3, beta_1=0.8))
    return losses


if __name__ == "__main__":
    print(main())
