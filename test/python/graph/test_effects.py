"""Steps with effects in Python: recorded ones do what executed ones do, and are replayed or warned
of. The programs are those of the fuzzer's target `effects`."""

import sys
from pathlib import Path
from random import Random

import pytest

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
sys.path.insert(0, str(FUZZ))
try:
    from draw import Draw
    from effects import EFFECTS, Drawn, compare
finally:
    sys.path.remove(str(FUZZ))


_NAMES = [
    pytest.param(name, marks=[pytest.mark.cpu("NumPy writes to memory of the CPU")] * effect.shared)
    for name, effect in EFFECTS.items()
]


@pytest.mark.parametrize("name", _NAMES)
def test_one_effect(name):
    assert compare(Drawn(Draw(Random(name).randbytes(16)), [name])) == EFFECTS[name].benign


@pytest.mark.cpu("some of them write to memory of the CPU by NumPy")
def test_random_programs_are_as_executed_and_half_of_them_are_replayed():
    random = Random(1)
    replayed = [compare(Drawn(Draw(random.randbytes(24)))) for _ in range(20)]
    assert sum(replayed) >= 10
