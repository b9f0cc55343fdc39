"""SINGA's ImageBatchIter: mini-batches of image files that are listed in a text file."""

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

from ..raw.check import integer

_POLL_S = 0.05  # interval in seconds at which the thread checks for `end`


class ImageBatchIter:
    """Reads, augments and stacks images in a background thread. It repeats the list without end.

    img_list_file    text file with a line `path<delimiter>label` for each image; the label is an
                     integer or any text, or is missing
    batch_size       number of images in a batch, after augmentation
    image_transform  function from an image's path to a list of PIL images of one size, at most
                     `batch_size`; `image_tool.ImageTool` makes such lists
    shuffle          whether each pass over the list has a new random order (default True)
    delimiter        text between path and label (default: a space)
    image_folder     folder of the paths (default: the working folder)
    capacity         maximum number of batches that are prepared ahead (default 10)
    seed             seed of the order; None (the default) chooses a random one

        batches = ImageBatchIter("train.txt", 32, transform, image_folder="images")
        batches.start()
        images, labels = next(batches)
        batches.end()

    A batch is (images, labels). Images are a float32 array (batch_size, 3, H, W) of values from 0
    to 255; grey images have three equal channels. Labels are an int32 array if all labels of the
    list are integers, otherwise a list of str, with None for a missing label. `next` raises
    exceptions of the thread, including those of `image_transform`. After `end`, `start` begins at
    the start of the list. As a context manager, the object calls `start` and `end`.

    Raises ValueError for an empty list and for wrong numbers, TypeError if `image_transform` is not
    callable, OSError if the list cannot be read.

    >>> from pathlib import Path
    >>> from PIL import Image
    >>> Image.new("RGB", (8, 6)).save("cat.png")
    >>> size = Path("train.txt").write_text("cat.png 0")
    >>> batches = data.ImageBatchIter("train.txt", 1, lambda path: [Image.open(path)])
    >>> batches.start()
    >>> images, labels = next(batches)
    >>> batches.end()
    >>> images.shape, labels
    ((1, 3, 6, 8), array([0], dtype=int32))
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
        for name, value in (("batch_size", batch_size), ("capacity", capacity)):
            integer("ImageBatchIter", name, value, 1)
        if not callable(image_transform):
            raise TypeError(
                f"[ImageBatchIter] image_transform cannot be called: {image_transform!r}"
            )
        self.img_list_file: str = os.fspath(img_list_file)
        self.batch_size = batch_size
        self.image_transform = image_transform
        self.shuffle = shuffle
        self.delimiter = delimiter
        self.image_folder: str = "" if image_folder is None else os.fspath(image_folder)
        self.capacity = capacity
        self._seed = seed
        self._samples = self._read_list()
        self.num_samples: int = len(self._samples)
        self._batches: queue.Queue[Any] = queue.Queue(capacity)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread. Does nothing if it is running."""
        if self._thread is not None:
            return
        self._batches = queue.Queue(self.capacity)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run, name="singa-image-batches", daemon=True)
        self._thread.start()
        atexit.register(self.end)  # so that no decoder is running when the interpreter exits

    def end(self) -> None:
        """Stops the thread and waits for it. Does nothing if it is not running."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.end)
        self._stop.set()
        if thread is not threading.current_thread():
            thread.join()

    def run(self) -> None:
        """Body of the thread: puts batches into the queue until `end` is called."""
        stop, batches = self._stop, self._batches
        try:
            for batch in self._make_batches(stop):
                if not _put(batches, batch, stop):
                    return
        except BaseException as error:
            _put(batches, error, stop)

    def __next__(self) -> tuple[NDArray[np.float32], Any]:
        """The next batch. Waits for it. Raises RuntimeError if `start` was not called."""
        while True:
            if self._thread is None:
                raise RuntimeError("[ImageBatchIter] call start before next")
            try:
                item = self._batches.get(timeout=_POLL_S)
                break
            except queue.Empty:  # not ready yet, or another thread called `end`
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
                try:
                    augmented = self.image_transform(os.path.join(self.image_folder, path))
                except Exception as error:
                    error.add_note(f"[ImageBatchIter] in the picture {path}")
                    raise
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
    """Waits for space in the queue and adds `item`. Returns False if `stop` is set first."""
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
