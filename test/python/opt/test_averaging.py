"""EMA against PyTorch, formulas, and itself in other modes."""

import numpy as np
import pytest
from bits import bits
from recorded import graphs
from singa import autograd, from_torch, layer, opt, tensor
from singa.model import Model
from singa.training import checkpoint


class Weights(layer.Layer):
    """Two float64 parameters."""

    def __init__(self):
        super().__init__()
        self.W = tensor.Tensor(data=np.zeros((3, 4)), dtype=tensor.float64, stores_grad=True)
        self.b = tensor.Tensor(data=np.zeros(4), dtype=tensor.float64, stores_grad=True)


class Net(Model):
    """`ema`, if it is set, is updated in each step."""

    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1, bias=False)
        self.bn = layer.BatchNorm2d()
        self.fc = layer.Linear(3)
        self.ema = None

    def forward(self, x):
        return self.fc(autograd.flatten(autograd.relu(self.bn(self.conv(x)))))

    def train_one_batch(self, x, y):
        loss = autograd.softmax_cross_entropy(self.forward(x), y)
        self.optimizer(loss)
        if self.ema is not None:
            self.ema.update()
        return loss


def batch(step):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((6, 3, 5, 5)).astype(np.float32)
    return tensor.from_numpy(x), tensor.from_numpy(rng.integers(0, 3, 6).astype(np.int32))


def compiled(use_graph=False):
    net = Net()
    net.set_optimizer(opt.AdamW(1e-2))
    net.compile([batch(0)[0]], is_train=True, use_graph=use_graph)
    rng = np.random.default_rng(1)
    for _, p in sorted(net.get_params().items()):
        p.copy_from_numpy(rng.standard_normal(p.shape).astype(np.float32) / 4)
    return net


def train(net, steps, ema=None):
    for step in steps:
        net(*batch(step))
        if ema is not None:
            ema.update()


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.999, None])
def test_averages_like_torch(torch, decay):
    """EMA with this decay, or SWA."""
    ours, theirs = Weights(), torch.nn.Linear(3, 4, dtype=torch.float64)
    swa = torch.optim.swa_utils
    average = opt.SWA(ours) if decay is None else opt.EMA(ours, decay)
    function = None if decay is None else swa.get_ema_avg_fn(decay)
    expected = swa.AveragedModel(theirs, avg_fn=function)
    rng = np.random.default_rng(0)
    for _ in range(20):
        w, b = rng.standard_normal((3, 4)), rng.standard_normal(4)
        ours.set_params({"W": w, "b": b})
        with torch.no_grad():
            theirs.weight.copy_(torch.from_numpy(w.T))
            theirs.bias.copy_(torch.from_numpy(b))
        average.update()
        expected.update_parameters(theirs)
    averages = average.get_states()["averages"]
    assert average.updates == int(expected.n_averaged) == 20
    with average.applied():
        for name, value in (("W", expected.module.weight.T), ("b", expected.module.bias)):
            want = value.detach().numpy()
            np.testing.assert_allclose(averages[name].numpy(), want, rtol=1e-13, atol=1e-14)
            np.testing.assert_array_equal(getattr(ours, name).numpy(), averages[name].numpy())


@pytest.mark.parametrize("inside", [False, True], ids=["after the step", "in the step"])
def test_replayed_steps_average_to_the_same_bits(inside):
    results = []
    for use_graph in (False, True):
        net = compiled(use_graph)
        ema = opt.EMA(net, 0.8, use_buffers=True)
        if inside:
            net.ema = ema
        train(net, range(6), None if inside else ema)
        assert ema.updates == 6
        assert len(graphs(net)) == use_graph
        results.append((bits(net.get_states()), bits(ema.get_states()["averages"])))
    assert results[0] == results[1]
    assert results[0][0] != results[0][1]


@pytest.mark.parametrize("use_graph", [False, True])
def test_applied_averages_are_the_weights(use_graph):
    net = compiled(use_graph)
    ema = opt.EMA(net, 0.8)
    train(net, range(5), ema)
    x = batch(9)[0]
    before = bits(net.get_states())
    net.eval()
    plain = net(x).numpy()
    with ema.applied():
        assert bits(net.get_params()) == bits(ema.get_states()["averages"])
        averaged = net(x).numpy()
    assert bits(net.get_states()) == before
    # A replayed inference folds batch norm into the convolution, which rounds differently.
    np.testing.assert_allclose(net(x).numpy(), plain, rtol=1e-5, atol=1e-6)
    other = compiled()
    other.set_states(net.get_states() | ema.get_states()["averages"])
    other.eval()
    np.testing.assert_allclose(averaged, other(x).numpy(), rtol=1e-5, atol=1e-6)
    assert np.abs(averaged - plain).max() > 1e-3

    net.train()
    train(net, range(5, 8), ema)
    uninterrupted = compiled()
    expected = opt.EMA(uninterrupted, 0.8)
    train(uninterrupted, range(8), expected)
    assert bits(net.get_states()) == bits(uninterrupted.get_states())
    assert bits(ema.get_states()["averages"]) == bits(expected.get_states()["averages"])


