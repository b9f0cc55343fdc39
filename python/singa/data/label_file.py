"""Label files: CSV files that list pictures with their classes, labels or numbers.

Every column is used, or the file is refused.
"""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..raw.words import counted
from .label_kinds import Label, LabelKind, Labels, Rows
from .picture_list import Suffixes, some
from .pictures import SUFFIXES

_FILE_COLUMNS = (
    *("file", "filename", "file_name", "filepath", "path", "image", "image_path"),
    *("image_id", "img", "picture", "id", "name"),
)
_LABEL_COLUMNS = ("label", "labels", "class", "classname", "class_name", "category", "target")
_SPLIT_COLUMNS = (
    *("is_valid", "is_validation", "is_val", "is_test", "valid", "split", "subset", "set"),
    *("part", "partition", "phase"),
)
#: Whether a picture is held out, by the value of such a column. "test" is apart.
_HELD_OUT = {
    **dict.fromkeys(("true", "1", "1.0", "yes", "t", "y"), True),
    **dict.fromkeys(("false", "0", "0.0", "no", "f", "n"), False),
    **dict.fromkeys(("val", "valid", "validation", "dev", "test", "testing"), True),
    **dict.fromkeys(("train", "training"), False),
}
_TEST = ("test", "testing")


@dataclass
class Listed:
    """Pictures, what a file says of each, the names of the columns that say it, and which pictures
    a column calls held out (None without such a column)."""

    paths: list[Path]
    labels: list[Label]
    columns: list[str]
    held_out: list[bool] | None
    split_column: str


@dataclass
class _Columns:
    """Places of the columns, and their names."""

    file: int
    labels: list[int]
    split: int | None
    names: list[str]


def read(
    root: Path, file: Path, columns: Sequence[str] | None, keep_missing: bool, kind: LabelKind
) -> Listed:
    """Pictures below `root` that a CSV file lists, each once. Warns of those that it lists twice.

    Raises FileNotFoundError if a picture is missing, unless `keep_missing`, ValueError for other
    contents.
    """
    rows = _rows(file)
    if not rows:
        raise ValueError(f"[ImageFolder] {file} is empty")
    chosen, rows = _columns(root, file, rows, columns, kind)
    names = [chosen.names[place] for place in chosen.labels]
    listed = Listed([], [], names, None if chosen.split is None else [], "")
    if chosen.split is not None:
        listed.split_column = chosen.names[chosen.split]
    complete = Suffixes(root)
    places: dict[str, int] = {}  # in `listed`
    lines: list[tuple[int, bool | None]] = []  # of these pictures: the first, and the part
    missing, twice, dropped = [], [], 0
    parts = {} if chosen.split is None else _held_out(file, rows, chosen.split)
    for number, row in rows:
        where = f"[ImageFolder] {file}, line {number}"
        if len(row) <= max(chosen.file, *chosen.labels):
            raise ValueError(f"{where}: expected a picture and {kind.one}, got {row}")
        label = kind.label(where, [row[place].strip() for place in chosen.labels], names)
        name = row[chosen.file].strip()
        path = complete(name)
        if path is None:
            missing.append(f"{name} (line {number})")
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
    if missing and not keep_missing:
        raise FileNotFoundError(
            f"[ImageFolder] {file} lists {len(missing)} files that are not below {root}: "
            f"{some(missing)}"
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
    first = text.partition("\n")[0]
    stream = io.StringIO(text, newline="")
    reader = csv.reader(stream, delimiter=max(",;\t", key=first.count))
    try:
        return [(reader.line_num, row) for row in reader if any(row)]
    except csv.Error as error:
        raise ValueError(f"[ImageFolder] {file}, line {reader.line_num}: {error}") from None


def _columns(
    root: Path, file: Path, rows: Rows, columns: Sequence[str] | None, kind: LabelKind
) -> tuple[_Columns, Rows]:
    """What the columns are, and the rows without their names."""
    names = [cell.strip() for cell in rows[0][1]]
    header = [name.lower() for name in names]
    split = next((header.index(name) for name in _SPLIT_COLUMNS if name in header), None)
    if columns is not None:
        if len(columns) < 2:
            raise ValueError(f"[ImageFolder] columns names a file and {kind.one}, got {columns!r}")
        for name in columns:
            if name.lower() not in header:
                raise ValueError(f"[ImageFolder] {file} has no column {name!r}: {rows[0][1]}")
        at_file, *places = (header.index(name.lower()) for name in columns)
        split = None if split in (at_file, *places) else split
        return _Columns(at_file, places, split, names), rows[1:]
    if len(header) < 2 or _is_file(root, names[0]):
        if len(header) > 2:
            raise ValueError(
                f"[ImageFolder] {file} has {len(header)} columns without names, of which a picture "
                f"and {kind.one} are used: begin it with a line of names"
            )
        return _Columns(0, [1], None, ["file", "value"]), rows
    rows = rows[1:]
    at_file = next((header.index(name) for name in _FILE_COLUMNS if name in header), 0)
    places = [place for place in range(len(header)) if place not in (at_file, split)]
    usual = [header.index(name) for name in _LABEL_COLUMNS if name in header]
    if not places or at_file in usual:
        raise ValueError(f"[ImageFolder] {file} has no column of {kind.several}: {names}")
    chosen = kind.chosen(Labels(file, names, at_file, places, usual, rows))
    return _Columns(at_file, chosen, split, names), rows


def _is_file(root: Path, name: str) -> bool:
    return (root / name).is_file() or os.path.splitext(name)[1].lower() in SUFFIXES


def _held_out(file: Path, rows: Rows, place: int) -> dict[int, bool | None]:
    """Whether each line's picture is held out; None: it is of a test beside a validation set."""
    found = {}
    for number, row in rows:
        value = row[place].strip().lower() if place < len(row) else ""
        if value not in _HELD_OUT:
            raise ValueError(
                f"[ImageFolder] {file}, line {number}: {value!r} is neither training nor test; "
                "expected such as 0 and 1, or train and val"
            )
        found[number] = value
    has_validation = any(_HELD_OUT[v] and v not in _TEST for v in found.values())
    return {
        number: None if has_validation and value in _TEST else _HELD_OUT[value]
        for number, value in found.items()
    }
