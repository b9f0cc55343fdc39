#!/usr/bin/env python3
"""Compares training steps of the networks with PyTorch, in pairs of alternating child processes.

    python benchmark/step.py                                   # resnet20_cifar, lenet
    python benchmark/step.py --models resnet50 --rounds 3 --batches 1 32
    python benchmark/step.py --models all --out results/       # resumable: keeps each run

Each side trains on random data with SGD (momentum 0.9, weight decay 5e-4), after four warm-up
steps. Prints milliseconds per step (median over the steps, minimum over the processes), peak
resident memory above the level before the model was made, minor page faults of the median step, and
singa's reorders. A ratio always compares two sides that alternated. "pairs" is the median, smallest
and largest ratio of two processes that ran one after the other. Use it for differences of a few per
cent.

The side singa records and replays its steps. The others are:

    torch                 PyTorch, eager, as installed (--python: another interpreter with PyTorch)
    torch-channels-last   eager with channels_last
    torch-compile         channels_last with torch.compile
    singa-eager           executes each step
    singa-recompute       compile(recompute=True)
    singa-keep            compile(recompute=False)
    singa-fused           compile(fuse=True)
    singa-plain           all images are row-major between operations
    singa-other           another build of singa (--other OLD/build/release/python)
"""

from __future__ import annotations

import argparse
import ctypes.util
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import harness
import numpy as np

TORCH = ("torch", "torch-channels-last", "torch-compile")
#: Arguments of `compile` for singa's sides.
SINGA = {
    "singa": {"use_graph": True},
    "singa-eager": {"use_graph": False},
    "singa-recompute": {"use_graph": True, "recompute": True},
    "singa-keep": {"use_graph": True, "recompute": False},
    "singa-fused": {"use_graph": True, "fuse": True},
    "singa-plain": {"use_graph": True},
    "singa-other": {"use_graph": True},
}
BESIDE = (*TORCH, *list(SINGA)[1:])


def singa_side(args: argparse.Namespace) -> dict:
    import singa
    from singa import bench

    singa.set_num_threads(args.threads)
    singa.seed(0)
    if args.side == "singa-plain":
        singa.set_layout("plain")
    figures = bench.bench(
        args.model,
        args.batch,
        args.steps,
        args.warmup,
        dtype=args.dtype,
        **SINGA[args.side],
    )
    return {**figures, "version": singa.__version__}


def bench_module(args: argparse.Namespace) -> ModuleType:
    """Imports singa.bench, possibly in another interpreter, whose own packages have priority."""
    sys.path.append(args.package)
    from singa import bench

    return bench


