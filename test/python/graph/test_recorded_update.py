"""The optimizer's update as part of recorded steps. It uses the hyperparameters of each step, and
other changes are detected."""

import re

import numpy as np
import pytest
import singa
from bits import bits, everything
from device_under_test import ON_GPU
from recorded import graphs
from singa import autograd, layer, opt, tensor
from singa.opt.hyperparameter import hyperparameters_of
from small_net import Net
from updates import RULE_NAMES, RULES, make_rule


class Twice(Net):
    """One optimizer with two updates in a step."""

    def train_one_batch(self, x, y):
        for _ in range(2):
            out = self.forward(x)
            loss = self.loss(out, y)
            self.optimizer(loss)
        return out, loss


class Halving(opt.DecayScheduler):
    """A schedule on tensors, as SINGA's users write them."""

    def call(self, step):
        return tensor.from_numpy(np.float32([0.1]) / (1 + step.numpy()))


class Mixed(Net):
    """Gradients of all kinds, with parameters converted to 16 bits."""

    def __init__(self):
        super().__init__()
        self.bn = layer.BatchNorm2d()  # stays float32
        self.shared = layer.Conv2d(4, 3, padding=1, bias=False)  # the sum of two gradients
        self.frozen = layer.Conv2d(4, 1, bias=False)  # no gradient

    def forward(self, x):
        x = self.bn(self.conv(x))
        x = self.frozen(self.shared(autograd.relu(self.shared(x))))
        self.frozen.freeze()
        return self.fc(autograd.flatten(autograd.relu(x)))


def compiled(use_graph, optimizer, net=Net, dtype=None):
    singa.seed(3)
    m = net()
    m.set_optimizer(optimizer)
    m.compile([images(0)], is_train=True, use_graph=use_graph, dtype=dtype)
    return m


def images(step):
    rng = np.random.default_rng([3, step])
    return tensor.from_numpy(rng.standard_normal((4, 2, 5, 5)).astype(np.float32))


def labels():
    return tensor.from_numpy(np.array([0, 1, 2, 1], np.int32))


def both(make, change=lambda m: None, net=Net, steps=14, dtype=None):
    """Runs executed and recorded steps with a change in between, and compares them; returns both
    models."""
    models = []
    for use_graph in (False, True):
        m = compiled(use_graph, make(), net, dtype)
        losses = []
        for i in range(steps):
            if i == steps // 2:
                change(m)
            losses.append(m(images(i), labels())[1].numpy().tobytes())
        models.append((m, losses))
    (executed, want), (recorded, got) = models
    assert got == want
    assert everything(recorded) == everything(executed)
    assert recorded.optimizer.steps == executed.optimizer.steps
    return executed, recorded


def updates(m):
    """Number of updates in the graph."""
    (graph,) = graphs(m)
    return len(re.findall(r"^  \d+ \w+Update ", graph.ToString(), re.MULTILINE))


def sgd(**kwargs):
    return opt.SGD(
        **{"lr": opt.CosineDecay(0.1, 20), "momentum": 0.9, "weight_decay": 1e-3} | kwargs
    )


GROUPS = [opt.ParamGroup(opt.norm_and_bias, 0.0, lr_scale=2.0)]


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (sgd, 1),
        (lambda: sgd(nesterov=True), 1),
        (lambda: sgd(groups=GROUPS), 2),
        (lambda: sgd(clip_norm=0.1), 1),
        *[(lambda rule=rule: rule(lr=opt.OneCycle(0.01, 20)), 1) for rule in RULES],
    ],
    ids=["sgd", "nesterov", "groups", "clip", *RULE_NAMES],
)
def test_the_update_is_in_the_graph(make, count):
    _, recorded = both(make)
    assert updates(recorded) == count


OPTIMIZERS = {
    "sgd": sgd,
    "plain": lambda **kwargs: opt.SGD(lr=0.1, **kwargs),
    "groups": lambda **kwargs: sgd(groups=GROUPS, **kwargs),
    **{
        rule.__name__: lambda rule=rule, **kwargs: rule(lr=opt.StepDecay(0.01, 3), **kwargs)
        for rule in RULES
        if rule is not opt.SGD
    },
}


