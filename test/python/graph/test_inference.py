"""Recorded inference: batch norm, additions and ReLU become part of convolutions, and weights are
prepared once. Results do not change, and changes of parameters are detected."""

import ctypes
import itertools
import re

import numpy as np
import pytest
import singa
from recorded import graphs
from singa import autograd, layer, model, models, opt, singa_wrap, tensor

BATCH = 3


def images(step=0, dtype=tensor.float32):
    rng = np.random.default_rng([5, step])
    x = tensor.from_numpy(rng.standard_normal((BATCH, 8, 9, 9)).astype(np.float32))
    return x if dtype == tensor.float32 else x.as_type(dtype)


def randomize(net):
    """Random statistics, without which folding would have no effect."""
    rng = np.random.default_rng(9)
    for name, t in net.get_states().items():
        low, high = (0.5, 2) if name.endswith(("running_var", "scale")) else (-0.5, 0.5)
        if not name.endswith("W"):
            t.copy_from_numpy(rng.uniform(low, high, t.shape).astype(t.numpy().dtype))


class Net(model.Model):
    """One forward function over layers, which it creates on first use."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.conv = layer.Conv2d(8, 3, padding=1, bias=False)
        self.biased = layer.Conv2d(8, 3, padding=1)
        self.depthwise = layer.Conv2d(8, 3, padding=1, group=8)
        self.pointwise = layer.Conv2d(8, 1)
        self.bn = layer.BatchNorm2d(momentum=0.1)
        self.bn2 = layer.BatchNorm2d(momentum=0.1)
        self.fc = layer.Linear(5)

    def forward(self, x):
        return self.function(self, x)

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(autograd.flatten(out), y)
        self.optimizer(loss)
        return out, loss


def compiled(function, x):
    singa.seed(3)
    net = Net(function)
    net.compile([x], is_train=False)
    randomize(net)
    return net


def graph_of(net):
    (graph,) = graphs(net)
    return graph


def nodes(net):
    """Names of the operations of a replay, without those that run only once."""
    return re.findall(r"^  \d+ (\w+)", graph_of(net).ToString(), re.MULTILINE)


def check(net, *inputs, tolerance=1e-5):
    """Checks that replays give the results of execution; returns the names of the operations."""
    net.graph(False)
    want = [net(x).numpy().astype(np.float64) for x in inputs]
    net.graph(True)
    for _ in range(3):  # recorded twice, then replayed
        net(inputs[0])
    for x, expected in zip(inputs, want, strict=True):
        got = net(x).numpy()
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    return nodes(net)


def check_nan(net):
    """Checks that a replay's NaN are those of execution, for an image that has one."""
    x = images()
    x[0, 3, 2, 2] = np.nan
    net.graph(False)
    want = np.isnan(net(x).numpy())
    net.graph(True)
    np.testing.assert_array_equal(np.isnan(net(x).numpy()), want)


