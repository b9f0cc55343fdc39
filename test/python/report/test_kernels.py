"""All implementations of an operation are compared with `reference`."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import replay_calls
import singa
from singa import singa_wrap as wrap
from singa.report.kernels import check_kernels, pairwise
from singa.tensor import from_numpy, from_raw_tensor

pytestmark = pytest.mark.cpu("the implementations are the CPU's")
SUPPORT = Path(__file__).parents[1] / "support" / "calls"


def test_every_two_values_meet_and_meet_again():
    factors = {"a": range(5), "b": "xyz", "c": (True, False), "d": range(7)}
    drawn = pairwise(factors, np.random.default_rng(0))
    for _ in range(2):  # the second round has all pairs, too
        left = {
            (p, x, q, y) for p, q in itertools.combinations(factors, 2)
            for x in factors[p] for y in factors[q]
        }  # fmt: skip
        count = 0
        while left:
            case = next(drawn)
            left -= {(p, case[p], q, case[q]) for p, q in itertools.combinations(factors, 2)}
            count += 1
        assert 5 * 7 <= count <= 2 * 5 * 7


def test_the_draw_follows_from_the_seed():
    factors = {"a": range(9), "b": range(8)}
    draws = [
        [
            case
            for case, _ in zip(pairwise(factors, np.random.default_rng(s)), range(20), strict=False)
        ]
        for s in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_no_implementation_that_can_be_chosen_is_wrong():
    report = check_kernels(seed=3, cases=54)
    assert report.cases == 54
    assert not report.wrong, str(report)
    operations = {row.op for row in report.implementations}
    assert operations >= {"ConvForward", "ConvBackwardX", "ConvBackwardW", "MatMul"}
    assert any(row.name.startswith("onednn") for row in report.implementations)
    assert "0 wrong" in str(report).splitlines()[-1]


@pytest.mark.parametrize("channels", [1, 5, 21, 33, 49])
@pytest.mark.parametrize("size", [(9, 10), (10, 15), (9, 9)])
def test_pointwise_convolutions_of_odd_channels_in_bfloat16(channels, size, torch):
    """oneDNN's jit_bf16_1x1 is wrong for them where images are channels-last."""
    rng = np.random.default_rng(channels)

    def values(*shape):
        array = torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).bfloat16()
        return array, from_numpy(array.float().numpy(), dtype="bfloat16").data

    (x, sx), (w, sw) = values(2, channels, *size), values(16, channels, 1, 1)
    handle = wrap.ConvHandle(sx, [1, 1], [1, 1], [0, 0], channels, 16, False)
    want = torch.nn.functional.conv2d(x.double(), w.double()).numpy()
    with singa.opcheck(every_kernel=True) as check:
        y = wrap.ConvForward(sx, sw, wrap.Tensor(), handle)
        dy = from_numpy(want.astype(np.float32), dtype="bfloat16").data
        wrap.ConvBackward(dy, sx, sw, handle, True, True, False)
    got = from_raw_tensor(y).as_type("float32").numpy()
    assert np.abs(got - want).max() <= 0.01 * np.abs(want).max()
    chosen = [row for row in check.kernels() if not row["refused"]]
    # Without instructions for bfloat16 there is `reference` alone.
    operations = {row["op"] for row in chosen}
    assert operations in (set(), {"ConvForward", "ConvBackwardX", "ConvBackwardW"})
    assert not [row for row in chosen if row["failed"]]


@pytest.mark.skipif(not replay_calls.LIBRARY.exists(), reason="singa was built without tests")
def test_a_wrong_implementation_is_found():
    """Each operation is drawn once, however short the time is."""
    program = (
        "import sys; from replay_calls import add_wrong_kernels\n"
        "from singa.__main__ import main\n"
        "add_wrong_kernels('MatMulSpec')\n"
        "sys.argv = ['singa', 'doctor', '--kernels', '--seconds', '0.001']\n"
        "sys.exit(main())"
    )
    paths = [str(SUPPORT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    assert "WRONG: MatMul by" in done.stdout
    assert "WRONG: Conv" not in done.stdout
