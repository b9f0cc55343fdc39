"""Schedules against PyTorch's and against their formulas."""

import numpy as np
import pytest
from bits import everything
from recorded import graphs
from singa import opt, tensor
from small_net import trained
from updates import STEPS, assert_close, gradients, run, start

pytestmark = pytest.mark.usefixtures("training")


def values(schedule, steps):
    return [schedule.value(step) for step in range(steps)]


def torch_values(torch, make, lr, steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr, momentum=0.9)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    rates, momenta = [], []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        scheduler.step()
    return rates, momenta


SCHEDULES = {
    "exponential": (opt.ExponentialDecay(0.2, 1, 0.9), lambda s, o: s.ExponentialLR(o, 0.9)),
    "step": (opt.StepDecay(0.2, 4, 0.3), lambda s, o: s.StepLR(o, 4, 0.3)),
    "multistep": (
        opt.MultiStepDecay(0.2, [3, 7, 8], 0.5),
        lambda s, o: s.MultiStepLR(o, [3, 7, 8], 0.5),
    ),
    "cosine": (opt.CosineDecay(0.2, 19, 0.01), lambda s, o: s.CosineAnnealingLR(o, 19, 0.01)),
    "onecycle": (opt.OneCycle(0.2, 21), lambda s, o: s.OneCycleLR(o, 0.2, total_steps=21)),
    "onecycle, early": (
        opt.OneCycle(0.2, 21, warmup=0.1, div_factor=10, final_div_factor=100),
        lambda s, o: s.OneCycleLR(
            o, 0.2, total_steps=21, pct_start=0.1, div_factor=10, final_div_factor=100
        ),
    ),
    "restarts": (
        opt.CosineRestarts(0.2, 6, final_value=0.01),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 6, eta_min=0.01),
    ),
    "longer restarts": (
        opt.CosineRestarts(0.2, 2, 3),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, 3),
    ),
    "polynomial": (opt.PolynomialDecay(0.2, 15, 1.7), lambda s, o: s.PolynomialLR(o, 15, 1.7)),
    "line": (opt.PolynomialDecay(0.2, 40), lambda s, o: s.PolynomialLR(o, 40)),
    "function": (
        opt.FunctionSchedule(lambda step: 0.2 * 0.9**step),
        lambda s, o: s.LambdaLR(o, lambda step: 0.9**step),
    ),
    "sequence": (
        opt.SequentialSchedule(
            [0.1, opt.ExponentialDecay(0.2, 1, 0.8), opt.CosineDecay(0.2, 9)], [4, 11]
        ),
        lambda s, o: s.SequentialLR(
            o,
            [s.ConstantLR(o, 0.5, 100), s.ExponentialLR(o, 0.8), s.CosineAnnealingLR(o, 9)],
            [4, 11],
        ),
    ),
    "warm-up": (
        opt.WarmUp(opt.StepDecay(0.2, 5, 0.3), 4, start_factor=0.25),
        lambda s, o: s.SequentialLR(
            o, [s.LinearLR(o, 0.25, 1.0, 4), s.StepLR(o, 5, 0.3)], milestones=[4]
        ),
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_like_torch(torch, name):
    schedule, make = SCHEDULES[name]
    expected, _ = torch_values(torch, make, 0.2, 20)
    np.testing.assert_allclose(values(schedule, 20), expected, rtol=1e-9, atol=1e-12)


def test_momentum_of_one_cycle_like_torch(torch):
    _, expected = torch_values(torch, lambda s, o: s.OneCycleLR(o, 0.2, total_steps=21), 0.2, 20)
    schedule = opt.OneCycle(0.2, 21).momentum()
    np.testing.assert_allclose(values(schedule, 20), expected, rtol=1e-9)


def test_schedules_by_formula():
    assert values(opt.Constant(0.3), 3) == [0.3] * 3
    staircase = opt.ExponentialDecay(0.1, 2, 0.5, True)
    np.testing.assert_allclose(values(staircase, 5), [0.1 * 0.5 ** (i // 2) for i in range(5)])
    smooth = opt.ExponentialDecay(0.1, 2, 0.5)
    np.testing.assert_allclose(values(smooth, 5), [0.1 * 0.5 ** (i / 2) for i in range(5)])
    cosine = opt.CosineDecay(1.0, 4)
    np.testing.assert_allclose(
        values(cosine, 7), [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0, 0, 0], atol=1e-12
    )
    assert values(opt.WarmUp(0.4, 4), 6) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.4])
    assert opt.OneCycle(1.0, 10).value(1000) == opt.OneCycle(1.0, 10).value(9)
    assert opt.OneCycle(1.0, 1, warmup=1.0).value(5) == pytest.approx(1 / 25 / 1e4)


def test_schedule_on_tensors_as_in_singa():
    schedule = opt.ExponentialDecay(0.1, 2, 0.5, True)
    sgd = opt.SGD(lr=schedule)
    for i in range(5):
        np.testing.assert_allclose(
            tensor.to_numpy(sgd.lr_value), [0.1 * 0.5 ** (i // 2)], rtol=1e-6
        )
        sgd.step()
    constant = opt.Constant(0.2)
    step = tensor.Tensor((1,)).set_value(0)
    value = constant(step)
    step += 1
    np.testing.assert_allclose(tensor.to_numpy(value), [0.2], rtol=1e-6)


def test_own_schedule_by_either_method():
    class ByValue(opt.DecayScheduler):
        def value(self, step):
            return self.init_value / (step + 1)

    class ByCall(opt.DecayScheduler):
        def call(self, step):
            return (step + 1.0) * self.init_value

    class Changed(opt.Constant):
        def call(self, step):
            return step * 0.0 + 7.0

    three = tensor.Tensor((1,)).set_value(3)
    assert ByValue(0.8)(3) == pytest.approx(0.2)
    assert float(ByValue(0.8)(three).numpy()[0]) == pytest.approx(0.2)
    assert ByCall(0.5)(3) == pytest.approx(2.0)
    assert float(ByCall(0.5)(three).numpy()[0]) == pytest.approx(2.0)
    assert Changed(0.1).value(2) == 7.0
    with pytest.raises(NotImplementedError, match="neither"):
        opt.DecayScheduler(0.1).value(0)


def test_scheduled_momentum_and_weight_decay():
    momentum, decay = opt.StepDecay(0.8, 2, 0.5), opt.ExponentialDecay(0.1, 1, 0.5)
    optimizer = opt.SGD(lr=0.1, momentum=momentum, weight_decay=decay)
    expected = {name: value.astype(np.float64) for name, value in start().items()}
    moments = dict.fromkeys(expected, 0.0)
    for step in range(STEPS):
        for name, grad in gradients(step).items():
            g = grad + 0.1 * 0.5**step * expected[name]
            moments[name] = 0.8 * 0.5 ** (step // 2) * moments[name] + g
            expected[name] = expected[name] - 0.1 * moments[name]
    assert_close(run(optimizer), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tensor.to_numpy(optimizer.mom_value), [0.1], rtol=1e-6)


PLATEAUS = {
    "default": {"patience": 2},
    "max": {"mode": "max", "factor": 0.5, "patience": 0},
    "absolute": {"relative": False, "threshold": 0.02, "patience": 1},
    "absolute, max": {"relative": False, "threshold": 0.05, "mode": "max", "patience": 1},
    "cooldown": {"patience": 1, "cooldown": 3, "factor": 0.3},
    "least": {"patience": 0, "factor": 0.5, "min_value": 0.05},
}


@pytest.mark.parametrize("name", PLATEAUS)
def test_plateau_like_torch(torch, name):
    given = PLATEAUS[name]
    schedule = opt.ReduceOnPlateau(0.2, **given)
    theirs = {k: v for k, v in given.items() if k not in ("relative", "min_value")}
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer,
        min_lr=given.get("min_value", 0),
        threshold_mode="rel" if given.get("relative", True) else "abs",
        **theirs,
    )
    random = np.random.default_rng(0)
    for epoch in range(40):
        metric = 1 / (epoch + 1) + 0.05 * random.standard_normal()
        before = schedule.value(epoch)
        reduced = schedule.update(metric)
        scheduler.step(metric)
        assert schedule.value(epoch) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        assert reduced == (schedule.value(epoch) < before)
    assert schedule.value(0) < 0.2


@pytest.mark.parametrize(
    "make",
    [
        lambda: opt.ReduceOnPlateau(0.1, factor=0.5, patience=0, mode="max"),
        lambda: opt.SequentialSchedule([opt.StepDecay(0.1, 2), opt.CosineRestarts(0.1, 3, 2)], [3]),
        lambda: opt.WarmUp(opt.PolynomialDecay(0.1, 9, 2.0), 3),
    ],
)
@pytest.mark.parametrize("assigned", [False, True])
def test_state_of_a_schedule_is_saved(make, assigned):
    """With the optimizer: what has changed in it, and what was assigned."""
    one, other = opt.SGD(make()), opt.SGD(0.7 if assigned else make())
    if assigned:
        one = opt.SGD(0.7)
        one.lr = make()
    if isinstance(one.lr, opt.ReduceOnPlateau):
        for metric in (0.5, 0.5, 0.4):
            one.lr.update(metric)
        assert one.now("lr") == 0.025
    other.set_states(one.get_states())
    assert [other.now("lr", step) for step in range(12)] == [
        one.now("lr", step) for step in range(12)
    ]
    if isinstance(one.lr, opt.ReduceOnPlateau):
        assert (other.lr.best, other.lr.update(0.1), one.lr.update(0.1)) == (0.5, True, True)
        assert other.now("lr") == one.now("lr") == 0.0125


def test_a_function_is_a_schedule():
    sgd = opt.SGD(lr=lambda step: 0.5 / (step + 1), momentum=0.5)
    assert [sgd.now("lr", step) for step in range(3)] == [0.5, 0.25, 0.5 / 3]
    known = opt.SGD(lr=opt.SequentialSchedule([0.5, 0.25, 0.5 / 3], [1, 2]), momentum=0.5)
    assert_close(run(sgd, steps=3), run(known, steps=3), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: opt.CosineRestarts(0.1, 0), ValueError, "first_steps"),
        (lambda: opt.CosineRestarts(0.1, 5, 0.5), ValueError, "factor"),
        (lambda: opt.PolynomialDecay(0.1, 5, 0), ValueError, "power"),
        (lambda: opt.SequentialSchedule([0.1, 0.2], []), ValueError, "milestones"),
        (lambda: opt.SequentialSchedule([0.1, 0.2, 0.3], [5, 2]), ValueError, "milestones"),
        (lambda: opt.FunctionSchedule(0.1), TypeError, "function"),
        (lambda: opt.FunctionSchedule(float), TypeError, "function"),
        (lambda: opt.ReduceOnPlateau(0.1, factor=1.0), ValueError, "factor"),
        (lambda: opt.ReduceOnPlateau(0.1, mode="best"), ValueError, "mode"),
        (lambda: opt.ReduceOnPlateau(0.1, wait=3), TypeError, "patience"),
        (lambda: opt.SGD(lr=lambda step: -1.0), ValueError, "lr"),
        (lambda: opt.SGD(lr=opt.SGD), TypeError, "lr"),
    ],
)
def test_wrong_arguments_of_new_schedules(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.filterwarnings("error")
def test_a_plateau_is_replayed():
    """The rate that was reduced between two steps is that of the next replay."""

    def reduce(net, step):
        if step % 3 == 2:
            net.optimizer.lr.update(1.0)

    make = lambda: opt.SGD(opt.ReduceOnPlateau(0.5, patience=0), momentum=0.9)  # noqa: E731
    executed, recorded = (trained(make(), use_graph, 9, reduce) for use_graph in (False, True))
    assert everything(recorded) == everything(executed)
    assert recorded.optimizer.now("lr") == pytest.approx(0.005)
    assert len(graphs(recorded)) == 1


RAMPS = [
    opt.SequentialSchedule([0.0, 0.5], [2]),
    opt.FunctionSchedule(lambda step: 0.5 * (step > 1)),
]


@pytest.mark.parametrize("ramp", RAMPS)
@pytest.mark.parametrize(("rule", "slot"), [(opt.SGD, "moments"), (opt.RMSProp, "momentum_buffer")])
def test_updates_without_momentum_as_long_as_it_is_0(rule, slot, ramp):
    late = rule(lr=0.1, momentum=ramp)
    assert_close(run(late, 2), run(rule(lr=0.1), 2))
    assert getattr(late, slot).keys() == start().keys()


@pytest.mark.parametrize("ramp", RAMPS)
def test_a_momentum_that_begins_at_0(ramp):
    expected, buffers = start(), dict.fromkeys(start(), 0.0)
    for step in range(5):
        for name, grad in gradients(step).items():
            buffers[name] = 0.5 * buffers[name] + grad if step > 1 else 0.0
            expected[name] = expected[name] - 0.1 * (buffers[name] if step > 1 else grad)
    assert_close(run(opt.SGD(lr=0.1, momentum=ramp), 5), expected, atol=1e-6)
