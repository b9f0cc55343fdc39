"""Names, files and optimizers of layers that are shared, moved, wrapped, tied or replaced."""

import copy
import gc
import pickle
import warnings

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, opt, tensor
from singa.files.state_files import load_safetensors
from singa.training import checkpoint

NAMES = ["enc.W", "enc.b", "head.W", "head.b"]


class Net(model.Model):
    def __init__(self, classes=3):
        super().__init__()
        self.enc, self.head = layer.Linear(6), layer.Linear(classes)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        return self.head(autograd.relu(self.enc(x)))


class Wrap(model.Model):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return autograd.softmax(self.net.forward(x))


class Tied(Net):
    """Two square matrices, which `tie` makes one."""

    def __init__(self):
        super().__init__()
        self.enc, self.head = (layer.Linear(6, bias=False) for _ in range(2))

    def tie(self):
        self.head.W = self.enc.W


def data():
    rng = np.random.default_rng(0)
    x = tensor.from_numpy(rng.standard_normal((4, 6)).astype(np.float32))
    return x, tensor.from_numpy(np.array([0, 1, 2, 1], np.int32))


OPTIMIZERS = {
    "momentum": lambda: opt.SGD(lr=0.1, momentum=0.9),
    "adam": lambda: opt.Adam(lr=0.01),
    "groups": lambda: opt.SGD(
        lr=0.1, momentum=0.9, groups=[opt.ParamGroup("enc.*", weight_decay=0.5)]
    ),
}


def made(optimizer="momentum", kind=Net, steps=3, graph=False):
    singa.seed(0)
    net, (x, y) = kind(), data()
    net.set_optimizer(OPTIMIZERS[optimizer]())
    net.compile([x], is_train=True, use_graph=graph)
    for _ in range(steps):
        net(x, y)
    return net


def states(net):
    return {name: value.numpy() for name, value in net.get_states().items()}


def assert_same(net, other):
    for name, value in states(other).items():
        np.testing.assert_array_equal(states(net)[name], value, name)


# --- the names are those of the model that is asked


def test_names_follow_the_path_from_the_layer_that_is_asked():
    net = made()
    wrapped = Wrap(net)
    assert list(net.get_params()) == list(net.get_states()) == NAMES
    assert list(wrapped.get_states()) == [f"net.{name}" for name in NAMES]
    assert list(net.enc.get_params()) == ["W", "b"]
    assert sorted(net.optimizer.get_states()["moments"]) == NAMES
    assert wrapped.net.enc.name == "net.enc"  # for messages: where it was put last


def test_a_layer_under_two_names():
    class Twice(layer.Layer):
        def __init__(self):
            super().__init__()
            self.a = layer.Linear(6)
            self.c, self.all = self.a, [self.a, layer.Linear(2)]

        def forward(self, x):
            return self.all[1](self.c(self.a(x)))

    twice, x = Twice(), data()[0]
    twice(x)
    assert list(twice.get_params()) == ["a.W", "a.b", "all.1.W", "all.1.b"]
    assert list(twice.get_states()) == ["a.W", "a.b", "c.W", "c.b", "all.1.W", "all.1.b"]
    assert len(list(twice.sublayers())) == 2
    values = {name: np.full(p.shape, 0.5) for name, p in twice.get_params().items()}
    twice.set_states(values)  # one name is enough
    values = {name.replace("a.", "c."): value for name, value in values.items()}
    values["all.1.W"], values["all.1.b"] = values.pop("cll.1.W", np.ones((6, 2))), np.ones(2)
    assert twice.set_states({k: v for k, v in values.items() if k in twice.get_states()}) == (
        [],
        [],
    )


def test_a_scripts_own_get_params():
    """SINGA's layers return full names."""

    class Own(layer.Layer):
        def initialize(self, x):
            self.box = type("Box", (), {})()
            self.box.w = tensor.Tensor((6, 3), stores_grad=True, name=f"{self.name}.w")
            self.box.w.gaussian(0.0, 0.5)

        def forward(self, x):
            return autograd.matmul(x, self.box.w)

        def get_params(self):
            return {self.box.w.name: self.box.w}

        get_states = get_params

    class Holder(Net):
        def __init__(self):
            super().__init__()
            self.head = Own()

    net = made(kind=Holder)
    assert list(net.get_params()) == ["enc.W", "enc.b", "head.w"]
    net.set_states({"enc.W": np.ones((6, 6)), "enc.b": np.ones(6), "head.w": np.ones((6, 3))})
    np.testing.assert_array_equal(net.head.box.w.numpy(), np.ones((6, 3)))
    net.head.set_params({"head.w": np.zeros((6, 3))})
    np.testing.assert_array_equal(net.head.box.w.numpy(), np.zeros((6, 3)))


