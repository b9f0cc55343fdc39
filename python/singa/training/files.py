"""Files that are either the old ones or the new ones, whatever happens in between.

A checkpoint that a killed process leaves half-written is worse than none. Everything that singa
saves goes through `atomic_write`: the bytes go to a temporary file in the same folder, are forced
to disk, and take the final name in one `rename`, which POSIX makes atomic within a file system.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not POSIX: left-over temporaries are not swept there
    fcntl = None  # type: ignore[assignment]

_DIGITS = 12
_SUFFIX = ".tmp"


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: str = "wb", *, encoding: str | None = None
) -> Iterator[IO[Any]]:
    """Opens a temporary file that becomes `path` when the block ends without an exception.

    `mode` is "wb" or "w" (text, UTF-8 unless `encoding` says otherwise). At every moment, also
    after `kill -9` or a power cut, `path` holds the whole old content or the whole new one (or is
    absent, if it was). An exception in the block leaves `path` alone, removes the temporary file
    and goes on. What a killed process left is removed when the same path is written again. The
    folder must exist. A symbolic link stays one: the file it points to is replaced. Permissions are
    those of the file replaced, else what the umask allows.

    Raises ValueError for another mode, OSError that names `path` where writing fails.
    """
    if mode not in ("wb", "w"):
        raise ValueError(f"[atomic_write] mode must be 'wb' or 'w', got {mode!r}")
    text = {"encoding": encoding or "utf-8", "newline": "\n"} if mode == "w" else {}
    with naming(path):
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        _remove_stale(target)
        temporary, descriptor = _locked_file(target)
        try:
            permissions = _permissions(target)
            if permissions is not None:  # whoever sweeps has to be able to open it
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
            temporary.unlink(missing_ok=True)  # renamed when all went well


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context: an OSError of the system that names no file, or a temporary one of `path`, names
    `path`."""
    try:
        yield
    except OSError as error:
        target = Path(os.path.realpath(path))
        unnamed = error.filename is None or _is_temporary_of(target, str(error.filename))
        if error.errno is None or not unnamed:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _permissions(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _locked_file(target: Path) -> tuple[Path, int]:
    """A new file beside `target`, and its descriptor, which holds a lock on it."""
    while True:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(_DIGITS // 2)}{_SUFFIX}")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if fcntl is None:
            return temporary, descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(temporary)
            return temporary, descriptor
        except (BlockingIOError, FileNotFoundError):
            # Before it was locked, somebody who sweeps took it for one that was left behind.
            os.close(descriptor)
        except OSError:  # a file system without locks: nobody sweeps there
            return temporary, descriptor


def fsync_folder(folder: str | os.PathLike[str]) -> None:
    """Forces the names in `folder` to disk; a rename alone may still be lost in a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError:  # some network file systems refuse; the rename itself has happened
        pass
    finally:
        os.close(descriptor)


def _is_temporary_of(target: Path, name: str) -> bool:
    pattern = rf"\.{re.escape(target.name)}\.[0-9a-f]{{{_DIGITS}}}{re.escape(_SUFFIX)}"
    return re.fullmatch(pattern, os.path.basename(name)) is not None


def _remove_stale(target: Path) -> None:
    """Removes what killed writers of `target` left: temporaries that nobody has locked.

    A checkpoint can be hundreds of megabytes, so a job that is killed and restarted often would
    fill the disk.
    """
    if fcntl is None:
        return
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
