#!/usr/bin/env python3
"""Times training steps of the networks beside PyTorch, alternating in child processes.

    python benchmark/step.py                                   # resnet20_cifar, lenet
    python benchmark/step.py --models resnet50 --rounds 3
    python benchmark/step.py --models all --out results/       # resumable: one file per model

Each side trains on random data with SGD (momentum 0.9, weight decay 5e-4), after three warm-up
steps. Printed: images/s, milliseconds per step (median of the steps, minimum over the processes),
peak resident memory above the level before the model was made, and minor page faults of the median
step. PyTorch runs where it is installed (`--python` names another interpreter that has it), eager:
as installed, and with channels_last.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import harness

SIDES = ("singa", "torch", "torch-channels-last")


def singa_side(args: argparse.Namespace) -> dict:
    import singa
    from singa import bench

    singa.set_num_threads(args.threads)
    singa.seed(0)
    figures = bench.bench(
        args.child, args.batch, args.steps, args.warmup, True, args.graph, args.dtype
    )
    return {**figures, "version": singa.__version__}


def torch_side(args: argparse.Namespace) -> dict:
    import numpy as np
    import torch
    import torch_models

    # This may be another interpreter than singa's. Its own packages come first.
    sys.path.append(args.package)
    from singa import bench

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.standard_normal((args.batch, *args.image), dtype=np.float32))
    y = torch.from_numpy(random.integers(0, args.classes, args.batch))
    base = bench.resident_mib("VmRSS")
    bench.reset_high_water()
    model = torch_models.create(args.child, args.classes)
    if args.side == "torch-channels-last":
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True
    )
    loss_of = torch.nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()

    for _ in range(args.warmup):
        step()
    figures = bench.measure(step, args.steps)
    return {**figures, "peak_mib": bench.resident_mib() - base, "version": torch.__version__}


def compare(model: str, args: argparse.Namespace) -> dict:
    from singa import bench, models

    network = models.create(model)
    batch = args.batch or bench.default_batch(network.image_shape)
    sides: dict[str, tuple[list[str], dict[str, str]]] = {}
    for side in args.sides:
        python = sys.executable if side == "singa" else args.python
        command = [
            python,
            __file__,
            "--child",
            model,
            "--side",
            side,
            "--batch",
            str(batch),
            "--threads",
            str(args.threads),
            "--steps",
            str(args.steps),
            "--warmup",
            str(args.warmup),
            "--image",
            *map(str, network.image_shape),
            "--classes",
            str(network.num_classes),
            "--package",
            str(Path(bench.__file__).parents[1]),
        ]
        command += ["--dtype", args.dtype]
        if args.graph:
            command.append("--graph")
        environment = {}
        if side != "singa" and args.tcmalloc:
            library = harness.find_library("libtcmalloc_minimal.so")
            if not library:
                sys.exit(
                    "--tcmalloc: there is no libtcmalloc_minimal (Debian: libtcmalloc-minimal4)"
                )
            environment["LD_PRELOAD"] = library
        sides[side] = (command, environment)
    results = harness.alternate(
        sides, args.rounds, lambda text: print(f"  {model} {text}", file=sys.stderr)
    )
    return {
        "model": model,
        "batch": batch,
        "threads": args.threads,
        "dtype": args.dtype,
        "cpu": harness.cpu_name(),
        "tcmalloc": args.tcmalloc,
        "sides": results,
    }


def rows(result: dict) -> list[dict[str, str]]:
    ours = result["sides"].get("singa")
    return [
        {
            "model": result["model"],
            "batch": result["batch"],
            "side": f"{side} {r['version']}"
            + (" + tcmalloc" if result["tcmalloc"] and side != "singa" else ""),
            "images/s": f"{result['batch'] / r['ms'] * 1e3:.1f}",
            "ms/step": f"{r['ms']:.2f}",
            "peak MiB": f"{r['peak_mib']:.0f}",
            "faults/step": f"{r['faults']:.0f}",
            "side / singa": f"{r['ms'] / ours['ms']:.2f}" if ours else "",
        }
        for side, r in result["sides"].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models",
        nargs="+",
        default=["resnet20_cifar", "lenet"],
        metavar="NAME",
        help="'all', or names of singa.models",
    )
    parser.add_argument("--sides", nargs="+", choices=SIDES, help="default: all that are installed")
    parser.add_argument(
        "--batch", type=int, default=0, help="default: 32 for large images, else 128"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each process")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2, help="processes of each side")
    parser.add_argument("--tcmalloc", action="store_true", help="preload tcmalloc for PyTorch")
    parser.add_argument(
        "--graph", action="store_true", help="compile singa's model with use_graph=True"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="bfloat16: autocast"
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for one JSON file per model; finished ones are not run again",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--image", nargs=3, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--classes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--package", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(singa_side(args) if args.side == "singa" else torch_side(args)))
        return
    if not args.sides:
        has_torch = args.python != sys.executable or importlib.util.find_spec("torch")
        args.sides = list(SIDES) if has_torch else ["singa"]
    from singa import models

    names = models.names() if args.models == ["all"] else args.models
    if unknown := set(names) - set(models.names()):
        parser.error(f"unknown model {sorted(unknown)}; there are {' '.join(models.names())}")
    print(f"{harness.cpu_name()}, {args.threads} threads")
    everything = []
    for name in names:
        file = (
            args.out / f"step-{name}-{args.batch or 'default'}-{args.dtype}.json"
            if args.out
            else None
        )
        if file and file.exists():
            result = json.loads(file.read_text())
        else:
            result = compare(name, args)
            if file:
                file.parent.mkdir(parents=True, exist_ok=True)
                partial = file.with_suffix(".tmp")
                partial.write_text(json.dumps(result, indent=1))
                partial.replace(file)
        everything += rows(result)
    print(harness.table(everything))


if __name__ == "__main__":
    main()
