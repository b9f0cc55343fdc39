"""ImageFolder and MaskFolder: what they find, split, skip and keep."""

import errno
import os
import shutil
import warnings

import numpy as np
import pytest
from picture_folders import COLOURS, add_odd_files, coloured, smooth, write_colours
from PIL import Image
from singa import data, models, tensor
from singa.data import BrokenPictureError, ImageFolder, MaskFolder


@pytest.fixture
def folder(tmp_path):
    return write_colours(tmp_path / "colours")


def names(dataset):
    return [path.relative_to(path.parents[1]).as_posix() for path in dataset.paths]


def test_classes_are_the_folders(folder):
    found = ImageFolder(folder)
    assert found.classes == ("blue", "green", "red")
    assert len(found) == 24
    assert names(found)[:3] == ["blue/0.jpg", "blue/1.png", "blue/2.jpg"]
    assert found.labels.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    for index in (0, 9, 23):
        image, label = found[index]
        assert image.shape[0] == 3
        nearest = [np.abs(image.mean((1, 2)) - colour).sum() for colour in COLOURS.values()]
        assert int(np.argmin(nearest)) == label == found.labels[index]
    with pytest.raises(IndexError):
        found[24]


def test_it_is_lazy(folder):
    found = ImageFolder(folder)
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError, match=r"0\.jpg"):
        found[0]


def test_folders_within_a_class_belong_to_it(folder):
    (folder / "red" / "old" / "older").mkdir(parents=True)
    coloured("red", 3).save(folder / "red" / "old" / "older" / "A.PNG")
    os.symlink(folder / "red", folder / "red" / "old" / "circle")
    found = ImageFolder(folder)
    assert len(found) == 25
    assert found.paths[-1].name == "A.PNG"


def test_stray_files_are_ignored_and_broken_ones_raised(folder):
    broken = add_odd_files(folder)
    with pytest.warns(UserWarning, match=r"in no folder of a class: stray\.png$"):
        found = ImageFolder(folder)
    assert len(found) == 24 + len(broken)
    index = [path.name for path in found.paths].index("cut.jpg")
    with pytest.raises(BrokenPictureError, match=r"cut\.jpg: .*runcated"):
        found[index]


@pytest.mark.parametrize("cache", [None, "memory"])
def test_broken_files_are_skipped_and_named(folder, cache):
    broken = add_odd_files(folder)
    (folder / "stray.png").unlink()
    with pytest.warns(UserWarning, match="3 of 27 files cannot be read and are left out: ") as told:
        found = ImageFolder(folder, on_error="skip", cache=cache)
    assert all(name in str(told[0].message) for name in broken)
    assert len(found) == len(found.paths) == len(found.labels) == 24
    assert told[0].filename == __file__
    assert [path.name for path, _ in found.broken] == broken
    assert [reason for _, reason in found.broken][1:] == ["not a picture"] * 2
    assert [found[index][1] for index in range(24)] == found.labels.tolist()


def test_only_broken_files(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.png").write_bytes(b"")
    with pytest.raises(ValueError, match="none of 1 files can be read"):
        ImageFolder(tmp_path, on_error="skip")
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip', got 'ignore'"):
        ImageFolder(tmp_path, on_error="ignore")


def test_empty_folders_and_formats_that_pillow_lacks_are_named(folder):
    (folder / "yellow").mkdir()
    (folder / "red" / "a.HEIC").write_bytes(b"")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = ImageFolder(folder)
    assert found.classes == ("blue", "green", "red")
    messages = sorted(str(warning.message) for warning in told)
    assert "yellow" in messages[0]
    assert "a.HEIC" in messages[1]
    assert {warning.filename for warning in told} == {__file__}


def test_nothing_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="no does not exist"):
        ImageFolder(tmp_path / "no")
    (tmp_path / "list.dat").write_text("a.png,b")
    with pytest.raises(FileNotFoundError, match=r"list\.dat is no folder and no CSV file"):
        ImageFolder(tmp_path / "list.dat")
    with pytest.raises(FileNotFoundError, match=r"CLASS/picture\.jpg, or a CSV file"):
        ImageFolder(tmp_path)


