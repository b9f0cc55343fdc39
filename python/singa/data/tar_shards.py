"""TarShards: labelled pictures in tar files, by the convention of webdataset."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
import tarfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..raw.check import distinct_texts, integer
from ..raw.words import counted
from .dataset import ItemLists
from .picture_list import Broken, leave_out_broken, some
from .pictures import SUFFIXES, BrokenPictureError, check_channels, read_picture

_MOST_DIGITS = 9  # of a class number


@dataclass(frozen=True)
class _Sample:
    """Where a picture lies: bytes `begin` to `begin` + `size` of a shard."""

    shard: int
    name: str
    begin: int
    size: int


class TarShards(ItemLists):
    """Labelled pictures in tar files, which are read where they lie.

        train = data.TarShards("shards/pets-{000000..000009}.tar")
        loader = data.DataLoader(train, 32, shuffle=True, seed=1, transform=transform)

    path          a tar file, a folder with tar files, a list of tar files, or a pattern with
                  {000..123}, * or ?
    classes       names of the classes, if they are known
    buffer        with `DataLoader(shuffle=True)`, the files come in random order, and pictures are
                  drawn from a buffer of the next `buffer` ones (default 10,000): so files are read
                  almost in sequence, and one that is sorted by class should be shorter than it
    channels      3 (the default): colours; 1: grey
    shorter_side  see `read_picture` (default None)
    on_error      "raise" (the default) or "skip", as for `ImageFolder`; a picture without a class,
                  a class without a picture, and several pictures with one count as broken

    By webdataset's convention, the files of a sample lie one after another and have one name up to
    its first dot: 000123.jpg, 000123.cls. The class is a number in text, from 0. Other files of the
    sample are ignored; of several pictures, such as 000123.jpg and 000123.seg.png, the one with the
    plain name counts.

    The files are indexed at the start, which reads their headers and the classes. Since positions
    are known, a loader resumes exactly, ranks share each batch, and shards may have any lengths.
    Threads and forked processes may read at the same time.

    Attributes: `labels` (int32), `classes` (numbers as text if no names are given), `broken`,
    `name`.

    Raises FileNotFoundError if there is no file, ValueError if a file is no plain tar file (a
    compressed one cannot be read from the middle), for a number that is no class, and with
    `on_error` "raise" for an incomplete sample; ImportError without Pillow.

    >>> import io, tarfile
    >>> from PIL import Image
    >>> picture = io.BytesIO()
    >>> Image.new("RGB", (8, 6)).save(picture, "png")
    >>> with tarfile.open("pets-000000.tar", "w") as shard:
    ...     for name, content in (("1.png", picture.getvalue()), ("1.cls", b"0")):
    ...         entry = tarfile.TarInfo(name)
    ...         entry.size = len(content)
    ...         shard.addfile(entry, io.BytesIO(content))
    ...
    >>> pets = data.TarShards("pets-{000000..000000}.tar", classes=("cat",))
    >>> len(pets), pets[0][0].shape
    (1, (3, 6, 8))
    """

    _lists = ("_samples", "labels")

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        classes: Sequence[str] | None = None,
        *,
        buffer: int = 10_000,
        channels: int = 3,
        shorter_side: int | None = None,
        on_error: str = "raise",
    ) -> None:
        self.buffer = integer("TarShards", "buffer", buffer, 1)
        self.channels = check_channels("TarShards", channels)
        if shorter_side is not None:
            shorter_side = integer("TarShards", "shorter_side", shorter_side, 1)
        self.shorter_side = shorter_side
        self.shards: tuple[Path, ...] = tuple(_files(path))
        if not self.shards:
            raise FileNotFoundError("[TarShards] the list of tar files is empty")
        self.name = self.shards[0].stem if len(self.shards) == 1 else f"{len(self.shards)} shards"
        self._opened = _Opened(self.shards)
        samples: list[_Sample] = []
        labels: list[int] = []
        incomplete: list[tuple[Path, str]] = []
        for number, shard in enumerate(self.shards):
            for sample, label in _index(number, shard, incomplete):
                samples.append(sample)
                labels.append(label)
        why = some([f"{place} ({why})" for place, why in incomplete])
        said = f"[TarShards] not whole: {counted(len(incomplete), 'sample')}: {why}"
        if incomplete and on_error == "raise":
            raise ValueError(said)
        if not samples:
            raise FileNotFoundError(f"[TarShards] no pictures with classes in {some(self.shards)}")
        if incomplete:
            warnings.warn(said, stacklevel=3)
        highest = max(labels)
        self.classes: tuple[str, ...]
        if classes is None:
            self.classes = tuple(str(number) for number in range(highest + 1))
        else:
            self.classes = distinct_texts("TarShards", "classes", classes)
            if highest >= len(self.classes):
                raise ValueError(
                    f"[TarShards] there is a class {highest}, and `classes` has "
                    f"{len(self.classes)} names"
                )
        self.labels: NDArray[np.int32] = np.array(labels, np.int32)
        self._samples = tuple(samples)
        places = [self.shards[each.shard] / each.name for each in samples]
        by_place = dict(zip(places, samples, strict=True))
        kept, unreadable = leave_out_broken(
            "TarShards", places, lambda place: self._read(by_place[place], 1), on_error
        )
        self.broken: Broken = (*incomplete, *unreadable)
        self._keep(kept)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        """A picture, uint8 (C, H, W), and the number of its class.

        Raises BrokenPictureError, OSError, or IndexError outside the set.
        """
        return self._read(self._samples[index], self.shorter_side), int(self.labels[index])

    def __repr__(self) -> str:
        classes = counted(len(self.classes), "class", "classes")
        return f"<TarShards {self.name}: {counted(len(self), 'picture')}, {classes}>"

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """Numbers of the pictures in the order of an epoch: that of the files is drawn, then each
        picture from the next `buffer` ones."""
        rank = rng.permutation(len(self.shards))
        shard_of = np.array([sample.shard for sample in self._samples], np.intp)
        sequence = np.argsort(rank[shard_of], kind="stable")
        count, size = len(sequence), min(self.buffer, len(sequence))
        waiting = sequence[:size].tolist()
        drawn = rng.integers(0, size, max(count - size, 0)).tolist()
        order = []
        for following, slot in zip(sequence[size:].tolist(), drawn, strict=True):
            order.append(waiting[slot])
            waiting[slot] = following
        rest = rng.permutation(size)
        return np.array([*order, *(waiting[slot] for slot in rest)], np.intp)

    def _read(self, sample: _Sample, shorter_side: int | None) -> NDArray[np.uint8]:
        content = self._opened.read(sample.shard, sample.begin, sample.size)
        name = f"{self.shards[sample.shard]}/{sample.name}"
        if len(content) < sample.size:
            raise BrokenPictureError("TarShards", name, "the tar file ends before its end")
        file = _Named(content)
        file.name = name
        return read_picture(file, self.channels, shorter_side)


class _Named(io.BytesIO):
    """Bytes with the name that errors show."""

    name = ""


class _Opened:
    """The files of the shards, each of which stays open after its first use."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._handles: dict[int, int] = {}
        self._lock = threading.Lock()

    def read(self, shard: int, begin: int, size: int) -> bytes:
        """Bytes of a shard, fewer if the file ends before. Raises OSError."""
        with self._lock:
            if shard not in self._handles:
                self._handles[shard] = os.open(self._paths[shard], os.O_RDONLY | os.O_CLOEXEC)
            handle = self._handles[shard]
        return os.pread(handle, size, begin)

    def __del__(self) -> None:
        for handle in self._handles.values():
            with contextlib.suppress(OSError):
                os.close(handle)


