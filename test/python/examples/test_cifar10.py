"""examples/cifar10/train.py: a run as its user sees it; stopped and gone on with."""

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from cifar10_run import (
    EPOCHS,
    OPTIONS,
    STEPS,
    TEST,
    TRAIN,
    change_settings,
    outcome,
    write_cifar10,
)
from singa import data, device, metric, models, tensor
from singa.examples import cifar10
from singa.training import read_log

pytestmark = pytest.mark.usefixtures("as_before")


# A run.


def test_what_a_run_leaves(whole, folder):
    assert sorted(os.listdir(whole)) == [
        "checkpoint.safetensors", "curves.png", "log.jsonl", "model.safetensors"
    ]  # fmt: skip
    assert (whole / "curves.png").read_bytes().startswith(b"\x89PNG\r\n")
    log = read_log(whole / "log.jsonl")
    assert [record["epoch"] for record in log] == [1, 2, 3]
    assert [record["step"] for record in log] == [3, 6, 9]
    assert log[-1]["train_loss"] < log[0]["train_loss"]
    assert log[-1].keys() == {
        "epoch", "step", "lr", "train_loss", "train_top1", "test_loss", "test_top1", "test_top5",
        "images_per_s", "seconds",
    }  # fmt: skip


def test_the_saved_weights_are_those_that_were_tested(whole, folder):
    test = data.load_cifar10(folder, "test")
    images = data.Normalize(data.CIFAR10_MEAN, data.CIFAR10_STD)(test.images, None)
    net = models.create("lenet")
    net.compile([tensor.from_numpy(images)], is_train=False)
    net.load_states(whole / "model.safetensors")
    scores = net(tensor.from_numpy(images)).numpy().astype(np.float64)
    record = read_log(whole / "log.jsonl")[-1]
    order = np.argsort(-scores, axis=1)
    assert record["test_top1"] == pytest.approx(np.mean(order[:, 0] == test.labels))
    assert record["test_top5"] == pytest.approx(
        np.mean([label in top for label, top in zip(test.labels, order[:, :5], strict=True)])
    )
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    expected = -logs[np.arange(TEST), test.labels].mean()
    assert record["test_loss"] == pytest.approx(expected, rel=1e-5)


def test_the_same_again(main, whole, tmp_path, capsys):
    assert main(tmp_path / "run", "--checkpoint-steps", "2") == 0
    assert outcome(tmp_path / "run") == outcome(whole)
    out = capsys.readouterr().out
    assert f"cifar10 train ({TRAIN} of 50000): {TRAIN} images" in out
    assert "lenet: 657,080 parameters" in out
    assert "epoch 3/3  train loss" in out


