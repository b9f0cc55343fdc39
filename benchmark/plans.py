#!/usr/bin/env python3
"""Compares training steps of the networks with and without cached plans.

    python benchmark/plans.py --models alexnet --out results/
    python benchmark/plans.py --models all --batches 0 1 --out results/     # resumable; takes hours
    python benchmark/report.py results/                                     # tables of the results
    python benchmark/plans.py --models nine --batches 32 --pairs 5          # for a noisy machine

Four variants alternate in child processes, in eager mode:

    none      no plan cache; oneDNN's primitive cache is off
    onednn    no plan cache; oneDNN's primitive cache has its default size
    forward   plans are cached in forward and the optimizer; oneDNN's primitive cache is off
    all       plans are cached everywhere; oneDNN's primitive cache is off

Prints milliseconds per step (median over the steps, minimum over the processes), and the same
divided by those of "all". Then prints milliseconds per step for each kind of operator, forward and
backward. These come from further steps that time whole calls of operators: Python, plans and
computation.

With --pairs, steps of "none" and "all" alternate in one process, for machines whose speed changes
from minute to minute. Prints the ratio of each pair.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import harness

#: The nine networks of a published comparison, with the published ratios of steps with "forward" to
#: steps with "all" (batch 32, another library and processor).
PUBLISHED = {
    "alexnet": 1.13, "googlenet": 1.47, "vgg16": 1.03, "vgg19": 1.04, "inception_bn": 1.45,
    "inception_v3": 1.34, "inception_v4": 1.23, "resnet50": 1.24, "resnet152": 1.30,
}  # fmt: skip
CIFAR = ("resnet20_cifar", "resnet18_cifar", "resnet50_cifar", "vgg16_cifar")

NO_PRIMITIVES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "0"}
VARIANTS = {
    "none": {"SINGA_PLAN_CACHE": "0", **NO_PRIMITIVES},
    "onednn": {"SINGA_PLAN_CACHE": "0"},
    "forward": NO_PRIMITIVES,
    "all": {},
}


@contextlib.contextmanager
def wrapped(method: str, around: Any) -> Iterator[None]:
    """Runs `method` of all operators inside `around(operator)`."""
    from singa.autograd import Operator

    before = getattr(Operator, method)

    @functools.wraps(before)
    def run(operator: Any, *args: Any) -> Any:
        with around(operator):
            return before(operator, *args)

    setattr(Operator, method, run)
    try:
        yield
    finally:
        setattr(Operator, method, before)


@contextlib.contextmanager
def without_plans(_: Any) -> Iterator[None]:
    from singa import plan_cache

    plan_cache.enable(False)
    try:
        yield
    finally:
        plan_cache.enable(True)


def times_of_operators(step: Any, steps: int) -> dict[str, float]:
    """Milliseconds per step (median) of each kind of operator and direction."""
    now: dict[str, float] = defaultdict(float)

    def timed(direction: str) -> Any:
        @contextlib.contextmanager
        def around(operator: Any) -> Iterator[None]:
            start = time.perf_counter()
            yield
            key = f"{type(operator).__name__.strip('_')} {direction}"
            now[key] += (time.perf_counter() - start) * 1e3

        return around

    each = []
    with wrapped("_do_forward", timed("forward")), wrapped("_do_backward", timed("backward")):
        for _ in range(steps):
            now.clear()
            start = time.perf_counter()
            step()
            now["rest"] = (time.perf_counter() - start) * 1e3 - sum(now.values())
            each.append(dict(now))
    return {key: statistics.median(totals[key] for totals in each) for key in each[0]}


def new_step(args: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """The training step that a child measures, and a description of it."""
    import singa
    from singa import bench

    singa.set_num_threads(args.threads)
    singa.seed(0)
    step = bench.Case(args.child, args.batch)
    return step, {
        "model": args.child,
        "batch": step.batch,
        "threads": args.threads,
        "cpu": harness.cpu_name(),
        "version": singa.__version__,
    }


def child(args: argparse.Namespace) -> dict[str, Any]:
    from singa import bench, plan_cache

    step, case = new_step(args)
    base = bench.resident_mib("VmRSS")
    bench.reset_high_water()
    with contextlib.ExitStack() as stack:
        if args.variant == "forward":
            stack.enter_context(wrapped("_do_backward", without_plans))
        step.compile()
        for _ in range(args.warmup):
            step()
        before = plan_cache.stats()
        figures = bench.measure(step, args.steps)
        after = plan_cache.stats()
        figures["peak_mib"] = bench.resident_mib() - base
        operators = times_of_operators(step, args.steps)
    return {
        **case,
        **figures,
        "plan_hits": after["hits"] - before["hits"],
        "plan_misses": after["misses"] - before["misses"],
        "operators": operators,
    }


def paired_child(args: argparse.Namespace) -> dict[str, Any]:
    """Times steps without and with cached plans in turn, after `warmup` steps of each."""
    step, case = new_step(args)
    step.compile()

    def milliseconds() -> float:
        start = time.perf_counter()
        step()
        return (time.perf_counter() - start) * 1e3

    pairs = []
    for _ in range(args.warmup + args.pairs):
        with without_plans(None):
            none = milliseconds()
        pairs.append((none, milliseconds()))
    pairs = pairs[args.warmup :]
    return {
        **case,
        "ms": statistics.median(with_all for _, with_all in pairs),
        "none_ms": [none for none, _ in pairs],
        "all_ms": [with_all for _, with_all in pairs],
    }


def compare_pairs(model: str, batch: int, args: argparse.Namespace) -> dict[str, str]:
    """A row: the time of a step with all plans, and the ratio of steps without plans to it."""
    command = [sys.executable, __file__, "--child", model, "--child-batch", str(batch)]
    for name in ("threads", "warmup", "pairs"):
        command += [f"--{name}", str(getattr(args, name))]
    runs = harness.alternate(
        {"pairs": harness.Side(command, NO_PRIMITIVES)},
        1,
        lambda text: print(f"  {model} {batch or 'default'} {text}", file=sys.stderr),
        args.out and args.out / f"paired-plans-{model}-{batch or 'default'}.json",
    )
    run = runs["pairs"]
    ratios = [none / ours for none, ours in zip(run["none_ms"], run["all_ms"], strict=True)]
    return {
        "model": run["model"],
        "batch": str(run["batch"]),
        "all": f"{run['ms']:.2f}",
        "none / all, median": f"{statistics.median(ratios):.2f}",
        "of each pair": " ".join(f"{ratio:.2f}" for ratio in ratios),
    }


def compare(model: str, batch: int, args: argparse.Namespace) -> dict[str, dict]:
    command = [sys.executable, __file__, "--child", model, "--child-batch", str(batch)]
    for name in ("threads", "steps", "warmup"):
        command += [f"--{name}", str(getattr(args, name))]
    sides = {
        variant: harness.Side([*command, "--variant", variant], VARIANTS[variant])
        for variant in args.variants
    }
    return harness.alternate(
        sides,
        args.rounds,
        lambda text: print(f"  {model} {batch or 'default'} {text}", file=sys.stderr),
        args.out and args.out / f"plans-{model}-{batch or 'default'}.json",
    )


def row(best: dict[str, dict]) -> dict[str, str]:
    """A row: milliseconds of each variant, and their ratios to "all"."""
    run = next(iter(best.values()))
    cells = {"model": run["model"], "batch": str(run["batch"])}
    for variant in VARIANTS:
        cells[variant] = ""
        if variant in best:
            cells[variant] = f"{best[variant]['ms']:.2f}"
            if variant != "all" and "all" in best:
                cells[variant] += f" ({best[variant]['ms'] / best['all']['ms']:.2f})"
    published = PUBLISHED.get(run["model"]) if run["batch"] == 32 else None
    cells["forward / all published"] = f"{published:.2f}" if published else ""
    return cells


def operator_rows(best: dict[str, dict], most: int) -> list[dict[str, str]]:
    """The `most` operators that take the longest in any variant."""
    run = next(iter(best.values()))
    keys = {key for b in best.values() for key in b["operators"]}
    dearest = sorted(
        keys, key=lambda key: -max(b["operators"].get(key, 0.0) for b in best.values())
    )
    return [
        {
            "model": run["model"],
            "batch": str(run["batch"]),
            "operator": key,
            **{v: f"{best[v]['operators'].get(key, 0.0):.2f}" for v in VARIANTS if v in best},
        }
        for key in dearest[:most]
    ]


def main() -> None:
    parser = harness.steps_parser(__doc__, models=["lenet"], warmup=3)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--operators", type=int, default=8, help="operators to print")
    parser.add_argument(
        "--pairs", type=int, default=0, metavar="N", help="alternate N steps of each in one process"
    )
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(paired_child(args) if args.pairs else child(args)))
        return
    groups = {"nine": tuple(PUBLISHED), "cifar": CIFAR, "all": (*PUBLISHED, *CIFAR)}
    names = harness.known_models(parser, args.models, groups)
    print(f"{harness.cpu_name()}, {args.threads} threads")
    if args.pairs:
        print(harness.table([compare_pairs(n, b, args) for n in names for b in args.batches]))
        return
    results = [compare(name, batch, args) for name in names for batch in args.batches]
    print(harness.table([row(best) for best in results]))
    print()
    print(harness.table([line for best in results for line in operator_rows(best, args.operators)]))


if __name__ == "__main__":
    main()
