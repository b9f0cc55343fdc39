"""Saved states of optimizers, and what is assigned to them between steps."""

import copy
import pickle

import numpy as np
import pytest
from bits import bits
from singa import opt, tensor
from singa.opt.hyperparameter import hyperparameters_of
from updates import RULES, gradients, loss_of, parameters, run, start

pytestmark = pytest.mark.usefixtures("training")

MAKERS = {
    "sgd": lambda: opt.SGD(opt.CosineDecay(0.1, 10), momentum=0.9),
    "rmsprop": lambda: opt.RMSProp(0.01),
    "adagrad": lambda: opt.AdaGrad(0.01),
    "adam": lambda: opt.Adam(opt.ExponentialDecay(0.01, 2, 0.5)),
    "adamw": lambda: opt.AdamW(0.01, accumulate=2),
    "amsgrad": lambda: opt.Adam(0.01, amsgrad=True, clip_value=0.5),
    "rmsprop, both": lambda: opt.RMSProp(0.01, momentum=0.9, centered=True),
    "scaled": lambda: opt.SGD(0.01, momentum=0.9, scaler=opt.GradScaler(3.0, growth_interval=2)),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("how", ["states", "pickle", "deepcopy"])
def test_restored_optimizer_goes_on_to_the_same_bits(name, how):
    whole = run(MAKERS[name](), steps=7)
    optimizer = MAKERS[name]()
    half = run(optimizer, steps=3)
    if how == "states":
        restored = MAKERS[name]()
        restored.set_states(optimizer.get_states())
    else:
        restored = (
            pickle.loads(pickle.dumps(optimizer)) if how == "pickle" else copy.deepcopy(optimizer)
        )
    optimizer.set_states({"step_counter": 0})  # the copy must not share data
    rest = run(restored, steps=4, values=half, grads=lambda step: gradients(step + 3))
    for key, value in whole.items():
        np.testing.assert_array_equal(rest[key], value)


HYPERPARAMETERS = [(rule, each.name) for rule in RULES for each in hyperparameters_of(rule)]
assert len(HYPERPARAMETERS) == 22
ids = [f"{kind.__name__} {name}" for kind, name in HYPERPARAMETERS]


@pytest.mark.parametrize(("kind", "name"), HYPERPARAMETERS, ids=ids)
def test_an_assigned_number_does_what_one_from_the_beginning_does(kind, name):
    assigned = kind(**({"lr": 0.1} | {name: 0.125}))
    setattr(assigned, name, 0.5)
    assert isinstance(getattr(assigned, name), opt.Constant)
    expected = run(kind(**({"lr": 0.1} | {name: 0.5})))
    np.testing.assert_equal(run(assigned), expected)


@pytest.mark.parametrize(
    "value", [lambda: 0.5, lambda: opt.WarmUp(opt.MultiStepDecay(0.5, [3, 8], 0.5), 2)]
)
@pytest.mark.parametrize("how", ["states", "pickle", "deepcopy"])
@pytest.mark.parametrize(("kind", "name"), HYPERPARAMETERS, ids=ids)
def test_what_was_assigned_is_saved_and_restored(kind, name, how, value):
    one, params = kind(lr=0.1), parameters(start())
    step(one, params, 0)
    setattr(one, name, value())
    if how == "states":
        other = kind(lr=0.1)
        other.set_states(one.get_states())
    else:
        other = pickle.loads(pickle.dumps(one)) if how == "pickle" else copy.deepcopy(one)
    twins = parameters({n: p.numpy() for n, p in params.items()})
    for i in range(1, 6):
        step(one, params, i), step(other, twins, i)
    assert bits(twins) == bits(params)
    assert one.get_states().keys() == other.get_states().keys()
    assert name in one.get_states()


def step(optimizer, params, i):
    optimizer(loss_of(params, gradients(i)))


def test_states_of_before_an_assignment_bring_back_what_was_before():
    schedule = opt.CosineDecay(0.1, 10)
    optimizer = opt.SGD(lr=schedule, momentum=0.5)
    before = optimizer.get_states()
    assert before.keys() == {"step_counter", "moments"}
    optimizer.lr, optimizer.momentum = 0.3, 0.25
    assert optimizer.get_states().keys() == before.keys() | {"lr", "momentum"}
    optimizer.set_states(before)
    assert optimizer.now("lr") == 0.1
    assert optimizer.now("momentum") == 0.5
    optimizer.lr.init_value = 0.2  # an assignment, too
    other = opt.SGD(lr=schedule, momentum=0.5)
    other.set_states(optimizer.get_states())
    assert other.lr.terms() == optimizer.lr.terms()


@pytest.mark.parametrize(
    "saved",
    [
        -1.0,
        float("nan"),
        "0.1",
        '{"class": "Constant"}',
        '{"class": "nothing"}',
        '{"class": "math", "init_value": 1}',
        '{"class": "StepDecay", "init_value": "a", "step_size": 2, "rate": 0.5}',
        '{"class": "StepDecay", "init_value": -1.0, "step_size": 2, "rate": 0.5}',
        "[" * 100_000,
    ],
)
def test_states_with_no_number_change_nothing(saved):
    optimizer = opt.SGD(lr=0.1)
    with pytest.raises((ValueError, TypeError), match=r"\[SGD\] lr"):
        optimizer.set_states({"step_counter": 3, "lr": saved})
    assert optimizer.steps == 0
    assert optimizer.now("lr") == 0.1


@pytest.mark.parametrize(("kind", "name"), HYPERPARAMETERS, ids=ids)
@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("x", TypeError),
        (None, TypeError),
        (True, TypeError),
        ([0.1], TypeError),
        (-0.1, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (opt.Constant(-1), ValueError),
    ],
)
def test_wrong_numbers_raise_where_they_are_assigned(kind, name, value, error):
    optimizer = kind()
    before = getattr(optimizer, name)
    with pytest.raises(error, match=rf"\[{kind.__name__}\] {name} must "):
        setattr(optimizer, name, value)
    assert getattr(optimizer, name) is before