def test_an_exception_inside_brings_the_weights_back():
    net = compiled()
    ema = opt.EMA(net, 0.5)
    train(net, range(3), ema)
    before = bits(net.get_params())
    with pytest.raises(KeyError), ema.applied():
        raise KeyError
    assert bits(net.get_params()) == before


def test_running_statistics_are_averaged_on_request():
    net = compiled()
    ema = opt.EMA(net, 0.5, use_buffers=True)
    expected = None
    for step in range(4):
        net(*batch(step))
        ema.update()
        mean = net.bn.running_mean.numpy().astype(np.float64)
        expected = mean if expected is None else 0.5 * expected + 0.5 * mean
    averages = ema.get_states()["averages"]
    assert averages.keys() == net.get_states().keys()
    np.testing.assert_allclose(averages["bn.running_mean"].numpy(), expected, rtol=1e-6)
    assert opt.EMA(net).weights().keys() == net.get_params().keys()


@pytest.mark.parametrize("use_graph", [False, True])
def test_a_checkpoint_continues_to_the_same_bits(tmp_path, use_graph):
    path = tmp_path / "c.safetensors"
    whole = compiled(use_graph)
    averages = opt.EMA(whole, 0.8)
    train(whole, range(4), averages)
    checkpoint.save(path, whole, whole.optimizer, ema=averages, epoch=1)
    train(whole, range(4, 8), averages)

    resumed = compiled(use_graph)
    ema = opt.EMA(resumed, 0.8)
    train(resumed, range(20, 23), ema)  # something else before
    assert checkpoint.load(path, resumed, resumed.optimizer, ema=ema) == {"epoch": 1}
    assert ema.updates == 4
    train(resumed, range(4, 8), ema)
    assert bits(resumed.get_states()) == bits(whole.get_states())
    assert bits(ema.get_states()["averages"]) == bits(averages.get_states()["averages"])


def test_a_checkpoint_without_averages_changes_nothing(tmp_path):
    path = tmp_path / "c.safetensors"
    net = compiled()
    checkpoint.save(path, net)
    ema = opt.EMA(net)
    train(net, range(2), ema)
    before = bits(net.get_states()), bits(ema.get_states()["averages"])
    with pytest.raises(ValueError, match="holds no averages"):
        checkpoint.load(path, net, ema=ema)
    checkpoint.save(path, net, ema=opt.EMA(net, use_buffers=True))  # no update yet
    checkpoint.load(path, net, ema=opt.EMA(net))
    buffered = opt.EMA(net, use_buffers=True)
    buffered.update()
    checkpoint.save(path, net, ema=buffered)
    with pytest.raises(ValueError, match=r"c\.safetensors.*bn\.running_mean"):
        checkpoint.load(path, net, ema=ema)
    assert before == (bits(net.get_states()), bits(ema.get_states()["averages"]))


def test_states_go_to_another_average():
    net = compiled()
    ema = opt.EMA(net, 0.8)
    train(net, range(3), ema)
    copy = opt.EMA(net, 0.8)
    copy.set_states(ema.get_states())
    train(net, range(3, 5), ema)
    assert copy.updates == 3
    assert bits(copy.get_states()["averages"]) != bits(ema.get_states()["averages"])


def test_wrong_use():
    net = compiled()
    with pytest.raises(TypeError, match="model must be"):
        opt.EMA({"W": 1})
    for decay in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="decay"):
            opt.EMA(net, decay)
    ema = opt.EMA(net)
    with pytest.raises(RuntimeError, match="before the first update"), ema.applied():
        pass
    with pytest.raises(RuntimeError, match="no parameters yet"):
        opt.EMA(Net()).update()
    ema.update()
    with ema.applied():
        with pytest.raises(RuntimeError, match="update after"):
            ema.update()
        with pytest.raises(RuntimeError, match="already"), ema.applied():
            pass
    for states in ({}, None, {"updates": 1}):
        with pytest.raises(ValueError, match="expected a state"):
            ema.set_states(states)
    averages = ema.get_states()["averages"]
    with pytest.raises(ValueError, match=r"fc\.W"):
        ema.set_states({"updates": 1, "averages": {"conv.W": averages["conv.W"]} | {"x": 1}})
    with pytest.raises(ValueError, match="does not fit"):
        ema.set_states({"updates": 1, "averages": averages | {"conv.W": np.zeros(3)}})
    with pytest.raises(ValueError, match="updates"):
        ema.set_states({"updates": -1, "averages": averages})
    with pytest.raises(TypeError, match="by name"):
        ema.set_states({"updates": 1, "averages": [1.0]})
    assert ema.updates == 1


@pytest.mark.filterwarnings("error")
def test_swa_in_recorded_steps_and_checkpoints(tmp_path):
    nets = [compiled(use_graph) for use_graph in (False, True)]
    averages = [opt.SWA(net) for net in nets]
    for net, swa in zip(nets, averages, strict=True):
        train(net, range(6), swa)
    means = [bits(swa.get_states()["averages"]) for swa in averages]
    assert means[0] == means[1]
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, nets[1], nets[1].optimizer, ema=averages[1])
    other = compiled()
    restored = opt.SWA(other)
    checkpoint.load(path, other, other.optimizer, ema=restored)
    for net, swa in ((nets[1], averages[1]), (other, restored)):
        train(net, range(6, 8), swa)
    assert bits(restored.get_states()["averages"]) == bits(averages[1].get_states()["averages"])


