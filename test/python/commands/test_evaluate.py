"""`python -m singa evaluate`: its figures are those of the run, and of predictions made by hand."""

import json
from functools import partial

import numpy as np
import pytest
import singa
from picture_folders import write_colours
from program_in_process import run_singa
from singa import data
from singa.training import read_log
from singa.training.picture_classifier import PictureClassifier

evaluate = partial(run_singa, "evaluate")


def test_of_a_run_it_is_what_the_log_says(trained, capsys):
    assert evaluate(trained, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    last = read_log(trained / "log.jsonl")[-1]
    assert (figures["pictures"], figures["accuracy"]) == (9, last["test_top1"])
    assert figures["loss"] == pytest.approx(last["test_loss"], rel=1e-4)
    assert [row["class"] for row in figures["classes"]] == ["blue", "green", "red"]
    assert evaluate(trained) == 0
    out = capsys.readouterr().out
    assert f"9 pictures  accuracy {last['test_top1']:.1%}  loss {last['test_loss']:.3f}\n" in out


def test_of_other_pictures(trained, tmp_path, capsys):
    """Red pictures in the folder green are mistakes."""
    folder = write_colours(tmp_path / "new", 4, ("red", "blue"))
    (folder / "red").rename(folder / "green")
    assert evaluate(trained, "--data", folder, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    classifier = PictureClassifier.load(trained)
    pictures = data.ImageFolder(folder, classes=classifier.class_names)
    rows = classifier.probabilities([pictures[i][0] for i in range(8)])
    right = rows.argmax(1) == pictures.labels
    assert figures["accuracy"] == right.mean() == 0.5
    assert figures["loss"] == pytest.approx(-np.log(rows[np.arange(8), pictures.labels]).mean())
    assert figures["mistakes"] == [{"class": "green", "predicted": "red", "pictures": 4}]
    assert evaluate(trained, "--data", folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split() == ["blue", "4", "100.0%", "100.0%", "1.000"]
    assert lines[4].split() == ["green", "4", "0.0%", "0.0%", "0.000"]
    assert lines[-1] == "  green taken for red: 4"


def test_of_what_a_column_holds_out(trained, tmp_path, capsys):
    folder = write_colours(tmp_path / "new", 4, ("red", "blue"))
    lines = [f"{name}/{n}.jpg,{name},{int(n > 0)}" for name in ("red", "blue") for n in (0, 2)]
    (folder / "list.csv").write_text("\n".join(["file,label,is_valid", *lines]))
    assert evaluate(trained, "--data", folder / "list.csv", "--json") == 0
    out, error = capsys.readouterr()
    assert json.loads(out)["pictures"] == 2
    assert "note: the 2 pictures that a column of" in error
    assert "not used: 2 of the training" in error
    (folder / "list.csv").write_text("\n".join(["file,label", *(line[:-2] for line in lines)]))
    assert evaluate(trained, "--data", folder / "list.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["pictures"] == 4


def test_a_file_by_the_test_pictures_of_a_run(trained, tmp_path, capsys):
    assert evaluate(trained, "--json") == 0
    expected = capsys.readouterr().out
    assert evaluate(trained / "model.safetensors", "--data", trained, "--json") == 0
    assert capsys.readouterr().out == expected
    net = singa.load(trained)
    net.class_names = ["red", "green", "blue"]
    net.save(tmp_path / "other.singa")
    assert evaluate(tmp_path / "other.singa", "--data", trained) == 1
    said = f"the data of {trained} have the classes blue, green, red, and "
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["no"], 1, "no"),
        (["RUN/model.safetensors"], 1, "give --data"),
        (["RUN", "--columns", "a,b"], 2, "--columns is for the CSV file of --data"),
        (["RUN", "--data", "RUN", "--columns", "a,b"], 1, "--columns is for a CSV file, and"),
        (["RUN", "--data", "new"], 1, "not in `classes`: pink; these are blue, green, red"),
    ],
)
def test_errors(trained, tmp_path, monkeypatch, capsys, arguments, status, message):
    monkeypatch.chdir(tmp_path)
    folder = write_colours(tmp_path / "new", 1, ("red",))
    (folder / "red").rename(folder / "pink")
    assert evaluate(*[each.replace("RUN", str(trained)) for each in arguments]) == status
    assert message in capsys.readouterr().err
