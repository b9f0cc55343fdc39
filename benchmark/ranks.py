#!/usr/bin/env python3
"""All-reduces and training steps of ranks with one core each.

    python benchmark/ranks.py                                 # all-reduces of two ranks
    python benchmark/ranks.py steps --models resnet20_cifar vgg16_cifar
    python benchmark/ranks.py all_reduce steps --mbit 1000    # over a link of 1 Gbit/s
    mpiexec -n 2 python benchmark/ranks.py                    # beside the MPI of that mpiexec

Ranks share memory, or with --mbit two of them have such a link (link.py; needs root, `ip` and
`tc`). All ways take turns in the same processes, so they see the same load. A figure is the minimum
over the rounds of the longest time of all ranks, in milliseconds.

all_reduce  float32 numbers of three sizes and half as many bytes of bfloat16 by singa, and float32
            by gloo (PyTorch) and MPI (mpi4py, under mpiexec), where these are installed; their sums
            may have another order. With --mbit also as a multiple of bytes over bandwidth.
steps       of each network, with the exchange, and without it: then each process trains by itself,
            the others beside it.
            With --mbit the exchange alone, an all-reduce of as many gradients, the milliseconds of
            it in which each core is busy, and the part of it that is hidden: 1 - (step - step
            without exchange) / exchange alone.
            With --torch also DistributedDataParallel with gloo on the same network and cores, the
            faster one of row-major and channels-last images.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import link
import numpy as np

SIZES = (4_000, 1_000_000, 100_000_000)  # bytes of float32
CLASSES = 10
UNDER_MPI = any([name in os.environ for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")])
Way = Callable[[], Any]


def best_times(
    args: argparse.Namespace, ways: dict[str, Way], repeats: int
) -> dict[str, tuple[float, float]]:
    """(seconds, seconds in which a core is busy) of a call of each way."""
    from singa import distributed

    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, way in ways.items():
            distributed.communicator().barrier()
            start, before = time.perf_counter(), busy_seconds()
            for _ in range(repeats):
                way()
            took = (time.perf_counter() - start) / repeats
            busy = (busy_seconds() - before) / repeats / distributed.world_size()
            found[name].append((max(distributed.gather(took)), busy))
    return {
        name: (min(times)[0], sum([busy for _, busy in times]) / len(times))
        for name, times in found.items()
    }


def busy_seconds() -> float:
    """Processor time of the whole machine so far, that of the kernel included."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


# All-reduces.


def by_singa(count: int, dtype: str) -> Way:
    from singa import distributed, dtypes, singa_wrap

    communicator = distributed.communicator()
    t = singa_wrap.Full((count,), 1.0, None, getattr(dtypes.DType, dtype))
    factor = 1.0 / communicator.world_size  # so that repeated sums stay finite
    return lambda: communicator.all_reduce([t], ["t"], factor)


def by_gloo(count: int) -> Way:
    import torch

    t = torch.zeros(count)
    return lambda: torch.distributed.all_reduce(t)


def by_mpi(count: int) -> Way:
    from mpi4py import MPI

    t = np.zeros(count, np.float32)
    return lambda: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, t)


