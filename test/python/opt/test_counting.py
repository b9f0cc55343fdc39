"""Losses that count some of their targets: parts of an update, by accumulation and by ranks, are
one large batch, and an update in which no target counts is not made."""

import warnings
import weakref

import numpy as np
import pytest
import singa
from rank_training import expect_equal, states
from ranks import in_ranks
from singa import autograd, layer, model, models, opt, tensor

WEIGHT = np.array([1.0, 5.0, 0.1])
PARTS = (4, 4, 3)
IGNORED = -100


class Squares(layer.Layer):
    """Of the distances from numbers that follow from the rows."""

    def forward(self, x, t):
        return autograd.mse_loss(x, x.detach() * 0.5 + 1.0)


LOSSES = {
    "ignore_index": lambda: layer.CrossEntropyLoss(ignore_index=IGNORED),
    "weight": lambda: layer.CrossEntropyLoss(weight=tensor.from_numpy(WEIGHT, dtype="float64")),
    "both": lambda: layer.CrossEntropyLoss(WEIGHT, IGNORED, label_smoothing=0.1),
    "rows": layer.SoftMaxCrossEntropy,
    "squares": Squares,
}
OPTIMIZERS = {
    "sgd": lambda **more: opt.SGD(opt.StepDecay(0.1, 2), 0.9, weight_decay=0.01, **more),
    "clipped": lambda **more: opt.SGD(0.1, clip_norm=0.1, **more),
    "adam": lambda **more: opt.Adam(0.01, **more),
    "scaled": lambda **more: opt.Adam(0.01, scaler=opt.GradScaler(1024.0), **more),
}


