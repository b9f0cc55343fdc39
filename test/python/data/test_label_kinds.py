"""Label files with several labels, and with numbers."""

import warnings

import numpy as np
import pytest
from picture_folders import write_colours
from singa.data import DataLoader, ImageFolder, evaluation_transform


@pytest.fixture
def folder(tmp_path):
    return write_colours(tmp_path / "pictures", 4, ("blue", "red"))


def listed(folder, header, rows, **options):
    """An ImageFolder of a CSV file with a row for each of the first pictures."""
    paths = [
        f"{name}/{n}.{'png' if n % 2 else 'jpg'}" for name in ("blue", "red") for n in range(4)
    ]
    lines = [f"{path},{row}" for path, row in zip(paths, rows, strict=False)]
    (folder / "list.csv").write_text("\n".join([*([header] if header else []), *lines]))
    return ImageFolder(folder / "list.csv", **options)


def quietly(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return listed(*arguments, **options)


@pytest.mark.parametrize(
    ("header", "rows", "warning"),
    [
        ("file,labels", ["sea|sand", "", "sand", "sky|sea|sand"], r"separated by '\|', as in 'sea"),
        ("file,labels", ["sea sand", "", "sand", "sky sea sand"], "separated by ' '"),
        ("file,tags", ["sea; sand", "", "sand", "sky;sea ;sand;"], "separated by ';'"),
        ("file,labels", ['"sea, sand"', "", "sand", '"sky,sea,sand"'], "separated by ','"),
        ("", ["sea|sand", "", "sand", "sky|sea|sand"], r"separated by '\|'"),
        (
            "file,sand,sea,sky",
            ["1,1,0", "0,0,0", "1.0,0,0", "1,1,1"],
            "columns sand, sea, sky are taken for labels",
        ),
    ],
)
def test_several_labels(folder, header, rows, warning):
    with pytest.warns(UserWarning, match=warning):
        found = listed(folder, header, rows, task="multilabel")
    assert (found.task, found.classes) == ("multilabel", ("sand", "sea", "sky"))
    assert found.labels.dtype == np.float32
    assert found.labels.tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1]]
    image, label = found[3]
    assert (image.dtype, label.tolist()) == (np.uint8, [1, 1, 1])
    assert repr(found) == "<ImageFolder pictures: 4 pictures, 3 labels>"
    transform = evaluation_transform(16, (0.5,) * 3, (0.5,) * 3)
    (batch,) = DataLoader(found, 4, transform=transform)
    assert (batch[0].shape, str(batch[1].dtype)) == ((4, 3, 16, 16), "float32")
    np.testing.assert_array_equal(np.asarray(batch[1]), found.labels)


def test_names_of_several_words(folder):
    """A space separates where nothing else does, but not in names that are known."""
    rows = ["polar bear|sea", "sea", "brown bear"]
    found = quietly(folder, "file,label", rows, task="multilabel")
    assert found.classes == ("brown bear", "polar bear", "sea")
    found = listed(folder, "file,label", rows[1:], task="multilabel", classes=found.classes)
    assert found.labels.tolist() == [[0, 0, 1], [1, 0, 0]]
    with pytest.warns(UserWarning, match="separated by ' ', as in 'brown bear'"):
        found = listed(folder, "file,label", rows[1:], task="multilabel")
    assert found.classes == ("bear", "brown", "sea")


def test_labels_of_several_lines_are_joined(folder):
    (folder / "list.csv").write_text("blue/0.jpg,sea\nred/1.png,sand\nblue/0.jpg,sky\n")
    with pytest.warns(UserWarning, match=r"labels of all their lines: blue/0\.jpg \(line 3\)"):
        found = ImageFolder(folder / "list.csv", task="multilabel")
    assert found.labels.tolist() == [[0, 1, 1], [1, 0, 0]]


def test_labels_of_another_set(folder):
    classes = ("sky", "sea", "sand")
    found = quietly(folder, "file,labels", ["sea|sand"], task="multilabel", classes=classes)
    assert (found.classes, found.labels.tolist()) == (classes, [[0, 1, 1]])
    with pytest.raises(ValueError, match=r"list\.csv has no column 'sand'"):  # not all without it
        quietly(folder, "file,sea,sky", ["1,0"], task="multilabel", classes=classes)
    with pytest.raises(ValueError, match="labels that are not in `classes`: fog"):
        quietly(folder, "file,labels", ["sea|fog"], task="multilabel", classes=classes)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("1_000", "'1_000' in column 'age' is no finite number; columns="),
        ('"0,5"', "number: write a decimal point, and"),
    ],
)
def test_ways_to_write_numbers(folder, cell, message):
    with pytest.raises(ValueError, match=message):
        listed(folder, "file,age", ["1", cell], task="regression")


@pytest.mark.parametrize("task", ["classes", "multilabel"])
def test_lists_as_programs_write_them(folder, task):
    with pytest.raises(ValueError, match="is a list as programs write it: write the names"):
        listed(folder, "file,labels", ["\"['sea', 'sky']\"", "\"['sky']\""], task=task)
    found = listed(folder, "file,labels", ["(other)", "[x]"], task=task)
    assert found.classes == ("(other)", "[x]")


def test_numbers_are_no_labels(folder):
    with pytest.raises(
        ValueError, match=r"the labels are numbers, not classes \(0\.5\): task='regr"
    ):
        listed(folder, "file,age", ["0.5", "2"], task="multilabel")
    found = quietly(folder, "file,ids", ["0.5|2", "2"], task="multilabel")
    assert found.classes == ("0.5", "2")


