"""Recorded steps give the same bits as executed ones, whatever changes between steps. Steps that
cannot be replayed are executed, with a reason."""

import copy
import pickle
import threading
import warnings

import numpy as np
import pytest
import singa
from bits import bits
from device_under_test import KEPT_APART
from graph_net import Net, alike, compiled, images, labels, sgd, train
from recorded import graphs
from singa import autograd, layer, model, opt, tensor
from singa.graph import GraphWarning
from updates import RULE_NAMES, RULES

pytestmark = pytest.mark.usefixtures("no_warning")


@pytest.mark.parametrize(
    ("setting", "before"),
    [
        (singa.set_strict, singa.is_strict),
        (
            lambda high: singa.set_float32_precision("high" if high else "highest"),
            lambda: singa.get_float32_precision() == "high",
        ),
        (singa.set_deterministic, singa.is_deterministic),
    ],
)
def test_settings_that_choose_implementations_tell_steps_apart(setting, before):
    m = compiled(True)
    m.eval()
    x, was = images(0), before()
    try:
        for count in (1, 2):
            for _ in range(3):
                m(x)
            assert len(m.memory_plan()["graphs"]) == count
            setting(not before())
    finally:
        setting(was)
    m(x)
    assert len(m.memory_plan()["graphs"]) == 2  # the first one is valid again


@pytest.mark.parametrize(
    "optimizer",
    [
        sgd,
        lambda: sgd(clip_norm=0.5),
        lambda: sgd(accumulate=3),
        lambda: opt.SGD(lr=0.1),
        lambda: sgd(groups=[opt.ParamGroup(opt.norm_and_bias, 0.0, lr_scale=2.0)]),
        *[lambda rule=rule: rule(lr=opt.WarmUp(0.01, 4), weight_decay=0.1) for rule in RULES],
    ],
    ids=["sgd", "clip", "accumulate", "plain", "groups", *RULE_NAMES],
)
def test_replayed_steps_are_the_executed_ones(optimizer):
    eager, graph = alike(lambda m: train(m, 9), optimizer=optimizer)
    assert graph.forwards < eager.forwards
    assert len(graph.memory_plan()["graphs"]) == 1
    assert graph.optimizer.steps == eager.optimizer.steps


def test_short_batches_and_evaluation_have_graphs_of_their_own():
    evaluated = []

    def run(m):
        seen = []
        for _ in range(5):
            m.train()
            seen.append(train(m, 4, batches=(5, 5, 5, 3)))
            m.eval()
            evaluated.append(m(images(100, 4)).numpy())
        return seen

    _, m = alike(run)
    np.testing.assert_allclose(evaluated[5:], evaluated[:5], atol=1e-5)  # batch norm is folded
    assert len(m.memory_plan()["graphs"]) == 3


def test_results_that_are_kept_stay_as_they_were():
    def run(m):
        kept = [m(images(i), labels()) for i in range(8)]
        return [[t.numpy().tobytes() for t in results] for results in kept]

    alike(run)


def test_inputs_may_be_views_of_anything():
    def inputs(i):
        rng = np.random.default_rng([3, i])
        wide = tensor.from_numpy(rng.standard_normal((9, 2, 6, 12)).astype(np.float32))
        return [images(i), wide[2:7, :, :, ::2], wide[1:6, :, :, 3:9]][i % 3]

    alike(lambda m: [m(inputs(i), labels())[1].numpy().tobytes() for i in range(9)])


def test_one_tensor_as_two_arguments():
    class Sum(model.Model):
        def forward(self, a, b):
            return autograd.add(a, autograd.mul(b, b))

    m = Sum()
    x = [tensor.from_numpy(np.full((3,), i, np.float32)) for i in range(8)]
    m.compile([x[0], x[1]], is_train=False, use_graph=True)
    m.eval()
    for i in range(6):
        assert m(x[i], x[i]).numpy()[0] == i + i * i
    for i in range(6):
        assert m(x[i], x[i + 1]).numpy()[0] == i + (i + 1) ** 2


