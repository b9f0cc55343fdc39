"""What the process is made of and what it does: doctor, memory, reorders, OPCHECK."""

from __future__ import annotations

import os
import platform
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from . import singa_wrap as _c
from ._check import integer
from ._version import __version__
from .device import get_default_device
from .layer_names import LayerNames

if TYPE_CHECKING:
    from .singa_wrap import Device


class Report(dict[str, Any]):
    """A dict that prints one entry a line."""

    def __str__(self) -> str:
        width = max((len(key) for key in self), default=0)
        return "\n".join(f"{key:<{width}}  {_line(value)}" for key, value in self.items())

    __repr__ = __str__


def _line(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return "unknown" if value is None else str(value)


def doctor() -> Report:
    """What singa was built with and runs on, and what is wrong with it ("problems")."""
    libraries = _loaded_libraries()
    openmp = [name for name in libraries if re.match(r"lib(gomp|iomp5|omp)\b", name)]
    blas = [name for name in libraries if re.match(r"lib\w*(openblas|mkl|blis|blas)", name)]
    onednn = [name for name in libraries if name.startswith("libdnnl")]
    report = Report(
        singa=__version__,
        python=f"{platform.python_version()} on {platform.platform()}",
        library=_library_path(),
        onednn=onednn or "not in this build",
        blas=blas,
        gpu=_gpus(),
        cpu=_cpu_name(),
        isa=_isa(),
        threads=_c.NumThreads(),
        cpus={"machine": os.cpu_count(), "process": _affinity(), "quota": _quota()},
        openmp=openmp,
        huge_pages=_huge_pages(),
        denormals="kept" if _keeps_denormals() else "flushed to zero",
        environment=_environment(),
    )
    report["problems"] = _problems(report, openmp)
    return report


def _problems(report: Report, openmp: list[str]) -> list[str]:
    problems = []
    if len(openmp) > 1:
        problems.append(
            f"{len(openmp)} OpenMP runtimes are loaded ({', '.join(openmp)}): their threads compete"
        )
    if report["threads"] > (_affinity() or report["threads"]):
        problems.append(
            f"{report['threads']} threads on {_affinity()} CPUs: singa.set_num_threads() sets fewer"
        )
    quota = _quota()
    if quota is not None and report["threads"] > max(1.0, np.ceil(quota)):
        problems.append(f"{report['threads']} threads under a quota of {quota:g} CPUs")
    if platform.machine() in ("x86_64", "AMD64") and "avx2" not in report["isa"]:
        problems.append("the CPU has no AVX2: kernels run at their slowest")
    return problems


def _library_path() -> str:
    return str(Path(_c.__file__).parent)


def _loaded_libraries() -> list[str]:
    """Shared libraries in this process, by file name (Linux; elsewhere none are known)."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[-1] for line in lines if ".so" in line}
    return sorted({Path(path).name for path in paths})


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _cpuinfo(field: str) -> str | None:
    match = re.search(rf"^{field}\s*: (.*)$", _read("/proc/cpuinfo") or "", re.MULTILINE)
    return match.group(1) if match else None


def _cpu_name() -> str | None:
    return _cpuinfo("model name") or platform.processor() or None


def _isa() -> list[str]:
    known = ("sse4_1", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
    flags = set((_cpuinfo("flags") or "").split())
    return [flag for flag in known if flag in flags]


def _affinity() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _quota() -> float | None:
    """CPUs that the cgroup (version 2) allows, None without a limit."""
    parts = (_read("/sys/fs/cgroup/cpu.max") or "max").split()
    return None if parts[0] == "max" else int(parts[0]) / int(parts[1])


def _huge_pages() -> str | None:
    text = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    match = re.search(r"\[(\w+)\]", text or "")
    return match.group(1) if match else None


def _gpus() -> list[str]:
    """What can be used, and what the CUDA backend found or misses."""
    found = [_c.Platform.DeviceQuery(i, True) for i in _c.Platform.GetGPUIDs()]
    return [*found, *_c.GpuReport()]


def _keeps_denormals() -> bool:
    with np.errstate(all="ignore"):
        return bool(np.float32(1e-40) * np.float32(0.5) != 0)


def _environment() -> list[str]:
    names = ("SINGA_", "OMP_", "GOMP_", "ONEDNN_", "OPENBLAS_")
    return sorted(f"{key}={value}" for key, value in os.environ.items() if key.startswith(names))


def device_memory(dev: Device | None = None) -> dict[str, int]:
    """Bytes of a device's tensors: live (now), peak (most so far), reserved (taken from the system
    and kept); and counts: allocations (tensors), system_allocations (requests to the system).
    Without a device, of the default one."""
    if dev is not None and not isinstance(dev, _c.Device):
        raise TypeError(f"[device_memory] dev has to be a Device, got {type(dev).__name__}")
    stats = (get_default_device() if dev is None else dev).memory()
    fields = ("live", "peak", "reserved", "allocations", "system_allocations")
    return {field: getattr(stats, field) for field in fields}


def layout_report(record: bool = True) -> list[dict[str, Any]]:
    """Reorders between layouts since the last call: op (that wanted it), layer, from, to, bytes,
    ms, reason.

    The first call starts the record, and `record=False` ends it. So one call before a step and one
    after it give the reorders of the step.
    """
    global _recording
    reorders = [
        {
            "op": r.op,
            "layer": r.layer,
            "from": r.from_layout,
            "to": r.to_layout,
            "bytes": r.bytes,
            "ms": r.milliseconds,
            "reason": r.reason,
        }
        for r in _c.TakeReorders()
    ]
    if record != _recording:
        (LayerNames.start if record else LayerNames.stop)(layout_report)
        _recording = record
    _c.RecordReorders(record)
    return reorders


_recording = False


class opcheck:  # noqa: N801 (used as a function)
    """Context: each operation runs on its implementation and on `reference` too, and the results
    are compared, within a tolerance that grows with the length of the sums.

    every: one in so many operations; 0: none. ops: their names, such as ["ConvForward"]; None: all.
    A warning names those that never came.
    action: "raise" (RuntimeError on a mismatch) or "warn" (on stderr). A mismatch saves a file that
    `python -m singa replay` runs again, in `directory` (default: SINGA_OPCHECK_DIR, or the working
    directory). Results of the program do not change. It holds for all threads.

        with singa.opcheck() as check:
            model(x, y)
        print(check.stats())
    """

    _stack: list[tuple[int, list[str], bool, str]] = []  # noqa: RUF012 (of the process)

    def __init__(
        self,
        every: int = 1,
        ops: Sequence[str] | None = None,
        action: Literal["raise", "warn"] = "raise",
        directory: str | os.PathLike[str] = "",
    ) -> None:
        every = integer("opcheck", "every", every, 0)
        named = () if ops is None else ops
        if not isinstance(named, list | tuple) or not all(isinstance(op, str) for op in named):
            raise TypeError(f"[opcheck] ops must be a list of names, got {ops!r:.80}")
        if directory and not os.path.isdir(directory):
            raise FileNotFoundError(f"[opcheck] there is no folder {os.fspath(directory)!r}")
        if action not in ("raise", "warn"):
            raise ValueError(f"[opcheck] action has to be 'raise' or 'warn', got {action!r}")
        self._options = (every, list(ops or ()), action == "raise", os.fspath(directory))

    def __enter__(self) -> Self:
        stack = opcheck._stack
        if not stack:
            stack.append((_c.OpcheckEvery(), [], True, ""))  # what the environment says
        stack.append(self._options)
        LayerNames.start(self)
        _c.ResetOpcheckStats()
        _c.ConfigureOpcheck(*self._options)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        opcheck._stack.pop()
        LayerNames.stop(self)
        _c.ConfigureOpcheck(*opcheck._stack[-1])
        every, ops = self._options[:2]
        stats = self.stats()
        never = [op for op in ops if not stats.get(op, {}).get("checked")]
        if never and every == 1 and error is None and _c.OpcheckSeen():
            warnings.warn(f"[opcheck] nothing named {', '.join(never)} was checked", stacklevel=2)

    @staticmethod
    def stats() -> dict[str, dict[str, float]]:
        """For each operation since the context was entered: checked (compared), failed, worst_ratio
        (the largest difference in units of its tolerance) and uncompared (calls that gave nothing
        to compare, such as results without elements)."""
        fields = ("checked", "failed", "worst_ratio", "uncompared")
        return {op.op: {name: getattr(op, name) for name in fields} for op in _c.GetOpcheckStats()}
