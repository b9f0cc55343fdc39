"""Spot checks find kernels that are wrong on purpose, without OPCHECK, and replace their results;
SINGA_POISON shows what was not written.

The kernels run in processes of their own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import replay_calls
from replay_calls import ALWAYS, LAST_CORNER, NOTHING, WHERE_LARGE

pytestmark = [
    pytest.mark.cpu("the wrong kernels are the CPU's"),
    pytest.mark.skipif(not replay_calls.LIBRARY.exists(), reason="singa was built without tests"),
]
SUPPORT = Path(__file__).parents[1] / "support"
BEGIN = """
import json, os, sys
import numpy as np
import singa
from singa import autograd, layer, model, opt, singa_wrap as wrap, tensor
from replay_calls import add_wrong_kernels, bfloat16, integers, make, spoil_kernels

"""


def result_of(program: str, **environment: str) -> tuple[dict[str, object], list[str]]:
    """The JSON object that a program prints, and its lines on stderr."""
    paths = [str(SUPPORT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr.splitlines()


# An operation of each family of the table in docs/how_it_works/spot_checks.md, with its Spec.
CONV = "wrap.ConvHandle(make(2, 16, 6, 6), [3, 3], [1, 1], [1, 1], 16, 20)"
TRANSPOSED = (
    "wrap.ConvTransposeHandle(make(2, 5, 4, 4), [3, 3], [2, 2], [1, 1], [1, 1], 5, 6, True)"
)
POOLING = "wrap.PoolingHandle(make(2, 5, 6, 6), [3, 3], [2, 2], [1, 1], False)"
MAXIMUM = "wrap.PoolingHandle(make(2, 5, 6, 6), [3, 3], [2, 2], [1, 1], True)"
BYTES = "integers(2, 4, 5, 5, most=200, dtype='uint8'), integers(6, 4, 3, 3, dtype='int8')"
CALLS = {
    "convolution": (
        "ConvSpec",
        f"wrap.ConvForward(make(2, 16, 6, 6), make(20, 16, 3, 3, seed=1), make(20), {CONV})",
    ),
    "convolution with addition and ReLU": (
        "ConvSpec",
        f"wrap.ConvForward(make(2, 16, 6, 6), make(20, 16, 3, 3, seed=1), make(20), {CONV},"
        " make(2, 20, 6, 6), True)",
    ),
    "convolution in 16 bits": (
        "ConvSpec",
        f"wrap.ConvForward(bfloat16(2, 16, 6, 6), bfloat16(20, 16, 3, 3), bfloat16(20), {CONV})",
    ),
    "gradient of an image": (
        "ConvSpec",
        f"wrap.ConvBackwardX(make(2, 20, 6, 6), make(20, 16, 3, 3, seed=1), {CONV})",
    ),
    "gradient of a filter": (
        "ConvSpec",
        f"wrap.ConvBackwardW(make(2, 20, 6, 6), make(2, 16, 6, 6, seed=1), {CONV})",
    ),
    "gradient of a bias": ("ConvSpec", f"wrap.ConvBackwardB(make(2, 20, 6, 6), {CONV})"),
    "transposed convolution": (
        "ConvTransposeSpec",
        f"wrap.ConvTransposeForward(make(2, 5, 4, 4), make(5, 6, 3, 3, seed=1), make(6),"
        f" {TRANSPOSED})",
    ),
    "gradients of a transposed convolution": (
        "ConvTransposeSpec",
        f"wrap.ConvTransposeBackward(make(2, 6, 8, 8), make(2, 5, 4, 4), make(5, 6, 3, 3),"
        f" {TRANSPOSED}, True, True, True)",
    ),
    "product": ("MatMulSpec", "wrap.MatMul(make(3, 4, 5), make(5, 6, seed=1))"),
    "product of transposed matrices": (
        "MatMulSpec",
        "wrap.MatMul(make(2, 5, 4), make(2, 6, 5, seed=1), True, True)",
    ),
    "linear layer": (
        "MatMulSpec",
        "wrap.LinearForward(make(3, 4), make(4, 5, seed=1), make(5), False, True)",
    ),
    "average pooling": ("PoolingForwardSpec", f"wrap.PoolingForward({POOLING}, make(2, 5, 6, 6))"),
    "gradient of average pooling": (
        "PoolingBackwardSpec",
        f"wrap.PoolingBackward({POOLING}, make(2, 5, 3, 3), make(2, 5, 6, 6), None, None)",
    ),
    "maximum pooling": ("PoolingForwardSpec", f"wrap.PoolingForward({MAXIMUM}, make(2, 5, 6, 6))"),
    "softmax": ("SoftmaxSpec", "wrap.Softmax(make(3, 7), 1)"),
    "log softmax": ("SoftmaxSpec", "wrap.LogSoftmax(make(3, 7, 2), 1)"),
    "gradient of softmax": (
        "SoftmaxBackwardSpec",
        "wrap.SoftmaxBackward(make(3, 7, seed=1), make(3, 7), 1)",
    ),
    "LRN": ("LrnForwardSpec", "wrap.LrnForward(make(2, 7, 3, 3), 5)"),
    "LRN that saves": (
        "LrnForwardSpec",
        "wrap.LrnForward(wrap.ToBlocked(make(2, 16, 3, 3)), 5, 1e-4, 0.75, 1.0, True)[0]",
    ),
    "gradient of LRN": (
        "LrnBackwardSpec",
        "wrap.LrnBackward(make(2, 7, 3, 3), make(2, 7, 3, 3, seed=1), None, None, 5, 0.1, 0.75,"
        " 1.0)",
    ),
    "convolution of bytes": (
        "QuantizedConvSpec",
        f"wrap.QuantizedConv({BYTES}, integers(1, dtype='int32'), make(6), make(6),"
        " integers(1, dtype='int32'), wrap.ConvHandle(make(2, 4, 5, 5), [3, 3], [1, 1], [1, 1],"
        " 4, 6), wrap.kUInt8, True)",
    ),
    "product of bytes": (
        "QuantizedMatMulSpec",
        "wrap.QuantizedMatMul(integers(3, 4, most=200, dtype='uint8'),"
        " integers(4, 6, dtype='int8'), integers(1, dtype='int32'), make(6), None, None,"
        " wrap.kFloat32)",
    ),
}
ONE_CALL = """
def results(call):
    found = eval(call)
    found = found if isinstance(found, (tuple, list)) else [found]
    return [tensor.from_raw_tensor(t.AsType(wrap.kFloat32)).numpy() for t in found if t is not None]
