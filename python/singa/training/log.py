"""Training logs with one JSON object per line, readable during a run and after a crash."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from ..files.atomic import atomic_write, is_special, naming

Record = dict[str, Any]


class JsonLinesLog:
    """Appends records to a JSON-lines file. `append` writes a record to the file at once.

        with JsonLinesLog("log.jsonl", keep=lambda r: r["epoch"] < start_epoch) as log:
            log.append(epoch=3, train_loss=1.21, test_accuracy=0.634)

    path  file to append to, which is created if it is missing
    keep  function of an existing record; records for which it is false are removed. A resumed run
          removes the records after its checkpoint, so that no epoch is logged twice.

    An incomplete last line, which a crash leaves, is removed first. A device or FIFO, such as
    /dev/null, is only written to. Raises ValueError if the file has other content; see `read_log`.
    """

    def __init__(
        self, path: str | os.PathLike[str], keep: Callable[[Record], bool] | None = None
    ) -> None:
        self.path: str = os.fspath(path)
        self._special = is_special(self.path)
        is_read = os.path.exists(self.path) and not self._special
        old = read_log(self.path) if is_read else []
        kept = old if keep is None else [record for record in old if keep(record)]
        if len(kept) != len(old) or (is_read and _is_torn(self.path)):
            with atomic_write(self.path, "w") as file:
                file.writelines(_line(record) for record in kept)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed in close()

    def append(self, record: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Adds a record, given as a mapping, as keyword arguments, or both.

        NumPy scalars and arrays become numbers and lists. NaN and infinity become null, since JSON
        has neither. Raises TypeError for a value that JSON cannot represent, ValueError if the log
        is closed, OSError if writing fails, for example on a full disk. The file is unchanged after
        an error.
        """
        if self._file.closed:
            raise ValueError(f"[JsonLinesLog] {self.path} is closed")
        # One unbuffered write, so that a reader sees whole lines, unless the machine crashes or the
        # disk is full.
        line = memoryview(_line({**(record or {}), **fields}).encode())
        end = os.fstat(self._file.fileno()).st_size
        with naming(self.path):
            try:
                while line:
                    line = line[self._file.write(line) :]
            except OSError:
                if not self._special:
                    self._file.truncate(end)
                raise

    def close(self) -> None:
        """Flushes the file to disk and closes it. Further calls do nothing."""
        if not self._file.closed:
            if not self._special:
                with naming(self.path):
                    os.fsync(self._file.fileno())
            self._file.close()

    def __enter__(self) -> JsonLinesLog:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


def read_log(path: str | os.PathLike[str]) -> list[Record]:
    """All complete records of a JSON-lines file, oldest first.

    A last line without a newline, which a crash leaves, is skipped, and so are empty lines. Raises
    FileNotFoundError if there is no such file, and ValueError with the line number for a line that
    is not a JSON object.
    """
    with open(path, "rb") as file:
        *lines, _torn = file.read().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"[read_log] {os.fspath(path)}, line {number}: not JSON ({error})"
            ) from None
        if not isinstance(record, dict):
            raise ValueError(
                f"[read_log] {os.fspath(path)}, line {number}: expected an object, "
                f"found {type(record).__name__}"
            )
        records.append(record)
    return records


def _is_torn(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:  # absent or empty
        return False


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(_plain(record), allow_nan=False, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """Converts a value to JSON's types. NumPy's are recognised by their methods, without an
    import."""
    if isinstance(value, bool | str | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"[JsonLinesLog] cannot write a {type(value).__name__} as JSON")
