"""examples/text/train.py."""

import importlib.util
import os
import re
import signal

import pytest
from program_in_process import status_of
from singa.files import state_files
from singa.training import read_log

SMALL = (
    *("--steps", "9", "--eval-steps", "4", "--batch-size", "4", "--context", "16"),
    *("--width", "16", "--depth", "1", "--heads", "2", "--warmup", "2", "--sample", "5"),
)
pytestmark = pytest.mark.usefixtures("as_before")


@pytest.fixture(scope="module")
def program(examples):
    spec = importlib.util.spec_from_file_location("text_train", examples / "text/train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def main(program):
    def run_main(out, *options):
        return status_of(program.main, ["--out", out, *SMALL, *options], "train.py")

    return run_main


def outcome(out):
    """Weights, checkpoint and log of a run, without times."""
    weights, _ = state_files.load_safetensors(out / "model.safetensors")
    arrays, metadata = state_files.load_safetensors(out / "checkpoint.safetensors")
    log = [{k: v for k, v in r.items() if k != "tokens_per_s"} for r in read_log(out / "log.jsonl")]
    in_bytes = {name: value.tobytes() for name, value in (weights | arrays).items()}
    return in_bytes, metadata["optimizer"], metadata["progress"], log


def test_learns_the_generated_text(run, tmp_path):
    size = ("--width", "64", "--depth", "2", "--steps", "160", "--eval-steps", "80")
    done = run("text/train.py", "--quick", *size, "--lr", "0.006")
    assert done.returncode == 0, done.stderr
    # A slow machine gets lines of progress.
    assert all(line.startswith("train ") for line in done.stderr.splitlines()), done.stderr
    losses = re.findall(r"train loss ([\d.]+)  validation loss ([\d.]+)", done.stdout)
    assert len(losses) == 2
    # A uniform guess gives log(256) = 5.5, the frequencies of the letters 2.9.
    assert float(losses[1][1]) < 1.5
    *_, sample = done.stdout.partition("weights, curves and log are in")
    assert len(sample) > 200
    letters = "abcdefghijklmnopqrstuvwxyz"
    assert set(sample.split("\n", 1)[1]) <= {*letters, *letters.upper(), *" .\n"}
    files = ["checkpoint.safetensors", "curves.png", "log.jsonl", "model.safetensors"]
    assert sorted(os.listdir(tmp_path / "runs/text")) == files


@pytest.mark.parametrize("call", [1, 4, 6, 9])
def test_stopped_and_resumed_is_as_never_stopped(
    program, main, tmp_path, monkeypatch, capsys, call
):
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert main(whole, "--dropout", "0.2") == 0
    batch, count = program.batch, 0

    def interrupted(text, args, *number):
        nonlocal count
        count += number[0] == 0  # of training
        if count == call and number[0] == 0:
            signal.raise_signal(signal.SIGINT)
        return batch(text, args, *number)

    monkeypatch.setattr(program, "batch", interrupted)
    assert main(out, "--dropout", "0.2") == 130
    monkeypatch.setattr(program, "batch", batch)
    assert f"stopped after step {call}" in capsys.readouterr().out
    assert main(out, "--dropout", "0.2", "--resume") == 0
    assert f"resumed after step {call}" in capsys.readouterr().out
    assert outcome(out) == outcome(whole)
    assert [record["step"] for record in read_log(out / "log.jsonl")] == [4, 8, 9]


def test_writes_more_after_training(main, tmp_path, capsys):
    assert main(tmp_path / "run") == 0
    capsys.readouterr()
    options = ("--resume", "--sample", "30", "--prompt", "The cat")
    assert main(tmp_path / "run", *options) == 0
    first = capsys.readouterr().out
    assert first[first.index("The cat") :].startswith("The cat")
    assert main(tmp_path / "run", *options) == 0
    assert capsys.readouterr().out == first


def test_reads_a_file(main, tmp_path, capsys):
    path = tmp_path / "text"
    path.write_bytes(b"abc" * 200)
    assert main(tmp_path / "run", "--data", str(path), "--dtype", "bfloat16") == 0
    out = capsys.readouterr().out
    assert f"{path}: 540 bytes, 60 for validation" in out
    assert "bfloat16" in out
    first, *_, last = read_log(tmp_path / "run" / "log.jsonl")
    assert last["val_loss"] < first["val_loss"]


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--data", "missing"], 1, "missing: no such file or directory"),
        (["--data", "short"], 1, "short has 100 bytes; a context of 16 needs at least 170"),
        (["--heads", "3"], 1, "heads must divide width"),
        (["--steps", "0"], 2, "must be 1 or more"),
        (["--prompt", ""], 2, "--prompt must not be empty"),
        (["--resume"], 2, "holds no checkpoint"),
        (["--lr", "1e9", "--warmup", "0"], 1, "a lower --lr may help"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    main, tmp_path, monkeypatch, capsys, options, status, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_bytes(b"x" * 100)
    assert main("run", *options) == status
    assert message in capsys.readouterr().err.splitlines()[-1]
