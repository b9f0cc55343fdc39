"""Spot checks find kernels that are wrong on purpose, without OPCHECK, and replace their results;
SINGA_POISON shows what was not written.

The kernels run in processes of their own.
"""

from pathlib import Path

import numpy as np
import pytest
import replay_calls
from replay_calls import ALWAYS, LAST_CORNER, NOTHING, WHEN_TOLD, WHERE_LARGE
from singa import autograd, layer, singa_wrap, tensor
from spot_calls import CALLS, GPU, ON_CPU, ON_GPU, ON_GPUS, WRONG, found, result_of

pytestmark = [
    pytest.mark.cpu("the wrong kernels are the CPU's"),
    pytest.mark.skipif(not replay_calls.LIBRARY.exists(), reason="singa was built without tests"),
]
PAGE = Path(__file__).parents[3] / "docs" / "how_it_works" / "spot_checks.md"


def result_on(where: str, program: str) -> tuple[dict[str, object], list[str]]:
    """As `result_of`, on the CPU or on the emulated GPU."""
    if where == "cpu":
        return result_of(ON_CPU + program)
    if not GPU.exists():
        pytest.skip("there is no emulated GPU in this build")
    return result_of(ON_GPU + program, SINGA_CUDA_LIBRARY=str(GPU))


ONE_CALL = """
call, spec, wrong = {call!r}, {spec!r}, {wrong}
right = results(call)
add_wrong_kernels(spec, wrong, kind)
first, second = results(call), results(call)
for got in (first, second):
    for a, b in zip(got, right, strict=True):
        np.testing.assert_array_equal(a, b)  # what the next implementation computes
refused = wrap.GetRefusedPlans()
print(json.dumps([[plan.plan, plan.call, plan.reason] for plan in refused]))
"""


ALL = [(family, "cpu") for family in CALLS] + [(family, "gpu") for family in ON_GPUS]


@pytest.mark.parametrize("wrong", [ALWAYS, LAST_CORNER], ids=["first corner", "last corner"])
@pytest.mark.parametrize(("family", "where"), ALL, ids=[f"{f}, {where}" for f, where in ALL])
def test_a_kernel_that_is_wrong_in_a_corner_is_replaced(
    family: str, where: str, wrong: int
) -> None:
    spec, call = CALLS[family]
    program = ONE_CALL.format(call=call, spec=spec, wrong=wrong)
    refused, said = result_on(where, program)
    assert refused, "nothing was found"
    for (plan, text, reason), line in zip(refused, said, strict=True):
        assert plan.startswith("wrong ")
        assert reason.startswith("output ")
        assert "a plain sum gives" in reason
        assert line.startswith(f"singa: [{text.split()[0]}] {plan} computed a wrong result: ")
        assert f"It is refused for {text} from now on. Run again: python -m singa replay " in line
        file = line.rsplit(" ", 1)[1]
        assert Path(file).stat().st_size > 0


@pytest.mark.parametrize("corner", ["first corner", "last corner"])
def test_the_table_of_the_page(corner: str) -> None:
    """Another element in the middle of a result than in the table may be wrong, and be found, where
    results lie otherwise."""
    lines = PAGE.read_text().partition("| family |")[2].partition("\n\n")[0].splitlines()
    rows = dict(line.strip("| ").split(" | ", 1) for line in lines[2:])
    assert list(rows) == list(CALLS)
    column = [*WRONG].index(corner)
    wanted = {family: row.split(" | ")[column] for family, row in rows.items()}
    assert {k: f"run {n}" for k, n in found("cpu", WRONG[corner]).items()} == wanted


@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_a_wrong_reorder_is_replaced(where: str) -> None:
    """Images in blocks on the CPU; those of a convolution with channels last on a GPU."""
    report, said = result_on(
        where,
        """
from replay_calls import add_wrong_reorders
x, W = make(2, 16, 6, 6), make(20, 16, 3, 3, seed=1)
def moved():
    if kind == wrap.DeviceKind_kCpu:
        t = wrap.ToBlocked(x)
    else:
        t = wrap.ConvForward(x, W, None, wrap.ConvHandle(x, [3, 3], [1, 1], [1, 1], 16, 20, False))
    return tensor.from_raw_tensor(t.Clone()).numpy()
right = moved()
add_wrong_reorders(kind)
print(json.dumps([bool((moved() == right).all()), len(wrap.GetRefusedPlans())]))
""",
    )
    equal, refused = report
    assert equal
    assert refused >= 1
    assert "[Reorder] wrong " in said[0]


LONG = "wrap.ConvHandle(make(2, 3, 64, 64), [3, 3], [1, 1], [1, 1], 3, 20)"