def batches(ignores, number=3, seed=0):
    """Updates of 11 rows and their classes, some of which do not count."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        x, y = rng.standard_normal((sum(PARTS), 5)), rng.integers(0, 3, sum(PARTS))
        if ignores:
            y[[0, 1, 2, 3, 5, 9]] = IGNORED  # the whole first part, and more
        yield x, y.astype(np.int32)


def step(net, x, y):
    return net(tensor.from_numpy(x, dtype="float64"), tensor.from_numpy(y))


def made(optimizer, loss, graph, seed=1):
    singa.seed(seed)
    net = models.Sequential(layer.Linear(4), layer.Tanh(), layer.Linear(3), loss=loss)
    net.set_optimizer(optimizer)
    net.compile([tensor.zeros((2, 5), dtype="float64")], use_graph=graph)
    return net


def in_parts(x, y):
    at = np.cumsum(PARTS)[:-1]
    return zip(np.split(x, at), np.split(y, at), strict=True)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_accumulated_parts_are_one_batch(loss, optimizer, graph):
    whole = made(OPTIMIZERS[optimizer](), LOSSES[loss](), graph)
    parts = made(OPTIMIZERS[optimizer](accumulate=3), LOSSES[loss](), graph)
    for x, y in batches(loss in ("ignore_index", "both"), 6):
        step(whole, x, y)
        for each in in_parts(x, y):
            step(parts, *each)
    for name, value in whole.get_states().items():
        assert value.dtype == singa.tensor.float64
        np.testing.assert_allclose(parts.get_states()[name].numpy(), value.numpy(), 1e-9, 1e-12)
    assert parts.optimizer.steps == whole.optimizer.steps == 6


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_update_where_no_target_counts(optimizer, graph, calls):
    net = made(OPTIMIZERS[optimizer](accumulate=calls), LOSSES["ignore_index"](), graph)
    nothing = np.full(11, IGNORED, np.int32)
    for x, y in batches(False, 4):
        for _ in range(calls):
            step(net, x, y)
        before = states(net)
        for _ in range(calls):
            _, loss = step(net, x, nothing)
            assert np.isnan(loss.item())
            assert loss.counted.item() == 0
        expect_equal([states(net)], before)
    assert net.optimizer.steps == 4


def test_an_unfinished_update_is_part_of_the_state():
    nets = [made(OPTIMIZERS["sgd"](accumulate=3), LOSSES["both"](), False) for _ in range(2)]
    for x, y in batches(True):
        for i, each in enumerate(in_parts(x, y)):
            step(nets[0], *each)
            if i != 1:
                step(nets[1], *each)
            else:  # goes on from the state of the other one
                nets[1].set_states(nets[0].get_states())
                nets[1].optimizer.set_states(nets[0].optimizer.get_states())
    expect_equal([states(nets[1])], states(nets[0]))


def test_a_loss_without_a_count_counts_like_the_first_one():
    """Two losses of one batch, whose gradients are averaged as they are."""
    net = made(opt.SGD(0.1, accumulate=2), layer.SoftMaxCrossEntropy(), False)
    net.train()
    ((x, y),) = batches(False, 1)
    before = {name: value.numpy() for name, value in net.get_params().items()}
    for factor in (1.0, 0.5):
        loss = net.loss(net.forward(tensor.from_numpy(x, dtype="float64")), tensor.from_numpy(y))
        net.optimizer(loss if factor == 1 else loss * factor)
    other = made(opt.SGD(0.075), layer.SoftMaxCrossEntropy(), False)
    step(other, x, y)
    for name, value in net.get_params().items():
        assert not np.array_equal(value.numpy(), before[name])
        np.testing.assert_allclose(value.numpy(), other.get_params()[name].numpy(), 1e-12)


class Headed(model.Model):
    def __init__(self):
        super().__init__()
        self.body, self.head = layer.Linear(4), layer.Linear(3)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        return self.head(autograd.tanh(self.body(x)))


def replacing(graph, keeps, predicts, at=1):
    """The parameters after updates of two calls, before one of which a layer is replaced."""
    singa.seed(1)
    net = Headed()
    net.set_optimizer(opt.SGD(0.1, accumulate=2, clip_norm=0.05))
    net.compile([tensor.zeros((2, 5), dtype="float64")], use_graph=graph)
    kept = []
    for number, (x, y) in enumerate(batches(False, 4)):
        if predicts and number == 1:
            net.eval()
            for _ in range(3):
                net(tensor.from_numpy(x, dtype="float64"))
            net.train()
        for call in range(2):
            if (number, call) == (2, at):
                kept += [net.head] if keeps else []
                singa.seed(9)
                net.head = layer.Linear(3)
            step(net, x, y)
    return {name: value.numpy() for name, value in net.get_params().items()}


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("predicts", [False, True])
def test_gradients_of_a_layer_that_was_replaced_are_dropped(graph, keeps, predicts):
    """Whoever still refers to the layer: a variable, or a recorded inference."""
    expected = replacing(False, False, False)
    for name, value in replacing(graph, keeps, predicts).items():
        np.testing.assert_array_equal(value, expected[name], name)
    assert not np.array_equal(replacing(False, False, False, 0)["head.W"], expected["head.W"])


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize("keeps", [False, True])
def test_gradients_outside_of_a_model_are_kept(keeps):
    """There, nothing says that a parameter is no longer used, so it counts in the norm."""
    optimizer = opt.SGD(1.0, accumulate=2, clip_norm=1.0)
    w, v = (tensor.Tensor(data=[1.0], stores_grad=True, name=name) for name in "wv")
    optimizer((w * 4.0).sum())
    alive, kept = weakref.ref(w), w if keeps else None
    del w
    optimizer((v * 2.0).sum())
    assert v.item() == pytest.approx(1 - 1 / 5**0.5)
    assert alive() is kept


@pytest.mark.cpu("ranks are processes with memory on the CPU")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(("ranks", "shards"), [(2, 2), (2, 4), (4, 4)])
@pytest.mark.parametrize("loss", ["ignore_index", "both"])
def test_ranks_have_the_bits_of_accumulation(loss, ranks, shards, graph):
    def training(optimizer, first, calls):
        net = made(optimizer, LOSSES[loss](), graph)
        rng = np.random.default_rng(3)
        for number in range(6):
            x = rng.standard_normal((shards, 3, 5))
            y = rng.integers(0, 3, (shards, 3)).astype(np.int32)
            y[rng.random(y.shape) < 0.4] = IGNORED
            y[0] = IGNORED
            y[1, 0] = 1
            if number == 3:
                y[:] = IGNORED
            for shard in range(first, first + calls):
                step(net, x[shard], y[shard])
        return states(net)

    want = training(OPTIMIZERS["sgd"](accumulate=shards), 0, shards)
    assert want["step_counter"] == 5

    def body(rank, holder):
        inner = OPTIMIZERS["sgd"]()
        optimizer = opt.DistOpt(inner, holder, rank, ranks, virtual_ranks=shards)
        calls = shards // ranks
        return training(optimizer, rank * calls, calls)

    expect_equal(in_ranks(ranks, body), want)


@pytest.mark.cpu("ranks are processes with memory on the CPU")
@pytest.mark.parametrize("graph", [False, True])
def test_compressed_gradients_of_ranks_are_those_of_one_batch(graph):
    """Where all elements are sent. The second rank counts less than the first, and once nothing."""

    def training(optimizer, rows, update):
        net = made(optimizer, LOSSES["ignore_index"](), graph)
        net.train_one_batch = lambda x, y: update(net, net.loss(net.forward(x), y))
        for number, (x, y) in enumerate(batches(False, 4)):
            y[6:] = IGNORED
            y[4] = y[4] if number % 2 else IGNORED
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the function is no recorded setting
                step(net, x[rows], y[rows])
        return {name: value.numpy() for name, value in net.get_params().items()}

    def body(rank, holder):
        optimizer = opt.DistOpt(opt.SGD(0.1, 0.9), holder, rank, 2)
        update = lambda net, loss: optimizer.backward_and_sparse_update(loss, spars=0.0)  # noqa: E731
        return training(optimizer, slice(4 * rank, 4 + 7 * rank), update)

    want = training(opt.SGD(0.1, 0.9), slice(None), lambda net, loss: net.optimizer(loss))
    for found in in_ranks(2, body):
        for name, value in want.items():
            np.testing.assert_allclose(found[name], value, 1e-6, 1e-8, err_msg=name)
