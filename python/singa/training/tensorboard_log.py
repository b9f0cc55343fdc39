"""Training logs for TensorBoard."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from .. import distributed
from .log_base import Histogram, Image, Log, plain


class TensorBoardLog(Log):
    """Writes numbers, pictures and histograms for TensorBoard.

        with TensorBoardLog("runs/pets/tensorboard") as log:
            log.append(step=120, train_loss=0.61, filters=Image(filters), fc=Histogram(net.fc.W))

    and then `tensorboard --logdir runs`. It needs the package tensorboard; pictures need Pillow.

    folder  where event files go, which is created if it is missing. Each log adds a file.

    The field "step" of a record is its place on the horizontal axis. Numbers are scalars, those in
    dicts under names such as "val/loss"; booleans count as 0 and 1. Texts, lists and None are left
    out: text logs have them.
    Raises ImportError without tensorboard, OSError if the folder cannot be written to.

    >>> import os
    >>> with training.TensorBoardLog("tensorboard") as log:
    ...     log.append(step=1, train_loss=0.61)
    ...
    >>> len(os.listdir("tensorboard"))
    1
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder: str = os.fspath(folder)
        self._writes = distributed.is_main()
        self._writer: Any = None
        if not self._writes:
            return
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ImportError(
                "[TensorBoardLog] it needs tensorboard: pip install tensorboard"
            ) from error
        os.makedirs(self.folder, exist_ok=True)
        self._writer = EventFileWriter(self.folder)

    def append(self, record: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        """Adds a record, given as a mapping, as keyword arguments, or both, and flushes it.

        Raises ValueError without an integer "step", or if the log is closed; TypeError for a value
        that logs do not take.
        """
        if not self._writes:
            return
        from tensorboard.compat.proto.summary_pb2 import Summary

        given = {**(record or {}), **fields}
        step = plain(given.pop("step", None))
        if not isinstance(step, int) or isinstance(step, bool):
            raise ValueError(
                f"[TensorBoardLog] a record needs an integer step, got {step!r} beside "
                f"{', '.join(given)}"
            )
        self._add(step, summary=Summary(value=[_value(*item) for item in _flat("", given)]))

    def rewind(self, step: int) -> None:
        """Has TensorBoard forget all records after `step`. They remain in the files. Raises
        ValueError if the log is closed."""
        if not self._writes:
            return
        from tensorboard.compat.proto.event_pb2 import SessionLog

        # Readers drop events from this step on that came before: what TensorFlow writes at a
        # restart, and PyTorch for `purge_step`.
        self._add(step + 1, session_log=SessionLog(status=SessionLog.START))

    def _add(self, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        if self._writer is None:
            raise ValueError(f"[TensorBoardLog] {self.folder} is closed")
        self._writer.add_event(Event(wall_time=time.time(), step=step, **content))
        self._writer.flush()

    def close(self) -> None:
        """Closes the file. Further calls do nothing."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(tag, number, Image or Histogram) of those fields that TensorBoard shows."""
    for name, value in values.items():
        if isinstance(value, Image | Histogram):
            yield prefix + name, value
            continue
        value = plain(value)
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}/", value)
        elif isinstance(value, int | float):
            yield prefix + name, value


def _value(tag: str, value: Any) -> Any:
    """The protobuf message of a value."""
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary

    if isinstance(value, Image):
        height, width, channels = value.pixels.shape
        image = Summary.Image(
            height=height,
            width=width,
            colorspace=channels,
            encoded_image_string=_png(value),
        )
        return Summary.Value(tag=tag, image=image)
    if isinstance(value, Histogram):
        histogram = HistogramProto(
            min=value.smallest,
            max=value.largest,
            num=float(value.counts.sum()),
            sum=value.sum,
            sum_squares=value.sum_of_squares,
            bucket_limit=value.edges[1:].tolist(),
            bucket=value.counts.astype(float).tolist(),
        )
        return Summary.Value(tag=tag, histo=histogram)
    return Summary.Value(tag=tag, simple_value=float(value))


def _png(image: Image) -> bytes:
    try:
        from PIL import Image as Pillow
    except ImportError as error:
        raise ImportError("[TensorBoardLog] pictures need Pillow: pip install pillow") from error
    file = io.BytesIO()
    pixels = image.pixels[:, :, 0] if image.pixels.shape[2] == 1 else image.pixels
    Pillow.fromarray(pixels).save(file, "png")
    return file.getvalue()
