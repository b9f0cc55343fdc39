"""Ray Train starts the ranks: `SingaTrainer` runs a function as the ranks of a job.

    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from singa.distributed.ray import SingaTrainer

    trainer = SingaTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=8, resources_per_worker={"CPU": 4}),
        run_config=RunConfig(storage_path="/shared", failure_config=FailureConfig(max_failures=3)),
    )
    trainer.fit()

In `train` everything of docs/distributed.md works as under `python -m singa launch`. It needs Ray:
pip install 'ray[train]'. docs/clusters.md has a whole program.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from ..launcher.environment import DEFAULT_TIMEOUT, FOREIGN, Environment
from .ranks import abort


@contextlib.contextmanager
def _telling_the_others() -> Iterator[None]:
    """The error of this rank's function is the reason that the other ranks report."""
    try:
        yield
    except BaseException as error:
        abort(f"{type(error).__name__}: {error}")
        raise


@dataclass
class SingaConfig(BackendConfig):
    """How the workers of a Ray trainer become ranks.

    timeout  seconds that a rank waits for another one that gives no sign of life (default 60)
    """

    timeout: int = DEFAULT_TIMEOUT

    @property
    def backend_cls(self) -> type[Backend]:
        """The class that gives the workers their places."""
        return _SingaBackend

    @property
    def train_func_context(self) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """What the function runs in."""
        return _telling_the_others


class SingaTrainer(DataParallelTrainer):
    """Runs `train_loop_per_worker` on workers of Ray, each of which is a rank of one job.

    singa_config  a `SingaConfig`; default: `SingaConfig()`

    The other arguments are those of Ray's `DataParallelTrainer`. A worker uses as many threads as
    it has CPUs (`resources_per_worker`). If a worker is lost, Ray starts all of them again, up to
    `FailureConfig(max_failures=...)` times; `distributed.environment().restart` then counts the
    starts before, and `ray.train.get_checkpoint()` is the last checkpoint that was reported.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        singa_config: SingaConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            train_loop_per_worker, backend_config=singa_config or SingaConfig(), **options
        )


class _SingaBackend(Backend):
    """Gives the workers their places whenever Ray has started them."""

    #: Ranks choose their GPU among those of their machine by `distributed.local_rank()`.
    share_cuda_visible_devices = True
    _starts = 0

    def on_start(self, worker_group: Any, backend_config: SingaConfig) -> None:
        size = len(worker_group)
        place = Environment(
            world_size=size,
            # The ranks find out at the meeting which of them are on one machine.
            local_rank=None,
            local_size=None,
            job=f"singa-ray-{secrets.token_hex(8)}",
            timeout=backend_config.timeout,
            restart=self._starts,
            meeting=worker_group.execute_single(0, _free_place),
        )
        shared = place.variables() | {"SINGA_SECRET": secrets.token_hex()}
        ray.get(
            [
                worker_group.execute_single_async(
                    rank, _take_place, shared | {"SINGA_RANK": str(rank)}
                )
                for rank in range(size)
            ]
        )
        self._starts += 1


def _free_place() -> str:
    """An address, host:port, of this worker at which nobody listens."""
    host = ray.util.get_node_ip_address()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind(("", 0))
        port = listener.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _take_place(variables: Mapping[str, str]) -> None:
    """Makes this worker the rank that the variables describe, whoever has started Ray."""
    for name in (*FOREIGN, *Environment(job="-", meeting="-").variables()):
        os.environ.pop(name, None)
    os.environ.update(variables)
