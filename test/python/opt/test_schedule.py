"""Schedules against PyTorch's and against their formulas."""

import numpy as np
import pytest
from singa import opt, tensor
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
    "exponential": (
        opt.ExponentialDecay(0.2, 1, 0.9),
        lambda s, o: s.ExponentialLR(o, 0.9),
    ),
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
