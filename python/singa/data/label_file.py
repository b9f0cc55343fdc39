"""Label files: CSV files that list pictures with their classes, labels or numbers.

Every column is used, or the file is refused.
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..raw.words import counted
from .label_columns import TRAINING_COLUMNS, Columns, choose
from .label_kinds import Label, LabelKind, Rows
from .picture_list import LABEL_SUFFIXES, Suffixes, some

#: Whether a picture is held out, by the value of such a column. "test" is apart.
_FLAGS = {
    **dict.fromkeys(("true", "1", "1.0", "yes", "t", "y"), True),
    **dict.fromkeys(("false", "0", "0.0", "no", "f", "n"), False),
}
_HELD_OUT = {
    **_FLAGS,
    **dict.fromkeys(("val", "valid", "validation", "dev", "test", "testing"), True),
    **dict.fromkeys(("train", "training"), False),
}
_TEST = ("test", "testing")
SUFFIXES = LABEL_SUFFIXES


@dataclass
class Listed:
    """Pictures, what a file says of each, the names of the columns that say it, and which pictures
    a column calls held out (None without such a column)."""

    paths: list[Path]
    labels: list[Label]
    columns: list[str]
    held_out: list[bool] | None
    split_column: str


def read(
    root: Path, file: Path, columns: Sequence[str] | None, keep_missing: bool, kind: LabelKind
) -> Listed:
    """Pictures below `root` that a CSV file lists, each once. Warns of those that it lists twice.

    Raises FileNotFoundError if a picture is missing, with `keep_missing` if all are; ValueError for
    other contents.
    """
    rows = _rows(file)
    if not rows:
        raise ValueError(f"[ImageFolder] {file} is empty")
    complete = Suffixes(root)
    chosen, rows = choose(complete, file, rows, columns, kind)
    names = [chosen.names[place] for place in chosen.labels]
    listed = Listed([], [], names, None if chosen.split is None else [], "")
    if chosen.split is not None:
        listed.split_column = chosen.names[chosen.split]
    places: dict[str, int] = {}  # in `listed`
    lines: list[tuple[int, bool | None]] = []  # of these pictures: the first, and the part
    missing: dict[str, str] = {}
    twice, dropped, finds_some = [], 0, False
    parts = {} if chosen.split is None else _held_out(file, rows, chosen)
    for number, row in rows:
        where = f"[ImageFolder] {file}, line {number}"
        if len(row) <= max(chosen.file, *chosen.labels):
            raise ValueError(
                f"{where}: expected a picture and {kind.one}, separated by a comma, a semicolon, a "
                f"tab or |, got {row}"
            )
        if more := [cell for cell in row[len(chosen.names) :] if cell.strip()]:
            raise ValueError(
                f"{where}: {more[0]!r} is in no column, of which there are {len(chosen.names)}: "
                f'what has a comma stands in quotes, such as "a, b"'
            )
        name, *cells = (row[place].strip() for place in (chosen.file, *chosen.labels))
        if broken := next((cell for cell in (name, *cells) if "\n" in cell), None):
            raise ValueError(
                f"{where}: {broken!r:.60} goes over several lines: a quotation mark is not closed"
            )
        label = kind.label(where, cells, names)
        if not name:
            raise ValueError(f"{where}: names no picture: write its file, or remove the line")
        path = complete(name)
        finds_some = finds_some or path is not None
        if path is None:
            missing[name] = f"{name} (line {number})"
            path = root / name
        held_out = parts.get(number)
        if number in parts and held_out is None:
            dropped += 1
            continue
        place = places.setdefault(os.path.realpath(path), len(listed.paths))
        if place < len(listed.paths):
            before, said = lines[place]
            what = "two parts" if said != held_out else kind.two
            if said != held_out or not (kind.joins or listed.labels[place] == label):
                raise ValueError(
                    f"[ImageFolder] {file}: {name} has {what}: lines {before} and {number}"
                )
            if kind.joins:
                listed.labels[place] += label
            twice.append(f"{name} (line {number})")
            continue
        lines.append((number, held_out))
        listed.paths.append(path)
        listed.labels.append(label)
        if listed.held_out is not None:
            listed.held_out.append(bool(held_out))
    if missing and not (keep_missing and finds_some):
        raise FileNotFoundError(
            f"[ImageFolder] {file} lists {counted(len(missing), 'file')} not below {root}: "
            f"{some(list(missing.values()))}{_where_it_is(complete, next(iter(missing)))}"
        )
    if not listed.paths:
        raise FileNotFoundError(f"[ImageFolder] {file} lists no picture")
    if twice:
        how = "have the labels of all their lines" if kind.joins else "count once"
        _warn(f"{file} lists pictures twice, which {how}: {some(twice)}")
    if dropped:
        unused = f"{counted(dropped, 'picture')} of the test"
        _warn(f"{file}: the validation set is held out; not used: {unused}")
    return listed


def _warn(text: str) -> None:
    warnings.warn(f"[ImageFolder] {text}", stacklevel=5)


def _rows(file: Path) -> Rows:
    """The lines that are not empty, with their numbers."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"[ImageFolder] {file}, line {line}: the file is no text in UTF-8: save it as CSV in "
            "UTF-8"
        ) from None
    said = re.match("sep=(.)\r?\n", text)  # as Excel has it
    text = text if said is None else "\n" + text[said.end() :]
    stream = io.StringIO(text, newline="")
    delimiter = _delimiter(text) if said is None else said[1]
    reader = csv.reader(stream, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        return [(reader.line_num, row) for row in reader if any(row)]
    except csv.Error as error:
        hint = ": a quotation mark is not closed" if "end of data" in str(error) else ""
        raise ValueError(f"[ImageFolder] {file}, line {reader.line_num}: {error}{hint}") from None


def _delimiter(text: str) -> str:
    """What separates columns: of comma, semicolon and tab the one that comes first in the first
    line, or else |."""
    line = re.sub('"[^"]*"', "", next(filter(None, map(str.strip, text.splitlines())), ""))
    found = sorted((line.find(each), each) for each in ",;\t" if each in line)
    return found[0][1] if found else "|" if "|" in line else ","


def _where_it_is(complete: Suffixes, name: str) -> str:
    """What an error about a missing file adds if there is one like it."""
    if (there := complete.elsewhere(name)) is not None:
        return (
            f"; there is {there}: write {there.relative_to(complete.root)}, move the CSV file to "
            "the folder where its paths begin, or give data.ImageFolder that folder, and csv="
        )
    if Path(name).is_file():
        return f"; paths begin where the CSV file is, and {name} is below the current folder"
    return ""


def _held_out(file: Path, rows: Rows, columns: Columns) -> dict[int, bool | None]:
    """Whether each line's picture is held out; None: it is of a test beside a validation set."""
    place = columns.split
    assert place is not None
    found = {}
    for number, row in rows:
        value = row[place].strip().lower() if place < len(row) else ""
        if value not in _HELD_OUT:
            raise ValueError(
                f"[ImageFolder] {file}, line {number}: {value!r} is neither training nor test; "
                "expected such as 0 and 1, or train and val"
            )
        found[number] = value
    held_out = dict(_HELD_OUT)
    if columns.names[place].lower() in TRAINING_COLUMNS:
        held_out |= {value: not _HELD_OUT[value] for value in _FLAGS}
    has_validation = any(held_out[v] and v not in _TEST for v in found.values())
    return {
        number: None if has_validation and value in _TEST else held_out[value]
        for number, value in found.items()
    }
