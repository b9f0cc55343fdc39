"""Files that are either the old ones or the new ones, whatever happens in between.

A checkpoint that a killed process leaves half-written is worse than none. Everything that singa
saves goes through `atomic_write`: the bytes go to a temporary file in the same folder, are forced
to disk, and take the final name in one `rename`, which POSIX makes atomic within a file system.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not POSIX: left-over temporaries are not swept there
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".tmp"
_STALE_AFTER_S = 60.0


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: str = "wb", *, encoding: str | None = None
) -> Iterator[IO[Any]]:
    """Opens a temporary file that becomes `path` when the block ends without an exception.

    `mode` is "wb" or "w" (text, UTF-8 unless `encoding` says otherwise). At every moment, also
    after `kill -9` or a power cut, `path` holds the whole old content or the whole new one (or is
    absent, if it was). An exception in the block leaves `path` alone, removes the temporary file
    and goes on. The folder must exist. A symbolic link stays one: the file it points to is
    replaced. Permissions are those of the file replaced, else what the umask allows.

    Raises ValueError for another mode, OSError as `open` does.
    """
    if mode not in ("wb", "w"):
        raise ValueError(f"[atomic_write] mode must be 'wb' or 'w', got {mode!r}")
    text = {"encoding": encoding or "utf-8", "newline": "\n"} if mode == "w" else {}
    with _temporary_for(path) as (temporary, descriptor):
        with os.fdopen(os.dup(descriptor), mode, **text) as file:  # type: ignore[call-overload]
            yield file  # leaving the inner block flushes; the writer may have closed it already
        os.fsync(descriptor)
        _take_name(temporary, path)


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """As `atomic_write`, for writers that want a file name: yields the temporary file's path.

    The file exists and is empty when the block starts; the block may also replace it.
    """
    with _temporary_for(path) as (temporary, _):
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        _take_name(temporary, path)


@contextlib.contextmanager
def _temporary_for(path: str | os.PathLike[str]) -> Iterator[tuple[Path, int]]:
    """A new empty file beside `path`, locked while the block runs, gone after it."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"[atomic_write] {target} is a folder")
    _remove_stale(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}{_SUFFIX}")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks still works
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(FileNotFoundError):
            os.chmod(temporary, os.stat(target).st_mode & 0o7777)
        yield temporary, descriptor
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)  # already renamed when all went well


def _take_name(temporary: Path, path: str | os.PathLike[str]) -> None:
    target = os.path.realpath(path)
    os.replace(temporary, target)
    fsync_folder(os.path.dirname(target))


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


def _remove_stale(target: Path) -> None:
    """Removes what killed writers of `target` left: old enough and locked by nobody.

    A checkpoint can be hundreds of megabytes, so a job that is killed and restarted often would
    fill the disk. The age keeps the moment between creating and locking safe.
    """
    if fcntl is None:
        return
    prefix = f".{target.name}."
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            name = entry.name
            if not (name.startswith(prefix) and name.endswith(_SUFFIX)):
                continue
            if len(name) != len(prefix) + 12 + len(_SUFFIX):  # 12 hexadecimal digits: ours
                continue
            with contextlib.suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime < _STALE_AFTER_S:
                    continue
                descriptor = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)
                finally:
                    os.close(descriptor)
