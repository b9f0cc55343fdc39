"""Caches of decoded pictures, in memory or as files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]


class PictureCache:
    """Decoded pictures by file. Threads and processes may use one at the same time.

    place  "memory", or a folder, which is made when it is needed

    In a folder, each picture is a PPM file (PGM if it is grey), whose name is a digest of the path,
    size and time of the picture's file and of `settings`: a picture that has changed is decoded
    again. A damaged file of the cache is replaced.
    """

    def __init__(self, place: str | os.PathLike[str], settings: str = "") -> None:
        self.folder = None if place == "memory" else Path(place)
        self.settings = settings
        self._pictures: dict[str, Picture] = {}

    def get(self, path: str | os.PathLike[str], decode: Callable[[], Picture]) -> Picture:
        """The picture, which nobody may change; `decode` makes it if it is not there."""
        key = self._key(path)
        picture = self._pictures.get(key) if self.folder is None else self._read(key)
        if picture is None:
            picture = _as_read(decode().transpose(1, 2, 0))
            if self.folder is None:
                self._pictures[key] = picture
            else:
                self._write(key, picture)
        picture.flags.writeable = False
        return picture

    def _key(self, path: str | os.PathLike[str]) -> str:
        stat = os.stat(path)
        facts = (os.path.abspath(path), stat.st_size, stat.st_mtime_ns, self.settings)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:40]

    def _file(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key[2:]}.ppm"

    def _read(self, key: str) -> Picture | None:
        try:
            with open(self._file(key), "rb") as file:
                kind, width, height, levels = file.readline(64).split()
                shape = int(height), int(width), {b"P5": 1, b"P6": 3}[kind]
                if levels != b"255" or min(shape) < 1:
                    return None
                return _as_read(np.fromfile(file, np.uint8).reshape(shape))
        except (OSError, ValueError, LookupError):
            return None

    def _write(self, key: str, picture: Picture) -> None:
        path = self._file(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written apart and renamed, so that others see whole files. Nothing waits for the disk: a
        # file that a power failure cuts off is decoded again.
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                channels, height, width = picture.shape
                file.write(b"P%d %d %d 255\n" % (6 if channels == 3 else 5, width, height))
                np.ascontiguousarray(picture.transpose(1, 2, 0)).tofile(file)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise


def _as_read(pixels: Picture) -> Picture:
    """Pixels (H, W, C) as (C, H, W) that lie in memory as decoders write them: parts of it become
    Pillow images several times faster."""
    return np.ascontiguousarray(pixels).transpose(2, 0, 1)
