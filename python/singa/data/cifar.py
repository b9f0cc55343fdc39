"""Reads CIFAR-10 and CIFAR-100 from the files that their authors publish.

There are two formats. "binary" (`data_batch_1.bin` …) has records of one or two label bytes and
3072 pixel bytes: planes of red, green and blue, each with 32 rows of 32. "python" (`data_batch_1`
…) has pickled dicts, which `pickle_reader` reads without executing code. A folder may have only
some of the training files, and a file may have fewer records than the published one.

Source: Alex Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..raw.calls import says_what_to_write
from ..raw.check import one_of
from . import pickle_reader
from .dataset import ImageSet, check_labels
from .integrity import Archive, Published, find_folder, read_file, read_sums

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
# Per channel, of the 50,000 training images, for pixels scaled to 0 … 1.
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
CIFAR100_MEAN, CIFAR100_STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

_IMAGE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_NAMES_LIMIT = 1 << 16


@dataclass(frozen=True)
class _Labels:
    """One labelling of the images of a set."""

    key: str  # of the labels in the dict of the Python format
    byte: int  # of the label in a binary record
    names_key: str
    names_file: str  # of the binary format
    classes: tuple[str, ...]  # used if the folder has no list of names


@dataclass(frozen=True)
class _Format:
    """Files of one of the two formats.

    Digests are MD5 for Python files, and SHA-1 for binary files, which other libraries publish.
    """

    subfolder: str  # in the archive
    files: dict[str, dict[str, Published]]  # split → file name → published size and digest
    names: Published | None  # file of class names of the Python format
    archive: Archive


@dataclass(frozen=True)
class _Cifar:
    name: str
    per_file: dict[str, int]  # number of records in a published file, by split
    published: dict[str, int]  # number of records in a split
    label_bytes: int
    labels: dict[str, _Labels]
    names_file: str  # of the Python format
    formats: dict[str, _Format]


_SITE = "https://www.cs.toronto.edu/~kriz/"

_CIFAR10 = _Cifar(
    name="cifar10",
    per_file={"train": 10_000, "test": 10_000},
    published={"train": 50_000, "test": 10_000},
    label_bytes=1,
    labels={"fine": _Labels("labels", 0, "label_names", "batches.meta.txt", CIFAR10_CLASSES)},
    names_file="batches.meta",
    formats={
        "binary": _Format(
            subfolder="cifar-10-batches-bin",
            files={
                "train": {
                    f"data_batch_{number}.bin": Published(30_730_000, digest)
                    for number, digest in enumerate(
                        (
                            "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
                            "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
                            "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
                            "aab85764eb3584312d3c7f65fd2fd016e36a258e",
                            "26e2849e66a845b7f1e4614ae70f4889ae604628",
                        ),
                        start=1,
                    )
                },
                "test": {
                    "test_batch.bin": Published(
                        30_730_000, "67eb016db431130d61cd03c7ad570b013799c88c"
                    )
                },
            },
            names=None,
            archive=Archive(
                _SITE + "cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"
            ),
        ),
        "python": _Format(
            subfolder="cifar-10-batches-py",
            files={
                "train": {
                    "data_batch_1": Published(31_035_704, "c99cafc152244af753f735de768cd75f"),
                    "data_batch_2": Published(31_035_320, "d4bba439e000b95fd0a9bffe97cbabec"),
                    "data_batch_3": Published(31_035_999, "54ebc095f3ab1f0389bbae665268c751"),
                    "data_batch_4": Published(31_035_696, "634d18415352ddfa80567beed471001a"),
                    "data_batch_5": Published(31_035_623, "482c414d41f54cd18b22e5b47cb7c3cb"),
                },
                "test": {"test_batch": Published(31_035_526, "40351d587109b95175f43aff81a1287e")},
            },
            names=Published(158, "5ff9c542aee3614f3951f8cda6e48888"),
            archive=Archive(
                _SITE + "cifar-10-python.tar.gz", 170_498_071, "c58f30108f718f92721af3b95e74349a"
            ),
        ),
    },
)

_CIFAR100 = _Cifar(
    name="cifar100",
    per_file={"train": 50_000, "test": 10_000},
    published={"train": 50_000, "test": 10_000},
    label_bytes=2,
    labels={
        "fine": _Labels(
            "fine_labels",
            1,
            "fine_label_names",
            "fine_label_names.txt",
            tuple(f"class {number}" for number in range(100)),
        ),
        "coarse": _Labels(
            "coarse_labels",
            0,
            "coarse_label_names",
            "coarse_label_names.txt",
            tuple(f"superclass {number}" for number in range(20)),
        ),
    },
    names_file="meta",
    formats={
        "binary": _Format(
            subfolder="cifar-100-binary",
            files={
                "train": {
                    "train.bin": Published(153_700_000, "e207cd2e05b73b1393c74c7f5e7bea451d63e08e")
                },
                "test": {
                    "test.bin": Published(30_740_000, "8fb6623e830365ff53cf14adec797474f5478006")
                },
            },
            names=None,
            archive=Archive(
                _SITE + "cifar-100-binary.tar.gz", 168_513_733, "03b5dce01913d631647c71ecec9e9cb8"
            ),
        ),
        "python": _Format(
            subfolder="cifar-100-python",
            files={
                "train": {"train": Published(155_249_918, "16019d7e3df5f24257cddd939b257f8d")},
                "test": {"test": Published(31_049_693, "f0ef6b0ae62326f3e7ffdfab6717acfc")},
            },
            names=Published(1_499, "7973b15100ade9c7d40fb424638fde48"),
            archive=Archive(
                _SITE + "cifar-100-python.tar.gz", 169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"
            ),
        ),
    },
)


@says_what_to_write("load_cifar10", "pictures")
def load_cifar10(
    folder: str | os.PathLike[str],
    split: str = "train",
    *,
    format: str | None = None,
    verify: bool = True,
    download: bool = False,
) -> ImageSet:
    """Reads a split of CIFAR-10: uint8 images (N, 3, 32, 32) and labels 0 … 9.

    folder    has the files, or the subfolder of a published archive (`cifar-10-batches-bin` or
              `cifar-10-batches-py`)
    split     "train" (the default) or "test"
    format    "binary" or "python"; by default both are searched, the binary format first
    verify    whether to verify checksums (default True): of files with the name and size of a
              published one, and of files that are listed in a SHA256SUMS in their folder
    download  whether to download the published archive to `folder` if the split is missing (default
              False); see `download_cifar10`

    Raises FileNotFoundError if the folder has no file of the split. Raises ValueError for damaged,
    truncated or oversized files, labels out of range and malicious pickles; the message has the
    found and the expected value.

    >>> from pathlib import Path
    >>> Path("data").mkdir()
    >>> record = bytes([3]) + bytes(3 * 32 * 32)  # a label, then red, green and blue pixels
    >>> Path("data/test_batch.bin").write_bytes(2 * record)
    6146
    >>> test = data.load_cifar10("data", "test")
    >>> test.images.shape, test.classes[test.labels[0]]
    ((2, 3, 32, 32), 'cat')
    """
    return _load(_CIFAR10, folder, split, "fine", format, verify, download)


@says_what_to_write("load_cifar100", "pictures")
def load_cifar100(
    folder: str | os.PathLike[str],
    split: str = "train",
    *,
    coarse: bool = False,
    format: str | None = None,
    verify: bool = True,
    download: bool = False,
) -> ImageSet:
    """Reads a split of CIFAR-100, with 100 classes, or 20 superclasses with `coarse`.

    See `load_cifar10` for the other arguments and for errors.

    >>> from pathlib import Path
    >>> Path("data").mkdir()
    >>> record = bytes([4, 30]) + bytes(3 * 32 * 32)  # a coarse and a fine label, then the pixels
    >>> Path("data/test.bin").write_bytes(2 * record)
    6148
    >>> test = data.load_cifar100("data", "test")
    >>> test.images.shape, test.classes[test.labels[0]]
    ((2, 3, 32, 32), 'class 30')
    """
    labelling = "coarse" if coarse else "fine"
    return _load(_CIFAR100, folder, split, labelling, format, verify, download)


def download_cifar10(
    folder: str | os.PathLike[str],
    *,
    format: str = "binary",
    url: str | None = None,
    digest: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Downloads CIFAR-10 to `folder` and returns the subfolder with the unpacked files.

    format    "binary" (the default) or "python"
    url       URL of the archive, such as that of a mirror (default: that of the authors)
    digest    MD5, SHA-1 or SHA-256 of the archive in hexadecimal (default: the published one)
    progress  called with the number of bytes so far and the total, which may be None

    An interrupted download is resumed by the next call. The subfolder appears when it is complete,
    and has a SHA256SUMS. Raises ValueError if the archive has another digest or content, OSError if
    the server or the network fails.
    """
    return _download(_CIFAR10, folder, format, url, digest, progress)


