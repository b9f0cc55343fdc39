"""`python -m singa train`: its data, its files, and that it goes on where it stopped."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import singa
from cifar10_run import OPTIONS, change_settings, outcome, write_cifar10
from picture_folders import coloured, write_colours
from program_in_process import quick
from singa import data, metric, opt, tensor
from singa.commands import decoding, evaluate, picture_sets, run_folder, train
from singa.commands.picture_size import fitting_epochs, fitting_size
from singa.examples import cifar10
from singa.training import Trainer, checkpoint, read_log
from singa.training.picture_classifier import PictureClassifier

QUICK = quick(2)


def log_of(out):
    return read_log(Path(out) / "log.jsonl")


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    return write_cifar10(tmp_path_factory.mktemp("cifar"))


def without_new_settings(result):
    weights, optimizer, random, progress, log = result
    new = {"size", "split", "augment", "columns", "class_weights", "weights"}
    new |= {"multilabel", "regression"}
    settings = {key: value for key, value in progress["settings"].items() if key not in new}
    return weights, optimizer, random, {**progress, "settings": settings}, log


def test_on_cifar_it_is_the_example(run, cifar, tmp_path, capsys):
    options = ("--data", str(cifar), *OPTIONS, "--threads", "1")
    assert cifar10.main([*options, "--out", str(tmp_path / "example")], "train.py") == 0
    said = capsys.readouterr().out
    assert run(*options, "--out", tmp_path / "run") == 0
    own = capsys.readouterr().out
    assert without_new_settings(outcome(tmp_path / "run")) == outcome(tmp_path / "example")
    files = [*os.listdir(tmp_path / "example"), "environment.json"]
    assert sorted(os.listdir(tmp_path / "run")) == sorted(files)
    rates = slice(0, 2)  # without images/s and the folder
    assert own.splitlines()[rates] == said.splitlines()[rates]


def test_it_resumes_a_run_of_the_example(run, cifar, tmp_path, monkeypatch):
    options = ("--data", str(cifar), *OPTIONS, "--threads", "1")
    assert cifar10.main([*options, "--out", str(tmp_path / "whole")], "train.py") == 0
    stop_at(monkeypatch, 6)  # a step of the second epoch
    assert cifar10.main([*options, "--out", str(tmp_path / "run")], "train.py") == 130
    noted: list[Path] = []
    monkeypatch.setattr("singa.commands.train.note_environment", noted.append)
    assert run("--out", tmp_path / "run", "--resume", "--threads", 1) == 0
    assert noted == [tmp_path / "run"]  # once, whatever the number of epochs
    assert without_new_settings(outcome(tmp_path / "run")) == outcome(tmp_path / "whole")


def stop_at(monkeypatch, call):
    """Sends SIGINT at a call of metric.count_top_k."""
    calls, original = [], metric.count_top_k

    def count_top_k(*arguments):
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(metric, "count_top_k", count_top_k)


def test_what_a_run_on_pictures_leaves(trained):
    assert sorted(os.listdir(trained)) == [
        *("checkpoint.safetensors", "curves.png", "environment.json", "log.jsonl"),
        "model.safetensors",
    ]
    log = log_of(trained)
    assert [record["epoch"] for record in log] == [1, 2, 3, 4]
    assert [record["step"] for record in log] == [4, 8, 12, 16]  # 36 images, none short
    assert "test_top5" not in log[0]  # of three classes
    assert log[-1]["test_top1"] == 1.0
    settings = checkpoint.read_progress(trained / "checkpoint.safetensors")["settings"]
    assert (settings["size"], settings["split"], settings["augment"]) == (16, None, "standard")
    described = checkpoint.read_model(trained / "checkpoint.safetensors")
    assert described["class_names"] == ["blue", "green", "red"]


def test_a_missing_matplotlib_is_named_once(run, colours, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    assert run("--data", colours, *QUICK, "--out", tmp_path / "run") == 0
    said = capsys.readouterr().out
    assert said.count("needs matplotlib: pip install matplotlib") == 1
    assert said.count("each epoch leaves out 4 of 36 pictures, others each time, since") == 1
    assert len(log_of(tmp_path / "run")) == 2
    assert not (tmp_path / "run/curves.png").exists()


@pytest.mark.filterwarnings("ignore:.*in no folder of a class")
def test_the_saved_model_is_the_one_that_was_tested(trained, colours):
    classifier = PictureClassifier.load(trained)
    with pytest.warns(UserWarning, match="3 of 48 files"):
        _, held_out = data.ImageFolder(colours, on_error="skip").split(0.2, 0)
    rows = classifier.probabilities([held_out[index][0] for index in range(len(held_out))])
    assert (rows.argmax(1) == held_out.labels).all()
    loss = -np.log(rows[np.arange(len(rows)), held_out.labels]).mean()
    # The run reduces pictures while it reads them.
    assert loss == pytest.approx(log_of(trained)[-1]["test_loss"], abs=0.05)


@pytest.mark.parametrize("call", [3, 5, 6])
def test_stopped_and_resumed_is_as_never_stopped(
    run, colours, trained, tmp_path, monkeypatch, capsys, call
):
    """Each step and each batch of the test counts once: four steps, then two batches."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(patch, call)
        assert run("--data", colours, *quick(4), "--out", out) == 130
    assert f"stopped after step {min(call, 4)}; --resume" in capsys.readouterr().out
    assert (out / "model.safetensors").exists() == (call > 4)
    assert run("--out", out, "--resume", "--workers", 0, "--cache", "memory", "--threads", 1) == 0
    assert outcome(out) == outcome(trained)


