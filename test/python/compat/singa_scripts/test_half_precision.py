"""Half precision as in SINGA's examples: `-p float16` of the scripts, and layers of scripts that
create float32 parameters and check the types in `forward`."""

import numpy as np
import pytest
from singa import autograd, device, layer, model, opt, tensor

NP_DTYPE = {"float16": np.float16, "float32": np.float32}
SINGA_DTYPE = {"float16": tensor.float16, "float32": tensor.float32}


@pytest.fixture(autouse=True)
def singas_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa.compat.enabled", True)


def stripes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of horizontal and of vertical stripes, with noise."""
    rng = np.random.default_rng(2)
    x = rng.normal(0, 0.3, (count, 1, 8, 8)).astype(np.float32)
    y = (np.arange(count) % 2).astype(np.int32)
    x[y == 0, :, ::2] += 1
    x[y == 1, :, :, ::2] += 1
    return x, y


class Scaled(layer.Layer):
    """A linear layer as scripts write it. Its parameters are float32, whatever the input."""

    def __init__(self, out_features):
        super().__init__()
        self.out_features = out_features

    def initialize(self, x):
        w_shape = (x.shape[1], self.out_features)
        self.W = tensor.Tensor(shape=w_shape, requires_grad=True, stores_grad=True)
        self.W.gaussian(0.0, np.sqrt(2.0 / sum(w_shape)))
        self.b = tensor.Tensor(shape=w_shape[1:], requires_grad=True, stores_grad=True)
        self.b.set_value(0.0)

    def forward(self, x):
        self.device_check(x, self.W, self.b)
        self.dtype_check(x, self.W, self.b)
        return autograd.add_bias(autograd.matmul(x, self.W), self.b, axis=0)


class CNN(model.Model):
    def __init__(self):
        super().__init__()
        self.conv1 = layer.Conv2d(4, 3, padding=1, activation="RELU")
        self.bn1 = layer.BatchNorm2d()
        self.pooling1 = layer.MaxPool2d(2, 2, padding=0)
        self.flatten = layer.Flatten()
        self.linear1 = Scaled(8)
        self.relu = layer.ReLU()
        self.linear2 = layer.Linear(2)
        self.softmax_cross_entropy = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        y = self.pooling1(self.bn1(self.conv1(x)))
        return self.linear2(self.relu(self.linear1(self.flatten(y))))

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = self.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_scripts_train_in_half_precision(precision: str, graph: bool) -> None:
    dev = device.get_default_device()
    dev.SetRandSeed(1)
    images, labels = stripes(32)
    tx = tensor.Tensor((8, 1, 8, 8), dev, SINGA_DTYPE[precision])
    ty = tensor.Tensor((8,), dev, tensor.int32)
    net = CNN()
    net.set_optimizer(opt.SGD(0.05, momentum=0.9, dtype=SINGA_DTYPE[precision]))
    net.compile([tx], is_train=True, use_graph=graph, sequential=False)
    losses = []
    for _ in range(4):
        for i in range(0, 32, 8):
            tx.copy_from_numpy(images[i : i + 8].astype(NP_DTYPE[precision]))
            ty.copy_from_numpy(labels[i : i + 8])
            out, loss = net(tx, ty)
            assert out.dtype == SINGA_DTYPE[precision]
            losses.append(float(tensor.to_numpy(loss)[0]))
    assert losses[-1] < 0.1 < losses[0]
    types = {name: t.dtype for name, t in net.get_params().items() if "bn1" not in name}
    assert set(types.values()) == {SINGA_DTYPE[precision]}
    net.eval()
    tx.copy_from_numpy(images[:8].astype(NP_DTYPE[precision]))
    assert (tensor.to_numpy(net(tx)).argmax(1) == labels[:8]).all()


@pytest.mark.parametrize("graph", [False, True])
def test_a_network_for_float32_takes_half_precision(graph: bool) -> None:
    """Its parameters become float16, in place and for good."""
    images, _ = stripes(8)
    net = CNN()
    net.compile([tensor.from_numpy(images)], is_train=False, use_graph=graph)
    full = net(tensor.from_numpy(images)).numpy()
    before = net.conv1.W.numpy()
    half = net(tensor.from_numpy(images).as_type(tensor.float16))
    assert half.dtype == net.conv1.W.dtype == net.linear1.W.dtype == tensor.float16
    np.testing.assert_allclose(half.numpy(), full, rtol=0, atol=2e-2)
    np.testing.assert_array_equal(net.conv1.W.numpy(), before.astype(np.float16))
    net(tensor.from_numpy(images))
    np.testing.assert_array_equal(net.conv1.W.numpy(), before.astype(np.float16).astype("f4"))


def test_operators_in_half_precision() -> None:
    """Tensors that a script converts itself."""
    rng = np.random.default_rng(0)
    data = rng.uniform(-1, 1, (64, 2)).astype(np.float32)
    onehot = np.eye(2, dtype=np.float32)[(data[:, 1] > data[:, 0]).astype(int)]
    dev = device.get_default_device()
    inputs = tensor.Tensor(data=data, device=dev).as_type(tensor.float16)
    target = tensor.Tensor(data=onehot, device=dev).as_type(tensor.int32)
    weights = [
        tensor.Tensor(shape, device=dev, dtype=tensor.float16, requires_grad=True, stores_grad=True)
        for shape in ((2, 8), (8,), (8, 2), (2,))
    ]
    for t in weights:
        t.copy_from_numpy(rng.normal(0, 0.3, t.shape).astype(np.float16))
    sgd = opt.SGD(0.5, 0.8)
    autograd.training = True
    try:
        losses = []
        for _ in range(60):
            x = autograd.add_bias(autograd.matmul(inputs, weights[0]), weights[1])
            x = autograd.add_bias(autograd.matmul(autograd.relu(x), weights[2]), weights[3])
            loss = autograd.softmax_cross_entropy(x, target)
            sgd(loss)
            losses.append(float(tensor.to_numpy(loss)[0]))
    finally:
        autograd.training = False
    assert losses[-1] < 0.2 < losses[0]
    assert {t.dtype for t in weights} == {tensor.float16}
