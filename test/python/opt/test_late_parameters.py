"""Each parameter counts its own updates: layers that are frozen for some steps, or come late."""

import numpy as np
import pytest
import singa
from bits import bits
from recorded import graphs
from singa import opt, tensor
from singa.training import checkpoint
from small_net import Net

#: Step by step: which layers are frozen.
PLAN = ["conv", "conv", "conv", "", "", "fc", "fc", "", "", "conv", "", ""]

MAKERS = {
    "adam": lambda **options: opt.Adam(0.01, **options),
    "adamw": lambda **options: opt.AdamW(0.01, weight_decay=0.1, **options),
}


def batches(steps):
    draw = np.random.default_rng(0)
    for _ in range(steps):
        yield draw.standard_normal((6, 2, 4, 4)).astype(np.float32), draw.integers(0, 3, 6)


def made(optimizer, use_graph=False):
    singa.seed(3)
    net = Net()
    net.set_optimizer(optimizer)
    net.compile([tensor.zeros((6, 2, 4, 4))], is_train=True, use_graph=use_graph)
    return net


def train(net, first=0, last=12):
    x, y = tensor.zeros((6, 2, 4, 4)), tensor.from_numpy(np.zeros(6, np.int32))
    for step, (images, labels) in enumerate(batches(last)):
        if step < first:
            continue
        net.conv.freeze("conv" in PLAN[step])
        net.fc.freeze("fc" in PLAN[step])
        x.copy_from_numpy(images)
        y.copy_from_numpy(labels.astype(np.int32))
        net(x, y)
    return net


def values(net):
    return {name: value.numpy() for name, value in net.get_params().items()}


def torch_values(torch, kind, start):
    """The parameters after PLAN in PyTorch."""
    params = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
    optimizer = {
        "adam": lambda p: torch.optim.Adam(p, 0.01),
        "adamw": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    }[kind](list(params.values()))
    functional = torch.nn.functional
    for frozen, (images, labels) in zip(PLAN, batches(len(PLAN)), strict=True):
        for name, param in params.items():
            param.grad = None
            param.requires_grad_(not frozen or not name.startswith(frozen))
        x = functional.conv2d(torch.tensor(images), params["conv.W"], params["conv.b"], padding=1)
        x = functional.relu(x).flatten(1) @ params["fc.W"] + params["fc.b"]
        functional.cross_entropy(x, torch.tensor(labels)).backward()
        optimizer.step()
    return {name: param.detach().numpy() for name, param in params.items()}


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize("kind", MAKERS)
def test_as_in_pytorch(torch, kind, use_graph):
    net = made(MAKERS[kind](), use_graph)
    expected = torch_values(torch, kind, values(net))
    train(net)
    for name, value in values(net).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=2e-6, err_msg=name)
    states = net.optimizer.get_states()
    assert states["step_counter"] == 12
    assert states["parameter_steps"] == {"conv.W": 8, "conv.b": 8, "fc.W": 10, "fc.b": 10}
    assert not use_graph or len(graphs(net)) > 0


GROUPS = [opt.ParamGroup("*.b", weight_decay=0.0, lr_scale=2.0)]


@pytest.mark.parametrize(
    "options",
    [
        dict,
        lambda: {"groups": GROUPS, "clip_norm": 0.5},
        lambda: {"scaler": opt.GradScaler(2.0**8, growth_interval=3)},
        lambda: {"scaler": opt.GradScaler(2.0**8), "groups": GROUPS},
    ],
    ids=["plain", "groups", "scaler", "scaler and groups"],
)
@pytest.mark.parametrize("kind", MAKERS)
def test_recorded_steps_have_the_bits_of_executed_ones(kind, options):
    executed, recorded = made(MAKERS[kind](**options())), made(MAKERS[kind](**options()), True)
    train(executed)
    train(recorded)
    assert bits(recorded) == bits(executed)
    states, expected = recorded.optimizer.get_states(), executed.optimizer.get_states()
    assert states["parameter_steps"] == expected["parameter_steps"]
    assert states["step_counter"] == expected["step_counter"] == 12


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("stop", [2, 4, 7])
def test_a_checkpoint_keeps_the_counts(stop, scaled, use_graph, tmp_path):
    def new():
        return made(opt.Adam(0.01, scaler=opt.GradScaler(2.0**8) if scaled else None), use_graph)

    net = train(new(), last=stop)
    checkpoint.save(tmp_path / "last.safetensors", net, net.optimizer)
    expected = bits(train(net, stop))
    other = new()
    checkpoint.load(tmp_path / "last.safetensors", other, other.optimizer)
    assert bits(train(other, stop)) == expected
    assert other.optimizer.get_states()["parameter_steps"] == {
        "conv.W": 8, "conv.b": 8, "fc.W": 10, "fc.b": 10
    }  # fmt: skip


def test_single_applies_count_as_a_step():
    whole, single = made(opt.Adam(0.01)), made(opt.Adam(0.01))
    apart = single.optimizer

    def step(net, names):
        for name in names:
            param = net.get_params()[name]
            grad = tensor.from_numpy(np.full(param.shape, 0.5, np.float32))
            apart.apply(param.name, param, grad)
        apart.step()

    for names in (["fc.W", "fc.b"], ["fc.W", "fc.b"], ["conv.W", "fc.W", "fc.b", "conv.b"]):
        step(single, names)
    before = values(whole)
    # The first updates of conv are lr · sign(gradient), however late they come.
    for name in ("conv.W", "conv.b"):
        np.testing.assert_allclose(before[name] - values(single)[name], 0.01, rtol=1e-4)
    assert apart.get_states()["parameter_steps"] == {"conv.W": 1, "conv.b": 1}


def test_damaged_counts_are_refused():
    optimizer = opt.Adam(0.01)
    with pytest.raises((TypeError, ValueError), match=r"parameter_steps of fc\.W"):
        optimizer.set_states({"step_counter": 3, "m": {}, "v": {}, "parameter_steps": {"fc.W": -1}})
    assert optimizer.steps == 0
