"""Layers that only `train_one_batch` calls have no parameters before the first step. What a file
has for them waits until then."""

import numpy as np
import pytest
import singa
from bits import bits
from singa import autograd, layer, model, opt, tensor
from singa.training import checkpoint


class Head(layer.Layer):
    """Makes its layers when it is called."""

    def initialize(self, x):
        self.scale = tensor.Tensor(data=np.full(x.shape[1], 2.0), stores_grad=True)
        self.inner = layer.Linear(3)

    def forward(self, x):
        return self.inner(x * self.scale)


class Auxiliary(model.Model):
    """With a chain of layers, and a layer of layers, that only training calls."""

    def __init__(self, width=7):
        super().__init__()
        self.body, self.out = layer.Linear(width), layer.Linear(3)
        self.drop = layer.Dropout(0.3)
        self.chain = layer.Sequential(layer.Linear(5), layer.BatchNorm2d(), layer.Linear(3))
        self.head = Head()
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        return self.out(autograd.relu(self.body(x)))

    def train_one_batch(self, x, y):
        h = self.drop(autograd.relu(self.body(x)))
        out = self.out(h)
        others = self.loss(self.chain(h), y) + self.loss(self.head(h), y)
        loss = self.loss(out, y) + others * 0.3
        self.optimizer(loss)
        return out, loss


LATE = {
    *("chain.0.W", "chain.0.b", "chain.1.scale", "chain.1.bias", "chain.1.running_mean"),
    *(
        "chain.1.running_var",
        "chain.2.W",
        "chain.2.b",
        "head.scale",
        "head.inner.W",
        "head.inner.b",
    ),
}


def batch(number):
    draw = np.random.default_rng(number)
    x = draw.standard_normal((4, 6)).astype(np.float32)
    return tensor.from_numpy(x), tensor.from_numpy(draw.integers(0, 3, 4).astype(np.int32))


def made(graph, seed=1, **options):
    singa.seed(seed)
    net = Auxiliary(**options)
    net.set_optimizer(opt.Adam(0.01))
    net.compile([batch(0)[0]], use_graph=graph)
    return net


def train(net, first, last, ema=None):
    for number in range(first, last):
        net(*batch(number))
        if ema is not None:
            ema.update()


@pytest.fixture
def trained(tmp_path):
    """(what a run has after 8 steps, a checkpoint and states of the run after 4)."""

    def run(graph):
        net = made(graph)
        assert LATE.isdisjoint(net.get_states())
        train(net, 0, 4)
        assert net.get_states().keys() >= LATE
        paths = tmp_path / "run.safetensors", tmp_path / "states.npz"
        checkpoint.save(paths[0], net, net.optimizer)
        net.save_states(paths[1])
        train(net, 4, 8)
        return net, *paths

    return run


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_checkpoint_goes_on_with_the_same_bits(trained, graph, again):
    net, path, _ = trained(graph)
    other = made(graph, seed=2)
    checkpoint.load(path, other, other.optimizer)
    if again:  # before a step
        checkpoint.save(path, other, other.optimizer)
        other = made(graph, seed=3)
        checkpoint.load(path, other, other.optimizer)
    assert LATE.isdisjoint(other.get_states())
    train(other, 4, 8)
    assert bits(other) == bits(net)
    assert other.optimizer.get_states()["step_counter"] == 8


def test_averages_wait_too(tmp_path):
    path = tmp_path / "run.safetensors"
    net = made(False)
    ema = opt.EMA(net, 0.5)
    train(net, 0, 4, ema)
    checkpoint.save(path, net, net.optimizer, ema=ema)
    train(net, 4, 6, ema)
    for _ in range(2):  # the second time from what is saved before a step
        other = made(False, seed=2)
        averages = opt.EMA(other, 0.5)
        checkpoint.load(path, other, other.optimizer, ema=averages)
        checkpoint.save(path, other, other.optimizer, ema=averages)
    train(other, 4, 6, averages)
    expected = ema.get_states()["averages"]
    assert averages.get_states()["averages"].keys() == expected.keys()
    for name, value in averages.get_states()["averages"].items():
        np.testing.assert_array_equal(value.numpy(), expected[name].numpy(), name)


def test_states_wait_too(trained, tmp_path):
    net, _, path = trained(False)
    other = made(False, seed=2)
    loaded = other.load_states(path)
    assert (loaded.missing, loaded.unexpected) == ([], [])
    other.save_states(tmp_path / "again.npz")
    with np.load(path) as old, np.load(tmp_path / "again.npz") as new:
        assert old.files
        for name in old.files:
            np.testing.assert_array_equal(new[name], old[name])
    other.optimizer.lr = 0.0
    train(other, 4, 5)
    with np.load(path) as old:
        for name, value in other.get_params().items():
            np.testing.assert_array_equal(value.numpy(), old[name], name)
    assert net.get_states().keys() == other.get_states().keys()


def test_what_does_not_fit(trained):
    _, path, states_path = trained(False)
    other = made(False, seed=2)
    del other.head
    with pytest.raises(ValueError, match=r"unexpected: head\."):
        checkpoint.load(path, other, other.optimizer)
    other = made(False, seed=2)
    other.load_states(states_path)
    other.chain[0].out_features = 6
    for _ in range(2):  # not only once
        with pytest.raises(ValueError, match=r"W: shape \(7, 5\) does not fit \(7, 6\)"):
            train(other, 4, 5)
