"""What the columns of a label file say of a picture: its class, its labels, or numbers."""

from __future__ import annotations

import math
import re
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .picture_list import some

#: The column of labels in a file without names.
WITHOUT_NAME = "value"
#: Lines of a file that are not empty, with their numbers.
Rows = list[tuple[int, list[str]]]
#: What a file says of a picture, before the names of all classes are known.
Label = tuple[Any, ...]

#: Numbers that are more than this many classes, with fewer pictures each than that, are no classes.
_MANY_CLASSES, _FEW_PICTURES = 20, 5
_NAMES_ARE_CLASSES = "give their names as classes= if they are classes"


@dataclass
class Labels:
    """The columns of a file that are no files and no parts of a data set.

    file     for messages
    names    of all columns
    at_file  place of the column of files
    places   of these columns
    usual    those of them whose names are usual for labels
    rows     of the file
    """

    file: Path
    names: list[str]
    at_file: int
    places: list[int]
    usual: list[int]
    rows: Rows

    def are_flags(self) -> bool:
        """Whether there are several, all of 0 and 1."""
        return len(self.places) > 1 and all(
            _is_flag(row, place) for _, row in self.rows for place in self.places
        )

    def named(self, places: Iterable[int]) -> str:
        """The names of some columns."""
        return some([self.names[place] for place in places])

    def only(self, place: int) -> list[int]:
        """This column. Raises ValueError if there are others."""
        if others := [each for each in self.places if each != place]:
            raise self.unused(others, [place])
        return [place]

    def unused(self, others: Iterable[int], used: Iterable[int]) -> ValueError:
        """The error that other columns would not be used beside that of files and those `used`."""
        chosen = tuple(self.names[place] for place in (self.at_file, *used))
        return ValueError(
            f"[ImageFolder] {self.file} has columns that are not used: "
            f"{some([repr(self.names[place]) for place in others])}. columns={chosen!r} leaves "
            f"them out (singa train: --columns {','.join(chosen)})"
        )


class LabelKind(ABC):
    """How labels are read. The attributes are for messages.

    task     the name that ImageFolder takes
    one      what a picture has
    two      what a picture must not have
    noun     one of what pictures have
    several  what all pictures together have
    """

    task: str
    one: str
    two: str
    noun: str
    several: str
    #: Whether the labels of a picture that has several lines are joined.
    joins = False

    @abstractmethod
    def chosen(self, labels: Labels) -> list[int]:
        """Places of the columns that are used. Raises ValueError if others would be left, or if
        there is none."""

    @abstractmethod
    def label(self, where: str, cells: Sequence[str], names: Sequence[str]) -> Label:
        """What the cells of the chosen columns say. Raises ValueError, with `where` they stand."""

    @abstractmethod
    def targets(
        self, file: Path, labels: Sequence[Label], names: Sequence[str], given: Sequence[str] | None
    ) -> tuple[tuple[str, ...], NDArray[Any]]:
        """Names of classes, labels or numbers, and the targets of all pictures.

        names  of the chosen columns
        given  names that another data set has, in their order
        """

    def groups(self, targets: NDArray[Any]) -> NDArray[np.integer]:
        """A number for each picture; a split takes the same share of pictures with each number."""
        return np.zeros(len(targets), np.int32)


