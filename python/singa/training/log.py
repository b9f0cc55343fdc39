"""Training logs with one JSON object per line, readable during a run and after a crash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from ..files.json_text import json_text
from .csv_log import read_csv
from .log_base import Record, TextLog


class JsonLinesLog(TextLog):
    """Appends records to a JSON-lines file. `append` writes a record to the file at once.

        with JsonLinesLog("log.jsonl", keep=lambda r: r["epoch"] < start_epoch) as log:
            log.append(epoch=3, train_loss=1.21, test_accuracy=0.634)

    path  file to append to, which is created if it is missing
    keep  function of an existing record; records for which it is false are removed. A resumed run
          removes the records after its checkpoint, so that no epoch is logged twice; see `rewind`.

    NaN and infinity become null, since JSON has neither. An incomplete last line, which a crash
    leaves, is removed first. A device or FIFO, such as /dev/null, is only written to. Raises
    ValueError if the file has other content; see `read_log`.

    >>> with training.JsonLinesLog("log.jsonl") as log:
    ...     log.append(epoch=1, train_loss=1.21)
    ...     log.append(epoch=2, train_loss=0.87)
    ...
    >>> training.read_log("log.jsonl")
    [{'epoch': 1, 'train_loss': 1.21}, {'epoch': 2, 'train_loss': 0.87}]
    """

    def _read(self) -> tuple[list[Record], bool]:
        return read_log(self.path), _is_torn(self.path)

    def _record(self, entry: Record) -> Record:
        return entry

    def _text(self, entries: Iterable[Record]) -> str:
        return "".join(map(_line, entries))

    def _added(self, record: Record) -> str:
        return _line(record)


def read_log(path: str | os.PathLike[str]) -> list[Record]:
    """All complete records of a JSON-lines file, oldest first; or of a CSV file, by its suffix.

    A last line without a newline, which a crash leaves, is skipped, and so are empty lines. Raises
    FileNotFoundError if there is no such file, and ValueError with the line number for a line that
    is not a JSON object.

    >>> with training.JsonLinesLog("log.jsonl") as log:
    ...     log.append(epoch=1, train_loss=1.21)
    ...
    >>> training.read_log("log.jsonl")
    [{'epoch': 1, 'train_loss': 1.21}]
    """
    if os.fspath(path).lower().endswith(".csv"):
        return read_csv(path)
    with open(path, "rb") as file:
        *lines, _torn = file.read().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"[read_log] {os.fspath(path)}, line {number}: not JSON ({error})"
            ) from None
        if not isinstance(record, dict):
            raise ValueError(
                f"[read_log] {os.fspath(path)}, line {number}: expected an object, "
                f"found {type(record).__name__}"
            )
        records.append(record)
    return records


def _is_torn(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # absent or empty
        return False


def _line(record: Record) -> str:
    return json_text(record, ensure_ascii=False) + "\n"
