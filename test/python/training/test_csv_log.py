"""CsvLog, and read_log of its files."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from singa import tensor
from singa.training import CsvLog, plot_curves, read_log


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file, strict=True))


def test_any_reader_of_csv_gets_the_records(tmp_path):
    path = tmp_path / "log.csv"
    with CsvLog(path) as log:
        log.append({"epoch": 1, "note": 'a "b", c\nd'}, loss=np.float32(0.5))
        assert rows(path) == [["epoch", "note", "loss"], ["1", 'a "b", c\nd', "0.5"]]
        log.append(epoch=2, loss=math.nan, note=None)
        log.append(loss=tensor.from_numpy(np.float32([0.25])), epoch=3, note=[1, 2])
    assert rows(path)[2:] == [["2", "", "nan"], ["3", "[1, 2]", "0.25"]]
    first, second, third = read_log(path)
    assert first == {"epoch": 1, "note": 'a "b", c\nd', "loss": 0.5}
    assert math.isnan(second.pop("loss"))
    assert second == {"epoch": 2}
    assert third == {"epoch": 3, "note": "[1, 2]", "loss": 0.25}


def test_new_fields_become_columns(tmp_path):
    path = tmp_path / "log.csv"
    with CsvLog(path) as log:
        log.append(epoch=1, loss="0.10")
        log.append(epoch=2, accuracy=0.5)
        log.append(accuracy=0.75)
    with CsvLog(path) as log:
        log.append(epoch=4, lr=0.1)
    assert rows(path) == [
        ["epoch", "loss", "accuracy", "lr"],
        ["1", "0.10", "", ""],
        ["2", "", "0.5", ""],
        ["", "", "0.75", ""],
        ["4", "", "", "0.1"],
    ]


def test_a_torn_last_line_is_skipped_and_then_cut_off(tmp_path):
    path = tmp_path / "log.csv"

    def add(*epochs):
        with CsvLog(path) as log:
            for epoch in epochs:
                log.append(epoch=epoch, note='ä "b"\nc', loss=2.5)

    add(1, 2)
    whole = path.read_bytes()
    row = len(whole) - whole.rindex(b"2,")
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:-cut])
        left = 1 if cut <= row else 0
        assert [record["epoch"] for record in read_log(path)] == [1][:left], cut
        add(*(1, 2)[left:])
        assert path.read_bytes() == whole, cut


def test_a_resumed_run_drops_later_records(tmp_path):
    path = tmp_path / "log.csv"
    with CsvLog(path) as log:
        for step in range(1, 6):
            log.append(step=step, loss=1 / step)
    with CsvLog(path, keep=lambda record: record["step"] < 5) as log:
        log.rewind(3)
        log.append(step=4, loss=9)
    assert [(r["step"], r["loss"]) for r in read_log(path)] == [
        (1, 1.0), (2, 0.5), (3, 1 / 3), (4, 9),
    ]  # fmt: skip
    with CsvLog(path) as log:
        log.rewind(0)
    assert rows(path) == [["step", "loss"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n3\n", "line 3: 1 fields, and the first line has 2"),
        (b'a,b\n"1"x,2\n3,4\n', "line 2: "),
        (b"a,b\n\xff,1\n", "no CSV file"),
    ],
)
def test_other_content_is_refused(tmp_path, content, message):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    for reader in (CsvLog, read_log):
        with pytest.raises(ValueError, match=message):
            reader(path)
    assert path.read_bytes() == content


def test_devices_get_one_header():
    log = CsvLog("/dev/null")
    log.append(a=1)
    log.append(a=2)
    with pytest.raises(ValueError, match=r"/dev/null cannot get new columns: b"):
        log.append(b=3)


def test_curves_of_a_csv_file(tmp_path):
    with CsvLog(tmp_path / "log.csv") as log:
        for epoch in range(3):
            log.append(epoch=epoch, train_loss=1 / (1 + epoch))
    plot_curves(tmp_path / "log.csv", tmp_path / "a.svg")
    assert "train loss" in Path(tmp_path / "a.svg").read_text()
