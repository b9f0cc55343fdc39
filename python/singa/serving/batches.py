"""Requests of many threads, computed in batches."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..raw.check import integer
from ..training.picture_classifier import PictureClassifier
from .counters import Counters

_Row: TypeAlias = list[float]
_Asked: TypeAlias = tuple[NDArray[np.float32], "Future[_Row]"]


class BusyError(RuntimeError):
    """More pictures wait than may, or one has waited for too long.

    >>> from singa import serving
    >>> issubclass(serving.BusyError, RuntimeError)
    True
    """


class PictureSizeError(ValueError):
    """A picture whose size the transform leaves as it is, and which is not that of the network.

    >>> from singa import serving
    >>> issubclass(serving.PictureSizeError, ValueError)
    True
    """


class Batches:
    """Collects pictures that threads ask for, and computes them in batches.

    A batch begins with a picture that waits, and takes those that come within `patience_s` seconds,
    `most` at most. One thread computes, because a network computes one batch at a time, with all
    cores. Where a batch fails, its pictures are computed one by one, so an error reaches only
    whom it concerns.

    classifier  what is asked
    most        pictures in a batch; it bounds the memory of a step (default 16)
    patience_s  how long a single picture waits for company, in seconds (default 0.005)
    waiting     pictures that may wait (default 64)
    counters    where batches are counted (default: new ones)

    >>> from singa import serving
    >>> from singa.training.picture_classifier import PictureClassifier
    >>> net = models.create("lenet", num_classes=2)
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> classifier = PictureClassifier(net, ("cat", "dog"), data.Normalize([0.5], [0.25]))
    >>> with serving.Batches(classifier) as batches:
    ...     answer = batches.probabilities(np.zeros((1, 28, 28), np.uint8))
    >>> sorted(answer)
    ['cat', 'dog']
    """

    def __init__(
        self,
        classifier: PictureClassifier,
        most: int = 16,
        patience_s: float = 0.005,
        waiting: int = 64,
        counters: Counters | None = None,
    ) -> None:
        self.classifier, self.patience_s = classifier, patience_s
        self._shape = classifier.inputs([classifier.blank()]).shape
        self.most = integer("Batches", "most", most, 1)
        self.counters = Counters() if counters is None else counters
        limit = integer("Batches", "waiting", waiting, 1)
        self._waiting: queue.Queue[_Asked | None] = queue.Queue(limit)
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def probabilities(
        self, picture: NDArray[np.uint8], timeout_s: float | None = None
    ) -> dict[str, float]:
        """What `predict` says of one decoded picture uint8 (C, H, W)."""
        return self.predict([picture], timeout_s)[0]

    def predict(
        self, pictures: Sequence[NDArray[np.uint8]], timeout_s: float | None = None
    ) -> list[dict[str, float]]:
        """Probabilities of all classes or labels for each decoded picture uint8 (C, H, W); of a
        network of numbers, these. The transform runs in the caller's thread, which then waits for
        the answers.

        timeout_s  for how long at most, in seconds (default: as long as it takes)

        Raises BusyError if too many pictures wait, if there is no answer in time, and after
        `close`; PictureSizeError; what the network raises, too.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        answers: list[Future[_Row]] = []
        try:
            for picture in pictures:
                answers.append(self._ask(picture))
            rows = [
                answer.result(None if end is None else max(end - time.monotonic(), 0))
                for answer in answers
            ]
        except TimeoutError:
            raise BusyError(f"no answer within {timeout_s:.3g} s") from None
        finally:
            for answer in answers:
                answer.cancel()  # what is not begun after a failure is not computed
        names = self.classifier.class_names
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _ask(self, picture: NDArray[np.uint8]) -> Future[_Row]:
        prepared = self.classifier.inputs([picture])
        if prepared.shape != self._shape:
            sizes = (" x ".join(map(str, shape[2:])) for shape in (prepared.shape, self._shape))
            raise PictureSizeError("a picture of {} pixels: the network takes {}".format(*sizes))
        answer: Future[_Row] = Future()
        with self._closing:
            if self._closed:
                raise BusyError("the service stops")
            try:
                self._waiting.put_nowait((prepared, answer))
            except queue.Full:
                raise BusyError(f"{self._waiting.maxsize} pictures wait already") from None
        return answer

    @property
    def waiting(self) -> int:
        """How many pictures wait, but for those of the batch that is computed."""
        return self._waiting.qsize()

    def close(self) -> None:
        """Answers what waits, and ends the thread."""
        with self._closing:
            closed, self._closed = self._closed, True
        if not closed:
            self._waiting.put(None)
        self._thread.join()

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _run(self) -> None:
        going = True
        while going and (first := self._waiting.get()) is not None:
            batch, end = [first], time.monotonic() + self.patience_s
            while len(batch) < self.most:
                try:
                    following = self._waiting.get(timeout=max(end - time.monotonic(), 0))
                except queue.Empty:
                    break
                if following is None:
                    going = False
                    break
                batch.append(following)
            # A picture whose request has given up is not computed.
            self._answer([asked for asked in batch if asked[1].set_running_or_notify_cancel()])

    def _answer(self, batch: list[_Asked]) -> None:
        if not batch:
            return
        try:
            inputs = np.concatenate([prepared for prepared, _ in batch])
            rows = self.classifier.values_of_inputs(inputs).tolist()
            self.counters.batch(len(batch))
            for (_, answer), row in zip(batch, rows, strict=True):
                answer.set_result(row)
        except Exception as error:  # each request gets its own; the thread goes on
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for each in batch:
                self._answer([each])