@pytest.mark.parametrize("form", ["tensors", "pairs of arrays"])
def test_batch_norm_of_averaged_weights_like_torch(torch, form):
    """The running statistics are the means over the batches, whatever they were."""
    net = compiled(use_graph=True)
    net.bn.momentum = 0.3
    theirs = torch.nn.BatchNorm2d(4)
    batches = [batch(step)[0] for step in range(5)]
    weight = torch.tensor(net.conv.W.numpy())

    def images():
        for x in batches:
            yield torch.nn.functional.conv2d(torch.tensor(x.numpy()), weight, padding=1)

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bn = theirs

        def forward(self, x):
            return self.bn(x)

    torch.optim.swa_utils.update_bn(images(), Wrapped())
    net.bn.running_var.set_value(np.nan)
    net.eval()
    before = bits(net.get_params())
    given = batches if form == "tensors" else [(x.numpy(), np.zeros(6)) for x in batches]
    opt.update_batch_norm(net, iter(given))
    for name in ("running_mean", "running_var"):
        ours = getattr(net.bn, name).numpy()
        np.testing.assert_allclose(ours, getattr(theirs, name), rtol=1e-5, atol=1e-6)
    assert bits(net.get_params()) == before
    assert (net.training, autograd.training, net.bn.momentum) == (False, False, 0.3)
    with pytest.raises(ValueError, match="no batches"):
        opt.update_batch_norm(net, [])
    opt.update_batch_norm(layer.Linear(3), [])  # has no batch norm


def test_frozen_statistics_are_not_averaged():
    net = layer.Sequential(layer.BatchNorm2d(momentum=0.3), layer.BatchNorm2d(momentum=0.3))
    x = np.random.default_rng(0).normal(2.0, 3.0, (6, 2, 3, 3)).astype(np.float32)
    net(tensor.from_numpy(x))
    net[0].running_mean.set_value(1.0)
    layer.freeze_statistics(net, "0")
    before = bits(net[0].get_states())
    opt.update_batch_norm(net, [x])
    assert bits(net[0].get_states()) == before
    np.testing.assert_allclose(
        net[1].running_mean.numpy(), (x.mean((0, 2, 3)) - 1) / np.sqrt(1 + 1e-5), rtol=1e-4
    )


@pytest.mark.parametrize(("count", "error"), [(0, "no batches"), (2, "BatchNorm")])
def test_statistics_after_an_error_are_those_before(count, error):
    net = layer.Sequential(layer.BatchNorm2d())
    batches = [np.full((4, 2, 1, 1), 3.0, np.float32), np.zeros((4, 3, 1, 1), np.float32)]
    net(tensor.from_numpy(batches[0]))
    net[0].running_mean.set_value(0.25)
    before = bits(net.get_states())
    with pytest.raises(ValueError, match=error):
        opt.update_batch_norm(net, batches[:count])
    assert bits(net.get_states()) == before


def test_statistics_that_operators_keep_are_refused(torch):
    class Net(torch.nn.Sequential):
        def __init__(self, *more):
            super().__init__(torch.nn.Conv2d(2, 3, 1), *more)
            self.register_buffer("scale", torch.ones(3, 1, 1))

        def forward(self, x):
            return super().forward(x) * self.scale

    x = np.random.default_rng(0).standard_normal((4, 2, 3, 3)).astype(np.float32)
    net = from_torch(Net(torch.nn.BatchNorm2d(3)), (torch.tensor(x),))
    before = bits(net.get_states())
    with pytest.raises(ValueError, match=r"\] 1.running_mean, 1.running_var.* use_buffers=True"):
        opt.update_batch_norm(net, [x])
    assert bits(net.get_states()) == before
    opt.update_batch_norm(from_torch(Net(), (torch.tensor(x),)), [x])  # has no batch norm


def test_averages_of_buffers_have_the_last_count():
    class Counts(layer.Layer):
        state_names = ("count", "mean")

        def initialize(self, x):
            self.w = tensor.Tensor((1,), stores_grad=True)
            self.count = tensor.Tensor((1,), dtype="int64", requires_grad=False)
            self.mean = tensor.Tensor((1,), requires_grad=False)

        def forward(self, x):
            return x * self.w

    net = Counts()
    net(tensor.ones((1, 1)))
    ema = opt.EMA(net, 0.75, use_buffers=True)
    for step in range(3):
        net.count.set_value(2 * step + 1)
        net.mean.set_value(4.0 * step)
        ema.update()
    averages = ema.get_states()["averages"]
    assert (averages["count"].item(), averages["count"].dtype.name) == (5, "int64")
    assert averages["mean"].item() == 0.75 * 1.0 + 0.25 * 8.0


def test_a_mean_of_what_is_no_model():
    with pytest.raises(TypeError, match=r"\[SWA\]"):
        opt.SWA(3)
