#!/usr/bin/env python3
"""Training steps of two ranks with one core each.

    python benchmark/ranks.py --models resnet20_cifar vgg16_cifar     # ranks that share memory
    python benchmark/ranks.py --models vgg16_cifar --mbit 1000        # over a link of 1 Gbit/s

All ways take turns in the same two processes, so they see the same load. Prints for each network

- milliseconds of a step with the exchange, and without it: then each process trains by itself, the
  other one beside it,
- with --mbit, milliseconds of the exchange alone, an all-reduce of as many gradients, those of them
  in which each core is busy, and the part of the exchange that is hidden: 1 - (step - step without
  exchange) / exchange alone; beside it the most that could be hidden, where buckets leave when
  backward has made them, one after the other, and an update follows the last one, if the exchange
  took no processor time,
- with --torch, milliseconds of a step of DistributedDataParallel with gloo on the same network and
  cores, the faster one of row-major and channels-last images.

A figure is the minimum over the rounds of the longer time of both ranks. --mbit needs root, `ip`
and `tc` (slow_link.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import slow_link
from all_reduce import free_port

RANKS = 2
CLASSES = 10
Step = Callable[[], Any]


def random_batch(images: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(rank)
    x = draw.normal(size=(images, 3, 32, 32)).astype(np.float32)
    return x, draw.integers(0, CLASSES, images).astype(np.int32)


def singa_step(name: str, images: int, rank: int, exchange: bool) -> tuple[Step, Any]:
    """A recorded step, and the network."""
    from singa import models, opt, seed, tensor

    seed(1)
    sgd = opt.SGD(lr=1e-3, momentum=0.9)
    net = models.create(name, num_classes=CLASSES)
    net.set_optimizer(opt.DistOpt(sgd) if exchange else sgd)
    x, y = (tensor.from_numpy(a) for a in random_batch(images, rank))
    net.compile([x], use_graph=True)

    def step() -> None:
        _, loss = net(x, y)
        loss.item()

    return step, net


def torch_step(name: str, images: int, rank: int, channels_last: bool) -> Step:
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
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    loss_of, labels = torch.nn.CrossEntropyLoss(), y.long()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(wrapped(x), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def busy_seconds() -> float:
    """Processor time of the whole machine so far, that of the kernel included."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def most_hidden(step: Step, alone: float, exchange: float) -> float:
    """The most of the exchange that the computation of a step can hide. `alone`, `exchange`:
    seconds of a step without the exchange, and of the exchange."""
    import singa

    with singa.profile() as profile:
        step()
    thread = next(r.thread for r in profile.records if r.op == "AllReduceStart")
    sent = iter([r.bytes for r in profile.records if r.op == "all_reduce"])
    clock, last_update = 0.0, 0.0
    buckets = []  # when each is there, and its bytes
    for record in profile.records:
        if record.thread != thread or record.op == "AllReduceWait":
            continue
        if record.op == "AllReduceStart":
            buckets.append((clock, next(sent)))
        last_update = record.ms if record.op.endswith("Update") else last_update
        clock += record.ms
    seconds_of_byte = exchange / sum([size for _, size in buckets])
    scale = alone / clock  # the exchange slows the computation down
    end = 0.0
    for ready, size in buckets:
        end = max(end, ready * scale) + size * seconds_of_byte
    return 1 - max(0.0, end + last_update * scale - alone) / exchange


