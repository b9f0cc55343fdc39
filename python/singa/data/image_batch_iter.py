"""Mini-batches from image files that a text file lists, under the name that SINGA scripts use."""

from __future__ import annotations

import atexit
import os
import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_POLL_S = 0.05  # how soon the thread notices `end`, in seconds


class ImageBatchIter:
    """Reads, augments and stacks images in a background thread, for ever.

    img_list_file    text file with a line `path<delimiter>label` for each image; the label is an
                     integer, or any text, or missing
    batch_size       images a batch, after augmentation
    image_transform  called with an image's path; returns a list of PIL images of one size
                     (`image_tool.ImageTool` makes them), at most `batch_size`
    shuffle          a new random order each time the list has been gone through
    delimiter        between path and label
    image_folder     put before each path
    capacity         batches made ahead, at most
    seed             of the order; None draws one

        batches = ImageBatchIter("train.txt", 32, transform, image_folder="images")
        batches.start()
        images, labels = next(batches)
        batches.end()

    Yields images as float32 (batch_size, 3, H, W), 0 … 255, grey ones repeated. Labels come as
    an int32 array if all of them are integers, else as a list of texts (None where missing).
    An exception in the thread, `image_transform`'s included, is raised by `next`. After `end`,
    `start` begins anew. Also a context manager, which starts and ends it.

    Raises ValueError for an empty list or wrong arguments, OSError if the list cannot be read.
    """

    def __init__(
        self,
        img_list_file: str | os.PathLike[str],
        batch_size: int,
        image_transform: Callable[[str], Sequence[Any]],
        shuffle: bool = True,
        delimiter: str = " ",
        image_folder: str | os.PathLike[str] | None = None,
        capacity: int = 10,
        seed: int | None = None,
    ) -> None:
        if batch_size < 1 or capacity < 1:
            raise ValueError(
                f"[ImageBatchIter] batch_size and capacity must be at least 1, "
                f"got {batch_size} and {capacity}"
            )
        if not callable(image_transform):
            raise TypeError(
                f"[ImageBatchIter] image_transform cannot be called: {image_transform!r}"
            )
        self.img_list_file = os.fspath(img_list_file)
        self.batch_size = batch_size
        self.image_transform = image_transform
        self.shuffle = shuffle
        self.delimiter = delimiter
        self.image_folder = "" if image_folder is None else os.fspath(image_folder)
        self.capacity = capacity
        self._seed = seed
        self._samples = self._read_list()
        self.num_samples = len(self._samples)
        self._batches: queue.Queue[Any] = queue.Queue(capacity)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread. Does nothing if it runs already."""
        if self._thread is not None:
            return
        self._batches = queue.Queue(self.capacity)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run, name="singa-image-batches", daemon=True)
        self._thread.start()
        atexit.register(self.end)  # no thread is left in the middle of a decoder at exit

    def end(self) -> None:
        """Stops the thread and waits for it. Does nothing if none runs."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.end)
        self._stop.set()
        if thread is not threading.current_thread():
            thread.join()

    def run(self) -> None:
        """What the thread does: batch after batch into the queue, until `end`."""
        stop, batches = self._stop, self._batches
        try:
            for batch in self._make_batches(stop):
                if not _put(batches, batch, stop):
                    return
        except BaseException as error:
            _put(batches, error, stop)

    def __next__(self) -> tuple[NDArray[np.float32], Any]:
        """The next batch. Raises RuntimeError if `start` was not called."""
        while True:
            if self._thread is None:
                raise RuntimeError("[ImageBatchIter] call start before next")
            try:
                item = self._batches.get(timeout=_POLL_S)
                break
            except queue.Empty:  # slow, or ended by another thread meanwhile
                pass
        if isinstance(item, BaseException):
            self.end()
            raise item
        return item

    next = __next__

    def __iter__(self) -> Iterator[tuple[NDArray[np.float32], Any]]:
        return self

    def __enter__(self) -> ImageBatchIter:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end()

    def _read_list(self) -> list[tuple[str, str | None]]:
        samples = []
        with open(self.img_list_file, encoding="utf-8") as file:
            for line in file:
                path, found, label = line.rstrip("\r\n").partition(self.delimiter)
                if path:
                    samples.append((path, label.strip() if found else None))
        if not samples:
            raise ValueError(f"[ImageBatchIter] {self.img_list_file} lists no image")
        return samples

    def _make_batches(
        self, stop: threading.Event
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32] | list[str | None]]]:
        samples, order = list(self._samples), random.Random(self._seed)
        integers = all(label is not None and _is_integer(label) for _, label in samples)
        index = 0
        while not stop.is_set():
            images: list[NDArray[np.float32]] = []
            labels: list[Any] = []
            while len(images) < self.batch_size and not stop.is_set():
                if index == 0 and self.shuffle:
                    order.shuffle(samples)
                path, label = samples[index]
                index = (index + 1) % len(samples)
                augmented = self.image_transform(os.path.join(self.image_folder, path))
                if not 0 < len(augmented) <= self.batch_size - len(images):
                    raise ValueError(
                        f"[ImageBatchIter] image_transform returned {len(augmented)} images for "
                        f"{path}: a batch of {self.batch_size} has room for "
                        f"{self.batch_size - len(images)} more"
                    )
                for image in augmented:
                    pixels = np.asarray(image.convert("RGB"), np.float32).transpose(2, 0, 1)
                    if images and pixels.shape != images[0].shape:
                        raise ValueError(
                            f"[ImageBatchIter] {path} became an image of shape {pixels.shape}, "
                            f"the others of the batch have {images[0].shape}"
                        )
                    images.append(pixels)
                    labels.append(label)
            if not stop.is_set():
                yield np.stack(images), np.array(labels, np.int32) if integers else labels


def _put(batches: queue.Queue[Any], item: Any, stop: threading.Event) -> bool:
    """Waits for room unless `stop` is set; says whether `item` went in."""
    while not stop.is_set():
        try:
            batches.put(item, timeout=_POLL_S)
            return True
        except queue.Full:
            pass
    return False


def _is_integer(text: str) -> bool:
    try:
        return -(2**31) <= int(text) < 2**31
    except ValueError:
        return False
