"""Diagnostics of the process: build and hardware, memory, reorders, OPCHECK."""

from __future__ import annotations

import math
import os
import platform
import re
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from .. import singa_wrap as _c
from .._version import __version__
from ..device import checked_device, get_default_device
from ..launcher import cores
from ..layer.names import LayerNames
from ..raw.calls import checks_flags
from ..raw.check import integer, one_of

if TYPE_CHECKING:
    from ..singa_wrap import Device


class Report(dict[str, Any]):
    """A dict that prints its entries one below the other, in 80 columns."""

    def rows(self) -> list[tuple[str, str]]:
        """The entries, with their values as text."""
        return [(key, _line(value)) for key, value in self.items()]

    def __str__(self) -> str:
        width = max((len(key) for key in self), default=0)
        whole: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
        return "\n".join(
            f"{key:<{width}}  " + f"\n{'':{width}}  ".join(textwrap.wrap(text, 78 - width, **whole))
            for key, text in self.rows()
        )

    __repr__ = __str__


def _line(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {'none' if n is None else n}" for key, n in value.items())
    return "unknown" if value is None else str(value)


def doctor() -> Report:
    """Reports the build, libraries, hardware and settings, and a list of "problems".

    >>> report = singa.doctor()
    >>> "threads" in report
    True
    """
    openmp = _loaded(r"lib(gomp|iomp5|omp)\b")
    report = Report(
        singa=__version__,
        python=f"{platform.python_version()} on {platform.platform()}",
        library=_library_path(),
        onednn=_loaded(r"libdnnl") or "not in this build",
        blas=_loaded(r"lib\w*(openblas|mkl|blis|blas)"),
        gpu=_gpus(),
        cpu=_cpu_name(),
        isa=_isa(),
        threads=_c.NumThreads(),
        cpus={
            "machine": os.cpu_count(),
            "process": len(os.sched_getaffinity(0)),
            "quota": _quota(),
        },
        openmp=openmp,
        huge_pages=_huge_pages(),
        denormals="kept" if _keeps_denormals() else "flushed to zero",
        environment=_environment(),
    )
    report["problems"] = _problems(report, openmp)
    return report


def _problems(report: Report, openmp: list[str]) -> list[str]:
    problems = _environment_problems()
    if len(openmp) > 1:
        problems.append(
            f"{len(openmp)} OpenMP runtimes are loaded ({', '.join(openmp)}): their threads compete"
        )
    usable, quota = report["cpus"]["process"], report["cpus"]["quota"]
    if report["threads"] > usable:
        problems.append(
            f"{report['threads']} threads on {usable} CPUs: set fewer with singa.set_num_threads()"
        )
    if quota is not None and report["threads"] > max(1.0, np.ceil(quota)):
        problems.append(
            f"{report['threads']} threads with a quota of {quota:g} CPUs: set fewer with "
            "singa.set_num_threads()"
        )
    if platform.machine() == "x86_64" and "avx2" not in report["isa"]:
        problems.append("the CPU has no AVX2: kernels are slow")
    return problems


def _library_path() -> str:
    return str(Path(_c.__file__).parent)


def _loaded(name: str) -> list[str]:
    """Paths of loaded shared libraries whose file names match the pattern."""
    paths = re.findall(r"/.*", _read("/proc/self/maps") or "")
    return sorted({path for path in paths if ".so" in path and re.match(name, Path(path).name)})


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


def cpu_flags() -> frozenset[str]:
    """The instruction sets of the processor, in Linux's names."""
    return frozenset((_cpuinfo("flags") or "").split())


def _isa() -> list[str]:
    known = ("sse4_1", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
    return [flag for flag in known if flag in cpu_flags()]


def _quota() -> float | None:
    """The quota of the cgroups in CPUs; None without a limit."""
    quota = cores.quota()
    return quota if quota < math.inf else None


def _huge_pages() -> str | None:
    text = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    match = re.search(r"\[(\w+)\]", text or "")
    return match.group(1) if match else None


def _gpus() -> list[str]:
    """Descriptions of usable GPUs, and the report of the CUDA backend."""
    found = [_c.Platform.DeviceQuery(i, True) for i in _c.Platform.GetGPUIDs()]
    return [*found, *_c.GpuReport()]


def _keeps_denormals() -> bool:
    with np.errstate(all="ignore"):
        return bool(np.float32(1e-40) * np.float32(0.5) != 0)


def _environment() -> list[str]:
    names = ("SINGA_", "OMP_", "GOMP_", "ONEDNN_", "OPENBLAS_")
    hidden = {"SINGA_SECRET": "(set)"}
    found = [name for name in os.environ if name.startswith(names)]
    return sorted(f"{name}={hidden.get(name, os.environ[name])}" for name in found)


def _environment_problems() -> list[str]:
    """Messages on wrong values, and on variables that singa does not know."""
    problems = []
    for name in sorted(os.environ):
        if name.startswith("SINGA_") and not name.startswith(("SINGA_TEST_", "SINGA_REQUIRE_")):
            try:
                _c.EnvironmentValue(name, "doctor")
            except ValueError as error:
                problems.append(str(error).removeprefix("[doctor] "))
    return problems


def environment_table() -> str:
    """A Markdown table of the environment variables that singa reads, as in docs/environment.md."""
    rows = [("variable", "values", "default", "what it does"), ("---",) * 4]
    rows += [(f"`{v.name}`", v.values, v.unset, v.meaning) for v in _c.EnvironmentVariables()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def environment_list() -> str:
    """The same for a terminal, in 80 columns."""
    lines = []
    for v in _c.EnvironmentVariables():
        values = f"{v.values}; default {v.unset}" if v.unset else v.values
        lines.append(v.name)
        for text in (values, v.meaning.replace("`", "")):
            lines += textwrap.wrap(text, 80, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def device_memory(dev: Device | None = None) -> dict[str, int]:
    """Memory of `dev`, or of the default device.

    Returns a dict: live (bytes that tensors use), peak (its maximum), reserved (bytes allocated
    from the system), allocations (number of allocations by tensors) and system_allocations (number
    of allocations from the system). Raises TypeError if `dev` is not a Device.

    >>> report = singa.device_memory()
    >>> "allocated" in str(report)
    False
    """
    stats = (get_default_device() if dev is None else checked_device("device_memory", dev)).memory()
    fields = ("live", "peak", "reserved", "allocations", "system_allocations")
    return {field: getattr(stats, field) for field in fields}


@checks_flags
def layout_report(record: bool = True) -> list[dict[str, Any]]:
    """Conversions between layouts (reorders) since the last call.

    A dict for each has op (the operation that needed it), layer, from and to (layouts), bytes, ms
    and reason. The first call starts recording, and a call with `record=False` ends it. To get the
    reorders of a step, call it before and after the step.

    >>> x = tensor.ones((1, 16, 8, 8))
    >>> report = singa.layout_report()
    >>> type(report).__name__
    'list'
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
    """Context manager that also runs operations on `reference`, and compares the results.

    every      check every n-th operation (default 1: all); 0 checks none
    ops        names of operations to check, such as ["ConvForward"] (default: all); a warning lists
               those that did not run
    action     on a mismatch, "raise" a RuntimeError (the default) or "warn" on stderr
    directory  where a mismatch is saved, in a file for `python -m singa replay` (default:
               SINGA_OPCHECK_DIR, or the working directory)
    every_kernel  also run all other implementations that can compute the call, in every layout that
               they offer; `kernels()` has the results, which raise nothing

    The tolerance grows with the length of the sums. Results of the program do not change. It
    applies to all threads. Raises TypeError, ValueError or FileNotFoundError for wrong arguments.

        with singa.opcheck() as check:
            model(x, y)
        print(check.stats())

    >>> with singa.opcheck() as check:
    ...     y = autograd.matmul(tensor.ones((2, 3)), tensor.ones((3, 4)))
    ...
    >>> check.stats()
    {}
    """

    _stack: list[tuple[int, list[str], bool, str, bool]] = []  # noqa: RUF012 (of the process)

    def __init__(
        self,
        every: int = 1,
        ops: Sequence[str] | None = None,
        action: Literal["raise", "warn"] = "raise",
        directory: str | os.PathLike[str] = "",
        every_kernel: bool = False,
    ) -> None:
        every = integer("opcheck", "every", every, 0)
        named = () if ops is None else ops
        if not isinstance(named, list | tuple) or not all(isinstance(op, str) for op in named):
            raise TypeError(f"[opcheck] ops must be a list of names, got {ops!r:.80}")
        if directory and not os.path.isdir(directory):
            raise FileNotFoundError(f"[opcheck] there is no folder {os.fspath(directory)!r}")
        one_of("opcheck", "action", action, ["raise", "warn"])
        folder = os.fspath(directory)
        self._options = (every, list(ops or ()), action == "raise", folder, bool(every_kernel))

    def __enter__(self) -> Self:
        stack = opcheck._stack
        if not stack:
            stack.append((_c.OpcheckEvery(), [], True, "", False))  # settings of the environment
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
        """Results by operation since the context was entered.

        A dict for each has checked (compared calls), failed (mismatches), worst_ratio (largest
        difference, in units of its tolerance) and uncompared (calls without results to compare,
        for example empty tensors).
        """
        fields = ("checked", "failed", "worst_ratio", "uncompared")
        return {op.op: {name: getattr(op, name) for name in fields} for op in _c.GetOpcheckStats()}

    @staticmethod
    def kernels() -> list[dict[str, Any]]:
        """Results by operation and implementation, with every_kernel.

        A dict for each has op, kernel (library, implementation and layouts, such as "onednn
        jit:avx2 nhwc nChw8c"), checked, failed, worst_ratio, refused (why singa never chooses it
        for these calls; empty for what can be chosen) and example (the first call that failed).
        """
        fields = ("op", "kernel", "checked", "failed", "worst_ratio", "refused", "example")
        return [{name: getattr(row, name) for name in fields} for row in _c.GetOpcheckKernelStats()]
