"""examples/cifar10/train.py on several ranks: results, resuming with another number, failures."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cifar10_run import outcome, write_cifar10
from singa.files import state_files

SCRIPT = Path(__file__).parents[3] / "examples/cifar10/train.py"
FAULTY = Path(__file__).parents[1] / "support/jobs/faulty_training.py"
TIMEOUT = 20  # seconds


class Training:
    """Runs the example as a program."""

    def __init__(self, folder):
        self.images = str(write_cifar10(folder))
        self.folder = folder

    def command(self, ranks, out, *options, fault=("none", 0, 0), launch=()):
        return [
            *(sys.executable, "-m", "singa", "launch", "-n", str(ranks)),
            *("--timeout", str(TIMEOUT), *map(str, launch)),
            *(str(FAULTY), *map(str, fault), str(SCRIPT)),
            *("--data", self.images, "--model", "lenet", "--batch-size", "32"),
            *("--out", str(self.folder / out), *options),
        ]

    def run(self, ranks, out, *options, status=0, **more):
        """Output and errors of a run."""
        ended = subprocess.run(
            self.command(ranks, out, *options, **more),
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert ended.returncode == status, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def weights(self, out):
        return state_files.load_safetensors(self.folder / out / "model.safetensors")[0]

    def outcome(self, out):
        return outcome(self.folder / out)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return Training(tmp_path_factory.mktemp("images"))


def _near(got, want):
    assert got.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, 0, 2e-5 * np.abs(value).max(), err_msg=name)


@pytest.fixture(scope="module")
def of_one(training):
    """Weights of one process. There is no augmentation, so batches are the same on all ranks."""
    training.run(1, "one", "--epochs", "2", "--no-augment")
    return training.weights("one")


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_weights_are_those_of_one_process(training, of_one, ranks):
    # Batches of 32, 32 and 16 images: 3 ranks have different numbers of them.
    output = training.run(ranks, f"on {ranks}", "--epochs", "2", "--no-augment")
    _near(training.weights(f"on {ranks}"), of_one)
    lines = [line for line in output.splitlines() if not line.startswith("singa launch")]
    assert all(line.startswith("[0] ") for line in lines)
    assert len([line for line in lines if re.match(r"\[0\] epoch \d/2  train loss", line)]) == 2


def test_a_run_resumes_with_another_number_of_ranks(training, of_one):
    # The second start of the job, with 1 rank, continues in the middle of the second epoch.
    output = training.run(
        2, "fewer", "--epochs", "2", "--no-augment", "--checkpoint-steps", "1",
        fault=("kill", 1, 4), launch=("--restarts", 1, "--restart-with", 1),
    )  # fmt: skip
    assert "[0] resumed after step 4" in output
    _near(training.weights("fewer"), of_one)


@pytest.mark.parametrize(
    ("fault", "node"),  # `node` ranks share memory; 0: all
    [("kill", 0), ("kill", 1), pytest.param("raise", 0, marks=pytest.mark.slow)],
)
def test_a_job_that_was_started_again_has_the_same_bits(training, fault, node, monkeypatch):
    options = ("--epochs", "2", "--checkpoint-steps", "1")
    if not (training.folder / "whole").exists():
        training.run(2, "whole", *options)
    monkeypatch.setenv("SINGA_NODE_RANKS", str(node))
    out = f"again after {fault} on {node}"
    output = training.run(2, out, *options, fault=(fault, 0, 4), launch=("--restarts", 1))
    assert "[0] resumed after step 4" in output
    assert training.outcome(out) == training.outcome("whole")


def test_virtual_ranks_make_it_the_same_experiment_on_any_number_of_ranks(training):
    options = ("--epochs", "2", "--checkpoint-steps", "1", "--virtual-ranks", "4")
    training.run(1, "virtual on 1", *options)
    output = training.run(
        2, "virtual, fewer", *options,
        fault=("kill", 1, 4), launch=("--restarts", 1, "--restart-with", 1),
    )  # fmt: skip
    assert "[0] resumed after step 4" in output
    want = training.weights("virtual on 1")
    for name, value in training.weights("virtual, fewer").items():
        np.testing.assert_array_equal(value, want[name], name)
    output = training.run(3, "virtual on 3", *options, status=1)
    assert "virtual_ranks must be a multiple of the 3 ranks, got 4" in output


@pytest.mark.slow
def test_a_signal_stops_all_ranks_after_the_same_step(training):
    out = training.folder / "stopped"
    process = subprocess.Popen(
        training.command(2, "stopped", "--epochs", "500"),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 2/500" in line:
            process.send_signal(signal.SIGTERM)
            break
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    stopped = re.search(r"\[0\] stopped after step (\d+); --resume continues from there", output)
    assert stopped
    metadata = state_files.load_safetensors(out / "checkpoint.safetensors")[1]
    assert metadata["optimizer"]["step_counter"] == int(stopped[1])
    assert len(metadata["random_of_ranks"]) == 2


def test_a_full_disk_is_reported_by_all(training):
    status = 1
    output = training.run(2, "disk", fault=("disk", 0, 1), status=status)
    assert re.search(r"\[0\] python train.py: .*: file too large", output)
    assert re.search(r"\[1\] .*rank 0.*[Ff]ile too large", output)
