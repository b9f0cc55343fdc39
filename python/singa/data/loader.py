"""Batches for training: shuffled, augmented in background threads, and resumable to the batch."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import singa_wrap
from .._check import integer
from ..tensor import from_numpy
from .dataset import ImageSet
from .transforms import Transform, to_float

if TYPE_CHECKING:
    from ..singa_wrap import Device

Batch = tuple[Any, Any]  # arrays, or tensors

_THREADS = "singa-loader"


class DataLoader:
    """Iterates over labelled images in batches, one pass ("epoch") for each `for` loop.

    data         an ImageSet, or a pair of arrays: images (N, C, H, W), integer labels (N,)
    batch_size   images a batch; the last batch of an epoch may be shorter
    shuffle      a new random order in each epoch
    seed         of the order and of `transform`'s random generators
    transform    called as `transform(images, rng)` with copies of the batch's images (see
                 `transforms`); without one, uint8 images are scaled to 0 … 1
    num_workers  background threads; 0 makes each batch when it is asked for
    prefetch     batches made ahead, at most (at least one a worker)
    drop_last    leave out a last batch that is short
    device       where batches are wanted as tensors; None: as arrays

    Yields (images float32 (n, C, H, W), labels int32 (n,)), both C-contiguous and the caller's to
    keep. Batches come in order, and the order and every random draw depend on `seed`, the epoch
    and the number of the batch only: not on the number of workers or on what came before. With a
    GPU as `device` the workers send them there: batches made ahead travel while the GPU computes,
    and wait in its memory.

    A pass that is broken off does not count: the next one begins the same epoch again, so
    `next(iter(loader))` only looks. `state_dict` says which batch comes next, and a loader that
    loads it continues there, in the middle of the epoch. An exception in `transform` is raised in
    the loop, with the worker's traceback. Threads end with the loop, however it ends. They do not
    survive a fork: a child process makes its own iterators.

    Raises TypeError or ValueError for data or arguments that do not fit.
    """

    def __init__(
        self,
        data: ImageSet | tuple[ArrayLike, ArrayLike],
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        transform: Transform | None = None,
        num_workers: int = 1,
        prefetch: int = 2,
        drop_last: bool = False,
        device: Device | None = None,
    ) -> None:
        self._images, self._labels = _arrays(data)
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("seed", seed, 0),
            ("num_workers", num_workers, 0),
            ("prefetch", prefetch, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise TypeError(f"[DataLoader] {name} must be an integer, got {value!r}")
            if value < least:
                raise ValueError(f"[DataLoader] {name} must be at least {least}, got {value}")
        if transform is not None and not callable(transform):
            raise TypeError(f"[DataLoader] transform cannot be called: {transform!r}")
        if device is not None and not isinstance(device, singa_wrap.Device):
            raise TypeError(f"[DataLoader] device must be a Device or None, got {device!r}")
        self.batch_size = int(batch_size)
        self.shuffle = bool(shuffle)
        self.seed = int(seed)
        self.transform = transform
        self.num_workers = int(num_workers)
        self.prefetch = min(int(prefetch), 1 << 30)
        self.drop_last = bool(drop_last)
        self.device = device
        self._on_gpu = device is not None and device.kind() != singa_wrap.DeviceKind_kCpu
        self._epoch = 0  # of the next pass
        self._start = 0  # the batch it begins with
        self._position = (0, 0)  # epoch and number of the batch that comes next

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        whole, rest = divmod(len(self._labels), self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    @property
    def epoch(self) -> int:
        """The epoch that the next pass belongs to, from 0; counts up when a pass ends."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next pass's. Where it is already, a resumed position stays."""
        epoch = integer("DataLoader", "epoch", epoch, 0)
        if epoch != self._epoch:
            self._epoch, self._start = int(epoch), 0
            self._position = (self._epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """The place after the batch last yielded, and what it depends on; plain JSON values."""
        epoch, batch = self._position
        return {"epoch": epoch, "batch": batch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where `state_dict` was taken.

        A state taken after an epoch's last batch, inside the loop, gives one empty pass first:
        what the script does at the end of an epoch is then done for it.

        Raises ValueError if `state` is incomplete or belongs to a loader with another order
        (other seed, batch size, number of images, shuffling or last batch).
        """
        try:
            epoch, batch = state["epoch"], state["batch"]
            identity = {key: state[key] for key in self._identity()}
        except (KeyError, TypeError) as error:
            raise ValueError(f"[DataLoader] not a loader's state: {error} is missing") from None
        for key, mine in self._identity().items():
            if identity[key] != mine:
                raise ValueError(
                    f"[DataLoader] the state is of a loader with {key} {identity[key]!r}, "
                    f"this one has {mine!r}: the batches would not be the same"
                )
        if not (type(epoch) is int and type(batch) is int and epoch >= 0):
            raise ValueError(f"[DataLoader] no place: epoch {epoch!r}, batch {batch!r}")
        if not 0 <= batch <= len(self):
            raise ValueError(f"[DataLoader] batch {batch} is not in an epoch of {len(self)}")
        self._epoch, self._start = epoch, batch
        self._position = (epoch, batch)

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "images": len(self._labels),
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }

    def __iter__(self) -> Iterator[Batch]:
        epoch, start, end = self._epoch, self._start, len(self)
        order = self._order(epoch)
        batches = self._in_background(epoch, order, start, end)
        try:
            for number in range(start, end):
                batch = next(batches)
                self._position = (epoch, number + 1)
                # On the CPU a worker's copy would take a core from the loop.
                yield batch if self.device is None or self._on_gpu else self._tensors(batch)
        finally:
            batches.close()
        if self._epoch == epoch:
            self._epoch, self._start = epoch + 1, 0
            self._position = (self._epoch, 0)

    def _in_background(
        self, epoch: int, order: NDArray[np.intp], start: int, end: int
    ) -> Generator[Batch, None, None]:
        """The batches from `start` to `end`, made ahead by threads that end with the generator.

        Workers never wait for anything but their own work: what limits them is that only so many
        batches are asked for. So nothing can hang when the consumer stops listening, and at
        interpreter exit the executor's own hook ends idle threads.
        """
        if not self.num_workers:
            for number in range(start, end):
                yield self._make(epoch, order, number)
            return
        process = os.getpid()
        numbers = iter(range(start, end))
        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix=_THREADS)
        pending: deque[Future[Batch]] = deque()

        def ask_for(count: int) -> None:
            for number in islice(numbers, count):
                pending.append(pool.submit(self._make, epoch, order, number))

        try:
            ask_for(max(self.prefetch, self.num_workers))
            while pending:
                if os.getpid() != process:
                    raise RuntimeError(
                        "[DataLoader] this iterator belongs to the process that forked this one; "
                        "its threads are not here. Start a new loop"
                    )
                batch = pending.popleft().result()
                ask_for(1)
                yield batch
        finally:
            if os.getpid() == process:
                # A cycle that holds this generator may be collected inside one of its workers.
                inside = threading.current_thread().name.startswith(_THREADS)
                pool.shutdown(wait=not inside, cancel_futures=True)

    def _order(self, epoch: int) -> NDArray[np.intp]:
        count = len(self._labels)
        if not self.shuffle:
            return np.arange(count)
        return self._generator(epoch, 0).permutation(count)

    def _generator(self, epoch: int, *place: int) -> np.random.Generator:
        stream = np.random.SeedSequence(self.seed, spawn_key=(epoch, *place))
        return np.random.Generator(np.random.PCG64(stream))

    def _make(self, epoch: int, order: NDArray[np.intp], number: int) -> Batch:
        indices = order[number * self.batch_size : (number + 1) * self.batch_size]
        images = self._images[indices]
        try:
            if self.transform is None:
                images = to_float(images)
            else:
                images = self.transform(images, self._generator(epoch, 1, number))
            images = np.ascontiguousarray(images, np.float32)
            if images.ndim != 4 or len(images) != len(indices):
                raise ValueError(
                    f"[DataLoader] transform returned shape {images.shape} for {len(indices)} "
                    "images (N, C, H, W)"
                )
        except Exception as error:
            error.add_note(f"[DataLoader] in batch {number} of epoch {epoch}")
            raise
        batch = images, self._labels[indices]
        return self._tensors(batch) if self._on_gpu else batch

    def _tensors(self, batch: Batch) -> Batch:
        images, labels = batch
        return from_numpy(images, self.device), from_numpy(labels, self.device)


def _arrays(
    data: ImageSet | tuple[ArrayLike, ArrayLike],
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    if isinstance(data, ImageSet):
        return data.images, data.labels
    try:
        images, labels = (np.asanyarray(part) for part in data)
    except (TypeError, ValueError):
        raise TypeError(
            f"[DataLoader] expected an ImageSet or (images, labels), got {type(data).__name__}"
        ) from None
    if images.dtype.kind not in "uif" or labels.dtype.kind not in "ui":
        raise TypeError(
            f"[DataLoader] expected images of numbers and labels of integers, "
            f"got {images.dtype} and {labels.dtype}"
        )
    if images.ndim != 4 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"[DataLoader] expected images (N, C, H, W) and labels (N,), "
            f"got {images.shape} and {labels.shape}"
        )
    if labels.size and not -(1 << 31) <= int(labels.min()) <= int(labels.max()) < 1 << 31:
        raise ValueError(
            f"[DataLoader] labels from {labels.min()} to {labels.max()} do not fit int32"
        )
    return images, labels.astype(np.int32)
