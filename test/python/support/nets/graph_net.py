"""A network whose steps are recorded, its batches, and its bits."""

import numpy as np
import singa
from bits import bits
from singa import autograd, layer, model, opt, tensor

LABELS = np.array([0, 1, 2, 1, 0], np.int32)


def images(step, batch=5):
    rng = np.random.default_rng([7, step])
    return tensor.from_numpy(rng.standard_normal((batch, 2, 6, 6)).astype(np.float32))


def labels(batch=5):
    return tensor.from_numpy(LABELS[:batch].copy())


class Net(model.Model):
    """Everything that changes from step to step: batch statistics, dropout, a schedule."""

    not_settings = ("forwards",)  # no operation depends on it

    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1, bias=False)
        self.bn = layer.BatchNorm2d(momentum=0.1)
        self.conv2 = layer.Conv2d(4, 3, padding=1)
        self.pool = layer.MaxPool2d(2)
        self.drop = layer.Dropout(0.5)
        self.fc = layer.Linear(3)
        self.forwards = 0

    def forward(self, x):
        object.__setattr__(self, "forwards", self.forwards + 1)
        h = self.bn(self.conv(x), relu=True)
        h = autograd.relu(autograd.add(self.conv2(h), h))
        return self.fc(self.drop(autograd.flatten(self.pool(h))))

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


def sgd(**kwargs):
    schedule = opt.ExponentialDecay(0.1, decay_steps=2, decay_rate=0.7)
    return opt.SGD(lr=schedule, momentum=0.9, weight_decay=1e-3, **kwargs)


def compiled(use_graph, optimizer=None, net=Net):
    singa.seed(11)
    m = net()
    m.set_optimizer(optimizer or sgd())
    m.compile([images(0)], is_train=True, use_graph=use_graph)
    return m


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name] == b[name], name


def train(m, steps, batches=(5,)):
    """Losses and outputs of so many steps."""
    results = []
    for i in range(steps):
        batch = batches[i % len(batches)]
        out, loss = m(images(i, batch), labels(batch))
        results.append((out, loss))
    return [(out.numpy().tobytes(), loss.numpy().tobytes()) for out, loss in results]


def alike(run, net=Net, optimizer=lambda: None):
    """Checks that `run(m)` returns the same, and leaves the same bits, where steps are executed and
    where they are recorded. Returns both models."""
    models = [compiled(use_graph, optimizer(), net) for use_graph in (False, True)]
    found = []
    for m in models:
        singa.seed(5)
        found.append(run(m))
    assert found[1] == found[0]
    assert_same(bits(models[1]), bits(models[0]))
    return models
