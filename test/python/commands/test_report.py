"""`python -m singa report` and `compare`: what their pages say, and that they load nothing."""

import json
import os
import re
import shlex
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import singa
from html_page import Page
from picture_folders import write_colours
from program_in_process import as_before, run_singa
from singa import data
from singa.commands import step_costs, train
from singa.commands.outcomes import ClassOutcome
from singa.training import checkpoint, read_log
from singa.training.picture_classifier import PictureClassifier
from singa.training.task import OneClass


@pytest.fixture(scope="module")
def reported(trained, tmp_path_factory):
    """The run's page."""
    out = tmp_path_factory.mktemp("page") / "report.html"
    with as_before():
        assert run_singa("report", trained, "--out", out, "--threads", 1) == 0
    return Page.read(out)


@pytest.fixture(scope="module")
def held_out(trained, colours):
    """The test pictures, and the probabilities that the saved network gives them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*in no folder of a class")
        with pytest.warns(UserWarning, match="3 of 48 files"):
            found = data.ImageFolder(colours, on_error="skip", shorter_side=27)
    _, pictures = found.split(0.2, 0)
    rows = PictureClassifier.load(trained).probabilities([image for image, _ in pictures])
    return pictures, rows


def test_figures_are_those_of_the_log(reported, trained):
    log = read_log(trained / "log.jsonl")
    heads = [name.replace("_", " ") for name in log[0]]
    rows = reported.table(*heads)
    assert [int(row[0]) for row in rows] == [1, 2, 3, 4]
    for row, record in zip(rows, log, strict=True):
        for cell, (name, value) in zip(row, record.items(), strict=True):
            number = float(cell.removesuffix(" %").replace(",", ""))
            expected = value * 100 if name.endswith("top1") else value
            assert number == pytest.approx(expected, rel=5e-4, abs=0.05 if "%" in cell else 0)
    last = log[-1]
    assert f"test top1 {last['test_top1'] * 100:.1f} %" in reported.text
    assert f"train loss {last['train_loss']:.4g} " in reported.text
    assert "The log says the same." in reported.text


def test_classes_are_those_of_the_network(reported, held_out):
    pictures, rows = held_out
    predicted, labels = rows.argmax(1), pictures.labels
    matrix = [[int(((labels == i) & (predicted == j)).sum()) for j in range(3)] for i in range(3)]
    found = reported.table("", "blue", "green", "red")
    assert [row[0] for row in found] == ["blue", "green", "red"]
    assert [[int(cell) for cell in row[1:]] for row in found] == matrix
    by_class = reported.table("class", "images", "precision", "recall", "F1")
    for i, row in enumerate(by_class):
        recall = matrix[i][i] / sum(matrix[i])
        assert row[:2] == [pictures.classes[i], str(sum(matrix[i]))]
        assert row[3] == f"{recall * 100:.1f} %"


def test_pictures_are_in_the_order_of_their_losses(reported, held_out):
    pictures, rows = held_out
    losses = -np.log(rows[np.arange(len(rows)), pictures.labels])
    names = [re.search(r"class (\w+), (\S+)$", image["alt"]).groups() for image in reported.images]
    expected = [(pictures.classes[pictures.labels[i]], pictures.paths[i].name) for i in range(9)]
    worst = [expected[i] for i in np.argsort(-losses)]
    assert names == worst + worst[::-1]
    assert all(image["src"].startswith("data:image/jpeg;base64,") for image in reported.images)


def test_the_command_repeats_the_run(reported, trained, tmp_path):
    command = re.search(r"(python -m singa train .*?) Paths are", reported.text).group(1)
    words = shlex.split(command)
    args = train.parse([*words[4:], "--out", str(tmp_path / "again")])
    saved = checkpoint.read_progress(trained / "checkpoint.safetensors")["settings"]
    assert args.settings == saved


def test_layers_and_memory(reported, trained):
    heads = "layer", "type", "output", "parameters", "output, MiB"
    times = "forward, ms", "backward, ms", "share", "implementations"
    rows = reported.table(*heads, *times)
    parameters = PictureClassifier.load(trained).net.get_params()
    sizes = {name.rpartition(".")[0]: 0 for name in parameters}
    for name, value in parameters.items():
        sizes[name.rpartition(".")[0]] += value.size()
    found = {row[0]: int(row[3].replace(",", "")) for row in rows}
    assert {name: count for name, count in found.items() if count} == sizes
    assert sum(float(row[7].removesuffix(" %")) for row in rows) == pytest.approx(100, abs=1)
    memory = dict(reported.table("kind", "MiB"))
    together = float(memory.pop("together"))
    assert sum(map(float, memory.values())) == pytest.approx(together, abs=0.05)


def test_the_environment_is_that_of_the_run(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    noted = json.loads((folder / "environment.json").read_text())
    here = dict(singa.doctor().rows())
    assert noted.keys() == here.keys()
    assert (noted["cpu"], noted["singa"]) == (here["cpu"], here["singa"])
    (folder / "environment.json").write_text(json.dumps({**noted, "cpu": "Another one"}))
    assert run_singa("report", folder) == 0
    page = Page.read(folder / "report.html")
    assert dict(page.table("what", "value"))["cpu"] == "Another one"
    assert "of the machine that trained last" in page.text
    (folder / "environment.json").write_text("[")
    assert run_singa("report", folder) == 0
    page = Page.read(folder / "report.html")
    assert dict(page.table("what", "value"))["cpu"] == noted["cpu"]
    assert "the run noted none" in page.text


def test_what_is_missing_is_said(trained, colours, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    (folder / "model.safetensors").unlink()
    assert run_singa("report", folder) == 0
    page = Page.read(folder / "report.html")
    assert "holds no model.safetensors" in page.text
    assert page.headings == ["Run run", "Curves", "How to repeat it", "Environment"]
    assert "note: No classes, pictures and network: " in capsys.readouterr().out
    shutil.copy(trained / "model.safetensors", folder)
    (folder / "checkpoint.safetensors").unlink()
    assert run_singa("report", folder, "--threads", 1, "--batch-size", 2) == 0
    page = Page.read(folder / "report.html")
    assert "the settings of the run do not say which data it was tested on" in page.text
    assert "Confusion matrix" not in page.headings
    assert "A training step of 2 images takes" in page.text


def test_data_that_moved(trained, colours, tmp_path, capsys):
    other = write_colours(tmp_path / "other", 2, ("red", "green"))
    assert (
        run_singa("report", trained, "--data", tmp_path / "no", "--out", tmp_path / "a.html") == 0
    )
    assert f"{tmp_path / 'no'} does not exist" in Page.read(tmp_path / "a.html").text
    assert run_singa("report", trained, "--data", other, "--out", tmp_path / "a.html") == 0
    text = Page.read(tmp_path / "a.html").text
    assert "the data have the classes green, red, and the network blue, green, red" in text
    capsys.readouterr()


@pytest.mark.parametrize("program", ["report", "compare"])
def test_folders_that_are_no_runs(program, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "log.jsonl").write_text("")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "log.jsonl").write_text("{}\n[]\n")
    for name, message in (
        ("no", "no is no folder: expected the output folder of a run"),
        ("empty", "empty holds no log.jsonl"),
        ("new", "log.jsonl is empty: a run writes it after its first epoch"),
        ("odd", "line 2: expected an object, found list"),
    ):
        assert run_singa(program, tmp_path / name) == 1
        assert message in capsys.readouterr().err
    assert list(tmp_path.rglob("*.html")) == []


def test_compare(trained, tmp_path, capsys):
    short = tmp_path / "short <i> & co"
    shutil.copytree(trained, short)
    log = read_log(trained / "log.jsonl")
    (short / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in log[:2]))
    (short / "checkpoint.safetensors").unlink()
    out = tmp_path / "compare.html"
    assert run_singa("compare", trained, short, "--out", out) == 0
    page = Page.read(out)
    figures = next(table for table in page.tables if table[0][0] == "run")
    assert [row[:2] for row in figures[1:]] == [["run", "4"], [short.name, "2"]]
    best = figures[0].index("best test top1")
    for row, records in zip(figures[1:], (log, log[:2]), strict=True):
        assert row[best] == f"{max(r['test_top1'] for r in records) * 100:.1f} %"
        assert row[figures[0].index("test loss")] == f"{records[-1]['test_loss']:.4g}"
    assert f"{short.name}: The folder holds no checkpoint.safetensors" in page.text
    text = out.read_text()
    for place, record in ((1, log[0]), (2, log[1])):  # of both runs, whose first epochs are equal
        for name in ("run", "short &lt;i&gt; &amp; co"):
            assert f"{name}, epoch {place}: {record['test_loss']:.6g}" in text
    assert run_singa("compare", trained, tmp_path / "no", "--out", out) == 1
    assert "no is no folder" in capsys.readouterr().err
    assert "no is no folder" in Page.read(out).text


def test_settings_that_differ(run_train_twice, tmp_path):
    out = tmp_path / "compare.html"
    assert run_singa("compare", *run_train_twice, "--out", out) == 0
    page = Page.read(out)
    assert page.table("setting", "a", "b") == [["--lr", "0.025", "0.5"], ["--seed", "0", "3"]]
    assert ["--no-augment", "no"] in page.table("setting", "value")
    assert run_singa("compare", run_train_twice[0], "--out", out) == 0
    assert "No setting differs." in Page.read(out).text
    for folder in run_train_twice:
        (folder / "checkpoint.safetensors").unlink()
    assert run_singa("compare", *run_train_twice, "--out", out) == 0
    assert "The settings are not known." in Page.read(out).text


@pytest.fixture
def run_train_twice(run, colours, tmp_path):
    """Two runs of other settings."""
    common = ("--data", colours, "--model", "lenet", "--size", 16, "--epochs", 1, "--threads", 1)
    assert run(*common, "--out", tmp_path / "a") == 0
    assert run(*common, "--out", tmp_path / "b", "--lr", 0.5, "--seed", 3) == 0
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.parametrize("program", ["report", "compare"])
def test_without_jinja2(trained, tmp_path, monkeypatch, capsys, program):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert run_singa(program, trained, "--out", tmp_path / "a.html") == 1
    assert capsys.readouterr().err == (
        f"python -m singa {program}: pages need Jinja2: pip install jinja2\n"
    )


def test_other_data(tmp_path, monkeypatch):
    """Generated images have numbers in place of file names."""
    monkeypatch.chdir(tmp_path)
    shapes = data.shapes
    monkeypatch.setattr(data, "shapes", lambda part, count=None: shapes(part, 64))
    options = ("--images", 64, "--epochs", 1, "--model", "lenet", "--threads", 1)
    assert run_singa("train", *options) == 0
    assert run_singa("report", "runs/lenet", "--threads", 1) == 0
    page = Page.read(tmp_path / "runs/lenet/report.html")
    (record,) = read_log("runs/lenet/log.jsonl")
    assert f"{record['test_top1'] * 100:.1f} % of the" in page.text
    assert re.search(r"class \w+, number \d+$", page.images[0]["alt"])
    assert "python -m singa train --model lenet --images 64 --epochs 1 " in page.text
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert run_singa("report", "runs/lenet", "--threads", 1) == 0
    page = Page.read(tmp_path / "runs/lenet/report.html")
    assert "needs Pillow: pip install pillow" in page.text
    assert (page.headings[1], page.images) == ("Curves", [])


def test_commonest_mistakes_and_classes():
    labels = np.array([0, 0, 1, 1, 1, 2])
    predicted = np.array([1, 0, 2, 2, 0, 2])
    outcome = ClassOutcome(("a", "b", "c"), None, labels, np.eye(3)[predicted], OneClass())
    assert outcome.mistakes() == [("b", "c", 2), ("a", "b", 1), ("b", "a", 1)]
    assert outcome.mistakes(1) == [("b", "c", 2)]
    assert outcome.accuracy() == pytest.approx(2 / 6)
    assert outcome.rows() == [
        ("a", 2, pytest.approx(1 / 2), pytest.approx(1 / 2), pytest.approx(1 / 2)),
        ("b", 3, 0.0, 0.0, 0.0),
        ("c", 1, pytest.approx(1 / 3), 1.0, pytest.approx(1 / 2)),
    ]


def test_advice_on_reorders():
    def costs(*ms):
        records = [
            step_costs.Record(op, "down", "plain to nChw16c", "(1, 2)", 0.0, each, 0)
            for op, each in zip(("Reorder", "Pad", "ConvForward"), ms, strict=True)
        ]
        return step_costs.StepCosts(1, None, records, [], None)

    assert "too little to do anything" in costs(0.01, 3.0, 7.0).advice()
    text = costs(2.5, 2.5, 5.0).advice()
    assert "They take 2.50 ms, 25.0 % of the time" in text
    assert "of 2.50 ms, is for Pad in layer down" in text
    assert "nothing is to be gained" in step_costs.StepCosts(1, None, [], [], None).advice()


def test_names_of_classes_that_are_no_text(tmp_path, monkeypatch):
    """As folders from other systems have them."""
    monkeypatch.chdir(tmp_path)
    (write_colours(tmp_path / "set", 5) / "green").rename(os.fsdecode(b"set/gr\xfcn"))
    options = ("--model", "lenet", "--size", 16, "--epochs", 1, "--batch-size", 8, "--threads", 1)
    assert run_singa("train", "--data", "set", *options, "--out", "run") == 0
    assert run_singa("report", "run", "--threads", 1) == 0
    assert rb"gr\udcfcn" in Path("run/report.html").read_bytes()
    assert run_singa("export", "run", "--onnx") == 0
    names = ["blue", "gr\udcfcn", "red"]
    assert json.loads(Path("run.json").read_bytes())["class_names"] == names
    assert list(PictureClassifier.load("run.onnx").class_names) == names