@pytest.mark.parametrize("wrong", [ALWAYS, LAST_CORNER], ids=["first corner", "last corner"])
def test_single_elements_of_long_sums_come_to_all_corners(wrong: int) -> None:
    """8,192 terms: a check takes one element, and runs 1, 2, 4 and 16 are checked."""
    report, _ = result_of(
        f"""
def gradient():
    dW = wrap.ConvBackwardW(make(2, 20, 64, 64), make(2, 3, 64, 64, seed=1), {LONG})
    return tensor.from_raw_tensor(dW).numpy()
right = gradient()
add_wrong_kernels("ConvSpec", {wrong})
results = [gradient() for _ in range(16)]
print(json.dumps([len(wrap.GetRefusedPlans()), float(np.abs(results[-1] - right).max())]))
"""
    )
    refused, error = report
    assert refused == 1
    assert error < 1e-2


def test_the_file_of_a_refused_plan_runs_again() -> None:
    _, (line,) = result_of(
        ON_CPU + ONE_CALL.format(call=CALLS["softmax"][1], spec="SoftmaxSpec", wrong=LAST_CORNER)
    )
    report, _ = result_of(
        f"""
from singa.files.replay_file import replay
add_wrong_kernels("SoftmaxSpec", {LAST_CORNER})
try:
    replay({line.rsplit(" ", 1)[1]!r})
    print(json.dumps("agrees"))
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
    )
    assert "disagrees with reference: output y at (2, 0, 6)" in str(report) or (
        "disagrees with reference: output y at (2, 6)" in str(report)
    )


NETWORK = """
class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(20, 3, padding=1)
        self.linear = layer.Linear(4)
        self.loss = layer.SoftMaxCrossEntropy()
    def forward(self, x):
        return self.linear(autograd.flatten(self.conv(x)))
    def train_one_batch(self, x, y):
        loss = self.loss(self.forward(x), y)
        self.optimizer(loss)
        return loss

def change(x):
    x.copy_from_numpy(x.numpy() + np.float32(200))

def losses(recorded, large, steps=6):
    singa.seed(0)
    rng = np.random.default_rng(0)
    net = Net()
    net.set_optimizer(opt.SGD(lr=1e-5))
    x = tensor.from_numpy(rng.uniform(size=(4, 3, 8, 8)).astype(np.float32))
    y = tensor.from_numpy(rng.integers(0, 4, 4).astype(np.int32))
    net.compile([x], is_train=True, use_graph=recorded)
    values = []
    for step in range(steps):
        if step == large:
            change(x)
        values.append(net(x, y).numpy().item())
    return values
"""


@pytest.mark.parametrize("recorded", [False, True], ids=["executed", "recorded"])
@pytest.mark.parametrize(
    ("wrong", "large"),
    [(LAST_CORNER, None), (WHERE_LARGE, 1)],
    ids=["last corner", "values of the second step"],
)
def test_a_network_trains_as_without_the_wrong_kernel(
    recorded: bool, wrong: int, large: int | None
) -> None:
    report, said = result_of(
        f"""{NETWORK}
right = losses({recorded}, {large})
singa.set_spot_checks(False)
add_wrong_kernels("ConvSpec", {wrong})
wrong = losses({recorded}, {large})
singa.set_spot_checks(True)
singa.plan_cache.clear()
checked = losses({recorded}, {large})
print(json.dumps([right, wrong, checked, len(wrap.GetRefusedPlans())]))
"""
    )
    right, unchecked, checked, refused = report
    assert checked == right  # the next implementation has computed from the first step on
    assert unchecked != pytest.approx(right, rel=1e-5)
    assert refused >= 1
    assert len([line for line in said if line.startswith("singa: ")]) == refused


def test_captured_steps_run_one_by_one_where_a_check_is_due() -> None:
    """With that of compile(), the 15th step is the 16th run of the convolution, which is checked.
    The kernel is wrong from the 14th on, which captured work does not call."""
    report, _ = result_on(
        "gpu",
        f"""{NETWORK}
from replay_calls import tell_wrong_kernel
right = losses(True, None, 18)
add_wrong_kernels("ConvSpec", {WHEN_TOLD}, kind)
def change(x):
    tell_wrong_kernel()
checked = losses(True, 13, 18)
print(json.dumps([right, checked, [plan.call.split()[0] for plan in wrap.GetRefusedPlans()]]))
""",
    )
    right, checked, refused = report
    assert refused == ["ConvForward"]
    assert checked == right


def test_explain_says_why_a_plan_is_refused() -> None:
    report, _ = result_of(
        f"""
add_wrong_kernels("SoftmaxSpec", {LAST_CORNER})
wrap.Softmax(make(3, 7), 1)
wrap.SetExplaining(True)
wrap.Softmax(make(3, 7), 1)
(op,) = [op for op in wrap.TakeExplanations() if op.op == "Softmax" and op.why]
print(json.dumps(dict(zip(op.others, op.reasons))))
"""
    )
    (reason,) = [reason for name, reason in report.items() if name.startswith("wrong ")]
    assert reason.startswith("a spot check found it wrong: output y at ")


def test_the_first_implementation_that_is_right_computes_the_call() -> None:
    report, said = result_of(
        f"""
right = tensor.from_raw_tensor(wrap.MatMul(make(33, 40), make(40, 50, seed=1))).numpy()
spoil_kernels("MatMulSpec", "onednn")
add_wrong_kernels("MatMulSpec", {ALWAYS})
got = tensor.from_raw_tensor(wrap.MatMul(make(33, 40), make(40, 50, seed=1))).numpy()
plans = [plan.plan.split()[:2] for plan in wrap.GetRefusedPlans()]
print(json.dumps([float(np.abs(got - right).max()), plans]))
"""
    )
    error, plans = report
    assert error < 1e-5
    assert len(said) == len(plans) >= 1
    assert all(first == "wrong" for first, _ in plans)


def test_without_another_implementation_the_call_fails() -> None:
    report, said = result_of(
        f"""
spoil_kernels("SoftmaxSpec")
add_wrong_kernels("SoftmaxSpec", {LAST_CORNER})
try:
    wrap.Softmax(make(3, 7), 1)
    print(json.dumps("computed"))
except RuntimeError as error:
    print(json.dumps([str(error), len(wrap.GetRefusedPlans())]))
"""
    )
    error, refused = report
    assert str(error).startswith("[Softmax] wrong ")
    assert str(error).endswith(", and no other implementation computes this call")
    assert len(said) == refused >= 1


@pytest.mark.parametrize("way", ["setting", "environment"])
def test_they_can_be_turned_off(way: str) -> None:
    off = "singa.set_spot_checks(False)" if way == "setting" else "pass"
    report, said = result_of(
        f"""
{off}
right = wrap.Softmax(make(3, 7), 1)
add_wrong_kernels("SoftmaxSpec", {LAST_CORNER})
wrong = wrap.Softmax(make(3, 7), 1)
last = [tensor.from_raw_tensor(t).numpy()[-1, -1] for t in (right, wrong)]
print(json.dumps([float(x) for x in last] + [len(wrap.GetRefusedPlans())]))
""",
        **({"SINGA_SPOT_CHECKS": "0"} if way == "environment" else {}),
    )
    right, wrong, refused = report
    assert wrong == pytest.approx(2 * right + 1)
    assert (refused, said) == (0, [])


def test_zeros_do_not_count_and_later_runs_are_checked() -> None:
    """The first gradients may be zeros, of which a wrong sum is right."""
    report, _ = result_of(
        f"""
zeros = wrap.from_buffer(np.zeros((3, 4), np.float32))
add_wrong_kernels("MatMulSpec", {WHERE_LARGE})
for _ in range(63):
    wrap.MatMul(zeros, make(4, 5))
large = wrap.from_buffer(np.full((3, 4), 200, np.float32))
got = tensor.from_raw_tensor(wrap.MatMul(large, make(4, 5))).numpy()
want = np.full((3, 4), 200) @ tensor.from_raw_tensor(make(4, 5)).numpy()
print(json.dumps([float(np.abs(got - want).max()), len(wrap.GetRefusedPlans())]))
"""
    )
    error, refused = report
    assert error < 1e-3
    assert refused == 1


@pytest.mark.parametrize("size", [1e19, 1e25])
def test_statistics_that_overflow_are_not_compared(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autograd, "training", True)
    x = size * np.random.default_rng(0).normal(size=(4, 3, 5, 7)).astype(np.float32)
    before = len(singa_wrap.GetRefusedPlans())
    y = layer.BatchNorm2d()(tensor.from_numpy(x)).numpy()
    assert len(singa_wrap.GetRefusedPlans()) == before
    if size == 1e25:  # the variance is infinite
        np.testing.assert_array_equal(y, 0 * x)


def test_bits_and_random_numbers_are_those_without_checks() -> None:
    report, _ = result_of(
        f"""{NETWORK}
checked = losses(True, None)
state = tensor.Tensor((3,)).gaussian(0, 1).numpy().tolist()
singa.set_spot_checks(False)
singa.plan_cache.clear()
plain = losses(True, None)
again = tensor.Tensor((3,)).gaussian(0, 1).numpy().tolist()
print(json.dumps([checked, plain, state, again]))
"""
    )
    checked, plain, state, again = report
    assert checked == plain
    assert state == again


def test_poison_shows_what_was_not_written() -> None:
    """Executed and recorded; without it, memory that was used before looks like a result."""
    report, _ = result_of(
        f"""{NETWORK}
add_wrong_kernels("ConvSpec", {NOTHING})
softmax = wrap.Softmax(make(3, 7), 1)
print(json.dumps([losses(False, None)[0], losses(True, None)[-1],
                  tensor.from_raw_tensor(softmax).numpy().sum().item()]))
""",
        SINGA_POISON="1",
        SINGA_SPOT_CHECKS="0",
    )
    executed, recorded, softmax = report
    assert executed != executed
    assert recorded != recorded
    assert softmax == pytest.approx(3)
