"""ImageFolder: pictures in folders, or listed in a CSV file, with their classes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..raw import words
from ..raw.calls import says_what_to_write
from ..raw.check import distinct_texts, integer, one_of, texts
from ..raw.words import counted
from . import label_file, picture_list
from .dataset import ItemLists
from .label_kinds import KINDS, numbered, said_of_names
from .parts import check_folders
from .picture_cache import PictureCache
from .picture_list import Broken, leave_out_broken, unused_in
from .pictures import check_channels, read_picture


class ImageFolder(ItemLists):
    """Labelled pictures in files, which are decoded when they are asked for.

        pets = data.ImageFolder("pets")           # pets/cat/1.jpg, pets/dog/old/7.png, ...
        train, test = pets.split(0.2, seed=1)     # a fifth of each class for the test
        image, label = train[0]                   # uint8 (3, H, W), a number
        pets.classes[label]

    path          a folder with a folder of pictures for each class; or a CSV file, or a folder of
                  pictures that `csv` lists
    csv           a file with a line for each picture: its path below `path`, its class. A first
                  line with names of columns chooses them by usual names, such as file and label;
                  otherwise the first two count. Paths may lack the suffix. Instead of one column
                  of classes there may be one for each class, with a single 1 in each line. A column
                  such as is_valid (0 or 1) or split (train or test) says which pictures `split`
                  holds out. Other columns are refused
    columns       the names of the columns of files and classes in the CSV file, if there are others
                  besides, or their names are unusual; of labels or numbers there may be several
    classes       names of the classes in the order of their numbers, for a set that belongs to
                  another one; by default sorted as text, or as numbers if a CSV file has numbers.
                  Of other tasks, names of the labels or numbers
    task          what the CSV file says of a picture. "classes" (the default): its class.
                  "multilabel": any number of labels, in a column with lists such as cat|dog or in
                  a column of 0 and 1 for each label. "regression": a number, in each of one or more
                  columns
    channels      3 (the default): colours; 1: grey
    shorter_side  pictures whose shorter side is longer are reduced to it, which makes decoding
                  of JPEG files and the cache's files smaller; None (the default): never
    cache         "memory", or a folder that keeps decoded pictures; None (the default): none
    on_error      "raise" (the default): reading a broken file raises BrokenPictureError; "skip":
                  all files are read once at the start, and a warning names broken ones, which are
                  left out

    `read_picture` says how orientation, palettes, transparency and other kinds are handled. Hidden
    files, files that are no pictures, and pictures outside the folders of classes are ignored.
    Folders without pictures are no classes, and a warning names them.

    Attributes: `paths`, `labels` (int32; of several labels 0 and 1, float32 (n, labels); of numbers
    float32 (n, columns)), `classes`, `task`, `broken` (paths left out, with reasons), `held_out`
    (bool for each picture, where a column of the CSV file says it, else None), `name`.

    Raises FileNotFoundError if there is no such folder, if there are no pictures in it, or if a
    picture in the CSV file is missing; ValueError for classes that are not in `classes`; for lines
    of a CSV file without two columns, a picture with two classes, lists of classes, and numbers
    that are no classes (give `classes` if they are), unless the task is theirs; for folders that
    are called train, test and the like, which are parts of a data set; for another task without a
    CSV file; TypeError for a text instead of a list of names; ImportError without Pillow.

    >>> from pathlib import Path
    >>> from PIL import Image
    >>> for name in ("pets/cat/1.png", "pets/dog/1.png"):
    ...     Path(name).parent.mkdir(parents=True)
    ...     Image.new("RGB", (8, 6)).save(name)
    ...
    >>> pets = data.ImageFolder("pets")
    >>> pets.classes, pets[1][0].shape, int(pets[1][1])
    (('cat', 'dog'), (3, 6, 8), 1)
    """

    _lists = ("paths", "labels", "held_out")

    def __init__(
        self,
        path: str | os.PathLike[str],
        csv: str | os.PathLike[str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        task: str = "classes",
        channels: int = 3,
        shorter_side: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        on_error: str = "raise",
    ) -> None:
        self.channels = check_channels("ImageFolder", channels)
        if shorter_side is not None:
            shorter_side = integer("ImageFolder", "shorter_side", shorter_side, 1)
        self.shorter_side = shorter_side
        self.task = one_of("ImageFolder", "task", task, KINDS)
        if classes is not None:
            classes = distinct_texts("ImageFolder", "classes", classes)
        if columns is not None:
            columns = texts("ImageFolder", "columns", columns)
        root = Path(path)
        if root.is_file() and root.suffix.lower() in label_file.SUFFIXES and csv is None:
            root, csv = root.parent, root.name
        if not root.is_dir():
            what = "is no folder and no CSV file" if root.exists() else "does not exist"
            raise FileNotFoundError(f"[ImageFolder] {root} {what}")
        self.name = root.resolve().name
        self._split_column = ""
        self.held_out: NDArray[np.bool_] | None = None
        self._cache = None
        if cache is not None:
            self._cache = PictureCache(cache, repr((self.channels, shorter_side)))
        kind = KINDS[task]
        if csv is None:
            if task != "classes":
                raise ValueError(
                    f"[ImageFolder] folders say what class a picture has: task={task!r} needs a "
                    f"CSV file that lists pictures with {kind.one}"
                )
            if columns is not None:
                raise ValueError(
                    f"[ImageFolder] columns={columns!r} is for a CSV file, and {root} is a folder"
                )
            found, empty = picture_list.from_folders(root)
            if empty:
                warnings.warn(
                    f"[ImageFolder] folders without pictures, which are no classes: "
                    f"{picture_list.some(empty)}",
                    stacklevel=3,
                )
            paths, names = found
            said = [unused_in(root)]
            if classes is None or not set(names) <= set(map(str, classes)):
                said += [check_folders(root, names, paths), said_of_names(names)]
            for text in filter(None, said):
                warnings.warn(f"[ImageFolder] {text}", stacklevel=3)
            self.classes, labels = numbered(names, classes, root, by_number=False)
        else:
            listed = label_file.read(root, root / csv, columns, on_error == "skip", kind)
            paths = listed.paths
            self.classes, labels = kind.targets(root / csv, listed.labels, listed.columns, classes)
            if listed.held_out is not None:
                self._split_column = listed.split_column
                self.held_out = np.array(listed.held_out)
        self.paths: tuple[Path, ...] = tuple(paths)
        self.labels: NDArray[Any] = labels
        self.broken: Broken
        kept, self.broken = leave_out_broken("ImageFolder", paths, self._check, on_error)
        self._keep(kept)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], Any]:
        """A picture, uint8 (C, H, W), and the number of its class; of another task, its row of
        `labels`. Nobody may change the picture.

        Raises BrokenPictureError, FileNotFoundError, or IndexError outside the set.
        """
        label = self.labels[index]
        return self._read(self.paths[index]), label if label.ndim else int(label)

    def __repr__(self) -> str:
        kinds = counted(len(self.classes), KINDS[self.task].noun, KINDS[self.task].several)
        return f"<ImageFolder {self.name}: {counted(len(self), 'picture')}, {kinds}>"

    @says_what_to_write("split")
    def split(self, fraction: float | None = None, seed: int = 0) -> tuple[Self, Self]:
        """Two sets with the same classes: `fraction` of each class (default 0.2), drawn with
        `seed`, is in the second. Where a column of the CSV file says which pictures are held out,
        those are. Pictures with several labels count as of the rarest one, those with numbers as of
        one class.

        Raises ValueError unless `fraction` lies in [0, 1], and for one beside such a column. See
        `data.split_indices`.
        """
        if self.held_out is None:
            return super().split(0.2 if fraction is None else fraction, seed)
        if fraction is not None:
            raise ValueError(
                f"[ImageFolder] column {self._split_column!r} says which pictures are held out: "
                "call split() without a fraction (singa train: leave out --split), or remove the "
                "column"
            )
        held_out = self.held_out
        parts = self.take(np.flatnonzero(~held_out)), self.take(np.flatnonzero(held_out))
        for part in parts:
            part.held_out = None  # it may be split further
        return parts

    def _groups(self) -> NDArray[np.integer]:
        return KINDS[self.task].groups(self.labels)

    def _read(self, path: Path) -> NDArray[np.uint8]:
        if self._cache is None:
            return read_picture(path, self.channels, self.shorter_side)
        return self._cache.get(path, lambda: read_picture(path, self.channels, self.shorter_side))

    def _check(self, path: Path) -> None:
        """Raises as `_read` does, but without a cache reads JPEG files several times faster."""
        if self._cache is None:
            read_picture(path, self.channels, shorter_side=1)
        else:
            self._read(path)


words.answers(ImageFolder, words.DATASETS)
