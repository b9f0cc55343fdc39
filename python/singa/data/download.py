"""Downloads published archives, with resuming after a failure, verification, and safe unpacking."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import os
import re
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from ..files.atomic import atomic_write, fsync_folder
from .integrity import SUMS, Archive, new_hash

Progress = Callable[[int, int | None], None]

_CHUNK = 1 << 18
_RETRIES = 3


def fetch_archive(
    archive: Archive,
    folder: Path,
    wanted: Mapping[str, int],
    *,
    url: str | None = None,
    digest: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Downloads a tar archive, verifies it, unpacks the `wanted` files to `folder` and returns it.

    archive   URL, size and digest of the archive
    wanted    maximum size in bytes of each file, by name
    url       another URL of the archive, such as a mirror
    digest    another digest of the archive
    progress  called with the number of bytes so far and the total, which may be None

    During the download the archive is `NAME.part` in the parent of `folder`. It is removed at the
    end, and a later call resumes an interrupted download. See `fetch` and `unpack` for errors.
    """
    source = url or archive.url
    name = Path(urlsplit(source).path).name or "archive"
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.parent / f"{name}.part"
    fetch(source, part, digest or archive.digest, limit=2 * archive.size, progress=progress)
    try:
        unpack(part, folder, wanted)
    finally:
        part.unlink(missing_ok=True)
    return folder


def fetch(
    url: str,
    path: Path,
    digest: str,
    *,
    limit: int,
    progress: Progress | None = None,
    timeout: float = 30.0,
) -> None:
    """Downloads `url` (http or https) to `path` and verifies it with `digest`.

    limit     maximum size in bytes
    progress  called with the number of bytes so far and the total, which may be None
    timeout   seconds to wait for each response of the server (default 30)

    An existing `path` is taken as the beginning of the file, and only the rest is requested. If the
    server does not support that, it sends the whole file. A broken connection is retried up to
    three times, as long as each try receives data. The received part is kept for the next call. If
    the complete file has another digest, `path` is removed.

    Raises ValueError for a wrong URL, digest or size, BlockingIOError if another process downloads
    to `path`, and ConnectionError or another OSError if the server or the network fails.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"[download] expected an http or https URL, got {url!r}")
    new_hash(digest)
    with open(path, "a+b") as file:
        _lock(file, path)
        _receive_all(url, file, limit, progress, timeout)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        file.seek(0)
        found = hashlib.file_digest(file, lambda: new_hash(digest))
        if found.hexdigest() != digest.lower():
            path.unlink()
            raise ValueError(
                f"[download] {url}: found {size} bytes with {found.name} {found.hexdigest()}, "
                f"expected {digest.lower()}"
            )


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(f"[download] another process is writing {path}") from None


def _receive_all(
    url: str, file: IO[bytes], limit: int, progress: Progress | None, timeout: float
) -> None:
    """Appends the rest of the file to `file`. Retries as long as each try receives data."""
    for attempt in range(_RETRIES + 1):
        before = file.seek(0, os.SEEK_END)
        try:
            _receive(url, file, limit, progress, timeout)
            return
        except urllib.error.HTTPError as error:
            with error:
                raise ConnectionError(f"[download] {url}: HTTP {error.code} {error.msg}") from None
        except (OSError, http.client.HTTPException) as error:
            if attempt == _RETRIES or file.seek(0, os.SEEK_END) <= before:
                reason = getattr(error, "reason", None) or error
                raise ConnectionError(
                    f"[download] {url}: {reason} (a later call resumes at byte {file.tell()})"
                ) from error
        time.sleep(0.2 * 2**attempt)


def _receive(
    url: str, file: IO[bytes], limit: int, progress: Progress | None, timeout: float
) -> None:
    start = file.seek(0, os.SEEK_END)
    request = urllib.request.Request(url, headers={"User-Agent": "singa"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if start and error.code == 416:  # no bytes after `start`; the digest decides if it is right
            error.close()
            return
        raise
    with response:
        if not (start and response.status == 206 and _starts_at(response, start)):
            if response.status == 206:
                raise ConnectionError("the server sent another range than requested")
            start = 0
            file.truncate(0)
            file.seek(0)
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        if total is not None and total > limit:
            raise ValueError(f"[download] {url}: {total} bytes, expected at most {limit}")
        done = start
        while chunk := response.read(_CHUNK):
            done += len(chunk)
            if done > limit:
                raise ValueError(f"[download] {url}: more than {limit} bytes")
            file.write(chunk)
            if progress is not None:
                progress(done, total)
        if total is not None and done < total:
            raise ConnectionError(f"the connection broke after {done} of {total} bytes")


def _starts_at(response: Any, start: int) -> bool:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return match is not None and int(match[1]) == start


def unpack(archive: Path, folder: Path, wanted: Mapping[str, int]) -> None:
    """Unpacks the files named in `wanted` from a tar archive to `folder`, without subfolders.

    `wanted` has the maximum size in bytes of each file. Other members are skipped. Only names and
    contents are used, not owners, modes or links. Files are written to a temporary folder first,
    with a SHA256SUMS, which is then renamed to `folder`. If `folder` exists, its files are replaced
    one by one.

    Raises ValueError if the archive is damaged, has a path that leaves the folder, has none of the
    files, or has one of them as a link, twice, or with more bytes. `folder` is then unchanged.
    """
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        temporary.chmod(0o755)
        sums = _unpack_into(archive, temporary, wanted)
        with atomic_write(temporary / SUMS, "w") as file:
            file.writelines(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
        _move_into_place(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _unpack_into(archive: Path, folder: Path, wanted: Mapping[str, int]) -> dict[str, str]:
    sums: dict[str, str] = {}
    try:
        # Read as a stream, in one pass, so that the archive cannot make it seek.
        with tarfile.open(archive, "r|*") as tar:
            for member in tar:
                parts = member.name.split("/")
                if member.name.startswith("/") or ".." in parts or "\\" in member.name:
                    raise ValueError(f"member {member.name!r} leaves the folder")
                name = parts[-1]
                if name not in wanted:
                    continue
                if not member.isreg():
                    raise ValueError(f"member {member.name!r} is not a regular file")
                if name in sums:
                    raise ValueError(f"{name!r} occurs twice")
                if member.size > wanted[name]:
                    raise ValueError(
                        f"{name!r} has {member.size} bytes, expected at most {wanted[name]}"
                    )
                source = tar.extractfile(member)
                assert source is not None  # a regular file
                sums[name] = _copy(source, folder / name)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the file system, not of the archive
        raise ValueError(f"[download] {archive.name} cannot be unpacked: {error}") from error
    if not sums:
        raise ValueError(f"[download] {archive.name} holds none of {', '.join(sorted(wanted))}")
    return sums


def _copy(source: IO[bytes], path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "xb") as file:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _move_into_place(temporary: Path, folder: Path) -> None:
    fsync_folder(temporary)
    if not folder.exists():
        with contextlib.suppress(OSError):  # another process has created it
            os.rename(temporary, folder)
            fsync_folder(folder.parent)
            return
    # SHA256SUMS is replaced last. Until then a mixture of old and new files does not verify.
    for path in sorted(temporary.iterdir(), key=lambda path: path.name == SUMS):
        os.replace(path, folder / path.name)
    fsync_folder(folder)