# --- the optimizer's state belongs to the parameter


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("what", ["wrap", "share", "rename", "move", "file", "copy"])
def test_training_goes_on_the_same(what, optimizer, graph, tmp_path):
    (x, y), plain = data(), made(optimizer, graph=graph)
    net = made(optimizer, graph=graph)
    keep = None
    if what == "wrap":
        keep = Wrap(Wrap(net))
    elif what == "share":
        keep = Wrap(net.enc)
    elif what == "rename":
        net.enc.name, net.head.W.name = "other", "more"
    elif what == "move":
        net.parts = [net.enc, net.head]
        forward = lambda x: net.parts[1](autograd.relu(net.parts[0](x)))  # noqa: E731
        del net.enc, net.head
        net.forward = forward
        kept = net.optimizer.get_states()[net.optimizer.slots[0]]
        assert kept.keys() == {"parts.0.W", "parts.0.b", "parts.1.W", "parts.1.b"}
    elif what == "copy":
        keep = copy.deepcopy(Wrap(net))
        net = keep.net
    else:
        keep = Wrap(net)
        checkpoint.save(tmp_path / "a.safetensors", net, net.optimizer)
        net = made(optimizer, steps=0, graph=graph)
        checkpoint.load(tmp_path / "a.safetensors", net, net.optimizer)
    for _ in range(5):
        plain(x, y)
        net(x, y)
    for mine, other in zip(net.get_params().values(), plain.get_params().values(), strict=True):
        np.testing.assert_array_equal(mine.numpy(), other.numpy())
    del keep


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("keep_old", [False, True])
@pytest.mark.parametrize("classes", [3, 5])
@pytest.mark.parametrize("set_on_model", [False, True])
def test_a_replaced_layer_starts_without_state(classes, keep_old, graph, set_on_model, tmp_path):
    """Its first update is that of a new optimizer, by float64 NumPy."""
    singa.seed(0)
    net, (x, y) = Net(), data()
    if set_on_model:
        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    else:
        object.__setattr__(net, "optimizer", opt.SGD(lr=0.1, momentum=0.9))
    net.compile([x], is_train=True, use_graph=graph)
    for _ in range(4):
        net(x, y)
    old = net.head
    net.head = layer.Linear(classes)
    if not keep_old:
        del old
    net.eval()
    net(x)
    net.train()
    if set_on_model:  # the file does not have the old layer's state either
        checkpoint.save(tmp_path / "a.safetensors", net, net.optimizer)
        in_file = load_safetensors(tmp_path / "a.safetensors")[0].keys()
        assert "model/head.W" in in_file
        assert "optimizer/moments/enc.W" in in_file
        assert "optimizer/moments/head.W" not in in_file
    w, b = net.head.W.numpy().astype(np.float64), net.head.b.numpy().astype(np.float64)
    h = np.maximum(x.numpy() @ net.enc.W.numpy().astype(np.float64) + net.enc.b.numpy(), 0)
    scores = h @ w + b
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(4), y.numpy()] -= 1
    net(x, y)
    np.testing.assert_allclose(net.head.W.numpy(), w - 0.1 * h.T @ p / 4, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(net.head.b.numpy(), b - 0.1 * p.sum(0) / 4, rtol=1e-4, atol=1e-6)
    if set_on_model:
        assert set(NAMES) <= net.optimizer.get_states()["moments"].keys()
        assert net.optimizer.get_states()["moments"]["head.W"].shape == (6, classes)


def test_a_users_optimizer_starts_a_replaced_layer_anew():
    class Counting(opt.Optimizer):
        def __init__(self):
            super().__init__(0.1)
            self.calls, self.rates = {}, {"head.W": 0.5}  # state, and no state

        def apply(self, name, param, grad):
            if name not in self.calls:
                self.calls[name] = tensor.Tensor((1,))
            self.calls[name] += 1.0
            param.copy_from(param - grad * self.rates.get(name, 0.1))

    net, (x, y) = made(steps=0), data()
    net.set_optimizer(Counting())
    net(x, y), net(x, y)
    net.head = layer.Linear(3)
    net(x, y)
    calls = {name: count.item() for name, count in net.optimizer.calls.items()}
    assert calls == {"enc.W": 3, "enc.b": 3, "head.W": 1, "head.b": 1}
    assert net.optimizer.rates == {"head.W": 0.5}


def test_state_that_was_loaded_belongs_to_the_next_of_that_name():
    """An optimizer whose model is gone continues with another one."""
    net, (x, y) = made(), data()
    optimizer = net.optimizer
    saved, kept = states(net), copy.deepcopy(optimizer.get_states())
    net(x, y)
    wanted = states(net)
    del net
    gc.collect()
    other = made(steps=0)
    other.set_optimizer(optimizer)
    other.set_states(saved)
    optimizer.set_states(kept)
    other(x, y)
    for name, value in states(other).items():
        np.testing.assert_array_equal(value, wanted[name], name)


def test_averages_belong_to_their_weights():
    """The layer moves, and another one takes its name."""
    net, (x, y) = made(), data()
    ema = opt.EMA(net, 0.5)
    ema.update()
    expected = net.enc.W.numpy().astype(np.float64)
    net.first, net.enc = net.enc, layer.Linear(6)
    net.forward = lambda x: net.head(net.enc(autograd.relu(net.first(x))))
    for _ in range(2):
        net(x, y)
        ema.update()
        expected = 0.5 * expected + 0.5 * net.first.W.numpy()
    averages = ema.get_states()["averages"]
    assert averages.keys() == net.get_params().keys()
    np.testing.assert_allclose(averages["first.W"].numpy(), expected, rtol=1e-5, atol=1e-6)
    net.enc = layer.Linear(6)
    net(x, y)
    with ema.applied():
        np.testing.assert_array_equal(net.first.W.numpy(), averages["first.W"].numpy())


@pytest.mark.parametrize("use_buffers", [False, True])
def test_a_tied_weight_is_averaged_once(use_buffers):
    net, (x, y) = made(kind=Tied), data()
    net.tie()
    ema = opt.EMA(net, 0.5, use_buffers)
    ema.update()
    before = net.enc.W.numpy()
    net(x, y)
    ema.update()
    average = ema.get_states()["averages"]["enc.W"].numpy()
    np.testing.assert_allclose(average, (before + net.enc.W.numpy()) / 2, rtol=1e-5, atol=1e-6)


def test_an_optimizer_refuses_the_state_of_other_parameters():
    net, other = made(), made(kind=TrainedWrap)
    before = {name: t.numpy() for name, t in other.optimizer.get_states()["moments"].items()}
    with pytest.raises(ValueError, match=r"of other parameters: it has enc\.W, .* net\.enc\.W"):
        other.optimizer.set_states(net.optimizer.get_states())
    after = {name: t.numpy() for name, t in other.optimizer.get_states()["moments"].items()}
    np.testing.assert_equal(after, before)


# --- files from before


def save_all(path, net):
    ema = opt.EMA(net, 0.5)
    ema.update()
    checkpoint.save(path.with_suffix(".safetensors"), net, net.optimizer, ema=ema)
    net.save_states(path.with_suffix(".npz"))
    return ema


class TrainedWrap(Wrap):
    def __init__(self):
        super().__init__(Net())
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x):
        return self.net.forward(x)

    train_one_batch = Net.train_one_batch