def test_a_bar_where_there_is_a_terminal(examples, folder, tmp_path):
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    pytest.importorskip("tqdm")
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, b"\x1e\0\x78\0\0\0\0\0")  # 30 rows, 120 columns
    command = [sys.executable, str(examples / "cifar10/train.py"), "--data", str(folder)]
    process = subprocess.Popen(
        [*command, *OPTIONS, "--epochs", "1", "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE, stderr=theirs, env=os.environ | {"TQDM_MININTERVAL": "0"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
    process.communicate()
    os.close(ours)
    assert process.returncode == 0
    assert f"| {STEPS}/{STEPS} [".encode() in seen
    assert b"epoch 1/1: 100%" in seen
    assert b"images/s" in seen


def test_fetches_only_what_is_not_there(main, folder, tmp_path, monkeypatch):
    fetched = []

    def download(to, *, progress):
        to = type(folder)(to)
        to.mkdir(parents=True)
        fetched.append(to)
        progress(10**7, None)
        progress(17 * 10**7, 17 * 10**7)
        write_cifar10(to)

    monkeypatch.setattr(data, "download_cifar10", download)
    there = str(tmp_path / "new" / "cifar")
    options = ("--epochs", "1", "--data", there)
    assert main(tmp_path / "none", *options) == 1
    assert main(tmp_path / "one", *options, "--download") == 0
    assert main(tmp_path / "two", *options, "--download") == 0
    assert [str(to) for to in fetched] == [there]


# On a GPU, or the emulated one, in 16 bits.


@pytest.fixture
def _gpu():
    try:
        device.create_cuda_gpu()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("_gpu")
def test_on_a_gpu(main, whole, tmp_path, capsys):
    assert main(tmp_path / "run", "--device", "cuda") == 0
    assert f"float32, {device.device_query(0)}" in capsys.readouterr().out
    for record, expected in zip(
        read_log(tmp_path / "run" / "log.jsonl"), read_log(whole / "log.jsonl"), strict=True
    ):
        assert record["step"] == expected["step"]
        for name in ("train_loss", "test_loss"):
            assert record[name] == pytest.approx(expected[name], rel=1e-3)


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_on_a_gpu_in_16_bits_stopped_and_resumed(main, tmp_path, monkeypatch, dtype):
    signals = Signals(monkeypatch)
    options = ("--device", "cuda", "--dtype", dtype, "--epochs", "2", "--checkpoint-steps", "1")
    options += ("--images", "32", "--batch-size", "16")  # two steps an epoch
    assert main(tmp_path / "whole", *options) == 0
    signals.send({2: [signal.SIGINT]})  # results are read at the checkpoint of the second step
    assert main(tmp_path / "run", *options) == 130
    signals.send({})
    assert main(tmp_path / "run", *options, "--resume") == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    first, last = read_log(tmp_path / "run" / "log.jsonl")
    assert last["train_loss"] < first["train_loss"]


def test_bfloat16_on_the_cpu(main, tmp_path, capsys):
    assert (
        main(tmp_path / "run", "--dtype", "bfloat16", "--epochs", "1", "--schedule", "constant")
        == 0
    )
    assert "parameters, bfloat16, " in capsys.readouterr().out
    assert main(tmp_path / "same", "--epochs", "1", "--schedule", "constant") == 0
    losses = [read_log(tmp_path / run / "log.jsonl")[0]["train_loss"] for run in ("run", "same")]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_no_gpu(main, tmp_path, monkeypatch, capsys):
    def create_cuda_gpu():
        raise RuntimeError("no driver")

    monkeypatch.setattr(device, "create_cuda_gpu", create_cuda_gpu)
    assert main(tmp_path / "run", "--device", "cuda") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "train.py: --device cuda: no driver"


# Errors are reported in one line.


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--data", "missing"], 1, "missing does not exist; --download gets CIFAR-10"),
        (["--data", "."], 1, "holds none of data_batch_1.bin"),
        (["--data", __file__], 1, "is not a folder"),
        (["--model", "resnet21"], 2, "invalid choice: 'resnet21' (choose from"),
        (["--out", f"{__file__}/run"], 2, f"--out {__file__}/run: {__file__} is no folder"),
        (["--images", "0"], 2, "argument --images: must be 1 or more, got 0"),
        (["--epochs", "-1"], 2, "argument --epochs: must be 1 or more, got -1"),
        (["--batch-size", "2.5"], 2, "argument --batch-size: must be 1 or more, got 2.5"),
        (["--lr", "nan"], 2, "argument --lr: must be 0 or more, got nan"),
        (["--lr", "inf"], 2, "argument --lr: must be 0 or more, got inf"),
        (["--seed", "-1"], 2, "argument --seed: must be 0 or more, got -1"),
        (["--label-smoothing", "1"], 1, "label_smoothing must lie in [0, 1), got 1"),
        (["--threads", "4000"], 1, "threads must be in [1, 1024], got 4000"),
        (["--batch-size", "100000000"], 1, "MiB asked for"),
        (["--resume"], 2, "holds no checkpoint"),
    ],
)  # fmt: skip
def test_errors(main, tmp_path, monkeypatch, capsys, options, status, message):
    monkeypatch.chdir(tmp_path)
    assert main("run", *options) == status
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("train.py: ")
    assert message in error.splitlines()[-1]


