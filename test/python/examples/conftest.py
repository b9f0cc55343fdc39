"""Runs the examples as programs, as users do."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import program_in_process
import pytest
from cifar10_run import OPTIONS, write_cifar10
from singa.examples import cifar10


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of the examples."""
    return Path(__file__).parents[3] / "examples"


@pytest.fixture
def run(examples: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """run("mnist/train.py", "--epochs", "1") gives the finished process, which ran in
    `tmp_path`."""

    def run_example(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(examples / script), *arguments]
        # One thread, because small networks are not faster with two.
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
        )

    return run_example


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_cifar10(tmp_path_factory.mktemp("cifar"))


@pytest.fixture
def as_before():
    """Undoes what a script may leave behind and a module may not."""
    with program_in_process.as_before():
        yield


@pytest.fixture
def main(folder):
    """main(out, *options): the exit status of a run on the small data, in this process."""

    def run_main(out, *options):
        arguments = ["--data", str(folder), *OPTIONS, "--out", str(out), *options]
        return program_in_process.status_of(cifar10.main, arguments, "train.py")

    return run_main


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """The folder of a run that was never stopped."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert cifar10.main(["--data", str(folder), *OPTIONS, "--out", str(out)], "train.py") == 0
    return out