@pytest.mark.parametrize(
    ("dtype", "decides"),
    [
        ("bfloat16", dict),
        ("float16", lambda: {"clip_norm": 0.1}),
        # The first scales are too large, so steps are skipped.
        ("float16", lambda: {"scaler": opt.GradScaler(2.0**30, 2.0, 2.0**-9, 3)}),
        ("bfloat16", lambda: {"scaler": opt.GradScaler(256.0), "clip_norm": 0.1}),
        ("bfloat16", lambda: {"accumulate": 2}),
    ],
    ids=["as they are", "clip", "scaler", "scaler and clip", "accumulate"],
)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_gradients_of_16_bits_are_not_converted(make, dtype, decides):
    _, recorded = both(lambda: make(**decides()), net=Mixed, steps=10, dtype=dtype)
    (memory,) = recorded.memory_plan()["graphs"]
    # Those of conv and fc. The gradient of the shared weight is a sum, and the host gets it as
    # float32.
    assert memory["merged"] == (0 if "accumulate" in decides() else 4)


@pytest.mark.parametrize("make", [sgd, opt.AdamW], ids=["sgd", "adamw"])
def test_opcheck_compares_updates_by_gradients_of_16_bits(make):
    m = compiled(True, make(lr=0.01, clip_norm=0.1), Mixed, "bfloat16")
    for i in range(4):
        m(images(i), labels())
    with singa.opcheck(every=1, action="raise") as check:
        m(images(4), labels())
    # On the CPU, `reference` itself runs.
    checked = [of["checked"] for op, of in check.stats().items() if re.search("Update|Norm$", op)]
    assert checked == [1, 1] * ON_GPU


class Doubling(opt.SGD):
    def apply_all(self, updates):
        super().apply_all([(key, p, g * 2.0) for key, p, g in updates])


@pytest.mark.parametrize(
    "make",
    [
        lambda: sgd(accumulate=2),
        lambda: sgd(momentum=opt.OneCycle(0.1, 20).momentum()),
        lambda: sgd(weight_decay=opt.CosineDecay(1e-3, 10)),
        lambda: sgd(lr=Halving(0.1)),
        lambda: sgd(lr=opt.WarmUp(Halving(0.1), 3)),
        lambda: opt.Adam(lr=0.01, epsilon=opt.CosineDecay(1e-3, 20, 1e-4)),
        lambda: Doubling(lr=0.1),
    ],
    ids=["accumulate", "momentum", "decay", "tensors", "warm tensors", "epsilon", "own"],
)
def test_what_more_than_numbers_may_depend_on_stays_with_the_host(make):
    _, recorded = both(make)
    assert updates(recorded) == 0


def set_states(m):
    states = compiled(False, sgd())
    for i in range(3):
        states(images(i + 50), labels())
    m.optimizer.set_states(states.optimizer.get_states())


