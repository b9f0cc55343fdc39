"""External data: elements of tensors that lie in files beside the model.

The model names these files, so it is not trusted. A file must lie inside the model's folder. Each
component of its path is opened relative to the folder before it, without following symbolic links.
Offset and length are compared with the size of the file and of the tensor. The elements are mapped
into memory read-only.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..networks.element_types import numpy_type
from ..networks.errors import InvalidModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO would block


def components(tensor: str, location: str) -> list[str]:
    """The components of a location, which must be a relative path inside the model's folder.

    "." and repeated slashes mean nothing. Raises InvalidModelError for an empty or absolute path,
    for that of a folder, and for one with "..".
    """
    parts = [part for part in location.split("/") if part not in ("", ".")]
    folder = not parts or location.endswith(("/", "/."))
    if folder or location[0] == "/" or ".." in parts or "\0" in location or "\\" in location:
        raise InvalidModelError(
            f"[onnx.load] tensor {tensor!r}: external data must be a file inside the model's "
            f"folder, got location {location!r:.200}"
        )
    return parts


def open_inside(folder: Path, tensor: str, location: str, allow_symlinks: bool) -> int:
    """A descriptor of the regular file `location` in `folder`.

    With `allow_symlinks`, symbolic links are followed wherever they lead. Raises InvalidModelError
    if it is no such file.
    """
    parts = components(tensor, location)
    no_links = 0 if allow_symlinks else os.O_NOFOLLOW
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            flags = _FLAGS | no_links | (0 if last else os.O_DIRECTORY)
            inner = os.open(part, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidModelError(
                f"[onnx.load] tensor {tensor!r}: external data {location!r:.200} is not a file"
            )
    except OSError as error:
        os.close(descriptor)
        hint = "" if allow_symlinks else " (symbolic links need allow_symlinks=True)"
        raise InvalidModelError(
            f"[onnx.load] tensor {tensor!r}: cannot open external data {location!r:.200}: "
            f"{error.strerror}{hint}"
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def mapped(
    folder: Path | None,
    tensor: str,
    type_name: str,
    shape: Sequence[int],
    entries: Mapping[str, str],
    allow_symlinks: bool,
) -> NDArray[Any]:
    """The elements of a tensor with external data, mapped into memory read-only.

    folder   the folder of the model; None if it did not come from a file
    entries  location, offset and length, as the model gives them

    Raises InvalidModelError if there is no folder, and for a location, offset or length that is
    not valid.
    """
    if folder is None:
        raise InvalidModelError(
            f"[onnx.load] tensor {tensor!r} has external data, so the model must be loaded from "
            "its file"
        )
    dtype = numpy_type(type_name)
    size = math.prod(shape) * dtype.itemsize
    offset = _number(tensor, "offset", entries.get("offset", "0"))
    length = _number(tensor, "length", entries.get("length", str(size)))
    if length != size:
        raise InvalidModelError(
            f"[onnx.load] tensor {tensor!r}: external data has length {length}, but shape "
            f"{tuple(shape)} of {type_name} needs {size} bytes"
        )
    descriptor = open_inside(folder, tensor, entries.get("location", ""), allow_symlinks)
    try:
        there = os.fstat(descriptor).st_size
        if offset + length > there:
            raise InvalidModelError(
                f"[onnx.load] tensor {tensor!r}: bytes {offset} to {offset + length} lie outside "
                f"{entries['location']!r:.200}, which has {there}"
            )
        if not size:
            return np.empty(shape, dtype)
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        memory = mmap.mmap(descriptor, offset + length - start, prot=mmap.PROT_READ, offset=start)
    finally:
        os.close(descriptor)
    return np.frombuffer(memory, dtype, math.prod(shape), offset - start).reshape(shape)


def _number(tensor: str, name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidModelError(
            f"[onnx.load] tensor {tensor!r}: {name} of external data must be a number of bytes, "
            f"got {text!r:.60}"
        )
    return int(text)
