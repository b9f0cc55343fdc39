"""Simulated steps, beside closed formulas."""

import pytest
from singa.launcher.estimate.chain import Network, all_gather, chain, ring
from singa.launcher.estimate.simulation import estimate
from singa.launcher.estimate.step_profile import Compute, Gather, Start, StepProfile, Wait

NETWORK = Network(12.5e6, 1e-3)
SMALL, LARGE = 100_000, 3_000_000


def _profile(*events, memory=0):
    return StepProfile("test", events, memory)


def _exchange(machines, size):
    return max(chain([0.0] * machines, size, NETWORK))


@pytest.mark.parametrize("machines", [2, 3, 6])
def test_an_exchange_that_nothing_hides(machines):
    found = estimate(_profile(Compute(0.2), Start(LARGE), Wait(0)), machines, NETWORK)
    assert found.step == pytest.approx(0.2 + _exchange(machines, LARGE))
    assert found.exchange == pytest.approx(_exchange(machines, LARGE))
    assert found.hidden == pytest.approx(0, abs=1e-9)
    assert found.efficiency == pytest.approx(0.2 / found.step)


@pytest.mark.parametrize("machines", [2, 3, 6])
def test_overlap_hides_all_but_the_last_bucket(machines):
    events = [Compute(0.1), Start(LARGE), Compute(2.0), Start(SMALL), Wait(0), Wait(1)]
    found = estimate(_profile(*events), machines, NETWORK)
    assert found.step == pytest.approx(2.1 + _exchange(machines, SMALL))


def test_an_exchange_that_is_hidden():
    events = [Compute(0.1), Start(LARGE), Compute(2.0), Wait(0), Compute(0.3)]
    found = estimate(_profile(*events), 4, NETWORK)
    assert found.step == pytest.approx(2.4)
    assert found.hidden == pytest.approx(1)


def test_buckets_go_one_after_the_other():
    """The second one begins when the first machine, whose results come last, has the first one."""
    events = [Compute(0.1), Start(SMALL), Start(SMALL), Wait(0), Wait(1)]
    found = estimate(_profile(*events), 3, NETWORK)
    assert found.step == pytest.approx(0.1 + 2 * _exchange(3, SMALL))


def test_an_update_hides_a_later_bucket():
    events = [Compute(0.1), Start(SMALL), Start(SMALL), Wait(0), Compute(9.0), Wait(1)]
    found = estimate(_profile(*events), 3, NETWORK)
    assert found.step == pytest.approx(9.1 + _exchange(3, SMALL))


def test_running_statistics_wait_for_all_buckets():
    found = estimate(_profile(Compute(0.1), Start(SMALL), Gather(5000), Wait(0)), 2, NETWORK)
    header = 48 / NETWORK.bandwidth
    first, last = chain([0, 0], SMALL, NETWORK)
    begins = [first, max(last, first + NETWORK.latency + header)]
    # The second machine has its statistics a latency earlier, so that its description of the next
    # bucket comes when the first one has just begun.
    assert found.step == pytest.approx(0.1 + header + max(all_gather(begins, 5000, NETWORK)))


def test_ranks_of_a_machine():
    profile = _profile(Compute(0.1), Start(LARGE), Wait(0), memory=1 << 30)
    found = estimate(profile, 8, NETWORK, per_machine=4)
    assert found.step == pytest.approx(estimate(profile, 2, NETWORK).step)
    assert found.memory == 4 * (1 << 30) + 10 * (1 << 20) + 8 * (36 << 10)
    with pytest.raises(ValueError, match="4 ranks, 4 on a machine, exchange nothing"):
        estimate(profile, 4, NETWORK, per_machine=4)


def test_a_ring_instead():
    found = estimate(_profile(Compute(0.1), Start(LARGE), Wait(0)), 5, NETWORK, all_reduce=ring)
    assert found.exchange == pytest.approx(8 * (LARGE / 5 / 12.5e6 + 1e-3), rel=0.02)
