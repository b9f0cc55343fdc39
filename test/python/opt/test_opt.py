"""Optimizers against PyTorch's and against their formulas; groups; wrong arguments."""

import math

import numpy as np
import pytest
from singa import autograd, layer, opt, tensor
from updates import RULES, SHAPES, STEPS, assert_close, gradients, loss_of, parameters, run, start

pytestmark = pytest.mark.usefixtures("training")


# --- against PyTorch, step by step


class Clipped:
    """PyTorch's SGD with clipping before each step."""

    def __init__(self, torch, params, clip):
        self.sgd, self.clip = torch.optim.SGD(params, lr=0.1), clip

    def step(self):
        self.clip()
        self.sgd.step()


def same(name, theirs="", lr=0.01, **options):
    """Both optimizers with these arguments."""
    kind = getattr(opt, name)
    return (
        lambda: kind(lr=lr, **options),
        lambda t, p: getattr(t.optim, theirs or name)(p, lr=lr, **options),
    )


def clipped(norm=None, p=2.0, value=None):
    """SGD with clipping of the norm, of values, or of both."""

    def theirs(t, params):
        def clip():
            if value is not None:
                t.nn.utils.clip_grad_value_(params, value)
            if norm is not None:
                t.nn.utils.clip_grad_norm_(params, norm, p)

        return Clipped(t, params, clip)

    return lambda: opt.SGD(lr=0.1, clip_norm=norm, norm_type=p, clip_value=value), theirs


TORCH = {
    "sgd": same("SGD", lr=0.1),
    "momentum": same("SGD", lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": same("SGD", lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": same("Adam", weight_decay=0.1),
    "adam, other constants": (
        lambda: opt.Adam(lr=0.02, beta_1=0.8, beta_2=0.95, epsilon=1e-7),
        lambda t, p: t.optim.Adam(p, lr=0.02, betas=(0.8, 0.95), eps=1e-7),
    ),
    "adamw": same("AdamW", weight_decay=0.1),
    "amsgrad": same("Adam", weight_decay=0.1, amsgrad=True),
    "adamw, amsgrad": (
        lambda: opt.AdamW(lr=0.01, weight_decay=0.1, beta_2=0.5, amsgrad=True),
        lambda t, p: t.optim.AdamW(p, lr=0.01, weight_decay=0.1, betas=(0.9, 0.5), amsgrad=True),
    ),
    **{
        f"rmsprop, momentum {momentum}, centered {centered}": (
            lambda m=momentum, c=centered: opt.RMSProp(
                0.01, 0.9, 1e-14, weight_decay=0.1, momentum=m, centered=c
            ),
            lambda t, p, m=momentum, c=centered: t.optim.RMSprop(
                p, 0.01, 0.9, 1e-14, weight_decay=0.1, momentum=m, centered=c
            ),
        )
        for momentum, centered in ((0.0, False), (0.9, False), (0.0, True), (0.9, True))
    },
    "clipping by value": clipped(value=0.3),
    **{f"clipping by the {p}-norm": clipped(1.5, p) for p in (1, 2, 3.5, math.inf)},
    "a limit that is never reached": clipped(100.0),
    "clipping by both": clipped(1.5, 1, 0.3),
}


@pytest.mark.parametrize("name", TORCH)
def test_like_torch_in_every_step(torch, name):
    ours, theirs = TORCH[name]
    optimizer = ours()
    params = parameters(start())
    torch_params = {n: torch.nn.Parameter(torch.from_numpy(v)) for n, v in start().items()}
    torch_optimizer = theirs(torch, list(torch_params.values()))
    for step in range(STEPS):
        grads = gradients(step)
        optimizer(loss_of(params, grads))
        for key, param in torch_params.items():
            param.grad = torch.from_numpy(grads[key])
        torch_optimizer.step()
        assert_close(
            {key: param.numpy() for key, param in params.items()},
            {key: param.detach().numpy() for key, param in torch_params.items()},
        )


def test_dampening_like_torch_from_zero_moments(torch):
    # PyTorch applies no dampening in the first step; SINGA and singa start with zeros.
    params = [torch.nn.Parameter(torch.from_numpy(v)) for v in start().values()]
    theirs = torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.3)
    for param in params:
        theirs.state[param]["momentum_buffer"] = torch.zeros_like(param)
    for step in range(STEPS):
        for param, grad in zip(params, gradients(step).values(), strict=True):
            param.grad = torch.from_numpy(grad)
        theirs.step()
    expected = {name: p.detach().numpy() for name, p in zip(SHAPES, params, strict=True)}
    assert_close(run(opt.SGD(lr=0.1, momentum=0.9, dampening=0.3)), expected)


