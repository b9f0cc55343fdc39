"""Targets that are computed from parameters get a gradient, as in PyTorch: siamese networks, two
towers, distillation."""

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, opt, tensor

pytestmark = pytest.mark.usefixtures("training")


def scores(seed):
    return np.random.default_rng(seed).standard_normal((4, 5))


def probabilities(seed):
    e = np.exp(scores(seed))
    return e / e.sum(1, keepdims=True)


def parameter(values, dtype="float64"):
    return tensor.Tensor(data=values, dtype=dtype, stores_grad=True)


@pytest.mark.parametrize("name", ["mse_loss", "cross_entropy", "softmax_cross_entropy"])
def test_a_detached_target_is_constant(name):
    x, t = parameter(probabilities(0)), parameter(probabilities(1))
    assert list(dict(autograd.backward(getattr(autograd, name)(x, (t * 1.0).numpy())))) == [x]


def test_class_indices_have_no_gradient():
    x, t = parameter(scores(0), "float32"), tensor.from_numpy(np.array([0, 4, 2, 1], np.int32))
    t.stores_grad = True
    assert list(dict(autograd.backward(autograd.softmax_cross_entropy(x, t)))) == [x]


def test_the_gradient_has_the_type_of_the_target():
    x, t = parameter(scores(0), "float64"), parameter(probabilities(1), "float32")
    for loss in (autograd.mse_loss(x, t), autograd.softmax_cross_entropy(x, t)):
        gradients = dict(autograd.backward(loss))
        assert gradients[t].dtype == tensor.float32
        assert gradients[x].dtype == tensor.float64


def test_the_target_of_a_single_number():
    """-t·log x - (1 - t)·log(1 - x), whose slope in t is log(1 - x) - log x; (x - t)²."""
    for shape in ((), (1,)):
        x, t = parameter(np.full(shape, 0.25)), parameter(np.full(shape, 0.75))
        gradients = dict(autograd.backward(autograd.binary_cross_entropy(x, t)))
        np.testing.assert_allclose(gradients[t].numpy(), np.full(shape, np.log(3.0)))
        gradients = dict(autograd.backward(autograd.mse_loss(x, t)))
        np.testing.assert_allclose(gradients[t].numpy(), np.full(shape, 1.0))


class Siamese(model.Model):
    """The same layer on two views of an image; the second result is the target of the first."""

    def __init__(self):
        super().__init__()
        self.tower = layer.Linear(6)
        self.head = layer.Linear(6)

    def forward(self, x, y):
        return self.head(self.tower(x)), self.tower(y)

    def train_one_batch(self, x, y):
        loss = autograd.mse_loss(*self.forward(x, y))
        self.optimizer(loss)
        return loss


@pytest.mark.parametrize("use_graph", [False, True])
def test_a_siamese_network_like_torch(torch, use_graph):
    singa.seed(0)
    x, y = (np.random.default_rng(i).standard_normal((8, 5)).astype(np.float32) for i in (1, 2))
    inputs = [tensor.from_numpy(x), tensor.from_numpy(y)]
    net = Siamese()
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile(inputs, use_graph=use_graph)
    start = {name: value.numpy() for name, value in net.get_params().items()}
    params = {
        name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for name, value in start.items()
    }

    def tower(images):
        images = torch.tensor(images, dtype=torch.float64)
        return images @ params["tower.W"] + params["tower.b"]

    for _ in range(5):
        out = tower(x) @ params["head.W"] + params["head.b"]
        loss = torch.nn.functional.mse_loss(out, tower(y))
        np.testing.assert_allclose(float(net(*inputs)), loss.item(), rtol=1e-5)
        gradients = torch.autograd.grad(loss, list(params.values()))
        for param, gradient in zip(params.values(), gradients, strict=True):
            param.data -= 0.1 * gradient
