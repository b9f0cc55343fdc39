"""Caches of decoded pictures, in memory or as files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import warnings
import zlib
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
    again. A comment in the file has the CRC-32 of its pixels; a damaged file is replaced. A folder
    that cannot be written, such as on a full disk, gets no further files, with one warning.
    """

    def __init__(self, place: str | os.PathLike[str], settings: str = "") -> None:
        self.folder = None if place == "memory" else Path(place)
        self.settings = settings
        self._pictures: dict[str, Picture] = {}
        self._is_writable = True

    def get(self, path: str | os.PathLike[str], decode: Callable[[], Picture]) -> Picture:
        """The picture, which nobody may change; `decode` makes it if it is not there."""
        key = self._key(path)
        picture = self._pictures.get(key) if self.folder is None else self._read(key)
        if picture is None:
            picture = _as_read(decode().transpose(1, 2, 0))
            if self.folder is None:
                self._pictures[key] = picture
            elif self._is_writable:
                self._keep(key, picture)
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
                kind, checksum = file.readline(64).strip(), file.readline(64)
                width, height, levels = file.readline(64).split()
                shape = int(height), int(width), {b"P5": 1, b"P6": 3}[kind]
                if levels != b"255" or min(shape) < 1:
                    return None
                pixels = np.fromfile(file, np.uint8)
            if checksum != _checksum(pixels):
                return None
            return _as_read(pixels.reshape(shape))
        except (OSError, ValueError, LookupError):
            return None

    def _keep(self, key: str, picture: Picture) -> None:
        """Writes a file, or warns that this and later ones are not written."""
        try:
            self._write(key, picture)
        except OSError as error:
            self._is_writable = False
            warnings.warn(
                f"[PictureCache] {self.folder} cannot be written, so pictures that are not there "
                f"are decoded each time: {error.strerror or error}",
                stacklevel=2,
            )

    def _write(self, key: str, picture: Picture) -> None:
        path = self._file(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.ascontiguousarray(picture.transpose(1, 2, 0))
        height, width, channels = pixels.shape
        kind = 6 if channels == 3 else 5
        head = b"P%d\n%b%d %d 255\n" % (kind, _checksum(pixels), width, height)
        # Written apart and renamed, so that others see whole files. Nothing waits for the disk: a
        # file that a power failure cuts off is decoded again.
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(head)
                file.write(pixels.data)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise


def _checksum(pixels: Picture) -> bytes:
    """The line of the header with the CRC-32 of the pixels."""
    return b"# crc32 %08x\n" % zlib.crc32(pixels.data)


def _as_read(pixels: Picture) -> Picture:
    """Pixels (H, W, C) as (C, H, W) that lie in memory as decoders write them: parts of it become
    Pillow images several times faster."""
    return np.ascontiguousarray(pixels).transpose(2, 0, 1)
