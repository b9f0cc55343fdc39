#!/usr/bin/env python3
"""Compares training and inference on an NVIDIA GPU with PyTorch, alternating in child processes.

    python benchmark/gpu.py                                     # everything: one to two hours
    python benchmark/gpu.py --models resnet50 --modes training --arithmetic bfloat16
    python benchmark/gpu.py --out results/                      # resumable: keeps each run
    scripts/gpu.sh                                              # builds, tests, and runs this

Models: resnet50 (bs 256), vgg16 (bs 128), googlenet (bs 32), resnet20_cifar and lenet (bs 128).
Arithmetic: float32 (no TF32 anywhere), tf32, bfloat16 (autocast over float32 parameters). Training
steps are forward, backward and SGD (momentum 0.9, weight decay 5e-4) on random images in the GPU's
memory.

Sides:

    singa           records and replays steps; the first process measures implementations
                    (autotune), and with --out the others use its choices
    singa-eager     executes each operation
    singa-branches  like singa, with independent operations in parallel: SINGA_CUDA_BRANCHES=4
    singa-fused     compile(fuse=True): bfloat16 convolutions compute the statistics of batch norm
    torch           eager: channels_last, cudnn.benchmark, autocast, fused SGD
    torch-graph     like torch, with the whole step captured as one CUDA graph
    torch-compile   torch.compile(mode="max-autotune"), which also uses CUDA graphs

Prints milliseconds per step (median over blocks of steps, with a wait for the GPU after each block;
minimum over the processes), images/s, the other side's time divided by singa's, the GPU memory of
the process at the end, and float operations per second (convolutions and Linear layers only) as a
fraction of those of a large matrix product on the same GPU in the same arithmetic.

--profile also stores the slowest kernels of each side, timed by CUPTI in a step that is not
captured. It prints a table of singa's operations with their times, and the fraction of each that
the GPU would need at the speed of the large product and of a large copy (its roofline).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import harness

MODELS = {"resnet50": 256, "vgg16": 128, "googlenet": 32, "resnet20_cifar": 128, "lenet": 128}
MODES = ("training", "inference")
ARITHMETIC = ("float32", "tf32", "bfloat16")
SINGA = ("singa", "singa-eager", "singa-branches", "singa-fused")
TORCH = ("torch", "torch-graph", "torch-compile")
MOST_PROFILED = 25


class Step(NamedTuple):
    """The functions with which a side is measured."""

    run: Callable[[], object]
    wait: Callable[[], object]  # for the GPU
    used_mib: Callable[[], float]  # GPU memory used by all processes
    profile: Callable[[], dict[str, Any]]
    version: str
    facts: Callable[[], dict[str, Any]]  # about the GPU and the step; computing them uses memory


def gpu_problem() -> str:
    """Why this machine cannot run the benchmark; empty if it can."""
    try:
        import torch
    except ImportError as error:
        return f"PyTorch is not there ({error})"
    if not torch.cuda.is_available():
        return "no GPU found: PyTorch sees no CUDA device"
    try:
        from singa import device

        device.create_cuda_gpu()
    except (ImportError, RuntimeError) as error:
        return f"no GPU found for singa: {error}"
    return ""


def singa_step(args: argparse.Namespace) -> Step:
    import numpy as np
    import singa
    from singa import autograd, device, models, opt, tensor, tuning

    if args.choices and Path(args.choices).exists():
        tuning.load(args.choices)
    singa.set_tf32(args.arithmetic == "tf32")
    singa.seed(0)
    gpu = device.create_cuda_gpu()
    net = models.create(args.model)
    random = np.random.default_rng(0)
    images = random.standard_normal((args.batch, *net.image_shape), dtype=np.float32)
    labels = random.integers(0, net.num_classes, args.batch).astype(np.int32)
    x = tensor.from_numpy(images).to_device(gpu)
    y = tensor.from_numpy(labels).to_device(gpu)
    training = args.mode == "training"
    net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9, weight_decay=5e-4))
    dtype = "bfloat16" if args.arithmetic == "bfloat16" else "float32"
    net.compile(
        [x],
        is_train=training,
        use_graph=args.side != "singa-eager",
        dtype=dtype,
        fuse=args.side == "singa-fused",
    )

    def infer() -> None:
        with autograd.no_grad():
            net(x)

    run = (lambda: net(x, y)) if training else infer

    def profile() -> dict[str, Any]:
        # Profiling queues operations one by one, so nothing is captured.
        report = singa.profile()
        with report:
            kernels = kernels_of(run, gpu.Sync)
        groups: dict[tuple[str, str], list[Any]] = {}
        for record in report.records:
            groups.setdefault((record.op, record.implementation), []).append(record)
        operations = [
            {
                "operation": f"{op}: {implementation}",
                "calls": len(records),
                **{
                    name: sum(getattr(r, name) for r in records)
                    for name in ("ms", "bytes", "flops")
                },
            }
            for (op, implementation), records in groups.items()
        ]
        operations.sort(key=lambda row: -row["ms"])
        return {"kernels": kernels, "operations": operations[:MOST_PROFILED]}

    def used_mib() -> float:
        free, total = device.get_gpu_mem_size(0)
        return (total - free) / 2**20

    return Step(
        run,
        gpu.Sync,
        used_mib,
        profile,
        singa.__version__,
        dict,
    )


def torch_step(args: argparse.Namespace) -> Step:
    import torch
    import torch_models
    from torch.utils.flop_counter import FlopCounterMode

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = args.arithmetic == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = args.arithmetic == "tf32"
    torch.manual_seed(0)
    channels_last = {"memory_format": torch.channels_last}
    model = torch_models.create(args.model, args.classes).cuda().to(**channels_last)
    x = torch.randn(args.batch, *args.image, device="cuda").contiguous(**channels_last)
    y = torch.randint(0, args.classes, (args.batch,), device="cuda")
    mixed = torch.autocast("cuda", torch.bfloat16, enabled=args.arithmetic == "bfloat16")
    called = torch.compile(model, mode="max-autotune") if args.side == "torch-compile" else model
    if args.mode == "training":
        step = harness.torch_step(model, x, y, called, mixed)
    else:
        model.eval()

        def step() -> None:
            with torch.no_grad(), mixed:
                called(x)

    run = captured(step) if args.side == "torch-graph" else step

    def profile() -> dict[str, Any]:
        return {"kernels": kernels_of(step, torch.cuda.synchronize)}

    def used_mib() -> float:
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 2**20

    def facts() -> dict[str, Any]:
        # The counter does not see compiled code, so count the model itself.
        with FlopCounterMode(display=False) as counter, torch.no_grad(), mixed:
            model(x)
        return {
            "flops": counter.get_total_flops() * (3 if args.mode == "training" else 1),
            "product_tflops": product_tflops(args.arithmetic),
            "copy_gbs": copy_gbs(),
            "gpu": torch.cuda.get_device_name(),
        }

    return Step(run, torch.cuda.synchronize, used_mib, profile, torch.__version__, facts)


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The step as one CUDA graph, captured after a few steps on a separate stream."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def kernels_of(run: Callable[[], object], wait: Callable[[], object]) -> list[dict[str, Any]]:
    """All kernels that the GPU ran in one step, longest first."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as report:
        run()
        wait()
    rows = [r for r in report.key_averages() if r.self_device_time_total > 0]
    rows.sort(key=lambda r: -r.self_device_time_total)
    return [
        {"kernel": r.key, "calls": r.count, "ms": r.self_device_time_total / 1e3}
        for r in rows[:MOST_PROFILED]
    ]


