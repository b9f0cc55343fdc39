"""The data of `python -m singa train`: which kind a path is, and loaders of it."""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import data, device, distributed
from ..data.parts import TEST, TRAIN, VALIDATION, is_part, part_of
from ..data.picture_list import LABEL_SUFFIXES, below, is_visible, some
from ..data.pictures import SUFFIXES
from ..data.transforms import Transform
from ..raw.words import counted
from ..training.program import say, warnings_as_notes
from ..training.recipe import load_cifar10
from ..training.task import TASKS, OneClass, Regression, SeveralLabels, Task
from .picture_size import fitting_epochs, fitting_size, usual_sides

Statistics = tuple[Sequence[float], Sequence[float]]

#: Range of a random crop's share of the area of pictures that are no larger than the network's
#: images, where less would leave too little.
_WHOLE = (0.7, 1.0)

#: Share of each class that is held out.
DEFAULT_SPLIT = 0.2

EXPECTED = """\
  nothing                       generated images of ten figures
  a folder with CIFAR's files   CIFAR-10 or CIFAR-100, as they are published
  a folder with MNIST's files   MNIST or Fashion-MNIST, gzipped or not
  a folder of pictures          pets/cat/1.jpg, pets/dog/2.png, ...; or the
                                same in pets/train and pets/val
  a CSV or TSV file             pets/labels.csv with lines such as 1.jpg,cat;
                                with --multilabel 1.jpg,cat|dog or a column of
                                0 and 1 for each label; with --regression
                                1.jpg,3.5 or several columns of numbers
"""


@dataclass
class PictureSets:
    """Training and test data, and what prepares them.

    kind      "generated", "cifar10", "cifar100", "mnist" or "pictures"
    train     for training, with augmentation `augment`
    test      for the test, prepared by `prepare`
    classes   names of the classes, labels or numbers
    channels  of the images
    size      side of what the network gets, in pixels
    task      what an image has: see `training.task`
    cut       of long pictures, a sentence on what they lose
    """

    kind: str
    train: Any
    test: Any
    classes: tuple[str, ...]
    augment: Transform
    prepare: Transform
    channels: int
    size: int
    task: Task = field(default_factory=OneClass)
    cut: str = ""

    def for_prediction(self) -> Transform:
        """What prepares a picture of any size."""
        if self.kind == "pictures":
            return self.prepare
        return data.Compose(data.Resize((self.size, self.size)), self.prepare)

    def loaders(self, args: argparse.Namespace) -> tuple[data.DataLoader, data.DataLoader]:
        """Loaders of the training and the test images."""
        common: dict[str, Any] = {"device": device.get_default_device()}
        common["shard"] = distributed.shard()
        batch = 200
        if self.kind == "pictures":
            batch = args.batch_size
            common["num_workers"] = args.workers
        training: dict[str, Any] = {"virtual_ranks": args.virtual_ranks}
        # A short last batch of pictures would disturb batch norm.
        training["drop_last"] = self.kind == "pictures" and len(self.train) > args.batch_size
        if training["drop_last"] and (left := len(self.train) % args.batch_size):
            say(
                f"each epoch leaves out {left} of {counted(len(self.train), 'picture')}, others "
                f"each time, since batches have {args.batch_size}"
            )
        return (
            data.DataLoader(
                self.train, args.batch_size, True, args.seed, self.augment, **common, **training
            ),
            data.DataLoader(self.test, batch, transform=self.prepare, **common),
        )


def kind_of(path: str | None, download: bool = False) -> str:
    """What lies at `path`: a `kind` of PictureSets. With `download`, CIFAR-10 if it is missing.

    Raises FileNotFoundError if there is nothing, ValueError if it is none of them.
    """
    if path is None:
        return "generated"
    root = Path(path)
    if download:
        found = None
        with contextlib.suppress(OSError, ValueError):
            found = kind_of(path)
        if found not in (None, "cifar10"):
            raise ValueError(f"{path} has other data: --download gets CIFAR-10 into a new folder")
        return "cifar10"
    if not root.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if root.is_file():
        if root.suffix.lower() not in LABEL_SUFFIXES:
            raise ValueError(f"{path} is a file, but no CSV file. --data takes\n{EXPECTED}")
        return "pictures"
    for kind, places in _FILES.items():
        if any((root / place).exists() for place in places):
            return kind
    if parts_of(path) or _has_pictures(root):
        return "pictures"
    hint = "--download gets CIFAR-10"
    if lists := sorted(root.glob("*.csv")):
        hint = f"it has a CSV file: --data {lists[0]}"
    elif any(each.suffix.lower() in SUFFIXES for each in root.iterdir()):
        hint = "its pictures lie in no folder of a class"
    raise ValueError(f"{path} holds no data that are recognised; {hint}. --data takes\n{EXPECTED}")