# --- against their formulas in float64


def rmsprop(g, v):
    v = 0.8 * v + 0.2 * g * g
    return v, 0.05 * g / np.sqrt(v + 1e-6)


def adagrad(g, v):
    v = v + g * g
    return v, 0.05 * g / np.sqrt(v + 1e-8)


@pytest.mark.parametrize(
    ("make", "update"),
    [
        (lambda: opt.RMSProp(lr=0.05, rho=0.8, epsilon=1e-6, weight_decay=0.01), rmsprop),
        (lambda: opt.AdaGrad(lr=0.05, weight_decay=0.01), adagrad),
    ],
)
def test_formula(make, update):
    values = {name: value.astype(np.float64) for name, value in start().items()}
    squares = dict.fromkeys(values, 0.0)
    for step in range(STEPS):
        for name, grad in gradients(step).items():
            g = grad.astype(np.float64) + 0.01 * values[name]
            squares[name], change = update(g, squares[name])
            values[name] = values[name] - change
    assert_close(run(make()), values, rtol=1e-5, atol=1e-6)


# --- one parameter at a time, as SINGA's scripts do it


@pytest.mark.parametrize(
    "make",
    [
        lambda: opt.SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        *[lambda rule=rule: rule(lr=0.1) for rule in RULES],
    ],
)
def test_apply_and_update_equal_a_whole_step(make):
    expected = run(make(), steps=3)
    for one_by_one in (
        lambda o, p, g: o.apply(p.name, p, g),
        lambda o, p, g: o.update(p, g),
    ):
        optimizer, params = make(), parameters(start())
        for step in range(3):
            for name, grad in gradients(step).items():
                one_by_one(optimizer, params[name], tensor.from_numpy(grad))
            optimizer.step()
        for name, param in params.items():
            np.testing.assert_array_equal(param.numpy(), expected[name])


def test_apply_leaves_the_gradient_alone_and_takes_no_name():
    w = tensor.Tensor((2, 3)).set_value(0.5)
    g = tensor.Tensor((2, 3)).set_value(0.1)
    opt.SGD(lr=0.1, weight_decay=0.2).apply(w.name, w, g)
    np.testing.assert_allclose(w.numpy(), 0.5 - 0.1 * (0.1 + 0.2 * 0.5), rtol=1e-6)
    np.testing.assert_array_equal(g.numpy(), np.full((2, 3), 0.1, np.float32))


def test_apply_tells_parameters_without_names_apart():
    expected = run(opt.SGD(lr=0.1, momentum=0.9), steps=3)
    sgd = opt.SGD(lr=0.1, momentum=0.9)
    params = {name: tensor.Tensor(data=value, stores_grad=True) for name, value in start().items()}
    for step in range(3):
        for name, grad in gradients(step).items():
            sgd.apply(params[name].name, params[name], tensor.from_numpy(grad))
        sgd.step()
    for name, param in params.items():
        np.testing.assert_array_equal(param.numpy(), expected[name])


def test_apply_refuses_another_shape():
    w, g = tensor.Tensor((2, 3)), tensor.Tensor((3, 2))
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3, 2\)|\(3, 2\).*\(2, 3\)"):
        opt.SGD(lr=0.1).apply("w", w, g)


def test_subclass_with_its_own_apply_is_called_for_whole_steps():
    class Signs(opt.SGD):
        def apply(self, param_name, param_value, param_grad):
            super().apply(param_name, param_value, tensor.sign(param_grad))

    expected = {n: v - np.float32(0.1) * np.sign(gradients(0)[n]) for n, v in start().items()}
    assert_close(run(Signs(lr=0.1), steps=1), expected)


def test_base_class_says_that_it_cannot():
    with pytest.raises(NotImplementedError, match="does not say how"):
        run(opt.Optimizer(0.1), steps=1)


# --- what is around the rule


