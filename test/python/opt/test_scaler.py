"""Loss scaling: PyTorch's arithmetic, in executed and recorded steps, and underflow in float16."""

import numpy as np
import pytest
import singa
import updates
from bits import bits
from recorded import graphs
from singa import autograd, opt, tensor
from singa.training import checkpoint
from small_net import Net
from updates import assert_close, loss_of, parameters, start

pytestmark = pytest.mark.usefixtures("training")

INF, NAN = float("inf"), float("nan")


def gradients(step, wrong):
    """Gradients of a step, of which `wrong` replaces one, by step."""
    grads = updates.gradients(step)
    if step in wrong:
        grads["w"][1, 2] = wrong[step]
    return grads


def arrays(params):
    return {name: param.detach().numpy() for name, param in params.items()}


CASES = {
    # 1e35 is finite, but it overflows when it is multiplied by the first scales.
    "overflows": ({"growth_interval": 3}, {0: 1e35, 1: 1e35, 5: INF, 6: NAN, 13: -INF}),
    "factors": (
        {"init_scale": 3.0, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 2},
        {4: INF},
    ),
    "as large as can be": ({"init_scale": 2.0**126, "growth_interval": 1}, {}),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("case", CASES)
def test_every_step_is_pytorchs(torch, case, clip):
    settings, wrong = CASES[case]
    params = parameters(start())
    ours = opt.Adam(lr=0.01, clip_norm=clip, scaler=opt.GradScaler(**settings))
    theirs = {n: torch.nn.Parameter(torch.from_numpy(a)) for n, a in start().items()}
    adam = torch.optim.Adam(theirs.values(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", **settings)
    scaler.scale(torch.zeros(1))  # creates its state
    scales = [ours.scaler.get_scale()]
    for step in range(16):
        grads = gradients(step, wrong)
        if case == "as large as can be":
            grads = {name: grad * np.float32(1e-10) for name, grad in grads.items()}
        before = {name: param.numpy() for name, param in params.items()}
        steps = ours.steps
        ours(loss_of(params, grads))

        adam.zero_grad()
        loss = sum((theirs[n] * torch.from_numpy(grad)).sum() for n, grad in grads.items())
        scaler.scale(loss).backward()
        scaler.unscale_(adam)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(theirs.values(), clip)
        scaler.step(adam)
        scaler.update()

        assert ours.scaler.state_dict() == scaler.state_dict()
        assert_close(arrays(params), arrays(theirs))
        skipped = all(np.array_equal(before[n], p.numpy()) for n, p in params.items())
        assert skipped == (ours.steps == steps)
        scales.append(ours.scaler.get_scale())
    assert len(set(scales)) >= 2


def test_one_overflow_leaves_out_all_that_was_accumulated(torch):
    params = parameters(start())
    ours = opt.SGD(lr=0.1, momentum=0.9, accumulate=2, scaler=opt.GradScaler(growth_interval=2))
    theirs = {n: torch.nn.Parameter(torch.from_numpy(a)) for n, a in start().items()}
    sgd = torch.optim.SGD(theirs.values(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", growth_interval=2)
    for step in range(10):
        grads = gradients(step, {2: INF, 9: NAN})
        ours(loss_of(params, grads))
        loss = sum((theirs[n] * torch.from_numpy(grad)).sum() for n, grad in grads.items())
        scaler.scale(loss / 2).backward()
        if step % 2:
            scaler.step(sgd)
            scaler.update()
            sgd.zero_grad()
            assert ours.scaler.state_dict() == scaler.state_dict()
            assert_close(arrays(params), arrays(theirs))
    assert ours.steps == 3


def test_a_state_goes_to_pytorch_and_comes_back(torch):
    scaler = opt.GradScaler(8.0, 3.0, 0.25, 5)
    theirs = torch.amp.GradScaler("cpu")
    theirs.scale(torch.zeros(1))
    theirs.load_state_dict(scaler.state_dict())
    assert theirs.state_dict() == scaler.state_dict()
    other = opt.GradScaler()
    other.load_state_dict(theirs.state_dict() | {"_growth_tracker": 4})
    assert other.state_dict() == scaler.state_dict() | {"_growth_tracker": 4}
    before = other.state_dict()
    with pytest.raises(ValueError, match="lacks _growth_tracker, scale"):
        other.load_state_dict(dict(list(before.items())[1:-1]))
    with pytest.raises(ValueError, match="init_scale must be in"):
        other.load_state_dict(before | {"scale": 0.0})
    with pytest.raises(TypeError, match="must be a dict, got list"):
        other.load_state_dict([1])
    assert other.state_dict() == before


def images(step, wrong=()):
    values = np.random.default_rng([3, step]).standard_normal((4, 2, 5, 5), np.float32)
    values[0, 0, 0, 0] = INF if step in wrong else 0.0
    return tensor.from_numpy(values)


def sgd(scaler):
    return opt.SGD(lr=0.1, momentum=0.9, scaler=scaler)


def compiled(use_graph=False, make=sgd, **settings):
    singa.seed(3)
    net = Net()
    net.set_optimizer(make(opt.GradScaler(**settings)))
    net.compile([images(0)], use_graph=use_graph)
    return net


def train(net, steps, wrong=()):
    y = tensor.from_numpy(np.array([0, 1, 2, 1], np.int32))
    return [net(images(step, wrong), y)[1].item() for step in steps]


class Halving(opt.DecayScheduler):
    """A user's schedule, which may do anything, so it is evaluated only at its own step."""

    def value(self, step):
        return self.init_value / 2**step


MAKERS = {
    "constant": sgd,
    "schedule": lambda scaler: opt.SGD(opt.CosineDecay(0.1, 20), momentum=0.9, scaler=scaler),
    "adam": lambda scaler: opt.Adam(0.01, scaler=scaler),
    "own schedule": lambda scaler: opt.SGD(Halving(0.1), scaler=scaler),
    "adam on a schedule": lambda scaler: opt.AdamW(opt.CosineDecay(0.1, 20), scaler=scaler),
    "groups on a schedule": lambda scaler: opt.RMSProp(
        opt.StepDecay(0.1, 3),
        groups=[opt.ParamGroup(opt.norm_and_bias, 0.0, lr_scale=2.0)],
        scaler=scaler,
    ),
    "groups": lambda scaler: opt.SGD(
        0.1, groups=[opt.ParamGroup(opt.norm_and_bias, 0.0, lr_scale=2.0)], scaler=scaler
    ),
    "clipping": lambda scaler: opt.SGD(0.1, clip_norm=0.5, scaler=scaler),
    "clipping on a schedule": lambda scaler: opt.SGD(
        opt.CosineDecay(0.1, 20), clip_norm=0.5, scaler=scaler
    ),
    "accumulation": lambda scaler: opt.SGD(0.1, accumulate=2, scaler=scaler),
}


@pytest.mark.parametrize("make", MAKERS)
def test_recorded_steps_do_the_same(recwarn, make):
    results = []
    for use_graph in (False, True):
        net = compiled(use_graph, MAKERS[make], growth_interval=3)
        losses = train(net, range(14), wrong=(0, 8, 9))
        states = bits(net)
        scaler = net.optimizer.scaler.state_dict()
        results.append((repr(losses), states, scaler, net.optimizer.steps))
    assert results[0] == results[1]
    assert results[0][3] == (5 if make == "accumulation" else 11)
    (graph,) = graphs(net)
    # The update is part of the recorded step if it is the same in each step.
    executed = make in ("accumulation", "own schedule")
    assert ("UpdateLossScale" in graph.ToString()) == (not executed)
    assert not recwarn.list


def updated(make, wrong, steps):
    """Bits of the parameters after updates with these gradients. The scale is a power of 2."""
    params = parameters(start())
    optimizer = make()
    for step in steps:
        optimizer(loss_of(params, gradients(step, wrong)))
    return bits(params), optimizer.steps


SCHEDULED = {
    "sgd": lambda **more: opt.SGD(opt.CosineDecay(0.1, 90), momentum=0.9, **more),
    "adam": lambda **more: opt.Adam(0.01, **more),
    "adamw": lambda **more: opt.AdamW(
        opt.WarmUp(opt.MultiStepDecay(0.01, [30]), 10), beta_1=opt.StepDecay(0.9, 40, 0.5), **more
    ),
    "momentum alone": lambda **more: opt.SGD(0.1, momentum=opt.CosineDecay(0.9, 50, 0.5), **more),
}


@pytest.mark.parametrize("make", SCHEDULED.values(), ids=SCHEDULED.keys())
def test_numbers_follow_from_the_updates_that_were_made(make):
    wrong = dict.fromkeys([0, 1, 7, 40, 41, 42, 43, 60], INF)
    steps = range(70)
    without = updated(make, {}, [step for step in steps if step not in wrong])
    assert without[1] == 62
    scaled = updated(lambda: make(scaler=opt.GradScaler(2.0**10)), wrong, steps)
    assert scaled == without


def test_numbers_are_sent_anew_when_the_host_changes_them():
    def losses(use_graph, scaler):
        net = compiled(use_graph, lambda _: opt.Adam(0.01, scaler=scaler))
        optimizer, results = net.optimizer, []
        for step in range(24):
            if step == 5:
                optimizer.lr = opt.CosineDecay(0.02, 100)
            if step == 9:
                optimizer.lr.init_value = 0.03
            if step == 12:
                optimizer.set_states(optimizer.get_states() | {"step_counter": 2})
            if step == 15:
                optimizer.step()
            if step == 18:
                optimizer.clip_norm = 0.1
            results += train(net, [step])
        return results, optimizer.steps

    expected = losses(False, None)
    assert expected[1] == 15
    for use_graph in (False, True):
        assert losses(use_graph, opt.GradScaler(2.0**4)) == expected


def test_a_schedule_that_ends_in_nonsense_says_so_at_that_step():
    params = parameters(start())
    optimizer = opt.SGD(opt.CosineDecay(0.1, 20, -0.1), scaler=opt.GradScaler(2.0))

    def train():
        for step in range(20):
            optimizer(loss_of(params, gradients(step, {})))

    with pytest.raises(ValueError, match=r"lr is -0\.0.* at step 11"):
        train()
    assert optimizer.steps == 11


def test_a_state_that_is_loaded_holds_for_what_was_recorded():
    results = []
    for use_graph in (False, True):
        net = compiled(use_graph, growth_interval=3)
        train(net, range(6), wrong=(4,))
        scaler = net.optimizer.scaler
        scaler.load_state_dict(scaler.state_dict() | {"scale": 16.0, "growth_interval": 2})
        losses = train(net, range(6, 14), wrong=(9,))
        results.append((repr(losses), scaler.state_dict(), net.optimizer.steps))
    assert results[0] == results[1]
    assert results[0][1]["scale"] == 128.0


def test_recorded_steps_find_a_loss_that_is_no_number():
    net = compiled(True, init_scale=2.0**-122)
    train(net, range(6))

    def ask():  # a GPU raises only when the step count is read
        train(net, range(6, 14), wrong=range(6, 14))
        return net.optimizer.steps

    with pytest.raises(FloatingPointError, match="not float16 that makes them so"):
        ask()
    train(net, range(14, 16))
    assert net.optimizer.steps == 8


def test_a_checkpoint_holds_the_scale(tmp_path):
    whole = compiled(growth_interval=3, init_scale=0.75)
    train(whole, range(9), wrong=(1,))
    half = compiled(growth_interval=3, init_scale=0.75)
    train(half, range(5), wrong=(1,))
    checkpoint.save(tmp_path / "run.safetensors", half, half.optimizer)
    rest = compiled(growth_interval=3)
    checkpoint.load(tmp_path / "run.safetensors", rest, rest.optimizer)
    assert rest.optimizer.scaler.state_dict() == half.optimizer.scaler.state_dict()
    assert rest.optimizer.scaler.get_scale() == 0.75
    train(rest, range(5, 9))
    for name, value in whole.get_states().items():
        np.testing.assert_array_equal(rest.get_states()[name].numpy(), value.numpy())
    plain = Net()
    plain.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    plain.compile([images(0)])
    checkpoint.load(tmp_path / "run.safetensors", plain, plain.optimizer)
    assert plain.optimizer.get_states().keys() == {"step_counter", "moments"}


def test_float16_keeps_small_gradients_only_when_they_are_scaled():
    x = tensor.from_numpy(np.float32([[1, 2, 4]]))
    moved = {}
    for scaler in (None, opt.GradScaler()):
        w = tensor.Tensor((3, 1), stores_grad=True, name="w").set_value(0.0)
        with autograd.autocast("float16"):
            y = autograd.cast(autograd.matmul(x, w), tensor.float32)
        loss = autograd.reduce_sum(y * 1e-9, keepdims=0)
        opt.SGD(lr=1e9, scaler=scaler)(loss)
        moved[scaler is not None] = w.numpy().ravel()
        assert w.dtype == tensor.float32
    np.testing.assert_array_equal(moved[False], 0)
    np.testing.assert_allclose(moved[True], [-1, -2, -4], rtol=2**-10)


def test_a_loss_that_is_no_number_is_not_float16s_doing():
    params = parameters(start())
    optimizer = opt.SGD(scaler=opt.GradScaler(2.0**-124))
    bad = {name: np.full(shape, NAN, np.float32) for name, shape in updates.SHAPES.items()}

    def step():
        optimizer(loss_of(params, bad))
        return optimizer.steps  # reading it waits for a GPU

    assert [step(), step()] == [0, 0]
    with pytest.raises(FloatingPointError, match="not float16 that makes them so"):
        step()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: opt.GradScaler(0.0), ValueError, r"\[GradScaler\] init_scale must be in"),
        (lambda: opt.GradScaler(INF), ValueError, "init_scale"),
        (lambda: opt.GradScaler("much"), TypeError, "init_scale must be a number"),
        (lambda: opt.GradScaler(growth_factor=1.0), ValueError, "growth_factor"),
        (lambda: opt.GradScaler(backoff_factor=1.0), ValueError, "backoff_factor"),
        (lambda: opt.GradScaler(growth_interval=0), ValueError, "growth_interval"),
        (lambda: opt.SGD(scaler=2.0), TypeError, r"\[SGD\] scaler must be a GradScaler"),
        (lambda: setattr(opt.SGD(), "scaler", opt.GradScaler()), AttributeError, "scaler"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
