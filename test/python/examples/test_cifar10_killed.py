"""examples/cifar10/train.py, killed or interrupted from outside, and gone on with."""

import signal
import subprocess
import sys
import time

import pytest
from cifar10_run import OPTIONS, outcome
from singa.files import state_files
from singa.training import checkpoint

pytestmark = pytest.mark.usefixtures("as_before")


# Runs a script and kills its own process at the COUNT-th call of a function: before it, after it,
# or, for a function that writes a file, with half of the file written.
KILLER = """
import importlib, os, runpy, signal, sys
point, mode, count, script, *arguments = sys.argv[1:]
path, name = point.rsplit(".", 1)
try:
    owner = importlib.import_module(path)
except ImportError:
    module, kind = path.rsplit(".", 1)
    owner = getattr(importlib.import_module(module), kind)
original, left = getattr(owner, name), int(count)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def wrapper(*args, **kwargs):
    global left
    left -= 1
    if left == 0 and mode == "before":
        die()
    result = original(*args, **kwargs)
    if left == 0 and mode == "half":
        args[0].flush()
        args[0].truncate(args[0].tell() // 2)
    if left == 0:
        die()
    return result

setattr(owner, name, wrapper)
sys.argv = [script, *arguments]
runpy.run_path(script, run_name="__main__")
"""


class Runs:
    """A run that is started as a program again and again, resumed where there is a checkpoint."""

    def __init__(self, examples, folder, out, *options):
        self.out = out
        self.script = str(examples / "cifar10/train.py")
        self.arguments = ["--data", str(folder), *OPTIONS, "--out", str(out), *options]
        self.checkpoint = out / "checkpoint.safetensors"

    def start(self, *prefix):
        resume = ["--resume"] if self.checkpoint.exists() else []
        return subprocess.Popen(
            [sys.executable, *prefix, self.script, *self.arguments, *resume],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def steps(self):
        """Of the checkpoint, which has to be whole; None if there is none."""
        if not self.checkpoint.exists():
            return None
        assert checkpoint.read_progress(self.checkpoint)["settings"]["model"] == "lenet"
        return state_files.load_safetensors(self.checkpoint)[1]["optimizer"]["step_counter"]

    def finish(self):
        process = self.start()
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error


FAULTS = [
    # function, when, which call, step of the checkpoint afterwards (one is saved after each step)
    ("singa.files.state_files._write_safetensors", "half", 1, None),
    ("os.fsync", "before", 1, None),
    ("os.replace", "before", 1, None),
    ("os.replace", "after", 1, 1),
    ("singa.files.state_files._write_safetensors", "half", 2, 2),
    ("os.replace", "before", 1, 2),
    ("singa.metric.count_top_k", "before", 1, 2),  # before anything is saved of the third step
    ("singa.training.JsonLinesLog.append", "before", 1, 3),
    ("singa.training.JsonLinesLog.append", "after", 1, 3),  # logged, and not saved yet
    ("singa.files.state_files._write_safetensors", "half", 1, 3),
    ("singa.training.trainer.plot_curves", "before", 1, 3),
    ("singa.opt.SGD.__call__", "after", 3, 5),  # two more are saved
    ("singa.opt.SGD.__call__", "before", 1, 5),
    ("singa.model.Model.save_states", "before", 1, 9),
    ("singa.files.state_files._write_safetensors", "half", 1, 9),  # of the weights at the end
]


def test_killed_at_every_kind_of_moment(examples, folder, whole, tmp_path):
    runs = Runs(examples, folder, tmp_path / "run", "--checkpoint-steps", "1")
    for point, when, call, steps in FAULTS:
        process = runs.start("-c", KILLER, point, when, str(call))
        _, error = process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL, (point, when, call, error)
        assert runs.steps() == steps, (point, when, call)
    runs.finish()
    assert outcome(runs.out) == outcome(whole)


@pytest.mark.slow
def test_killed_at_any_moment(examples, folder, tmp_path):
    """By the clock: some milliseconds after a start has saved its first checkpoint."""
    options = ("--epochs", "6", "--checkpoint-steps", "1")
    reference = Runs(examples, folder, tmp_path / "whole", *options)
    reference.finish()
    runs, kills = Runs(examples, folder, tmp_path / "run", *options), 0
    for delay_ms in (0, 5, 23):
        before = runs.steps() or 0
        process = runs.start()
        deadline = time.monotonic() + 120
        while process.poll() is None and (runs.steps() or 0) <= before:
            assert time.monotonic() < deadline
        time.sleep(delay_ms / 1000)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        assert runs.steps() > before
    assert kills >= 2
    runs.finish()
    assert outcome(runs.out) == outcome(reference.out)


def test_interrupted_from_outside(examples, folder, whole, tmp_path):
    """Ctrl-C as a terminal sends it, to a program that waits for nothing else."""
    runs = Runs(examples, folder, tmp_path / "run", "--epochs", "500", "--checkpoint-steps", "1")
    process = runs.start()
    deadline = time.monotonic() + 120
    while runs.steps() is None:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"stopped after step {runs.steps()}; --resume continues from there" in out
    assert "Traceback" not in error