def test_groups():
    groups = [
        opt.ParamGroup(["b", "sc*"], weight_decay=0.0),
        opt.ParamGroup(lambda name, param: name == "w", lr_scale=0.5),
    ]
    got = run(opt.SGD(lr=0.1, weight_decay=0.2, groups=groups), steps=1)
    values, grads = start(), gradients(0)
    expected = {
        "w": values["w"] - 0.05 * (grads["w"] + 0.2 * values["w"]),
        "b": values["b"] - 0.1 * grads["b"],
        "scale": values["scale"] - 0.1 * grads["scale"],
    }
    assert_close(got, expected)


@pytest.mark.parametrize("make", [lambda: layer.CudnnRNN(6), lambda: layer.GRU(4, 6)])
def test_packed_weights_of_recurrent_layers_are_neither_norm_nor_bias(make):
    recurrent = make()
    recurrent(tensor.zeros((2, 3, 4)))
    weights = [p for p in recurrent.get_params().values() if len(p.shape) == 1]
    assert not any(opt.norm_and_bias(p.name, p) for p in weights if p.name.endswith("W"))
    assert opt.norm_and_bias("rnn.b", weights[0]) if weights else True


def test_norm_and_bias_are_the_vectors():
    got = run(
        opt.SGD(lr=0.1, weight_decay=0.2, groups=[opt.ParamGroup(opt.norm_and_bias, 0.0)]), steps=1
    )
    plain, decayed = run(opt.SGD(lr=0.1), steps=1), run(opt.SGD(lr=0.1, weight_decay=0.2), steps=1)
    np.testing.assert_array_equal(got["b"], plain["b"])
    np.testing.assert_array_equal(got["scale"], plain["scale"])
    np.testing.assert_array_equal(got["w"], decayed["w"])


@pytest.mark.parametrize("p", [1, 2, math.inf])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_clip_by_global_norm_of_what_is_no_number_like_torch(torch, value, p):
    values = [np.array([value, 1.0], np.float32), np.array([2.0, -3.0], np.float32)]
    theirs = [torch.nn.Parameter(torch.zeros(2)) for _ in values]
    for param, grad in zip(theirs, values, strict=True):
        param.grad = torch.from_numpy(grad.copy())
    norm = float(torch.nn.utils.clip_grad_norm_(theirs, 1.0, p))
    grads = [tensor.from_numpy(grad) for grad in values]
    np.testing.assert_equal(opt.clip_by_global_norm(grads, 1.0, p), norm)
    for grad, param in zip(grads, theirs, strict=True):
        np.testing.assert_array_equal(grad.numpy(), param.grad.numpy())


def test_clipping_shows_a_gradient_that_is_no_number_in_all_parameters():
    params, grads = parameters(start()), gradients(0)
    grads["b"].reshape(-1)[0] = np.nan
    opt.SGD(lr=0.1, clip_norm=1.0)(loss_of(params, grads))
    assert all(np.isnan(param.numpy()).all() for param in params.values())


def test_clip_when_two_parameters_get_the_same_gradient():
    a = tensor.Tensor((3,), stores_grad=True, name="a")
    b = tensor.Tensor((3,), stores_grad=True, name="b")
    opt.SGD(lr=1.0, clip_norm=1.0)(autograd.reduce_sum(autograd.add(a, b), keepdims=0))
    np.testing.assert_allclose(a.numpy(), -1 / np.sqrt(6), rtol=1e-5)
    np.testing.assert_allclose(b.numpy(), -1 / np.sqrt(6), rtol=1e-5)


def test_accumulation_is_the_mean_gradient():
    optimizer = opt.SGD(lr=0.1, momentum=0.9, accumulate=3)
    params = parameters(start())
    for step in range(6):
        before = {name: param.numpy() for name, param in params.items()}
        optimizer(loss_of(params, gradients(step)))
        changed = not np.array_equal(before["w"], params["w"].numpy())
        assert changed == (step % 3 == 2)
        assert optimizer.steps == (step + 1) // 3

    def mean(step):
        parts = [gradients(3 * step + i) for i in range(3)]
        return {name: np.mean([part[name] for part in parts], axis=0) for name in SHAPES}

    expected = run(opt.SGD(lr=0.1, momentum=0.9), steps=2, grads=mean)
    assert_close({n: p.numpy() for n, p in params.items()}, expected, rtol=1e-5, atol=1e-6)