def test_arithmetic_on_a_rate():
    optimizer = opt.SGD(lr=0.5)
    optimizer.lr *= 0.5
    assert optimizer.now("lr") == 0.25
    optimizer.lr /= 2
    assert float(optimizer.lr) == 0.125
    optimizer.lr = 2 * optimizer.lr
    assert optimizer.now("lr") == 0.25
    optimizer.lr = np.float32(0.75)
    assert optimizer.now("lr") == 0.75


def test_groups_that_are_assigned_hold_from_then_on():
    def trained(first, then):
        optimizer, params = opt.SGD(lr=0.1, groups=first), parameters(start())
        for i in range(4):
            if i == 2:
                optimizer.groups = then
            step(optimizer, params, i)
        return bits(params)

    twice, none = [opt.ParamGroup("w", lr_scale=2.0)], [opt.ParamGroup("w", lr_scale=0.0)]
    assert trained(twice, none) != trained(twice, twice)
    assert trained(none, none)["w"] == start()["w"].tobytes()
    with pytest.raises(TypeError, match=r"\[SGD\] groups must be ParamGroups"):
        opt.SGD().groups = ["w"]
    optimizer = opt.SGD(groups=twice)
    with pytest.raises(TypeError, match="ParamGroups"):
        optimizer.groups = ["w"]
    assert optimizer.groups == tuple(twice)  # rejected groups are not kept


def test_other_settings_that_are_assigned_are_checked():
    optimizer = opt.SGD(lr=0.1)
    for name, value, error in [
        ("clip_norm", -1.0, ValueError),
        ("clip_norm", "1", TypeError),
        ("accumulate", 0, ValueError),
        ("accumulate", 1.5, ValueError),
        ("nesterov", True, ValueError),
    ]:
        with pytest.raises(error, match=rf"\[SGD\] {name} "):
            setattr(optimizer, name, value)
    assert (optimizer.clip_norm, optimizer.accumulate, optimizer.nesterov) == (None, 1, False)
    optimizer.accumulate = 3
    params = parameters(start())
    step(optimizer, params, 0)
    with pytest.raises(ValueError, match="1 of 3 were made"):
        optimizer.accumulate = 1


def test_state_of_singa():
    optimizer = opt.Optimizer(0.1)
    optimizer.step()
    optimizer.step()
    assert optimizer.get_states()["step_counter"] == 2
    other = opt.Optimizer(0.01)
    other.set_states(optimizer.get_states())
    np.testing.assert_array_equal(tensor.to_numpy(other.step_counter), [2])
    with pytest.raises(ValueError, match="step_counter"):
        other.set_states({})


# --- states that do not fit


@pytest.mark.parametrize("known", [True, False], ids=["after a step", "before the first"])
@pytest.mark.parametrize("dtype", [tensor.float16, tensor.bfloat16, tensor.int32])
def test_moments_of_another_type_are_refused_before_anything_is_set(dtype, known):
    optimizer = opt.Adam(0.1)
    run(optimizer, 2)
    states = optimizer.get_states()
    wrong = {name: value.as_type(dtype) for name, value in states["v"].items()}
    target = opt.Adam(0.1)
    params = parameters(start())
    if known:
        target(loss_of(params, gradients(0)))
    before = {name: {k: v.numpy() for k, v in target.get_states()[name].items()} for name in "mv"}
    with pytest.raises(TypeError, match=rf"\[Adam\] v of \w+ is {dtype.name}, not float32"):
        target.set_states({**states, "v": wrong})
    assert target.steps == int(known)
    for name in "mv":
        now = {k: v.numpy().tolist() for k, v in target.get_states()[name].items()}
        assert now == {k: v.tolist() for k, v in before[name].items()}
    target.set_states(states)
    target(loss_of(params, gradients(0)))


def test_moments_of_another_shape_are_refused():
    optimizer = opt.SGD(0.1, momentum=0.9)
    params = parameters(start())
    optimizer(loss_of(params, gradients(0)))
    states = optimizer.get_states()
    wrong = {**states["moments"], "b": tensor.ones((4,))}
    with pytest.raises(ValueError, match=r"\[SGD\] moments of b is \(4,\), not \(3,\)"):
        optimizer.set_states({**states, "moments": wrong})
    double = {**states["moments"], "b": tensor.ones((3,), dtype=tensor.float64)}
    with pytest.raises(TypeError, match=r"\[SGD\] moments of b is float64, not float32"):
        optimizer.set_states({**states, "moments": double})
