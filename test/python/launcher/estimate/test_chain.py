"""Simulated collectives, beside closed formulas."""

from pathlib import Path

import pytest
from singa.launcher.estimate import chain as module
from singa.launcher.estimate.chain import (
    Network,
    agreed,
    all_gather,
    chain,
    ring,
    shared_memory,
    window,
)

HEADER = 48
SOURCES = Path(__file__).parents[4] / "src/distributed"


def _hop(size, network):
    """Seconds until a message of so many bytes is at the next machine."""
    return (size + HEADER) / network.bandwidth + network.latency


def test_the_window_is_the_engines():
    text = (SOURCES / "transport/node_memory.cc").read_text()
    for line in (
        "constexpr uint64_t kBuffersOfNode = 4, kMostShared = 16;",
        "constexpr size_t kFewBytes = size_t{1} << 20, kMostBytes = size_t{16} << 20;",
        "kShortestChunk = size_t{16} << 10, kLongestChunk = size_t{64} << 10;",
        "return nodes == 1 ? kBuffersOfNode : std::bit_ceil(4 * static_cast<uint64_t>(nodes));",
    ):
        assert line in text
    assert (
        "{1, memory.buffers() - 2}, where," in (SOURCES / "collectives/collectives.cc").read_text()
    )
    found = [window(n) for n in (2, 3, 4, 8, 16, 256, 1024)]
    assert [buffers for buffers, _ in found] == [8, 16, 16, 32, 64, 1024, 4096]
    assert [chunk >> 10 for _, chunk in found] == [128, 64, 64, 64, 64, 16, 16]


def test_memory():
    """Four ranks on each of two machines; one on each of 16."""
    assert shared_memory(8, 4) == 10 * (1 << 20) + 8 * (36 << 10)
    assert shared_memory(16, 1) == 3 * (4 << 20) + 15 * (1 << 20) + 16 * (36 << 10)


@pytest.mark.parametrize("chunks", [1, 2, 5, 20])
def test_two_machines_take_bytes_over_bandwidth_and_latency(chunks):
    """The last chunk comes back as soon as it has arrived."""
    network = Network(12.5e6, 1e-3)
    size = chunks << 17
    sending = (size + chunks * HEADER) / network.bandwidth
    back = _hop(1 << 17, network)
    want = [sending + network.latency + back, sending + network.latency]
    assert chain([0, 0], size, network) == pytest.approx(want)


@pytest.mark.parametrize("machines", [2, 3, 7])
def test_one_chunk_goes_there_and_back(machines):
    network = Network(1e6, 2e-3)
    hop = _hop(1000, network)
    want = [(2 * (machines - 1) - i) * hop for i in range(machines)]
    assert chain([0] * machines, 1000, network) == pytest.approx(want)


def test_all_wait_for_the_one_that_begins_last():
    network = Network(1e6, 2e-3)
    late = chain([0, 5, 0], 1000, network)
    assert late == pytest.approx([5 + hops * _hop(1000, network) for hops in (3, 2, 1)])


@pytest.mark.parametrize(("machines", "times"), [(2, 1), (3, 2), (5, 2)])
def test_each_byte_more(machines, times):
    """From three machines on, one in the middle sends sums on and results back by one interface."""
    network = Network(12.5e6, 1e-5)
    one, two = (chain([0] * machines, n * 8_000_000, network)[0] for n in (1, 2))
    assert two - one == pytest.approx(times * 8_000_000 / network.bandwidth, rel=0.02)


def test_the_window_limits_slow_hops():
    """62 chunks are on their way at once."""
    network = Network(1e9, 5e-3)
    one, two = (chain([0] * 16, n * 62 << 16, network)[0] for n in (10, 20))
    round_trip = 30 * _hop(1 << 16, network)
    assert two - one == pytest.approx(10 * round_trip, rel=0.05)


@pytest.mark.parametrize(
    ("machines", "latency", "windows"),
    [(2, 1e-4, 9), (5, 1e-3, 9), (12, 1e-2, 7), (20, 1e-4, 3), (20, 5e-2, 3)],
)
def test_long_messages_follow_from_shorter_ones(machines, latency, windows):
    """Beyond some windows the simulation is extended by a straight line."""
    network, begins = Network(12.5e6, latency), [0.001 * i for i in range(machines)]
    buffers, chunk = window(machines)
    size = windows * buffers * chunk + 3 * chunk + 77
    extended = chain(begins, size, network)
    sending = (chunk + HEADER) / network.bandwidth
    last = (77 + HEADER) / network.bandwidth
    whole = module._Pipeline(begins, size // chunk + 1, sending, last, latency, buffers).run()
    assert extended == pytest.approx(whole, rel=0.02 if machines < 20 else 0.06)


def test_descriptions_go_along_the_chain():
    network = Network(1e6, 1e-3)
    assert agreed([0, 3], 952, network) == pytest.approx([3 + 1e-3 + 1e-3, 3])
    want = [3 + 2e-3 + 1e-3, 3, 3 + 2e-3 + 1e-3, 3 + 2 * (2e-3 + 1e-3)]
    assert agreed([0, 3, 0, 1], 952, network) == pytest.approx(want)


def test_a_gather_passes_all_parts_on():
    network = Network(1e6, 1e-3)
    assert all_gather([0, 0], 952, network) == pytest.approx([2e-3] * 2)
    want = [5e-3 + hops * 1e-3 for hops in (3, 2, 2, 3)]
    assert all_gather([0] * 4, 952, network) == pytest.approx(want)


def test_a_ring():
    network = Network(1e6, 1e-3)
    assert ring([0, 2, 0, 0], 4000, network) == pytest.approx([2 + 6 * 2e-3] * 4)
    assert chain([1, 1], 0, network) == [1, 1]