def test_parts_of_a_data_set_are_no_classes(tmp_path):
    for part in ("train", "val"):
        write_colours(tmp_path / part, 1)
    with pytest.raises(ValueError, match=r"folders train, val of .* seem to be parts"):
        ImageFolder(tmp_path)
    assert ImageFolder(tmp_path, classes=("train", "val")).labels.tolist() == [0] * 3 + [1] * 3


def test_classes_of_another_set(folder, tmp_path):
    part = write_colours(tmp_path / "part", 1, ("red", "blue"))
    classes = ImageFolder(folder).classes
    found = ImageFolder(part, classes=classes)
    assert (found.classes, found.labels.tolist()) == (classes, [0, 2])
    with pytest.raises(ValueError, match="not in `classes`: blue; these are red, green"):
        ImageFolder(folder, classes=("red", "green"))
    with pytest.raises(ValueError, match=r"\[ImageFolder\] classes has a name twice: 'red'"):
        ImageFolder(folder, classes=("red", "blue", "green", "red"))
    for options in ({"classes": "red"}, {"columns": "file,label"}):  # not one name a letter
        with pytest.raises(TypeError, match="must be a list of names, got '"):
            ImageFolder(folder, **options)


def test_split_takes_the_same_share_of_each_class(folder):
    for number in range(8, 18):
        coloured("red", number).save(folder / "red" / f"{number}.png")
    whole = ImageFolder(folder)
    train, test = whole.split(0.25, seed=3)
    assert np.bincount(test.labels).tolist() == [2, 2, 5]  # 4.5 of 18 is rounded up
    assert train.classes == test.classes == whole.classes
    assert sorted(train.paths + test.paths) == sorted(whole.paths)
    assert whole.split(0.25, seed=3)[1].paths == test.paths
    assert whole.split(0.25, seed=4)[1].paths != test.paths
    assert len(whole.split(0.0)[1]) == 0
    assert len(whole.split(1.0)[0]) == 0
    assert np.bincount(whole.split(0.01)[1].labels).tolist() == [1, 1, 1]
    assert np.bincount(whole.split(0.99)[0].labels).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match=r"\[split\] fraction must lie in \[0, 1\], got 20"):
        whole.split(20)


def test_sets_in_memory_split_alike():
    whole = data.shapes(count=500)
    train, test = whole.split(0.2, seed=1)
    assert (len(train), len(test)) == (400, 100)
    assert np.bincount(test.labels).tolist() == [10] * 10
    chosen = data.split_indices(whole.labels, 0.2, 1)[1]
    np.testing.assert_array_equal(test.images, whole.images[chosen])


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("blue/0.jpg,b\nred/1.png,r\n", None),
        ("file,label\nblue/0.jpg,b\n\nred/1.png,r\n", None),
        ("\ufeffid;Class\nblue/0;b\nred/1;r\n", None),
        ("id;notes;Class\nblue/0;;b\nred/1; x ;r\n", ("id", "Class")),
        ("label\timage\nb\tblue/0.jpg\nr\tred/1.png\n", None),
        ("a,b,c\nx,b,blue/0.jpg\ny,r,red/1.png\n", ("c", "b")),
        ('"blue/0.jpg","b"\n"red/1.png","r"\n', None),
    ],
)
def test_a_csv_file_lists_pictures(folder, text, columns):
    (folder / "list.csv").write_text(text)
    found = ImageFolder(folder, "list.csv", columns=columns)
    assert (names(found), found.classes) == (["blue/0.jpg", "red/1.png"], ("b", "r"))
    by_file = ImageFolder(folder / "list.csv", columns=columns)
    assert by_file.paths == found.paths


