"""JsonLinesLog and read_log."""

import json
import math
import os
import stat

import numpy as np
import pytest
from memory_ranks import on_ranks
from singa.training import CsvLog, Histogram, Image, JsonLinesLog, read_log


def test_appends_and_reads_back(tmp_path):
    path = tmp_path / "log.jsonl"
    with JsonLinesLog(path) as log:
        log.append({"epoch": 0, "note": "naïve"}, loss=np.float32(0.5))
        assert read_log(path) == [{"epoch": 0, "note": "naïve", "loss": 0.5}]  # before close()
        log.append(epoch=np.int64(1), top=np.array([1, 2]), ok=np.bool_(True), none=None)
    with JsonLinesLog(path) as log:
        log.append(epoch=2, nested={"a": (1, 2.5)}, path=tmp_path)
    assert read_log(path)[1:] == [
        {"epoch": 1, "top": [1, 2], "ok": True, "none": None},
        {"epoch": 2, "nested": {"a": [1, 2.5]}, "path": str(tmp_path)},
    ]


def test_what_json_cannot_say_is_null(tmp_path):
    with JsonLinesLog(tmp_path / "log") as log:
        log.append(a=math.nan, b=math.inf, c=np.float32("-inf"), d=np.array([1.0, np.nan]))
    line = (tmp_path / "log").read_text()
    assert json.loads(line, parse_constant=lambda name: pytest.fail(name)) == {
        "a": None, "b": None, "c": None, "d": [1.0, None],
    }  # fmt: skip


@pytest.mark.parametrize("cut", range(1, 13))
def test_a_torn_last_line_is_skipped_and_then_cut_off(tmp_path, cut):
    path = tmp_path / "log"
    whole = b'{"epoch": 1}\n{"epoch": 2}\n'
    path.write_bytes(whole[:-cut])
    assert read_log(path) == [{"epoch": 1}]
    with JsonLinesLog(path) as log:
        log.append(epoch=2)
    assert path.read_bytes() == whole


def test_keep_drops_what_came_after_the_checkpoint(tmp_path):
    path = tmp_path / "log"
    with JsonLinesLog(path) as log:
        for epoch in range(5):
            log.append(epoch=epoch)
    with JsonLinesLog(path, keep=lambda record: record["epoch"] < 3) as log:
        log.append(epoch=3)
    assert [record["epoch"] for record in read_log(path)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("content", "line"),
    [(b'{"a": 1}\n{"a": \n{"a": 2}\n', 2), (b"[1]\n", 1), (b"\xff\xfe\n", 1), (b"\n3\n", 2),
     (b"[" * 100_000 + b"\n", 1)],
)  # fmt: skip
def test_damage_elsewhere_is_an_error_with_its_place(tmp_path, content, line):
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"log, line {line}: "):
        read_log(path)
    with pytest.raises(ValueError, match=rf"line {line}"):
        JsonLinesLog(path)
    assert path.read_bytes() == content


def test_refusals(tmp_path):
    log = JsonLinesLog(tmp_path / "log")
    with pytest.raises(TypeError, match="object"):
        log.append(a=object())
    log.append(a=1)
    log.close()
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.append(a=2)
    assert read_log(tmp_path / "log") == [{"a": 1}]
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "missing")


def test_rewind_drops_the_records_of_later_steps(tmp_path):
    path = tmp_path / "log"
    with JsonLinesLog(path) as log:
        log.append(run="a")
        for step in range(5):
            log.append(step=step)
        log.rewind(2)
        log.append(step=3, again=True)
    assert read_log(path) == [
        {"run": "a"}, {"step": 0}, {"step": 1}, {"step": 2}, {"step": 3, "again": True},
    ]  # fmt: skip
    with pytest.raises(ValueError, match="closed"):
        log.rewind(1)


def test_pictures_and_histograms_are_left_out(tmp_path):
    with JsonLinesLog(tmp_path / "log") as log:
        log.append(step=1, image=Image(np.zeros((2, 2))), weights=Histogram([1, 2]), loss=0.5)
    assert read_log(tmp_path / "log") == [{"step": 1, "loss": 0.5}]


@pytest.mark.parametrize("pixels", [np.zeros(3), np.zeros((2, 4, 4)), np.zeros((0, 3, 4, 4))])
def test_what_is_no_image(pixels):
    with pytest.raises(ValueError, match=r"\[Image\] expected .* got \("):
        Image(pixels)


def test_no_histogram_without_numbers():
    with pytest.raises(ValueError, match="no finite numbers"):
        Histogram([math.nan, math.inf])


def _log_on_a_rank(comm, folder):
    with JsonLinesLog(f"{folder}/log") as lines, CsvLog(f"{folder}/log.csv") as table:
        for log in (lines, table):
            log.append(rank=comm.global_rank, step=1)
            log.rewind(1)


def test_only_rank_0_writes(tmp_path):
    on_ranks(3, _log_on_a_rank, str(tmp_path))
    for name in ("log", "log.csv"):
        assert read_log(tmp_path / name) == [{"rank": 0, "step": 1}]


def test_a_device_is_only_written_to():
    with JsonLinesLog("/dev/null", keep=lambda record: False) as log:
        log.append(epoch=1)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