class OneClass(LabelKind):
    """A column with names of classes, or one for each class with a single 1 in each line."""

    task, noun, several, one, two = "classes", "class", "classes", "a class", "two classes"

    def chosen(self, labels: Labels) -> list[int]:
        if not labels.usual and labels.are_flags():
            _warn(f"{labels.file}: the columns {labels.named(labels.places)} are taken for classes")
            return labels.places
        return labels.only((labels.usual or labels.places)[0])

    def label(self, where: str, cells: Sequence[str], names: Sequence[str]) -> Label:
        if len(cells) == 1:
            if not cells[0]:
                raise ValueError(
                    f"{where}: expected a picture and a class, got {cells[0]!r}: write the class, "
                    "or remove the line; if a picture may have no label, it needs "
                    "task='multilabel' (singa train: --multilabel)"
                )
            return (cells[0],)
        found = [name for name, cell in zip(names, cells, strict=True) if _is_one(where, cell)]
        if len(found) != 1:
            raise ValueError(
                f"{where}: {len(found)} of the columns {', '.join(names)} are 1, but a picture has "
                "one class; task='multilabel' takes several (singa train: --multilabel)"
            )
        return (found[0],)

    def targets(
        self, file: Path, labels: Sequence[Label], names: Sequence[str], given: Sequence[str] | None
    ) -> tuple[tuple[str, ...], NDArray[Any]]:
        found = [name for (name,) in labels]
        if given is None:
            check_classes(file, found)
            if said := said_of_names(found):
                _warn(f"{file}: {said}", 5)
        return numbered(found, given, file, by_number=True)

    def groups(self, targets: NDArray[Any]) -> NDArray[np.integer]:
        return targets


class SeveralLabels(LabelKind):
    """A column with lists of labels, or one for each label with 0 or 1."""

    task, noun, several, one = "multilabel", "label", "labels", "labels"
    two = "two sets of labels"
    joins = True

    def chosen(self, labels: Labels) -> list[int]:
        if not labels.usual and labels.are_flags():
            _warn(f"{labels.file}: the columns {labels.named(labels.places)} are taken for labels")
            return labels.places
        if labels.usual or len(labels.places) == 1:
            return labels.only((labels.usual or labels.places)[0])
        raise ValueError(
            f"[ImageFolder] {labels.file}: the columns {labels.named(labels.places)} are not all "
            "of 0 and 1: several labels are a column for each of them, or one column with lists "
            "such as a|b; columns= chooses (singa train: --columns FILE,LABEL,...)"
        )

    def label(self, where: str, cells: Sequence[str], names: Sequence[str]) -> Label:
        if len(cells) == 1:
            return (cells[0],)
        return tuple(n for n, cell in zip(names, cells, strict=True) if _is_one(where, cell))

    def targets(
        self, file: Path, labels: Sequence[Label], names: Sequence[str], given: Sequence[str] | None
    ) -> tuple[tuple[str, ...], NDArray[Any]]:
        found: Sequence[str] = names
        lists: Sequence[Sequence[str]] = labels
        if len(names) == 1:
            lists = _split(file, labels, given or ())
            found = in_order({name for each in lists for name in each})
            if not found:
                raise ValueError(f"[ImageFolder] {file}: no picture has a label")
            if given is None and set(found) <= {"0", "1"}:
                raise ValueError(
                    f"[ImageFolder] {file}: one column of 0 and 1 names two classes, not labels: "
                    "leave out task='multilabel' (singa train: --multilabel)"
                )
        known = _known(found, given, file, "labels")
        if len(names) > 1:
            _check_columns(file, names, known)
        if given is None and len(names) == 1 and max(map(len, lists)) == 1:
            check_numbers(file, [name for each in lists for name in each])
        if given is None and (said := said_of_names(known)):
            _warn(f"{file}: {said}", 5)
        places = {name: place for place, name in enumerate(known)}
        targets = np.zeros((len(lists), len(known)), np.float32)
        for row, each in enumerate(lists):
            targets[row, [places[name] for name in each]] = 1
        return known, targets

    def groups(self, targets: NDArray[Any]) -> NDArray[np.integer]:
        """The rarest label of each picture, or a number of its own for none."""
        rarity = np.where(targets > 0, targets.sum(0), np.inf)
        rarest = rarity.argmin(1) if targets.shape[1] else np.zeros(len(targets), np.intp)
        return np.where(targets.any(1), rarest, targets.shape[1]).astype(np.int32)


