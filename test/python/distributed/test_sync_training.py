"""Training with SyncBatchNorm and the engine is training of one process with the whole batch."""

import numpy as np
import pytest
from ranks import FailedRank, in_ranks
from singa import autograd, distributed, layer, model, opt, seed, tensor

STEPS, IMAGES = 5, 12


class Net(model.Model):
    def __init__(self, norm):
        super().__init__()
        self.conv = layer.Conv2d(6, 3, padding=1, bias=False)
        self.norm = norm(momentum=0.2)
        self.conv2 = layer.Conv2d(4, 3, stride=2, bias=False)
        self.norm2 = norm(momentum=0.3)
        self.fc = layer.Linear(3)

    def forward(self, x):
        y = self.norm(self.conv(x), relu=True)
        return self.fc(autograd.flatten(self.norm2(self.conv2(y), relu=True)))

    def train_one_batch(self, x, y, weight=1.0):
        loss = autograd.softmax_cross_entropy(self.forward(x), y)
        self.optimizer(loss * weight)
        return loss


def _batches():
    draw = np.random.default_rng(5)
    for _ in range(STEPS):
        yield draw.normal(1.0, 2.0, (IMAGES, 3, 7, 8)), draw.integers(0, 3, IMAGES, np.int32)


def _trained(norm, optimizer, part, use_graph, weight=1.0):
    """States after all steps. `part` gives a rank's part of an array."""
    seed(4)
    net = Net(norm)
    net.set_optimizer(optimizer)
    example = tensor.from_numpy(part(np.zeros((IMAGES, 3, 7, 8))), dtype="float64")
    net.compile([example], is_train=True, use_graph=use_graph)
    for images, labels in _batches():
        x = tensor.from_numpy(part(images), dtype="float64")
        net(x, tensor.from_numpy(part(labels)), weight)
    states = net.get_states() | {
        f"momentum/{name}": value for name, value in optimizer.get_states()["moments"].items()
    }
    return {name: value.numpy() for name, value in states.items()}


def _sgd():
    return opt.SGD(lr=0.05, momentum=0.9, weight_decay=1e-3)


@pytest.mark.parametrize("ranks", [1, 2])
def test_virtual_ranks_would_give_other_bits(ranks):
    def train(rank, holder, **options):
        optimizer = opt.DistOpt(options.pop("inner", _sgd()), holder, rank, ranks, **options)
        distributed.use(optimizer.communicator)
        return _trained(layer.SyncBatchNorm, optimizer, lambda a: a[rank::ranks], False)

    for error in in_ranks(ranks, lambda *place: train(*place, virtual_ranks=4)):
        assert isinstance(error, FailedRank), "nothing was raised"
        assert "[SyncBatchNorm] its statistics are those of the shards that the ranks" in error
    # Accumulation makes no such promise.
    accumulating = opt.SGD(lr=0.05, momentum=0.9, accumulate=2)
    for found in in_ranks(ranks, lambda *place: train(*place, inner=accumulating)):
        assert isinstance(found, dict), found
    for found in in_ranks(ranks, lambda *place: train(*place, virtual_ranks=ranks)):
        assert isinstance(found, dict), found


@pytest.mark.filterwarnings("ignore::singa.graph.GraphWarning")
@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize(
    ("ranks", "node"),  # 5 ranks have 3 or 2 of the 12 images; `node` of them share memory, 0: all
    [(1, 0), (2, 0), (3, 0), (5, 0), (2, 1), (5, 2)],
)
def test_is_training_with_the_whole_batch(ranks, node, use_graph, monkeypatch):
    monkeypatch.setenv("SINGA_NODE_RANKS", str(node))
    want = _trained(layer.BatchNorm2d, _sgd(), lambda a: a, False)

    def train(rank, holder):
        optimizer = opt.DistOpt(_sgd(), holder, rank, ranks)
        distributed.use(optimizer.communicator)
        weight = len(range(rank, IMAGES, ranks)) * ranks / IMAGES
        return _trained(layer.SyncBatchNorm, optimizer, lambda a: a[rank::ranks], use_graph, weight)

    for got in in_ranks(ranks, train):
        assert isinstance(got, dict), got
        assert got.keys() == want.keys()
        for name, value in want.items():
            assert value.dtype == np.float64
            bound = 1e-12 * np.abs(value).max()
            np.testing.assert_allclose(got[name], value, 0, bound, err_msg=name)
