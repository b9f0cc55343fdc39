"""Options of commands: what would not be used, or would spoil data, is refused by name."""

import shutil
from functools import partial

import numpy as np
import pytest
from cifar10_run import change_settings
from picture_folders import write_colours, write_labels
from program_in_process import run_singa
from singa import data, models

train = partial(run_singa, "train")
QUICK = ("--model", "lenet", "--size", "16", "--epochs", "1", "--batch-size", "8", "--threads", "1")


@pytest.fixture
def pets(tmp_path, monkeypatch):
    """A folder of pictures in the current one."""
    monkeypatch.chdir(tmp_path)
    return write_colours(tmp_path / "pets", 5, ("red", "blue"))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no", "no does not exist"),
        ("pets/red", "its pictures lie in no folder of a class"),
        ("pets/red/0.jpg", "pets/red/0.jpg is a file, but no CSV file"),
    ],
)
@pytest.mark.usefixtures("pets")
def test_wrong_data_are_said_before_options(capsys, path, message):
    assert train("--data", path, *QUICK, "--workers", 0) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "--size" not in error


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("train", "--data", ""), "--data"),
        (("train", "--data=", "--quick"), "--data"),
        (("train", "--data", "pets", "--weights", ""), "--weights"),
        (("train", "--data", "pets", "--out", ""), "--out"),
        (("predict", "", "pets"), "MODEL"),
        (("predict", "run", ""), "IMAGE"),
        (("evaluate", "run", "--columns", ""), "--columns"),
        (("onnx", ""), "FILE"),
    ],
)
@pytest.mark.usefixtures("pets")
def test_empty_texts(capsys, arguments, name):
    """As of a shell's variable that is not set; --data would be the current folder."""
    assert run_singa(*arguments) == 2
    assert f"argument {name}: expected a value, got an empty text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "pets/run"), "--out pets/run lies in pets, where its pictures would be a class"),
        (("--out", "pets/red/run"), "--out pets/red/run lies in pets"),
        (("--out", "run", "--cache", "pets/decoded"), "--cache pets/decoded lies in pets"),
    ],
)
@pytest.mark.usefixtures("pets")
def test_places_among_the_pictures(capsys, options, message):
    assert train("--data", "pets", *QUICK, *options) == 2
    assert message in capsys.readouterr().err


def test_the_default_folder_among_the_pictures(pets, monkeypatch, capsys):
    monkeypatch.chdir(pets)
    assert train("--data", ".", *QUICK) == 2
    assert "--out runs/pets lies in ., where" in capsys.readouterr().err


def test_places_that_are_hidden_or_beside_the_parts(pets, capsys):
    assert train("--data", "pets", *QUICK, "--out", "pets/.run", "--cache", "pets/.decoded") == 0
    shutil.copytree(pets, "set/train")
    shutil.copytree(pets, "set/val")
    assert train("--data", "set", *QUICK, "--out", "set/run") == 0
    capsys.readouterr()
    assert train("--data", "set", *QUICK, "--out", "set/val/run") == 2
    assert "--out set/val/run lies in set/val, where" in capsys.readouterr().err


def test_columns_as_people_write_them(pets, capsys):
    lines = [
        f"{c}/{n}.{'png' if n % 2 else 'jpg'},{c},0\n" for c in ("red", "blue") for n in range(5)
    ]
    (pets / "list.csv").write_text('"the, file",the class,x\n' + "".join(lines))
    given = ("--data", "pets/list.csv", *QUICK, "--columns")
    assert train(*given, '"the, file", the class', "--out", "run") == 0
    assert "2 classes: blue, red" in capsys.readouterr().out
    assert train(*given, "x,x", "--out", "other") == 1
    assert "columns names 'x' twice: ('x', 'x')" in capsys.readouterr().err


def test_a_column_that_holds_out_is_said(pets, capsys):
    lines = [
        f"{c}/{n}.{'png' if n % 2 else 'jpg'},{c},{n // 4}\n"
        for c in ("red", "blue")
        for n in range(5)
    ]
    (pets / "list.csv").write_text("file,label,is_valid\n" + "".join(lines))
    assert train("--data", "pets/list.csv", *QUICK, "--out", "run") == 0
    assert "column 'is_valid' says which pictures are held out\n" in capsys.readouterr().out


@pytest.mark.usefixtures("pets")
def test_options_that_a_resumed_run_did_not_have(capsys):
    assert train("--data", "pets", *QUICK, "--out", "run") == 0
    for options, message in (
        (("--quick",), "--quick: the run in run began with --epochs 1: leave out --quick"),
        (("--multilabel",), "--multilabel was not given when the run in run started"),
    ):
        capsys.readouterr()
        assert train("--out", "run", "--resume", *options) == 2
        assert message in capsys.readouterr().err
    assert train("--out", "run", "--resume", "--quick", "--epochs", 1, "--images", 5000) == 2
    assert "--images was not given" in capsys.readouterr().err


@pytest.mark.usefixtures("pets")
def test_a_quick_run_may_be_resumed_as_it_was_started(capsys):
    options = ("--data", "pets", "--quick", *QUICK, "--out", "run")
    assert train(*options) == 0
    assert train(*options, "--resume") == 0


