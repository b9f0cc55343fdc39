"""Label files: CSV files that list pictures with their classes.

Every column is used, or the file is refused.
"""

from __future__ import annotations

import csv
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
#: Numbers that are more than this many classes, with fewer pictures each than that, are no classes.
_MANY_CLASSES, _FEW_PICTURES = 20, 5


@dataclass
class Listed:
    """Pictures, their classes, and which a column calls held out (None without such a column)."""

    paths: list[Path]
    names: list[str]
    held_out: list[bool] | None
    split_column: str


@dataclass
class _Columns:
    """Places of the columns. `label` has several in a file with a column for each class."""

    file: int
    label: list[int]
    split: int | None
    names: list[str]


def read(root: Path, file: Path, columns: tuple[str, str] | None, keep_missing: bool) -> Listed:
    """Pictures below `root` that a CSV file lists, each once. Warns of those that it lists twice.

    Raises FileNotFoundError if a picture is missing, unless `keep_missing`, ValueError for other
    contents.
    """
    rows = _rows(file)
    if not rows:
        raise ValueError(f"[ImageFolder] {file} is empty")
    chosen, rows = _columns(root, file, rows, columns)
    listed = Listed([], [], None if chosen.split is None else [], "")
    if chosen.split is not None:
        listed.split_column = chosen.names[chosen.split]
    complete = Suffixes(root)
    first_lines: dict[str, tuple[int, tuple[str, bool | None]]] = {}
    missing, twice, dropped = [], [], 0
    parts = {} if chosen.split is None else _held_out(file, rows, chosen.split)
    for number, row in rows:
        label = _label(file, number, row, chosen)
        name = row[chosen.file].strip()
        path = complete(name)
        if path is None:
            missing.append(f"{name} (line {number})")
            path = root / name
        held_out = parts.get(number)
        if number in parts and held_out is None:
            dropped += 1
            continue
        before, said = first_lines.setdefault(os.path.realpath(path), (number, (label, held_out)))
        if said != (label, held_out):
            what = "two classes" if said[0] != label else "two parts"
            raise ValueError(
                f"[ImageFolder] {file}: {name} has {what}: lines {before} and {number}"
            )
        if before != number:
            twice.append(f"{name} (line {number})")
            continue
        listed.paths.append(path)
        listed.names.append(label)
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
        _warn(f"{file} lists pictures twice, which count once: {some(twice)}")
    if dropped:
        _warn(f"{file}: the validation set is held out; {dropped} pictures of the test are unused")
    return listed


def _warn(text: str) -> None:
    warnings.warn(f"[ImageFolder] {text}", stacklevel=5)


