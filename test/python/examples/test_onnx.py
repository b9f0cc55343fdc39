"""examples/onnx/finetune.py and explore.py."""

import importlib.util
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from program_in_process import status_of
from singa import models, tensor
from singa.training import read_log

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A ResNet-20 of seven classes, with live batch norm."""
    net = models.create("resnet20_cifar", num_classes=7)
    x = tensor.Tensor((2, 3, 32, 32))
    net.compile([x], is_train=False)
    path = tmp_path_factory.mktemp("file") / "net.onnx"
    singa.onnx.save(net, path, [x], dynamic_axes={"x": {0: "batch"}}, training=True)
    return path


def rows(text):
    """The rows of the table: name, loss, accuracy in per cent, difference."""
    found = re.findall(r"\| ([\w, ]+) \| ([\d.]+) \| ([\d.]+)% \| ([\d.e+-]*) \|", text)
    return {name: (float(a), float(b), float(c or 0)) for name, a, b, c in found}


def test_a_file_is_tuned_and_goes_out_again(run, file, folder, tmp_path):
    options = ("--batch-size", "20", "--epochs", "3", "--freeze", "conv1.*", "--out", "out")
    done = run("onnx/finetune.py", "--model", str(file), "--data", str(folder), *options)
    assert done.returncode == 0, done.stderr
    assert "269,527 parameters" in done.stdout  # with seven outputs
    assert "new head: fc.W, fc.b" in done.stdout
    assert re.search(r"\n269,290 of 269,722 parameters train", done.stdout)
    first, _, last = read_log(tmp_path / "out" / "log.jsonl")
    assert last["train_loss"] < first["train_loss"]
    table = rows(done.stdout)
    assert (tmp_path / "out" / "table.md").read_text().strip() in done.stdout
    trained = table["singa, trained"]
    assert trained[:2] == (round(last["test_loss"], 4), round(100 * last["test_top1"], 2))
    assert table["singa, loaded from the file"][:2] == trained[:2]
    assert all(gap < 5e-6 for _, _, gap in table.values())
    before, after = (singa.onnx.load(p) for p in (file, tmp_path / "out" / "finetuned.onnx"))
    frozen = [net.get_states()["conv1.W"].numpy() for net in (before, after)]
    np.testing.assert_array_equal(*frozen)
    assert after.get_params()["fc.W"].shape == (64, 10)


@pytest.mark.parametrize("maker", ["singa", pytest.param("torch", marks=pytest.mark.slow)])
def test_it_makes_a_network(run, folder, maker):
    if maker == "torch":
        # It may not fit PyTorch. This process may have imported it all the same (torch_models).
        found = subprocess.run(
            [sys.executable, "-c", "import torchvision"],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode != 0:
            pytest.skip(f"torchvision: {found.stderr.splitlines()[-1]}")
    options = ("--maker", maker, "--images", "32", "--epochs", "1", "--batch-size", "16")
    done = run("onnx/finetune.py", *options, "--data", str(folder), "--out", "out")
    assert done.returncode == 0, done.stderr
    wrote = {"singa": "singa", "torch": "PyTorch"}[maker]
    assert f"{wrote} wrote out/imported.onnx" in done.stdout
    assert "may have folded" not in done.stdout + done.stderr
    table = rows(done.stdout)
    assert len(table) >= 2
    assert all(gap < 5e-6 for _, _, gap in table.values())


@pytest.fixture(scope="module")
def finetune(examples):
    spec = importlib.util.spec_from_file_location("finetune", examples / "onnx/finetune.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--model", "missing.onnx"], 1, "missing.onnx: no such file or directory"),
        (["--model", "bad.onnx"], 1, "not an ONNX file"),
        (["--model", "net.onnx", "--freeze", "nothing*"], 1, "no parameter matches 'nothing*'"),
        (["--model", "net.onnx", "--data", "missing"], 1, "the folder missing does not exist"),
        (["--model", "net.onnx", "--maker", "singa"], 2, "--maker makes a network"),
        (["--epochs", "0"], 2, "must be 1 or more"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    finetune, file, tmp_path, monkeypatch, capsys, options, code, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.onnx").write_bytes(b"\x89PNG\r\n")
    shutil.copyfile(file, "net.onnx")
    assert status_of(finetune.main, options) == code
    assert message in capsys.readouterr().err


def test_explore(run, file):
    """Each part of the text, for a file and for the script's own network."""
    for arguments in ([str(file), "--batch", "3"], []):
        done = run("onnx/explore.py", *arguments)
        assert done.returncode == 0, done.stderr
        assert "input   x  float32 (batch, 3, 32, 32)" in done.stdout
        shape = r"\(3, 16, 32, 32\)" if arguments else r"\(2, 16, 32, 32\)"
        assert re.search(rf"Conv +{shape} +-?[\d.e-]+ +[\d.e-]+ +0%", done.stdout)
        assert re.search(r"Relu +\S.* [1-9]\d%", done.stdout)  # zeros
        assert re.search(r"Conv\S* +ConvForward +\S+", done.stdout)
        assert re.search(r"\n\d+ reorders\n", done.stdout)
        assert "times of one pass:" in done.stdout
    done = run("onnx/explore.py", "missing.onnx")
    assert done.returncode == 1
    assert "missing.onnx" in done.stderr
    assert "Traceback" not in done.stderr
