"""Layers and tensors in lists, tuples and dicts; ModuleList and ModuleDict."""

import copy
import pickle
from collections import OrderedDict, deque

import numpy as np
import pytest
import singa
from arrays import image
from singa import autograd, layer, model, opt, tensor


def parameter(*shape):
    return tensor.Tensor(shape, stores_grad=True).gaussian(0.0, 0.5)


class Net(model.Model):
    """Runs all layers that `hold` puts into a container, then one more."""

    def __init__(self, hold):
        super().__init__()
        self.kept = hold(layer.Linear(5), layer.Linear(5))
        self.last, self.loss = layer.Linear(3), layer.SoftMaxCrossEntropy()

    def forward(self, x):
        for each in flat(self.kept):
            x = autograd.tanh(each(x))
        return self.last(x)


def flat(kept):
    if isinstance(kept, layer.Linear):
        return [kept]
    values = kept.values() if hasattr(kept, "values") else kept
    return [each for inner in values for each in flat(inner)]


HOLDERS = {
    "list": (lambda a, b: [a, b], ("0", "1")),
    "tuple": (lambda a, b: (a, b), ("0", "1")),
    "deque": (lambda a, b: deque([a, b]), ("0", "1")),
    "dict": (lambda a, b: {"a": a, 7: b}, ("a", "7")),
    "ordered": (lambda a, b: OrderedDict(a=a, b=b), ("a", "b")),
    "nested": (lambda a, b: [[a], {"x": (b,)}], ("0.0", "1.x.0")),
    "module list": (lambda a, b: layer.ModuleList([a, b]), ("0", "1")),
    "module dict": (lambda a, b: layer.ModuleDict({"a": a, "b": b}), ("a", "b")),
    "module list of lists": (lambda a, b: [layer.ModuleList([a]), [b]], ("0.0", "1.0")),
}


def data():
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    return tensor.from_numpy(x), tensor.from_numpy(np.array([0, 1, 2, 0], np.int32))


def trained(hold, graph=False):
    singa.seed(1)
    net, (x, y) = Net(hold), data()
    net.set_optimizer(opt.SGD(lr=0.5, momentum=0.9, weight_decay=0.01))
    net.compile([x], is_train=True, use_graph=graph)
    for _ in range(4):
        net(x, y)
    return net


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("kind", HOLDERS)
def test_layers_in_containers_are_saved_with_what_they_learned(kind, graph, tmp_path):
    hold, names = HOLDERS[kind]
    net, x = trained(hold, graph), data()[0]
    paths = [f"kept.{name}.{leaf}" for name in names for leaf in "Wb"]
    assert list(net.get_params()) == [*paths, "last.W", "last.b"]
    assert list(net.get_states()) == list(net.get_params())
    assert [each.name for each in net.sublayers() if isinstance(each, layer.Linear)] == [
        *(f"kept.{name}" for name in names),
        "last",
    ]
    assert net.optimizer.get_states()["moments"].keys() == net.get_params().keys()
    assert net.summary().params == 2 * (5 * 5 + 5) + 5 * 3 + 3
    net.save_states(tmp_path / "a.safetensors")
    singa.seed(2)
    other = Net(hold)
    other.compile([x], is_train=False)
    other.load_states(tmp_path / "a.safetensors")
    for name, value in net.get_params().items():
        np.testing.assert_array_equal(other.get_params()[name].numpy(), value.numpy(), name)