@pytest.mark.parametrize("unwrapped", [False, True])
def test_files_load_after_the_model_was_wrapped(unwrapped, tmp_path):
    """And after it was taken out again. A warning says so."""
    kinds = [Net, TrainedWrap][:: -1 if unwrapped else 1]
    first, (x, y) = made(kind=kinds[0]), data()
    ema = save_all(tmp_path / "a", first)
    other = made(kind=kinds[1], steps=0)
    with pytest.warns(UserWarning, match=r"a\.npz .*enc\.W as .*enc\.W"):
        other.load_states(tmp_path / "a.npz")
    for mine, value in zip(other.get_states().values(), states(first).values(), strict=True):
        np.testing.assert_array_equal(mine.numpy(), value)
    other, average = made(kind=kinds[1], steps=0), None
    average = opt.EMA(other, 0.5)
    with pytest.warns(UserWarning, match=r"a\.safetensors .*head\.b as .*head\.b"):
        checkpoint.load(tmp_path / "a.safetensors", other, other.optimizer, ema=average)
    averages = [each.get_states()["averages"].values() for each in (average, ema)]
    for mine, value in zip(*averages, strict=True):
        np.testing.assert_array_equal(mine.numpy(), value.numpy())
    first(x, y), other(x, y)  # with the momentum
    for mine, value in zip(other.get_states().values(), states(first).values(), strict=True):
        np.testing.assert_array_equal(mine.numpy(), value)


