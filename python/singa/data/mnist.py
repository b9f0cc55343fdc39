"""Reads MNIST, and data sets in the same format such as Fashion-MNIST, from IDX files, which may be
gzipped.

An IDX file is a big-endian header (two zero bytes, a type code, the number of dimensions, and each
dimension in four bytes), followed by the elements in row-major order. Source: Y. LeCun, C. Cortes,
C. Burges, "The MNIST database of handwritten digits", section "File formats".
"""

from __future__ import annotations

import gzip
import io
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..raw.calls import says_what_to_write
from ..raw.check import one_of
from .dataset import ImageSet, check_labels
from .integrity import Published, find_folder, read_file, read_sums

MNIST_MEAN, MNIST_STD = (0.1307,), (0.3081,)

_UINT8 = 0x08
_MOST = 1_000_000  # maximum number of records; the largest split of EMNIST has 814,255
_LIMIT = _MOST * 28 * 28 + 16

_FILES = {
    "train": ("train-images", "train-labels"),
    "test": ("t10k-images", "t10k-labels"),
}
# Only gzipped files are compared with published digests. Fashion-MNIST and others have the names of
# MNIST's files, and unpacked also their sizes.
_PUBLISHED = {
    "train-images-idx3-ubyte.gz": Published(9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte.gz": Published(28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte.gz": Published(1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte.gz": Published(4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
}


@says_what_to_write("load_mnist", "pictures")
def load_mnist(
    folder: str | os.PathLike[str],
    split: str = "train",
    *,
    classes: tuple[str, ...] = tuple("0123456789"),
    verify: bool = True,
) -> ImageSet:
    """Reads the "train" or "test" split: uint8 images (N, 1, H, W) and labels.

    folder   has the files, or a subfolder `MNIST/raw` or `raw` with them
    split    "train" (the default) or "test"
    classes  names of the classes (default: the digits)
    verify   whether to verify checksums as `load_cifar10` does (default True); published ones are
             known for the gzipped files of MNIST

    Files are named `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`
    and `t10k-labels-idx1-ubyte`, also with a dot before `idx` or with the suffix `.gz`.

    Raises FileNotFoundError if a file is missing. Raises ValueError for a damaged, truncated or
    oversized file and for labels out of range; the message has the found and the expected value.

    >>> from pathlib import Path
    >>> Path("data").mkdir()
    >>> head = np.array([2, 28, 28], ">i4").tobytes()
    >>> images = bytes([0, 0, 8, 3]) + head + bytes(2 * 28 * 28)
    >>> labels = bytes([0, 0, 8, 1]) + head[:4] + bytes([7, 1])
    >>> Path("data/t10k-images-idx3-ubyte").write_bytes(images)
    1584
    >>> Path("data/t10k-labels-idx1-ubyte").write_bytes(labels)
    10
    >>> test = data.load_mnist("data", "test")
    >>> test.images.shape, test.labels
    ((2, 1, 28, 28), array([7, 1], dtype=int32))
    """
    one_of("mnist", "split", split, _FILES)
    root = find_folder(folder, "mnist")
    images_path, labels_path = (
        _find(root, stem, dimensions)
        for stem, dimensions in zip(_FILES[split], (3, 1), strict=True)
    )
    images = read_idx(images_path, 3, verify=verify)
    labels = read_idx(labels_path, 1, verify=verify)
    if not len(images):
        raise ValueError(f"[mnist] {images_path} holds no image")
    if len(images) != len(labels):
        raise ValueError(
            f"[mnist] {images_path} holds {len(images)} images, "
            f"{labels_path} {len(labels)} labels: expected the same number"
        )
    check_labels(labels, len(classes), f"[mnist] {labels_path}")
    return ImageSet(images[:, None], labels.astype(np.int32), classes, f"mnist {split}")


def read_idx(
    path: str | os.PathLike[str], dimensions: int, *, verify: bool = True
) -> NDArray[np.uint8]:
    """Reads an IDX file of bytes with the given number of dimensions.

    A file whose name ends in .gz is unpacked. See `load_mnist` for errors.
    """
    path = Path(path)
    content = read_file(
        path,
        "mnist",
        limit=_LIMIT,
        published=_PUBLISHED.get(path.name) if verify else None,
        sums=read_sums(path.parent) if verify else None,
    )
    stream: io.BufferedIOBase = io.BytesIO(content)
    if path.suffix == ".gz":
        stream = gzip.GzipFile(fileobj=stream)
    magic, header_size = bytes((0, 0, _UINT8, dimensions)), 4 + 4 * dimensions
    try:
        header = stream.read(header_size)
        if not magic.startswith(header[:4]):
            raise ValueError(
                f"[mnist] {path} has the wrong magic number: found {header[:4].hex()}, "
                f"expected {magic.hex()} (unsigned bytes, {dimensions} dimensions)"
            )
        if len(header) < header_size:
            raise ValueError(
                f"[mnist] {path} is truncated: found {len(header)} bytes, "
                f"expected a header of {header_size}"
            )
        shape = struct.unpack(f">{dimensions}I", header[4:])
        size = math.prod(shape)
        if size > _LIMIT:
            raise ValueError(
                f"[mnist] {path} has extents {shape}: found {size} bytes of data announced, "
                f"expected at most {_LIMIT}"
            )
        # Reading one byte more detects an oversized file without unpacking all of a zip bomb.
        data = stream.read(size + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"[mnist] {path} ({len(content)} bytes) is a damaged gzip file: {error}"
        ) from None
    if len(data) != size:
        kind, found = ("truncated", str(len(data))) if len(data) < size else (
            "too long", f"more than {size}")  # fmt: skip
        raise ValueError(
            f"[mnist] {path} is {kind}: found {found} bytes of data, expected {size} "
            f"for extents {shape}"
        )
    return np.frombuffer(data, np.uint8).reshape(shape)


def _find(root: Path, stem: str, dimensions: int) -> Path:
    names = [
        f"{stem}{separator}idx{dimensions}-ubyte{packed}"
        for packed in ("", ".gz")
        for separator in ("-", ".")
    ]
    for folder in (root, root / "MNIST" / "raw", root / "raw"):
        for name in names:
            if (folder / name).exists():
                return folder / name
    raise FileNotFoundError(f"[mnist] {root} holds none of {', '.join(names)}")
