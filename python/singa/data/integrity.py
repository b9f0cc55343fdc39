"""Reads data files with a limit of their size, and verifies checksums.

Checksums come from two sources. Files with the name and size of a published data set must have its
checksum. A folder may have a SHA256SUMS file, in the format of the `sha256sum` command.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

SUMS = "SHA256SUMS"
_SUMS_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")
_SUMS_LIMIT = 1 << 20
# Algorithms by length of the hexadecimal digest. Publishers of these data sets give MD5 and SHA-1,
# which detect damage but not forgery.
_ALGORITHMS = {32: "md5", 40: "sha1", 64: "sha256"}


@dataclass(frozen=True)
class Published:
    """Size in bytes and hexadecimal digest (MD5, SHA-1 or SHA-256) of a published file."""

    size: int
    digest: str


@dataclass(frozen=True)
class Archive:
    """URL, size in bytes and hexadecimal digest of a published archive."""

    url: str
    size: int
    digest: str


def new_hash(digest: str) -> hashlib._Hash:
    """A hash object of the algorithm of `digest`, which follows from its length.

    Raises ValueError if it is not a digest of MD5, SHA-1 or SHA-256.
    """
    name = _ALGORITHMS.get(len(digest))
    if name is None or not re.fullmatch("[0-9a-fA-F]*", digest):
        raise ValueError(f"expected a hexadecimal MD5, SHA-1 or SHA-256 digest, got {digest!r}")
    return hashlib.new(name, usedforsecurity=False)


def read_file(
    path: Path,
    what: str,
    *,
    limit: int,
    published: Published | None = None,
    sums: dict[str, str] | None = None,
) -> bytes:
    """Reads and verifies a file.

    path       the file
    what       name of the data set, for messages
    limit      maximum size in bytes
    published  if the file has this size, it must have this digest
    sums       result of `read_sums` for the folder

    Raises FileNotFoundError if there is no such file. Raises ValueError if it is not a regular
    file, is too large, or has another digest; the message has the found and the expected value.
    """
    if not path.exists():
        raise FileNotFoundError(f"[{what}] {path} does not exist")
    if not path.is_file():  # a named pipe or a device could block or never end
        raise ValueError(f"[{what}] {path} is not a regular file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(
                f"[{what}] {path} is too large: found {size} bytes, expected at most {limit}"
            )
        content = file.read(size)
    expected = []
    if published is not None and len(content) == published.size:
        expected.append((published.digest, "the published file of this name and size"))
    if sums and path.name in sums:
        expected.append((sums[path.name], f"{SUMS} beside it"))
    for digest, source in expected:
        found = new_hash(digest)
        found.update(content)
        if found.hexdigest() != digest.lower():
            raise ValueError(
                f"[{what}] {path} ({len(content)} bytes) is damaged: found {found.name} "
                f"{found.hexdigest()}, expected {digest.lower()} of {source} "
                "(verify=False skips this check)"
            )
    return content


def read_sums(folder: Path) -> dict[str, str]:
    """{file name: SHA-256} from the SHA256SUMS of `folder`; empty if there is none.

    Raises ValueError with the line number for a malformed line.
    """
    path = folder / SUMS
    if not path.is_file():
        return {}
    text = read_file(path, SUMS, limit=_SUMS_LIMIT).decode("utf-8", errors="replace")
    sums = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        match = _SUMS_LINE.fullmatch(line.rstrip())
        if not match:
            raise ValueError(f"[{SUMS}] {path}, line {number}: expected 'sha256  name'")
        sums[match[2].removeprefix("./")] = match[1].lower()
    return sums


def find_folder(folder: str | os.PathLike[str], what: str) -> Path:
    """`folder` as a Path.

    Raises FileNotFoundError if it does not exist, ValueError if it is not a folder.
    """
    path = Path(folder)
    if not path.exists():
        raise FileNotFoundError(f"[{what}] the folder {path} does not exist")
    if not path.is_dir():
        raise ValueError(f"[{what}] {path} is not a folder")
    return path