_FILES = {
    "cifar10": (
        *("data_batch_1", "data_batch_1.bin", "test_batch", "test_batch.bin"),
        *("cifar-10-batches-py", "cifar-10-batches-bin"),
    ),
    "cifar100": ("train.bin", "cifar-100-python", "cifar-100-binary"),
    "mnist": tuple(
        f"{folder}train-images{dot}idx3-ubyte{packed}"
        for folder in ("", "raw/", "MNIST/raw/")
        for dot in "-."
        for packed in ("", ".gz")
    ),
}


def parts_of(path: str | None) -> tuple[Path, Path] | None:
    """The folders of the training and the test part in a folder, if there are both: by their whole
    names, or by a word in them where both have folders of the same classes. The test is that of
    validation, where there are two."""
    root = Path(path or "")
    if path is None or not root.is_dir():
        return None
    folders = _folders(root)
    for among in ([each for each in folders if is_part(each.name)], folders):
        found = {part_of(each.name): _inside(each) for each in reversed(among)}
        train, test = found.get(TRAIN), found.get(VALIDATION, found.get(TEST))
        if train is None or test is None or not _has_pictures(train):
            continue
        classes = [{each.name for each in _folders(part)} for part in (train, test)]
        if among is not folders or len(classes[0] & classes[1]) > 1:
            return train, test
    return None


def _folders(root: Path) -> list[Path]:
    return sorted(each for each in root.iterdir() if each.is_dir() and is_visible(each.name))


def _inside(part: Path) -> Path:
    """A part of a data set, which may be the only folder in one of the same name."""
    inner = _folders(part)
    return inner[0] if [each.name for each in inner] == [part.name] else part


def _unused(root: Path, parts: tuple[Path, Path]) -> list[str]:
    """Names of folders beside the training and the test part that hold pictures, too."""
    return [each.name for each in _folders(root) if _inside(each) not in parts and below(each)]


def same_contents(paths: Sequence[Path]) -> list[list[int]]:
    """The numbers of files with the same contents, perhaps under several names."""
    by_size: dict[int, list[int]] = {}
    for place, path in enumerate(paths):
        by_size.setdefault(path.stat().st_size, []).append(place)
    by_content: dict[bytes, list[int]] = {}
    for places in by_size.values():
        for place in places if len(places) > 1 else []:
            by_content.setdefault(_digest(paths[place]), []).append(place)
    return [places for places in by_content.values() if len(places) > 1]


def in_both(groups: Sequence[Sequence[int]], count: int) -> list[int]:
    """Of groups of numbers those of the test, from `count` on, that have one of the training."""
    return sorted(i for each in groups if min(each) < count for i in each if i >= count)


def _warn_of_contents(train: data.ImageFolder, test: data.ImageFolder) -> None:
    """Warns of pictures that have several classes, and of those of the test that the training has,
    too, perhaps under another name."""
    count, paths = len(train.paths), [*train.paths, *test.paths]
    groups = same_contents(paths)
    if train.task == OneClass.kind:
        of_training = [[place for place in places if place < count] for places in groups]
        mixed = [places for places in of_training if len({*train.labels[places]}) > 1]
        if several := [paths[place] for places in mixed for place in places]:
            warnings.warn(
                f"{counted(len(several), 'file')} of the training with the pictures of another "
                f"class: {some(several)}",
                stacklevel=1,
            )
    if both := [paths[place] for place in in_both(groups, count)]:
        warnings.warn(
            f"{counted(len(both), 'picture')} in training and in the test, which then says too "
            f"much: {some(both)}",
            stacklevel=1,
        )


