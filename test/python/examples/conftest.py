"""Runs the examples as their users do: as programs."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def examples() -> Path:
    """Their folder."""
    return Path(__file__).parents[3] / "examples"


@pytest.fixture
def run(examples: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """run("mnist/train.py", "--epochs", "1"): the finished process, started in `tmp_path`."""

    def run_example(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(examples / script), *arguments]
        # One thread: networks as small as these are not faster with two.
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
        )

    return run_example