def test_a_finished_run_saves_a_model_that_is_missing(run, trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    assert run("--out", tmp_path / "run", "--resume", "--threads", 1) == 0
    assert outcome(tmp_path / "run") == outcome(trained)
    assert "the run has had all its epochs: --epochs N, with" in capsys.readouterr().out


def test_other_settings_are_refused(run, colours, trained, capsys):
    for option, value in (("--size", 32), ("--split", 0.5), ("--augment", "rand")):
        assert run("--out", trained, "--resume", option, value) == 2
        error = capsys.readouterr().err
        assert f"{option} was " in error
        assert f"and stays so: leave out {option}\n" in error
    assert run("--data", colours, "--out", trained) == 2
    assert "has a run: use --resume" in capsys.readouterr().err


def test_output_and_broken_files(run, colours, tmp_path, capsys):
    assert run("--data", colours, *quick(1), "--out", tmp_path / "run") == 0
    out, error = capsys.readouterr()
    assert "note: [ImageFolder] not used of" in error
    assert "pictures in no folder of a class: stray.png\n" in error
    assert "note: [ImageFolder] 3 of 48 files cannot be read and are left out: " in error
    assert "3 classes: blue, green, red\ncolours: 36 images; held out: 9\n" in out
    assert f"to look at it: python -m singa report {tmp_path / 'run'}\n" in out
    assert f"to use it: python -m singa predict {tmp_path / 'run'} PICTURE...\n" in out


def test_pictures_that_are_split_already(run, tmp_path, capsys):
    write_colours(tmp_path / "set" / "Train", 4)
    write_colours(tmp_path / "set" / "val", 2, ("red", "green"))
    assert run("--data", tmp_path / "set", *QUICK, "--out", tmp_path / "run") == 0
    out, error = capsys.readouterr()
    assert "set: 12 images; held out: 4" in out
    assert "note: the test has no picture of blue\n" in error
    assert PictureClassifier.load(tmp_path / "run").class_names == ("blue", "green", "red")
    assert run("--data", tmp_path / "set", *QUICK, "--split", 0.2, "--out", tmp_path / "2") == 2
    assert "set has folders Train and val, which say what is held out" in capsys.readouterr().err
    write_colours(tmp_path / "other" / "train", 2, ("red",))
    write_colours(tmp_path / "other" / "val", 2, ("red", "green"))
    assert run("--data", tmp_path / "other", *QUICK, "--out", tmp_path / "2") == 1
    assert "classes that are not in `classes`: green" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "set" / "val")
    (tmp_path / "set" / "test").mkdir()
    coloured("red", 0).save(tmp_path / "set" / "test" / "0.png")
    assert run("--data", tmp_path / "set", *QUICK, "--out", tmp_path / "2") == 1
    assert (
        "test has no folder of a class with pictures, so nothing can be" in capsys.readouterr().err
    )