@pytest.mark.parametrize(
    ("change", "count"),
    [
        (lambda m: setattr(m.optimizer, "lr", opt.Constant(0.02)), 1),
        (lambda m: setattr(m.optimizer, "lr", Halving(0.02)), 1),
        (lambda m: setattr(m.optimizer.lr, "init_value", 0.3), 1),
        (lambda m: setattr(m.optimizer, "dampening", opt.Constant(0.5)), 1),
        (lambda m: setattr(m.optimizer, "momentum", opt.Constant(0.5)), 1),
        (lambda m: setattr(m.optimizer.momentum, "init_value", 0.0), 1),
        (lambda m: setattr(m.optimizer, "weight_decay", opt.Constant(0.1)), 1),
        (lambda m: setattr(m.optimizer, "weight_decay", opt.CosineDecay(0.1, 9)), 0),
        (lambda m: setattr(m.optimizer, "nesterov", True), 1),
        (lambda m: setattr(m.optimizer, "groups", tuple(GROUPS)), 2),
        (lambda m: setattr(m.optimizer, "clip_norm", 0.01), 1),
        (lambda m: setattr(m.optimizer, "accumulate", 2), 0),
        (set_states, 1),
        (lambda m: m.optimizer.moments.clear(), 1),
        (lambda m: m.set_optimizer(opt.Adam(lr=0.01)), 1),
        (lambda m: m.fc.W.copy_from_numpy(np.ones((100, 3), np.float32)), 1),
        (lambda m: m.conv.W.numpy(), 1),
        (lambda m: [t.numpy() for t in m.optimizer.moments.values()], 1),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
def test_what_changes_between_replays_is_seen(change, count):
    _, recorded = both(sgd, change, steps=16)
    assert updates(recorded) == count


@pytest.mark.parametrize("value", [lambda: 0.25, lambda: opt.StepDecay(0.25, 2, 0.5)])
@pytest.mark.parametrize(
    ("rule", "name"), [(rule, each.name) for rule in RULES for each in hyperparameters_of(rule)]
)
def test_hyperparameters_that_are_assigned(rule, name, value):
    def make(**kwargs):
        return make_rule(rule, **kwargs)

    executed, recorded = both(
        lambda: make(lr=0.01), lambda m: setattr(m.optimizer, name, value()), steps=10
    )
    as_it_was, _ = both(lambda: make(lr=0.01), steps=10)
    assert bits(executed) != bits(as_it_was)
    assert recorded.optimizer.get_states()[name] == executed.optimizer.get_states()[name]


@pytest.mark.parametrize(
    "kwargs", [lambda: {"groups": GROUPS}, lambda: {"scaler": opt.GradScaler(256.0)}]
)
def test_a_rate_that_is_assigned_at_each_step(kwargs):
    """The update stays in the graph."""
    models = []
    for use_graph in (False, True):
        m = compiled(use_graph, sgd(lr=1.0, **kwargs()))
        for i in range(9):
            m.optimizer.lr = 0.1 / (1 + i)
            m(images(i), labels())
        models.append(m)
    assert everything(models[1]) == everything(models[0])
    assert updates(models[1]) == 1 + ("groups" in kwargs())


@pytest.mark.parametrize(
    "change",
    [
        lambda o: setattr(o, "apply_all", lambda updates: None),
        lambda o: setattr(o, "now", lambda name, step=None: 0.01),
    ],
    ids=["apply_all", "now"],
)
def test_methods_that_are_replaced_are_called(change):
    executed, recorded = both(sgd, lambda m: change(m.optimizer))
    assert updates(recorded) == 0
    assert bits(executed) != bits(both(sgd)[0])


def test_what_an_optimizer_of_ones_own_computes_with_is_seen():
    class Scaled(opt.SGD):
        factor = 1.0

        def call(self, loss):
            super().call(loss * self.factor)

    _, recorded = both(lambda: Scaled(lr=0.1), lambda m: setattr(m.optimizer, "factor", 3.0))
    assert len(recorded.memory_plan()["graphs"]) == 1


def test_each_update_of_a_step_has_its_own_numbers():
    _, recorded = both(lambda: sgd(lr=opt.StepDecay(0.1, 1, 0.8)), net=Twice)
    assert updates(recorded) == 2


def test_a_schedule_that_goes_wrong_raises_before_the_step():
    m = compiled(True, sgd(lr=opt.Constant(0.1)))
    for i in range(6):
        m(images(i), labels())
    before = bits(m), bits(m.optimizer.moments)
    m.optimizer.lr = opt.Constant(float("inf"))
    with pytest.raises(ValueError, match="lr is inf"):
        m(images(6), labels())
    assert (bits(m), bits(m.optimizer.moments)) == before
    m.optimizer.lr = opt.Constant(0.1)
    m(images(6), labels())
    assert bits(m) != before[0]


def test_inference_sees_what_replayed_steps_have_changed():
    for_each = []
    for use_graph in (False, True):
        m = compiled(use_graph, sgd())
        seen = []
        for i in range(8):
            m.train()
            m(images(i), labels())
            m.eval()
            seen.append(m(images(99)).numpy())
        for_each.append(seen)
    np.testing.assert_allclose(for_each[1], for_each[0], rtol=1e-5, atol=1e-6)


def test_the_plan_says_what_the_optimizer_keeps():
    _, recorded = both(sgd)
    moments = sum(t.memsize() for t in recorded.optimizer.moments.values())
    assert recorded.memory_plan()["by_kind"]["optimizer"] == moments > 0
