"""Lists of picture files: from folders, and without broken ones."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..raw.check import one_of
from .pictures import SUFFIXES, UNREADABLE_SUFFIXES, BrokenPictureError, require_pillow

#: Suffixes of label files. The last one is that of other texts, too.
LABEL_SUFFIXES = (".csv", ".tsv", ".txt")
#: Files that were left out, with reasons.
Broken = tuple[tuple[Path, str], ...]


def below(folder: Path) -> list[Path]:
    """All pictures below a folder, sorted. Hidden files and folders are left out.

    Links to folders are followed, each folder once. Warns of pictures that Pillow cannot read.
    """
    found, unreadable = [], []
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if is_visible(name))
        for name in filter(is_visible, files):
            suffix = os.path.splitext(name)[1].lower()
            if suffix in SUFFIXES:
                found.append(Path(place, name))
            elif suffix in UNREADABLE_SUFFIXES:
                unreadable.append(Path(place, name))
    if unreadable:
        warnings.warn(
            f"[pictures] not used, since their formats are not read: {some(sorted(unreadable))}; "
            f"convert what is to be used",
            stacklevel=5,
        )
    return sorted(found)


def is_visible(name: str) -> bool:
    """Whether a name is none of hidden files, nor of what systems leave behind."""
    return not name.startswith(".") and name != "__MACOSX"


def from_folders(root: Path) -> tuple[tuple[list[Path], list[str]], list[Path]]:
    """Pictures and their classes, which are the names of the folders in `root`; and folders without
    pictures. Raises FileNotFoundError if there is no picture."""
    paths: list[Path] = []
    names: list[str] = []
    empty = []
    for folder in sorted(each for each in root.iterdir() if each.is_dir()):
        if not is_visible(folder.name):
            continue
        found = below(folder)
        paths += found
        names += [folder.name] * len(found)
        if not found:
            empty.append(folder)
    if not paths:
        raise FileNotFoundError(
            f"[ImageFolder] no pictures in folders of {root}: expected "
            f"{root / 'CLASS' / 'picture.jpg'}, or a CSV file that lists pictures (csv=)"
        )
    return (paths, names), empty


def unused_in(root: Path) -> str:
    """A sentence on pictures and label files that lie in `root` beside the folders of classes, and
    are not used; "" if there are none."""
    files = sorted(each for each in root.iterdir() if is_visible(each.name) and each.is_file())
    pictures = [each.name for each in files if each.suffix.lower() in SUFFIXES]
    lists = [each.name for each in files if each.suffix.lower() in LABEL_SUFFIXES[:2]]
    said = [f"pictures in no folder of a class: {some(pictures)}"] if pictures else []
    if lists:
        how = f"{root / lists[0]} instead of the folder is read"
        said.append(f"label files: {some(lists)} ({how})")
    return f"not used of {root}: {'; '.join(said)}" if said else ""


class Suffixes:
    """The file that a name in a list means, with or without its suffix, its folders separated by
    slashes of one kind or the other; None if there is none."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._by_stem: dict[Path, Path] | None = None

    def __call__(self, name: str) -> Path | None:
        for each in dict.fromkeys((name, name.replace("\\", "/"))):
            path = self.root / each
            if path.is_file():
                return path
            if path in self._stems():
                return self._stems()[path]
        return None

    def elsewhere(self, name: str) -> Path | None:
        """A picture below the root that has the name's last part, perhaps in other letters of
        upper and lower case."""
        last = name.replace("\\", "/").rpartition("/")[2]
        known = {each: path for stem, path in self._stems().items() for each in (stem, path)}
        for like in (str, str.casefold):
            found = (path for each, path in known.items() if like(each.name) == like(last))
            if path := next(found, None):
                return path
        return None

    def _stems(self) -> dict[Path, Path]:
        if self._by_stem is None:
            self._by_stem = {each.with_suffix(""): each for each in below(self.root)}
        return self._by_stem


def looks_like_picture(name: str) -> bool:
    """Whether a name has the suffix of a picture."""
    return os.path.splitext(name)[1].lower() in SUFFIXES


def leave_out_broken(
    op: str, paths: Sequence[Path], read: Callable[[Path], object], on_error: str
) -> tuple[list[int], Broken]:
    """Numbers of the paths that can be read, and the others with reasons, which a warning names.

    With `on_error` "raise" nothing is read. Raises ValueError for a value other than "raise" and
    "skip", and if no path can be read; ImportError without Pillow.
    """
    one_of(op, "on_error", on_error, ["raise", "skip"])
    require_pillow(op)
    if on_error == "raise":
        return list(range(len(paths))), ()

    def reason(path: Path) -> str | None:
        try:
            read(path)
        except BrokenPictureError as error:
            return error.reason
        except FileNotFoundError:
            return "no such file"
        return None

    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 8)) as pool:
        reasons = list(pool.map(reason, paths))
    broken = tuple((p, why) for p, why in zip(paths, reasons, strict=True) if why is not None)
    if len(broken) == len(paths):
        raise ValueError(f"[{op}] none of {len(paths)} files can be read: {_listed(broken)}")
    if broken:
        warnings.warn(
            f"[{op}] {len(broken)} of {len(paths)} files cannot be read and are left out: "
            f"{_listed(broken)}",
            stacklevel=4,
        )
    return [number for number, why in enumerate(reasons) if why is None], broken


def _listed(broken: Broken) -> str:
    return some([f"{path} ({why})" for path, why in broken])


def some(things: Sequence[object], most: int = 5) -> str:
    """The first few things, and how many more there are."""
    text = ", ".join(str(thing) for thing in things[:most])
    return f"{text} and {len(things) - most} more" if len(things) > most else text