def random_batch(args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Images and class indices, or for inputs of one axis tokens and the next ones."""
    random = np.random.default_rng(0)
    labels = random.integers(0, args.classes, (args.batch, *args.label))
    if len(args.image) == 1:
        return random.integers(0, args.classes, (args.batch, *args.image)), labels
    return random.standard_normal((args.batch, *args.image), dtype=np.float32), labels


def measured(bench: ModuleType, step: Callable[[], object], args: argparse.Namespace) -> dict:
    """Runs a step several times without measuring, then measures it."""
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    for _ in range(args.warmup - 1):
        step()
    return {**bench.measure(step, args.steps), "first_s": first}


def torch_side(args: argparse.Namespace) -> dict:
    import torch
    import torch_models

    bench = bench_module(args)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    x, y = map(torch.from_numpy, random_batch(args))
    base = bench.resident_mib("VmRSS")
    bench.reset_high_water()
    model = torch_models.create(args.model, args.classes)
    if args.side != "torch" and x.ndim == 4:
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    if args.side == "torch-compile":
        model = torch.compile(model)
    mixed = torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16")
    figures = measured(bench, harness.torch_step(model, x, y, mixed=mixed), args)
    peak = bench.resident_mib() - base
    return {**figures, "peak_mib": peak, "version": torch.__version__}


def child(args: argparse.Namespace) -> dict:
    """Measures a side. args: side, model, batch, dtype, threads, steps, warmup, and for a side
    other than singa's image, label, classes, package."""
    figures = (torch_side if args.side in TORCH else singa_side)(args)
    facts = {name: getattr(args, name) for name in ("model", "batch", "threads", "dtype")}
    facts |= {"cpu": harness.cpu_name(), "tcmalloc": "tcmalloc" in os.environ.get("LD_PRELOAD", "")}
    return facts | figures


def compare(model: str, batch: int, beside: str | None, args: argparse.Namespace) -> dict:
    """The best run of singa and, unless it failed, of the other side."""
    import singa
    from singa import bench, models

    network = models.create(model)
    given = {name: getattr(args, name) for name in ("dtype", "threads", "steps", "warmup")}
    given |= {"model": model, "batch": batch or bench.default_batch(network)}
    given |= {"image": network.image_shape, "label": network.label_shape}
    given |= {"classes": network.num_classes, "package": Path(singa.__file__).parents[1]}
    sides = {}
    for side in ("singa", beside) if beside else ("singa",):
        interpreter = args.python if side in TORCH else sys.executable
        environment = {"LD_PRELOAD": args.preload} if args.preload and side in TORCH else {}
        if side == "singa-other":
            environment["PYTHONPATH"] = str(args.other)
        sides[side] = harness.Side(
            harness.command(__file__, interpreter, side=side, **given),
            environment,
            args.limit if side == "torch-compile" else None,
        )
    name = f"step-{model}-{given['batch']}-{args.dtype}-{beside or 'alone'}.json"
    return harness.alternate(
        sides,
        args.rounds,
        lambda text: print(f"  {model} {given['batch']} {text}", file=sys.stderr),
        args.out and args.out / name,
    )


def tcmalloc(parser: argparse.ArgumentParser) -> str:
    """The library to preload for PyTorch."""
    library = ctypes.util.find_library("tcmalloc_minimal")
    return library or parser.error("there is no libtcmalloc_minimal (Debian: libtcmalloc-minimal4)")


def pairs(ours: list[float], others: list[float]) -> str:
    ratios = [other / own for own, other in zip(ours, others, strict=False)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def row(best: dict[str, dict], beside: str | None) -> dict[str, str]:
    ours, other = best["singa"], best.get(beside or "")

    def both(form: str, key: str) -> str:
        return ", ".join(form.format(run[key]) for run in (ours, other) if run)

    return {
        "model": ours["model"],
        "batch": str(ours["batch"]),
        "beside": f"{beside} {other['version']}" if other else f"{beside or 'nothing'}",
        "ms/step": both("{:.2f}", "ms"),
        "times singa's": f"{other['ms'] / ours['ms']:.2f}" if other else "",
        "pairs": pairs(ours["runs_ms"], other["runs_ms"]) if other else "",
        "peak MiB": both("{:.0f}", "peak_mib"),
        "times singa's peak": f"{other['peak_mib'] / ours['peak_mib']:.2f}" if other else "",
        "faults/step": both("{:.0f}", "faults"),
        "reorders": f"{ours['reorders']}, {ours['reorder_ms']:.2f} ms",
    }


def main() -> None:
    parser = harness.steps_parser(__doc__, models=["resnet20_cifar", "lenet"], warmup=4)
    parser.add_argument(
        "--beside",
        nargs="*",
        choices=BESIDE,
        help="other sides; default: PyTorch's if it is installed",
    )
    parser.add_argument("--tcmalloc", action="store_true", help="preload tcmalloc for PyTorch")
    parser.add_argument(
        "--limit",
        type=float,
        default=1200,
        metavar="S",
        help="time limit of a process with torch.compile, in seconds [%(default)s]",
    )
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="bfloat16: autocast"
    )
    parser.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch")
    parser.add_argument(
        "--other", type=Path, help="folder `python` of another build, for singa-other"
    )
    args = parser.parse_args()
    if args.beside is None:
        has_torch = args.python != sys.executable or importlib.util.find_spec("torch")
        args.beside = list(TORCH) if has_torch else []
    if "singa-other" in args.beside and not args.other:
        parser.error("singa-other: where is the other build? (--other OLD/build/release/python)")
    args.preload = tcmalloc(parser) if args.tcmalloc else None
    from singa import models

    names = harness.known_models(parser, args.models, {"all": models.names()})
    print(f"{harness.cpu_name()}, {args.threads} threads")
    rows = [
        row(compare(name, batch, beside, args), beside)
        for name in names
        for batch in args.batches
        for beside in args.beside or [None]
    ]
    print(harness.table(rows))


if __name__ == "__main__":
    harness.main(main, child)
