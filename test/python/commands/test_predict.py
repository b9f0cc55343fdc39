"""`python -m singa predict`."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial

import pytest
from picture_folders import coloured
from program_in_process import run_singa


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Two pictures that the network has not seen, and a broken one, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new").mkdir()
    coloured("red", 77).save("new/a.png")
    coloured("blue", 78, 60, 40).save("new/b c.jpg")
    (tmp_path / "broken.jpg").write_bytes(b"no")
    return tmp_path


run = partial(run_singa, "predict")


def test_classes_with_probabilities(trained, pictures, capsys):
    assert run(trained, "new/a.png", "new/b c.jpg", "--top", 2) == 0
    out = capsys.readouterr().out
    first, second = out.splitlines()
    assert re.fullmatch(r"new/a\.png    red \d+\.\d%  \w+ \d+\.\d%", first)
    assert re.fullmatch(r"new/b c\.jpg  blue \d+\.\d%  \w+ \d+\.\d%", second)
    (pictures / "new" / "d.heic").write_bytes(b"")
    assert run(trained / "model.safetensors", "new", "--top", 2) == 0
    again, error = capsys.readouterr()
    assert again == out
    assert re.fullmatch(r"note: \[pictures\] not used, since .* read: new/d\.heic; con.*\n", error)


def test_json(trained, pictures, capsys):
    assert run(trained, "new", "--json", "--top", 9) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["file"] for record in records] == ["new/a.png", "new/b c.jpg"]
    for record, best in zip(records, ("red", "blue"), strict=True):
        classes = record["classes"]
        assert next(iter(classes)) == best
        assert sum(classes.values()) == pytest.approx(1.0, abs=1e-5)
        assert sorted(classes) == ["blue", "green", "red"]
        assert list(classes.values()) == sorted(classes.values(), reverse=True)


def test_broken_files_are_named_and_others_classified(trained, pictures, capsys):
    assert run(trained, "broken.jpg", "no.jpg", "new/a.png") == 1
    out, error = capsys.readouterr()
    assert out.startswith("new/a.png ")
    assert "broken.jpg: not a picture\n" in error
    assert "predict: no.jpg: no such file or directory\n" in error


def test_errors(trained, pictures, capsys):
    assert run("no/run", "new/a.png") == 1
    assert "[load] no/run does not exist\n" in capsys.readouterr().err
    (pictures / "run").mkdir()
    assert run("run", "new/a.png") == 1
    assert "run holds no model.safetensors" in capsys.readouterr().err
    assert run(trained / "checkpoint.safetensors", "new/a.png") == 1
    assert "not how to use them" in capsys.readouterr().err
    (pictures / "empty").mkdir()
    assert run(trained, "empty") == 1
    assert "empty holds no pictures" in capsys.readouterr().err
    (pictures / "hub").mkdir()
    shutil.copy(trained / "checkpoint.safetensors", "hub/model.safetensors")
    (pictures / "hub/config.json").write_text("{}")
    assert run("hub", "new/a.png") == 1
    assert "load_pretrained('hub') reads folders of timm and transf" in capsys.readouterr().err
    assert run(trained) == 2
    assert run(trained, "new/a.png", "--top", 0) == 2


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("runs/pet", "[load] runs/pet does not exist; did you mean runs/pets?"),
        ("runs/Dogs.singa", "[load] runs/Dogs.singa does not exist; did you mean runs/dogs?"),
        ("runs/ships", "[load] runs/ships does not exist; there are the runs runs/dogs, runs/pets"),
        ("runs", "after its first epoch; there are the runs runs/dogs, runs/pets"),
        ("runs/pets/checkpoint.safetensors", "`python -m singa train`; did you mean runs/pets?"),
    ],
)
def test_the_run_that_was_meant(trained, pictures, capsys, wanted, message):
    for name in ("dogs", "pets"):
        shutil.copytree(trained, pictures / "runs" / name)
    assert run(wanted, "new/a.png") == 1
    assert capsys.readouterr().err.endswith(f"{message}\n")


def test_names_that_are_no_text(trained, pictures):
    """As folders from other systems have them: the output has escapes, also of what the terminal
    cannot show."""
    name = os.fsencode(pictures) + b"/new/gr\xfcn.png"
    (pictures / "new" / "a.png").rename(os.fsdecode(name))
    command = [sys.executable, "-m", "singa", "predict", str(trained), "new", "--json"]
    for encoding in ("utf-8:strict", "ascii"):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, capture_output=True, check=True, env=environment)
        files = [json.loads(line)["file"] for line in done.stdout.splitlines()]
        assert files == ["new/b c.jpg", "new/gr\udcfcn.png"]
        assert rb"gr\udcfcn.png" in done.stdout


def test_as_a_program(trained, pictures):
    command = [sys.executable, "-W", "error", "-m", "singa", "predict", str(trained), "new/a.png"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("new/a.png  red ")
    assert done.stderr == ""