def test_numbers_in_a_csv_file_are_sorted_as_numbers(folder):
    (folder / "list.csv").write_text(
        "".join(f"{path},{n}\n" for n, path in enumerate(names(ImageFolder(folder))[:11]))
    )
    found = ImageFolder(folder, "list.csv")
    assert found.classes[-1] == "10"
    assert found.labels.tolist() == list(range(11))


def test_wrong_csv_files(folder):
    file = folder / "list.csv"
    file.write_text("file,label\nblue/0.jpg,b\nblue/99.jpg,b\n")
    with pytest.raises(FileNotFoundError, match=r"1 file .*blue/99\.jpg \(line 3\)"):
        ImageFolder(folder, file)
    with pytest.warns(UserWarning, match=r"blue/99\.jpg \(no such file\)"):
        assert len(ImageFolder(folder, file, on_error="skip")) == 1
    file.write_text("file,label\nblue/0.jpg,\n")
    with pytest.raises(ValueError, match="line 2: expected a picture and a class"):
        ImageFolder(folder, file)
    file.write_text("file,label\n")
    with pytest.raises(FileNotFoundError, match="lists no picture"):
        ImageFolder(folder, file)
    file.write_text("")
    with pytest.raises(ValueError, match="is empty"):
        ImageFolder(folder, file)
    file.write_text("file,label\nblue/0.jpg,b\n")
    with pytest.raises(ValueError, match="has no column 'kind'"):
        ImageFolder(folder, file, columns=("file", "kind"))


def listed(folder, header, rows):
    """An ImageFolder of a CSV file with a row for each of the first pictures."""
    paths = names(ImageFolder(folder))
    lines = [f"{path},{row}" for path, row in zip(paths, rows, strict=False)]
    (folder / "list.csv").write_text("\n".join([header, *lines]))
    return ImageFolder(folder / "list.csv")


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("file,label,is_valid", ["a,0", "b,1", "a,1", "b,0"]),
        ("file,label,split", ["a,train", "b,val", "a,Validation", "b,training"]),
        ("file,set,label", ["train,a", "test,b", "test,a", "train,b"]),
        ("file,label,is_test", ["a,False", "b,True", "a,yes", "b,no"]),
    ],
)
def test_a_column_says_what_is_held_out(folder, header, rows):
    found = listed(folder, header, rows)
    assert found.held_out.tolist() == [False, True, True, False]
    train, test = found.split()
    assert (names(train), names(test)) == (
        ["blue/0.jpg", "blue/3.png"],
        ["blue/1.png", "blue/2.jpg"],
    )
    assert len(train.split(0.5)[1]) == 2  # one of each class
    with pytest.raises(ValueError, match=r"column '\w+' says which pictures are held out"):
        found.split(0.5)


def test_a_test_beside_a_validation_is_not_trained_on(folder):
    with pytest.warns(UserWarning, match="not used: 1 picture of the test"):
        found = listed(folder, "file,label,split", ["a,train", "b,val", "a,test"])
    assert [len(part) for part in found.split()] == [1, 1]


def test_a_column_for_each_class(folder):
    with pytest.warns(UserWarning, match="columns cat, dog, bird are taken for classes"):
        found = listed(folder, "file,cat,dog,bird", ["1,0,0", "0,1.0,0", "0,0,1", "1,0,0"])
    assert found.classes == ("bird", "cat", "dog")
    assert found.labels.tolist() == [1, 2, 0, 1]