@pytest.mark.usefixtures("no_audits")
def test_no_python_runs_in_a_replay_but_the_optimizer():
    m = compiled(True)
    train(m, 5)
    count = m.forwards
    steps = m.optimizer.steps
    train(m, 4)
    assert m.forwards == count
    assert m.optimizer.steps == steps + 4


# Changes outside of a step are detected.


def test_loaded_replaced_and_frozen_parameters_are_seen(tmp_path):
    def run(m):
        train(m, 5)
        m.save_states(tmp_path / "a.npz")
        seen = [train(m, 2)]
        m.load_states(tmp_path / "a.npz")
        seen.append(train(m, 4))
        m.conv.W.data = m.conv.W.data.Clone()  # another block
        seen.append(train(m, 5))
        m.conv.freeze()
        seen.append(train(m, 5))
        m.conv.freeze(False)
        m.drop.ratio = 0.1
        seen.append(train(m, 5))
        m.set_optimizer(opt.SGD(lr=0.01))
        return [*seen, train(m, 5)]

    _, m = alike(run)
    assert len(m.memory_plan()["graphs"]) == 1


def test_parameters_read_as_arrays_between_steps():
    def run(m):
        seen, held = [], []
        for i in range(10):
            seen.append(m(images(i), labels())[1].numpy().tobytes())
            array = np.asarray(m.conv.W)  # shares the memory, which must not move
            seen.append(array.tobytes())
            if i > 6:
                held.append(array)
        return seen

    alike(run)


def test_an_autocast_around_the_model_is_seen():
    def run(m):
        seen = [train(m, 5)]
        with autograd.autocast("bfloat16"):
            seen.append(train(m, 5))
        return [*seen, train(m, 5)]

    _, m = alike(run)
    assert len(m.memory_plan()["graphs"]) == 2


# Steps that cannot be replayed.


class Odd(Net):
    not_settings = ("steps", "all")  # seen all the same, by what operations do

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        loss = self.odd(x, out, loss)
        self.optimizer(loss)
        return out, loss


class LooksAtTheLoss(Odd):
    def odd(self, x, out, loss):
        self.last = float(loss.numpy().reshape(-1)[0])
        return loss


class ChangesANumber(Odd):
    def odd(self, x, out, loss):
        object.__setattr__(self, "steps", getattr(self, "steps", 0) + 1)
        return autograd.mul(loss, tensor.from_numpy(np.float32([1.0 / self.steps])))


class ScalesByAStep(Odd):
    def odd(self, x, out, loss):
        object.__setattr__(self, "steps", getattr(self, "steps", 0) + 1)
        return loss * (1.0 / self.steps)


class MakesATensor(Odd):
    def odd(self, x, out, loss):
        noise = tensor.from_numpy(np.ones((1,), np.float32))
        return autograd.mul(loss, noise)


class KeepsAll(Odd):
    def odd(self, x, out, loss):
        self.__dict__.setdefault("all", []).append(autograd.exp(out))
        return loss


