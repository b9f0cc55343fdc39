"""Folders that are parts of a data set, by their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from .picture_list import some

#: What names of folders say, in the order in which a test is looked for.
TRAIN, VALIDATION, TEST = "train", "validation", "test"
_WORDS = {
    TRAIN: {"train", "training", "trainset"},
    VALIDATION: {"val", "valid", "validation", "validate", "valset", "dev", "devset"},
    TEST: {"test", "testing", "testset", "eval", "evaluation"},
}


def part_of(name: str) -> str | None:
    """TRAIN, VALIDATION or TEST, where a word of the name says so, as in "seg_train" and
    "Training_Set"; else None."""
    found = set(re.findall("[a-z]+", name.lower()))
    return next((part for part, words in _WORDS.items() if words & found), None)


def is_part(name: str) -> bool:
    """Whether the whole name is that of a part."""
    return any(name.lower() in words for words in _WORDS.values())


def inside(classes: Collection[str], root: Path, paths: Sequence[Path]) -> Mapping[str, set[str]]:
    """The names of the folders in each folder of a class that hold pictures; "" where pictures lie
    in it directly."""
    found: dict[str, set[str]] = {name: set() for name in classes}
    for path in paths:
        folder, *between, _ = path.relative_to(root).parts
        if folder in found:
            found[folder].add(between[0] if between else "")
    return found


def check_folders(root: Path, names: Collection[str], paths: Sequence[Path]) -> str:
    """A sentence on folders that may be no classes; "" if nothing speaks against them. Raises
    ValueError if they are parts of a data set, or have such parts.

    names  of the folders in `root`
    paths  the pictures below them
    """
    found = sorted(set(names))
    below = inside(found, root, paths)
    parts = [name for name in found if part_of(name)]
    alike = len(parts) > 1 and len(set.intersection(*(below[name] for name in parts))) > 1
    if len(parts) == len(found) or alike:
        raise ValueError(
            f"[ImageFolder] the folders {', '.join(parts)} of {root} seem to be parts of a data "
            f"set, not classes: give one of them, or classes={found!r}"
        )
    shared = set.intersection(*below.values())
    if parts := sorted(filter(is_part, shared)):
        raise ValueError(
            f"[ImageFolder] the folders {some(found)} of {root} have parts of a data set, "
            f"{', '.join(parts)}: move them to {root / parts[0] / found[0]} and the like"
        )
    if len(found) > 1 and len(shared) > 1 and all(each == shared for each in below.values()):
        return (
            f"the classes are the folders {some(found)}, each of which has the folders "
            f"{some(sorted(shared))}: if these are the classes, give one of the former"
        )
    return ""