@pytest.mark.parametrize("kind", HOLDERS)
def test_training_does_not_depend_on_the_container(kind):
    """The same bits as with attributes."""

    class Plain(Net):
        def __init__(self):
            super().__init__(lambda *layers: ())
            self.a, self.b = layer.Linear(5), layer.Linear(5)

        def forward(self, x):
            return self.last(autograd.tanh(self.b(autograd.tanh(self.a(x)))))

    net = trained(HOLDERS[kind][0])
    singa.seed(1)
    plain, (x, y) = Plain(), data()
    plain.set_optimizer(opt.SGD(lr=0.5, momentum=0.9, weight_decay=0.01))
    plain.compile([x], is_train=True)
    for _ in range(4):
        plain(x, y)
    ours = dict(zip(("a", "b"), HOLDERS[kind][1], strict=True))
    for name, value in plain.get_params().items():
        first, _, leaf = name.partition(".")
        path = f"kept.{ours[first]}.{leaf}" if first in ours else name
        np.testing.assert_array_equal(net.get_params()[path].numpy(), value.numpy(), name)


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
@pytest.mark.parametrize("kind", HOLDERS)
def test_copies_are_complete_and_apart(kind, how):
    net, (x, y) = trained(HOLDERS[kind][0]), data()
    twin = copy.deepcopy(net) if how == "deepcopy" else pickle.loads(pickle.dumps(net))
    before = {name: value.numpy() for name, value in net.get_params().items()}
    twin(x, y)
    for name, value in net.get_params().items():
        np.testing.assert_array_equal(value.numpy(), before[name], name)
    net(x, y)
    for name, value in net.get_params().items():
        np.testing.assert_array_equal(twin.get_params()[name].numpy(), value.numpy(), name)


class Tensors(model.Model):
    """Parameters and a statistic in containers."""

    state_names = ("seen",)

    def __init__(self):
        super().__init__()
        self.weights = [parameter(5, 5), {"out": parameter(5, 3)}]
        self.seen = [tensor.Tensor((5,), requires_grad=False)]
        self.scratch = [tensor.Tensor((2,))]  # no parameter
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        self.seen[0].copy_from(tensor.from_numpy(x.numpy()[0]))
        return autograd.matmul(autograd.matmul(x, self.weights[0]), self.weights[1]["out"])

    train_one_batch = Net.train_one_batch


def test_tensors_in_containers():
    net, (x, y) = Tensors(), data()
    net.set_optimizer(opt.SGD(lr=0.5))
    net.compile([x], is_train=True)
    assert list(net.get_params()) == ["weights.0", "weights.1.out"]
    assert list(net.get_states()) == ["weights.0", "weights.1.out", "seen.0"]
    before = net.weights[0].numpy()
    net(x, y)
    assert np.any(net.weights[0].numpy() != before)
    with pytest.raises(ValueError, match=r"missing: seen\.0"):
        net.set_states({name: np.zeros(p.shape) for name, p in net.get_params().items()})
    net.set_states({name: np.full(p.shape, 2.0) for name, p in net.get_states().items()})
    np.testing.assert_array_equal(net.weights[1]["out"].numpy(), np.full((5, 3), 2.0))
    np.testing.assert_array_equal(net.seen[0].numpy(), np.full(5, 2.0))


def test_tensors_in_containers_keep_their_type_and_follow_the_device():
    """Also those that are appended, or replaced, later."""

    class Product(layer.Layer):
        def __init__(self):
            super().__init__()
            self.weights = [parameter(5, 5)]
            self.other, self.more = tensor.Tensor((1,)), tensor.Tensor((1,))

        def forward(self, x):
            for w in self.weights:
                x = autograd.matmul(x, w)
            return x

    place = singa.device.create_cpu_device(separate=True)
    product, x = Product(), data()[0].as_type(tensor.float64).to_device(place)
    product.weights.append(parameter(5, 2))
    assert product(x).dtype == tensor.float64  # promoted
    product.weights[1] = parameter(5, 2)
    product(x)
    assert [w.dtype for w in product.weights] == [tensor.float32] * 2
    assert [w.device.id() for w in product.weights] == [place.id()] * 2