class Numbers(LabelKind):
    """Columns of numbers."""

    task, noun, several, one, two = "regression", "number", "numbers", "a number", "two numbers"

    def chosen(self, labels: Labels) -> list[int]:
        if labels.usual:
            return labels.only(labels.usual[0])
        if len(labels.places) > 1:
            _warn(
                f"{labels.file}: the columns {labels.named(labels.places)} are taken for numbers "
                "to predict"
            )
        return labels.places

    def label(self, where: str, cells: Sequence[str], names: Sequence[str]) -> Label:
        for name, cell in zip(names, cells, strict=True):
            if not is_number(cell):
                raise ValueError(
                    f"{where}: {cell!r} in column {name!r} is no finite number{_of_commas(cell)}; "
                    "columns= chooses other columns (singa train: --columns FILE,NUMBER,...)"
                )
        return tuple(map(float, cells))

    def targets(
        self, file: Path, labels: Sequence[Label], names: Sequence[str], given: Sequence[str] | None
    ) -> tuple[tuple[str, ...], NDArray[Any]]:
        with np.errstate(over="ignore"):
            targets = np.array(labels, np.float64).astype(np.float32)
        if not np.isfinite(targets).all():
            raise ValueError(f"[ImageFolder] {file} has numbers that float32 does not hold")
        if given is not None and len(names) == len(given) == 1:  # it may have another name
            if names[0] not in (given[0], WITHOUT_NAME):
                _warn(f"{file}: column {names[0]!r} is taken for {given[0]!r}", 5)
            return tuple(given), targets
        known = _known(names, given, file, "numbers")
        _check_columns(file, names, known)
        return known, targets[:, [list(names).index(name) for name in known]]


def _check_columns(file: Path, names: Sequence[str], known: Sequence[str]) -> None:
    """Raises ValueError if there is no column of a label or number."""
    if lacking := [name for name in known if name not in names]:
        raise ValueError(f"[ImageFolder] {file} has no column {', '.join(map(repr, lacking))}")


#: By the name that ImageFolder takes.
KINDS: dict[str, LabelKind] = {kind.task: kind for kind in (OneClass(), SeveralLabels(), Numbers())}


