"""`python -m singa`: each command, its help, and its messages on wrong arguments."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import singa
from program_in_process import run_singa
from singa import bench, device_memory, models
from singa.training import read_log

COMMANDS = (
    *("doctor", "env", "train", "evaluate", "predict", "report", "compare", "launch", "bench"),
    *("replay", "run", "cmake-dir", "summary", "plot", "export", "quantize", "serve"),
)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_singa(*command.split(), "--help") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {f'python -m singa {command}'.strip()} ")
    assert "train.py" not in text
    if not command:
        assert [name for name in COMMANDS if f"\n    {name}" not in text] == []


@pytest.mark.parametrize("command", ["summary lenet", "summary resnet50"])
def test_a_reader_that_has_read_enough(command: str) -> None:
    """As in `singa summary resnet50 | head -1`. The first output is written at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-m", "singa", *command.split()]
    done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "required: command"),
        ("fly", "invalid choice: 'fly'"),
        ("bench --model resnet21", "invalid choice: 'resnet21' (choose from"),
        ("bench --batch 0", "argument --batch: must be 1 or more, got 0"),
        ("bench --batch many", "argument --batch: must be 1 or more, got many"),
        ("bench --steps -2", "argument --steps: must be 1 or more, got -2"),
        ("bench --train --inference", "not allowed with argument --train"),
        ("bench --warmup -1 --model lenet", "argument --warmup: must be 0 or more, got -1"),
        ("bench --threads 100000", "threads must be in [1, 1024], got 100000"),
        ("train --model alexnet", "invalid choice: 'alexnet'"),
        ("train --epochs 0", "argument --epochs: must be 1 or more, got 0"),
        ("train --flight", "unrecognized arguments: --flight"),
        ("train --resume --out no/such/run", "--resume: "),
        ("train --data no/such/folder --out no/such/run", "no/such/folder does not exist"),
        ("bench --inference --recompute", "--recompute is for --train"),
        ("bench --inference --graph --memory-limit 1GiB", "--memory-limit is for --train"),
        ("bench --recompute --graph --memory-limit 1GiB", "--memory-limit is not for --recompute"),
        ("serve run --max-mb 0", "argument --max-mb: must be a positive number, got '0'"),
        ("doctor --seconds 3", "--seconds is for --kernels"),
        ("doctor --device cuda", "--device is for --kernels"),
        ("doctor --kernels --strict", "--strict is for doctor without --kernels"),
        ("doctor --kernels --seconds -1", "must be a positive number, got '-1'"),
        ("onnx", "FILE or --operators is required"),
        ("onnx net.onnx --operators", "FILE is not used by --operators"),
        ("onnx --operators --check", "--check is not used by --operators"),
        ("onnx net.onnx --tolerance 1", "--tolerance is for --check"),
        ("onnx net.onnx --shape x=1,3", "--shape is for --check"),
        ("replay no/such/file", "no/such/file"),
        ("summary no/such/net", "no/such/net is neither a file nor a network: there are alexnet"),
        ("summary lenet --batch 0", "argument --batch: must be 1 or more, got 0"),
        ("plot lenet --out net.png", "net.png: expected a name ending in .svg"),
        ("run", "the following arguments are required: SCRIPT"),
        ("run --device gpu script.py", "argument --device: invalid choice: 'gpu'"),
        ("run --dev cpu", "unrecognized arguments: --dev"),
    ],
)
def test_wrong_arguments(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_singa(*arguments.split()) in (1, 2)
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("trian --data pets", "did you mean train?"),
        ("train --batchsize 3", "did you mean --batch-size?"),
        ("train --shcedule=cosine", "did you mean --schedule?"),
        ("train --schedule cosin", "did you mean cosine?"),
        ("train pets", "did you mean --data pets?"),
        ("train --model ResNet-18", "did you mean resnet18?"),
        ("bench --stepz 3", "did you mean --steps?"),
        ("bench --model LeNet", "did you mean lenet?"),
        ("summary resnet-50", "did you mean resnet50?"),
        ("launch --hots a train.py", "did you mean --hosts?"),
        ("onnx net.onnx --chekc", "did you mean --check?"),
    ],
)
def test_misspelled_words(arguments: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_singa(*arguments.split()) in (1, 2)
    assert capsys.readouterr().err.endswith(f"; {hint}\n")


@pytest.mark.parametrize("command", ["", *COMMANDS, "advise", "onnx", "launch --estimate"])
def test_help_fits_a_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_singa(*command.split(), "--help") == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_a_wide_terminal_has_tables_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run_singa("train", "--help") == 0
    text = capsys.readouterr().out
    assert "\n    python -m singa predict runs/pets cat.jpg       asks the trained netw" in text
    monkeypatch.setenv("COLUMNS", "60")
    assert run_singa("train", "--help") == 0
    text = capsys.readouterr().out
    assert "\n    python -m singa predict runs/pets cat.jpg\n        asks the trained" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_singa("--version") == 0
    assert capsys.readouterr().out == f"singa {singa.__version__}\n"


def test_the_name_in_messages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of the command `singa` where it was started so."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/singa", "bench", "--help"])
    assert run_singa("bench", "--help") == 0
    assert capsys.readouterr().out.startswith("usage: singa bench ")
    assert run_singa("run", "--help") == 0
    assert capsys.readouterr().out.startswith("usage: singa run [-h]")
    assert run_singa("summary", "resnet21") == 1
    assert capsys.readouterr().err.startswith("singa summary: resnet21 is neither a file nor")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"singa": "singa.__main__:main"}