def seconds_of(run: Callable[[], object], repeats: int = 10) -> float:
    """Seconds of one run, averaged over several after a warm-up."""
    import torch

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def product_tflops(arithmetic: str, size: int = 8192) -> float:
    """TFLOPS of a large matrix product of random numbers, the reference for fractions."""
    import torch

    dtype = torch.bfloat16 if arithmetic == "bfloat16" else torch.float32
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds_of(lambda: a @ b) / 1e12


def copy_gbs(size: int = 2**29) -> float:
    """GB/s, read and written, of a copy that is larger than the caches."""
    import torch

    source = torch.zeros(size, device="cuda", dtype=torch.uint8)
    copy = torch.empty_like(source)
    return 2 * size / seconds_of(lambda: copy.copy_(source)) / 1e9


def roofline(ours: dict[str, Any], other: dict[str, Any]) -> list[dict[str, str]]:
    """A row for each of singa's slowest operations. Lower bounds of its time are its float
    operations at the speed of a large product, and its bytes at that of a large copy. `needed` is
    the larger bound as a fraction of its time."""
    rows = []
    for operation in ours["operations"]:
        product_ms = operation["flops"] / other["product_tflops"] / 1e9
        copy_ms = operation["bytes"] / other["copy_gbs"] / 1e6
        rows.append(
            {
                "operation": operation["operation"],
                "calls": str(operation["calls"]),
                "ms": f"{operation['ms']:.3f}",
                "bound by": "products" if product_ms > copy_ms else "memory",
                "needed": f"{max(product_ms, copy_ms) / operation['ms']:.2f}",
            }
        )
    return rows


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Measures one side in this process. args: side, model, mode, arithmetic, batch, image,
    classes, steps, blocks, warmup, profile, choices."""
    step = (singa_step if args.side in SINGA else torch_step)(args)
    before = time.perf_counter()
    step.run()
    step.wait()
    first = time.perf_counter() - before
    for _ in range(args.warmup - 1):
        step.run()
    step.wait()
    # Waits for the GPU only after each block, so that steps are launched ahead as in training.
    blocks = []
    for _ in range(args.blocks):
        start = time.perf_counter()
        for _ in range(args.steps):
            step.run()
        step.wait()
        blocks.append((time.perf_counter() - start) * 1e3 / args.steps)
    figures = {"ms": statistics.median(blocks), "fastest_ms": min(blocks), "first_s": first}
    figures |= {"used_mib": step.used_mib(), "version": step.version}
    if args.profile:
        figures |= step.profile()
    figures |= step.facts()
    if args.side in SINGA and args.choices:
        from singa import tuning

        tuning.save(args.choices)
    return figures


def compare(
    model: str, mode: str, arithmetic: str, beside: str, args: argparse.Namespace
) -> dict[str, dict]:
    from singa import models

    network = models.create(model)
    batch = args.batch or MODELS[model]
    given = {name: getattr(args, name) for name in ("steps", "blocks", "warmup", "profile")}
    given |= {"model": model, "mode": mode, "arithmetic": arithmetic, "batch": batch}
    given |= {"image": network.image_shape, "classes": network.num_classes}
    sides = {}
    for side in ("singa", beside):
        choices = args.out / "gpu-choices.json" if side in SINGA and args.out else None
        command = harness.command(__file__, side=side, choices=choices, **given)
        branches = "4" if side == "singa-branches" else "1"
        settings = {"SINGA_PREFER": args.prefer, "SINGA_CUDA_BRANCHES": branches}
        environment = settings if side in SINGA else {}
        sides[side] = harness.Side(command, environment, args.limit)
    name = f"gpu-{model}-{mode}-{arithmetic}-{batch}-{beside}.json"
    return harness.alternate(
        sides,
        args.rounds,
        lambda text: print(f"  {model} {mode} {arithmetic} {text}", file=sys.stderr),
        args.out and args.out / name,
    )


def row(
    model: str, mode: str, arithmetic: str, beside: str, best: dict[str, dict], batch: int
) -> dict[str, str]:
    ours, other = best.get("singa"), best.get(beside)

    def both(form: str, key: str) -> str:
        return ", ".join(form.format(run[key]) if run else "failed" for run in (ours, other))

    known = next((run for run in (ours, other) if run and run.get("product_tflops")), None)
    share = ""
    if known:
        roof = known["product_tflops"] * 1e12
        share = ", ".join(
            f"{known['flops'] / (run['ms'] / 1e3) / roof:.2f}" if run else "failed"
            for run in (ours, other)
        )
    return {
        "model": model,
        "mode": mode,
        "arithmetic": arithmetic,
        "batch": str(batch),
        "beside": f"{beside} {other['version']}" if other else beside,
        "ms/step": both("{:.3f}", "ms"),
        "images/s": ", ".join(
            f"{batch / run['ms'] * 1e3:.0f}" if run else "failed" for run in (ours, other)
        ),
        "times singa's": f"{other['ms'] / ours['ms']:.2f}" if ours and other else "",
        "GPU MiB": both("{:.0f}", "used_mib"),
        "share of a product": share,
    }


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--arithmetic", nargs="+", choices=ARITHMETIC, default=list(ARITHMETIC))
    parser.add_argument(
        "--beside", nargs="+", choices=(*TORCH, *SINGA[1:]), default=[*TORCH, *SINGA[1:]]
    )
    parser.add_argument(
        "--prefer",
        choices=("autotune", "fastest"),
        default="autotune",
        help="singa's preference; fastest measures no implementations [%(default)s]",
    )
    parser.add_argument("--batch", type=int, default=0, help="images per step [see above]")
    parser.add_argument("--steps", type=int, default=20, help="steps per block [%(default)s]")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument(
        "--warmup", type=int, default=5, help="unmeasured steps at the beginning, at least 1"
    )
    parser.add_argument("--rounds", type=int, default=2, help="processes per side")
    parser.add_argument("--limit", type=float, default=900, help="seconds that a process may run")
    parser.add_argument("--profile", action="store_true", help="also store the slowest kernels")
    parser.add_argument(
        "--out", type=Path, help="folder for a JSON file per pair; runs in it are not repeated"
    )
    args = parser.parse_args()
    if problem := gpu_problem():
        sys.exit(problem)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    operations = {}
    cases = itertools.product(args.models, args.modes, args.arithmetic, args.beside)
    for model, mode, arithmetic, beside in cases:
        best = compare(model, mode, arithmetic, beside, args)
        ours, other = best.get("singa"), best.get(beside)
        if ours and other and "operations" in ours and "copy_gbs" in other:
            operations[f"{model} {mode} {arithmetic}"] = roofline(ours, other)
        rows.append(row(model, mode, arithmetic, beside, best, args.batch or MODELS[model]))
        if args.out:
            harness.save(args.out / "gpu-summary.json", rows)
            harness.save(args.out / "gpu-roofline.json", operations)
    print(harness.table(rows))
    for case, table in operations.items():
        print(f"\n{case}\n{harness.table(table)}")


if __name__ == "__main__":
    harness.main(main, measured)