@pytest.mark.filterwarnings("ignore:.*are taken for classes")
@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("file,label,is_valid", ["a,0", "b,perhaps"], "line 3: 'perhaps' is neither"),
        ("file,is_valid", ["0", "1"], "no column of classes"),
        ("file,label,age", ["a,3"], "columns that are not used: 'age'.*columns="),
        ("file,label,category", ["a,b"], "not used: 'category'"),
        ("file,kind,colour", ["a,b"], "not used: 'colour'"),
        ("file,label", ["a", ""], "line 3: expected a picture and a class.*or remove the line"),
        ("file,cat,dog", ["1,0", "1,1"], "line 3: 2 of the columns cat, dog are 1.*--multilabel"),
        ("file,cat,dog", ["1,0", "0,0"], "line 3: 0 of the columns cat, dog are 1"),
        ("file,label", ["1.5", "2.25", "3"], r"numbers, not classes \(1\.5\)"),
        ("file,label", [str(7 * n) for n in range(22)], r"not classes \(22 for 22 pictures\)"),
        ("file,label", ["a|b", "a", "b"], r"'a\|b' seems to be several classes"),
        ("file,label", ["a b", "a", "b"], "'a b' seems to be several classes"),
        ("file,label", ['"a,b"', "a", "b"], "'a,b' seems to be several classes"),
        ("file,label", ["a b", "a c", "b c", "a b c"], "seems to be several classes"),
    ],
)
def test_columns_and_labels_that_are_refused(folder, header, rows, message):
    with pytest.raises(ValueError, match=message):
        listed(folder, header, rows)


def test_a_label_file_in_another_encoding_names_the_line(folder):
    for text, line in (("file,label\nblue/0.jpg,b\nred/1.png,r\xf6t\n".encode("latin-1"), 3),
                       ("file,label\nblue/0.jpg,b\n".encode("utf-16"), 1)):  # fmt: skip
        (folder / "list.csv").write_bytes(text)
        with pytest.raises(
            ValueError, match=rf"list\.csv, line {line}: .* save it as CSV in UTF-8"
        ):
            ImageFolder(folder / "list.csv")
    (folder / "list.csv").write_bytes("\ufefffile,label\nblue/0.jpg,b\xf6\n".encode())
    assert ImageFolder(folder / "list.csv").classes == ("b\xf6",)


def test_columns_of_a_folder_are_refused(folder):
    with pytest.raises(ValueError, match=r"columns=\('a', 'b'\) is for a CSV file, and .* folder"):
        ImageFolder(folder, columns=("a", "b"))


def test_names_of_several_words_are_classes(folder):
    rows = ["golden retriever", "pug", "great dane", '"tench, Tinca tinca"']
    classes = listed(folder, "file,label", rows).classes
    assert classes == ("golden retriever", "great dane", "pug", "tench, Tinca tinca")
    (folder / "list.csv").write_text("file,label\nblue/0.jpg,1.5\nred/1.png,2.5\n")
    found = ImageFolder(folder / "list.csv", classes=("1.5", "2.5"))  # says that they are classes
    assert found.labels.tolist() == [0, 1]


def test_a_picture_counts_once(folder):
    (folder / "list.csv").write_text("blue/0.jpg,b\nred/1.png,r\nblue/../blue/0.jpg,b\n")
    with pytest.warns(UserWarning, match=r"pictures twice.*blue/\.\./blue/0\.jpg \(line 3\)"):
        found = ImageFolder(folder / "list.csv")
    assert names(found) == ["blue/0.jpg", "red/1.png"]
    (folder / "list.csv").write_text("blue/0.jpg,b\nred/1.png,r\nblue/0.jpg,c\n")
    with pytest.raises(ValueError, match=r"blue/0\.jpg has two classes: lines 1 and 3"):
        ImageFolder(folder / "list.csv")
    (folder / "list.csv").write_text("file,label,split\nblue/0.jpg,b,val\nblue/0.jpg,b,train\n")
    with pytest.raises(ValueError, match=r"blue/0\.jpg has two parts: lines 2 and 3"):
        ImageFolder(folder / "list.csv")


@pytest.mark.parametrize("place", ["memory", "cache"])
def test_a_cache_decodes_once(folder, tmp_path, place, monkeypatch):
    cache = "memory" if place == "memory" else tmp_path / "cache"
    found = ImageFolder(folder, cache=cache, shorter_side=10)
    first = [found[index][0].copy() for index in range(len(found))]
    assert {min(image.shape[1:]) for image in first} == {10}

    def decode(*arguments):
        raise AssertionError("decoded again")

    monkeypatch.setattr("singa.data.image_folder.read_picture", decode)
    again = found if place == "memory" else ImageFolder(folder, cache=cache, shorter_side=10)
    for index, image in enumerate(first):
        np.testing.assert_array_equal(again[index][0], image)
    with pytest.raises(ValueError, match="read-only"):
        again[0][0][...] = 0


