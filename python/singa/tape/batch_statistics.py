"""Who gets the statistics of batches where batch norms do not update their running ones.

In data parallel training each rank sees the batches of its own shards. The running statistics
follow from those of all ranks, so the optimizer that joins the ranks collects and applies them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class BatchStatistics(NamedTuple):
    """What one batch norm has seen of one batch. Tensors are raw and have shape (C)."""

    running_mean: Any
    running_var: Any
    mean: Any
    var: Any  # biased
    values: int  # per channel
    factor: float  # weight of the batch in the running statistics


class _State(threading.local):
    collector: list[BatchStatistics] | None = None
    shards_apart = False


#: This thread's collector; None: batch norms update their running statistics. `shards_apart`:
#: results must not depend on how many of the shards of an update are computed at once.
state: _State = _State()


@contextmanager
def collected_in(collector: list[BatchStatistics], shards_apart: bool = False) -> Iterator[None]:
    """Context manager: batch norms of this thread add to `collector`."""
    before = state.collector, state.shards_apart
    state.collector, state.shards_apart = collector, shards_apart
    try:
        yield
    finally:
        state.collector, state.shards_apart = before