def download_cifar100(
    folder: str | os.PathLike[str],
    *,
    format: str = "binary",
    url: str | None = None,
    digest: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Downloads CIFAR-100. See `download_cifar10` for the arguments and for errors."""
    return _download(_CIFAR100, folder, format, url, digest, progress)


def _load(
    cifar: _Cifar,
    folder: str | os.PathLike[str],
    split: str,
    labelling: str,
    format: str | None,
    verify: bool,
    download: bool,
) -> ImageSet:
    one_of(cifar.name, "split", split, cifar.published)
    if download:
        Path(folder).mkdir(parents=True, exist_ok=True)
    root = find_folder(folder, cifar.name)
    found = _find(cifar, root, split, format)
    if found is None and download:
        _download(cifar, root, format or "binary", None, None, None)
        found = _find(cifar, root, split, format)
    if found is None:
        formats = [_format(cifar, format)] if format else list(cifar.formats.values())
        looked_for = ", ".join(name for form in formats for name in form.files[split])
        raise FileNotFoundError(f"[{cifar.name}] {root} holds none of {looked_for}")

    kind, base, names = found
    form, labels = cifar.formats[kind], cifar.labels[labelling]
    sums = read_sums(base) if verify else {}
    parts = []
    for name in names:
        published = form.files[split][name]
        content = read_file(
            base / name,
            cifar.name,
            limit=published.size if kind == "binary" else 2 * published.size,
            published=published if verify else None,
            sums=sums,
        )
        read = _read_binary if kind == "binary" else _read_python
        parts.append(read(cifar, labels, base / name, content, cifar.per_file[split]))
    images = np.concatenate([part[0] for part in parts])
    numbers = np.concatenate([part[1] for part in parts])
    classes = _class_names(cifar, labels, kind, base, verify, sums)
    whole = cifar.published[split]
    count = "" if len(numbers) == whole else f" ({len(numbers)} of {whole})"
    return ImageSet(images, numbers, classes, f"{cifar.name} {split}{count}")


def _format(cifar: _Cifar, format: str) -> _Format:
    return cifar.formats[one_of(cifar.name, "format", format, cifar.formats)]


def _find(
    cifar: _Cifar, root: Path, split: str, format: str | None
) -> tuple[str, Path, list[str]] | None:
    """(format, folder, names of the files of the split in it), or None if there are none."""
    for kind in [format] if format else list(cifar.formats):
        form = _format(cifar, kind)
        for base in (root, root / form.subfolder):
            names = [name for name in form.files[split] if (base / name).exists()]
            if names:
                return kind, base, names
    return None


def _read_binary(
    cifar: _Cifar, labels: _Labels, path: Path, content: bytes, most: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    record = cifar.label_bytes + _PIXELS
    if not content or len(content) % record:
        raise ValueError(
            f"[{cifar.name}] {path} is truncated or not a CIFAR file: found {len(content)} bytes, "
            f"expected a multiple of {record}, from {record} to {most * record}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    numbers = records[:, labels.byte].astype(np.int32)
    check_labels(numbers, len(labels.classes), f"[{cifar.name}] {path}")
    return records[:, cifar.label_bytes :].reshape(-1, *_IMAGE), numbers


def _read_python(
    cifar: _Cifar, labels: _Labels, path: Path, content: bytes, most: int
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    batch = _read_dict(cifar, path, content)
    pixels, numbers = batch.get("data"), batch.get(labels.key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        raise ValueError(f"[{cifar.name}] {path}: 'data' is not an array of bytes")
    if pixels.ndim != 2 or pixels.shape[1] != _PIXELS or not 0 < len(pixels) <= most:
        raise ValueError(
            f"[{cifar.name}] {path}: found 'data' of shape {pixels.shape}, "
            f"expected (1 to {most}, {_PIXELS})"
        )
    if isinstance(numbers, list) and all(type(number) is int for number in numbers):
        # Clipped, so that a large number does not overflow. It stays out of range.
        numbers = np.array([min(max(number, -1), 255) for number in numbers], np.int32)
    if not isinstance(numbers, np.ndarray) or numbers.dtype.kind not in "iu":
        raise ValueError(f"[{cifar.name}] {path}: {labels.key!r} is not a list of integers")
    if numbers.shape != pixels.shape[:1]:
        raise ValueError(
            f"[{cifar.name}] {path}: found labels of shape {numbers.shape}, "
            f"expected ({len(pixels)},), one for each image"
        )
    check_labels(numbers, len(labels.classes), f"[{cifar.name}] {path}")
    images = np.ascontiguousarray(pixels).reshape(-1, *_IMAGE)
    return images, numbers.astype(np.int32)


def _read_dict(cifar: _Cifar, path: Path, content: bytes) -> dict[str, object]:
    """The pickled dict, with keys as str for files of Python 2 and 3."""
    try:
        value = pickle_reader.loads(content)
    except ValueError as error:
        raise ValueError(f"[{cifar.name}] {path} ({len(content)} bytes): {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"[{cifar.name}] {path}: found a {type(value).__name__}, expected a dict")
    return {
        key.decode("utf-8", "replace") if isinstance(key, bytes) else key: item
        for key, item in value.items()
    }


def _class_names(
    cifar: _Cifar, labels: _Labels, kind: str, base: Path, verify: bool, sums: dict[str, str]
) -> tuple[str, ...]:
    """The class names from the folder's list, or the default names if there is none."""
    form = cifar.formats[kind]
    path = base / (labels.names_file if kind == "binary" else cifar.names_file)
    if not path.exists():
        return labels.classes
    content = read_file(
        path,
        cifar.name,
        limit=_NAMES_LIMIT,
        published=form.names if verify else None,
        sums=sums,
    )
    if kind == "binary":
        names: object = content.decode("utf-8", "replace").split("\n")
    else:
        names = _read_dict(cifar, path, content).get(labels.names_key)
    if isinstance(names, list):
        texts = [name.decode("utf-8", "replace") if isinstance(name, bytes) else name
                 for name in names]  # fmt: skip
        if all(isinstance(text, str) for text in texts):
            found = tuple(text.strip() for text in texts if text.strip())
            if len(found) == len(labels.classes):
                return found
            raise ValueError(
                f"[{cifar.name}] {path}: found {len(found)} class names, "
                f"expected {len(labels.classes)}"
            )
    raise ValueError(f"[{cifar.name}] {path}: {labels.names_key!r} is not a list of names")


def _download(
    cifar: _Cifar,
    folder: str | os.PathLike[str],
    format: str,
    url: str | None,
    digest: str | None,
    progress: Callable[[int, int | None], None] | None,
) -> Path:
    from .download import fetch_archive  # imports network modules, which is slow

    form = _format(cifar, format)
    wanted = {
        name: published.size * (1 if format == "binary" else 2)
        for files in form.files.values()
        for name, published in files.items()
    }
    if format == "binary":
        wanted.update((labels.names_file, _NAMES_LIMIT) for labels in cifar.labels.values())
    else:
        wanted[cifar.names_file] = _NAMES_LIMIT
    return fetch_archive(
        form.archive,
        Path(folder) / form.subfolder,
        wanted,
        url=url,
        digest=digest,
        progress=progress,
    )
