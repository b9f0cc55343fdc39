#!/usr/bin/env python3
"""Sharded optimizer state, and checkpoints in the background.

    python -m singa launch -n 4 benchmark/sharded.py --model resnet18_cifar

Both ways of DistOpt(Adam) train the same network on the same images, taking turns. Prints

- megabytes of Adam's state on each rank, and milliseconds of a step, with and without
  `shard_state`; and whether all parameters have the same bits in the end,
- milliseconds of a step without a checkpoint, and with one after every `--every` steps, by
  `checkpoint.save` and by `checkpoint.BackgroundSaver`; and of the call that saves.

A step's time is the minimum over the rounds of the longest time of a rank; with checkpoints it is
the mean of all steps of a round, the calls that save included.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from singa import distributed, models, opt, seed, tensor
from singa.training import checkpoint

CLASSES = 10


def training(name: str, images: int, sharded: bool) -> tuple[Any, Callable[[], None]]:
    """A network and its recorded step."""
    seed(1)
    net = models.create(name, num_classes=CLASSES)
    net.set_optimizer(opt.DistOpt(opt.Adam(1e-3), shard_state=sharded))
    draw = np.random.default_rng(distributed.rank())
    x = tensor.from_numpy(draw.normal(size=(images, 3, 32, 32)).astype(np.float32))
    y = tensor.from_numpy(draw.integers(0, CLASSES, images).astype(np.int32))
    net.compile([x], use_graph=True)

    def step() -> None:
        _, loss = net(x, y)
        loss.item()

    return net, step


def state_megabytes(net: Any) -> list[float]:
    """Of each rank."""
    adam = net.optimizer.opt
    own = sum([t.data.bytes() for slot in (adam.m, adam.v) for t in slot.values()])
    return [round(value / 1e6, 2) for value in distributed.gather(own)]


def seconds_of(run: Callable[[], None]) -> float:
    """The longest time of a rank."""
    distributed.barrier()
    start = time.perf_counter()
    run()
    return max(distributed.gather(time.perf_counter() - start))


def say(text: str) -> None:
    if distributed.is_main():
        print(text, flush=True)


def compare_states(options: argparse.Namespace) -> None:
    nets, best = {}, {}
    for sharded in (False, True):
        nets[sharded] = training(options.model, options.batch, sharded)
        for _ in range(3):
            nets[sharded][1]()
    for _ in range(options.rounds):
        for sharded, (_, step) in nets.items():
            took = seconds_of(lambda step=step: [step() for _ in range(options.steps)])
            best[sharded] = min(best.get(sharded, np.inf), took / options.steps)
    for sharded, (net, _) in nets.items():
        state = state_megabytes(net)
        say(f"shard_state={sharded}: {best[sharded] * 1e3:.1f} ms a step, MB of state {state}")
    one, other = ({n: p.numpy() for n, p in nets[way][0].get_states().items()} for way in nets)
    same = all([np.array_equal(one[name], other[name]) for name in one])
    say(f"the same bits: {all(distributed.gather(same))}")


def compare_savers(options: argparse.Namespace, folder: Path) -> None:
    net, step = training(options.model, options.batch, False)
    saver = checkpoint.BackgroundSaver()
    saves = {"none": None, "save": checkpoint.save, "BackgroundSaver": saver.save}
    for _ in range(3):
        step()
    best: dict[str, tuple[float, float]] = {}
    for _ in range(options.rounds):
        for name, save in saves.items():
            called: list[float] = []

            def run(save: Any = save, called: list[float] = called) -> None:
                for number in range(options.every * 2):
                    step()
                    if save is not None and number % options.every == 0:
                        start = time.perf_counter()
                        save(folder / "checkpoint.safetensors", net, net.optimizer)
                        called.append(time.perf_counter() - start)

            took = seconds_of(run) / (options.every * 2)
            saver.wait()
            best[name] = min(best.get(name, (np.inf, 0.0)), (took, max(called, default=0.0)))
    size = (folder / "checkpoint.safetensors").stat().st_size if distributed.is_main() else 0
    say(f"a checkpoint of {size / 1e6:.0f} MB every {options.every} steps")
    for name, (took, call) in best.items():
        say(f"{name}: {took * 1e3:.1f} ms a step, {call * 1e3:.1f} ms in a call that saves")


def main() -> None:
    """Runs on each rank."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", default="resnet18_cifar", metavar="NAME", help="[%(default)s]")
    add("--batch", type=int, default=16, help="images of a rank [%(default)s]")
    add("--rounds", type=int, default=3, help="[%(default)s]")
    add("--steps", type=int, default=3, help="steps of each way in a round [%(default)s]")
    add("--every", type=int, default=5, help="steps between checkpoints [%(default)s]")
    add("--folder", type=Path, help="where checkpoints are written [a temporary folder]")
    options = parser.parse_args()
    compare_states(options)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        compare_savers(options, Path(folder))


if __name__ == "__main__":
    main()