def test_a_cache_notices_changes_and_damage(folder, tmp_path):
    found = ImageFolder(folder, cache=tmp_path / "cache")
    before = found[0][0]
    coloured("red", 1).save(folder / "blue" / "0.jpg")
    os.utime(folder / "blue" / "0.jpg", ns=(1, 1))
    after = found[0][0]
    assert np.abs(before.astype(int)[:, :10, :10] - after[:, :10, :10]).mean() > 50
    files = list((tmp_path / "cache").rglob("*.ppm"))
    assert len(files) == 2
    for damage in (lambda b: b[:150], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b""):
        for file in files:
            file.write_bytes(damage(file.read_bytes()))
        np.testing.assert_array_equal(found[0][0], after)
    with Image.open(max(files, key=lambda file: file.stat().st_mtime_ns)) as kept:
        np.testing.assert_array_equal(np.asarray(kept).transpose(2, 0, 1), after)
    grey = ImageFolder(folder, cache=tmp_path / "cache", channels=1)
    assert grey[0][0].shape[0] == 1


@pytest.mark.parametrize("function", ["tempfile.mkstemp", "os.replace", "pathlib.Path.mkdir"])
def test_a_cache_that_cannot_be_written_is_not_used(folder, tmp_path, monkeypatch, function):
    plain = ImageFolder(folder)
    found = ImageFolder(folder, cache=tmp_path / "cache")
    np.testing.assert_array_equal(found[0][0], plain[0][0])

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(function, full)
    with pytest.warns(UserWarning, match=r"cache cannot be written, .*: No space left"):
        np.testing.assert_array_equal(found[1][0], plain[1][0])
    for index in range(len(plain)):  # a second warning would be an error
        np.testing.assert_array_equal(found[index][0], plain[index][0])
    assert len([file for file in (tmp_path / "cache").rglob("*") if file.is_file()]) == 1


@pytest.fixture
def masks(tmp_path):
    """Four pictures whose masks say where red is above 128."""
    for name in ("images", "masks"):
        (tmp_path / "cells" / name / "a").mkdir(parents=True)
    for number in range(4):
        picture = smooth(number)
        name = f"a/{number}"
        Image.fromarray(picture).save(tmp_path / "cells" / "images" / f"{name}.png")
        mask = Image.fromarray((picture[..., 0] > 128).astype(np.uint8))
        mask.save(tmp_path / "cells" / "masks" / f"{name}{'_mask' * (number % 2)}.png")
    return tmp_path / "cells"


@pytest.mark.parametrize("cache", [None, "memory"])
def test_masks_belong_to_pictures(masks, cache):
    found = MaskFolder(masks, classes=("background", "cell"), cache=cache)
    assert len(found) == 4
    for image, mask in (found[index] for index in range(4)):
        np.testing.assert_array_equal(mask, image[0] > 128)
    train, test = found.split(0.25, seed=1)
    assert (len(train), len(test)) == (3, 1)
    assert not set(train.paths) & set(test.paths)
    assert test.mask_paths[0].stem.removesuffix("_mask") == test.paths[0].stem


def test_masks_without_a_picture_are_said(masks):
    (masks / "images" / "a" / "2.png").unlink()
    with pytest.warns(UserWarning, match=r"1 mask without a picture of .*masks/a/2\.png") as told:
        assert len(MaskFolder(masks)) == 3
    assert told[0].filename == __file__


def test_names_of_classes_of_masks(masks):
    with pytest.raises(ValueError, match=r"\[MaskFolder\] classes has a name twice: 'a'"):
        MaskFolder(masks, classes=("a", "a"))
    with pytest.raises(TypeError, match="classes must be a list of names, got 'cell'"):
        MaskFolder(masks, classes="cell")