def test_numbers(folder):
    found = listed(folder, "file,target", ["1.5", "-2", "1e3", "0"], task="regression")
    assert (found.task, found.classes, found.labels.dtype) == ("regression", ("target",), "float32")
    assert found.labels.tolist() == [[1.5], [-2.0], [1000.0], [0.0]]
    assert found[2][1].tolist() == [1000.0]
    with pytest.warns(UserWarning, match="columns age, height are taken for numbers to predict"):
        found = listed(
            folder, "file,age,height,split", ["3,1.2,train", "4,1.3,val"], task="regression"
        )
    assert (found.classes, found.labels.shape) == (("age", "height"), (2, 2))
    assert found.held_out.tolist() == [False, True]
    assert listed(folder, "", ["3", "4"], task="regression").classes == ("value",)


def test_numbers_of_another_set(folder):
    names = {"task": "regression", "classes": ("height", "age")}
    found = quietly(folder, "file,age,height", ["3,1.2"], **names)
    assert (found.classes, found.labels.tolist()) == (("height", "age"), [[np.float32(1.2), 3.0]])
    with pytest.raises(ValueError, match="has no column 'height'"):
        listed(folder, "file,age", ["3"], **names)
    with pytest.raises(ValueError, match="numbers that are not in `classes`: weight"):
        quietly(folder, "file,age,height,weight", ["3,1,2"], **names)
    with pytest.warns(UserWarning, match="column 'years' is taken for 'age'") as told:
        alone = listed(folder, "file,years", ["3"], task="regression", classes=("age",))
    assert alone.classes == ("age",)
    assert told[0].filename == __file__
    for head in ("file,age", ""):
        assert listed(folder, head, ["3"], task="regression", classes=("age",)).labels == [[3]]


def test_columns_choose(folder):
    rows = ["a,3,1", "b,4,0"]
    columns = ("file", "weight")
    found = listed(folder, "file,source,weight,seen", rows, task="regression", columns=columns)
    assert found.labels.tolist() == [[3.0], [4.0]]
    columns = ("file", "weight", "seen")
    found = listed(folder, "file,source,weight,seen", rows, task="regression", columns=columns)
    assert (found.classes, found.labels.tolist()) == (("weight", "seen"), [[3, 1], [4, 0]])
    rows = ["a,0,1", "b,1,1"]
    found = listed(
        folder, "file,source,sea,sky", rows, task="multilabel", columns=("file", "sea", "sky")
    )
    assert found.labels.tolist() == [[0, 1], [1, 1]]


def test_a_split_has_some_of_each_label(folder):
    """The rarest label of a picture decides."""
    rows = ["sea|sky", "sea", "sea", "sea", "sea|sky", "sea", "sea", "sea"]
    found = quietly(folder, "file,labels", rows, task="multilabel")
    for seed in range(5):
        for part in found.split(0.5, seed):
            assert part.labels.sum(0).tolist() == [4, 1]
    numbers = listed(folder, "file,target", map(str, range(8)), task="regression")
    train, test = numbers.split(0.25)
    assert (len(train), len(test)) == (6, 2)
    assert sorted([*train.labels[:, 0], *test.labels[:, 0]]) == list(range(8))


@pytest.mark.filterwarnings("ignore:.*labels are separated")
@pytest.mark.parametrize(
    ("task", "header", "rows", "message"),
    [
        ("multilabel", "file,labels", ["", ""], "no picture has a label"),
        ("multilabel", "file,label", ["1", "0"], "one column of 0 and 1 names two classes"),
        ("multilabel", "file,sea,depth", ["1,0.5"], "sea, depth are not all of 0 and 1"),
        ("multilabel", "file,label,sea", ["a|b,1"], "columns that are not used: 'sea'"),
        ("multilabel", "file,sea,sea", ["1,0"], "has two columns 'sea'"),
        ("regression", "file,target", ["3", "many"], "line 3: 'many' in column 'target' is no fin"),
        ("regression", "file,target", ["3", ""], "line 3: '' in column 'target' is no finite"),
        ("regression", "file,target", ["nan"], "'nan' in column 'target' is no finite"),
        ("regression", "file,target", ["1e39"], "numbers that float32 does not hold"),
        ("regression", "file,target,age", ["3,4"], "columns that are not used: 'age'"),
        ("regression", "file,split", ["train"], "no column of numbers"),
        ("both", "file,label", ["a"], "task must be 'classes', 'multilabel' or 'regression'"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*are taken for")
def test_what_is_refused(folder, task, header, rows, message):
    with pytest.raises(ValueError, match=message):
        listed(folder, header, rows, task=task)


def test_more_that_is_refused(folder):
    with pytest.raises(ValueError, match="line 2: expected 0 or 1, got '2'"):
        listed(folder, "file,a,b", ["2,0"], task="multilabel", columns=("file", "a", "b"))
    with pytest.raises(ValueError, match="columns names a file and labels"):
        listed(folder, "file,a,b", ["2,0"], task="multilabel", columns=("file",))
    (folder / "list.csv").write_text("blue/0.jpg,1\nred/1.png,2\nblue/0.jpg,3\n")
    with pytest.raises(ValueError, match=r"blue/0\.jpg has two numbers: lines 1 and 3"):
        ImageFolder(folder / "list.csv", task="regression")
    with pytest.raises(ValueError, match="task='regression' needs a CSV file"):
        ImageFolder(folder, task="regression")


@pytest.mark.parametrize(
    ("header", "rows", "task"),
    [
        ("file,label", ["a|b", "a"], "multilabel"),
        ("file,cat,dog", ["1,1", "0,1"], "multilabel"),
        ("file,label", ["1.5", "2.5"], "regression"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*are taken for classes")
def test_the_option_is_named(folder, header, rows, task):
    option = rf"task='{task}'.*\(singa train: --{task}\)"
    with pytest.raises(ValueError, match=option):
        listed(folder, header, rows)
