"""AMSGrad, momentum and centring of RMSProp, and clipping by operations of their own: in recorded
steps, with a scaler, in other types, in saved states."""

import math

import numpy as np
import pytest
from bits import bits, everything
from recorded import graphs
from singa import opt, tensor
from small_net import trained
from updates import gradients, loss_of, parameters, run, start

VARIANTS = {
    "amsgrad": lambda **kwargs: opt.Adam(0.02, weight_decay=1e-3, amsgrad=True, **kwargs),
    "adamw, amsgrad": lambda **kwargs: opt.AdamW(opt.CosineDecay(0.02, 9), amsgrad=True, **kwargs),
    "rmsprop, momentum": lambda **kwargs: opt.RMSProp(0.01, momentum=0.9, **kwargs),
    "rmsprop, centered": lambda **kwargs: opt.RMSProp(0.01, centered=True, **kwargs),
    "rmsprop, both": lambda **kwargs: opt.RMSProp(0.01, momentum=0.5, centered=True, **kwargs),
}
CLIPPED = {
    "value": {"clip_value": 0.01},
    "1-norm": {"clip_norm": 0.5, "norm_type": 1},
    "3-norm": {"clip_norm": 0.05, "norm_type": 3},
    "maximum": {"clip_norm": 0.02, "norm_type": math.inf},
    "value and 2-norm": {"clip_norm": 0.1, "clip_value": 0.02},
}


def scaler(wanted):
    return opt.GradScaler(2.0**8, growth_interval=3) if wanted else None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_in_recorded_steps(name, scaled):
    """The host makes the update at each replay, with the bits of executed steps."""
    settings = {"clip_norm": 0.5, "groups": [opt.ParamGroup(opt.norm_and_bias, 0.0)]}
    make = VARIANTS[name]
    executed = trained(make(scaler=scaler(scaled), **settings), False)
    recorded = trained(make(scaler=scaler(scaled), **settings), True)
    assert everything(recorded) == everything(executed)
    assert graphs(recorded)
    assert recorded.optimizer.steps == executed.optimizer.steps == (7 if scaled else 8)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", CLIPPED)
def test_clipping_in_recorded_steps(name, scaled):
    make = lambda: opt.SGD(0.1, momentum=0.9, scaler=scaler(scaled), **CLIPPED[name])  # noqa: E731
    executed, recorded = trained(make(), False), trained(make(), True)
    assert everything(recorded) == everything(executed)
    whole = [g for g in graphs(recorded) if "SgdUpdate" in g.ToString()]
    assert bool(whole) == ("value" in name and not scaled)  # otherwise the host updates
    assert bits(executed) != bits(trained(opt.SGD(0.1, momentum=0.9), False))


def test_a_limit_that_is_assigned_holds_from_then_on(training):
    first, second = opt.SGD(0.1), opt.SGD(0.1, clip_value=0.25)
    values = run(first, steps=2)
    first.clip_value = second.clip_value
    expected = run(second, steps=2, values=values)
    np.testing.assert_equal(run(first, steps=2, values=values), expected)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize("name", VARIANTS)
def test_other_float_types_keep_wide_slots(name, dtype, training):
    """A parameter in 16 bits is the rounded one of a calculation in float64."""
    params, wide = parameters(start()), parameters(start())
    optimizers = VARIANTS[name](), VARIANTS[name]()
    for each, kind in ((params, dtype), (wide, "float64")):
        for p in each.values():
            p.to_type(kind)
    for p, q in zip(params.values(), wide.values(), strict=True):
        q.copy_data(p.as_type("float64"))
    for optimizer, each in zip(optimizers, (params, wide), strict=True):
        grads = {key: grad.astype(np.float32) for key, grad in gradients(0).items()}
        optimizer(loss_of(each, grads))
    eps = {"float64": 1e-6, "bfloat16": 2.0**-8, "float16": 2.0**-10}[dtype]
    for key, p in params.items():
        assert p.dtype.name == dtype
        np.testing.assert_allclose(p.numpy(), wide[key].numpy(), rtol=eps, atol=eps / 8)
    slots = optimizers[0].get_states()[optimizers[0].used_slots()[-1]]
    expected = "float64" if dtype == "float64" else "float32"
    assert {t.dtype.name for t in slots.values()} == {expected}


def test_states_say_which_variant_it_is(training):
    plain, variant = opt.Adam(0.1), opt.Adam(0.1, amsgrad=True)
    run(plain, steps=1)
    run(variant, steps=1)
    assert set(plain.get_states()) == {"step_counter", "m", "v"}
    assert set(variant.get_states()) == {"step_counter", "m", "v", "v_max"}
    for one, other in ((plain, variant), (variant, plain)):
        with pytest.raises(ValueError, match="another optimizer's"):
            one.set_states(other.get_states())


def test_clip_functions_like_torch(torch):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (5,))]
    for p, limit in ((1, 0.7), (2, 0.7), (2, 100.0), (2.5, 0.7), (math.inf, 0.7)):
        ours = [tensor.from_numpy(a) for a in arrays]
        theirs = [torch.nn.Parameter(torch.zeros(a.shape)) for a in arrays]
        for param, a in zip(theirs, arrays, strict=True):
            param.grad = torch.tensor(a)
        norm = opt.clip_by_global_norm(ours, limit, p)
        assert norm == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs, limit, p).item())
        for t, param in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(t.numpy(), param.grad.numpy(), rtol=2e-6)
    opt.clip_by_value(ours, 0.05)
    torch.nn.utils.clip_grad_value_(theirs, 0.05)
    for t, param in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(t.numpy(), param.grad.numpy(), rtol=2e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: opt.SGD(0.1, clip_value=0), "clip_value"),
        (lambda: opt.SGD(0.1, clip_norm=1, norm_type=0), "norm_type"),
        (lambda: opt.clip_by_value([], -1), "value"),
        (lambda: opt.clip_by_global_norm([], 1, -2), "norm_type"),
        (lambda: opt.RMSProp(0.1, momentum=1.0), "momentum"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
