#!/usr/bin/env python3
"""What `singa.advise` promises for networks that are set up badly, beside what following it gains.

    python benchmark/advice.py                     all of them
    python benchmark/advice.py plain groups        some

Prints each piece of advice, and for the first one about the mistake that was made the time per
input that it promises and that a process with the line it names has saved: the median over the
steps of a process, minimum over the processes, which take turns. Other load spoils both.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import harness
import numpy as np
import singa
from singa import autograd, data, layer, models, opt, tensor
from singa.models.common import Classifier

IMAGES = np.random.default_rng(0)


class Grouped(Classifier):
    """Four convolutions of 64 channels, in groups of 4 channels or of one."""

    def __init__(self, groups: int) -> None:
        super().__init__(10)
        self.first = layer.Conv2d(64, 3, padding=1)
        self.middle = [
            layer.Conv2d(64, 3, padding=1, group=groups, activation="RELU") for _ in range(3)
        ]
        self.flatten, self.scores = layer.Flatten(), layer.Linear(10)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for each in self.middle:
            x = each(x)
        return self.scores(self.flatten(autograd.globalaveragepool(x)))


class Reordered(Classifier):
    """Convolutions with a layer in between that makes images row-major, or does nothing."""

    def __init__(self, between: type[layer.Layer]) -> None:
        super().__init__(10)
        self.convs = [layer.Conv2d(32, 3, padding=1) for _ in range(4)]
        self.between = [between() for _ in range(4)]
        self.flatten, self.scores = layer.Flatten(), layer.Linear(10)

    def forward(self, x: Any) -> Any:
        for conv, between in zip(self.convs, self.between, strict=True):
            x = between(autograd.relu(conv(x)))
        return self.scores(self.flatten(autograd.globalaveragepool(x)))


class Slow:
    """Items that take 0.5 ms to read, as from another machine."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[Any, int]:
        time.sleep(0.0005)
        return np.full((3, 32, 32), index % 251, np.uint8), index % 10


class Setup:
    """A compiled model, its batch, and perhaps a loader."""

    def __init__(
        self, network: Any, batch: int, size: int = 32, use_graph: bool = True, channels: int = 3
    ) -> None:
        self.network, self.batch, self.loader = network, batch, None
        self.x = tensor.from_numpy(
            IMAGES.standard_normal((batch, channels, size, size)).astype(np.float32)
        )
        self.y = tensor.from_numpy(IMAGES.integers(0, 10, batch).astype(np.int32))
        network.set_optimizer(opt.SGD(0.01, momentum=0.9))
        network.compile([self.x], is_train=True, use_graph=use_graph)

    def batches(self) -> Iterator[tuple[Any, Any]]:
        while True:
            if self.loader is None:
                yield self.x, self.y
            else:
                yield from self.loader


def plain(good: bool) -> Setup:
    singa.set_layout("auto" if good else "plain")
    return Setup(models.create("resnet20_cifar"), 64)


def executed(good: bool) -> Setup:
    return Setup(models.create("lenet"), 16, 28, good, channels=1)


def groups(good: bool) -> Setup:
    return Setup(Grouped(64 if good else 16), 32)


def layouts(good: bool) -> Setup:
    return Setup(Reordered(layer.Identity if good else layer.ToPlain), 64)


def small(good: bool) -> Setup:
    return Setup(models.create("resnet20_cifar"), 32 if good else 4)


def loader(good: bool) -> Setup:
    setup = Setup(models.create("resnet20_cifar"), 32)
    workers = 1 if good else 0
    device = setup.x.device
    setup.loader = data.DataLoader(Slow(), 32, num_workers=workers, device=device)
    return setup


#: The topic of the advice about each mistake.
MISTAKES: dict[str, tuple[Callable[[bool], Setup], str]] = {
    "plain": (plain, "plain layout"),
    "executed": (executed, "recorded steps"),
    "groups": (groups, "groups"),
    "layouts": (layouts, "layers of layouts"),
    "small": (small, "batch size"),
    "loader": (loader, "data"),
}


def measure(name: str, good: bool) -> float:
    """Milliseconds per input, median over 4 seconds."""
    setup = MISTAKES[name][0](good)
    batches, times = setup.batches(), []
    end = time.perf_counter() + 5.0
    while time.perf_counter() < end:
        began = time.perf_counter()
        x, y = next(batches)
        setup.network(x, y)
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times[len(times) // 5 :]) / setup.batch


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("mistakes", nargs="*", help=", ".join(MISTAKES))
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(measure(args.side[0], args.side[1] == "good"))
        return
    rows = []
    for name in args.mistakes or MISTAKES:
        make, topic = MISTAKES[name]
        setup = make(False)
        advice = singa.advise(setup.network, setup.x, setup.y, loader=setup.loader)
        singa.set_layout("auto")
        print(f"== {name}\n{advice}\n", flush=True)
        found = next((piece for piece in advice if piece.topic == topic), None)
        sides: dict[str, list[float]] = {"bad": [], "good": []}
        for _ in range(args.rounds):
            for side, times in sides.items():
                command = [sys.executable, __file__, "--side", name, side]
                times.append(float(subprocess.run(command, capture_output=True, check=True).stdout))
        bad, good = min(sides["bad"]), min(sides["good"])
        promised = f"{100 * found.time:.1f}" if found else "nothing"
        gained = f"{100 * (1 - good / bad):.1f}"
        rows.append(
            {"mistake": name, "advice": topic, "promised, %": promised, "gained, %": gained}
        )
    print(harness.table(rows))


if __name__ == "__main__":
    main()