def test_wrong_masks(masks):
    Image.fromarray(np.full((24, 32), 2, np.uint8)).save(masks / "masks" / "a" / "0.png")
    assert MaskFolder(masks)[0][1].max() == 2
    with pytest.raises(BrokenPictureError, match=r"0\.png: has 2, which is none of 2 classes"):
        MaskFolder(masks, classes=("a", "b"))[0]
    assert MaskFolder(masks, classes=("a", "b"), ignore=2)[0][1].max() == 2
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(masks / "masks" / "a" / "2.png")
    with pytest.raises(BrokenPictureError, match=r"2\.png: size \(5, 5\)"):
        MaskFolder(masks)[2]
    with pytest.warns(UserWarning, match="2 of 4 files cannot be read"):
        kept = MaskFolder(masks, classes=("a", "b"), on_error="skip")
    assert [path.stem for path in kept.paths] == ["1", "3"]
    assert [path.stem for path in kept.mask_paths] == ["1_mask", "3_mask"]
    (masks / "masks" / "a" / "3_mask.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 4 pictures have no mask .*3\.png"):
        MaskFolder(masks)
    Image.fromarray(np.zeros((24, 32), np.uint8)).save(masks / "masks" / "a" / "0_mask.png")
    with pytest.raises(ValueError, match="two masks"):
        MaskFolder(masks)


def test_masks_of_black_and_white(masks):
    """0 and 255, as most tools write two classes."""
    expected = MaskFolder(masks, classes=("background", "cell"))[0][1]
    file = masks / "masks" / "a" / "0.png"
    Image.fromarray((expected * 255).astype(np.uint8)).save(file)
    mask = MaskFolder(masks, classes=("background", "cell"))[0][1]
    assert mask.dtype == np.int32
    np.testing.assert_array_equal(mask, expected)
    # 255 is no class where that is said, where classes are many, or where they are not known.
    for options in ({"classes": ("a", "b"), "ignore": 255}, {"classes": ("a", "b", "c")}, {}):
        np.testing.assert_array_equal(MaskFolder(masks, **options)[0][1], expected * 255)
    mixed = np.where(expected > 0, 255, 0)
    mixed[0, 0] = 1
    Image.fromarray(mixed.astype(np.uint8)).save(file)
    with pytest.raises(
        BrokenPictureError, match=r"0\.png: has 255 \(white\) beside other.*ignore="
    ):
        MaskFolder(masks, classes=("background", "cell"))[0]
    assert MaskFolder(masks, classes=("a", "b"), ignore=255)[0][1].max() == 255


def test_masks_of_unknown_numbers_are_named_as_the_cause():
    net = models.create("unet", num_classes=2)
    masks = tensor.from_numpy(np.full((1, 4, 4), 255, np.int32))
    with pytest.raises(IndexError, match=r"index 255 .*masks have numbers.*ignore_index=255"):
        net.loss(tensor.zeros((1, 2, 4, 4)), masks)


def test_generated_masks_cover_the_figures():
    whole = data.shapes_with_masks(count=60, seed=2)
    assert len(whole) == 60
    assert whole.classes == ("background", *data.SHAPES_CLASSES)
    drawn = data.shapes(count=60, seed=2)
    np.testing.assert_array_equal(whole.images, drawn.images)
    for mask, label in zip(whole.masks, drawn.labels, strict=True):
        assert set(np.unique(mask)) == {0, label + 1}
    # Figures contrast with what is around them.
    inside = []
    for image, mask in zip(whole.images.astype(float), whole.masks, strict=True):
        inside.append(np.abs(image[:, mask > 0].mean(1) - image[:, mask == 0].mean(1)).max())
    assert np.mean(inside) > 50
    np.testing.assert_array_equal(data.shapes_with_masks(count=20, seed=2).masks, whole.masks[:20])
    with pytest.raises(ValueError, match="expected images"):
        data.MaskSet(whole.images, whole.masks[1:], whole.classes)