def test_pictures_that_have_two_classes_are_named(run, tmp_path, capsys):
    folder = write_colours(tmp_path / "set", 5, ("red", "green"))
    for number in (0, 2):
        shutil.copy(folder / "red" / f"{number}.jpg", folder / "green" / f"x{number}.jpg")
    assert run("--data", folder, *quick(1), "--out", tmp_path / "run") == 0
    error = capsys.readouterr().err
    assert "files of the training with the pictures of another class: " in error
    assert "green/x0.jpg" in error


def test_what_is_cut_off_long_pictures_is_said(run, tmp_path, capsys):
    for name in ("red", "blue"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(5):
            coloured(name, number, 16, 25 if number else 99).save(
                tmp_path / "set" / name / f"{number}.png"
            )
    options = ("--data", tmp_path / "set", *quick(1))
    assert run(*options, "--out", tmp_path / "run") == 0
    said = "gets 16 x 16 pixels of each: the middle square, of pictures with sides of 16 and 25"
    assert said in capsys.readouterr().out


def test_a_csv_file(run, colours, tmp_path, capsys):
    lines = [
        f"{colours}/{name}/{n}.jpg,{name[0]}" for name in ("red", "blue") for n in (0, 2, 4, 6)
    ]
    (tmp_path / "list.csv").write_text("\n".join(["file,label", *lines]))
    options = ("--data", tmp_path / "list.csv", *QUICK, "--cache", tmp_path / "cache")
    assert run(*options, "--out", tmp_path / "run") == 0
    assert "list: 6 images; held out: 2" in capsys.readouterr().out
    assert len(list((tmp_path / "cache").rglob("*.ppm"))) == 8


def test_a_column_says_what_is_held_out(run, colours, tmp_path, capsys):
    lines = [f"{colours}/red/{n}.jpg,a,{int(n > 2)}" for n in (0, 2, 4, 6)]
    lines += [f"{colours}/blue/{n}.jpg,b,0" for n in (0, 2, 4, 6)]
    (tmp_path / "list.csv").write_text("\n".join(["file,label,is_valid", *lines]))
    options = ("--data", tmp_path / "list.csv", *quick(1))
    assert run(*options, "--out", tmp_path / "run") == 0
    assert "list: 6 images; held out: 2" in capsys.readouterr().out
    for share in (0.2, 0.5):
        assert run(*options, "--split", share, "--out", tmp_path / "2") == 1
        error = capsys.readouterr().err
        assert "column 'is_valid' says which pictures are held out" in error
        assert "(singa train: leave out --split)" in error
    for value in (0, 1):
        same = [f"{line[:-1]}{value}" for line in lines]
        (tmp_path / "same.csv").write_text("\n".join(["file,label,is_valid", *same]))
        assert run("--data", tmp_path / "same.csv", *QUICK, "--out", tmp_path / "2") == 1
        said = f"{8 - 8 * value} pictures for the training, and {8 * value} for the test"
        assert f"same.csv: {said}: both need some\n" in capsys.readouterr().err
    (tmp_path / "list.csv").write_text("\n".join(["file,label,age", *lines]))
    assert run(*options, "--out", tmp_path / "2") == 1
    assert "columns that are not used: 'age'" in capsys.readouterr().err
    assert run(*options, "--columns", "file,label", "--out", tmp_path / "2") == 0
    assert "list: 6 images; held out: 2" in capsys.readouterr().out


def test_a_default_that_an_older_run_kept_is_no_option(run, colours, tmp_path, capsys):
    """Older runs kept 0.2 as their split, also where a column said what was held out."""
    lines = [f"{colours}/{name}/{n}.jpg,{name},0" for name in ("red", "blue") for n in (2, 4)]
    lines.append(f"{colours}/red/6.jpg,red,1")
    (tmp_path / "list.csv").write_text("\n".join(["file,label,is_valid", *lines]))
    out = tmp_path / "run"
    assert run("--data", tmp_path / "list.csv", *quick(1), "--out", out) == 0
    change_settings(out / "checkpoint.safetensors", split=0.2)
    assert "--split" not in run_folder.read_run(out).command()
    assert run("--out", out, "--resume", "--epochs", 2, "--threads", 1) == 0
    assert "list: 4 images; held out: 1\n" in capsys.readouterr().out
    assert evaluate.main([str(out)]) == 0
    assert "\n1 picture  accuracy" in capsys.readouterr().out
    assert run("--out", out, "--resume", "--split", 0.2, "--threads", 1) == 1
    assert "leave out --split" in capsys.readouterr().err


def test_what_is_unused_rare_and_in_both_parts_is_named(run, tmp_path, capsys):
    for part, count in (("train", 22), ("val", 2), ("test", 2)):
        write_colours(tmp_path / "set" / part, count, ("red", "green"))
    for file in sorted((tmp_path / "set" / "train" / "green").iterdir())[2:]:
        file.unlink()
    shutil.copy(
        tmp_path / "set" / "train" / "red" / "0.jpg", tmp_path / "set" / "val" / "red" / "x.jpg"
    )
    options = ("--data", tmp_path / "set", *quick(1))
    assert run(*options, "--out", tmp_path / "run") == 0
    out, error = capsys.readouterr()
    assert "note: tested on val; not used: test" in error
    assert "red/x.jpg" in error
    assert "few pictures for the training: green 2 of 22; --class-weights balanced" in out


def test_balanced_class_weights():
    labels = np.array([0, 0, 0, 1], np.int32)
    images = data.ImageSet(np.zeros((4, 1, 2, 2), np.uint8), labels, ("a", "b"))
    sets = picture_sets.PictureSets("pictures", images, images, images.classes, None, None, 1, 2)
    loss = train._balanced_loss(sets, 0.0)
    scores = np.array([[2, 0], [1, 0], [0, 0], [3, 1]], np.float32)
    each = np.log(np.exp(scores).sum(1)) - scores[np.arange(4), labels]
    expected = (each[:3].mean() + each[3]) / 2
    got = float(loss(tensor.from_numpy(scores), tensor.from_numpy(labels)))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_mnist(run, tmp_path, capsys):
    rng = np.random.default_rng(0)
    for name, count in (("train", 40), ("t10k", 12)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = rng.integers(0, 50, (count, 28, 28)).astype(np.uint8) + 20 * labels[:, None, None]
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
            (tmp_path / f"{name}-{kind}-ubyte").write_bytes(head + array.tobytes())
    assert (
        run("--data", tmp_path, "--epochs", 1, "--batch-size", 20, "--out", tmp_path / "run") == 0
    )
    assert "lenet: 431,080 parameters" in capsys.readouterr().out
    classifier = PictureClassifier.load(tmp_path / "run")
    assert classifier.channels == 1
    coloured("red", 0, 40, 30).save(tmp_path / "a.png")
    ((best, _),) = classifier.predict([tmp_path / "a.png"], top=1)[0]
    assert best in "0123456789"


def test_generated_images_and_defaults(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("--images", 64, "--epochs", 1, "--model", "lenet", "--threads", 1) == 0
    classifier = PictureClassifier.load("runs/lenet")
    assert classifier.class_names == data.SHAPES_CLASSES
    assert "test_top5" in log_of("runs/lenet")[0]


def test_defaults_depend_on_the_data(colours, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def settings(*options):
        args = train.parse([str(option) for option in options])
        return args.model, args.epochs, args.batch_size, args.lr, args.size, str(args.out)

    assert settings() == ("resnet20", 15, 128, 0.1, None, "runs/resnet20")
    assert settings("--data", colours) == ("resnet20_cifar", None, 32, 0.025, None, "runs/colours")
    assert settings("--data", colours, "--model", "mobilenet_v2", "--optimizer", "adamw") == (
        "mobilenet_v2", None, 32, 0.001, None, "runs/colours"
    )  # fmt: skip
    assert settings("--data", colours, "--quick")[1] == 5
    assert settings("--data", colours, "--weights", "runs/a")[1:4] == (20, 32, 0.01)
    assert settings("--quick", "--lr", 0.2)[1:4] == (5, 128, 0.2)


@pytest.mark.parametrize(("share", "advised"), [(0.3, True), (0.1, False)])
def test_a_cache_is_proposed_where_decoding_takes_long(
    run, colours, tmp_path, capsys, monkeypatch, share, advised
):
    """A picture's decoding takes this share of its part of a step."""
    rate = 100.0
    monkeypatch.setattr(decoding, "measure", lambda _: decoding.Decoding(share / rate, 12.0))
    monkeypatch.setattr(
        Trainer, "_train", lambda self, *_: self.model.train() or self._totals.settle() or rate
    )
    options = ("--data", colours, *QUICK, "--out")
    assert run(*options, tmp_path / "run") == 0
    text = "takes 30% of the time of a step: --cache memory keeps them decoded (12 MB)"
    assert capsys.readouterr().out.count(text) == advised
    assert run(*options, tmp_path / "2", "--cache", "memory") == 0
    assert text not in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*in no folder of a class")
def test_what_a_cache_needs(colours):
    with pytest.warns(UserWarning, match="cannot be read"):
        pictures = data.ImageFolder(colours, shorter_side=10, on_error="skip")
    found = decoding.measure(pictures)
    assert found.seconds > 0
    assert found.megabytes == pytest.approx(45 * 3 * 10 * 12.5 / 2**20, rel=0.1)
    assert decoding.measure(data.shapes("train", 10)) is None
    piece = decoding.piece(decoding.Decoding(0.5, 3.0), 1.5, 3)
    assert (piece.time, piece.how) == (0.5, "at most")


@pytest.mark.parametrize(
    ("model", "side", "size"),
    [
        ("resnet20_cifar", 8, 16),
        ("resnet20_cifar", 32, 32),
        ("resnet20_cifar", 45, 48),
        ("resnet20_cifar", 300, 64),
        ("resnet20_cifar", 0, 64),  # no picture can be read, which is said later
        ("vgg16_cifar", 20, 32),  # it pools five times
        ("vit_tiny_cifar", 30, 32),
        ("mobilenet_v2", 32, 64),
        ("mobilenet_v2", 100, 128),
        ("mobilenet_v2", 1000, 224),
        ("inception_v3", 32, 299),
    ],
)
def test_the_size_follows_the_pictures(model, side, size):
    assert fitting_size(model, side) == size


@pytest.mark.parametrize(
    ("pictures", "side", "epochs"),
    [(1, 16, 60), (2000, 32, 60), (2000, 48, 35), (2000, 64, 20), (50000, 32, 20), (300, 224, 20)],
)
def test_few_and_small_pictures_are_seen_more_often(pictures, side, epochs):
    assert fitting_epochs(pictures, side) == epochs


def test_epochs_by_default(colours, tmp_path, monkeypatch):
    """A fifth of the pictures is held out."""
    asked = []
    monkeypatch.setattr(picture_sets, "fitting_epochs", lambda *given: asked.append(given) or 1)
    monkeypatch.setattr(picture_sets, "load", lambda *_: sys.exit(3))
    for options in ((), ("--size", 32), ("--images", 9), ("--split", 0.5)):
        args = train.parse(["--data", str(colours), *map(str, options), "--out", str(tmp_path)])
        with pytest.raises(SystemExit):
            train.train(args)
        assert (args.epochs, args.settings["epochs"]) == (1, 1)
    assert asked == [(38, 24), (38, 32), (9, 24), (24, 24)]


def test_small_pictures_stay_as_they_are(run, colours, tmp_path, capsys):
    """Those of `colours` have shorter sides of 20 to 22 pixels."""
    options = ("--data", colours, "--epochs", 1, "--batch-size", 8, "--threads", 1)
    assert run(*options, "--model", "lenet", "--out", tmp_path / "run") == 0
    assert "the network gets 24 x 24 pixels of each\n" in capsys.readouterr().out
    settings = checkpoint.read_progress(tmp_path / "run" / "checkpoint.safetensors")["settings"]
    assert settings["size"] == 24
    steps = PictureClassifier.load(tmp_path / "run").transform.transforms
    assert steps[:2] == (data.Resize(24), data.CenterCrop(24))  # nothing is cut off
    assert run(*options, "--model", "lenet", "--size", 16, "--out", tmp_path / "16") == 0
    steps = PictureClassifier.load(tmp_path / "16").transform.transforms
    assert steps[:2] == (data.Resize(18), data.CenterCrop(16))


def test_a_run_is_continued_to_more_epochs(run, colours, tmp_path, capsys):
    out = tmp_path / "run"
    options = ("--out", out, "--resume", "--threads", 1)
    assert run("--data", colours, *QUICK, "--out", out) == 0
    assert run(*options, "--epochs", 1) == 2
    assert "--epochs: the run in" in capsys.readouterr().err
    assert run(*options, "--epochs", 4) == 0
    assert run(*options, "--epochs", 5) == 0
    assert run(*options) == 0  # no more to do
    log = log_of(out)
    assert [record["epoch"] for record in log] == [1, 2, 3, 4, 5]
    first, again, last = opt.OneCycle(0.025, 8), opt.OneCycle(0.025, 8), opt.OneCycle(0.025, 4)
    steps = [(first, 4), (first, 8), (again, 4), (again, 8), (last, 4)]  # of the next update
    rates = [schedule(step) for schedule, step in steps]
    assert [record["lr"] for record in log] == pytest.approx(rates, rel=1e-6)
    command = run_folder.read_run(out).command()
    assert command.endswith(f"&& python -m singa train --out {out} --resume --epochs 5")
    assert "--epochs 2 " in command


def test_an_extended_run_that_stopped_is_as_never_stopped(run, colours, tmp_path, monkeypatch):
    for name in ("whole", "run"):
        out = tmp_path / name
        assert run("--data", colours, *quick(1), "--out", out) == 0
        with monkeypatch.context() as patch:
            if name == "run":
                stop_at(patch, 6)
            status = run("--out", out, "--resume", "--epochs", 3, "--threads", 1)
            assert status == (130 if name == "run" else 0)
    assert run("--out", out, "--resume", "--threads", 1) == 0
    assert outcome(out) == outcome(tmp_path / "whole")


def test_it_starts_from_the_weights_of_a_run(run, trained, tmp_path, capsys):
    write_colours(tmp_path / "two", 4, ("red", "green"))
    options = ("--data", tmp_path / "two", "--weights", trained, "--batch-size", 6)
    options = (*options, "--threads", 1, "--lr", 0, "--weight-decay", 0, "--out", tmp_path / "run")
    assert run(*options, "--epochs", 1) == 0
    said = capsys.readouterr().out
    assert f"starts from {trained} with a new last layer for 2 classes\nlenet: " in said
    before, after = (singa.load(each).get_params() for each in (trained, tmp_path / "run"))
    head = [name for name in after if after[name].shape != before[name].shape]
    assert [after[name].shape[-1] for name in head] == [2, 2]
    assert len(after) > 4
    for name in after.keys() - set(head):
        np.testing.assert_array_equal(after[name].numpy(), before[name].numpy(), name)
    settings = checkpoint.read_progress(tmp_path / "run" / "checkpoint.safetensors")["settings"]
    assert (settings["model"], settings["size"]) == ("lenet", 16)  # those of the weights
    assert run("--out", tmp_path / "run", "--resume", "--epochs", 2, "--threads", 1) == 0
    assert len(log_of(tmp_path / "run")) == 2


def test_weights_of_the_same_classes_keep_the_last_layer(run, trained, colours, tmp_path, capsys):
    options = ("--data", colours, "--weights", trained, "--batch-size", 8, "--threads", 1)
    assert (
        run(*options, "--epochs", 1, "--lr", 0, "--label-smoothing", 0.2, "--out", tmp_path / "run")
        == 0
    )
    assert "with its last layer, since the classes are the same" in capsys.readouterr().out
    assert log_of(tmp_path / "run")[0]["test_top1"] == 1.0
    arguments = singa.load(tmp_path / "run").architecture["arguments"]  # not an ONNX graph
    assert arguments["label_smoothing"] == 0.2
    assert run(*options, "--size", 24, "--out", tmp_path / "other") == 1
    said = "--size 24: lenet, which was made for 16 x 16, does not take such pictures: "
    assert said in capsys.readouterr().err


def test_the_statistics_are_those_of_the_weights(run, trained, colours, tmp_path):
    net = singa.load(trained)
    net.transform = data.Compose(data.Resize((16, 16)), data.Normalize([0.5] * 3, [0.25] * 3))
    net.save(tmp_path / "own.singa")
    options = ("--data", colours, "--weights", tmp_path / "own.singa", "--batch-size", 8)
    assert run(*options, "--epochs", 1, "--threads", 1, "--out", tmp_path / "run") == 0
    last = PictureClassifier.load(tmp_path / "run").transform.transforms[-1]
    assert last == data.Normalize((0.5,) * 3, (0.25,) * 3)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (["data_batch_1.bin"], "cifar10"),
        (["cifar-10-batches-py/data_batch_1"], "cifar10"),
        (["cifar-100-python/train"], "cifar100"),
        (["MNIST/raw/train-images-idx3-ubyte.gz"], "mnist"),
        (["a/0.png", "notes.txt"], "pictures"),
        (["train/a/0.png", "val/a/0.png"], "pictures"),
        (["a/b/c/0.JPG"], "pictures"),
    ],
)
def test_kinds_of_data(tmp_path, files, kind):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert picture_sets.kind_of(str(tmp_path)) == kind


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no data that are recognised; --download gets CIFAR-10"),
        (["a.png"], "its pictures lie in no folder of a class"),
        (["labels.csv"], "it has a CSV file: --data "),
        ([".git/0.png", "a/notes.txt"], "no data that are recognised"),
    ],
)
def test_data_that_are_not_recognised(run, tmp_path, capsys, files, message):
    (tmp_path / "data").mkdir()
    for name in files:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"")
    assert run("--data", tmp_path / "data", "--out", tmp_path / "run") == 1
    error = capsys.readouterr().err
    assert message in error
    assert "a folder of pictures          pets/cat/1.jpg" in error


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--data", "no"), 1, "no does not exist"),
        (("--data", "FOLDER", "--model", "resnet20"), 2, "choose from alexnet, "),
        (("--size", "3"), 2, "--size is for a folder of pictures"),
        (("--augment", "rand"), 2, "--augment is for a folder of pictures"),
        (("--workers", "1"), 2, "--workers is for a folder of pictures"),
        (("--augment", "rand", "--no-augment"), 2, "--augment is not allowed with --no-augment"),
        (("--optimizer", "adamw", "--momentum", "0.5"), 2, "--momentum is for --optimizer sgd"),
        (("--data", "FOLDER", "--columns", "file,label"), 1, "is for a CSV file, and FOLDER is a"),
        (("--data", "FOLDER", "--download"), 1, "FOLDER has other data: --download gets CIFAR-10"),
        (("--data", "FOLDER", "--out", "FOLDER/red/0.jpg"), 2, "0.jpg: FOLDER/red/0.jpg is no"),
        (("--data", "FOLDER", "--out", "/dev/null/run"), 2, "/dev/null is no folder"),
        (("--data", "FOLDER", "--split", "1"), 2, "must lie between 0 and 1, got 1"),
        (
            ("--data", "FOLDER", "--model", "lenet", "--size", "1"),
            1,
            "--size 1: lenet does not take",
        ),
        (("--warmup", "15", "--images", "64"), 1, "--warmup 15: the run has 15 epochs"),
        (("--data", "FOLDER/red/0.jpg"), 1, "0.jpg is a file, but no CSV file. --data takes"),
        (("--data", "FOLDER/red"), 1, "its pictures lie in no folder of a class"),
        (("--download",), 2, "--download needs --data"),
        (("--weights", "no"), 2, "--weights is for a folder of pictures"),
        (("--data", "FOLDER", "--weights", "no"), 1, "no does not exist"),
        (("--data", "FOLDER", "--weights", "FOLDER/red/0.jpg"), 1, "and no pretrained network"),
    ],
)
def test_errors(run, colours, tmp_path, monkeypatch, capsys, options, status, message):
    monkeypatch.chdir(tmp_path)
    assert run(*(option.replace("FOLDER", str(colours)) for option in options)) == status
    assert message.replace("FOLDER", str(colours)) in capsys.readouterr().err


def test_without_pillow_it_takes_one_sentence(run, colours, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert run("--data", colours, *QUICK, "--out", tmp_path / "run") == 1
    assert capsys.readouterr().err.endswith("[ImageFolder] needs Pillow: pip install pillow\n")


def test_one_class(run, tmp_path, capsys):
    write_colours(tmp_path / "set", 3, ("red",))
    assert run("--data", tmp_path / "set", *QUICK, "--out", tmp_path / "run") == 1
    assert "has one class, red: expected a folder for each class" in capsys.readouterr().err


def test_ranks_give_the_bits_of_one_process(run, colours, tmp_path):
    options = ("--data", colours, *quick(1), "--virtual-ranks", 2)
    assert run(*options, "--out", tmp_path / "one") == 0
    command = [sys.executable, "-m", "singa", "launch", "-n", "2", "-m", "singa", "train"]
    command += [str(option) for option in options]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "two")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert models[0] == models[1]