@pytest.mark.usefixtures("pets")
def test_a_network_of_masks(capsys):
    net = models.create("unet", num_classes=2)
    net.compile([np.zeros((1, 3, 32, 32), np.float32)], is_train=False)
    net.class_names, net.transform = (
        ["cell", "none"],
        data.evaluation_transform(32, [0.5] * 3, [1] * 3),
    )
    net.save("unet.singa")
    assert train("--data", "pets", "--weights", "unet.singa", "--out", "run", "--threads", 1) == 1
    error = capsys.readouterr().err
    assert "--weights unet.singa: [PictureClassifier] there are 2 class names, and the" in error
    assert "computes (1, 2, 32, 32) for 1 picture\n" in error
    assert run_singa("export", "unet.singa", "--onnx") == 0
    assert "to use it" not in capsys.readouterr().out  # predict would refuse it


@pytest.mark.usefixtures("pets")
def test_a_quantised_network_is_not_trained(capsys):
    """Nothing but its scales would be."""
    assert train("--data", "pets", *QUICK, "--out", "run") == 0
    assert run_singa("quantize", "run", "--out", "int8.onnx") == 0
    given = ("--data", "pets", "--epochs", 1, "--threads", 1, "--out", "other")
    assert train(*given, "--weights", "int8.onnx") == 1
    assert "--weights int8.onnx is of a quantised network, of which" in capsys.readouterr().err
    assert run_singa("export", "run", "--onnx") == 0
    assert train(*given, "--weights", "run.onnx") == 0


@pytest.mark.usefixtures("pets")
def test_a_report_of_generated_images_with_pictures(capsys):
    assert train("--images", 64, *QUICK[:2], *QUICK[4:], "--out", "run") == 0
    assert run_singa("report", "run", "--data", "pets") == 0
    assert (
        "pets has pictures in files, and the run was trained on others" in capsys.readouterr().out
    )


def test_the_data_of_a_run_with_another_task(pets, capsys):
    """Also where the names are the same."""
    write_labels(pets.parent / "beach", 24)
    given = ("--data", "beach/labels.csv", "--multilabel", *QUICK, "--out", "labels")
    assert train(*given) == 0
    write_colours(pets.parent / "three", 5)
    assert train("--data", "three", *QUICK, "--out", "classes") == 0
    capsys.readouterr()
    assert run_singa("evaluate", "labels", "--data", "classes") == 1
    names = "blue, green, red"
    expected = f"the data of classes have the classes {names}, and labels has the labels {names}\n"
    assert capsys.readouterr().err.endswith(expected)
    assert run_singa("evaluate", "classes", "--data", "labels") == 1
    expected = f"the data of labels have the labels {names}, and classes has the classes {names}\n"
    assert capsys.readouterr().err.endswith(expected)


@pytest.mark.usefixtures("pets")
def test_files_of_another_kind_are_not_replaced(tmp_path, capsys):
    """Downloaded weights, a network, and the labels in a JSON file."""
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/model.safetensors").write_bytes(b"weights")
    assert train("--data", "pets", *QUICK, "--out", "hub") == 2
    assert "hub has a model.safetensors, which the run would replace" in capsys.readouterr().err
    assert (tmp_path / "hub/model.safetensors").read_bytes() == b"weights"
    assert train("--data", "pets", *QUICK, "--out", "hub", "--overwrite") == 0
    for command in ("report", "compare"):
        assert run_singa(command, "hub", "--out", "hub/model.safetensors") == 1
        assert "--out hub/model.safetensors: the name must end in .htm" in capsys.readouterr().err
    (tmp_path / "hub.json").write_text("{}")
    assert run_singa("export", "hub", "--onnx") == 1
    assert "hub.json is no description of a network, and would be" in capsys.readouterr().err
    assert (tmp_path / "hub.json").read_text() == "{}"
    assert not (tmp_path / "hub.onnx").exists()
    (tmp_path / "hub.json").unlink()
    assert [run_singa("export", "hub", "--onnx") for _ in range(2)] == [0, 0]  # its own


@pytest.mark.usefixtures("pets")
def test_a_run_is_compared_once(capsys):
    assert train("--data", "pets", *QUICK, "--out", "run") == 0
    assert run_singa("compare", "run", "./run/../run") == 1
    assert "run/../run is the run run, which is shown once" in capsys.readouterr().err


def test_a_run_is_resumed_with_the_pictures_that_it_had(trained, tmp_path, capsys):
    shutil.copytree(trained, out := tmp_path / "run")
    write_colours(tmp_path / "more", 9)
    change_settings(out / "checkpoint.safetensors", data=str(tmp_path / "more"))
    assert train("--out", out, "--resume", "--epochs", 9, "--threads", 1) == 1
    error = capsys.readouterr().err
    assert "is of a run with images " in error
    assert "resume it with the data and the batches that it had" in error
    assert "loader" not in error


def test_a_batch_has_an_image_for_each_virtual_rank(capsys):
    assert train("--batch-size", 4, "--virtual-ranks", 8) == 2
    error = capsys.readouterr().err
    assert "--virtual-ranks 8 is more than the 4 images of a batch" in error
