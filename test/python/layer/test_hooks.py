"""Hooks of layers, and outputs of layers by path."""

import copy
import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest
import singa
from recorded import graphs
from singa import autograd, layer, models, opt, tensor
from singa.graph import GraphWarning
from small_net import Net


def images(*shape, seed=0):
    return tensor.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def double(_, args):
    return (args[0] * 2.0,)


def add_one(_, args, output):
    return output + 1.0


def test_hooks_change_arguments_and_output_in_their_order():
    x = images(2, 5)
    fc = layer.Linear(3)
    plain = fc(x * 2.0).numpy()
    order = []
    handles = [
        fc.register_forward_pre_hook(double),
        fc.register_forward_hook(add_one),
        fc.register_forward_hook(lambda _, args, out: order.append(("last", args[0], out))),
        fc.register_forward_hook(lambda *_: order.append("first"), prepend=True),
    ]
    got = fc(x)
    np.testing.assert_array_equal(got.numpy(), plain + 1.0)
    assert order[0] == "first"
    name, given, output = order[1]
    assert name == "last"
    assert output is got
    np.testing.assert_array_equal(given.numpy(), 2.0 * x.numpy())
    for handle in handles:
        handle.remove()
        handle.remove()
    assert "forward" not in vars(fc)
    np.testing.assert_array_equal(fc(x * 2.0).numpy(), plain)
    assert len(order) == 2


def test_like_torch(torch):
    """The order of hooks and what they get: layers, arguments, and outputs that others changed."""

    def watched(net, note):
        for i, each in ((0, net[0]), (1, net[1])):
            each.register_forward_hook(lambda _, args, out, i=i: note(i, args[0] + out.sum()))
            each.register_forward_pre_hook(lambda _, args, i=i: args[0] * (i + 2.0))
            each.register_forward_hook(lambda _, args, out: out * 3.0, prepend=True)
        net.register_forward_hook(lambda _, args, out: note(2, out))

    x = images(2, 4)
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    ours = layer.Sequential(layer.Linear(4), layer.Linear(4))
    ours(x)
    for mine, other in zip(ours, theirs, strict=True):
        mine.W.set_value(other.weight.detach().numpy().T)
        mine.b.set_value(other.bias.detach().numpy())
    got, expected = [], []
    watched(ours, lambda i, t: got.append((i, t.numpy())))
    watched(theirs, lambda i, t: expected.append((i, t.detach().numpy())))
    ours(x)
    theirs(torch.from_numpy(x.numpy()))
    assert [i for i, _ in got] == [i for i, _ in expected] == [0, 1, 2]
    for (_, mine), (_, other) in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_a_hook_runs_where_the_model_calls_its_own_forward():
    x, y = images(2, 3, 4, 4), tensor.from_numpy(np.array([0, 2], np.int32))
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([x])
    shapes = []
    with net.register_forward_hook(lambda _, args, out: shapes.append(out.shape)):
        net(x, y)
        net.eval()
        net(x)
    net(x)
    assert shapes == [(2, 3), (2, 3)]


def test_a_sequential_runs_layers_with_hooks_one_by_one():
    x = images(2, 3, 4, 4)
    chain = layer.Sequential(layer.BatchNorm2d(), layer.ReLU())
    fused = chain(x).numpy()
    seen = []
    with chain[0].register_forward_hook(lambda _, args, out: seen.append(out.numpy())):
        np.testing.assert_array_equal(chain(x).numpy(), fused)
    assert seen[0].min() < 0
    np.testing.assert_array_equal(np.maximum(seen[0], 0), fused)
    with chain[1].register_forward_hook(lambda _, args, out: seen.append(out.numpy())):
        chain(x)
    np.testing.assert_array_equal(seen[1], fused)


def test_copies_have_the_hooks_and_their_own_layer():
    x = images(2, 5)
    fc = layer.Linear(3)
    plain = fc(x).numpy()
    handle = fc.register_forward_hook(add_one)
    for other in (copy.deepcopy(fc), pickle.loads(pickle.dumps(fc))):
        other.W.set_value(0.0)
        np.testing.assert_array_equal(other(x).numpy(), np.ones((2, 3), np.float32))
    handle.remove()
    np.testing.assert_array_equal(fc(x).numpy(), plain)


def test_a_layer_with_hooks_is_freed_without_the_collector():
    fc = layer.Linear(3)
    fc.register_forward_hook(add_one)
    alive = weakref.ref(fc)
    gc.disable()
    try:
        del fc
        assert alive() is None
    finally:
        gc.enable()


