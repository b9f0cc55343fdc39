"""Folders that are parts of a data set and no classes, and what lies beside folders of classes."""

import pytest
from picture_folders import coloured, write_colours
from singa.commands import picture_sets
from singa.data import ImageFolder
from singa.data.parts import part_of


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *(("train", "train"), ("Training_Set", "train"), ("seg_train", "train")),
        *(("valid", "validation"), ("dev", "validation"), ("val2017", "validation")),
        *(("test-images", "test"), ("evaluation", "test")),
        *(("trainer", None), ("contest", None), ("cat", None), ("", None)),
    ],
)
def test_what_a_name_says(name, part):
    assert part_of(name) == part


def write(root, files):
    for number, name in enumerate(files):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        coloured("red", number).save(root / name)
    return root


def pictures(*folders):
    return [f"{folder}/{name}" for folder in folders for name in ("cat/1.png", "dog/1.png")]


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        (pictures("training_set", "test_set"), ("training_set", "test_set")),
        (
            [*pictures("seg_train/seg_train", "seg_test/seg_test"), "seg_pred/seg_pred/1.png"],
            ("seg_train/seg_train", "seg_test/seg_test"),
        ),
        (pictures("train", "test", "my_val"), ("train", "test")),
        (pictures("my_train", "my_test", "my_val"), ("my_train", "my_val")),
        (pictures("train", "other"), None),
        (["train/1.png", "test_tube/1.png", "bus/1.png"], None),  # classes
    ],
)
def test_parts_by_their_names(tmp_path, files, parts):
    expected = parts and tuple(tmp_path / part for part in parts)
    assert picture_sets.parts_of(str(write(tmp_path, files))) == expected


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (pictures("training_set", "test_set"), "test_set, training_set of .* seem to be parts"),
        ([*pictures("a_train", "a_test"), "pred/1.png"], "folders a_test, a_train of .* seem to"),
        (["cat/train/1.png", "dog/train/1.png", "dog/val/2.png"], "have parts .*, train: move"),
    ],
)
def test_parts_are_no_classes(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        ImageFolder(write(tmp_path, files))


def test_parts_within_a_set_that_belongs_to_another(tmp_path):
    write(tmp_path, pictures("train", "val"))
    with pytest.raises(ValueError, match="seem to be parts of a data set, not classes: give one"):
        ImageFolder(tmp_path, classes=("cat", "dog"))


def test_folders_that_have_the_same_folders(tmp_path):
    write(tmp_path, pictures("first", "second"))
    said = "classes are the folders first, second, each of which has the folders cat, dog"
    with pytest.warns(UserWarning, match=said):
        assert ImageFolder(tmp_path).classes == ("first", "second")


def test_what_lies_beside_the_classes_is_named(tmp_path):
    folder = write_colours(tmp_path / "colours", 1)
    coloured("red", 3).save(folder / "stray.png")
    (folder / "labels.csv").write_text("red/0.jpg,r\n")
    (folder / "notes.txt").write_text("")
    said = (
        r"not used of .*: pictures in no folder of a class: stray\.png; label files: labels\.csv "
    )
    with pytest.warns(UserWarning, match=said + r"\(.*labels\.csv instead of the folder is read\)"):
        assert len(ImageFolder(folder)) == 3
    (folder / "stray.png").unlink()
    (folder / "labels.csv").unlink()
    ImageFolder(folder)


def test_names_of_folders_that_are_nearly_the_same(tmp_path):
    write(tmp_path, ["Cat/1.png", "cat/2.png"])
    with pytest.warns(UserWarning, match="different classes: 'Cat' and 'cat'"):
        assert ImageFolder(tmp_path).classes == ("Cat", "cat")


@pytest.mark.parametrize("suffix", [".npy", ".dcm", ".psd", ".mp4", ".heic"])
def test_formats_that_are_not_read_are_named(tmp_path, suffix):
    folder = write_colours(tmp_path / "colours", 1)
    (folder / "red" / f"1{suffix}").write_bytes(b"")
    with pytest.warns(UserWarning, match=rf"their formats are not read: .*1{suffix}"):
        ImageFolder(folder)


def test_files_with_the_same_contents(tmp_path):
    write(tmp_path, pictures("a", "b"))
    paths = sorted(tmp_path.rglob("*.png"))
    (tmp_path / "copy.png").write_bytes(paths[1].read_bytes())
    assert picture_sets.same_contents([*paths, tmp_path / "copy.png"]) == [[1, 4]]
    groups = picture_sets.same_contents([*paths, tmp_path / "copy.png"])
    assert picture_sets.in_both(groups, len(paths)) == [len(paths)]  # copy.png
    assert picture_sets.in_both(picture_sets.same_contents([*paths[2:], *paths[:2]]), 2) == []
