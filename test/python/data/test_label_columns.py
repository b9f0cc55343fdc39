"""Which columns of a label file are used, and what is refused or said of the others."""

import numpy as np
import pytest
from picture_folders import write_colours
from singa.data import ImageFolder

PATHS = ["blue/0.jpg", "blue/1.png", "red/0.jpg", "red/1.png"]


@pytest.fixture
def folder(tmp_path):
    return write_colours(tmp_path / "pictures", 2, ("blue", "red"))


def listed(folder, lines, name="list.csv", **options):
    """An ImageFolder of a file with these lines, in which FILE is the next picture."""
    paths = iter(PATHS)
    text = "\n".join(
        line.replace("FILE", next(paths)) if "FILE" in line else line for line in lines
    )
    (folder / name).write_text(text)
    return ImageFolder(folder / name, **options)


def expect_all(found):
    assert [path.relative_to(path.parents[1]).as_posix() for path in found.paths] == PATHS
    assert (found.classes, found.labels.tolist()) == (("b", "r"), [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (["file\tlabel", "FILE\tb", "FILE\tb", "FILE\tr", "FILE\tr"], "list.tsv"),
        (["FILE\tb", "FILE\tb", "FILE\tr", "FILE\tr"], "list.txt"),
        (["file|label", "FILE|b", "FILE|b", "FILE|r", "FILE|r"], "list.csv"),
        (["sep=;", "file;label", "FILE;b", "FILE;b", "FILE;r", "FILE;r"], "list.csv"),
        (["sep=|\r", "FILE|b", "FILE|b", "FILE|r", "FILE|r"], "list.csv"),
        (["b;FILE", "b;FILE", "r;FILE", "r;FILE"], "list.csv"),  # the label first, no names
        (["file,label,", "FILE,b,", "FILE,b,", "FILE,r,", "FILE,r,"], "list.csv"),
    ],
)
def test_ways_to_write_a_list(folder, lines, name):
    expect_all(listed(folder, lines, name))


@pytest.mark.parametrize("change", [("/", "\\"), (".jpg", ""), ("blue", "./blue")])
def test_paths_of_the_first_line_and_the_others(folder, change):
    """A first line without names is that of a picture, also where its path lacks the suffix."""
    lines = [f"{path.replace(*change)},{path[0]}" for path in PATHS]
    expect_all(listed(folder, lines))
    expect_all(listed(folder, ["file,label", *lines]))


@pytest.mark.parametrize("path", [r"C:\pets\blue\0.jpg", "blue/0.JPG", "file:///pets/blue/0.jpg"])
def test_paths_none_of_which_is_there(folder, path):
    """Also where missing files are left out, the message says what to write."""
    with pytest.raises(
        FileNotFoundError, match=r"there is .*/blue/0\.jpg: write blue/0\.jpg, move"
    ):
        listed(folder, ["file,label", f"{path},b"], on_error="skip")
    with pytest.warns(UserWarning, match="1 of 2 files cannot be read and are left out"):
        assert len(listed(folder, ["file,label", f"{path},b", "FILE,b"], on_error="skip")) == 1


def test_spaces_and_quotation_marks(folder):
    expect_all(listed(folder, ['"file", "label"', *(f'FILE, "{name}"' for name in "bbrr")]))
    broken = {
        "line 5: unexpected end of data: a quotation mark is not closed": [
            'FILE,"b',
            *["FILE,r"] * 3,
        ],
        r"line 3: 'b\\nblue/1.png,r' goes over several lines": ['FILE,"b', 'FILE,r"', "FILE,b"],
    }
    for message, lines in broken.items():
        with pytest.raises(ValueError, match=message):
            listed(folder, ["file,label", *lines])


def test_lines_without_a_picture(folder):
    with pytest.raises(
        ValueError, match=r"list\.csv, line 3: names no picture: write its file, or"
    ):
        listed(folder, ["file,label", "FILE,b", ",r"], on_error="skip")


def test_columns_without_usual_names(folder):
    with pytest.warns(
        UserWarning, match="column 'photo' is taken for the files, and 'x' for clas"
    ) as told:
        expect_all(listed(folder, ["x,photo", "b,FILE", "b,FILE", "r,FILE", "r,FILE"]))
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="column 'x' is taken for the files, and 'y' for numbers"):
        found = listed(folder, ["x,y", "FILE,3", "FILE,4"], task="regression")
    assert found.labels.tolist() == [[3.0], [4.0]]
    expect_all(listed(folder, ["label,photo", "b,FILE", "b,FILE", "r,FILE", "r,FILE"],
                      columns=("photo", "label")))  # fmt: skip


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_of_lines_are_no_labels(folder, first):
    """pandas writes them into a first column without a name."""
    lines = [f"{i},{path},{path[0]}" for i, path in enumerate(PATHS, first)]
    with pytest.warns(
        UserWarning, match="column 1 has no name, and numbers the lines: .* not used"
    ):
        expect_all(listed(folder, [",file,label", *lines]))
    lines = [f"{i},FILE,{2.5 * i}" for i in range(first, first + 4)]
    with pytest.warns(UserWarning, match="column 1 has no name, and numbers the lines"):
        found = listed(folder, ["Unnamed: 0,file,age", *lines], task="regression")
    assert found.classes == ("age",)


