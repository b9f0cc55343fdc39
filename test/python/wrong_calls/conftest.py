"""After each wrong call the process trains on, to the same bits as a fresh one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import singa
import wrong_call


@pytest.fixture(scope="session")
def fresh() -> list[str]:
    """What training gives in a process in which nothing went wrong."""
    done = subprocess.run(
        [sys.executable, Path(wrong_call.__file__)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.fixture(scope="package", autouse=True)
def one_thread():
    """The net is too small for two, which would wait for each other longer than they work."""
    before = singa.get_num_threads()
    singa.set_num_threads(1)
    yield
    singa.set_num_threads(before)


@pytest.fixture(autouse=True)
def trains_on(fresh: list[str]):
    limits = [singa.plan_cache.stats()[name] for name in ("max_bytes", "max_entries")]
    yield
    assert singa.get_num_threads() == 1
    assert [singa.plan_cache.stats()[name] for name in ("max_bytes", "max_entries")] == limits
    assert singa.plan_cache.enabled()
    assert wrong_call.trained() == fresh