def test_download_needs_a_folder(capsys):
    with pytest.raises(SystemExit):
        cifar10.main(["--download"], "train.py")
    assert "--download needs --data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("most", "failed"), [(9_999, "checkpoint.safetensors"), (400_000, "model.safetensors")]
)
def test_a_full_disk_is_one_line(whole, folder, tmp_path, most, failed):
    """There is no traceback and no incomplete file, and old files stay. `most` is the limit of a
    file's size in bytes."""
    resource = pytest.importorskip("resource")
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    (out / "model.safetensors").write_bytes(b"old")
    before = sorted(os.listdir(out))
    again = "--resume" if failed == "model.safetensors" else "--overwrite"
    command = [sys.executable, "-m", "singa", "train", "--data", str(folder), "--out", str(out)]
    done = subprocess.run(
        [*command, *OPTIONS, again],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == f"python -m singa train: {out / failed}: file too large\n"
    assert (out / "model.safetensors").read_bytes() == b"old"
    may = {*before, "checkpoint.safetensors", "environment.json"}
    assert may >= set(os.listdir(out)) >= {"log.jsonl"}


def test_stops_when_the_loss_is_no_number(main, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(out, "--lr", "1e9", "--schedule", "constant") == 1
    assert "train.py: the loss became nan: a lower --lr may help" in capsys.readouterr().err
    assert not (out / "model.safetensors").exists()


# Resuming.


def test_a_folder_that_holds_a_run(main, whole, capsys):
    before = (whole / "log.jsonl").read_bytes()
    assert main(whole) == 2
    assert "has a run: use --resume, --overwrite, or another --out" in (capsys.readouterr().err)
    for option, value, was in (("--epochs", "5", "3"), ("--model", "resnet20", "lenet")):
        assert main(whole, "--resume", option, value) == 2
        assert f"{option} was {was} when the run in {whole} started" in capsys.readouterr().err
    assert (whole / "log.jsonl").read_bytes() == before


def test_a_finished_run_has_nothing_left(main, whole, capsys):
    before = outcome(whole)
    assert main(whole, "--resume") == 0
    assert outcome(whole) == before


def test_overwrites_when_asked(main, whole, tmp_path, monkeypatch, capsys):
    out, signals = tmp_path / "run", Signals(monkeypatch)
    signals.send({9: [signal.SIGINT]})
    assert main(out, "--lr", "0.01", "--epochs", "5") == 130
    signals.send({})
    assert main(out, "--overwrite", "--resume") == 2
    assert "not allowed with argument" in capsys.readouterr().err
    assert main(out, "--overwrite") == 0
    assert outcome(out) == outcome(whole)


def test_a_checkpoint_without_a_setting_that_came_later(main, tmp_path, capsys):
    out, options = tmp_path / "run", ("--epochs", "1")
    assert main(out, *options) == 0
    change_settings(out / "checkpoint.safetensors", without=["dtype"])
    assert main(out, *options, "--resume", "--dtype", "bfloat16") == 2
    assert "--dtype was float32 when" in capsys.readouterr().err
    assert main(out, *options, "--resume") == 0


def test_a_checkpoint_that_does_not_fit(main, whole, folder, tmp_path, capsys):
    path = tmp_path / "checkpoint.safetensors"

    def resume():
        status = cifar10.main(["--out", str(tmp_path), "--resume"], "train.py")
        return status, capsys.readouterr().err

    content = (whole / "checkpoint.safetensors").read_bytes()
    path.write_bytes(content)
    change_settings(path, model="resnet20")
    status, error = resume()
    assert status == 1
    assert "does not fit the model; missing: conv1.W" in error or "wrong shape" in error
    path.write_bytes(content)
    change_settings(path, images=64)
    status, error = resume()
    assert status == 1
    assert "is of a run with images 80, and here it is 64: resume it with the data" in error
    path.write_bytes(content[:-1])
    with pytest.raises(SystemExit):
        resume()
    assert "not a readable file" in capsys.readouterr().err
    assert path.read_bytes() == content[:-1]


class Signals:
    """Sends signals to this process at given calls of metric.count_top_k. There is one call after
    each step, and there are two after each batch of the test."""

    def __init__(self, monkeypatch):
        self.calls, self.at, original = 0, {}, metric.count_top_k

        def count_top_k(*arguments):
            self.calls += 1
            for number in self.at.get(self.calls, ()):
                signal.raise_signal(number)
            return original(*arguments)

        monkeypatch.setattr(metric, "count_top_k", count_top_k)
        monkeypatch.setattr("singa.metric.classes.count_top_k", count_top_k)  # of Accuracy

    def send(self, at):
        self.calls, self.at = 0, at


@pytest.mark.parametrize(
    ("number", "call", "step"),
    [
        pytest.param(signal.SIGINT, 1, 1, id="first step"),
        pytest.param(signal.SIGTERM, 2, 2, id="second step, SIGTERM"),
        pytest.param(signal.SIGINT, 3, 3, id="last step of an epoch"),
        pytest.param(signal.SIGINT, 4, 3, id="test"),
        pytest.param(signal.SIGTERM, 5, 3, id="test's end, SIGTERM"),
        pytest.param(signal.SIGINT, 6, 4, id="second epoch"),
        pytest.param(signal.SIGINT, 13, 9, id="last step of all"),
        pytest.param(signal.SIGINT, 14, 9, id="last test"),
    ],
)
def test_stopped_and_resumed_is_as_never_stopped(
    main, whole, tmp_path, monkeypatch, capsys, number, call, step
):
    out, signals = tmp_path / "run", Signals(monkeypatch)
    signals.send({call: [number]})
    assert main(out) == 128 + number
    assert f"stopped after step {step}; --resume continues from there" in capsys.readouterr().out
    assert not (out / "model.safetensors").exists()
    signals.send({})
    assert main(out, "--resume") == 0
    assert f"resumed after step {step}" in capsys.readouterr().out
    assert outcome(out) == outcome(whole)


def test_stopped_again_and_again(main, whole, tmp_path, monkeypatch):
    """After every step."""
    out, signals = tmp_path / "run", Signals(monkeypatch)
    signals.send({1: [signal.SIGINT]})
    status, runs = main(out), 1
    while status != 0:
        assert status == 130
        runs += 1
        assert runs < 20
        signals.send({1: [signal.SIGINT]})
        status = main(out, "--resume")
    assert runs >= EPOCHS * STEPS
    assert outcome(out) == outcome(whole)


def test_a_second_interrupt_does_not_wait(main, whole, tmp_path, monkeypatch, capsys):
    out, signals = tmp_path / "run", Signals(monkeypatch)
    signals.send({7: [signal.SIGINT, signal.SIGINT]})  # both in the second epoch
    assert main(out) == 130
    assert "stopped at once; files that it wrote before are whole" in capsys.readouterr().err
    signals.send({})
    assert main(out, "--resume") == 0
    assert f"resumed after step {STEPS}" in capsys.readouterr().out
    assert outcome(out) == outcome(whole)


def test_interrupted_before_the_first_step(main, tmp_path, monkeypatch, capsys):
    def load(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "load_cifar10", load)
    assert main(tmp_path / "run") == 130
    assert "stopped at once" in capsys.readouterr().err


def test_resnet_with_its_running_statistics(main, tmp_path, monkeypatch):
    """With running statistics of batch norm, another schedule, warm-up and label smoothing."""
    options = ("--model", "resnet20", "--epochs", "2", "--images", "48", "--schedule", "cosine")
    options += ("--warmup", "1", "--label-smoothing", "0.1", "--batch-size", "20")
    assert main(tmp_path / "whole", *options) == 0
    signals = Signals(monkeypatch)
    signals.send({7: [signal.SIGINT]})
    assert main(tmp_path / "run", *options) == 130
    signals.send({})
    assert main(tmp_path / "run", "--resume", *options) == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