call, spec, wrong = {call!r}, {spec!r}, {wrong}
right = results(call)
add_wrong_kernels(spec, wrong)
first, second = results(call), results(call)
for got in (first, second):
    for a, b in zip(got, right, strict=True):
        np.testing.assert_array_equal(a, b)  # what the next implementation computes
refused = wrap.GetRefusedPlans()
print(json.dumps([[plan.plan, plan.call, plan.reason] for plan in refused]))
"""


@pytest.mark.parametrize("wrong", [ALWAYS, LAST_CORNER], ids=["first corner", "last corner"])
@pytest.mark.parametrize("family", CALLS)
def test_a_kernel_that_is_wrong_in_a_corner_is_replaced(family: str, wrong: int) -> None:
    spec, call = CALLS[family]
    refused, said = result_of(ONE_CALL.format(call=call, spec=spec, wrong=wrong))
    assert refused, "nothing was found"
    for (plan, text, reason), line in zip(refused, said, strict=True):
        assert plan.startswith("wrong ")
        assert reason.startswith("output ")
        assert "a plain sum gives" in reason
        assert line.startswith(f"singa: [{text.split()[0]}] {plan} computed a wrong result: ")
        assert f"It is refused for {text} from now on. Run again: python -m singa replay " in line
        file = line.rsplit(" ", 1)[1]
        assert Path(file).stat().st_size > 0


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
        ONE_CALL.format(call=CALLS["softmax"][1], spec="SoftmaxSpec", wrong=LAST_CORNER)
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

def losses(recorded, large):
    singa.seed(0)
    rng = np.random.default_rng(0)
    net = Net()
    net.set_optimizer(opt.SGD(lr=1e-5))
    x = tensor.from_numpy(rng.uniform(size=(4, 3, 8, 8)).astype(np.float32))
    y = tensor.from_numpy(rng.integers(0, 4, 4).astype(np.int32))
    net.compile([x], is_train=True, use_graph=recorded)
    values = []
    for step in range(6):
        if step == large:
            x.copy_from_numpy(x.numpy() + np.float32(200))
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