class Two(Net):
    """Two layers of equal names inside."""

    def __init__(self):
        super().__init__()
        self.body = Wrap(Net())
        self.other = Wrap(Net())
        del self.enc, self.head

    def forward(self, x):
        return self.body.forward(x) + self.other.forward(x)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"enc.W": (6, 6)}, r"missing: .*body\.net\.enc\.W"),  # might be either
        ({"q.enc.W": (6, 6)}, r"unexpected: q\.enc\.W"),
    ],
)
def test_names_that_are_not_clear_are_refused(values, message, tmp_path):
    net = made(kind=Two, steps=0)
    before = states(net)
    np.savez(tmp_path / "a.npz", **{n: np.zeros(s, np.float32) for n, s in values.items()})
    with pytest.raises(ValueError, match=message):
        net.load_states(tmp_path / "a.npz")
    np.testing.assert_equal(states(net), before)


def test_ends_of_names_must_have_equal_shapes(tmp_path):
    first = made(kind=lambda: Net(4))
    first.save_states(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"missing: net\.enc.*unexpected: enc"):
        made(kind=TrainedWrap, steps=0).load_states(tmp_path / "a.npz")


def test_shorter_names_do_not_hide_longer_ones(tmp_path):
    """W ends net.W and net.inner.W, but inner.W only ends one."""

    class Inner(layer.Layer):
        def __init__(self):
            super().__init__()
            self.inner = layer.Linear(6, bias=False)

        def initialize(self, x):
            self._new_param("W", (6, 6), x, lambda t: t.gaussian(0.0, 1.0))

        def forward(self, x):
            return self.inner(autograd.matmul(x, self.W))

    class Holder(model.Model):
        def __init__(self, wrapped):
            super().__init__()
            self.net = Wrap(Inner()) if wrapped else Inner()

        def forward(self, x):
            return self.net.forward(x)

    first, other = Holder(False), Wrap(Holder(False))
    for net in (first, other):
        net.compile([data()[0]], is_train=False)
    first.save_states(tmp_path / "a.npz")
    with pytest.warns(UserWarning, match="ends of their names"):
        other.load_states(tmp_path / "a.npz")
    assert_same(other.net, first)


# --- tied weights


