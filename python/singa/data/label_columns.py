"""Which columns of a label file have the pictures, their labels, and the parts of a data set."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .label_kinds import WITHOUT_NAME, LabelKind, Labels, Rows
from .picture_list import Suffixes, looks_like_picture, some

_FILE_COLUMNS = (
    *("file", "filename", "file_name", "filepath", "path", "image", "image_path"),
    *("image_id", "img", "picture", "id", "name"),
)
_LABEL_COLUMNS = ("label", "labels", "class", "classname", "class_name", "category", "target")
#: Columns that are true for training; those of `_SPLIT_COLUMNS` are true for what is held out.
TRAINING_COLUMNS = ("is_train", "is_training", "is_training_image")
_SPLIT_COLUMNS = (
    *("is_valid", "is_validation", "is_val", "is_test", "valid", "split", "subset", "set"),
    *("part", "partition", "phase", *TRAINING_COLUMNS),
)
#: Columns that are none of several labels or numbers, unless `columns` names them.
_NO_LABELS = {*_FILE_COLUMNS, *_SPLIT_COLUMNS, "fold", "folds", "kfold", "idx", "index"}
_NO_FILES = {*_LABEL_COLUMNS, *_SPLIT_COLUMNS}
#: How tables that were read and written again call a column without a name.
_UNNAMED = ("", "unnamed: 0")


@dataclass
class Columns:
    """Places of the columns, and the names of all of them."""

    file: int
    labels: list[int]
    split: int | None
    names: list[str]


def choose(
    complete: Suffixes,
    file: Path,
    rows: Rows,
    columns: Sequence[str] | None,
    kind: LabelKind,
) -> tuple[Columns, Rows]:
    """What the columns of `file` are, and the rows without their names. Warns of what is guessed.

    complete  finds the pictures
    columns   the names that the caller gives

    Raises ValueError for columns that would not be used, and for names that say too little.
    """
    names = [cell.strip() for cell in rows[0][1]]
    header = [name.lower() for name in names]
    split = next((header.index(name) for name in _SPLIT_COLUMNS if name in header), None)
    if columns is not None:
        at_file, *places = _given(file, rows, header, columns, kind)
        split = None if split in (at_file, *places) else split
        return Columns(at_file, places, split, names), rows[1:]
    is_named = any(name in header for name in (*_FILE_COLUMNS, *_LABEL_COLUMNS))
    pictures = [at for at, name in enumerate(names) if _is_picture(complete, name, is_named)]
    if len(header) < 2 or pictures:
        return _without_names(file, rows, len(_trimmed(names)), pictures[:1] or [0], kind), rows
    rows = rows[1:]
    skipped = _skipped(file, names, rows)
    if twice := sorted({name for name in header if header.count(name) > 1 and name}):
        raise ValueError(f"[ImageFolder] {file} has two columns {', '.join(map(repr, twice))}")
    usual_file = next((header.index(name) for name in _FILE_COLUMNS if name in header), None)
    if usual_file is None:
        others = [at for at, name in enumerate(header) if name not in (*_NO_FILES, *_UNNAMED)]
        at_file = _files_of(complete, rows, others or [0])
    else:
        at_file = usual_file
    places = [at for at in range(len(header)) if at not in (at_file, split, *skipped)]
    usual = [header.index(name) for name in _LABEL_COLUMNS if name in header]
    if not places or at_file in usual:
        raise ValueError(f"[ImageFolder] {file} has no column of {kind.several}: {names}")
    labels = Labels(file, names, at_file, places, usual, rows)
    none = [at for at in places if header[at] in _NO_LABELS]
    if none and len(places) > len(none) and not usual:
        raise labels.unused(none, [at for at in places if at not in none])
    chosen = kind.chosen(labels)
    if usual_file is None:
        _warn(
            f"{file}: column {names[at_file]!r} is taken for the files, and "
            f"{some([repr(names[at]) for at in chosen])} for {kind.several}"
        )
    return Columns(at_file, chosen, split, names), rows


def _files_of(complete: Suffixes, rows: Rows, places: Sequence[int]) -> int:
    """Of these columns the one whose first cell names a picture, or else the first."""
    cells = rows[0][1] if rows else []
    found = [(at, cells[at].strip()) for at in places if at < len(cells)]
    tests: list[Callable[[str], object]] = [looks_like_picture, complete]
    return next((at for test in tests for at, cell in found if cell and test(cell)), places[0])


def _given(
    file: Path, rows: Rows, header: list[str], columns: Sequence[str], kind: LabelKind
) -> list[int]:
    """Places of the columns with these names."""
    if len(columns) < 2:
        raise ValueError(f"[ImageFolder] columns names a file and {kind.one}, got {columns!r}")
    for name in columns:
        if name.lower() not in header:
            raise ValueError(f"[ImageFolder] {file} has no column {name!r}: {rows[0][1]}")
        if header.count(name.lower()) > 1:
            raise ValueError(f"[ImageFolder] {file} has two columns {name!r}: {rows[0][1]}")
    if twice := [name for i, name in enumerate(columns) if name.lower() in _lower(columns[:i])]:
        raise ValueError(f"[ImageFolder] columns names {twice[0]!r} twice: {tuple(columns)}")
    return [header.index(name.lower()) for name in columns]


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _without_names(
    file: Path, rows: Rows, count: int, at_file: list[int], kind: LabelKind
) -> Columns:
    """The columns of a file whose first line is that of a picture."""
    if count > 2:
        raise ValueError(
            f"[ImageFolder] {file} has {count} columns without names, of which a picture and "
            f"{kind.one} are used: begin it with a line of names"
        )
    names = ["file", WITHOUT_NAME]
    return Columns(at_file[0], [1 - at_file[0]], None, names if at_file == [0] else names[::-1])


def _trimmed(cells: Sequence[str]) -> list[str]:
    """Cells without empty ones at their end."""
    count = max((at for at, cell in enumerate(cells, 1) if cell.strip()), default=0)
    return list(cells[:count])


def _skipped(file: Path, names: Sequence[str], rows: Rows) -> list[int]:
    """Columns without a name that hold nothing, or the numbers of the lines, as pandas writes them.
    Raises ValueError for others."""
    skipped = []
    for at, name in enumerate(names):
        if name.lower() not in _UNNAMED:
            continue
        cells = [row[at].strip() if at < len(row) else "" for _, row in rows]
        if any(cells):
            if cells not in [[str(n) for n in range(i, len(rows) + i)] for i in (0, 1)]:
                raise ValueError(
                    f"[ImageFolder] {file}: column {at + 1} has no name: name it, or remove it"
                )
            _warn(f"{file}: column {at + 1} has no name, and numbers the lines: it is not used", 7)
        skipped.append(at)
    return skipped


def _is_picture(complete: Suffixes, name: str, is_named: bool) -> bool:
    """Whether a cell names a picture, perhaps one that is missing. Where other cells of the line
    name columns, the folder is not searched for it."""
    if looks_like_picture(name) or (complete.root / name).is_file():
        return bool(name)
    return bool(name) and not is_named and complete(name) is not None


def _warn(text: str, stacklevel: int = 6) -> None:
    warnings.warn(f"[ImageFolder] {text}", stacklevel=stacklevel)
