"""Reading data files whole, with limits, and holding them against their checksums.

Two sources of checksums: those of a published data set (a file that has its name and its size
claims to be it), and a SHA256SUMS file in the folder, in the format of the `sha256sum` command.
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
# By length of the hexadecimal digest. MD5 and SHA-1 are what the publishers of these data sets
# give; they find damage, not forgery.
_ALGORITHMS = {32: "md5", 40: "sha1", 64: "sha256"}


@dataclass(frozen=True)
class Published:
    """Size in bytes and hexadecimal MD5, SHA-1 or SHA-256 of a published file."""

    size: int
    digest: str


@dataclass(frozen=True)
class Archive:
    """A published archive: where it is, its size in bytes, its hexadecimal digest."""

    url: str
    size: int
    digest: str


def new_hash(digest: str) -> hashlib._Hash:
    """A hash object of the algorithm that `digest` is of. Raises ValueError if none fits."""
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
    """The content of `path`, verified.

    `limit` is the largest size that is read, in bytes. `published`: if the size is the published
    one, the digest must be, too. `sums`: what `read_sums` found in the folder. Raises
    FileNotFoundError, or ValueError naming file, what was found and what was expected.
    """
    if not path.exists():
        raise FileNotFoundError(f"[{what}] {path} does not exist")
    if not path.is_file():  # a named pipe or a device would block or never end
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
                "(verify=False reads it all the same)"
            )
    return content


def read_sums(folder: Path) -> dict[str, str]:
    """{file name: SHA-256} of `folder`'s SHA256SUMS; empty if it has none.

    Raises ValueError with the line number for a line that is not `digest  name`.
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
    """`folder` as a Path; FileNotFoundError or ValueError if it is none."""
    path = Path(folder)
    if not path.exists():
        raise FileNotFoundError(f"[{what}] the folder {path} does not exist")
    if not path.is_dir():
        raise ValueError(f"[{what}] {path} is not a folder")
    return path
