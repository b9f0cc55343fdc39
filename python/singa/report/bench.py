"""Benchmark of whole steps of a network: `python -m singa bench`.

`measure` and the functions for memory need neither NumPy nor the C++ core, so that comparisons can
use them for other libraries.
"""

from __future__ import annotations

import contextlib
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..model import Model
    from ..models.common import Classifier
    from .diagnostics import Report


def resident_mib(field: str = "VmHWM") -> float:
    """Resident memory of this process in MiB: the peak (VmHWM) or the current value (VmRSS).

    Raises RuntimeError if /proc/self/status does not have `field`.

    >>> from singa import bench
    >>> bench.resident_mib("VmRSS") <= bench.resident_mib("VmHWM")
    True
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"[bench] no {field} in /proc/self/status")


def reset_high_water() -> None:
    """Resets VmHWM to the current value (Linux ≥ 4.0).

    >>> from singa import bench
    >>> bench.reset_high_water()
    >>> bench.resident_mib() > 0
    True
    """
    # If the kernel does not permit it, the peak includes the start of the program.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def measure(step: Callable[[], object], steps: int) -> dict[str, float]:
    """Times `steps` calls of `step`, which should have been called before.

    Returns the median ("ms") and the minimum ("fastest_ms") of the durations in milliseconds, and
    the median of the minor page faults ("faults").

    >>> from singa import bench
    >>> sorted(bench.measure(lambda: None, steps=3))
    ['fastest_ms', 'faults', 'ms']
    """
    times, faults = [], []
    for _ in range(steps):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return {
        "ms": statistics.median(times),
        "fastest_ms": min(times),
        "faults": statistics.median(faults),
    }


def default_batch(network: Classifier) -> int:
    """The default batch size: 8 for networks that classify each pixel or token, 32 for other images
    larger than 64 pixels, otherwise 128.

    >>> from singa import bench
    >>> bench.default_batch(models.create("lenet"))
    128
    """
    if network.label_shape:
        return 8
    return 32 if network.image_shape[1] > 64 else 128


class Case:
    """A network of `singa.models` and a batch of random images or tokens. A call runs one step.

    A training step is forward, backward and SGD (momentum 0.9, weight decay 5e-4). An inference
    step is forward. A `batch` of 0 means `default_batch`. Raises ValueError for an unknown model.

    >>> from singa import bench
    >>> step = bench.Case("lenet", batch=2)
    >>> step.batch
    2
    """

    def __init__(self, model: str, batch: int = 0, training: bool = True) -> None:
        import numpy as np

        from .. import models, opt, tensor

        self.net: Classifier = models.create(model)
        self.batch: int = batch or default_batch(self.net)
        self.training = training
        random = np.random.default_rng(0)
        shape, classes = (self.batch, *self.net.image_shape), self.net.num_classes
        images: np.ndarray = (
            random.integers(0, classes, shape).astype(np.int32)
            if len(shape) == 2
            else random.standard_normal(shape, dtype=np.float32)
        )
        label_shape = (self.batch, *self.net.label_shape)
        labels = random.integers(0, classes, label_shape).astype(np.int32)
        self.images: tensor.Tensor = tensor.from_numpy(images)
        self.labels: tensor.Tensor = tensor.from_numpy(labels)
        self.net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9, weight_decay=5e-4))

    def compile(self, **options: Any) -> None:
        """Compiles the model. Call it before the first step.

        `options` are those of `Model.compile`: use_graph, dtype, recompute, fuse, memory_limit.
        """
        self.net.compile([self.images], is_train=self.training, **options)

    def __call__(self) -> None:
        if self.training:
            self.net(self.images, self.labels)
            return
        from .. import autograd

        with autograd.no_grad():
            self.net(self.images)


def bench(
    model: str,
    batch: int = 0,
    steps: int = 20,
    warmup: int = 3,
    training: bool = True,
    **options: Any,
) -> Report:
    """Times `steps` steps of a `Case`, after `warmup` steps that are not timed.

    `options` are those of `Model.compile`: use_graph, dtype, recompute, fuse, memory_limit. Returns
    a dict of the arguments and of these results, which prints one entry per line:

    ms, fastest_ms          median and minimum duration of a step in milliseconds
    images_per_s            images per second, from the median
    faults                  minor page faults of a step (median)
    peak_mib                peak of resident memory, less the value before compile()
    tensors_mib             peak memory of tensors
    planned_mib             planned memory of the recorded step; None if none was recorded
    system_allocations      allocations from the system during the timed steps
    plan_hits, plan_misses  hits and misses of the plan cache during the timed steps
    plans, plan_mib         number and size of the cached plans
    reorders, reorder_ms    number and time of the reorders in one further step

    Raises ValueError for an unknown model or a number that is too small.

    >>> from singa import bench
    >>> figures = bench.bench("lenet", batch=2, steps=1, warmup=1)
    >>> figures["ms"] > 0
    True
    """
    from ..raw.check import integer
    from ..raw.process import get_num_threads
    from . import plan_cache
    from .diagnostics import Report, device_memory, layout_report

    for name, value, least in (("batch", batch, 0), ("steps", steps, 1), ("warmup", warmup, 0)):
        integer("bench", name, value, least)
    step = Case(model, batch, training)
    base = resident_mib("VmRSS")
    reset_high_water()
    step.compile(**options)
    for _ in range(warmup):
        step()
    plans, memory = plan_cache.stats(), device_memory()
    figures = measure(step, steps)
    now, used = plan_cache.stats(), device_memory()
    layout_report()
    step()
    reorders = layout_report(record=False)
    return Report(
        model=model,
        mode="training" if training else "inference",
        batch=step.batch,
        threads=get_num_threads(),
        steps=steps,
        **figures,
        images_per_s=step.batch / figures["ms"] * 1e3,
        peak_mib=resident_mib() - base,
        planned_mib=_planned_mib(step.net) if options.get("use_graph") else None,
        tensors_mib=used["peak"] / 2**20,
        system_allocations=used["system_allocations"] - memory["system_allocations"],
        plan_hits=now["hits"] - plans["hits"],
        plan_misses=now["misses"] - plans["misses"],
        plans=now["entries"],
        plan_mib=now["bytes"] / 2**20,
        reorders=len(reorders),
        reorder_ms=sum(reorder["ms"] for reorder in reorders),
    )


def _planned_mib(net: Model) -> float | None:
    try:
        return net.memory_plan()["planned_bytes"] / 2**20
    except RuntimeError:  # no step was recorded
        return None


#: Labels and formats of the table.
_ROWS: dict[str, tuple[str, str]] = {
    "images_per_s": ("images/s", "{:.1f}"),
    "ms": ("step, median", "{:.2f} ms"),
    "fastest_ms": ("step, fastest", "{:.2f} ms"),
    "peak_mib": ("memory, resident peak", "{:.1f} MiB"),
    "planned_mib": ("memory, planned", "{:.1f} MiB"),
    "tensors_mib": ("memory, tensors' peak", "{:.1f} MiB"),
    "faults": ("page faults per step", "{:.0f}"),
    "system_allocations": ("system allocations", "{}"),
    "plan_hits": ("plan cache, hits", "{}"),
    "plan_misses": ("plan cache, misses", "{}"),
    "plans": ("plan cache, plans", "{}"),
    "plan_mib": ("plan cache, size", "{:.1f} MiB"),
    "reorders": ("reorders per step", "{}"),
    "reorder_ms": ("time of reorders", "{:.2f} ms"),
}


def table(figures: dict[str, Any]) -> str:
    """A table of the result of `bench`, one figure per line.

    >>> from singa import bench
    >>> figures = bench.bench("lenet", batch=2, steps=1, warmup=1)
    >>> print(bench.table(figures).split(",")[0])
    lenet
    """
    from ..raw.words import counted

    title = "{model}, {mode}, batch {batch}, ".format(**figures)
    title += f"{counted(figures['threads'], 'thread')}, {counted(figures['steps'], 'step')}"
    width = max(len(label) for label, _ in _ROWS.values())
    rows = [
        f"  {label:<{width}}  {form.format(figures[key])}"
        for key, (label, form) in _ROWS.items()
        if figures[key] is not None
    ]
    return "\n".join([title, *rows])
