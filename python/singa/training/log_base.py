"""What training logs have in common: JSON lines (log.py), CSV (csv_log.py) and TensorBoard
(tensorboard_log.py).

    logs = [training.JsonLinesLog("run/log.jsonl"), training.TensorBoardLog("run/tensorboard")]
    for log in logs:
        log.append(step=120, train_loss=0.61, filters=training.Image(filters))
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

from .. import distributed
from ..files.atomic import atomic_write, is_special, naming
from ..tensor import Tensor

Record = dict[str, Any]


class Log:
    """What all training logs have in common.

    `append` adds a record, `rewind` forgets the records of later steps, which a resumed run makes
    again, and `close` ends the log, as leaving a `with` block does.

    Of several ranks all may have a log and call it, but only rank 0 writes. So a log is made when
    the ranks know each other: under a launcher, or after `opt.DistOpt`.

    >>> class Print(training.Log):
    ...     def append(self, record=None, /, **fields):
    ...         print({**(record or {}), **fields})
    ...     def rewind(self, step):
    ...         pass
    ...     def close(self):
    ...         pass
    ...
    >>> Print().append(epoch=1, train_loss=1.21)
    {'epoch': 1, 'train_loss': 1.21}
    """

    def append(self, record: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Adds a record, given as a mapping, as keyword arguments, or both."""
        raise NotImplementedError

    def rewind(self, step: int) -> None:
        """Removes the records whose field "step" is larger than `step`."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the log. Further calls do nothing."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Image:
    """One picture, or several in a grid, for a field of a record. Logs other than `TensorBoardLog`
    leave it out.

    pixels  (H, W), (C, H, W) or (N, C, H, W) with 1 or 3 channels: uint8, or floats from 0 to 1,
            beyond which they are clipped; an array or a tensor

    Raises ValueError for other shapes, and without pixels.

    >>> with training.JsonLinesLog("log.jsonl") as log:  # a text log leaves pictures out
    ...     log.append(epoch=1, picture=training.Image(np.zeros((8, 8))))
    >>> training.read_log("log.jsonl")
    [{'epoch': 1}]
    """

    def __init__(self, pixels: Any) -> None:
        images = _as_array(pixels)
        shape = images.shape
        if images.dtype != np.uint8:
            images = np.rint(np.clip(np.nan_to_num(images), 0, 1) * 255).astype(np.uint8)
        images = (
            images.reshape((1,) * (4 - images.ndim) + shape) if 2 <= len(shape) <= 4 else images
        )
        if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.size:
            raise ValueError(
                f"[Image] expected (H, W), (C, H, W) or (N, C, H, W) with 1 or 3 channels, got "
                f"{shape}"
            )
        count, channels, height, width = images.shape
        columns = math.isqrt(count - 1) + 1
        rows = -(-count // columns)
        cells = np.zeros((rows * columns, channels, height, width), np.uint8)
        cells[:count] = images
        cells = cells.reshape(rows, columns, channels, height, width)
        #: (height, width, channels) of the grid.
        self.pixels = cells.transpose(0, 3, 1, 4, 2).reshape(rows * height, columns * width, -1)


class Histogram:
    """The distribution of numbers, such as those of a weight, for a field of a record. Logs other
    than `TensorBoardLog` leave it out.

    values  an array or a tensor of any shape; those that are not finite are left out
    bins    number of intervals of equal width between the smallest and the largest (default 64)

    Raises ValueError without finite numbers.

    >>> with training.JsonLinesLog("log.jsonl") as log:  # a text log leaves histograms out
    ...     log.append(epoch=1, weights=training.Histogram(np.arange(10)))
    >>> training.read_log("log.jsonl")
    [{'epoch': 1}]
    """

    def __init__(self, values: Any, bins: int = 64) -> None:
        numbers = _as_array(values).astype(np.float64).ravel()
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            raise ValueError("[Histogram] there are no finite numbers")
        #: Numbers in each interval, and its two ends: (bins,) and (bins + 1,).
        self.counts, self.edges = np.histogram(numbers, bins)
        self.smallest, self.largest = float(numbers.min()), float(numbers.max())
        self.sum, self.sum_of_squares = float(numbers.sum()), float(np.square(numbers).sum())


def _as_array(values: Any) -> np.ndarray:
    return values.numpy() if hasattr(values, "numpy") else np.asarray(values)


class TextLog(Log):
    """A log in a text file. `append` writes a record to the file at once.

    path  file to append to, which is created if it is missing
    keep  function of an existing record; records for which it is false are removed

    An incomplete last line, which a crash leaves, is removed first. A device or FIFO, such as
    /dev/null, is only written to. Raises ValueError if the file has other content.
    """

    def __init__(
        self, path: str | os.PathLike[str], keep: Callable[[Record], bool] | None = None
    ) -> None:
        self.path: str = os.fspath(path)
        self._writes = distributed.is_main()
        self._file: BinaryIO | None = None
        if self._writes:
            self._special = is_special(self.path)
            self._open(keep)

    def _open(self, keep: Callable[[Record], bool] | None) -> None:
        if os.path.exists(self.path) and not self._special:
            old, torn = self._read()
            kept = [e for e in old if keep(self._record(e))] if keep is not None else old
            if torn or len(kept) != len(old):
                self._rewrite(kept)
        self._reopen()

    def _rewrite(self, entries: Iterable[Any]) -> None:
        with atomic_write(self.path, "w") as file:
            file.write(self._text(entries))

    def _reopen(self) -> None:
        file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed in close()
        self.close()
        self._file = file

    # A format defines these four. An entry is a record as the file has it.

    def _read(self) -> tuple[list[Any], bool]:
        """The entries of the file, and whether an incomplete one follows."""
        raise NotImplementedError

    def _record(self, entry: Any) -> Record:
        raise NotImplementedError

    def _text(self, entries: Iterable[Any]) -> str:
        """What a file with these entries has."""
        raise NotImplementedError

    def _added(self, record: Record) -> str:
        """The text that a record adds to the file."""
        raise NotImplementedError

    def append(self, record: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Adds a record, given as a mapping, as keyword arguments, or both.

        NumPy scalars and tensors of one element become numbers, arrays and other tensors lists.
        Raises TypeError for a value that JSON cannot represent, ValueError if the log is closed,
        OSError if writing fails, for example on a full disk. The file is unchanged after an error.
        """
        if not self._writes:
            return
        self._opened()
        given = {**(record or {}), **fields}
        text = self._added({k: plain(v) for k, v in given.items() if not _is_graphic(v)})
        # One unbuffered write, so that a reader sees whole lines, unless the machine crashes or the
        # disk is full.
        line = memoryview(text.encode())
        file = self._opened()
        end = os.fstat(file.fileno()).st_size
        with naming(self.path):
            try:
                while line:
                    line = line[file.write(line) :]
            except OSError:
                if not self._special:
                    file.truncate(end)
                raise

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise ValueError(f"[{type(self).__name__}] {self.path} is closed")
        return self._file

    def rewind(self, step: int) -> None:
        """Removes the records whose field "step" is larger than `step`. A device or FIFO remains
        as it is. Raises ValueError if the log is closed."""
        if not self._writes:
            return
        self._opened()
        if not self._special:
            self._open(lambda record: not _is_later(record.get("step"), step))

    def close(self) -> None:
        """Flushes the file to disk and closes it. Further calls do nothing."""
        if self._file is not None:
            if not self._special:
                with naming(self.path):
                    os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        if self.__dict__.get("_file") is not None:
            self._file.close()  # type: ignore[union-attr]


def _is_graphic(value: Any) -> bool:
    return isinstance(value, Image | Histogram)


def _is_later(value: Any, step: int) -> bool:
    return isinstance(value, int | float) and value > step


def plain(value: Any) -> Any:
    """Converts a value to JSON's types, NaN and infinity apart: a tensor of one element to a
    number, others and arrays to lists. Raises TypeError for another type."""
    if isinstance(value, bool | str | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Tensor) and value.size() == 1:  # such as a loss, whose shape is (1,)
        return plain(value.item())
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"[Log.append] cannot log a {type(value).__name__}")
