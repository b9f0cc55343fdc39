"""The ranks of a job: processes that train one model together (docs/distributed.md).

    from singa import data, distributed, opt
    loader = data.DataLoader(train, 128, shuffle=True, seed=1, shard=distributed.shard())
    net.set_optimizer(opt.DistOpt(opt.SGD(lr=0.1)))
    ...
    sums = distributed.total({"loss": loss_sum, "images": images})
    if distributed.is_main():
        print(sums["loss"] / sums["images"])

`python -m singa launch -n 4 train.py` starts the ranks. In a process that no launcher started, all
of this is the job of one rank, and the functions return at once.
"""

from typing import TYPE_CHECKING, Any

from ..launcher.environment import Environment, environment
from ..launcher.waits import Wait
from ..raw import words
from .ranks import (
    abort,
    any_rank,
    barrier,
    communicator,
    gather,
    is_main,
    local_rank,
    on_main,
    rank,
    shard,
    total,
    use,
    waits,
    world_size,
)

__all__ = [
    "Environment",
    "Wait",
    "abort",
    "any_rank",
    "barrier",
    "communicator",
    "environment",
    "gather",
    "is_main",
    "local_rank",
    "on_main",
    "rank",
    "shard",
    "total",
    "use",
    "waits",
    "world_size",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return words.missing(__name__, name)