def all_reduce(args: argparse.Namespace) -> None:
    """Times the all-reduces, and prints a line for each size."""
    from singa import distributed

    for size in SIZES:
        count = size // 4
        ways = {"singa": by_singa(count, "float32"), "singa, bfloat16": by_singa(count, "bfloat16")}
        if args.gloo:
            ways["gloo"] = by_gloo(count)
        if UNDER_MPI and importlib.util.find_spec("mpi4py"):
            ways["MPI"] = by_mpi(count)
        for way in ways.values():
            way()
        best = best_times(args, ways, repeats=max(1, min(50, 20_000_000 // size)))
        if not distributed.is_main():
            continue
        figures = []
        for name, (seconds, _) in best.items():
            figures.append(f"{name} {seconds * 1e3:.3f}")
            if args.mbit:
                wire = size * (0.5 if "bfloat16" in name else 1) * 8 / (args.mbit * 1e6)
                figures[-1] += f" ({seconds / wire:.2f})"
        print(f"{size:>11,} bytes: {', '.join(figures)} ms", flush=True)


# Training steps.


def random_batch(images: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(rank)
    x = draw.normal(size=(images, 3, 32, 32)).astype(np.float32)
    return x, draw.integers(0, CLASSES, images).astype(np.int32)


def singa_step(name: str, images: int, rank: int, exchange: bool) -> tuple[Way, Any]:
    """A recorded step, and the network."""
    from singa import models, opt, seed, tensor

    seed(1)
    sgd = opt.SGD(lr=0.01, momentum=0.9, weight_decay=5e-4)
    net = models.create(name, num_classes=CLASSES)
    net.set_optimizer(opt.DistOpt(sgd) if exchange else sgd)
    x, y = (tensor.from_numpy(a) for a in random_batch(images, rank))
    net.compile([x], use_graph=True)
    return lambda: net(x, y)[1].item(), net


def torch_step(name: str, images: int, rank: int, channels_last: bool) -> Way:
    import torch
    import torch_models
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(1)
    model = torch_models.create(name, CLASSES)
    x, y = map(torch.from_numpy, random_batch(images, rank))
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    step = harness.torch_step(model, x, y.long(), wrapped)
    return lambda: step().item()


def steps(args: argparse.Namespace) -> None:
    """Times the steps of each network, and prints the figures."""
    from singa import distributed

    rank, images = distributed.rank(), args.batch
    for name in args.models:
        exchange, net = singa_step(name, images, rank, exchange=True)
        alone, _ = singa_step(name, images, rank, exchange=False)
        count = sum([p.size() for p in net.get_params().values()])
        ways = {"exchange": exchange, "alone": alone, "gradients": by_singa(count, "float32")}
        if args.torch:
            ways["torch"] = torch_step(name, images, rank, channels_last=False)
            ways["torch-channels-last"] = torch_step(name, images, rank, channels_last=True)
        for way in ways.values():
            for _ in range(args.warmup):
                way()
        both = best_times(args, ways, args.steps)
        best = {way: seconds for way, (seconds, _) in both.items()}
        busy = both["gradients"][1]
        if not distributed.is_main():
            continue
        print(
            f"{name}, {images} images a rank: a step takes {best['exchange'] * 1e3:.1f} ms, "
            f"{best['exchange'] / best['alone']:.3f} times the {best['alone'] * 1e3:.1f} ms "
            "without the exchange",
            flush=True,
        )
        if args.mbit:
            hidden = 1 - (best["exchange"] - best["alone"]) / best["gradients"]
            print(
                f"    the exchange alone of {count / 1e6:.1f} million gradients takes "
                f"{best['gradients'] * 1e3:.1f} ms, in {busy * 1e3:.1f} of which a core is busy; "
                f"{hidden:.2f} of it is hidden",
                flush=True,
            )
        if args.torch:
            fastest = min([best[way] for way in ways if way.startswith("torch")])
            print(
                f"    DistributedDataParallel with gloo {fastest * 1e3:.1f} ms, "
                f"{fastest / best['exchange']:.2f} times as long",
                flush=True,
            )


CASES = {"all_reduce": all_reduce, "steps": steps}


def rank(args: argparse.Namespace) -> None:
    """What each rank does. args: the options, and of a launched job meeting, names, devices."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    if args.names:
        number = int(os.environ["SINGA_RANK"])
        link.enter(args.names[number])
        for variable in ("SINGA_INTERFACE", "GLOO_SOCKET_IFNAME"):
            os.environ[variable] = args.devices[number]
    import singa
    from singa import distributed

    singa.set_num_threads(1)
    distributed.communicator()
    args.gloo = args.torch or ("all_reduce" in args.cases and importlib.util.find_spec("torch"))
    if args.gloo:
        import torch
        import torch.distributed

        torch.set_num_threads(1)
        torch.distributed.init_process_group(
            "gloo",
            init_method=args.meeting,
            rank=distributed.rank(),
            world_size=distributed.world_size(),
        )
    for name in args.cases:
        CASES[name](args)
    distributed.communicator().barrier()
    if args.gloo:
        torch.distributed.destroy_process_group()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def main() -> int:
    """Makes the link, runs the ranks, and removes it."""
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)} [all_reduce]")
    add("--ranks", type=int, default=2, help="processes to start [%(default)s]")
    add("--models", nargs="+", default=["resnet20_cifar"], metavar="NAME", help="[resnet20_cifar]")
    add("--batch", type=int, default=32, help="images of a rank [%(default)s]")
    add("--rounds", type=int, default=7, help="[%(default)s]")
    add("--steps", type=int, default=5, help="steps of each way in a round [%(default)s]")
    add("--warmup", type=int, default=3, help="steps of each way before [%(default)s]")
    add("--torch", action="store_true", help="steps beside PyTorch's DistributedDataParallel")
    add("--mbit", type=int, help="two ranks with a link of so many Mbit/s each way")
    add("--port", type=int, default=29517, help="of gloo under mpiexec [%(default)s]")
    args = parser.parse_args()
    args.cases = args.cases or ["all_reduce"]
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"unknown case {sorted(unknown)}; there are {', '.join(CASES)}")
    args.names, args.devices, args.meeting = [], [], f"tcp://127.0.0.1:{args.port}"
    if UNDER_MPI:
        rank(args)
        return 0
    args.meeting = f"tcp://127.0.0.1:{free_port()}"
    between = link.Link(args.mbit) if args.mbit else None
    try:
        variables = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}
        if between:
            variables |= {"SINGA_NODE_RANKS": "1"}
            args.ranks, args.names, args.devices = 2, between.names, between.devices
            args.meeting = f"tcp://{link.ADDRESSES[0]}:{free_port()}"
        command = [sys.executable, "-m", "singa", "launch", "-n", str(args.ranks), __file__]
        command += harness.command(__file__, **vars(args))[2:]
        return subprocess.run(command, env=variables, check=False).returncode
    finally:
        if between:
            between.close()


if __name__ == "__main__":
    harness.main(main, rank)
