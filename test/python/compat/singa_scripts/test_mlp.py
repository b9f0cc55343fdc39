"""A multilayer perceptron as in SINGA's scripts: operators first, then a Model."""

import numpy as np
import pytest
from singa import autograd, device, layer, model, opt, tensor
from singa import singa_wrap as singa


def points(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in a square, and on which side of a cubic curve they lie."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    label = (x[:, 1] > 5 * x[:, 0] ** 3 - 2 * x[:, 0]).astype(np.int32)
    return x, label


def to_categorical(y: np.ndarray, num_classes: int) -> np.ndarray:
    categorical = np.zeros((y.shape[0], num_classes))
    categorical[np.arange(y.shape[0]), y] = 1
    return categorical.astype(np.int32)


def accuracy(pred: np.ndarray, target: np.ndarray) -> float:
    return float((pred.argmax(1) == target).mean())


def test_operators_by_hand() -> None:
    dev = device.get_default_device()
    dev.SetRandSeed(3)
    data, label = points(200)
    autograd.training = True
    try:
        inputs = tensor.Tensor(data=data, device=dev)
        target = tensor.Tensor(data=to_categorical(label, 2), device=dev, dtype=tensor.int32)
        assert target.dtype == tensor.int32

        w0 = tensor.Tensor(shape=(2, 16), device=dev, requires_grad=True, stores_grad=True)
        w0.gaussian(0.0, 0.3)
        b0 = tensor.Tensor(shape=(1, 16), device=dev, requires_grad=True, stores_grad=True)
        b0.set_value(0.0)
        w1 = tensor.Tensor(shape=(16, 2), device=dev, requires_grad=True, stores_grad=True)
        w1.gaussian(0.0, 0.3)
        b1 = tensor.Tensor(shape=(1, 2), device=dev, requires_grad=True, stores_grad=True)
        b1.set_value(0.0)

        sgd = opt.SGD(0.3, momentum=0.9)
        history = []
        for _ in range(150):
            x = autograd.matmul(inputs, w0)
            x = autograd.add(x, b0)
            x = autograd.relu(x)
            x = autograd.matmul(x, w1)
            x = autograd.add(x, b1)
            loss = autograd.softmax_cross_entropy(x, target)
            for p, gp in autograd.backward(loss):
                sgd.apply(p.name, p, gp)
            sgd.step()
            history.append(tensor.to_numpy(loss)[0])
        assert history[0] == pytest.approx(np.log(2), rel=0.2)
        assert history[-1] < 0.25
        assert accuracy(tensor.to_numpy(x), label) > 0.9
    finally:
        autograd.training = False


class MLP(model.Model):
    def __init__(self, perceptron_size=16, num_classes=2):
        super(MLP, self).__init__()  # noqa: UP008 - as older scripts say it
        self.num_classes = num_classes
        self.relu = layer.ReLU()
        self.linear1 = layer.Linear(perceptron_size)
        self.linear2 = layer.Linear(num_classes)
        self.softmax_cross_entropy = layer.SoftMaxCrossEntropy()

    def forward(self, inputs):
        y = self.linear1(inputs)
        y = self.relu(y)
        return self.linear2(y)

    def train_one_batch(self, x, y, dist_option="plain", spars=None):
        out = self.forward(x)
        loss = self.softmax_cross_entropy(out, y)
        if dist_option == "plain":
            self.optimizer(loss)
        elif dist_option == "half":
            self.optimizer.backward_and_update_half(loss)
        elif dist_option == "partialUpdate":
            self.optimizer.backward_and_partial_update(loss)
        return out, loss

    def set_optimizer(self, optimizer):
        self.optimizer = optimizer


@pytest.mark.parametrize("graph", [False, True])
def test_model(graph: bool) -> None:
    dev = device.get_default_device()
    dev.SetRandSeed(5)
    data, label = points(96)
    batch = 32
    net = MLP()
    net.set_optimizer(opt.SGD(lr=0.2, momentum=0.9, weight_decay=1e-5, dtype=tensor.float32))
    tx = tensor.Tensor((batch, 2), dev, singa.kFloat32)
    ty = tensor.Tensor((batch,), dev, tensor.int32)
    net.compile([tx], is_train=True, use_graph=graph, sequential=False)
    dev.SetVerbosity(0)
    for _ in range(60):
        net.train()
        for b in range(3):
            tx.copy_from_numpy(data[b * batch : (b + 1) * batch])
            ty.copy_from_numpy(label[b * batch : (b + 1) * batch])
            out, loss = net(tx, ty, "plain", spars=None)
    assert out.shape == (batch, 2)
    assert tensor.to_numpy(loss)[0] < 0.35
    net.eval()
    tx.copy_from_numpy(data[:batch])
    assert accuracy(tensor.to_numpy(net(tx)), label[:batch]) > 0.85
    net.train()
    with pytest.raises(AttributeError):
        net(tx, ty, "half")  # plain SGD does not have this method, as in SINGA
