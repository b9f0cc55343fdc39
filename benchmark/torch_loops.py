#!/usr/bin/env python3
"""Compares loops of PyTorch that call a network more than once for an update, by PyTorch and by
`singa.accelerate`, whose second forward before the backward is executed and not replayed.

    python benchmark/torch_loops.py --tcmalloc
    python benchmark/torch_loops.py --models timm/convnext_atto --batches 8

Prints milliseconds of each loop (median over the steps, minimum over the processes), and PyTorch's
time divided by singa's.

    step      forward, backward, update
    twice     two forwards, one backward from the sum of their losses, update
    eval      forward, a forward in inference, backward, update
    sizes     a step of the batch, then one of half of the batch
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import harness
import step as steps
import torch_zoo

SIDES = ("torch-channels-last", "accelerate")
LOOPS = ("step", "twice", "eval", "sizes")


def loop(kind: str, network: Any, x: Any, y: Any) -> Callable[[], Any]:
    import torch

    optimizer = torch.optim.SGD(
        network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True
    )
    loss_of = torch.nn.CrossEntropyLoss()

    def evaluate() -> None:
        network.eval()
        with torch.no_grad():
            network(x)
        network.train()

    def update(images: Any, labels: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(network(images), labels)
        if kind == "twice":
            loss = loss + loss_of(network(images), labels)
        elif kind == "eval":
            evaluate()
        loss.backward()
        optimizer.step()
        return loss

    def both() -> Any:
        update(x, y)
        half = len(x) // 2
        return update(x[:half], y[:half])

    return both if kind == "sizes" else lambda: update(x, y)


def child(args: argparse.Namespace) -> dict:
    """Measures a loop. args: side, loop, model, batch, threads, steps, warmup."""
    import singa
    import torch
    from singa import bench

    torch.set_num_threads(args.threads)
    singa.set_num_threads(args.threads)
    torch.manual_seed(0)
    network, shape, classes = torch_zoo.module(args.model)
    x, y = torch.randn(args.batch, *shape), torch.randint(0, classes, (args.batch,))
    if args.side == "accelerate":
        network = singa.accelerate(network)
    else:
        network = network.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    return steps.measured(bench, loop(args.loop, network, x, y), args)


def main() -> None:
    names = ["timm/resnet18", "timm/mobilenetv3_small_100"]
    parser = harness.steps_parser(__doc__, models=names, warmup=4)
    parser.add_argument("--tcmalloc", action="store_true", help="preload tcmalloc")
    args = parser.parse_args()
    preload = steps.tcmalloc(parser) if args.tcmalloc else None
    given = {name: getattr(args, name) for name in ("threads", "steps", "warmup")}
    print(f"{harness.cpu_name()}, {args.threads} threads")
    rows = []
    for model in args.models:
        for batch in args.batches:
            for kind in LOOPS:
                case = {"model": model, "batch": batch or 32, "loop": kind}
                sides = {
                    side: harness.Side(
                        harness.command(__file__, side=side, **case, **given),
                        {"LD_PRELOAD": preload} if preload else None,
                    )
                    for side in SIDES
                }
                best = harness.alternate(
                    sides, args.rounds, lambda text: print(f"  {text}", file=sys.stderr)
                )
                times = [best[side]["ms"] for side in SIDES]
                rows.append(
                    {
                        "network": model,
                        "batch": str(batch or 32),
                        "loop": kind,
                        **{side: f"{ms:.1f}" for side, ms in zip(SIDES, times, strict=True)},
                        "PyTorch / accelerate": f"{times[0] / times[1]:.2f}",
                    }
                )
    print(harness.table(rows))


if __name__ == "__main__":
    harness.main(main, child)
