"""`train --multilabel` and `--regression`, and what the other commands do with such runs."""

import json
import re

import numpy as np
import pytest
import singa
from html_page import Page
from picture_folders import write_colours, write_labels, write_numbers
from program_in_process import as_before, run_singa
from singa import data, metric, models, opt, tensor
from singa.training import read_log
from singa.training.picture_classifier import PictureClassifier
from singa.training.task import Regression, SeveralLabels

QUICK = ("--model", "lenet", "--batch-size", "16", "--lr", "0.05", "--threads", "1")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels") / "beach"
    return folder, write_labels(folder, 96)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers") / "sea"
    return folder, write_numbers(folder, 96)


def trained(folder, out, *options):
    with as_before():
        arguments = ("--data", folder / "labels.csv", *QUICK, "--out", out, *options)
        assert run_singa("train", *arguments) == 0
    return out


@pytest.fixture(scope="module")
def labels_run(labelled, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "labels"
    return trained(labelled[0], out, "--multilabel", "--epochs", 8, "--no-augment")


@pytest.fixture(scope="module")
def numbers_run(numbered, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "numbers"
    return trained(numbered[0], out, "--regression", "--epochs", 8, "--no-augment")


def held_out(folder, task):
    """The test pictures of both runs, and their numbers in the CSV file."""
    whole = data.ImageFolder(folder / "labels.csv", task=task, shorter_side=27)
    test = whole.split(0.2, 0)[1]
    return test, [int(path.stem) for path in test.paths]


@pytest.mark.filterwarnings("ignore:.*labels are separated")
def test_several_labels_are_learned(labels_run, labelled):
    folder, labels = labelled
    log = read_log(labels_run / "log.jsonl")
    last = log[-1]
    assert last["test_exact"] > 0.85
    assert last["test_map"] > 0.98
    assert last["test_f1"] > 0.95
    assert last["test_loss"] < 0.5 * log[0]["test_loss"]
    assert {"train_loss", "train_exact"} <= last.keys()
    test, places = held_out(folder, "multilabel")
    net = singa.load(labels_run)
    assert isinstance(net.task, SeveralLabels)
    assert net.class_names == ["blue", "green", "red"]
    classifier = PictureClassifier(net)
    answers = classifier.predict([test[i][0] for i in range(len(test))])
    right = [
        {name for name, _ in answer} == labels[n] for answer, n in zip(answers, places, strict=True)
    ]
    assert np.mean(right) == last["test_exact"]
    scores = classifier.probabilities([test[i][0] for i in range(len(test))])
    precision = metric.AveragePrecision()
    precision.update(scores, test.labels)
    assert precision.compute() == pytest.approx(last["test_map"], rel=1e-5)


def test_numbers_are_learned(numbers_run, numbered):
    folder, numbers = numbered
    log = read_log(numbers_run / "log.jsonl")
    last = log[-1]
    assert last["test_r2"] > 0.8
    spread = np.abs(numbers - numbers.mean(0)).mean()
    assert last["test_mae"] < 0.5 * spread
    with pytest.warns(UserWarning, match="temperature, depth are taken for numbers to predict"):
        test, places = held_out(folder, "regression")
    np.testing.assert_array_equal(test.labels, numbers[places])
    net = singa.load(numbers_run)
    assert isinstance(net.task, Regression)
    train = np.delete(numbers, places, 0)
    np.testing.assert_allclose(net.task.mean, train.mean(0), rtol=1e-6)
    np.testing.assert_allclose(net.task.std, train.std(0), rtol=1e-6)
    classifier = PictureClassifier(net)
    values = classifier.values([test[i][0] for i in range(len(test))])
    errors = values - numbers[places]
    assert np.abs(errors).mean() == pytest.approx(last["test_mae"], rel=1e-4)
    expected = 1 - (errors**2).sum(0) / ((numbers[places] - numbers[places].mean(0)) ** 2).sum(0)
    assert last["test_r2"] == pytest.approx(expected.mean(), rel=1e-4)
    scaled = (errors / np.array(net.task.std)) ** 2
    assert last["test_loss"] == pytest.approx(scaled.mean(), rel=1e-4)
    with pytest.raises(ValueError, match=r"values\(\) returns"):
        classifier.probabilities([test[0][0]])


def test_what_training_says(labelled, numbered, tmp_path, capsys):
    trained(labelled[0], tmp_path / "a", "--multilabel", "--epochs", 1)
    out, error = capsys.readouterr()
    assert "3 labels: blue, green, red; a picture has 1.5 on average\n" in out
    assert re.search(r"epoch 1/1  train loss [\d.]+ exact [\d.]+\s+test loss [\d.]+ exact ", out)
    assert "labels are separated by '|', as in 'blue|green" in error
    trained(numbered[0], tmp_path / "b", "--regression", "--epochs", 1)
    out, error = capsys.readouterr()
    assert "2 numbers to predict: temperature, depth\n" in out
    assert re.search(r"\ntemperature: 1\d{3} to 3\d{3}, mean 2\d{3}[\d.]*, standard deviation", out)
    assert re.search(r"test loss [\d.]+ mae [\d.]+ r2 -?[\d.]+", out)
    assert "the columns temperature, depth are taken for numbers to predict" in error


def test_evaluate(labels_run, numbers_run, numbered, tmp_path, capsys):
    assert run_singa("evaluate", labels_run, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    last = read_log(labels_run / "log.jsonl")[-1]
    for name in ("map", "f1", "exact", "loss"):
        assert figures[name] == pytest.approx(last[f"test_{name}"], rel=1e-4)
    assert [row["label"] for row in figures["labels"]] == ["blue", "green", "red"]
    assert run_singa("evaluate", labels_run) == 0
    out = capsys.readouterr().out
    assert f"all labels right {last['test_exact']:.1%}" in out
    assert run_singa("evaluate", numbers_run, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    last = read_log(numbers_run / "log.jsonl")[-1]
    for name in ("mae", "r2", "loss"):
        assert figures[name] == pytest.approx(last[f"test_{name}"], rel=1e-4)
    assert [row["number"] for row in figures["numbers"]] == ["temperature", "depth"]
    # Other data, with the columns in another order.
    folder, numbers = numbered
    lines = ["depth,file,temperature"]
    lines += [f"{b},{folder / f'{n}.png'},{a}" for n, (a, b) in enumerate(numbers[:9].tolist())]
    (tmp_path / "new.csv").write_text("\n".join(lines))
    assert run_singa("evaluate", numbers_run, "--data", tmp_path / "new.csv") == 0
    first, _, heads, temperature, depth = capsys.readouterr().out.splitlines()
    assert first.startswith("9 pictures  mean absolute error ")
    assert heads.split() == ["number", "mae", "rmse", "R2"]
    assert (temperature.split()[0], depth.split()[0]) == ("temperature", "depth")


def test_predict(labels_run, numbers_run, labelled, numbered, capsys):
    place = next(n for n, names in enumerate(labelled[1]) if len(names) == 2)
    picture = labelled[0] / f"{place}.png"
    assert run_singa("predict", labels_run, picture, "--json", "--threshold", 0) == 0
    labels = json.loads(capsys.readouterr().out)["labels"]
    assert list(labels.values()) == sorted(labels.values(), reverse=True)
    assert sorted(labels) == ["blue", "green", "red"]
    assert {name for name, value in labels.items() if value > 0.5} == labelled[1][place]
    assert run_singa("predict", labels_run, picture, "--top", 1) == 0
    assert re.fullmatch(r"\S+  \w+ \d+\.\d%\n", capsys.readouterr().out)
    assert run_singa("predict", labels_run, picture, "--threshold", 50) == 2
    assert "--threshold: must lie between 0 and 1, got 50" in capsys.readouterr().err
    assert run_singa("predict", labels_run, picture, "--threshold", 1) == 0
    assert capsys.readouterr().out.endswith("  no label\n")
    picture = numbered[0] / "3.png"
    assert run_singa("predict", numbers_run, picture) == 0
    found = re.fullmatch(r"\S+  temperature (\S+)  depth (\S+)\n", capsys.readouterr().out)
    numbers = np.array([float(each) for each in found.groups()])
    net = singa.load(numbers_run)
    assert (np.abs(numbers - numbered[1][3]) < net.task.std).all()
    assert run_singa("predict", numbers_run, picture, "--json") == 0
    exact = json.loads(capsys.readouterr().out)["numbers"]
    assert list(exact) == ["temperature", "depth"]
    np.testing.assert_allclose(list(exact.values()), numbers, rtol=1e-5)


def test_reports(labels_run, numbers_run, tmp_path):
    assert run_singa("report", labels_run, "--out", tmp_path / "a.html", "--threads", 1) == 0
    page = Page.read(tmp_path / "a.html")
    last = read_log(labels_run / "log.jsonl")[-1]
    assert f"gets all labels of {last['test_exact'] * 100:.1f} % of the" in page.text
    assert "The log says the same." in page.text
    heads = ("label", "images", "precision", "recall", "F1", "average precision")
    assert [row[0] for row in page.table(*heads)] == ["blue", "green", "red"]
    assert f"test map {last['test_map']:.4g}" in page.text
    assert "--multilabel" in page.text
    assert run_singa("report", numbers_run, "--out", tmp_path / "b.html", "--threads", 1) == 0
    page = Page.read(tmp_path / "b.html")
    heads = ("number", "mean absolute error", "root mean squared error", "R²")
    assert [row[0] for row in page.table(*heads)] == ["temperature", "depth"]
    assert "The log says the same." in page.text
    assert "predicted: temperature" in page.text
    assert run_singa("compare", labels_run, numbers_run, "--out", tmp_path / "c.html") == 0
    assert "test mae" in Page.read(tmp_path / "c.html").text


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_exported(kind, request, tmp_path, capsys):
    pytest.importorskip("onnx")
    run = request.getfixturevalue(f"{kind}_run")
    folder = request.getfixturevalue({"labels": "labelled", "numbers": "numbered"}[kind])[0]
    file = tmp_path / "net.onnx"
    assert run_singa("export", run, "--onnx", "--out", file) == 0
    described = json.loads((tmp_path / "net.json").read_text())
    net = singa.load(run)
    assert described["task"] == net.task.described()
    assert described["class_names"] == net.class_names
    again = PictureClassifier.load(file)
    picture = PictureClassifier(net).read(folder / "5.png")
    expected = PictureClassifier(net).values([picture])
    np.testing.assert_allclose(again.values([picture]), expected, rtol=1e-4)
    capsys.readouterr()
    assert run_singa("predict", file, folder / "5.png", "--json") == 0
    assert kind in json.loads(capsys.readouterr().out)


def test_a_run_is_resumed_and_starts_others(labels_run, labelled, tmp_path, capsys):
    arguments = ("--multilabel", "--epochs", 2)
    whole = trained(labelled[0], tmp_path / "whole", *arguments)
    part = trained(labelled[0], tmp_path / "part", "--multilabel", "--epochs", 1)
    assert run_singa("train", "--out", part, "--resume", "--epochs", 2, "--threads", 1) == 0
    assert read_log(part / "log.jsonl")[-1]["epoch"] == 2
    assert run_singa("train", "--out", whole, "--resume", "--regression") == 2
    assert "--regression was not given" in capsys.readouterr().err
    start = ("--weights", labels_run, "--epochs", 1)
    arguments = ("--data", labelled[0] / "labels.csv", "--no-augment", "--threads", 1)
    assert run_singa("train", *arguments, *start, "--multilabel", "--out", tmp_path / "next") == 0
    assert "with its last layer, since the labels are the same" in capsys.readouterr().out
    assert read_log(tmp_path / "next" / "log.jsonl")[-1]["test_exact"] > 0.8
    colours = write_colours(tmp_path / "colours", 4)
    arguments = ("--data", colours, "--batch-size", 8, "--threads", 1)
    assert run_singa("train", *arguments, *start, "--out", tmp_path / "classes") == 0
    assert "with a new last layer for 3 classes" in capsys.readouterr().out
    assert singa.load(tmp_path / "classes").task is None


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--multilabel", "--regression"), 2, "not allowed with argument"),
        (("--multilabel", "--class-weights", "balanced"), 2, "--class-weights is for classes"),
        (("--regression", "--label-smoothing", 0.1), 2, "--label-smoothing is for classes"),
        ((), 1, "task='multilabel' (singa train: --multilabel)"),
        (("--regression",), 1, "is no finite number"),
    ],
)
def test_wrong_calls(labelled, tmp_path, capsys, options, status, message):
    out = ("--out", tmp_path / "run")
    assert (
        run_singa("train", "--data", labelled[0] / "labels.csv", *QUICK, *options, *out) == status
    )
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_data_without_such_labels(labels_run, numbers_run, labelled, tmp_path, capsys):
    colours = write_colours(tmp_path / "colours", 2)
    for option in ("--multilabel", "--regression"):
        assert run_singa("train", "--data", colours, option, "--out", tmp_path / "run") == 1
        assert "needs a CSV file that lists pictures with" in capsys.readouterr().err
        assert run_singa("train", option, "--out", tmp_path / "run") == 2
        assert f"{option} is for a folder of pictures" in capsys.readouterr().err
    picture = labelled[0] / "1.png"
    assert run_singa("predict", numbers_run, picture, "--top", 2) == 1
    assert "--top is for classes" in capsys.readouterr().err
    assert run_singa("predict", numbers_run, picture, "--threshold", 0.5) == 1
    assert "--threshold is for labels" in capsys.readouterr().err
    (tmp_path / "same.csv").write_text("\n".join(f"{labelled[0] / f'{n}.png'},3" for n in range(9)))
    assert run_singa("train", "--data", tmp_path / "same.csv", "--regression", *QUICK) == 1
    assert "all pictures have the same value" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*labels are separated", "ignore:.*are taken for numbers")
def test_fit_takes_the_task_of_the_pictures(labelled, numbered):
    for folder, kind, what in (
        (labelled[0], SeveralLabels, "multilabel"),
        (numbered[0], Regression, "regression"),
    ):
        pictures = data.ImageFolder(folder / "labels.csv", task=what)
        net = models.create("lenet", num_classes=len(pictures.classes))
        net.set_optimizer(opt.SGD(lr=0.01))
        net.compile([tensor.zeros((8, 3, 24, 24))])
        history = net.fit(pictures, epochs=2, batch_size=8, verbose=False)
        assert isinstance(net.task, kind)
        assert history[1]["train_loss"] < history[0]["train_loss"]
    with pytest.raises(ValueError, match=r"task is 'regression', and that of beach 'multilabel'"):
        net.fit(data.ImageFolder(labelled[0] / "labels.csv", task="multilabel"), epochs=1)