@pytest.mark.parametrize("graph", [False, True])
def test_layers_that_are_appended_while_training(graph):
    net, (x, y) = trained(lambda a, b: [a, b], graph), data()
    net.kept.append(layer.Linear(5))
    net(x, y)
    new = net.get_params()["kept.2.W"]
    before = new.numpy()
    net(x, y)
    assert np.any(new.numpy() != before)
    assert {"kept.2.W", "kept.2.b"} < net.optimizer.get_states()["moments"].keys()
    net.freeze("kept.2.*")
    before = new.numpy()
    net(x, y)
    np.testing.assert_array_equal(new.numpy(), before)
    assert {name for name, p in net.get_params().items() if p.requires_grad} == {
        *("kept.0.W", "kept.0.b", "kept.1.W", "kept.1.b", "last.W", "last.b")
    }


def test_a_name_is_of_one_tensor():
    net = Net(lambda a, b: {1: a, "1": b})
    net.compile([data()[0]], is_train=False)
    with pytest.raises(ValueError, match=r"\[get_params\] Net has two tensors .* kept\.1\.W"):
        net.get_params()


def test_containers_that_hold_themselves_and_layers_that_know_their_owner():
    net = Net(lambda a, b: [a, b])
    net.loop = net.kept  # another name of it
    loop = [net.last]
    loop.append(loop)
    net.others = loop
    net.last.owner = net
    net.compile([data()[0]], is_train=False)
    params = ["kept.0.W", "kept.0.b", "kept.1.W", "kept.1.b", "last.W", "last.b"]
    assert list(net.get_params()) == params
    assert [name for name in net.get_states() if not name.startswith("loop")] == params


def test_layers_that_are_registered_too_have_one_name():
    """SINGA's way to keep a list."""

    class Listed(layer.Layer):
        def __init__(self):
            super().__init__()
            self.layers = [layer.Linear(5), layer.Linear(5)]
            self.register_layers(*self.layers)

        def forward(self, x):
            for each in self.layers:
                x = each(x)
            return x

    listed = Listed()
    listed(data()[0])
    assert list(listed.get_states()) == ["Linear_0.W", "Linear_0.b", "Linear_1.W", "Linear_1.b"]


def test_averages_and_groups_know_layers_in_lists():
    net, (x, y) = Net(lambda a, b: [a, b]), data()
    group = opt.ParamGroup("kept.1.*", lr_scale=0.0)
    net.set_optimizer(opt.SGD(lr=0.5, groups=[group]))
    net.compile([x], is_train=True)
    ema = opt.EMA(net, 0.5)
    before = {name: value.numpy() for name, value in net.get_params().items()}
    net(x, y)
    ema.update()
    assert ema.get_states()["averages"].keys() == net.get_params().keys()
    changed = {n for n, p in net.get_params().items() if np.any(p.numpy() != before[n])}
    assert changed == {"kept.0.W", "kept.0.b", "last.W", "last.b"}


# --- what the model does not have


class Hidden(Net):
    """Keeps a layer where nobody looks."""

    def __init__(self):
        super().__init__(lambda a, b: [a])
        hidden = layer.Linear(5)
        self.call = lambda x: hidden(x)

    def forward(self, x):
        return super().forward(self.call(x))


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("make", [opt.SGD, opt.Adam, lambda lr: opt.SGD(lr, accumulate=2)])
def test_an_optimizer_of_a_model_refuses_what_the_model_does_not_have(make, graph):
    net, (x, y) = Hidden(), data()
    net.set_optimizer(make(0.5))
    net.compile([x], is_train=True, use_graph=graph)
    before = {name: value.numpy() for name, value in net.get_params().items()}
    with pytest.raises(ValueError, match=r"W of shape \(5, 5\), .* get_params\(\) of Hidden"):
        net(x, y)
    for name, value in net.get_params().items():  # nothing was updated
        np.testing.assert_array_equal(value.numpy(), before[name], name)