def _rows(file: Path) -> list[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers."""
    with open(file, newline="", encoding="utf-8-sig") as stream:
        first = stream.readline()
        stream.seek(0)
        reader = csv.reader(stream, delimiter=max(",;\t", key=first.count))
        try:
            return [(reader.line_num, row) for row in reader if any(row)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"[ImageFolder] {file}: {error}") from None


_Rows = list[tuple[int, list[str]]]


def _columns(
    root: Path, file: Path, rows: _Rows, columns: tuple[str, str] | None
) -> tuple[_Columns, _Rows]:
    """What the columns are, and the rows without their names."""
    names = [cell.strip() for cell in rows[0][1]]
    header = [name.lower() for name in names]
    split = next((header.index(name) for name in _SPLIT_COLUMNS if name in header), None)
    if columns is not None:
        for name in columns:
            if name.lower() not in header:
                raise ValueError(f"[ImageFolder] {file} has no column {name!r}: {rows[0][1]}")
        at_file, at_label = (header.index(name.lower()) for name in columns)
        split = None if split in (at_file, at_label) else split
        return _Columns(at_file, [at_label], split, names), rows[1:]
    if len(header) < 2 or _is_file(root, names[0]):
        if len(header) > 2:
            raise ValueError(
                f"[ImageFolder] {file} has {len(header)} columns without names, of which a picture "
                "and its class are used: begin it with a line of names"
            )
        return _Columns(0, [1], None, names), rows
    rows = rows[1:]
    at_file = next((header.index(name) for name in _FILE_COLUMNS if name in header), 0)
    labels = [place for place in range(len(header)) if place not in (at_file, split)]
    usual = [header.index(name) for name in _LABEL_COLUMNS if name in header]
    if len(labels) > 1 and not usual and all(_is_flag(row, p) for _, row in rows for p in labels):
        _warn(f"{file}: the columns {some([names[p] for p in labels])} are taken for classes")
        return _Columns(at_file, labels, split, names), rows
    at_label = (usual or labels[:1] or [at_file])[0]
    if at_label == at_file:
        raise ValueError(f"[ImageFolder] {file} has no column of classes: {names}")
    others = [repr(names[place]) for place in labels if place != at_label]
    if others:
        pair = (names[at_file], names[at_label])
        raise ValueError(
            f"[ImageFolder] {file} has columns that are not used: {some(others)}. "
            f"columns={pair!r} uses these two alone (singa train: --columns {','.join(pair)})"
        )
    return _Columns(at_file, [at_label], split, names), rows


def _is_file(root: Path, name: str) -> bool:
    return (root / name).is_file() or os.path.splitext(name)[1].lower() in SUFFIXES


def _is_flag(row: Sequence[str], place: int) -> bool:
    return place < len(row) and row[place].strip() in ("0", "1", "0.0", "1.0")


def _label(file: Path, number: int, row: Sequence[str], columns: _Columns) -> str:
    """The class in a row."""
    if len(row) <= max(columns.file, *columns.label):
        raise ValueError(
            f"[ImageFolder] {file}, line {number}: expected a picture and a class, got {row}"
        )
    if len(columns.label) > 1:
        classes = [columns.names[p] for p in columns.label if float(row[p]) == 1]
        if len(classes) != 1:
            raise ValueError(
                f"[ImageFolder] {file}, line {number}: {len(classes)} of the columns "
                f"{', '.join(columns.names[p] for p in columns.label)} are 1, but a picture has "
                "one class here; several are not supported"
            )
        return classes[0]
    (place,) = columns.label
    if not row[place].strip():
        raise ValueError(
            f"[ImageFolder] {file}, line {number}: expected a picture and a class, got {row}"
        )
    return row[place].strip()


def _held_out(file: Path, rows: _Rows, place: int) -> dict[int, bool | None]:
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


def is_number(text: str) -> bool:
    """Whether a class is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def check_classes(file: Path, names: Sequence[str]) -> None:
    """Raises ValueError for labels that are no classes, but numbers to predict, or lists."""
    found = set(names)
    advice = "give their names as classes= if they are classes"
    if all(map(is_number, found)):
        fractions = sorted(name for name in found if not float(name).is_integer())
        scattered = len(found) > _MANY_CLASSES and len(names) < _FEW_PICTURES * len(found)
        if fractions or scattered:
            example = fractions[0] if fractions else f"{len(found)} for {len(names)} pictures"
            raise ValueError(
                f"[ImageFolder] {file}: the labels are numbers, not classes ({example}), which a "
                "classifier cannot learn. For a regression, train on a Dataset of (picture, "
                f"number) with layer.MSELoss; {advice}"
            )
    for delimiter in "|;, ":
        lists = sorted(name for name in found if delimiter in name)
        if lists and (delimiter in "|;" or _are_lists(found, lists, delimiter)):
            raise ValueError(
                f"[ImageFolder] {file}: {lists[0]!r} seems to be several classes, but a picture "
                f"has one here; several are not supported; {advice}"
            )


def _are_lists(found: Iterable[str], lists: Sequence[str], delimiter: str) -> bool:
    """Whether the labels that have a delimiter are made of the others, or of few parts."""
    parts = [[part.strip() for part in name.split(delimiter) if part.strip()] for name in lists]
    alone = set(found).difference(lists)
    if any(len(each) > 1 and alone.issuperset(each) for each in parts):
        return True
    return len({part for each in parts for part in each}) < len(lists)