def numbered(
    names: Sequence[str], given: Sequence[str] | None, where: Path, by_number: bool
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Names of the classes in the order of their numbers, and the number of each name."""
    found = sorted(set(names))
    found = in_order(found) if by_number else found
    known = _known(found, given, where, "classes")
    places = {name: place for place, name in enumerate(known)}
    return known, np.array([places[name] for name in names], np.int32)


def in_order(names: Iterable[str]) -> list[str]:
    """Names sorted as text, or as numbers if all are."""
    found = sorted(names)
    if all(name.isascii() and name.isdecimal() for name in found):
        return sorted(found, key=int)
    return found


def _known(
    found: Sequence[str], given: Sequence[str] | None, where: Path, what: str
) -> tuple[str, ...]:
    """The names that are given, among which are those that were found; or else these."""
    known = tuple(str(name) for name in (found if given is None else given))
    if len(set(known)) < len(known):
        raise ValueError(f"[ImageFolder] {where}: the columns have a name twice: {known}")
    if unknown := [name for name in found if name not in known]:
        raise ValueError(
            f"[ImageFolder] {where} has {what} that are not in `classes`: {some(unknown)}; these "
            f"are {some(known)}"
        )
    return known


def _of_commas(cell: str) -> str:
    """What an error adds about a number with commas, which may mean one of two things."""
    is_plain = "," in cell and is_number(cell.replace(",", ""))
    return ": write a decimal point, and nothing between thousands" if is_plain else ""


def _check_brackets(file: Path, names: Iterable[str]) -> None:
    """Raises ValueError for a cell with a list of Python or JSON."""
    if wrong := next(filter(re.compile(r"""[(\[{].*['"].*[)\]}]""").fullmatch, names), None):
        raise ValueError(
            f"[ImageFolder] {file}: {wrong!r} is a list as programs write it: write the names "
            "alone, several of them as a|b"
        )


#: How tables write what is missing.
_MISSING = ("na", "n/a", "nan", "none", "null", "nil", "?", "-")


def said_of_names(names: Iterable[str]) -> str:
    """A sentence on names of classes or labels that may be mistakes: nearly the same ones, and
    those of missing values; "" if there are none."""
    alike: dict[Any, list[str]] = {}
    for name in sorted(set(names)):
        plain = unicodedata.normalize("NFKC", name).casefold()  # "é" may be one letter or two
        key = float(name) if is_number(name) else " ".join(re.split(r"[\s_-]+", plain))
        alike.setdefault(key, []).append(name)
    pairs = [" and ".join(map(repr, each)) for each in alike.values() if len(each) > 1]
    said = [f"names that are nearly the same are different classes: {some(pairs)}"] if pairs else []
    if missing := [repr(n) for each in alike.values() for n in each if n.lower() in _MISSING]:
        said.append(f"taken for a class: {some(missing)}")
    return "; ".join(said)


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


def check_numbers(file: Path, names: Sequence[str]) -> None:
    """Raises ValueError for labels that are numbers to predict."""
    found = set(names)
    if all(map(is_number, found)):
        fractions = sorted(name for name in found if not float(name).is_integer())
        scattered = len(found) > _MANY_CLASSES and len(names) < _FEW_PICTURES * len(found)
        if fractions or scattered:
            example = fractions[0] if fractions else f"{len(found)} for {len(names)} pictures"
            raise ValueError(
                f"[ImageFolder] {file}: the labels are numbers, not classes ({example}): "
                "task='regression' predicts numbers (singa train: --regression); "
                f"{_NAMES_ARE_CLASSES}"
            )


def check_classes(file: Path, names: Sequence[str]) -> None:
    """Raises ValueError for labels that are no classes, but numbers to predict, or lists."""
    check_numbers(file, names)
    found = set(names)
    _check_brackets(file, sorted(found))
    for delimiter in "|;, ":
        lists = sorted(name for name in found if delimiter in name)
        if lists and (delimiter in "|;" or _are_lists(found, lists, delimiter)):
            raise ValueError(
                f"[ImageFolder] {file}: {lists[0]!r} seems to be several classes, but a picture "
                "has one: task='multilabel' takes several (singa train: --multilabel); "
                f"{_NAMES_ARE_CLASSES}"
            )


def _split(file: Path, labels: Sequence[Label], known: Collection[str]) -> list[list[str]]:
    """The labels of each picture, whose cells are lists. Says what separates them: the first of
    | ; , and the space that there is outside of names that are known."""
    cells = {cell for label in labels for cell in label}.difference(known)
    _check_brackets(file, sorted(cells))
    separator = next((each for each in "|;, " if any(each in cell for cell in cells)), None)
    if separator is not None:
        example = min(cell for cell in cells if separator in cell)
        _warn(f"{file}: labels are separated by {separator!r}, as in {example!r}", 6)

    def parts(cell: str) -> list[str]:
        is_one = separator is None or cell in known
        return [cell] if is_one else [part.strip() for part in cell.split(separator)]

    return [[part for cell in label for part in parts(cell) if part] for label in labels]


def _are_lists(found: Iterable[str], lists: Sequence[str], delimiter: str) -> bool:
    """Whether the labels that have a delimiter are made of the others, or of few parts."""
    parts = [[part.strip() for part in name.split(delimiter) if part.strip()] for name in lists]
    alone = set(found).difference(lists)
    if any(len(each) > 1 and alone.issuperset(each) for each in parts):
        return True
    return len({part for each in parts for part in each}) < len(lists)


def _is_flag(row: Sequence[str], place: int) -> bool:
    return place < len(row) and row[place].strip() in ("0", "1", "0.0", "1.0")


def _is_one(where: str, cell: str) -> bool:
    if not _is_flag([cell], 0):
        raise ValueError(f"{where}: expected 0 or 1, got {cell!r}")
    return float(cell) == 1


def _warn(text: str, stacklevel: int = 7) -> None:
    warnings.warn(f"[ImageFolder] {text}", stacklevel=stacklevel)