def test_with_singas_behaviour_it_warns_once(monkeypatch):
    monkeypatch.setattr("singa.compat.enabled", True)
    net, (x, y) = Hidden(), data()
    net.set_optimizer(opt.SGD(lr=0.5))
    net.compile([x], is_train=True)
    with pytest.warns(UserWarning, match=r"not in get_params\(\) of Hidden") as seen:
        net(x, y)
    assert len(seen) == 2  # W and b
    net(x, y)


def test_other_optimizers_update_what_they_are_given():
    """Two on parts of a model, and one without a model."""

    class Parts(Hidden):
        def __init__(self):
            super().__init__()
            self.second = opt.SGD(lr=0.5)

        def train_one_batch(self, x, y):
            out = self.forward(x)
            loss = self.loss(out, y)
            ours = {id(p) for p in self.get_params().values()}
            for param, grad in list(autograd.backward(loss)):
                (self.optimizer if id(param) in ours else self.second).update(param, grad)
            return out, loss

    net, (x, y) = Parts(), data()
    net.set_optimizer(opt.SGD(lr=0.5))
    net.compile([x], is_train=True)
    first = float(net(x, y)[1].numpy()[0])
    assert float(net(x, y)[1].numpy()[0]) < first
    w, autograd.training = parameter(5, 3), True
    try:
        alone = opt.SGD(lr=0.5)
        before = w.numpy()
        alone(autograd.softmax_cross_entropy(autograd.matmul(x, w), y))
        assert np.any(w.numpy() != before)
    finally:
        autograd.training = False


def test_an_optimizer_that_is_assigned_is_set_too():
    class Assigned(Hidden):
        def __init__(self):
            super().__init__()
            self.optimizer = None  # a placeholder
            self.optimizer = opt.SGD(lr=0.5)

    net, (x, y) = Assigned(), data()
    net.compile([x], is_train=True)
    with pytest.raises(ValueError, match=r"get_params\(\) of Assigned"):
        net(x, y)


def test_one_optimizer_of_two_models():
    nets, (x, y) = [Net(lambda a, b: [a, b]) for _ in range(2)], data()
    optimizer = opt.SGD(lr=0.5, momentum=0.9)
    for net in nets:
        net.set_optimizer(optimizer)
        net.compile([x], is_train=True)
        net(x, y)
    assert len(optimizer.get_states()["moments"]) == 12


# --- ModuleList and ModuleDict


def names_of(container):
    return [name for name, _ in container._children()]


def test_module_list_is_a_list():
    a, b, c, d = (layer.Linear(n) for n in range(1, 5))
    found = layer.ModuleList([a, b])
    found.append(c).extend([d])
    found += [layer.ReLU()]
    assert type(found.pop()) is layer.ReLU
    assert list(found) == [a, b, c, d]
    assert (len(found), found[0], found[-1], found[1:3]) == (4, a, d, [b, c])
    assert c in found
    found.insert(1, d)
    assert list(found) == [a, d, b, c, d]
    assert names_of(found) == ["0", "1", "2", "3", "4"]
    del found[0], found[-1:]
    assert list(found) == [d, b, c]
    found[1] = a
    assert (list(found), names_of(found)) == ([d, a, c], ["0", "1", "2"])
    with pytest.raises(IndexError):
        _ = found[3]
    with pytest.raises(NotImplementedError, match=r"ModuleList does not define forward"):
        found(image(2, 2))


def test_module_dict_is_a_dict():
    a, b = layer.Linear(1), layer.Linear(2)
    found = layer.ModuleDict({"a": a})
    found["b"] = b
    assert (list(found), list(found.values()), list(found.items())) == (
        ["a", "b"],
        [a, b],
        [("a", a), ("b", b)],
    )
    assert "a" in found
    assert "c" not in found
    assert found.b is b
    found.update([("a", b)])
    assert found.pop("a") is b
    assert (len(found), list(found.keys())) == (1, ["b"])
    found.clear()
    assert names_of(found) == []
    with pytest.raises(KeyError):
        del found["a"]
