"""A small network, its training on ranks, and all states that result."""

import numpy as np
import singa
from ranks import FailedRank
from singa import autograd, layer, model, opt, tensor

BATCH = 3


class Net(model.Model):
    """A residual block of convolutions with batch norms, and a classifier."""

    def __init__(self, dropout: bool = False) -> None:
        super().__init__()
        self.first = layer.Conv2d(16, 3, padding=1, bias=False)
        self.norm = layer.BatchNorm2d()
        self.second = layer.Conv2d(16, 3, padding=1, bias=False)
        self.norm2 = layer.BatchNorm2d()
        self.flat = layer.Flatten()
        self.dropout = layer.Dropout(0.4) if dropout else None
        self.classify = layer.Linear(5)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        y = autograd.relu(self.norm(self.first(x)))
        y = autograd.relu(autograd.add(self.norm2(self.second(y)), y))
        y = self.flat(autograd.globalaveragepool(y))
        return self.classify(y if self.dropout is None else self.dropout(y))

    def train_one_batch(self, x, y, step=None):
        out = self.forward(x)
        loss = self.loss(out, y)
        (step or self.optimizer)(loss)
        return out, loss


def sgd(**options):
    return opt.SGD(lr=0.1, momentum=0.9, weight_decay=1e-3, **options)


def shards(step, count):
    """The shards of a step: images and classes."""
    rng = np.random.default_rng(step)
    images = rng.normal(size=(count, BATCH, 3, 6, 6)).astype(np.float32)
    return list(zip(images, rng.integers(0, 5, (count, BATCH)).astype(np.int32), strict=True))


def made(optimizer, graph=False, dropout=False, seed=1):
    singa.seed(seed)
    net = Net(dropout)
    net.set_optimizer(optimizer)
    net.compile([tensor.from_numpy(np.zeros((BATCH, 3, 6, 6), np.float32))], use_graph=graph)
    return net


def train(net, steps, count, first=0, calls=None):
    """Steps with shards `first` to `first + calls - 1` of `count`. Returns all states as bytes."""
    for step in range(steps):
        for x, y in shards(step, count)[first : first + (calls or count)]:
            net(tensor.from_numpy(x), tensor.from_numpy(y))
    return states(net)


def states(net):
    found = {name: value.numpy().tobytes() for name, value in net.get_states().items()}
    for slot, values in net.optimizer.get_states().items():
        if isinstance(values, dict):
            found |= {f"{slot}/{n}": _plain(v) for n, v in values.items()}
        else:
            found[slot] = values
    return found


def _plain(value):
    return value if isinstance(value, int) else value.numpy().tobytes()


def differing(one, other):
    return sorted([name for name in one.keys() | other.keys() if one.get(name) != other.get(name)])


def trained(rank, holder, world, virtual=None, steps=6, inner=sgd, shard=False, **options):
    virtual = virtual or world
    optimizer = opt.DistOpt(
        inner(), holder, rank, world, buffSize=3000, virtual_ranks=virtual, shard_state=shard
    )
    net = made(optimizer, seed=rank + 1, **options)
    calls = virtual // world
    found = train(net, steps, virtual, rank * calls, calls)
    reasons = net._graphs().reasons()
    return found if not reasons else FailedRank(str(reasons))


def expect_equal(results, want):
    for rank, found in enumerate(results):
        assert not isinstance(found, FailedRank), (rank, found)
        assert differing(found, want) == [], rank
