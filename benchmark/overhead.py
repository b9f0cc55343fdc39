#!/usr/bin/env python3
"""Measures the overhead of operations, on tensors with a few elements, and compares with PyTorch.

    python benchmark/overhead.py
    python benchmark/overhead.py --rounds 5 --out results/

Prints microseconds per call (median over repetitions, of the process with the smallest total), and
PyTorch's time divided by singa's. "forward" runs without the tape, "recorded" with the tape, and
"and backward" also computes the gradients of all operands. Uses one thread. The C++ program
`benchmark/dispatch.cc`, built with the tests, measures only the C++ part. `benchmark/counts.py`
counts the instructions of both.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import harness
import numpy as np

#: Arrays for the cases: two numbers, an image with two channels, a row and weights.
SHAPES = {"a": (1,), "b": (1,), "x": (1, 2, 4, 4), "r": (1, 4), "v": (4, 4)}
WAYS = ("forward", "recorded", "and backward")
#: Number of calls that are timed together.
CALLS = 200


class Framework(NamedTuple):
    """The cases in one framework, and its functions for no_grad and backward."""

    version: str
    cases: dict[str, Callable[[], Any]]
    no_grad: Callable[[], AbstractContextManager[Any]]
    backward: Callable[[Any, Any], object]  # of a result and its gradient


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.standard_normal(s).astype(np.float32) for name, s in SHAPES.items()}


def singa_side() -> Framework:
    import singa
    from singa import autograd, layer, tensor

    singa.set_num_threads(1)
    t = {name: tensor.from_numpy(array) for name, array in arrays().items()}
    for operand in t.values():
        operand.requires_grad = operand.stores_grad = True
    autograd.training = True
    conv, norm = layer.Conv2d(2, 3, padding=1, bias=False), layer.BatchNorm2d()
    cases = {
        "add": lambda: autograd.add(t["a"], t["b"]),
        "mul, add, sum": lambda: autograd.reduce_sum(t["a"] * t["b"] + t["a"]),
        "relu": lambda: autograd.relu(t["a"]),
        "matrix product": lambda: autograd.matmul(t["r"], t["v"]),
        "convolution": lambda: conv(t["x"]),
        "batch norm": lambda: norm(t["x"]),
    }
    return Framework(
        singa.__version__, cases, autograd.no_grad, lambda y, dy: list(autograd.backward(y, dy))
    )


def torch_side() -> Framework:
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    t = {name: torch.from_numpy(array).requires_grad_() for name, array in arrays().items()}
    conv, norm = torch.nn.Conv2d(2, 2, 3, padding=1, bias=False), torch.nn.BatchNorm2d(2)
    cases = {
        "add": lambda: t["a"] + t["b"],
        "mul, add, sum": lambda: (t["a"] * t["b"] + t["a"]).sum(),
        "relu": lambda: functional.relu(t["a"]),
        "matrix product": lambda: t["r"] @ t["v"],
        "convolution": lambda: conv(t["x"]),
        "batch norm": lambda: norm(t["x"]),
    }
    operands = [*t.values(), *conv.parameters(), *norm.parameters()]

    def backward(y: Any, dy: Any) -> None:
        for operand in operands:
            operand.grad = None  # new gradients instead of sums, as in singa
        y.backward(dy)

    return Framework(torch.__version__, cases, torch.no_grad, backward)


SIDES = {"singa": singa_side, "torch": torch_side}


def microseconds(run: Callable[[], object], repeats: int) -> float:
    """Microseconds of one call: the median over `repeats` of the mean over CALLS."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for _ in range(CALLS):
            run()
        times.append((time.perf_counter() - start) / CALLS)
    return statistics.median(times[1:]) * 1e6


def forward_and_backward(side: Framework, case: Callable[[], Any], dy: Any) -> None:
    side.backward(case(), dy)


def ways(side: Framework, case: Callable[[], Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The name of each way, and a call to measure before the iterator moves on."""
    with side.no_grad():
        dy = case()
        yield WAYS[0], case
    yield WAYS[1], case
    yield WAYS[2], functools.partial(forward_and_backward, side, case, dy)


def measure(side: Framework, repeats: int) -> dict[str, Any]:
    """The output of a child: microseconds for each case and way."""
    found = {
        name: {way: microseconds(call, repeats) for way, call in ways(side, case)}
        for name, case in side.cases.items()
    }
    total = sum(t for times in found.values() for t in times.values())
    return {"version": side.version, "ms": total / 1e3, "cases": found}


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="processes per side")
    parser.add_argument(
        "--repeats", type=int, default=30, help=f"measurements of {CALLS} calls each"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for a JSON file; runs in it are not repeated"
    )
    parser.add_argument("--child", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(SIDES[args.child](), args.repeats)))
        return
    names = [name for name in SIDES if name == "singa" or importlib.util.find_spec(name)]
    kept = args.out / "overhead.json" if args.out else None
    command = [sys.executable, __file__, "--repeats", str(args.repeats), "--child"]
    sides = {name: harness.Side([*command, name]) for name in names}
    print(harness.cpu_name())
    runs = harness.alternate(sides, args.rounds, note=lambda text: print(" ", text), kept=kept)
    rows = []
    for case in runs["singa"]["cases"]:
        row = {"case": case}
        for way in WAYS:
            ours, *others = [runs[name]["cases"][case][way] for name in names]
            row[f"{way}, µs"] = f"{ours:.2f}"
            for theirs in others:
                row[f"PyTorch, {way}"] = f"{theirs:.2f} ({theirs / ours:.2f})"
        rows.append(row)
    print(harness.table(rows))


if __name__ == "__main__":
    main()