def _files(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Iterator[Path]:
    """The tar files that a path means, sorted unless they were listed."""
    if not isinstance(path, str | os.PathLike):
        for each in path:
            yield from _files(each)
        return
    text = os.fspath(path)
    if os.path.isdir(text):
        found = sorted(Path(text).glob("*.tar"))
    elif braces := re.search(r"\{(\d+)\.\.(\d+)\}", text):
        first, last = braces[1], braces[2]
        numbers = range(int(first), int(last) + 1)
        names = (f"{text[: braces.start()]}{number:0{len(first)}}" for number in numbers)
        found = [Path(f"{name}{text[braces.end() :]}") for name in names]
    else:
        found = [Path(text)] if os.path.exists(text) else sorted(map(Path, glob.glob(text)))
    if not found:
        raise FileNotFoundError(f"[TarShards] there is no tar file {text}")
    for each in found:
        if not each.is_file():
            raise FileNotFoundError(f"[TarShards] {each} is no file")
    yield from found


def _index(
    number: int, shard: Path, incomplete: list[tuple[Path, str]]
) -> Iterator[tuple[_Sample, int]]:
    """The samples of a shard with their classes. Adds those that are not whole to `incomplete`."""
    try:
        with tarfile.open(shard, "r:") as file:
            members = ((m.name, m.offset_data, m.size) for m in file if m.isfile() and _counts(m))
            for key, parts in _grouped(members):
                pictures = [part for part in parts if _suffix(part[0]) in SUFFIXES]
                plain = [part for part in pictures if part[0] == key + Path(part[0]).suffix]
                pictures = plain if len(plain) == 1 else pictures
                picture = pictures[0] if len(pictures) == 1 else None
                label = next((p for p in parts if p[0][len(key) :] == ".cls"), None)
                if picture is None or label is None:
                    why = "has no class (.cls)" if label is None else "has no picture"
                    if len(pictures) > 1:
                        why = f"has {len(pictures)} pictures: {some([p[0] for p in pictures])}"
                    incomplete.append((shard / key, why))
                    continue
                yield _Sample(number, *picture), _class_number(shard, file, label)
    except tarfile.TarError as error:
        raise ValueError(
            f"[TarShards] {shard} is no plain tar file ({error}); unpack a compressed one"
        ) from None


def _counts(member: tarfile.TarInfo) -> bool:
    return not member.issparse() and not os.path.basename(member.name).startswith(".")


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _grouped(
    members: Iterable[tuple[str, int, int]],
) -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
    """Members that follow one another with the same name up to the first dot of its last part."""
    key, parts = "", list[tuple[str, int, int]]()
    for member in members:
        folder, _, base = member[0].rpartition("/")
        own = f"{folder}/{base.partition('.')[0]}" if folder else base.partition(".")[0]
        if parts and own != key:
            yield key, parts
            parts = []
        key = own
        parts.append(member)
    if parts:
        yield key, parts


def _class_number(shard: Path, file: tarfile.TarFile, label: tuple[str, int, int]) -> int:
    name, begin, size = label
    assert file.fileobj is not None
    after = file.fileobj.tell()
    file.fileobj.seek(begin)
    text = file.fileobj.read(min(size, 64)).decode("ascii", "replace").strip()
    file.fileobj.seek(after)
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise ValueError(
            f"[TarShards] {shard}/{name} holds {text!r}, not the number of a class from 0"
        )
    return int(text)
