"""A small network with convolution, batch norm and dropout, for tests of Model."""

import numpy as np
from arrays import image
from singa import autograd, layer, model, opt, tensor


class Net(model.Model):
    def __init__(self, width=4):
        super().__init__()
        self.conv = layer.Conv2d(width, 3, bias=False)
        self.bn = layer.BatchNorm2d(momentum=0.1)
        self.fc = layer.Linear(3)
        self.drop = layer.Dropout(0.5)
        self.seen = []

    def forward(self, x):
        self.seen.append(autograd.training)
        return self.fc(self.drop(autograd.flatten(autograd.relu(self.bn(self.conv(x))))))

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


def compiled(width=4, **kwargs):
    net = Net(width)
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([image(5, 2, 6, 6)], **kwargs)
    return net


LABELS = tensor.from_numpy(np.array([0, 1, 2, 1, 0], np.int32))


def states_of(net):
    return {name: value.numpy() for name, value in net.get_states().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)
