#!/usr/bin/env python3
"""Measures recurrent networks, and compares with PyTorch's.

    python benchmark/recurrent.py
    python benchmark/recurrent.py --modes lstm --batches 1 32 --layers 1 --bidirectional --rounds 3

Prints milliseconds of inference, and of forward with backward for x and all weights (median over
calls, of the process with the smallest).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import harness
import numpy as np

SIDES = ("singa", "torch")


def arrays(options: argparse.Namespace) -> list[np.ndarray]:
    """x and dy."""
    rng = np.random.default_rng(0)
    width = options.hidden * (2 if options.bidirectional else 1)
    sizes = [(options.steps, options.batch, n) for n in (options.inputs, width)]
    return [rng.standard_normal(size, np.float32) for size in sizes]


def singa_calls(options: argparse.Namespace) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import singa
    from singa import autograd, layer, tensor

    singa.set_num_threads(options.threads)
    x, dy = (tensor.from_numpy(a) for a in arrays(options))
    x = tensor.Tensor(data=x.data, stores_grad=True)
    network = layer.CudnnRNN(
        options.hidden,
        num_layers=options.layers,
        bidirectional=options.bidirectional,
        rnn_mode=options.mode,
        batch_first=False,
    )

    def inference() -> None:
        with autograd.no_grad():
            network(x)

    def both() -> None:
        with autograd.enable_grad():
            autograd.gradients(network(x), dy)

    return inference, both


def torch_calls(options: argparse.Namespace) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    torch.set_num_threads(options.threads)
    x, dy = (torch.from_numpy(a) for a in arrays(options))
    x.requires_grad_()
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(options.mode, torch.nn.RNN)
    plain = {"nonlinearity": options.mode} if kind is torch.nn.RNN else {}
    network = kind(
        options.inputs,
        options.hidden,
        num_layers=options.layers,
        bidirectional=options.bidirectional,
        **plain,
    )
    wanted = (x, *network.parameters())

    def inference() -> None:
        with torch.inference_mode():
            network(x)

    def both() -> None:
        torch.autograd.grad(network(x)[0], wanted, dy)

    return inference, both


def child(options: argparse.Namespace) -> None:
    """One side, in this process."""
    calls = {"singa": singa_calls, "torch": torch_calls}[options.child](options)
    times = [harness.median_ms(call, options.calls, 3) for call in calls]
    print(json.dumps({"ms": times[1], "inference": times[0]}))


def main() -> None:
    parser = harness.parser(__doc__)
    modes = ["lstm", "gru", "tanh", "relu"]
    parser.add_argument("--modes", nargs="+", default=modes[:2], choices=modes)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    for name, default in (
        ("steps", 64), ("inputs", 128), ("hidden", 256), ("layers", 2), ("threads", 2),
        ("calls", 20), ("rounds", 3),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--bidirectional", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    rows = []
    for mode in options.modes:
        for batch in options.batches:
            best = harness.children(SIDES, ["--mode", mode, "--batch", str(batch)], options.rounds)
            row = {"mode": mode, "batch": str(batch)}
            for key, what in (("inference", "inference ms"), ("ms", "with backward ms")):
                for side in SIDES:
                    row[f"{side} {what}"] = f"{best[side][key]:.2f}"
            rows.append(row)
    print(f"{harness.cpu_name()}, {options.threads} threads")
    print(harness.table(rows))
    return None


if __name__ == "__main__":
    main()
