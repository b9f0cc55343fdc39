"""Time of an all-reduce between processes of this machine: singa, gloo (torch.distributed) and MPI.

    python benchmark/all_reduce.py --ranks 2
    mpiexec -n 2 python benchmark/all_reduce.py        # beside the MPI of that mpiexec

The ways take turns in the same processes, so all see the same load. A figure is the minimum over
the rounds of the longest time of all ranks, in milliseconds. gloo needs PyTorch, MPI needs mpi4py;
what is missing is left out. Sums of gloo and MPI may have another order.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import singa
from singa import singa_wrap

SIZES = (4_000, 1_000_000, 100_000_000)  # bytes


def of_singa(communicator: Any, dtype: int) -> Callable[[int], Callable[[], None]]:
    def prepare(count: int) -> Callable[[], None]:
        t = singa_wrap.Full((count,), 1.0, None, dtype)
        factor = 1.0 / communicator.world_size  # so that repeated sums stay finite
        return lambda: communicator.all_reduce([t], ["t"], factor)

    return prepare


def of_gloo(rank: int, world: int, port: int) -> Callable[[int], Callable[[], None]] | None:
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return None
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=world)

    def prepare(count: int) -> Callable[[], None]:
        t = torch.zeros(count)
        return lambda: dist.all_reduce(t)

    return prepare


def of_mpi() -> Callable[[int], Callable[[], None]] | None:
    try:
        from mpi4py import MPI
    except ImportError:
        return None

    def prepare(count: int) -> Callable[[], None]:
        t = np.zeros(count, np.float32)
        return lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, t)

    return prepare


def measure(communicator: Any, ways: dict[str, Any], rounds: int) -> None:
    """Prints the times of all ways."""
    names = [name for name, prepare in ways.items() if prepare is not None]
    for size in SIZES:
        runs = {name: ways[name](size // 4) for name in names}
        times: dict[str, list[float]] = {name: [] for name in names}
        repeats = max(1, min(50, 20_000_000 // size))
        for _ in range(rounds):
            for name, run in runs.items():
                run()
                communicator.barrier()
                start = time.perf_counter()
                for _ in range(repeats):
                    run()
                own = np.array([(time.perf_counter() - start) / repeats * 1e3])
                everyone = communicator.all_gather(singa_wrap.from_buffer(own, True))
                times[name].append(np.array(singa_wrap.Exporter(everyone)).max())
        if communicator.global_rank == 0:
            figures = ", ".join([f"{name} {min(times[name]):.3f}" for name in names])
            print(f"{size:>11,} bytes: {figures} ms", flush=True)


def run(rank: int, world: int, holder: Any, port: int, rounds: int) -> None:
    singa.set_num_threads(1)
    launched = holder is None
    communicator = (
        singa_wrap.default_communicator()
        if launched
        else singa_wrap.Communicator(rank, world, holder, 0)
    )
    ways = {
        "singa": of_singa(communicator, singa_wrap.kFloat32),
        "singa bfloat16": of_singa(communicator, singa_wrap.kBFloat16),
        "gloo": of_gloo(communicator.global_rank, communicator.world_size, port),
        "mpi": of_mpi() if launched else None,
    }
    measure(communicator, ways, rounds)
    communicator.barrier()
    if ways["gloo"] is not None:
        import torch.distributed as dist

        dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2, help="processes to start [%(default)s]")
    parser.add_argument("--rounds", type=int, default=7, help="[%(default)s]")
    parser.add_argument("--port", type=int, default=29517, help="of gloo, under mpiexec [29517]")
    args = parser.parse_args()
    if any([name in os.environ for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")]):
        run(0, 0, None, args.port, args.rounds)
        return
    context = multiprocessing.get_context("spawn")
    arguments = (args.ranks, singa_wrap.NcclIdHolder(), free_port(), args.rounds)
    ranks = [context.Process(target=run, args=(r, *arguments)) for r in range(args.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()


if __name__ == "__main__":
    main()