def test_a_forward_of_the_object_itself_stays():
    fc = layer.Linear(3)
    fc.forward = lambda x: x * 5.0
    x = images(2, 3)
    with fc.register_forward_hook(add_one):
        np.testing.assert_array_equal(fc(x).numpy(), x.numpy() * 5 + 1)
    np.testing.assert_array_equal(fc(x).numpy(), x.numpy() * 5)


# Recorded steps.


def recorded_net():
    singa.seed(0)
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.1))
    x, y = images(2, 3, 4, 4), tensor.from_numpy(np.array([0, 2], np.int32))
    net.compile([x], use_graph=True)
    return net, x, y


def test_a_hook_makes_its_step_an_executed_one_until_it_is_removed():
    plain, x, y = recorded_net()
    expected = [float(plain(x, y)[1]) for _ in range(12)]
    net, x, y = recorded_net()
    losses = [float(net(x, y)[1]) for _ in range(4)]
    assert len(graphs(net)) == 1
    net.seen = []  # the hook changes an attribute of the model, which would end a recording
    handle = net.conv.register_forward_hook(
        lambda _, args, out: net.seen.append(float(out.numpy().sum()))
    )
    with pytest.warns(GraphWarning, match="conv has a hook, which a replay") as warned:
        losses += [float(net(x, y)[1]) for _ in range(4)]
    assert len(warned) == 1
    assert len(graphs(net)) == 0
    assert len(net.seen) == len(set(net.seen)) == 4
    handle.remove()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses += [float(net(x, y)[1]) for _ in range(4)]
    assert len(graphs(net)) == 1
    assert len(net.seen) == 4
    assert losses == expected


def test_a_hook_of_a_layer_outside_of_the_model_is_seen():
    outside = layer.Linear(3)
    outside(images(2, 3))

    class Using(Net):
        def forward(self, x):
            return outside(super().forward(x))

    net = Using()
    net.set_optimizer(opt.SGD(lr=0.1))
    x = images(2, 3, 4, 4)
    net.compile([x], is_train=False, use_graph=True)
    outside.freeze()
    for _ in range(3):
        before = net(x).numpy()
    assert len(graphs(net)) == 1
    outside.register_forward_hook(add_one)
    with pytest.warns(GraphWarning, match="a hook"):
        after = net(x).numpy()
    np.testing.assert_allclose(after, before + 1, rtol=1e-5)


def test_with_executed_the_graphs_stay():
    net, x, y = recorded_net()
    for _ in range(4):
        net(x, y)
    (graph,) = graphs(net)
    with (
        warnings.catch_warnings(),
        net.executed(),
        net.fc.register_forward_hook(lambda *_: None),
    ):
        warnings.simplefilter("error")
        net(x, y)
    net(x, y)
    assert graphs(net) == [graph]


# Paths and outputs.


def test_named_layers_like_torch(torch):
    def build(nn, linear, sequential):
        shared = linear()
        return sequential(linear(), sequential(linear(), shared), shared)

    ours = build(layer, lambda: layer.Linear(2), layer.Sequential)
    theirs = build(torch.nn, lambda: torch.nn.Linear(2, 2), torch.nn.Sequential)
    assert [path for path, _ in ours.named_layers()] == [path for path, _ in theirs.named_modules()]
    layers = dict(ours.named_layers())
    assert layers[""] is ours
    assert layers["1.1"] is ours[2]
    assert list(ours.sublayers()) == list(layers.values())[1:]


def test_values_are_those_of_the_layers():
    net = models.create("resnet20_cifar")
    x = images(2, 3, 16, 16)
    net.compile([x])
    last, scores, first = net.values(x, ["layer3", "", "layer1.0.bn1"])
    assert net.training
    net.eval()
    np.testing.assert_array_equal(scores.numpy(), net(x).numpy())
    np.testing.assert_array_equal(
        net.fc(autograd.reduce_mean(last, [2, 3], 0)).numpy().round(4), scores.numpy().round(4)
    )
    stem = net.bn1(net.conv1(x), relu=True)
    expected = net.layer1[0].bn1(net.layer1[0].conv1(stem), relu=True)
    np.testing.assert_array_equal(first.numpy(), expected.numpy())
    (again,) = net.values([x.numpy()], ["layer3"])  # a list of arguments, which may be arrays
    np.testing.assert_array_equal(again.numpy(), last.numpy())


def test_values_leave_recorded_steps_alone():
    net, x, y = recorded_net()
    for _ in range(4):
        net(x, y)
    (graph,) = graphs(net)
    net.values(x, ["conv"])
    net(x, y)
    assert graphs(net) == [graph]