def measure(arguments: argparse.Namespace, communicator: Any, name: str, torch: bool) -> None:
    """Times all ways for a network, and prints the figures."""
    from singa import distributed, singa_wrap

    rank, images = communicator.global_rank, arguments.batch
    exchange, net = singa_step(name, images, rank, exchange=True)
    alone, _ = singa_step(name, images, rank, exchange=False)
    count = sum([p.size() for p in net.get_params().values()])
    gradients = singa_wrap.Full((count,), 1.0, None, singa_wrap.kFloat32)
    ways: dict[str, Step] = {
        "exchange": exchange,
        "alone": alone,
        "gradients": lambda: communicator.all_reduce([gradients], ["g"], 0.5),
    }
    if torch:
        ways["torch"] = torch_step(name, images, rank, channels_last=False)
        ways["torch-channels-last"] = torch_step(name, images, rank, channels_last=True)
    for way in ways.values():
        for _ in range(arguments.warmup):
            way()
    found: dict[str, list[float]] = {kind: [] for kind in ways}
    busy = 0.0  # seconds of a core in the exchange alone
    for _ in range(arguments.rounds):
        for kind, way in ways.items():
            communicator.barrier()
            start, before = time.perf_counter(), busy_seconds()
            for _ in range(arguments.steps):
                way()
            own = (time.perf_counter() - start) / arguments.steps
            if kind == "gradients":
                busy += (busy_seconds() - before) / (RANKS * arguments.rounds * arguments.steps)
            found[kind].append(max(distributed.gather(own)))
    best = {kind: min(times) for kind, times in found.items()}
    most = min(distributed.gather(most_hidden(exchange, best["alone"], best["gradients"])))
    if not distributed.is_main():
        return
    print(
        f"{name}, {images} images a rank: a step takes {best['exchange'] * 1e3:.1f} ms, "
        f"{best['exchange'] / best['alone']:.3f} times the {best['alone'] * 1e3:.1f} ms without "
        "the exchange",
        flush=True,
    )
    if arguments.mbit:
        hidden = 1 - (best["exchange"] - best["alone"]) / best["gradients"]
        print(
            f"    the exchange alone of {count / 1e6:.1f} million gradients takes "
            f"{best['gradients'] * 1e3:.1f} ms, in {busy * 1e3:.1f} of which a core "
            f"is busy; {hidden:.2f} of it is hidden, at most {most:.2f} can be",
            flush=True,
        )
    if torch:
        fastest = min([best[kind] for kind in ways if kind.startswith("torch")])
        print(
            f"    DistributedDataParallel with gloo {fastest * 1e3:.1f} ms, "
            f"{fastest / best['exchange']:.2f} times as long",
            flush=True,
        )


def rank(arguments: argparse.Namespace) -> None:
    """What each rank does."""
    number = int(os.environ["SINGA_RANK"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    network = arguments.network
    if network["names"]:
        slow_link.enter(network["names"][number])
        for variable in ("SINGA_INTERFACE", "GLOO_SOCKET_IFNAME"):
            os.environ[variable] = network["devices"][number]
    import singa
    from singa import distributed

    singa.set_num_threads(1)
    communicator = distributed.communicator()
    if arguments.torch:
        import torch
        import torch.distributed

        torch.set_num_threads(1)
        torch.distributed.init_process_group(
            "gloo", init_method=network["meeting"], rank=number, world_size=RANKS
        )
    for name in arguments.models:
        measure(arguments, communicator, name, arguments.torch)
    if arguments.torch:
        torch.distributed.destroy_process_group()


def main() -> int:
    """Makes the link, runs the ranks, and removes it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--models", nargs="+", default=["resnet20_cifar"], metavar="NAME", help="[resnet20_cifar]")
    add("--batch", type=int, default=32, help="images of a rank [%(default)s]")
    add("--rounds", type=int, default=7, help="[%(default)s]")
    add("--steps", type=int, default=5, help="steps of each way in a round [%(default)s]")
    add("--warmup", type=int, default=3, help="steps of each way before [%(default)s]")
    add("--torch", action="store_true", help="beside PyTorch's DistributedDataParallel")
    add("--mbit", type=int, help="a link of so many Mbit/s each way [shared memory]")
    add("--delay", type=float, default=0, help="ms of the link, each way [%(default)g]")
    add("--network", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.network:
        rank(arguments)
        return 0
    link = slow_link.Link(arguments.mbit, arguments.delay) if arguments.mbit else None
    try:
        host = slow_link.ADDRESSES[0] if link else "127.0.0.1"
        network = {
            "names": link.names if link else [],
            "devices": link.devices if link else [],
            "meeting": f"tcp://{host}:{free_port()}",
        }
        variables = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}
        variables |= {"SINGA_NODE_RANKS": "1"} if link else {}
        command = [sys.executable, "-m", "singa", "launch", "-n", str(RANKS), __file__]
        command += ["--network", json.dumps(network), *sys.argv[1:]]
        return subprocess.run(command, env=variables, check=False).returncode
    finally:
        if link:
            link.close()


if __name__ == "__main__":
    sys.exit(main())