def _warn_of_classes(train: data.ImageFolder, test: data.ImageFolder) -> None:
    """Warns of classes without pictures in the training or the test."""
    if train.task != OneClass.kind:
        return
    for part, name in ((train, "training"), (test, "test")):
        counts = np.bincount(part.labels, minlength=len(train.classes))
        if none := [train.classes[place] for place in np.flatnonzero(counts == 0)]:
            warnings.warn(f"the {name} has no picture of {some(none)}", stacklevel=1)


def _digest(path: Path) -> bytes:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _describe(train: data.ImageFolder, asks_for_weights: bool) -> None:
    """Says what the labels of the training pictures are."""
    names = _shortened(train.classes)
    if train.task == Regression.kind:
        say(f"{counted(len(train.classes), 'number')} to predict: {names}")
        for name, column in zip(train.classes, train.labels.astype(np.float64).T, strict=True):
            say(
                f"{name}: {column.min():.6g} to {column.max():.6g}, mean {column.mean():.6g}, "
                f"standard deviation {column.std():.6g}"
            )
        return
    if train.task == SeveralLabels.kind:
        each = train.labels.sum(1)
        average = f"a picture has {each.mean():.2g} on average"
        say(f"{counted(len(train.classes), 'label')}: {names}; {average}")
        counts, advice = train.labels.sum(0).astype(np.int64), ""
    else:
        say(f"{len(train.classes)} classes: {names}")
        counts = np.bincount(train.labels, minlength=len(train.classes))
        advice = "; --class-weights balanced weighs classes alike" if asks_for_weights else ""
    rare = np.flatnonzero(10 * counts < counts.max())  # less than a tenth of the largest one
    if few := [f"{train.classes[place]} {counts[place]} of {counts.max()}" for place in rare]:
        say(f"few pictures for the training: {some(few)}{advice}")


def _has_pictures(root: Path) -> bool:
    """Whether a folder in `root` has a picture."""
    for folder in root.iterdir():
        if folder.is_dir() and is_visible(folder.name):
            for _, _, files in os.walk(folder, followlinks=True):
                if any(Path(name).suffix.lower() in SUFFIXES for name in files if is_visible(name)):
                    return True
    return False


def load(args: argparse.Namespace, statistics: Statistics | None = None) -> PictureSets:
    """The data that the arguments ask for. Says how much there is. Pictures in files are normalised
    by `statistics`, mean and standard deviation of each channel, or those of ImageNet."""
    kind = kind_of(args.data, args.download)
    sets = _load_pictures(args, statistics) if kind == "pictures" else _load_arrays(kind, args)
    if args.images is not None:
        sets.train = _head(sets.train, args.images)
    say(
        f"{sets.train.name}: {counted(len(sets.train), 'image')}; "
        f"{'held out' if kind == 'pictures' else sets.test.name}: {len(sets.test)}"
    )
    if kind == "pictures":
        say(f"the network gets {sets.size} x {sets.size} pixels of each{sets.cut}")
    return sets


def choose_by_pictures(args: argparse.Namespace) -> None:
    """Sets the size of the images of a folder of pictures, and the number of epochs, unless they
    are given."""
    if None not in (args.size, args.epochs) or kind_of(args.data, args.download) != "pictures":
        return
    parts = parts_of(args.data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `load` warns
        place = args.data if parts is None else parts[0]
        listed = data.ImageFolder(place, columns=columns_of(args.columns), task=task_name(args))
    if args.size is None:
        args.size = fitting_size(args.architecture, usual_sides(listed.paths)[0])
    if args.epochs is None:
        count = len(listed)
        if parts is None:
            held_out = listed.held_out
            share = 1 - (args.split or DEFAULT_SPLIT)
            count = int(count * share if held_out is None else (~held_out).sum())
        args.epochs = fitting_epochs(min(count, args.images or count), args.size)
    args.settings |= {"size": args.size, "epochs": args.epochs}


def columns_of(text: str | None) -> tuple[str, ...] | None:
    """The names that --columns has: separated by commas, and those with a comma in quotes."""
    if text is None:
        return None
    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True)))


def task_name(args: argparse.Namespace) -> str:
    """What `data.ImageFolder` calls the task that the options ask for."""
    if args.multilabel:
        return SeveralLabels.kind
    return Regression.kind if args.regression else OneClass.kind