RELU, ADD = autograd.relu, autograd.add
CHAINS = {
    "bn": lambda n, x: n.bn(n.conv(x)),
    "bn of a bias": lambda n, x: n.bn(n.biased(x)),
    "bn relu": lambda n, x: n.bn(n.conv(x), relu=True),
    "bn add": lambda n, x: n.bn(n.conv(x), add=x),
    "bn add relu": lambda n, x: n.bn(n.conv(x), add=x, relu=True),
    "bn, relu": lambda n, x: RELU(n.bn(n.conv(x))),
    "bn, add, relu": lambda n, x: RELU(ADD(n.bn(n.biased(x)), x)),
    "bn, add from the left, relu": lambda n, x: RELU(ADD(x, n.bn(n.conv(x)))),
    "bn add, relu": lambda n, x: RELU(n.bn(n.conv(x), add=x)),
    "relu": lambda n, x: RELU(n.biased(x)),
    "add": lambda n, x: ADD(n.conv(x), x),
    "add, relu": lambda n, x: RELU(ADD(n.biased(x), x)),
    "two, one inside the other's sum": lambda n, x: n.bn(n.conv(x), add=RELU(n.biased(x))),
    "one that adds the other": lambda n, x: n.bn(n.conv(x), add=n.bn2(n.biased(x)), relu=True),
    "a sum of two": lambda n, x: RELU(ADD(n.bn(n.conv(x)), n.bn2(n.biased(x)))),
    "a sum of two and a third": lambda n, x: ADD(n.bn(n.conv(x)), ADD(n.biased(x), x)),
    "one after the other": lambda n, x: n.bn2(n.biased(n.bn(n.conv(x), relu=True)), add=x),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_become_convolutions(name):
    net = compiled(CHAINS[name], images())
    names = check(net, images(), images(1))
    assert set(names) <= {"ConvForward", "Reorder"}, names


@pytest.mark.parametrize(
    ("activation", "op"), [("relu6", "HardTanh"), ("hardswish", "HardSwish"), ("silu", "Silu")]
)
def test_activations_behind_batch_norm(activation, op):
    net = compiled(lambda n, x: n.bn(n.conv(x), activation=activation), images())
    names = check(net, images(), images(1))
    assert set(names) <= {"ConvForward", "Reorder", op}, names


ACTIVATIONS = {
    "relu": autograd.relu,
    "relu6": autograd.relu6,
    "hardswish": autograd.hardswish,
    "silu": autograd.silu,
}


@pytest.mark.cpu("GPUs have no such kernels")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("part_of_norm", [True, False])
def test_a_depthwise_convolution_applies_the_activation_before_it(activation, part_of_norm):
    act = ACTIVATIONS[activation]

    def forward(n, x):
        x = n.conv(x)
        x = n.bn(x, activation=activation) if part_of_norm else act(n.bn(x))
        return n.bn2(n.depthwise(x), relu=True)

    net = compiled(forward, images())
    names = check(net, images(), images(1))
    if "+ depthwise" not in graph_of(net).ToString():
        assert activation == "silu" or "depthwise" not in graph_of(net).ToString()
        return
    assert set(names) <= {"ConvForward", "NormConvForward", "Reorder"}, names
    with singa.opcheck(every=1, action="raise") as opcheck:
        net(images())
    assert opcheck.stats()["NormConvForward"]["checked"] == 1
    check_nan(net)


@pytest.mark.cpu("GPUs have no such kernels")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", ["depthwise", "pointwise"])
@pytest.mark.parametrize("form", ["part of norm", "behind norm", "behind"])
def test_a_convolution_applies_the_activation_behind_it(activation, kind, form):
    act = ACTIVATIONS[activation]

    def forward(n, x):
        y = getattr(n, kind)(n.biased(x))
        if form == "part of norm":
            return n.bn(y, activation=activation)
        return act(n.bn(y) if form == "behind norm" else y)

    net = compiled(forward, images())
    names = check(net, images(), images(1))
    if f"] {kind}" not in graph_of(net).ToString() and "onednn" not in graph_of(net).ToString():
        return  # reference kernels
    assert set(names) <= {"ConvForward", "Reorder"}, graph_of(net).ToString()
    with singa.opcheck(every=1, action="raise") as opcheck:
        net(images())
    assert opcheck.stats()["ConvForward"]["checked"] == 2
    check_nan(net)


@pytest.mark.cpu("GPUs have no such kernels")
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("biased", [True, False])
def test_a_depthwise_convolution_makes_the_image_that_it_reads(activation, biased):
    def forward(n, x):
        z = n.pointwise(n.biased(x))
        z = n.bn(z, activation=activation) if activation and not biased else z
        z = ACTIVATIONS[activation](z) if activation and biased else z
        return n.bn2(n.depthwise(z), activation=activation or "relu")

    net = compiled(forward, images())
    names = check(net, images(), images(1))
    if "pointwise" not in graph_of(net).ToString():
        return  # other kernels
    assert sorted(names)[:2] == ["ConvForward", "ExpandConvForward"], graph_of(net).ToString()
    with singa.opcheck(every=1, action="raise") as opcheck:
        net(images())
    assert opcheck.stats()["ExpandConvForward"]["checked"] == 1
    for weights in (net.pointwise.W, net.depthwise.W, net.bn2.scale):
        weights.copy_from_numpy(2 * weights.numpy())
        check(net, images(), images(1))
    check_nan(net)


@pytest.mark.cpu("GPUs have no such kernels")
def test_an_image_that_others_read_is_made():
    def joined(n, x):
        z = n.pointwise(x)
        return autograd.cat([n.depthwise(z), z], 1)

    def added(n, x):
        return n.depthwise(autograd.add(n.pointwise(x), x))

    def wide(n, x):
        return n.depthwise(n.biased(x))

    for forward in (joined, added, wide):
        assert "ExpandConvForward" not in check(compiled(forward, images()), images(), images(1))


def test_limits_that_change_zero_are_no_part_of_a_convolution():
    net = compiled(lambda n, x: autograd.clip(n.pointwise(n.biased(x)), 0.5, 2), images())
    names = check(net, images(), images(1))
    assert "Clip" in names or "HardTanh" in names, names  # of the result: the same function


@pytest.mark.cpu("GPUs have no such kernels")
def test_an_activation_that_others_read_is_computed():
    def joined(n, x):
        x = n.bn(n.conv(x), activation="relu6")
        return autograd.cat([n.depthwise(x), x], 1)

    def added(n, x):
        return autograd.add(n.depthwise(n.bn(n.conv(x), activation="relu6")), x)

    for forward in (joined, added):
        assert "NormConvForward" not in check(compiled(forward, images()), images(), images(1))


@pytest.mark.cpu("GPUs have no such kernels")
@pytest.mark.parametrize("prefer", ["limited_workspace", "no_workspace"])
def test_a_depthwise_convolution_keeps_its_preference(prefer):
    options = {"cudnn_prefer": prefer, "workspace_MB_limit": 0}
    narrow = layer.Conv2d(8, 3, padding=1, group=8, **options)
    net = compiled(lambda n, x: narrow(n.bn(n.conv(x), relu=True)), images())
    assert "NormConvForward" not in check(net, images(), images(1))


@pytest.mark.parametrize("dtype", [tensor.float64, tensor.float32])
@pytest.mark.parametrize(
    "preference",
    ["fastest", pytest.param("reference", marks=pytest.mark.cpu("the reference kernels"))],
)
def test_every_implementation(dtype, preference):
    before = singa_wrap.GetPreference()
    singa_wrap.SetPreference(singa_wrap.ParsePreference(preference))
    try:
        x = images(0, dtype)
        net = compiled(CHAINS["one that adds the other"], x)
        exact = dtype == tensor.float64
        assert net(x).dtype == dtype
        check(net, x, images(1, dtype), tolerance=1e-13 if exact else 1e-5)
    finally:
        singa_wrap.SetPreference(before)


def test_linear_and_relu_become_one():
    net = compiled(lambda n, x: RELU(n.fc(autograd.flatten(x))), images())
    assert check(net, images(), images(1)) == ["LinearForward"]


def test_results_that_are_used_elsewhere_stay():
    twice = compiled(lambda n, x: (lambda y: ADD(n.bn(y), y))(n.conv(x)), images())
    assert "BatchNormForwardInference" in check(twice, images())
    viewed = compiled(
        lambda n, x: autograd.cat([n.bn(n.conv(x)), autograd.transpose(x, (0, 1, 3, 2))], 1),
        images(),
    )
    check(viewed, images(), images(1))
    reshaped = compiled(lambda n, x: RELU(autograd.reshape(n.biased(x), (BATCH, -1))), images())
    assert "Relu" in check(reshaped, images(), images(1))


def test_broadcast_additions_stay():
    net = compiled(lambda n, x: ADD(n.conv(x), autograd.reduce_mean(x, [2, 3], True)), images())
    assert "Add" in check(net, images(), images(1))


def test_results_of_the_step_are_returned_as_executed():
    def forward(n, x):
        y = n.conv(x)
        return [y, n.bn(y, relu=True)]

    net = compiled(forward, images())
    want = [t.numpy() for t in net(images(1))]
    net.graph(True)
    for _ in range(3):
        net(images())
    first = net(images(1))
    second = net(images(2))
    for got, expected in zip(first, want, strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=0, atol=1e-5)
    assert not np.allclose(first[1].numpy(), second[1].numpy())


def test_changes_of_parameters_are_seen(tmp_path):
    net = compiled(CHAINS["one that adds the other"], images())
    net.save_states(tmp_path / "first.npz")
    check(net, images())
    states = net.get_states()
    for name in ("conv.W", "biased.b", "bn.scale", "bn2.bias", "bn.running_mean", "bn.running_var"):
        t = states[name]
        before = net(images()).numpy()
        t.copy_from_numpy(t.numpy() * 1.5 + 0.1)
        assert np.abs(net(images()).numpy() - before).max() > 1e-3, name
        check(net, images(), images(1))
    changed = net(images()).numpy()
    net.load_states(tmp_path / "first.npz")
    assert np.abs(net(images()).numpy() - changed).max() > 1e-3
    check(net, images(), images(1))


@pytest.mark.cpu("NumPy writes to memory of the CPU")
def test_memory_that_others_write_to_is_read_again(torch):
    net = compiled(CHAINS["bn relu"], images())
    check(net, images())
    shared = torch.from_dlpack(net.get_states()["bn.bias"])
    before = net(images()).numpy()
    shared += 1
    assert np.abs(net(images()).numpy() - before).max() > 0.5
    check(net, images())


@pytest.mark.cpu("NumPy writes to memory of the CPU")
def test_what_others_write_before_they_let_go_is_read_again(torch):
    net = compiled(CHAINS["bn relu"], images())
    check(net, images())
    shared = torch.from_dlpack(net.get_states()["bn.bias"])
    before = net(images()).numpy()  # while it is held
    shared += 1
    del shared
    assert np.abs(net(images()).numpy() - before).max() > 0.5
    check(net, images())


def test_training_in_between():
    x, y = images(), tensor.from_numpy(np.zeros(BATCH, np.int32))
    net = compiled(CHAINS["one that adds the other"], x)
    net.set_optimizer(opt.SGD(lr=0.1))
    net.graph(True)
    seen = []
    for _ in range(4):
        net.train()
        for _ in range(3):
            net(x, y)
        net.eval()
        for _ in range(3):
            out = net(x).numpy()
        net.graph(False)
        np.testing.assert_allclose(out, net(x).numpy(), rtol=0, atol=1e-5 * np.abs(out).max())
        net.graph(True)
        seen.append(out)
    assert all(np.abs(a - b).max() > 1e-4 for a, b in itertools.pairwise(seen))


def test_batch_norm_of_the_batch_is_not_folded():
    net = compiled(CHAINS["bn relu"], images())
    net.set_optimizer(opt.SGD(lr=0.1))
    net.graph(True)
    net.train()
    y = tensor.from_numpy(np.zeros(BATCH, np.int32))
    for _ in range(4):
        net(images(), y)
    assert "BatchNormForwardTraining" in nodes(net)


def test_weights_that_a_step_computes_are_not_folded():
    def forward(n, x):
        weights = autograd.mul(n.conv.W, autograd.reduce_mean(x))
        return n.bn(autograd.conv2d(n.conv.handle, x, weights, None), relu=True)

    net = compiled(lambda n, x: n.bn(n.conv(x)), images())
    net.function = forward
    names = check(net, images(), images(1))
    assert "BatchNormForwardInference" in names


@pytest.mark.parametrize("name", ["resnet20_cifar", "lenet"])
def test_networks(name):
    net = models.create(name)
    rng = np.random.default_rng(1)
    x = tensor.from_numpy(rng.standard_normal((2, *net.image_shape)).astype(np.float32))
    net.compile([x], is_train=False)
    randomize(net)
    names = check(net, x)
    assert not {"BatchNormForwardInference", "Relu", "Add"} & set(names)


def test_bfloat16():
    x = images()
    singa.seed(3)
    net = Net(CHAINS["one that adds the other"])
    net.compile([x], is_train=False, dtype="bfloat16")
    randomize(net)
    check(net, x, images(1), tolerance=0.03)


@pytest.mark.cpu("implementations by name")
@pytest.mark.parametrize(("own", "general"), [("reference", "fastest"), ("fastest", "reference")])
def test_a_convolution_keeps_its_own_preference(own, general):
    class Own(Net):
        def __init__(self):
            super().__init__(lambda net, x: autograd.relu(net.bn(net.own(x))))
            self.own = layer.Conv2d(8, 3, padding=1, cudnn_prefer=own)

    before = singa_wrap.GetPreference()
    singa_wrap.SetPreference(singa_wrap.ParsePreference(general))
    try:
        x = images()
        singa.seed(3)
        net = Own()
        net.compile([x], is_train=False)
        randomize(net)
        with singa.explain() as executed:
            net(x)
        assert "ConvForward" in check(net, x)
        makers = dict(
            re.findall(r"^  \d+ (\w+).* by (\w+)", graph_of(net).ToString(), re.MULTILINE)
        )
    finally:
        singa_wrap.SetPreference(before)
    by_op = {entry["op"]: entry["implementation"] for entry in executed}
    assert by_op["BatchNormForwardInference"] == "reference" or general == "fastest"
    assert (makers["ConvForward"] == "reference") == (own == "reference")


@pytest.mark.cpu("the host writes to the memory of a parameter")
def test_opcheck_finds_a_write_of_which_no_version_tells():
    net = compiled(lambda net, x: autograd.relu(net.bn(net.conv(x))), images())
    net.graph(True)
    x = images()
    array = np.asarray(net.conv.W)
    address = array.ctypes.data
    del array  # from now on, writes to the address are not seen
    for _ in range(4):
        net(x)
    with singa.opcheck(action="raise"):
        net(x)
    ctypes.memset(address, 0, 4)
    with (
        singa.opcheck(action="raise"),
        pytest.raises(RuntimeError, match=r"\[graph\] FoldBatchNorm .*from \(8, 8, 3, 3\)"),
    ):
        net(x)


def test_batches_of_several_sizes_share_prepared_weights():
    net = compiled(CHAINS["one that adds the other"], images())
    net.graph(True)
    whole, short = images(), tensor.from_numpy(images(1).numpy()[:1])

    def prepared():
        return net.memory_plan()["by_kind"]["prepared weights"]

    def agree():
        for x in (whole, short, whole):
            got = net(x).numpy()
            net.graph(False)
            want = net(x).numpy()
            net.graph(True)
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())

    for _ in range(3):
        net(whole)
    alone = prepared()
    assert alone >= net.conv.W.memsize() + net.biased.W.memsize()
    for _ in range(3):
        net(short)
    assert len(net.memory_plan()["graphs"]) == 2
    assert prepared() == alone
    agree()
    for parameter in (net.conv.W, net.bn.scale, net.biased.b):  # each graph detects the change
        parameter.copy_from_numpy(parameter.numpy() * np.float32(1.5))
        agree()
