"""Simulated collectives, beside closed formulas."""

import re
from pathlib import Path

import pytest
from singa.launcher.estimate import chain as module
from singa.launcher.estimate.chain import Network, agreed, all_gather, chain, ring, window

HEADER = 48
SOURCES = Path(__file__).parents[4] / "src/distributed"


def _hop(size, network):
    """Seconds until a message of so many bytes is at the next machine."""
    return (size + HEADER) / network.bandwidth + network.latency


def test_the_window_is_the_engines():
    text = (SOURCES / "node_memory.cc").read_text()
    assert "kBufferBytes = size_t{1} << 20;" in text
    assert re.search(r"kMostBuffers = (\d+);", text)[1] == str(module.MOST_BUFFERS)
    assert "std::min(kMostBuffers, std::bit_ceil(4 * static_cast<uint64_t>(nodes)))" in text
    assert "{1, memory.buffers() - 2}, where," in (SOURCES / "collectives.cc").read_text()
    assert [window(n) for n in (2, 3, 4, 1024)] == [(8, 1 << 17), *[(16, 1 << 16)] * 3]


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


def test_the_window_limits_long_chains():
    """14 chunks are on their way at once."""
    network = Network(1e9, 5e-3)
    one, two = (chain([0] * 16, n * 14 << 16, network)[0] for n in (10, 20))
    round_trip = 30 * _hop(1 << 16, network)
    assert two - one == pytest.approx(10 * round_trip, rel=0.02)


@pytest.mark.parametrize(("machines", "latency"), [(2, 1e-4), (5, 1e-3), (12, 1e-2)])
def test_long_messages_follow_from_shorter_ones(machines, latency, monkeypatch):
    """Beyond some windows the simulation is extended by a straight line."""
    network, begins = Network(12.5e6, latency), [0.001 * i for i in range(machines)]
    buffers, chunk = window(machines)
    size = 90 * buffers * chunk // 10 + 3 * chunk + 77
    extended = chain(begins, size, network)
    last = size % chunk
    whole = module._Pipeline(
        begins,
        size // chunk + 1,
        (chunk + HEADER) / network.bandwidth,
        (last + HEADER) / network.bandwidth,
        latency,
        buffers,
    ).run()
    assert extended == pytest.approx(whole, rel=0.01)


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
