"""benchmark/guard.py: the interval of a ratio of times, its verdict, and the pairs that count."""

import numpy as np
import pytest
from benchmark_scripts import script

#: Ratios of two equal builds, measured with a noise of 1 %.
EQUAL = [0.991, 1.012, 1.003, 0.987, 1.008, 0.998]

guard = script("guard")


@pytest.mark.parametrize(("dof", "t"), [(1, 12.706), (3, 3.182), (5, 2.571), (30, 2.042)])
def test_student_quantile_is_that_of_tables(guard, dof, t):
    assert guard.student_quantile(dof) == pytest.approx(t, abs=2e-3)


def test_interval_is_students_on_the_logarithms(guard):
    found = guard.interval([np.exp(-0.01), np.exp(0.03), np.exp(0.01)])
    # mean 0.01, standard deviation 0.02, t(0.975, 2) = 4.303
    margin = 4.303 * 0.02 / np.sqrt(3)
    assert np.log(found) == pytest.approx([0.01, 0.01 - margin, 0.01 + margin], abs=1e-5)


@pytest.mark.parametrize(
    ("factor", "expected"), [(1, "no difference found"), (1.03, "slower"), (1 / 1.03, "faster")]
)
def test_verdict_on_a_shift_of_3_percent(guard, factor, expected):
    found = guard.interval([factor * ratio for ratio in EQUAL])
    assert guard.verdict(found) == expected
    assert found.ratio == pytest.approx(factor, rel=1e-3)


def test_an_outlier_makes_no_build_slower(guard):
    assert guard.verdict(guard.interval([*EQUAL[:-1], 1.5])) == "no difference found"


def test_ratios_without_any_spread(guard):
    assert guard.interval([1.0] * 6) == (1, 1, 1)
    assert guard.verdict(guard.interval([1.0] * 6)) == "no difference found"


def test_equal_builds_are_rarely_found_slower(guard):
    noise = np.random.default_rng(0).normal(0, 0.01, (500, 6))
    verdicts = [guard.verdict(guard.interval(list(np.exp(row)))) for row in noise]
    assert verdicts.count("slower") < 0.05 * len(noise)  # 2.5 % are expected


def test_mean_over_networks_finds_what_none_of_them_shows(guard):
    noisy = [1.01 * ratio**2 for ratio in EQUAL]
    assert guard.verdict(guard.interval(noisy)) == "no difference found"
    found = guard.mean_interval([noisy] * 7)
    assert guard.verdict(found) == "slower"
    one = guard.interval(noisy)
    assert found.ratio == pytest.approx(one.ratio)
    assert found.high / found.low < (one.high / one.low) ** 0.5


def test_least_disturbed_pairs_count(guard):
    def pair(number, *products):
        return guard.Pair(number, number, [[product, 20.0] for product in products])

    pairs = [pair(0, 10, 10, 10), pair(1, 10, 30, 10), pair(2, 11, 10, 10), pair(3, 10, 10, 13)]
    best = [10, 20]
    assert [guard.disturbance(one, best) for one in pairs] == [1, 3, 1.1, 1.3]
    assert [one.old for one in guard.least_disturbed(pairs, best, 3)] == [0, 2, 3]


def test_first_difference_of_losses(guard):
    old = [value.hex() for value in (2.5, 1.5, 0.5)]
    assert guard.first_difference(old, old) == "3 losses are equal"
    new = [old[0], (1.25).hex(), old[2]]
    assert guard.first_difference(old, new) == "differ from step 2 on: 1.5 and 1.25"
