"""compile(recompute="auto", memory_limit=): the bits of steps without a limit, in less memory."""

import re

import numpy as np
import pytest
import singa
from bits import bits, everything
from graph_net import Net, assert_same
from rewritten_nets import Blocks, Fusable, Random, Residual
from singa import autograd, layer, model, opt, tensor
from trials import draws

pytestmark = pytest.mark.usefixtures("no_warning")
STEPS = 7


class Recurrent(model.Model):
    """Two LSTMs, one after the other, of 20 steps in time each."""

    def __init__(self):
        super().__init__()
        self.first = layer.LSTM(64, 24)
        self.second = layer.LSTM(24, 24)
        self.fc = layer.Linear(3)

    def forward(self, x):
        n, c, h, w = x.shape
        x = autograd.transpose(autograd.reshape(x, (n, c * h // 4, 4 * w)), (1, 0, 2))
        return self.fc(self.second(self.first(x)[0])[0][-1])

    train_one_batch = Net.train_one_batch


def batch(seed=1, images=8, size=16):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((images, 5, size, size)).astype(np.float32)
    return tensor.from_numpy(x), tensor.from_numpy(rng.integers(0, 3, images).astype(np.int32))


def sgd():
    return opt.SGD(lr=0.05, momentum=0.9, weight_decay=1e-3)


def compiled(make, x, optimizer=sgd, use_graph=True, **options):
    singa.seed(2)
    net = make()
    net.set_optimizer(optimizer())
    net.compile([x], is_train=True, use_graph=use_graph, **options)
    return net


def tensor_bytes(plan):
    """Bytes of all tensors: plans are no part of the limit."""
    return plan["planned_bytes"] - plan["by_kind"]["plans"]


def trained(make, data, optimizer=sgd, use_graph=True, **options):
    """Losses and states after some steps, and the plan of a recorded step."""
    net = compiled(make, data[0], optimizer, use_graph, **options)
    losses = [net(*data)[1].numpy().tobytes() for _ in range(STEPS)]
    return losses, everything(net), net.memory_plan() if use_graph else None


def smallest(make, data, optimizer=sgd, **options):
    """The smallest limit that works, in bytes: a smaller one is refused with this number."""
    with pytest.raises(
        MemoryError, match=r"^\[compile\] memory_limit is 0.1 KiB, .* needs"
    ) as error:
        compiled(make, data[0], optimizer, recompute="auto", memory_limit=100, **options)(*data)
    number, unit = re.search(r"needs ([0-9.]+) (KiB|MiB) at least", str(error.value)).groups()
    return float(number) * {"KiB": 2**10, "MiB": 2**20}[unit]


NETWORKS = {
    "residual": (Residual, sgd, {}),
    "dropout": (Fusable, sgd, {}),
    "fused": (Fusable, sgd, {"fuse": True}),
    "blocks": (Blocks, lambda: opt.Adam(lr=0.01, clip_norm=1.0), {}),
    "recurrent": (Recurrent, sgd, {}),
    "accumulated": (Residual, lambda: opt.SGD(lr=0.05, momentum=0.9, accumulate=2), {}),
    "residual in bfloat16": (Residual, sgd, {"dtype": "bfloat16"}),
    "blocks in bfloat16": (Blocks, lambda: opt.AdamW(lr=0.01), {"dtype": "bfloat16"}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_steps_within_a_limit_have_the_same_bits(name):
    make, optimizer, options = NETWORKS[name]
    data = batch()
    executed = trained(make, data, optimizer, False, dtype=options.get("dtype"))
    losses, states, plan = trained(make, data, optimizer, **options)
    assert losses == executed[0]
    assert_same(states, executed[1])
    least, most = smallest(make, data, optimizer, **options), tensor_bytes(plan)
    for share in (0, 0.3, 0.7):
        limit = int(least + share * max(most - least, 0))
        losses, states, plan = trained(
            make, data, optimizer, recompute="auto", memory_limit=limit, **options
        )
        assert losses == executed[0]
        assert_same(states, executed[1])
        assert tensor_bytes(plan) <= limit
        assert plan["limit"]["operations"] > 0 or least > most


@pytest.mark.parametrize("seed", range(draws(12)))
def test_random_networks_within_random_limits(seed):
    data = batch(seed, images=6, size=int(np.random.default_rng(seed).integers(7, 13)))
    make = lambda: Random(seed, seed % 2 == 0)  # noqa: E731
    dtype = (None, "bfloat16")[seed // 2 % 2]
    losses, states, plan = trained(make, data, dtype=dtype)
    most = tensor_bytes(plan)
    share = np.random.default_rng([4, seed]).random()
    for fuse in (False, True):
        least = smallest(make, data, dtype=dtype, fuse=fuse)
        limit = int(least + share * max(most - least, 0))
        within = trained(make, data, dtype=dtype, fuse=fuse, recompute="auto", memory_limit=limit)
        assert within[0] == losses
        assert_same(within[1], states)
        assert tensor_bytes(within[2]) <= limit


def test_the_first_step_says_what_a_limit_costs_before_it_runs(capsys):
    data = batch()
    plan = trained(Residual, data)[2]
    capsys.readouterr()
    limit = int(0.8 * tensor_bytes(plan))
    net = compiled(Residual, data[0], recompute="auto", memory_limit=limit)
    before = bits(net)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", type("Stopping", (), {"write": _stop, "flush": id}))
        with pytest.raises(RuntimeError, match="stop"):
            net(*data)
    assert_same(bits(net), before)  # nothing has run
    for _ in range(STEPS):
        net(*data)
    said = capsys.readouterr().err.splitlines()
    found = net.memory_plan()["limit"]
    assert found["bytes"] == limit
    assert found["planned_bytes"] <= limit < found["without_bytes"]
    assert f"{found['operations']} operations run again" in said[-1]
    assert f"{found['gflop']:.1f} GFLOP" in said[-1]
    assert f"about {100 * found['share']:.0f} %" in said[-1]
    assert len(said) == len(set(said)) <= 2  # weights move to their layouts in the first step


def _stop(*_):
    raise RuntimeError("stop")


def test_a_limit_that_is_large_enough_changes_nothing(capsys):
    data = batch()
    losses, states, plan = trained(Residual, data)
    within = trained(Residual, data, recompute="auto", memory_limit="2 GiB")
    assert within[0] == losses
    assert_same(within[1], states)
    assert within[2]["graphs"] == plan["graphs"]
    assert within[2]["limit"]["operations"] == 0
    assert "nothing is computed again" in capsys.readouterr().err


class Looking(Residual):
    """Its steps cannot be recorded."""

    def train_one_batch(self, x, y):
        out, loss = super().train_one_batch(x, y)
        float(loss)
        return out, loss


@pytest.mark.filterwarnings("default")
def test_a_step_that_cannot_be_recorded_says_that_it_does_not_keep_to_the_limit():
    data = batch()
    net = compiled(Looking, data[0], recompute="auto", memory_limit="1 GiB")
    with pytest.warns(singa.graph.GraphWarning, match="does not keep to the memory limit"):
        _steps(net, data)


def _steps(net, data):
    for _ in range(3):
        net(*data)