def test_a_recorded_step_may_take_values_of_another_network():
    """A loss between features of two networks, as for distillation."""

    class Student(Net):
        def train_one_batch(self, x, y):
            (theirs,) = self.teacher.values(x, ["conv"])
            loss = autograd.mse_loss(self.conv(x), theirs)
            self.optimizer(loss)
            return loss

    def losses(graph):
        singa.seed(0)
        x, y = images(2, 3, 4, 4), tensor.from_numpy(np.array([0, 2], np.int32))
        teacher, net = Net(), Student()
        teacher.compile([x], is_train=False)
        teacher.freeze()
        net.set_optimizer(opt.SGD(lr=0.1))
        net.compile([x], use_graph=graph)
        net.teacher = teacher
        result = [float(net(x, y)) for _ in range(6)]
        assert len(graphs(net)) == int(graph)
        return result

    expected = losses(False)
    assert expected[-1] < expected[0]
    assert losses(True) == expected


def test_values_that_are_not_there():
    net = Net()
    x = images(2, 3, 4, 4)
    net.compile([x])
    net.unused = layer.Linear(2)
    with pytest.raises(ValueError, match=r"\[values\] Net has no layer 'cov'; do you mean conv"):
        net.values(x, ["cov"])
    with pytest.raises(ValueError, match=r"\[values\] layer 'unused' did not run"):
        net.values(x, ["unused"])
    with pytest.raises(TypeError, match=r"\[values\] expected a list of names"):
        net.values(x, "conv")


def test_a_layer_that_runs_twice_has_no_value():
    class Twice(layer.Layer):
        def __init__(self):
            super().__init__()
            self.fc = layer.Linear(5)

        def forward(self, x):
            return self.fc(self.fc(x))

    net = Net()
    net.conv = Twice()
    with pytest.raises(ValueError, match=r"layer 'conv.fc' ran 2 times"):
        net.values(images(2, 5), ["conv.fc"])


def test_a_hook_that_is_no_function():
    with pytest.raises(TypeError, match=r"\[Linear\] a hook must be a function, got int"):
        layer.Linear(2).register_forward_hook(3)


# Gradients of inputs.


def test_input_gradients_like_torch(torch):
    x, w = images(4, 5), images(5, seed=1)
    value, (dx, dw) = autograd.input_gradients(lambda x, w: autograd.tanh(x * w).sum() * 2.0, x, w)
    a, b = torch.tensor(x.numpy(), requires_grad=True), torch.tensor(w.numpy(), requires_grad=True)
    expected = torch.tanh(a * b).sum() * 2
    expected.backward()
    assert float(value) == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(dx.numpy(), a.grad.numpy(), rtol=1e-5)
    np.testing.assert_allclose(dw.numpy(), b.grad.numpy(), rtol=1e-5)
    assert not x.stores_grad
    assert x.grad is None


def test_input_gradients_of_a_network_in_inference_mode():
    """Beside differences of values: what a saliency map is made of."""
    net = models.create("resnet20_cifar")
    x = images(1, 3, 8, 8).numpy().astype(np.float64)
    net.compile([tensor.Tensor(data=x, dtype="float64")], use_graph=True)
    net.eval()
    statistics = {name: t.numpy() for name, t in net.get_states().items()}

    def score(x):
        return net(x)[0, 3]

    _, dx = autograd.input_gradients(lambda x: score(x).sum(), x)
    direction = np.random.default_rng(2).standard_normal(x.shape)
    step = 1e-5
    there, here = (
        float(score(tensor.Tensor(data=x + sign * step * direction, dtype="float64")).numpy())
        for sign in (1, -1)
    )
    along = float((dx.numpy() * direction).sum())
    assert along == pytest.approx((there - here) / (2 * step), rel=1e-4)
    for name, t in net.get_states().items():
        np.testing.assert_array_equal(t.numpy(), statistics[name])


def test_input_gradients_that_do_not_exist():
    x = images(2, 3)
    with pytest.raises(ValueError, match=r"\[input_gradients\] .* depend on input 1"):
        autograd.input_gradients(lambda a, b: a.sum(), x, x)
    with pytest.raises(ValueError, match=r"\[backward\] y has shape \(2, 3\)"):
        autograd.input_gradients(lambda a: a * 2.0, x)
    with pytest.raises(TypeError, match=r"\[input_gradients\] input 0 must be of floats, got int"):
        autograd.input_gradients(lambda a: a.sum(), np.arange(3))
    with pytest.raises(TypeError, match=r"\[input_gradients\] .* return a tensor, got float"):
        autograd.input_gradients(lambda a: 1.0, x)