def test_a_column_that_is_true_for_training(folder):
    lines = ["FILE,b,1", "FILE,b,0", "FILE,r,True", "FILE,r,False"]
    found = listed(folder, ["file,label,is_train", *lines])
    assert found.held_out.tolist() == [False, True, False, True]
    with pytest.warns(UserWarning, match="the columns cat, dog are taken for labels"):
        found = listed(folder, ["file,cat,dog,is_train", "FILE,0,1,1", "FILE,1,1,0"],
                       task="multilabel")  # fmt: skip
    assert (found.classes, found.held_out.tolist()) == (("cat", "dog"), [False, True])


@pytest.mark.parametrize(
    ("lines", "task", "message"),
    [
        (["FILE,b", "FILE,b,r"], "classes", r"line 2: 'r' is in no column, of which there are 2"),
        (
            ["FILE,b", "FILE,b,r"],
            "multilabel",
            r'what has a comma stands in quotes, such as "a, b"',
        ),
        (["file,label", "FILE,b,r"], "classes", "line 2: 'r' is in no column"),
        (["id,file,age", "7,FILE,3"], "regression", "not used: 'id'.*columns=.'file', 'age'"),
        (["file,fold,age", "FILE,1,3"], "regression", "not used: 'fold'.* --columns file,age"),
        (["file,idx,a,b", "FILE,1,0,1"], "multilabel", "not used: 'idx'"),
        (["file,split,age,is_test", "FILE,train,3,0"], "regression", "not used: 'split'"),
        (["file,label,label", "FILE,a,b"], "classes", "two columns 'label'"),
        ([",file,label", "7,FILE,b"], "classes", "column 1 has no name: name it, or remove it"),
        (["# a list", "FILE,b"], "classes", r"separated by a comma, a semicolon, a tab or \|"),
    ],
)
def test_what_is_refused(folder, lines, task, message):
    with pytest.raises(ValueError, match=message):
        listed(folder, lines, task=task)


def test_a_column_that_is_there_twice_is_not_chosen(folder):
    with pytest.raises(ValueError, match="has two columns 'label'"):
        listed(folder, ["file,label,label", "FILE,a,b"], columns=("file", "label"))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["Cat", "cat", "dog", "dog"], "nearly the same are different classes: 'Cat' and 'cat'"),
        (["1", "1.0", "01", "2"], "different classes: '01' and '1' and '1.0'"),
        (["a_b", "a b", "c", "c"], "different classes: 'a b' and 'a_b'"),
        (["caf\u00e9", "cafe\u0301", "b", "b"], "nearly the same are different classes: 'cafe"),
        (["nan", "a", "b", "b"], "taken for a class: 'nan'"),
    ],
)
def test_names_that_may_be_mistakes_are_said(folder, labels, said):
    lines = [f"FILE,{label}" for label in labels]
    with pytest.warns(UserWarning, match=said):
        found = listed(folder, ["file,label", *lines])
    assert found.classes == tuple(sorted(set(labels)))
    listed(folder, ["file,label", *lines], classes=found.classes)  # the caller knows them


def test_where_missing_pictures_are(folder, monkeypatch):
    below = (
        r"2 files not below .*: 0\.jpg \(line 2\), 1\.png \(line 3\); there is .*/0\.jpg: write "
        r"blue/0\.jpg, move the CSV file"
    )
    with pytest.raises(FileNotFoundError, match=below):
        listed(folder, ["file,label", "0.jpg,b", "1.png,r"])
    monkeypatch.chdir(folder.parent)
    (folder.parent / "other").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"pictures/blue/0\.jpg is below the current folder"
    ):
        listed(folder.parent / "other", ["file,label", "pictures/blue/0.jpg,b"])
    with pytest.raises(FileNotFoundError, match=r"1 file not below .*: no\.jpg \(line 1\)$"):
        listed(folder, ["no.jpg,b"])


def test_labels_in_lists_of_commas_between_tabs(folder):
    with pytest.warns(UserWarning, match="labels are separated by ','"):
        found = listed(folder, ["FILE\tsea,sky", "FILE\tsky"], task="multilabel")
    np.testing.assert_array_equal(found.labels, [[1, 1], [0, 1]])