def test_namesakes_have_states_of_their_own():
    one = tensor.Tensor(data=np.ones((2, 2), np.float32), stores_grad=True, name="W")
    other = tensor.Tensor(data=np.ones(3, np.float32), stores_grad=True, name="W")
    optimizer = opt.SGD(lr=0.1, momentum=0.9)
    for _ in range(2):
        total = autograd.add(
            autograd.reduce_sum(one, keepdims=0),
            autograd.reduce_sum(autograd.mul(other, other), keepdims=0),
        )
        optimizer(total)
    assert {state.shape for state in optimizer.get_states()["moments"].values()} == {(2, 2), (3,)}
    np.testing.assert_allclose(one.numpy(), 1 - 0.1 - 0.19, rtol=1e-6)


def test_frozen_parameter_stays():
    params = parameters(start())
    params["b"].requires_grad = False
    opt.SGD(lr=0.1, weight_decay=0.5)(loss_of(params, gradients(0)))
    np.testing.assert_array_equal(params["b"].numpy(), start()["b"])
    assert not np.array_equal(params["w"].numpy(), start()["w"])


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_float_types_keep_wide_states(dtype):
    w = tensor.Tensor((3,), dtype=dtype, stores_grad=True, name="w").set_value(1.0)
    optimizer = opt.SGD(lr=0.5, momentum=0.5)
    for _ in range(2):
        optimizer.apply("w", w, tensor.Tensor((3,), dtype=dtype).set_value(0.25))
    np.testing.assert_array_equal(w.numpy(), np.full(3, 1 - 0.125 - 0.1875))
    wide = tensor.float64 if dtype == "float64" else tensor.float32
    assert optimizer.moments["w"].dtype == wide


# --- wrong arguments


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: opt.SGD(lr="0.1"), TypeError, r"\[SGD\] lr must be a number"),
        (lambda: opt.SGD(lr=None), TypeError, "NoneType"),
        (lambda: opt.SGD(lr=-0.1), ValueError, "must not be negative"),
        (lambda: opt.SGD(lr=float("nan")), ValueError, "must not be negative"),
        (lambda: opt.SGD(momentum=-1), ValueError, "momentum must not be negative"),
        (lambda: opt.SGD(nesterov=True), ValueError, "nesterov needs a momentum"),
        (lambda: opt.SGD(momentum=0.9, dampening=0.1, nesterov=True), ValueError, "nesterov"),
        (lambda: opt.Adam(beta_1=1.0), ValueError, "beta_1 must be below 1"),
        (lambda: opt.Adam(epsilon=-1e-8), ValueError, "epsilon"),
        (lambda: opt.SGD(clip_norm=0), ValueError, "clip_norm"),
        (lambda: opt.SGD(accumulate=0), ValueError, "accumulate"),
        (lambda: opt.SGD(learning_rate=0.1), TypeError, "learning_rate"),
        (lambda: opt.StepDecay(0.1, 0), ValueError, "step_size must be positive"),
        (lambda: opt.ExponentialDecay(0.1, 0, 0.5), ValueError, "decay_steps"),
        (lambda: opt.OneCycle(0.1, 0), ValueError, "total_steps"),
        (lambda: opt.OneCycle(0.1, 10, warmup=1.5), ValueError, "warmup"),
        (lambda: opt.WarmUp(0.1, -1), ValueError, "steps must not be negative"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_step_after_backward_without_an_update_is_refused():
    """As in PyTorch's loop, loss.backward() and optimizer.step(), which would train nothing."""
    w = tensor.Tensor(data=[1.0], stores_grad=True, name="w")
    optimizer = opt.SGD(lr=0.1)
    optimizer.step()
    (w * w).sum().backward()
    with pytest.raises(RuntimeError, match=r"\[SGD\] step\(\) updates nothing, .*as w\.grad: opt"):
        optimizer.step()
    optimizer.apply("w", w, w.grad)
    optimizer.step()
    (w * w).sum().backward()
    optimizer((w * w).sum())  # whoever looks at gradients uses none
    optimizer.step()
    (w * w).sum().backward()
    w.grad = None  # used in another way
    optimizer.step()
    assert optimizer.steps == 5


def test_an_optimizer_whose_step_updates_uses_the_gradients():
    class Own(opt.SGD):
        def step(self):
            self.param.set_value(self.param.numpy() - self.param.grad.numpy())
            super().step()

    w = tensor.Tensor(data=[1.0], stores_grad=True, name="w")
    optimizer = Own(lr=0.1)
    optimizer.param = w
    (w * w).sum().backward()
    optimizer.step()
    assert w.numpy() == [-1.0]
