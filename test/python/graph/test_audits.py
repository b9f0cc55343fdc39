"""Audits: now and then the code of a recorded step runs once more, and its recording is compared
with what is replayed."""

import gc
import warnings

import numpy as np
import pytest
import singa
from bits import bits
from graph_net import Net, assert_same, images, labels, sgd
from recorded import graphs
from singa import autograd, device, layer, model, opt, plan_cache, tensor, tuning
from singa.graph import GraphWarning, audits, step_graphs


class Reader(Net):
    """Its loss has a factor from a file, which a replay cannot see."""

    not_settings = ("forwards", "file", "seen")

    def __init__(self, file=None):
        super().__init__()
        self.file, self.seen = file, []

    def factor(self):
        self.seen.append(len(self.seen))
        return float(self.file.read_text()) if self.file else 1.0

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y) * self.factor()
        self.optimizer(loss)
        return out, loss


def compiled(net, use_graph, optimizer=None, *more, training=True):
    singa.seed(11)
    m = net
    m.set_optimizer(optimizer or sgd())
    m.compile([images(0), *more], is_train=training, use_graph=use_graph)
    singa.seed(5)
    return m


def trained(m, steps, change=lambda i: None):
    found = []
    for i in range(steps):
        change(i)
        found.append([t.numpy().tobytes() for t in m(images(i), labels())])
    return found, bits(m)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "factor"
    path.write_text("1.0")
    return path


