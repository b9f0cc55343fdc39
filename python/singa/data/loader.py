"""DataLoader: shuffled batches, augmented in background threads, which can resume at any batch."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import singa_wrap
from ..device import WANTED
from ..raw.check import integer, integers, with_facts
from ..tensor import Tensor, from_numpy
from .dataset import ArrayDataset, Dataset, ImageSet
from .foreign_transforms import adapted
from .items import Collate, collated, transformed
from .mixing import Mix
from .sampling import WeightedSampler
from .tar_shards import TarShards
from .transforms import Transform, to_float, warn_of_channels_last, warn_of_levels

if TYPE_CHECKING:
    from ..singa_wrap import Device

Batch = tuple[Any, ...]  # arrays, or tensors

_THREADS = "singa-loader"


class DataLoader:
    """Iterates over labelled images in batches. Each `for` loop is one epoch.

    data         an ImageSet; a pair of arrays: images (N, C, H, W), integer labels (N,); or any
                 other `Dataset`, such as an ImageFolder or a list of items (x, y) (see below)
    batch_size   images a batch; the last batch of an epoch may be shorter
    shuffle      a new random order in each epoch
    seed         of the order and of the random generators of `transform` and `mix`
    transform    called as `transform(images, rng)` with copies of the batch's images (see
                 `transforms`); without one, uint8 images are scaled to 0 … 1. Or a transform of
                 torchvision (v1 or v2), which gets each image as a Pillow image
    num_workers  background threads; 0 makes each batch when it is asked for
    prefetch     batches made ahead, at most (at least one a worker); None: two a worker
    drop_last    leave out a last batch that is short
    device       where batches are wanted as tensors; None: as arrays
    mix          called as `mix(images, labels, rng)` after `transform`, for labels that change with
                 the images (see `mixing`)
    shard        (rank, world_size): this process gets its part of each batch (see below); the
                 default is (0, 1), all of it
    virtual_ranks  parts into which a batch is cut, a multiple of world_size (default: world_size)
    collate      for a `Dataset`: called with the list of a batch's items, after `transform`;
                 returns an array or a tuple of arrays whose first axis is that of the items. By
                 default equal parts of the items are stacked
    sampler      a `WeightedSampler`, which draws the items of each epoch in place of `shuffle`

    Yields (images float32 (n, C, H, W), labels int32 (n,)), or with `mix` labels float32 (n,
    classes), both C-contiguous and the caller's to keep. Batches come in order, and the order and
    every random draw depend on `seed`, the epoch and the number of the batch only: not on the
    number of workers or on what came before. With a GPU as `device` the workers send them there:
    batches made ahead travel while the GPU computes, and wait in its memory.

    A pass that is broken off does not count: the next one begins the same epoch again, so
    `next(iter(loader))` only looks. `state_dict` says which batch comes next, and a loader that
    loads it continues there, in the middle of the epoch. An exception in `transform` or `mix` is
    raised in the loop, with the worker's traceback. Threads end with the loop, however it ends.
    They do not survive a fork: a child process makes its own iterators.

    A `Dataset` is read item by item. `transform` is called for each item's image alone, as
    (1, C, H, W), and for its mask, so images may differ in size before it. Random draws depend on
    `seed`, the epoch and the item's place in the order only. A batch has as many arrays as an item
    has parts: floats become float32, integers int32, and images of uint8 are scaled to 0 … 1.

    With `shard`, `batch_size` counts the images of all ranks. A batch holds the same images as in
    one process. Rank r of W gets its images r, r + W, r + 2·W, ..., so each image goes to one rank,
    and the position in `state_dict` is that of a job with another number of ranks, too. In a batch
    that W does not divide, some ranks get one image less, or none: (0, C, H, W). `weight` says by
    how much a rank's mean counts. Random draws are those of the part: images of one part are
    augmented alike wherever it is computed.

    With `virtual_ranks` V, batches are cut into V parts. Rank r yields its V / W parts r·V/W, ...
    of each batch one after another, so that a job on any number of ranks sees the same parts. A
    position within a batch counts as its beginning.

    Raises TypeError or ValueError for wrong data or arguments. Warns if the first batch looks like
    a mistake: images (N, H, W, C), or floats of 0 … 255.

    >>> loader = data.DataLoader(data.shapes("train", 100), 32, shuffle=True, seed=1)
    >>> len(loader)
    4
    >>> images, labels = next(iter(loader))
    >>> images.shape, images.dtype, labels.shape
    ((32, 3, 32, 32), dtype('float32'), (32,))
    """

    def __init__(
        self,
        data: ImageSet | tuple[ArrayLike, ArrayLike] | Dataset,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        transform: Transform | None = None,
        num_workers: int = 1,
        prefetch: int | None = None,
        drop_last: bool = False,
        device: Device | None = None,
        mix: Mix | None = None,
        shard: tuple[int, int] = (0, 1),
        virtual_ranks: int | None = None,
        collate: Collate | None = None,
        sampler: WeightedSampler | None = None,
    ) -> None:
        self._items = data if _is_dataset(data) else None
        if self._items is None:
            self._images, self._labels = _arrays(data)
        is_pair = self._items is None and not isinstance(data, ImageSet)
        #: What it reads: the ImageSet or Dataset. That of a pair of arrays is made of them.
        self.dataset: Any = ArrayDataset(self._images, self._labels) if is_pair else data
        self._length = len(self._labels if self._items is None else self._items)
        self.sampler = _checked_sampler(sampler, bool(shuffle), self._length)
        if sampler is not None:
            self._length = sampler.count
        for name, function in (("transform", transform), ("mix", mix), ("collate", collate)):
            if function is not None and not callable(function):
                several = isinstance(function, list | tuple) and name == "transform"
                advice = "; data.Compose(...) makes one of several" if several else ""
                raise TypeError(f"[DataLoader] {name} cannot be called: {function!r}{advice}")
        if device is not None and not isinstance(device, singa_wrap.Device):
            raise TypeError(f"[DataLoader] device must be {WANTED}, got {device!r}")
        self.batch_size: int = _whole("batch_size", batch_size, 1)
        self.shuffle: bool = bool(shuffle)
        self.seed: int = _whole("seed", seed, 0)
        self.transform = None if transform is None else adapted(transform)
        self.mix = mix
        self.collate = collate
        self.num_workers: int = _whole("num_workers", num_workers, 0)
        ahead = 2 * self.num_workers if prefetch is None else _whole("prefetch", prefetch, 0)
        self.prefetch: int = min(ahead, 1 << 30)
        self.drop_last: bool = bool(drop_last)
        self.device = device
        self._on_gpu = device is not None and device.kind() != singa_wrap.DeviceKind_kCpu
        self.shard: tuple[int, int]
        self.virtual_ranks: int
        self.shard, self.virtual_ranks = _checked_shard(shard, virtual_ranks)
        if virtual_ranks is not None and virtual_ranks > self.batch_size:
            raise ValueError(
                f"[DataLoader] virtual_ranks {virtual_ranks} is more than batch_size "
                f"{self.batch_size}: a batch would have empty parts"
            )
        self._per_batch = self.virtual_ranks // self.shard[1]  # own parts of a batch
        self._epoch = 0  # of the next loop
        self._start = 0  # first batch of the next loop
        self._position = (0, 0)  # epoch and number of the next batch
        self._is_first = True  # batch that is made
        self._is_tuple = True  # what a batch is
        self._counts = (0, 0)  # images of the last part, and of the batch that it belongs to

    def __len__(self) -> int:
        """Number of batches in an epoch. A loop yields as many for each of the rank's parts."""
        whole, rest = divmod(self._length, self.batch_size)
        return whole + (1 if rest and not self.drop_last else 0)

    @property
    def weight(self) -> float:
        """By how much the mean over the images of the last part counts: a weighted average over all
        parts is the mean over the batch.

        n · V / N for n of its N images, in V parts; 1 if all parts are equal.

        >>> data.DataLoader(data.digits("train", 32), 16).weight
        1.0
        """
        own, together = self._counts
        return own * self.virtual_ranks / together if together else 1.0

    @property
    def batch_images(self) -> int:
        """Number of images, on all ranks, of the batch that was yielded last.

        >>> loader = data.DataLoader(data.digits("train", 32), 16)
        >>> images, labels = next(iter(loader))
        >>> loader.batch_images
        16
        """
        return self._counts[1]

    @property
    def epoch(self) -> int:
        """Number of the next loop's epoch, from 0. It increases when a loop finishes.

        >>> loader = data.DataLoader(data.digits("train", 32), 16)
        >>> for images, labels in loader:
        ...     pass
        ...
        >>> loader.epoch
        1
        """
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next loop. If it is the current one, the position does not change.

        Raises ValueError for a negative number.

        >>> loader = data.DataLoader(data.digits("train", 32), 16, shuffle=True)
        >>> loader.set_epoch(3)
        >>> loader.epoch
        3
        """
        epoch = integer("DataLoader", "epoch", epoch, 0)
        if epoch != self._epoch:
            self._epoch, self._start = int(epoch), 0
            self._position = (self._epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch, and the settings that determine the order, as JSON
        values.

        >>> loader = data.DataLoader(data.digits("train", 64), 16, shuffle=True)
        >>> batches = iter(loader)
        >>> images, labels = next(batches)
        >>> loader.state_dict()["batch"]
        1
        """
        epoch, batch = self._position
        return {"epoch": epoch, "batch": batch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the position that `state_dict` returned.

        If the state was taken inside the loop after the last batch of an epoch, the next loop is
        empty, so that a script runs its code for the end of the epoch.

        Raises ValueError if `state` is malformed, or if the loader's order differs: another seed,
        batch size, sampler or number of images, other shuffle or drop_last.

        >>> loader = data.DataLoader(data.digits("train", 64), 16, shuffle=True)
        >>> batches = iter(loader)
        >>> images, labels = next(batches)
        >>> other = data.DataLoader(data.digits("train", 64), 16, shuffle=True)
        >>> other.load_state_dict(loader.state_dict())
        >>> bool((next(iter(other))[0] == next(batches)[0]).all())  # both go on
        True
        """
        own = {"sampler": None, **self._identity()}
        try:
            epoch, batch = state["epoch"], state["batch"]
            identity = {key: state[key] for key in own if key != "sampler"}
        except (KeyError, TypeError) as error:
            raise ValueError(f"[DataLoader] not a loader's state: {error} is missing") from None
        identity["sampler"] = state.get("sampler")
        for key, mine in own.items():
            if identity[key] != mine:
                raise with_facts(
                    ValueError(
                        f"[DataLoader] the state is of a loader with {key} {identity[key]!r}, "
                        f"this one has {mine!r}: the batches would differ"
                    ),
                    "other_batches",
                    setting=key,
                    saved=identity[key],
                    given=mine,
                )
        if not (type(epoch) is int and type(batch) is int and epoch >= 0):
            raise ValueError(f"[DataLoader] not a position: epoch {epoch!r}, batch {batch!r}")
        if not 0 <= batch <= len(self):
            raise ValueError(
                f"[DataLoader] batch {batch} is outside an epoch of {len(self)} batches"
            )
        self._epoch, self._start = epoch, batch
        self._position = (epoch, batch)

    def _identity(self) -> dict[str, Any]:
        identity = {
            "seed": self.seed,
            "batch_size": self.batch_size,
            "images": self._length,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }
        return identity if self.sampler is None else identity | {"sampler": self.sampler.identity()}

    def __iter__(self) -> Iterator[Any]:
        epoch, start, end = self._epoch, self._start, len(self)
        order = self._order(epoch)
        batches = self._in_background(epoch, order, start, end)
        per_batch = self._per_batch
        try:
            for part in range(start * per_batch, end * per_batch):
                batch = next(batches)
                number = part // per_batch
                self._counts = (batch[0].shape[0], len(self._indices(order, number)))
                self._position = (epoch, (part + 1) // per_batch)
                # For the CPU, the loop makes the tensors: a copy in a worker would use a core.
                if self.device is not None and not self._on_gpu:
                    batch = self._tensors(batch)
                yield batch if self._is_tuple else batch[0]
        finally:
            batches.close()
        if self._epoch == epoch:
            self._epoch, self._start = epoch + 1, 0
            self._position = (self._epoch, 0)

    def _in_background(
        self, epoch: int, order: NDArray[np.intp], start: int, end: int
    ) -> Generator[Batch, None, None]:
        """This rank's parts of the batches from `start` to `end`, prepared by threads that end with
        the generator.

        Workers never block: the number of submitted batches limits them. Nothing can hang when the
        consumer stops, and the executor ends idle threads at interpreter exit.
        """
        first = self.shard[0] * self._per_batch
        places = [
            (number, first + part)
            for number in range(start, end)
            for part in range(self._per_batch)
        ]
        if not self.num_workers:
            for place in places:
                yield self._make(epoch, order, *place)
            return
        process = os.getpid()
        waiting = iter(places)
        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix=_THREADS)
        pending: deque[Future[Batch]] = deque()

        def ask_for(count: int) -> None:
            for place in islice(waiting, count):
                pending.append(pool.submit(self._make, epoch, order, *place))

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
                # The garbage collector may close this generator in one of its own workers.
                inside = threading.current_thread().name.startswith(_THREADS)
                pool.shutdown(wait=not inside, cancel_futures=True)

    def _order(self, epoch: int) -> NDArray[np.intp]:
        count = self._length
        if self.sampler is not None:
            return self.sampler.order(self._generator(epoch, 0))
        if not self.shuffle:
            return np.arange(count)
        rng = self._generator(epoch, 0)
        if isinstance(self._items, TarShards):
            return self._items.shuffled(rng)
        return rng.permutation(count)

    def _generator(self, epoch: int, *place: int) -> np.random.Generator:
        stream = np.random.SeedSequence(self.seed, spawn_key=(epoch, *place))
        return np.random.Generator(np.random.PCG64(stream))

    def _indices(self, order: NDArray[np.intp], number: int) -> NDArray[np.intp]:
        """Positions of the images of a batch, on all ranks."""
        return order[number * self.batch_size : (number + 1) * self.batch_size]

    def _make(self, epoch: int, order: NDArray[np.intp], number: int, part: int) -> Batch:
        place = (number, part, self.virtual_ranks) if self.virtual_ranks > 1 else (number,)
        try:
            if self._items is None:
                batch = self._make_of_arrays(epoch, order, number, part, place)
            else:
                batch = self._make_of_items(epoch, order, number, part)
            if self.mix is not None:
                batch = self._mixed(batch, self._generator(epoch, 2, *place))
            if self._is_first and len(batch[0]):
                self._is_first = False
                if batch[0].ndim == 4:
                    warn_of_channels_last("DataLoader", batch[0].shape)
                    # uint8 images were scaled, or that was decided.
                    if self._items is None and self._images.dtype != np.uint8:
                        warn_of_levels("DataLoader", batch[0])
        except Exception as error:
            error.add_note(f"[DataLoader] in batch {number} of epoch {epoch}")
            raise
        return self._tensors(batch) if self._on_gpu else batch

    def _make_of_arrays(
        self,
        epoch: int,
        order: NDArray[np.intp],
        number: int,
        part: int,
        place: tuple[int, ...],
    ) -> Batch:
        indices = self._indices(order, number)[part :: self.virtual_ranks]
        images, labels = self._images[indices], self._labels[indices]
        if self.transform is None:
            images = to_float(images)
        else:
            images = self.transform(images, self._generator(epoch, 1, *place))
        if self.mix is None:
            images = _checked_images("transform", images, len(indices))
        return images, labels

    def _make_of_items(self, epoch: int, order: NDArray[np.intp], number: int, part: int) -> Batch:
        assert self._items is not None
        indices = self._indices(order, number)
        first = number * self.batch_size
        places = range(part, len(indices), self.virtual_ranks)
        # A part without items has the shape of others.
        items = []
        for place in places or range(1):
            item = self._items[int(indices[place])]
            if self.transform is not None:
                rng = self._generator(epoch, 3, first + place)
                item = transformed(self._items, item, self.transform, rng)
            items.append(item)
        batch, self._is_tuple = collated(items, self.collate)
        return batch if places else tuple(array[:0] for array in batch)

    def _mixed(self, batch: Batch, rng: np.random.Generator) -> Batch:
        assert self.mix is not None
        if len(batch) != 2:
            raise ValueError(
                f"[DataLoader] mix takes images and labels, and the items have {len(batch)} parts"
            )
        count = len(batch[0])
        images, labels = self.mix(*batch, rng)
        has_masks = getattr(self._items, "has_masks", False)
        is_cut = has_masks and labels.dtype.kind in "iu"
        labels = np.ascontiguousarray(labels, np.int32 if is_cut else np.float32)
        if (labels.ndim != 2 and not has_masks) or len(labels) != count:
            raise ValueError(
                f"[DataLoader] mix returned labels of shape {labels.shape} for "
                f"{count} images; expected (n, classes)"
            )
        return _checked_images("mix", images, count), labels

    def _tensors(self, batch: Batch) -> Batch:
        return tuple(from_numpy(array, self.device) for array in batch)


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"[DataLoader] {name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"[DataLoader] {name} must be at least {least}, got {value}")
    return int(value)


def _checked_sampler(
    sampler: WeightedSampler | None, shuffle: bool, items: int
) -> WeightedSampler | None:
    if sampler is None:
        return None
    if not isinstance(sampler, WeightedSampler):
        raise TypeError(
            f"[DataLoader] sampler must be a data.WeightedSampler, got {sampler!r:.80}; a subset "
            "in an order of its own is a Dataset"
        )
    if shuffle:
        raise ValueError("[DataLoader] a sampler draws in an order of its own: leave shuffle away")
    if len(sampler.weights) != items:
        raise ValueError(
            f"[DataLoader] the sampler has {len(sampler.weights)} weights for {items} items"
        )
    return sampler


def _is_dataset(data: object) -> TypeGuard[Dataset]:
    """Whether items are read one by one: a list of tuples is one of items."""
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], tuple)
    arrays = (ImageSet, tuple, dict, str, bytes, np.ndarray, Tensor)
    return not isinstance(data, arrays) and isinstance(data, Dataset)


def _checked_images(maker: str, images: NDArray[Any], count: int) -> NDArray[np.float32]:
    images = np.ascontiguousarray(images, np.float32)
    if images.ndim != 4 or len(images) != count:
        raise ValueError(
            f"[DataLoader] {maker} returned shape {images.shape} for {count} images (N, C, H, W)"
        )
    return images


def _checked_shard(
    shard: tuple[int, int], virtual_ranks: int | None
) -> tuple[tuple[int, int], int]:
    """(rank, world_size) and the number of parts of a batch."""
    pair = integers("DataLoader", "shard", shard)
    if len(pair) != 2:
        raise ValueError(f"[DataLoader] shard must be (rank, world_size), got {shard!r}")
    rank, world_size = pair
    integer("DataLoader", "world_size of shard", world_size, 1)
    if not 0 <= rank < world_size:
        raise ValueError(
            f"[DataLoader] the rank of shard must lie in [0, {world_size}), got {rank}"
        )
    if virtual_ranks is None:
        return (rank, world_size), world_size
    parts = integer("DataLoader", "virtual_ranks", virtual_ranks, 1)
    if parts % world_size:
        raise ValueError(
            f"[DataLoader] virtual_ranks must be a multiple of the {world_size} ranks, got {parts}"
        )
    return (rank, world_size), parts


def _arrays(
    data: Any,
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    if isinstance(data, ImageSet):
        return data.images, data.labels
    try:
        images, labels = (np.asanyarray(part) for part in data)
    except (TypeError, ValueError):
        raise TypeError(
            f"[DataLoader] expected an ImageSet, (images, labels), a list of items (x, y) or a "
            f"Dataset (with __len__ and __getitem__), got {type(data).__name__}; "
            "data.ArrayDataset(x, y) has rows of any arrays"
        ) from None
    if images.dtype.kind not in "uif" or labels.dtype.kind not in "ui":
        raise TypeError(
            f"[DataLoader] expected images of numbers and labels of integers, got {images.dtype} "
            f"and {labels.dtype}; data.ArrayDataset(x, y) has rows of any arrays"
        )
    if images.ndim != 4 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"[DataLoader] expected images (N, C, H, W) and labels (N,), got {images.shape} and "
            f"{labels.shape}; data.ArrayDataset(x, y) has rows of any arrays"
        )
    if labels.size and not -(1 << 31) <= int(labels.min()) <= int(labels.max()) < 1 << 31:
        raise ValueError(
            f"[DataLoader] labels from {labels.min()} to {labels.max()} do not fit int32"
        )
    return images, labels.astype(np.int32)
