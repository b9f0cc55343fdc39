"""A network with a factor that Python computes in each step, for tests of recorded steps."""

import numpy as np
import singa
from singa import autograd, layer, model, opt, tensor


class Scale(layer.Layer):
    """A user's layer, whose factor can be anywhere."""

    shared = 0.5
    values = None

    def __init__(self):
        super().__init__()
        self._factor = 0.5

    @property
    def factor(self):
        return self._factor

    @factor.setter
    def factor(self, value):
        self._factor = value

    def forward(self, x):
        return x * self.read(self)


class Net(model.Model):
    not_settings = ("runs",)  # no operation depends on it

    def __init__(self, make, read):
        super().__init__()
        self.fc = layer.Linear(3)
        self.fc2 = layer.Linear(3)
        # Each test has its own classes, which it may change.
        self.scale = type("Scale", (type("Base", (Scale,), {}),), {})()
        self.scale.read = read
        make(self.scale)
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return self.scale(self.fc2(autograd.relu(self.fc(x))))

    def train_one_batch(self, x, y):
        out = self.forward(x)
        self.optimizer(autograd.softmax_cross_entropy(out, y))
        return out


def compiled(use_graph, make, read):
    singa.seed(3)
    m = Net(make, read)
    m.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    m.compile([images(0)], use_graph=use_graph)
    return m


def images(step):
    return tensor.from_numpy(np.random.default_rng([5, step]).standard_normal((4, 6)).astype("f4"))


def labels():
    return tensor.from_numpy(np.array([0, 1, 2, 1], np.int32))


def one(layer):
    return 1.0


def sets(**attributes):
    return lambda s: [setattr(s, name, value) for name, value in attributes.items()]


#: Steps that are recorded before there is a graph. The creation of the optimizer's state takes one
#: more.
FIRST = (2, 3)


def trained(m, steps, change=lambda m, i: None):
    """Outputs of a number of steps, with a function called before each, and the number of forward
    calls."""
    runs, seen = m.runs, []
    for i in range(steps):
        change(m, i)
        seen.append(m(images(i), labels()).numpy().tobytes())
    return seen, m.runs - runs