def test_a_file_from_before_two_weights_were_tied(tmp_path):
    net = made(kind=Tied)
    net.save_states(tmp_path / "a.npz")
    net.tie()
    with pytest.warns(UserWarning, match=r"enc\.W and head\.W are one tensor.* those of head\.W"):
        net.load_states(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        np.testing.assert_array_equal(net.enc.W.numpy(), file["head.W"])


def test_states_of_tied_weights_fit_tied_and_untied_models(tmp_path):
    net, (x, y) = made(kind=Tied), data()
    net.tie()
    net(x, y)
    assert list(net.get_params()) == ["enc.W"]
    net.save_states(tmp_path / "a.npz")
    for tie in (False, True):
        other = made(kind=Tied, steps=0)
        if tie:
            other.tie()
        other.load_states(tmp_path / "a.npz")
        for each in (other.enc, other.head):
            np.testing.assert_array_equal(each.W.numpy(), net.enc.W.numpy())
    np.savez(tmp_path / "b.npz", **{"head.W": net.enc.W.numpy() * 2})  # as earlier versions did
    net.load_states(tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as file:
        np.testing.assert_array_equal(net.enc.W.numpy(), file["head.W"])


def test_training_and_checkpoints_of_tied_weights(tmp_path):
    net, (x, y) = made(kind=Tied), data()
    net.tie()
    net(x, y)
    checkpoint.save(tmp_path / "a.safetensors", net, net.optimizer)
    other = made(kind=Tied, steps=0)
    other.tie()
    checkpoint.load(tmp_path / "a.safetensors", other, other.optimizer)
    net(x, y), other(x, y)
    assert_same(other, net)


def test_nothing_warns_without_need(tmp_path):
    net = made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.save_states(tmp_path / "a.npz")
        net.load_states(tmp_path / "a.npz")


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_an_optimizer_that_knows_its_model(how):
    net = made()
    net.optimizer.net = net
    twin = how(net.optimizer)
    assert sorted(twin.get_states()["moments"]) == NAMES
    assert sorted(twin.net.optimizer.get_states()["moments"]) == NAMES


# --- strict


def test_load_states_that_are_not_strict_say_what_was_left_out(tmp_path):
    net = made()
    arrays = {"enc.W": np.ones((6, 6)), "enc.b": np.ones(6), "other.W": np.ones(2), "aux/n": 5}
    np.savez(tmp_path / "a.npz", **arrays)
    before = states(net)
    with pytest.raises(ValueError, match=r"missing: head\.W, head\.b; unexpected: other\.W"):
        net.load_states(tmp_path / "a.npz")
    np.testing.assert_equal(states(net), before)
    loaded = net.load_states(tmp_path / "a.npz", strict=False)
    assert (loaded.missing, loaded.unexpected) == (["head.W", "head.b"], ["other.W"])
    assert list(loaded) == ["n"]
    assert loaded["n"].numpy() == 5
    np.testing.assert_array_equal(net.enc.W.numpy(), np.ones((6, 6)))
    np.testing.assert_array_equal(net.head.W.numpy(), before["head.W"])
    np.savez(tmp_path / "b.npz", **{"enc.W": np.ones((6, 5))})
    with pytest.raises(ValueError, match=r"enc\.W is \(6, 5\) instead of \(6, 6\)"):
        net.load_states(tmp_path / "b.npz", strict=False)


def test_load_torch_that_is_not_strict_names_what_did_not_fit():
    net = made()
    before = states(net)
    w, state = np.arange(36, dtype=np.float32).reshape(6, 6), {}
    state = {"enc.weight": w, "head.weight": np.ones((9, 6)), "x.weight": np.ones(1)}
    missing, unexpected = net.load_torch(state, strict=False)
    assert missing == ["enc.bias", "head.weight", "head.bias"]
    assert unexpected == ["x.weight", "head.weight"]
    np.testing.assert_array_equal(net.enc.W.numpy(), w.T)
    np.testing.assert_array_equal(net.head.W.numpy(), before["head.W"])


def test_foreign_names_are_refused_and_in_singas_way_only_if_none_fits(monkeypatch):
    net = made()
    foreign = {"enc.b": np.full(6, 4.0), "fc.W": np.ones(1)}
    for function in (net.set_states, net.set_params):
        with pytest.raises(ValueError, match=r"missing: enc\.W.*unexpected: fc\.W"):
            function(foreign)
        assert np.any(net.enc.b.numpy() != 4)
    monkeypatch.setattr("singa.compat.enabled", True)
    net.set_states(foreign)
    np.testing.assert_array_equal(net.enc.b.numpy(), np.full(6, 4.0))
    with pytest.raises(ValueError, match=r"Net has none of these names: fc\.W"):
        net.set_states({"fc.W": np.ones(1)})
    with pytest.raises(ValueError, match=r"missing: enc\.W"):
        net.set_states(foreign, strict=True)


def test_freeze_takes_patterns():
    net = made()

    def frozen():
        return [name for name, p in net.get_params().items() if not p.requires_grad]

    net.freeze("enc.*")
    assert frozen() == ["enc.W", "enc.b"]
    net.freeze(["head.b", "*.W"])
    assert frozen() == NAMES
    net.freeze("*.b", False)
    assert frozen() == ["enc.W", "head.W"]
    net.freeze(False)
    assert frozen() == []
    net.freeze()
    assert frozen() == NAMES
    net.enc.freeze("W", frozen=False)
    assert frozen() == ["enc.b", "head.W", "head.b"]
    with pytest.raises(ValueError, match=r"no parameter matches 'enc\.c' in Net"):
        net.freeze(["enc.W", "enc.c"])
    assert frozen() == ["enc.b", "head.W", "head.b"]
