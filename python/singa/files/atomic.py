"""Atomic writes: a file has either its old content or its new content.

A process that is killed while it writes a checkpoint must not leave half of one. Everything that
singa saves goes through `atomic_write`. It writes to a temporary file in the same folder, flushes
it to disk, and renames it; POSIX guarantees that a rename within a file system is atomic.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

_DIGITS = 12
_SUFFIX = ".tmp"


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: str = "wb", *, encoding: str | None = None
) -> Iterator[IO[Any]]:
    """Context manager that opens a temporary file and renames it to `path` at the end.

    `mode` is "wb", or "w" for text in `encoding` (default UTF-8). At any time, also after `kill -9`
    or a power failure, `path` has its complete old content, its complete new content, or does not
    exist, as before. An exception in the block leaves `path` unchanged, removes the temporary file
    and propagates. The next write to the same path removes temporary files of killed processes.
    The folder must exist. If `path` is a symbolic link, the file that it points to is replaced. The
    new file has the permissions of the old one, or those that the umask allows. A device or FIFO
    (/dev/null, /dev/stdout) is not replaced: it gets the content at the end of the block.

    Raises ValueError for another mode, and OSError that names `path` if writing fails.

    >>> from pathlib import Path
    >>> with training.atomic_write("notes.txt", "w") as file:
    ...     file.write("all or nothing")
    ...
    14
    >>> print(Path("notes.txt").read_text())
    all or nothing
    """
    if mode not in ("wb", "w"):
        raise ValueError(f"[atomic_write] mode must be 'wb' or 'w', got {mode!r}")
    text = {"encoding": encoding or "utf-8", "newline": "\n"} if mode == "w" else {}
    if is_special(path):
        with (
            naming(path),
            tempfile.TemporaryFile(f"{mode}+", **text) as file,  # type: ignore[call-overload]
            os.fdopen(os.dup(file.fileno()), "rb") as content,  # the writer may close `file`
        ):
            yield file
            if not file.closed:
                file.flush()
            content.seek(0)
            with open(path, "wb") as device:
                shutil.copyfileobj(content, device)
        return
    with naming(path):
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        _remove_stale(target)
        temporary, descriptor = _locked_file(target)
        try:
            permissions = _permissions(target)
            if permissions is not None:  # _remove_stale must be able to open the file
                os.chmod(temporary, permissions | stat.S_IRUSR | stat.S_IWUSR)
            with os.fdopen(os.dup(descriptor), mode, **text) as file:  # type: ignore[call-overload]
                yield file  # leaving this block flushes; the writer may have closed it already
            if permissions is not None:
                os.chmod(temporary, permissions)
            os.fsync(descriptor)
            os.replace(temporary, target)
            fsync_folder(target.parent)
        finally:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)  # it is missing after a rename


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context manager that makes an OSError name `path` if it names no file, or a temporary file of
    `path`."""
    try:
        yield
    except OSError as error:
        target = Path(os.path.realpath(path))
        unnamed = error.filename is None or _is_temporary_of(target, str(error.filename))
        if error.errno is None or not unnamed:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is neither a regular file nor a folder, such as a device or a FIFO."""
    try:
        mode = os.stat(path).st_mode  # not of the real path: /dev/stdout may be a pipe without one
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _permissions(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _locked_file(target: Path) -> tuple[Path, int]:
    """Creates a temporary file beside `target`; returns its path and a descriptor that locks it."""
    while True:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(_DIGITS // 2)}{_SUFFIX}")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(temporary)
            return temporary, descriptor
        except (BlockingIOError, FileNotFoundError):
            # Another writer removed the file as a stale one before it was locked.
            os.close(descriptor)
        except OSError:  # a file system without locks, on which stale files are not removed
            return temporary, descriptor


def fsync_folder(folder: str | os.PathLike[str]) -> None:
    """Flushes the entries of `folder` to disk. Without it, a power failure may undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError:  # some network file systems do not support it
        pass
    finally:
        os.close(descriptor)


def _is_temporary_of(target: Path, name: str) -> bool:
    pattern = rf"\.{re.escape(target.name)}\.[0-9a-f]{{{_DIGITS}}}{re.escape(_SUFFIX)}"
    return re.fullmatch(pattern, os.path.basename(name)) is not None


def _remove_stale(target: Path) -> None:
    """Removes temporary files of killed writers of `target`, which are those without a lock.

    A checkpoint may have hundreds of megabytes, so a job that is often killed and restarted would
    fill the disk.
    """
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if not _is_temporary_of(target, entry.name):
                continue
            with contextlib.suppress(OSError):
                descriptor = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)
                finally:
                    os.close(descriptor)
