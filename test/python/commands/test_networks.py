"""`singa summary` and `singa plot`, for names and for files."""

import re

import numpy as np
import pytest
from singa import __main__ as command_line
from singa import models, tensor
from singa.commands.networks import open_network


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A file of Model.save: lenet for batches of 3."""
    net = models.create("lenet", num_classes=7)
    net.compile([tensor.from_numpy(np.zeros((3, 1, 28, 28), np.float32))], is_train=False)
    path = tmp_path_factory.mktemp("net") / "digits.singa"
    net.save(path)
    return path


def test_summary_of_a_name(capsys):
    assert command_line.main(["summary", "resnet20_cifar", "--batch", "5"]) == 0
    *lines, total = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["layer", "type", "output", "parameters"]
    assert total.startswith("SmallResNet: 269,722 parameters")
    assert "(5, 16, 32, 32)" in lines[2]
    named = [line for line in lines[2:-1] if line.split()[0] != "-"]
    assert sum(int(line.split()[-1].replace(",", "")) for line in named) == 269_722


def test_tokens():
    net = open_network("gpt_small", 2)
    assert [like[:2] for like in net._inputs] == [((2, 256), tensor.int32)]


def test_summary_of_files(saved, capsys):
    assert command_line.main(["summary", str(saved)]) == 0
    assert "(3, 7)" in capsys.readouterr().out
    assert command_line.main(["summary", str(saved), "--batch", "4"]) == 0
    assert "(4, 7)" in capsys.readouterr().out


def test_summary_of_an_onnx_file(saved, tmp_path, capsys):
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    import singa.onnx

    net = open_network(str(saved))
    path = tmp_path / "digits.onnx"
    singa.onnx.save(net, path, net._examples("test"))
    assert onnx.load(path).graph.node
    assert command_line.main(["summary", str(path)]) == 0
    out = capsys.readouterr().out
    assert "ImportedModel: " in out
    assert "(3, 7)" in out
    assert command_line.main(["summary", str(path), "--batch", "4"]) == 1
    assert "has shape (3, 1, 28, 28), got (4, 1, 28, 28)" in capsys.readouterr().err


def test_plot(saved, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command_line.main(["plot", str(saved)]) == 0
    assert capsys.readouterr().out == "the picture is in digits.svg\n"
    text = (tmp_path / "digits.svg").read_text()
    count = sum(p.size() for p in open_network(str(saved)).get_params().values())
    assert re.search(rf"LeNet: {count:,} parameters, inference, batch of 3<", text)
    out = tmp_path / "other.svg"
    assert command_line.main(["plot", "lenet", "--out", str(out), "--threads", "1"]) == 0
    assert "inference, batch of 1<" in out.read_text()


def test_files_that_are_no_networks(tmp_path, capsys):
    for name in ("broken.singa", "broken.onnx"):
        (tmp_path / name).write_bytes(b"no network")
        assert command_line.main(["summary", str(tmp_path / name)]) == 1
        assert "singa summary: " in capsys.readouterr().err
