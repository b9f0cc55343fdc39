#!/usr/bin/env python3
"""Measures scaled dot-product attention, and compares with PyTorch's.

    python benchmark/attention.py
    python benchmark/attention.py --lengths 512 4096 --dtype bfloat16 --causal --rounds 3
    python benchmark/attention.py --windows 64 --lengths 49 --batch 32 --heads 3 --dim 32

With --windows, each sequence of the batch is an image with so many windows, each of which has a
learned bias of its own, as Swin's first stage has it. PyTorch then computes it by products and a
softmax, as torchvision's Swin does.

Prints milliseconds of forward, and of forward with backward (median over calls, of the process with
the smallest), and the memory that the process took for it, in MiB.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable
from typing import Any

import harness
import numpy as np

SIDES = ("singa", "torch")


def arrays(options: argparse.Namespace) -> list[np.ndarray]:
    """q, k, v and dy, and the bias of windows."""
    rng = np.random.default_rng(0)
    shape = (options.batch * max(options.windows, 1), options.heads, options.length, options.dim)
    bias = (options.windows, options.heads, options.length, options.length)
    return [rng.standard_normal(s, np.float32) for s in (*[shape] * 4, bias)]


def composed(torch: Any, q: Any, k: Any, v: Any, bias: Any) -> Any:
    """Attention of windows by products, as in torchvision."""
    scores = (q * q.shape[-1] ** -0.5).matmul(k.transpose(-2, -1))
    windows, heads, n, _ = bias.shape
    scores = (scores.view(-1, windows, heads, n, n) + bias).view(-1, heads, n, n)
    return scores.softmax(-1).to(v.dtype).matmul(v)


def singa_calls(options: argparse.Namespace) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import singa
    from singa import autograd, tensor

    singa.set_num_threads(options.threads)
    *made, bias = map(tensor.from_numpy, arrays(options))
    q, k, v, dy = (t.as_type(options.dtype) for t in made)
    q, k, v, bias = (tensor.Tensor(data=t.data, stores_grad=True) for t in (q, k, v, bias))
    mask = bias if options.windows else None

    def attend() -> Any:
        return autograd.scaled_dot_product_attention(q, k, v, mask, is_causal=options.causal)

    def forward() -> None:
        with autograd.no_grad():
            attend()

    def both() -> None:
        with autograd.enable_grad():
            autograd.gradients(attend(), dy)

    return forward, both


def torch_calls(options: argparse.Namespace) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    *made, bias = map(torch.from_numpy, arrays(options))
    q, k, v, dy = (t.to(dtype) for t in made)
    trained = (q, k, v, bias) if options.windows else (q, k, v)
    for t in trained:
        t.requires_grad_()

    def attend() -> Any:
        if options.windows:
            return composed(torch, q, k, v, bias)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=options.causal)

    def forward() -> None:
        with torch.no_grad():
            attend()

    def both() -> None:
        torch.autograd.grad(attend(), trained, dy)

    return forward, both


def peak() -> float:
    """Largest memory of this process so far in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(options: argparse.Namespace) -> None:
    """One side, in this process."""
    calls = {"singa": singa_calls, "torch": torch_calls}[options.child](options)
    before = peak()
    times = [harness.median_ms(call, options.calls, 1) for call in calls]
    print(json.dumps({"ms": times[1], "forward": times[0], "mib": peak() - before}))


def main() -> None:
    parser = harness.parser(__doc__)
    lengths = [512, 1024, 2048, 4096, 8192, 16384]
    parser.add_argument("--lengths", nargs="+", type=int, default=lengths, help="of the sequences")
    for name, default in (
        ("batch", 1), ("heads", 8), ("dim", 64), ("threads", 2), ("calls", 3), ("rounds", 2)
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--windows", type=int, default=0, help="of each image (default: none)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.windows and options.causal:
        parser.error("windows are not causal")
    if options.child:
        return child(options)
    rows = []
    for length in options.lengths:
        best = harness.children(SIDES, ["--length", str(length)], options.rounds)
        row = {"length": str(length)}
        for key, what in (("forward", "forward ms"), ("ms", "with backward ms"), ("mib", "MiB")):
            for side in SIDES:
                row[f"{side} {what}"] = f"{best[side][key]:.1f}"
        rows.append(row)
    print(f"{harness.cpu_name()}, {options.threads} threads, {options.dtype}")
    print(harness.table(rows))
    return None


if __name__ == "__main__":
    main()
