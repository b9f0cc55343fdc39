"""Passes over recorded steps: the same bits in fewer operations or less memory."""

import numpy as np
import pytest
import singa
from bits import bits
from device_under_test import KEPT_APART
from graph_net import Net, assert_same, sgd
from recorded import graphs
from rewritten_nets import Blocks, Fusable, Residual
from singa import autograd, layer, model, opt, tensor

pytestmark = pytest.mark.usefixtures("no_warning")


def batch(count, channels, side):
    """Images and classes of three."""
    rng = np.random.default_rng(1)
    x = tensor.from_numpy(rng.standard_normal((count, channels, side, side)).astype(np.float32))
    return x, tensor.from_numpy(rng.integers(0, 3, count).astype(np.int32))


def trained(kind, optimizer, x, y, steps, **options):
    """A model after some steps on a batch, compiled with these options; the losses in bits."""
    singa.seed(2)
    m = kind()
    m.set_optimizer(optimizer)
    m.compile([x], is_train=True, **options)
    singa.seed(3)
    return m, [m(x, y)[1].numpy().tobytes() for _ in range(steps)]


@pytest.mark.cpu("these operations are merged on the CPU only")
def test_fused_steps_have_the_same_bits_in_fewer_operations_and_less_memory():
    x, y = batch(8, 5, 32)
    results = {}
    for fuse in (None, False, True):
        options = {"use_graph": fuse is not None, "fuse": bool(fuse)}
        m, losses = trained(Fusable, sgd(), x, y, 6, **options)
        plan = None if fuse is None else m.memory_plan()
        text = "" if fuse is None else graphs(m)[0].ToString()
        results[fuse] = (losses, bits(m), plan, text)
    assert results[True][0] == results[False][0] == results[None][0]
    assert_same(results[True][1], results[None][1])
    (plain,), (fused,) = results[False][2]["graphs"], results[True][2]["graphs"]
    assert plain["merged"] == 0
    assert fused["merged"] >= 5
    assert fused["nodes"] < plain["nodes"]
    assert fused["arena"] <= plain["arena"]
    text = results[True][3]
    for name in ("ConvForward+Relu [conv1", "LinearForward+Relu [fc1", "Tanh+Abs+Mul"):
        assert name in text, text
    assert " Relu " not in text


@pytest.mark.cpu("these operations are merged on the CPU only")
def test_opcheck_compares_fused_operations():
    x, y = batch(8, 5, 32)
    m, _ = trained(Fusable, sgd(), x, y, 4, use_graph=True, fuse=True)
    text = graphs(m)[0].ToString()
    with singa.opcheck(every=1, action="raise") as check:
        m(x, y)
    for op in ("ConvForward", "ConvBackwardW"):
        assert check.stats()[op]["checked"] == text.count(f" {op}") > 0, op
    assert " ConvForward+Relu" in text


def test_recomputed_activations_are_the_same_bits_in_less_memory():
    x, y = batch(8, 5, 16)
    results = {}
    for recompute in (None, False, True):
        options = {"use_graph": recompute is not None, "recompute": bool(recompute)}
        m, losses = trained(Residual, opt.SGD(0.05, momentum=0.9), x, y, 7, **options)
        plan = None if recompute is None else m.memory_plan()
        results[recompute] = (losses, bits(m), plan)
    assert results[True][0] == results[False][0] == results[None][0]
    assert_same(results[True][1], results[None][1])
    plain, less = results[False][2], results[True][2]
    # Both activations inside a block, and two of three sums.
    assert less["arena_bytes"] < max(0.73 * plain["arena_bytes"], KEPT_APART)
    assert less["graphs"][0]["nodes"] == plain["graphs"][0]["nodes"] + 12 + 4


@pytest.mark.cpu("the estimates of time are those of a CPU")
def test_large_steps_recompute_what_costs_little_by_default():
    x, y = batch(4, 5, 64)
    results = {}
    for options in ({"use_graph": False}, {"recompute": False}, {}, {"recompute": True}):
        compiled = {"use_graph": True} | options
        m, losses = trained(Residual, opt.SGD(0.05, momentum=0.9), x, y, 4, **compiled)
        plan = m.memory_plan() if m.graph_mode else None
        results[str(options)] = losses, bits(m), plan
    executed, kept, default, most = results.values()
    for losses, states, _ in (kept, default, most):
        assert losses == executed[0]
        assert_same(states, executed[1])
    more = {
        name: result[2]["graphs"][0]["nodes"] - kept[2]["graphs"][0]["nodes"]
        for name, result in (("default", default), ("most", most))
    }
    assert 0 < more["default"] < more["most"]
    assert most[2]["arena_bytes"] < default[2]["arena_bytes"] < 0.95 * kept[2]["arena_bytes"]


@pytest.mark.cpu("on a GPU only batch norms are computed again")
def test_recompute_of_transformers_has_the_same_bits_in_less_memory():
    x, y = batch(8, 5, 16)
    results = {}
    for recompute in (False, None, True):
        options = {"use_graph": True, "recompute": recompute}
        m, losses = trained(Blocks, opt.AdamW(lr=0.01), x, y, 4, **options)
        results[recompute] = losses, bits(m), m.memory_plan()
    for losses, states, _ in results.values():
        assert losses == results[False][0]
        assert_same(states, results[False][1])
    kept, small, most = (result[2] for result in results.values())
    assert small["graphs"] == kept["graphs"], "too small to matter"
    # Each block keeps two norms of one width, and GELU of four.
    assert most["arena_bytes"] < 0.8 * kept["arena_bytes"]


class Separable(model.Model):
    """Depthwise convolutions behind batch norms with each kind of activation."""

    def __init__(self):
        super().__init__()
        self.stem = layer.Conv2d(32, 3, padding=1, bias=False)
        self.kinds = (
            {"relu": True},
            {"activation": "relu6"},
            {"activation": "hardswish"},
            {"activation": "silu"},  # stays with batch norm
        )
        for i in range(len(self.kinds)):
            setattr(self, f"bn{i}", layer.BatchNorm2d(momentum=0.1))
            conv = layer.Conv2d(32, 3, padding=1, stride=1 + i % 2, group=32, bias=False)
            setattr(self, f"conv{i}", conv)
        self.fc = layer.Linear(3)

    def forward(self, x):
        x = self.stem(x)
        for i, kind in enumerate(self.kinds):
            x = getattr(self, f"conv{i}")(getattr(self, f"bn{i}")(x, **kind))
        return self.fc(autograd.flatten(autograd.globalaveragepool(x)))

    train_one_batch = Net.train_one_batch


@pytest.mark.cpu("these operations are merged on the CPU only")
def test_batch_norms_in_front_of_depthwise_convolutions_are_computed_there():
    x, y = batch(4, 3, 24)
    results = {}
    for use_graph in (False, True):
        m, losses = trained(Separable, sgd(), x, y, 6, use_graph=use_graph)
        results[use_graph] = losses, bits(m)
    assert results[True][0] == results[False][0]
    assert_same(results[True][1], results[False][1])
    text = graphs(m)[0].ToString()
    if "depthwise" not in text:
        pytest.skip("this CPU has no depthwise kernels")
    with singa.opcheck(every=1, action="raise") as check:
        m(x, y)
    for op in ("BatchNormStatistics", "NormConvForward", "NormConvBackwardW"):
        assert check.stats()[op]["checked"] == text.count(f" {op}") == 3, op
    assert text.count(" BatchNormForwardTraining") == 1
