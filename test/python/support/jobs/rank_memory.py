"""A plain communicator, the oracle for `singa_wrap.Communicator`: each rank writes its arrays into
a file in shared memory, and all add them in the order of the ranks."""

import json
import mmap
import os
import time
from pathlib import Path

import numpy as np
from singa.tape.elements import as_raw
from singa.tape.tensor import wrap

_SLOT = 1 << 20  # bytes of a rank's arrays
_HEAD = 4096  # counter, process and text of a rank


class MemoryCommunicator:
    """Ranks of one machine that share the memory `name`. Raises RuntimeError if another rank is
    gone, has aborted, or does not come within `timeout` seconds."""

    def __init__(self, name, rank, world_size, timeout=60.0):
        self.global_rank = self.local_rank = rank
        self.world_size = world_size
        self._timeout = timeout
        self._aborted = False
        path = Path("/dev/shm", f"{name}-reference")
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(file, world_size * (_HEAD + _SLOT))
        memory = mmap.mmap(file, world_size * (_HEAD + _SLOT))
        os.close(file)
        every = np.frombuffer(memory, np.uint8).reshape(world_size, _HEAD + _SLOT)
        self._counters = every[:, :8].view(np.int64)[:, 0]
        self._processes = every[:, 8:16].view(np.int64)[:, 0]
        self._texts = every[:, 16:_HEAD]
        self._slots = every[:, _HEAD:]
        self._processes[rank] = os.getpid()
        self.barrier()
        if rank == 0:
            path.unlink()

    def barrier(self):
        mine = int(self._counters[self.global_rank]) + 1
        self._counters[self.global_rank] = mine
        began = time.monotonic()
        while True:
            late = np.flatnonzero(self._counters < mine).tolist()
            if not late:
                return
            self._check_others(late, mine, time.monotonic() - began)
            time.sleep(0.0005)

    def _check_others(self, late, mine, waited):
        for rank in range(self.world_size):
            text = self._texts[rank].tobytes().split(b"\0", 1)[0].decode()
            if text and rank != self.global_rank:
                raise RuntimeError(f"rank {rank}: {text}")
        for rank in late:
            gone = self._processes[rank] and not _lives(int(self._processes[rank]))
            if gone and self._counters[rank] < mine:  # it may have come, and ended, meanwhile
                raise RuntimeError(f"rank {rank} is gone")
        if waited > self._timeout:
            raise RuntimeError(f"ranks {late} did not answer for {waited:.1f} s")

    def _exchanged(self, array):
        """(W, ...): the array of each rank."""
        text = f"{array.dtype}{array.shape}"
        if (texts := self._texts_of_all(text)).count(text) != self.world_size:
            raise ValueError(f"the ranks disagree: {texts}")
        flat = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        whole = np.empty((self.world_size, flat.size), np.uint8)
        for start in range(0, flat.size, _SLOT):
            part = flat[start : start + _SLOT]
            self._slots[self.global_rank, : part.size] = part
            self.barrier()
            whole[:, start : start + part.size] = self._slots[:, : part.size]
            self.barrier()
        return whole.view(array.dtype).reshape(self.world_size, *array.shape)

    def _texts_of_all(self, text):
        encoded = np.frombuffer(json.dumps(text).encode(), np.uint8)
        slot = self._slots[self.global_rank]
        slot[:4] = np.array([encoded.size], np.int32).view(np.uint8)
        slot[4 : 4 + encoded.size] = encoded
        self.barrier()
        texts = []
        for other in self._slots:
            size = int(other[:4].view(np.int32)[0])
            texts.append(json.loads(other[4 : 4 + size].tobytes()))
        self.barrier()
        return texts

    def all_gather(self, raw):
        return as_raw(self._exchanged(wrap(raw, False).numpy()), raw.data_type())

    def all_reduce(self, raws):
        for raw in raws:
            total, *others = self._exchanged(wrap(raw, False).numpy())
            for other in others:
                total = total + other
            wrap(raw, False).copy_from_numpy(total)

    def broadcast(self, raws, root=0):
        for raw in raws:
            wrap(raw, False).copy_from_numpy(self._exchanged(wrap(raw, False).numpy())[root])

    def check(self, text):
        texts = self._texts_of_all(text)
        if len(set(texts)) > 1:
            raise RuntimeError(f"the ranks disagree: {texts}")

    def abort(self, text):
        if not self._aborted:
            self._aborted = True
            encoded = np.frombuffer(text.encode()[: _HEAD - 32], np.uint8)
            self._texts[self.global_rank, 1 : encoded.size] = encoded[1:]
            self._texts[self.global_rank, 0] = encoded[0]


class Alone:
    """The communicator of one rank, for operators that ask one."""

    world_size = 1
    global_rank = local_rank = 0

    def all_gather(self, raw):
        return raw.Clone().Unsqueeze((0,))

    def all_reduce(self, raws):
        pass


def of_environment():
    """The communicator of a rank of `singa launch`."""
    from singa import distributed

    place = distributed.environment()
    return MemoryCommunicator(place.job, place.rank, place.world_size, place.timeout)


def _lives(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