def _load_arrays(kind: str, args: argparse.Namespace) -> PictureSets:
    statistics: Any
    if kind == "generated":
        train, test = data.shapes("train", args.images), data.shapes("test")
        statistics = data.SHAPES_MEAN, data.SHAPES_STD
    elif kind == "mnist":
        train, test = data.load_mnist(args.data), data.load_mnist(args.data, "test")
        statistics = data.MNIST_MEAN, data.MNIST_STD
    elif kind == "cifar100":
        train, test = data.load_cifar100(args.data), data.load_cifar100(args.data, "test")
        statistics = data.CIFAR100_MEAN, data.CIFAR100_STD
    else:
        train, test = load_cifar10(args.data, args.download)
        statistics = data.CIFAR10_MEAN, data.CIFAR10_STD
    plain = data.Normalize(*statistics)
    augment: Transform = data.standard_augmentation(*statistics)
    if kind == "mnist":  # a mirrored digit is none
        augment = data.Compose(data.RandomCrop(2), plain)
    channels, size = train.images.shape[1], train.images.shape[2]
    augment = plain if args.no_augment else augment
    return PictureSets(kind, train, test, train.classes, augment, plain, channels, size)


def _load_pictures(args: argparse.Namespace, statistics: Statistics | None) -> PictureSets:
    # The cache and the check of all files are worth it only with the sizes that are needed.
    common: dict[str, Any] = {"on_error": "skip", "cache": args.cache}
    common["shorter_side"] = round(args.size / 0.875 * 1.5)
    common |= {"task": task_name(args), "columns": columns_of(args.columns)}
    root = Path(args.data)
    parts = parts_of(args.data)
    with warnings_as_notes():
        if parts is None:
            whole = data.ImageFolder(root, **common)
            # Older runs keep the default, also where a column says what is held out.
            is_asked = whole.held_out is None or "split" in args.given
            train, test = whole.split(args.split if is_asked else None, args.seed)
            if whole.held_out is not None:
                say(f"column {whole._split_column!r} says which pictures are held out")
        else:
            if not _has_pictures(parts[1]):
                raise ValueError(
                    f"{parts[1]} has no folder of a class with pictures, so nothing can be tested "
                    f"with it: --data {parts[0]} holds out a share of the training"
                )
            train = data.ImageFolder(parts[0], **common)
            test = data.ImageFolder(parts[1], classes=train.classes, **common)
            if others := _unused(root, parts):
                warnings.warn(
                    f"tested on {parts[1].name}; not used: {', '.join(others)}", stacklevel=1
                )
        _warn_of_classes(train, test)
        _warn_of_contents(train, test)
    train.name = root.stem if root.is_file() else root.resolve().name
    if len(train.classes) < 2 and train.task == OneClass.kind:
        raise ValueError(
            f"{root} has one class, {train.classes[0]}: expected a folder for each class"
        )
    if not len(train) or not len(test):
        raise ValueError(
            f"{root}: {counted(len(train), 'picture')} for the training, and {len(test)} for the "
            "test: both need some"
        )
    _describe(train, not args.class_weights)
    task = TASKS[train.task].of(train.classes, train.labels)
    statistics = statistics or (data.IMAGENET_MEAN, data.IMAGENET_STD)
    # Of pictures that are no larger nothing is cut off.
    shorter, longer = usual_sides(train.paths)
    is_whole = shorter <= args.size
    prepare = data.evaluation_transform(args.size, *statistics, 1.0 if is_whole else 0.875)
    augment: Transform = prepare
    if not args.no_augment:
        augment = data.training_transform(
            args.size, *statistics, args.augment, *([_WHOLE] if is_whole else [])
        )
    cut = ""
    if 2 * longer > 3 * shorter:  # not that of a photograph
        cut = f": the middle square, of pictures with sides of {shorter} and {longer} pixels"
    return PictureSets(
        *("pictures", train, test, train.classes, augment, prepare, 3, args.size, task, cut)
    )


def _shortened(names: tuple[str, ...], most: int = 10) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _head(images: Any, count: int) -> Any:
    if isinstance(images, data.ImageSet):
        return images.head(count)
    # Files are in the order of their classes.
    return images if count >= len(images) else images.split(count / len(images), 0)[1]