def test_bench_counts_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    common = ("bench", "--model", "lenet", "--batch", "3", "--steps", "4", "--warmup", "2")
    assert run_singa(*common, "--json") == 0
    training = json.loads(capsys.readouterr().out)
    assert {key: training[key] for key in ("model", "mode", "batch", "steps")} == {
        "model": "lenet", "mode": "training", "batch": 3, "steps": 4
    }  # fmt: skip
    assert training["plan_misses"] == 0  # after the warm-up all plans are cached
    if os.environ.get("SINGA_ALLOCATOR") != "system":
        assert training["system_allocations"] == 0
    assert training["plan_hits"] > 0
    assert training["plan_hits"] % 4 == 0  # all steps are equal
    assert 0 < training["fastest_ms"] <= training["ms"]
    assert training["images_per_s"] == pytest.approx(3e3 / training["ms"])
    assert (training["reorder_ms"] > 0) == (training["reorders"] > 0)
    assert 0 < training["tensors_mib"] <= device_memory()["peak"] / 2**20
    assert run_singa(*common, "--json", "--inference") == 0
    inference = json.loads(capsys.readouterr().out)
    assert inference["mode"] == "inference"
    assert 0 < inference["plan_hits"] < training["plan_hits"]
    assert run_singa(*common) == 0
    title, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("lenet, training, batch 3, ")
    assert f"  plan cache, hits       {training['plan_hits']}" in rows


def test_default_batches() -> None:
    assert bench.default_batch(models.create("lenet")) == 128
    assert bench.default_batch(models.create("resnet50")) == 32
    assert bench.default_batch(models.create("unet")) == 8
    assert bench.default_batch(models.create("gpt_small")) == 8


def test_train(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "singa", "train", "--model", "lenet"]
    command += ["--images", "96", "--epochs", "1", "--batch-size", "64", "--threads", "1"]
    command += ["--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (record,) = read_log(tmp_path / "run" / "log.jsonl")
    assert (record["epoch"], record["step"]) == (1, 2)
    assert f"test loss {record['test_loss']:.3f}" in done.stdout
    assert (tmp_path / "run" / "model.safetensors").exists()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "python -m singa train: error: " in again.stderr
    assert "--resume" in again.stderr
