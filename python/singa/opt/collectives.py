"""Sums over the ranks: SINGA's single operations, which are methods of `DistOpt`, and the running
statistics of batch norms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .. import singa_wrap
from ..tape.batch_statistics import BatchStatistics
from ..tape.elements import as_raw
from ..tape.step_recording import host_called


class Collectives:
    """Sums over the ranks of `communicator`, in place."""

    communicator: Any

    @host_called
    def all_reduce(self, tensor: Any) -> None:
        """Replaces a tensor by its sum over the ranks."""
        self.communicator.synch(as_raw(tensor))

    @host_called
    def fused_all_reduce(self, tensor: Iterable[Any], send: bool = True) -> None:
        """Replaces the tensors of a list by their sums. `send=False`, SINGA's way to fill a buffer
        before, does nothing."""
        self.communicator.fusedSynch([as_raw(t) for t in tensor], send)

    @host_called
    def all_reduce_half(self, tensor: Any) -> None:
        """As all_reduce, with float16 between the ranks."""
        self.communicator.synchHalf(as_raw(tensor))

    @host_called
    def fused_all_reduce_half(self, tensor: Iterable[Any], send: bool = True) -> None:
        """As fused_all_reduce, with float16 between the ranks."""
        self.communicator.fusedSynchHalf([as_raw(t) for t in tensor], send)

    @host_called
    def sparsification(self, tensor: Any, accumulation: Any, spars: float, topK: bool) -> None:
        """Replaces a tensor by the sum of its largest elements over the ranks, as
        backward_and_sparse_update chooses them. `accumulation`, if not None, holds what was not
        sent: it is added before, and gets what remains."""
        self.fused_sparsification([tensor], accumulation, spars, topK)

    @host_called
    def fused_sparsification(
        self, tensor: Iterable[Any], accumulation: Any, spars: float, topK: bool
    ) -> None:
        """As sparsification, for a list. `accumulation` has all their elements, one after the
        other."""
        raw = [as_raw(t) for t in tensor]
        kept = None if accumulation is None else as_raw(accumulation)
        self.communicator.fusedSparsification(raw, kept, spars, topK)

    def wait(self) -> None:
        """Returns when all that was started has ended."""
        self.communicator.wait()


def update_statistics(communicator: Any, shards: Sequence[Sequence[BatchStatistics]]) -> None:
    """Updates running statistics by those of this rank's shards, and of all other ranks."""
    for dtype in dict.fromkeys([s.mean.data_type() for s in shards[0]]):
        parts = [[s for s in shard if s.mean.data_type() == dtype] for shard in shards]
        singa_wrap.UpdateStatistics(
            communicator,
            [t for s in parts[0] for t in (s.running_mean, s.running_var)],
            [t for part in parts for s in part for t in (s.mean, s.var)],
            [s.values for part in parts for s in part],
            [s.factor for s in parts[0]],
        )
