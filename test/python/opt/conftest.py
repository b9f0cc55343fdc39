"""Fixtures of tests with several ranks."""

import pytest
import singa


@pytest.fixture
def on_nodes(monkeypatch):
    """Sets how many ranks share memory; the others are reached as if on another machine."""
    return lambda ranks: monkeypatch.setenv("SINGA_NODE_RANKS", str(ranks))


@pytest.fixture(scope="module")
def one_thread():
    """Ranks have one thread, and layouts may depend on their number."""
    before = singa.get_num_threads()
    singa.set_num_threads(1)
    yield
    singa.set_num_threads(before)
