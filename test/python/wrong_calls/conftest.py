"""After each wrong call the process trains, and must get the same bits as a fresh process. With
`--part N` it does so after each 10 N-th call and at the end of each file."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import singa
import wrong_call


@pytest.fixture(scope="session")
def fresh() -> list[str]:
    """The results of training in a process without errors."""
    done = subprocess.run(
        [sys.executable, Path(wrong_call.__file__)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """The network is too small for two threads, which would mostly wait for each other."""
    before = singa.get_num_threads()
    singa.set_num_threads(1)
    yield
    singa.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def trains_in_the_end(one_thread: None, fresh: list[str]):
    yield
    assert wrong_call.trained() == fresh


_calls = itertools.count(1)


@pytest.fixture(autouse=True)
def trains_on(request: pytest.FixtureRequest, fresh: list[str]):
    part = request.config.getoption("--part")
    limits = [singa.plan_cache.stats()[name] for name in ("max_bytes", "max_entries")]
    yield
    assert singa.get_num_threads() == 1
    assert [singa.plan_cache.stats()[name] for name in ("max_bytes", "max_entries")] == limits
    assert singa.plan_cache.enabled()
    if part == 1 or next(_calls) % (10 * part) == 0:
        assert wrong_call.trained() == fresh