class ChangesItsWay(Odd):
    def odd(self, x, out, loss):
        object.__setattr__(self, "steps", getattr(self, "steps", 0) + 1)
        return loss if self.steps % 2 else autograd.add(loss, autograd.mul(loss, loss))


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (LooksAtTheLoss, "looks at results"),
        (ChangesANumber, "data of the host"),
        (ScalesByAStep, "number changes|data of the host"),
        (MakesATensor, "data of the host"),
        (KeepsAll, "keeps results"),
        (ChangesItsWay, "operation"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_replayed_is_executed_and_says_why_once(net, reason):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        _, m = alike(lambda m: train(m, 9), net)
    messages = [str(w.message) for w in caught if w.category is GraphWarning]
    assert len(messages) == 1
    with pytest.raises(RuntimeError, match=reason):
        m.memory_plan()
    assert graphs(m) == []


def test_a_step_that_updates_parameters_itself():
    """Backward and apply are called explicitly, as in SINGA's scripts."""

    class ByHand(Net):
        def train_one_batch(self, x, y):
            out = self.forward(x)
            loss = autograd.softmax_cross_entropy(out, y)
            for p, g in autograd.backward(loss):
                self.optimizer.apply(p.name, p, g)
            self.optimizer.step()
            return out, loss

    _, graph = alike(lambda m: train(m, 8), ByHand)
    assert len(graph.memory_plan()["graphs"]) == 1


def test_an_optimizer_that_keeps_gradients():
    class Keeper(opt.SGD):
        def apply_all(self, updates):
            self.seen = [g for _, _, g in updates]
            super().apply_all(updates)

    def run(m):
        seen = []
        for i in range(7):
            m(images(i), labels())
            seen.append([g.numpy().tobytes() for g in m.optimizer.seen])
        return seen

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        alike(run, optimizer=lambda: Keeper(lr=0.1))


def test_arguments_that_hide_tensors_are_executed():
    class Box:
        def __init__(self, value):
            self.value = value

    class Boxed(Net):
        def train_one_batch(self, x, box):
            return super().train_one_batch(x, box.value)

    m = compiled(True, net=Boxed)
    with pytest.warns(GraphWarning, match="Box"):
        m(images(0), Box(labels()))


def test_numbers_among_the_arguments_tell_steps_apart():
    class Scaled(Net):
        def train_one_batch(self, x, y, scale=1.0):
            out = self.forward(x)
            loss = autograd.softmax_cross_entropy(out, y) * scale
            self.optimizer(loss)
            return out, loss

    pairs = [(i, (1.0, 0.5)[i % 2]) for i in range(10)]
    run = lambda m: [m(images(i), labels(), scale=s)[1].numpy().tobytes() for i, s in pairs]  # noqa: E731
    _, m = alike(run, Scaled)
    assert len(m.memory_plan()["graphs"]) == 2


# Errors, threads, copies.


@pytest.mark.cpu("a GPU detects wrong values after the update is queued")
def test_an_error_in_a_step_leaves_the_model_able_to_go_on():
    def run(m):
        seen = []
        for i in range(10):
            if i in (1, 6):
                state = singa.device.get_default_device().random_state()
                wrong = tensor.from_numpy(np.array([0, 1, 99, 1, 0], np.int32))
                before = bits(m)
                with pytest.raises(IndexError, match="99"):
                    m(images(i), wrong)
                # Batch statistics are updated before the loss raises.
                for name, value in before.items():
                    if "running" not in name:
                        assert bits(m)[name] == value
                singa.device.get_default_device().set_random_state(state)
            seen.append(m(images(i), labels())[1].numpy().tobytes())
        return seen

    _, m = alike(run)
    assert len(m.memory_plan()["graphs"]) == 1


def test_opcheck_compares_what_is_replayed():
    m = compiled(True)
    train(m, 5)
    graph = graphs(m)[0]
    convolutions = graph.ToString().count(" ConvForward")
    with singa.opcheck(every=1, action="raise") as check:
        train(m, 2)
    assert check.stats()["ConvForward"]["checked"] == 2 * convolutions > 0
    assert graphs(m) == [graph]
    train(m, 2)


def test_opcheck_warns_of_a_name_that_no_replay_has():
    m = compiled(True)
    train(m, 5)
    with (
        pytest.warns(UserWarning, match="nothing named ConvForwrad"),
        singa.opcheck(ops=["ConvForwrad"]),
    ):
        train(m, 1)


def test_threads_that_infer_at_once():
    m = compiled(True)
    train(m, 4)
    m.eval()
    expected = [m(images(i)).numpy() for i in range(6)]
    failures = []

    def infer(offset):
        m.eval()
        for k in range(30):
            i = (k + offset) % 6
            # A thread that finds the graph in use executes the step, without folded batch norm.
            if not np.allclose(m(images(i)).numpy(), expected[i], rtol=0, atol=1e-5):
                failures.append((offset, k))

    threads = [threading.Thread(target=infer, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_copies_have_graphs_of_their_own():
    m = compiled(True)
    train(m, 5)
    for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        singa.seed(8)
        got = train(twin, 6)
        reference = copy.deepcopy(m)
        reference.graph(False)
        singa.seed(8)
        assert got == train(reference, 6)


def test_gradients_flow_through_an_evaluated_model_where_they_are_asked_for():
    m = compiled(True)
    m.eval()
    x = images(0)
    x.stores_grad = True
    for _ in range(5):
        with autograd.enable_grad():
            gradients = dict(autograd.backward(autograd.reduce_sum(m(x), keepdims=0)))
        assert np.abs(gradients[x].numpy()).sum() > 0


# Memory.


def test_planned_memory_is_what_is_used():
    class Deep(model.Model):
        def __init__(self):
            super().__init__()
            self.layers = []
            for i in range(12):
                conv = layer.Conv2d(16, 3, padding=1, bias=False)
                setattr(self, f"conv{i}", conv)
                setattr(self, f"bn{i}", layer.BatchNorm2d(momentum=0.1))
            self.fc = layer.Linear(3)
            self.loss = autograd.softmax_cross_entropy

        def forward(self, x):
            for i in range(12):
                x = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x), relu=True)
            return self.fc(autograd.flatten(autograd.globalaveragepool(x)))

    device = singa.device.get_default_device()
    rng = np.random.default_rng(1)
    x = tensor.from_numpy(rng.standard_normal((16, 16, 24, 24)).astype(np.float32))
    y = tensor.from_numpy(rng.integers(0, 3, 16).astype(np.int32))
    m = Deep()
    m.set_optimizer(opt.SGD(lr=0.01, momentum=0.9))
    m.compile([x], is_train=True, use_graph=True)
    for _ in range(7):  # a GPU captures a step after its first replay
        m(x, y)
    plan = m.memory_plan()
    (graph,) = plan["graphs"]
    assert graph["peak"] <= graph["arena"] <= max(1.05 * graph["peak"], KEPT_APART)
    assert graph["arena"] < max(0.7 * graph["unshared"], KEPT_APART)
    assert plan["arena_bytes"] == graph["arena"]
    assert plan["planned_bytes"] == sum(plan["by_kind"].values())
    # A replay allocates only its results.
    device.ResetPeak()
    live = device.memory().live
    _held = m(x, y)
    results = plan["by_kind"]["results"]
    assert device.memory().peak - live <= results + 4096
    assert "arena" in str(plan)


@pytest.mark.parametrize("divide", [False, True])
def test_a_product_with_a_constant_keeps_no_operand(divide):
    """Stochastic depth multiplies by constants, whose gradient nobody needs: nothing waits for
    backward."""

    class Chain(model.Model):
        def forward(self, x):
            for factor in self.factors:
                x = x / factor if divide else x * factor
            return x

        def train_one_batch(self, x):
            loss = autograd.reduce_sum(self.forward(x * 2.0))
            return autograd.gradients(loss)[x]

    net = Chain()
    x = tensor.Tensor((64, 1024), stores_grad=True)
    x.set_value(1.0)
    net.factors = [tensor.from_numpy(np.full((64, 1), 2.0, np.float32)) for _ in range(8)]
    for factor in net.factors:
        factor.requires_grad = False
    net.compile([x], is_train=True, use_graph=True)
    for _ in range(6):
        dx = net(x)
    np.testing.assert_array_equal(dx.numpy(), 2.0 * 2.0 ** (-8 if divide else 8))
    (graph,) = net.memory_plan()["graphs"]
    assert graph["peak"] <= 3 * x.size() * 4 + 65536