OPTIMIZERS = {
    "recorded": sgd,
    "clipped": lambda: sgd(clip_norm=0.5),
    "accumulated": lambda: sgd(accumulate=3),
    "host call": lambda: opt.RMSProp(lr=0.01, momentum=0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.usefixtures("no_warning")
def test_an_audit_of_training_is_the_step(name, monkeypatch):
    results, counts = [], []
    for use_graph, value in ((False, "1"), (True, "0"), (True, "1")):
        monkeypatch.setenv("SINGA_AUDIT", value)
        m = compiled(Reader(), use_graph, OPTIMIZERS[name]())
        results.append(trained(m, 24))
        counts.append((len(m.seen), m.optimizer.steps))
    for found, states in results[1:]:
        assert found == results[0][0]
        assert_same(states, results[0][1])
    assert counts[2][0] == counts[1][0] + 2  # the 4th and the 16th replay
    assert {steps for _, steps in counts} == {24 if name != "accumulated" else 8}


def warned(m, steps, change):
    """As `trained`, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        found = trained(m, steps, change)
    return found, [str(w.message) for w in caught if w.category is GraphWarning]


def test_a_change_that_nothing_else_sees_is_found(file):
    m = compiled(Reader(file), True)
    (found, states), messages = warned(m, 30, lambda i: file.write_text("5.0" if i >= 9 else "1.0"))
    (message,) = messages
    # Three calls are recorded. Call 3 + 4 was an audit, call 3 + 16 is one.
    assert "an audit in call 19" in message
    assert "calls 8 to 18 of the step may have missed a change" in message
    assert "a number changes from step to step, 1.000000 to 5.000000" in message
    assert "operation" in message
    assert len(graphs(m)) == 1  # of the newer recording
    m = compiled(Reader(file), False)
    expected, same = trained(m, 30, lambda i: file.write_text("5.0" if i >= 18 else "1.0"))
    assert found == expected
    assert_same(states, same)


def test_what_changes_at_each_step_is_given_up(file):
    m = compiled(Reader(file), True)
    (found, _), messages = warned(m, 30, lambda i: file.write_text("1.0" if i < 6 else str(i)))
    assert "an audit in call 7" in messages[0]
    assert "a step is executed, not replayed: operation" in messages[1]
    assert len(messages) == 2
    m = compiled(Reader(file), False)
    assert found == trained(m, 30, lambda i: file.write_text("1.0" if i < 6 else str(i)))[0]


def keep_few_plans():
    plan_cache.set_limit(entries=2)
    tensor.ones((3,)) + tensor.ones((3,))


# What makes equal calls have other plans than those that are replayed.
FORGET_PLANS = {
    "cleared": plan_cache.clear,
    "evicted": keep_few_plans,
    "choices": tuning.clear,
    "no cache": lambda: plan_cache.enable(False),
}


@pytest.fixture
def _usual_cache():
    limits = plan_cache.stats()
    yield
    plan_cache.enable(True)
    plan_cache.set_limit(limits["max_bytes"], limits["max_entries"])


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", FORGET_PLANS)
@pytest.mark.usefixtures("no_warning", "_usual_cache")
def test_new_plans_for_the_same_calls_are_no_change(name, training):
    def changed(i):
        if i == 5:  # an audit comes in the 7th call
            FORGET_PLANS[name]()
        elif i == 7:
            plan_cache.enable(True)

    m = compiled(Reader(), True)
    if training:
        found, states = trained(m, 24, changed)
        assert len(m.seen) > 3 + 1
        m = compiled(Reader(), False)
        assert found == trained(m, 24)[0]
        assert_same(states, bits(m))
        return
    m.eval()
    expected = m.forward
    for i in range(24):
        changed(i)
        np.testing.assert_allclose(m(images(i)).numpy(), expected(images(i)).numpy(), 1e-5, 1e-5)


def test_a_change_is_found_when_plans_are_forgotten(file):
    """The newer recording holds, though without a warning."""

    def changed(i):
        file.write_text("5.0" if i >= 5 else "1.0")
        if i == 5:
            plan_cache.clear()

    m = compiled(Reader(file), True)
    (found, states), messages = warned(m, 12, changed)
    assert not messages
    m = compiled(Reader(file), False)
    expected, same = trained(m, 12, lambda i: file.write_text("5.0" if i >= 6 else "1.0"))
    assert found == expected
    assert_same(states, same)


def test_audits_can_be_turned_off(file, monkeypatch):
    monkeypatch.setenv("SINGA_AUDIT", "0")
    m = compiled(Reader(file), True)
    _, messages = warned(m, 30, lambda i: file.write_text("5.0" if i >= 9 else "1.0"))
    assert not messages
    assert len(m.seen) == 3  # recorded


def test_later_audits_wait_until_they_take_little_of_the_time(monkeypatch):
    now = [0.0]

    def a_second_later():
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(audits, "perf_counter", a_second_later)
    monkeypatch.setattr(step_graphs, "perf_counter", a_second_later)
    m = compiled(Reader(), True)
    trained(m, 3 + 100)
    assert len(m.seen) == 3 + 2  # the 64th replay would have been the third audit
    now[0] = 3 / audits.SHARE
    trained(m, 100)
    assert len(m.seen) == 3 + 3


# Inference.


class Sampled(model.Model):
    """Draws from the device, and has a batch norm that replays fold."""

    not_settings = ("runs",)

    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1, bias=False)
        self.bn = layer.BatchNorm2d()
        self.count = tensor.zeros((1,))
        self.count.requires_grad = False
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        self.count += 1.0
        noise = tensor.Tensor(x.shape)
        noise.requires_grad = False
        noise.gaussian(0.0, 1.0)
        return self.bn(self.conv(x + noise)) * self.count


@pytest.mark.usefixtures("no_warning")
def test_an_audit_of_inference_leaves_no_trace(monkeypatch):
    results, runs, live = [], [], []
    for value in "01":
        monkeypatch.setenv("SINGA_AUDIT", value)
        m = compiled(Sampled(), True, training=False)
        m.eval()
        m.count.set_value(0.0)
        singa.seed(5)
        results.append([m(images(i)).numpy().tobytes() for i in range(22)])
        results[-1].append(m.count.numpy().tobytes())
        results[-1].append(m.count.device.random_state())
        runs.append(m.runs)
        gc.collect()
        live.append(singa.device_memory(m.count.device)["live"])
        del m
    assert results[0] == results[1]
    assert runs[1] == runs[0] + 2
    assert results[0][-2] == np.float32([22]).tobytes()
    assert live[0] == live[1]


def test_what_is_kept_to_compare_with_holds_no_memory(monkeypatch):
    live = []
    for value in "01":
        monkeypatch.setenv("SINGA_AUDIT", value)
        m = compiled(Reader(), True)
        trained(m, 12)
        m.eval()
        for i in range(12):
            m(images(i))
        gc.collect()
        live.append(singa.device_memory(device.get_default_device())["live"])
        del m
        gc.collect()
    assert live[0] == live[1]


def test_a_change_in_inference_is_found(file):
    class Infers(Reader):
        def forward(self, x):
            return super().forward(x) * self.factor()

    m = compiled(Infers(file), True)
    m.eval()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        found = []
        for i in range(12):
            file.write_text("5.0" if i >= 3 else "1.0")
            found.append(m(images(0)).numpy())
    (message,) = [str(w.message) for w in caught if w.category is GraphWarning]
    assert "an audit in call 6" in message
    assert "calls 3 to 5 of the step may have missed a change" in message
    for one in found[5:]:
        np.testing.assert_allclose(one, found[0] * 5.0, rtol=1e-5, atol=1e-5)
    for one in found[:5]:
        np.testing.assert_allclose(one, found[0], rtol=1e-5, atol=1e-5)
