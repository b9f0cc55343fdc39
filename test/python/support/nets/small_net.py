"""A small network for tests of other things."""

import numpy as np
import singa
from singa import autograd, layer, model, tensor


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1)
        self.fc = layer.Linear(3)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x):
        return self.fc(autograd.flatten(autograd.relu(self.conv(x))))


class Whole(Net):
    """With all that a checkpoint saves: parameters, running statistics, random numbers."""

    def __init__(self, width=6):
        super().__init__()
        self.conv = layer.Conv2d(width, 3, padding=1)
        self.norm = layer.BatchNorm2d(momentum=0.1)
        self.drop = layer.Dropout(0.4)

    def forward(self, x):
        x = autograd.relu(self.norm(self.conv(x)))
        return self.fc(self.drop(autograd.flatten(x)))


def batch(number):
    draw = np.random.default_rng(number)
    x = draw.standard_normal((5, 2, 4, 4), np.float32)
    return tensor.from_numpy(x), tensor.from_numpy(draw.integers(0, 3, 5, np.int32))


def trained(optimizer, use_graph, steps=8, after=lambda net, step: None, **options):
    """The network after some steps, behind each of which `after` is called. With a scaler, the
    fifth one overflows."""
    rng = np.random.default_rng(0)
    singa.seed(3)
    net = Net()
    net.set_optimizer(optimizer)
    x = tensor.from_numpy(rng.standard_normal((6, 2, 4, 4)).astype(np.float32))
    y = tensor.from_numpy(np.arange(6, dtype=np.int32) % 3)
    net.compile([x], is_train=True, use_graph=use_graph, **options)
    for step in range(steps):
        huge = 1e38 if step == 4 and optimizer.scaler is not None else 1.0
        x.copy_from_numpy((rng.standard_normal((6, 2, 4, 4)) * huge).astype(np.float32))
        net(x, y)
        after(net, step)
    return net
