"""Training logs in CSV files, for spreadsheets, pandas and other programs."""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Callable, Iterable
from typing import Any

from ..files.json_text import json_text
from .log_base import Record, TextLog

_Row = dict[str, str]


class CsvLog(TextLog):
    """Appends records to a CSV file, whose first line has the names of the fields. `append` writes
    a record to the file at once.

        with CsvLog("log.csv") as log:
            log.append(epoch=3, train_loss=1.21)

    path  file to append to, which is created if it is missing
    keep  function of an existing record; records for which it is false are removed. Numbers in the
          file are given as numbers, empty fields are left out; see `rewind`.

    A field that a record lacks is empty. One that no record had before becomes a new column at the
    end, for which the file is written again. NaN and infinity are "nan" and "inf", a list or a dict
    is its JSON text. An incomplete last line, which a crash leaves, is removed first. A device or
    FIFO is only written to; there, a new field after the first record raises ValueError. Raises
    ValueError if the file has other content.

    >>> from pathlib import Path
    >>> with training.CsvLog("log.csv") as log:
    ...     log.append(epoch=1, train_loss=1.21)
    ...     log.append(epoch=2, train_loss=0.87)
    ...
    >>> print(Path("log.csv").read_text(), end="")
    epoch,train_loss
    1,1.21
    2,0.87
    """

    def __init__(
        self, path: str | os.PathLike[str], keep: Callable[[Record], bool] | None = None
    ) -> None:
        self._fields: list[str] = []
        super().__init__(path, keep)

    def _read(self) -> tuple[list[_Row], bool]:
        self._fields, rows, torn = _parse(self.path)
        return rows, torn

    def _record(self, entry: _Row) -> Record:
        return _typed(entry)

    def _text(self, entries: Iterable[_Row]) -> str:
        rows = [[entry.get(field, "") for field in self._fields] for entry in entries]
        return _csv([self._fields, *rows]) if self._fields else ""

    def _added(self, record: Record) -> str:
        new = [field for field in record if field not in self._fields]
        empty = not self._fields if self._special else not os.path.getsize(self.path)
        if empty:
            self._fields += new
        elif new:
            self._add_columns(new)
        if not self._fields:
            return ""
        row = [_cell(record.get(field)) for field in self._fields]
        return _csv([self._fields, row] if empty else [row])

    def _add_columns(self, new: list[str]) -> None:
        if self._special:
            raise ValueError(f"[CsvLog] {self.path} cannot get new columns: {', '.join(new)}")
        self._fields, rows, _ = _parse(self.path)
        self._fields += new
        try:
            self._rewrite(rows)
        except OSError:
            del self._fields[-len(new) :]
            raise
        self._reopen()


def read_csv(path: str | os.PathLike[str]) -> list[Record]:
    """All complete records of a CSV file, oldest first. Numbers are converted, empty fields are
    left out. Raises FileNotFoundError if there is no such file, ValueError for other content."""
    return [_typed(row) for row in _parse(path)[1]]


def _csv(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return json_text(value) if isinstance(value, list | dict) else str(value)


def _typed(row: _Row) -> Record:
    return {field: _number(text) for field, text in row.items() if text}


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _parse(path: str | os.PathLike[str]) -> tuple[list[str], list[_Row], bool]:
    """The names of the fields, the rows as text, and whether an incomplete row follows."""
    where = f"[CsvLog] {os.fspath(path)}"
    with open(path, "rb") as file:
        content = file.read()
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content)  # the end may be cut off
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: no CSV file ({error})") from None
    lines = io.StringIO(text, newline="").readlines()
    reader = csv.reader(lines, strict=True)
    rows: list[tuple[int, list[str]]] = []
    torn = not text.endswith("\n")
    try:
        for row in reader:
            rows.append((reader.line_num, row))
        if torn:
            del rows[-1:]
    except csv.Error as error:
        if reader.line_num < len(lines):
            raise ValueError(f"{where}, line {reader.line_num}: {error}") from None
        torn = True
    rows = [(number, row) for number, row in rows if row]
    if not rows:
        return [], [], torn and bool(text)
    (_, fields), *others = rows
    for number, row in others:
        if len(row) != len(fields):
            raise ValueError(
                f"{where}, line {number}: {len(row)} fields, and the first line has {len(fields)}"
            )
    return fields, [dict(zip(fields, row, strict=True)) for _, row in others], torn
