"""Times whole steps of a network, and counts what they cost besides: `python -m singa bench`.

The parts that measure need neither NumPy nor the C++ core, so a comparison can use them on other
libraries' steps.
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
    from .diagnostics import Report
    from .model import Model


def resident_mib(field: str = "VmHWM") -> float:
    """Resident MiB of this process: VmHWM is the high-water mark, VmRSS the present level."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"[bench] no {field} in /proc/self/status")


def reset_high_water() -> None:
    """Sets VmHWM back to the present level (Linux ≥ 4.0)."""
    # A kernel that does not let us leaves start-up in the mark.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def measure(step: Callable[[], object], steps: int) -> dict[str, float]:
    """Calls `step`, warm already, `steps` times: median ("ms") and least ("fastest_ms") duration,
    and minor page faults of the median step."""
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


def default_batch(image_shape: tuple[int, int, int]) -> int:
    """Images a batch where nothing else is asked for: 32 large ones or 128 small ones."""
    return 32 if image_shape[1] > 64 else 128


class Case:
    """A network of `singa.models` and a batch of random images; called, it makes one step.

    A training step is forward, backward and SGD (momentum 0.9, weight decay 5e-4); an inference
    step is forward. batch 0: `default_batch`. Raises ValueError for an unknown model.
    """

    def __init__(self, model: str, batch: int = 0, training: bool = True) -> None:
        import numpy as np

        from . import models, opt, tensor

        self.net = models.create(model)
        self.batch = batch or default_batch(self.net.image_shape)
        self.training = training
        random = np.random.default_rng(0)
        images = random.standard_normal((self.batch, *self.net.image_shape), dtype=np.float32)
        labels = random.integers(0, self.net.num_classes, self.batch).astype(np.int32)
        self.images, self.labels = tensor.from_numpy(images), tensor.from_numpy(labels)
        self.net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9, weight_decay=5e-4))

    def compile(self, **options: Any) -> None:
        """Makes the parameters. To be called before the first step. The options are those of
        `Model.compile`: use_graph, dtype, recompute, fuse."""
        self.net.compile([self.images], is_train=self.training, **options)

    def __call__(self) -> None:
        if self.training:
            self.net(self.images, self.labels)
            return
        from . import autograd

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
    """Times `steps` steps of a `Case`, after `warmup` ones.

    The options are those of `Model.compile`: use_graph, dtype="bfloat16", recompute, fuse. The
    figures: ms, fastest_ms, images_per_s, faults (of the median step); peak_mib, the most that was
    resident above the level before compiling; tensors_mib, the most that tensors took;
    system_allocations, hits and misses of the plan cache over the timed steps; plans and plan_mib,
    what the cache holds; reorders and reorder_ms of one more step; planned_mib, what the recorded
    step was planned to take, or None.

    Raises ValueError for an unknown model or a number that is too small.
    """
    from . import plan_cache
    from .diagnostics import Report, device_memory, layout_report
    from .process import get_num_threads

    for name, value, least in (("batch", batch, 0), ("steps", steps, 1), ("warmup", warmup, 0)):
        if value < least:
            raise ValueError(f"[bench] {name} has to be {least} or more, got {value}")
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


#: What the table calls the figures, and how it writes them.
_ROWS: dict[str, tuple[str, str]] = {
    "images_per_s": ("images/s", "{:.1f}"),
    "ms": ("step, median", "{:.2f} ms"),
    "fastest_ms": ("step, fastest", "{:.2f} ms"),
    "peak_mib": ("memory, resident peak", "{:.1f} MiB"),
    "planned_mib": ("memory, planned", "{:.1f} MiB"),
    "tensors_mib": ("memory, tensors' peak", "{:.1f} MiB"),
    "faults": ("page faults a step", "{:.0f}"),
    "system_allocations": ("requests for memory", "{}"),
    "plan_hits": ("plan cache, hits", "{}"),
    "plan_misses": ("plan cache, misses", "{}"),
    "plans": ("plan cache, plans", "{}"),
    "plan_mib": ("plan cache, size", "{:.1f} MiB"),
    "reorders": ("reorders a step", "{}"),
    "reorder_ms": ("reorders' time", "{:.2f} ms"),
}


def table(figures: dict[str, Any]) -> str:
    """The figures of `bench`, one a line."""
    title = "{model}, {mode}, batch {batch}, {threads} threads, {steps} steps".format(**figures)
    width = max(len(label) for label, _ in _ROWS.values())
    rows = [
        f"  {label:<{width}}  {form.format(figures[key])}"
        for key, (label, form) in _ROWS.items()
        if figures[key] is not None
    ]
    return "\n".join([title, *rows])
