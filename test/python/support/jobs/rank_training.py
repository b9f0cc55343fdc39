"""A small network, its training on ranks, all states that result, and what may go wrong."""

import math
import os
import re
import signal

import numpy as np
import singa
from bits import everything as states
from ranks import FailedRank, succeed
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


def clipped_adam(**options):
    return opt.Adam(lr=0.01, clip_norm=0.5, **options)


def scaled(**options):
    return opt.SGD(lr=0.1, momentum=0.9, scaler=opt.GradScaler(1024.0), **options)


def rmsprop_by_the_largest(**options):
    return opt.RMSProp(
        0.01, momentum=0.9, centered=True, clip_norm=0.2, norm_type=math.inf, **options
    )


def half(optimizer, loss):
    optimizer.backward_and_update_half(loss, clipping=True, clip_Value=10)


def sparse(optimizer, loss):
    optimizer.backward_and_sparse_update(loss, spars=0.5, topK=True)


def killed(net):
    os.kill(os.getpid(), signal.SIGKILL)


def in_python(net):
    net.graph(False)
    net.loss = lambda out, y: 1 / 0


def other_rate(net):
    net.optimizer.lr = 0.3


def skipped(net):
    net.optimizer.opt.step()


def frozen(net):
    net.norm.scale.stores_grad = False


def checked(net):
    net.optimizer.communicator.check("saved")


#: What goes wrong in rank 1 of three, and what all say of it.
FAULTS = {
    killed: r"rank 1 \(process \d+\) has ended",
    in_python: r"\[DistOpt\] rank 1: ZeroDivisionError: division by zero",
    other_rate: r"ranks 0 and 2: update 5, call 0, learning rate 0.1; rank 1: .* rate 0.3",
    skipped: r"ranks 0 and 2: update 5, .*; rank 1: update 6",
    frozen: r"norm.scale|factor",
    checked: r"rank 1: check",
}


def check_fault(results, fault, text, one_text=True):
    """All ranks but the one that is at fault raise the same error."""
    assert all([isinstance(result, FailedRank) for result in results]), results
    if fault in (killed, in_python):
        assert results.pop(1) == ("killed" if fault is killed else "division by zero")
    assert not one_text or len({*results}) == 1, results
    for result in results:
        assert re.search(text, result), result


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
    for rank, found in enumerate(succeed(results)):
        assert differing(found, want) == [], rank
