"""Compares all implementations of operations, libraries' kernels among them, with `reference`.

Calls are drawn from lists of sizes, types and options, so that every two values of different lists
meet early (pairwise testing: Cohen et al., "The AETG system", 1997).
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import singa_wrap as _c
from ..device import device_query, get_default_device
from ..dtypes import bfloat16, float16, float32
from ..raw.check import integer, number
from ..raw.process import get_num_threads, set_num_threads
from ..tensor import from_numpy
from .diagnostics import cpu_flags, opcheck

_CHANNELS = [1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 20, 21, 24, 25, 31, 32, 33, 37, 40, 48, 49]
_CHANNELS += [63, 64, 65, 70]
_SIZES = [(1, 1), (3, 5), (4, 4), (7, 7), (8, 8), (9, 9), (9, 10), (10, 15), (13, 12), (14, 14)]
_SIZES += [(16, 15), (5, 30), (28, 28), (30, 30)]
_NARROW = [(5, 1), (2, 2), (9, 3), (1, 4)]  # than kernel, stride or both
_TYPES = (float32, bfloat16, float16)
_CONVOLUTION = {
    "in_channels": _CHANNELS,
    "out_channels": _CHANNELS,
    "size": (*_SIZES, *_NARROW),
    "kernel": ((1, 1), (3, 3), (1, 3), (2, 2), (5, 5), (7, 7), (3, 2), (4, 4)),
    "stride": ((1, 1), (2, 2), (3, 3), (1, 2), (4, 4)),
    "patches": (False, False, False, True),  # stride = kernel, without padding
    "padding": ("none", "same", "one", "before", "wide"),
    "dilation": (1, 2),
    "group": ("one", "depthwise", "two", "three"),
    "batch": (1, 2, 3, 5),
    "dtype": _TYPES,
    "bias": (False, True),
    "end": ("", "relu", "add", "add relu"),
    "axes": (2, 2, 2, 1, 3),
    "transposed": (False, False, True),
    "threads": ("one", "all"),
}
_PRODUCT = {
    "m": (1, 2, 7, 16, 33, 64, 100),
    "n": (1, 3, 8, 17, 32, 65, 130),
    "k": (1, 5, 16, 31, 64, 129),
    "batch": ((), (2,), (3, 2)),
    "trans_a": (False, True),
    "trans_b": (False, True),
    "dtype": _TYPES,
    "threads": ("one", "all"),
}
_WINDOW = {
    "channels": _CHANNELS,
    "size": _SIZES,
    "kernel": ((1, 1), (2, 2), (3, 3), (3, 2), (5, 5)),
    "stride": ((1, 1), (2, 2), (3, 3)),
    "padding": (0, 1),
    "is_max": (False, True),
    "batch": (1, 2, 3),
    "dtype": _TYPES,
    "threads": ("one", "all"),
}
_ROWS = {
    "channels": _CHANNELS,
    "size": _SIZES,
    "batch": (1, 2, 3),
    "window": (3, 5),
    "dtype": _TYPES,
    "threads": ("one", "all"),
}
# In oneDNN's names, with the processor's flag.
_INSTRUCTION_SETS = {
    "sse41": "sse4_1",
    "avx2": "avx2",
    "avx512_core": "avx512f",
    "avx512_core_bf16": "avx512_bf16",
    "avx512_core_fp16": "avx512_fp16",
    "avx512_core_amx": "amx_bf16",
}
# Multiply-adds of a drawn convolution: reference should not take longer than what is tested.
_MOST_WORK = 30_000_000

_Case = Mapping[str, Any]


def pairwise(factors: Mapping[str, Sequence[Any]], rng: np.random.Generator) -> Iterator[_Case]:
    """Yields assignments of one value to each factor, without end.

    Each is the one of a few random ones that has most pairs of values that have not met yet; once
    all have met, they count as new again.
    """
    names = list(factors)
    every = [
        (a, i, b, j)
        for a, b in itertools.combinations(range(len(names)), 2)
        for i in range(len(factors[names[a]]))
        for j in range(len(factors[names[b]]))
    ]
    order: list[tuple[int, int, int, int]] = []
    left: set[tuple[int, int, int, int]] = set()
    while True:
        if not left:
            order = [every[at] for at in rng.permutation(len(every))]
            left = set(every)
        # One pair that has not met is forced into each, so that the last pairs are found, too.
        while order[-1] not in left:
            order.pop()
        a, i, b, j = order.pop()
        best: list[int] = []
        met: set[tuple[int, int, int, int]] = set()
        for _ in range(8):
            drawn = [int(rng.integers(len(factors[name]))) for name in names]
            drawn[a], drawn[b] = i, j
            pairs = {
                (p, drawn[p], q, drawn[q]) for p, q in itertools.combinations(range(len(names)), 2)
            }
            if not best or len(pairs & left) > len(met):
                best, met = drawn, pairs & left
        left -= met
        yield {name: factors[name][at] for name, at in zip(names, best, strict=True)}


class _Values:
    """Random tensors."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def __call__(self, shape: Sequence[int], dtype: Any) -> Any:
        values = self._rng.standard_normal(tuple(shape)).astype(np.float32)
        return from_numpy(values, dtype=dtype).data

    def bytes(self, shape: Sequence[int], dtype: str) -> Any:
        """All integers of int8 or uint8."""
        limits = np.iinfo(dtype)
        values = self._rng.integers(limits.min, limits.max + 1, tuple(shape))
        return _c.from_buffer(values.astype(dtype))


def _convolution(case: _Case, values: _Values) -> None:
    groups = {"one": 1, "two": 2, "three": 3, "depthwise": case["in_channels"]}[case["group"]]
    inputs = -(-case["in_channels"] // groups) * groups
    outputs = -(-case["out_channels"] // groups) * groups
    patches = case["patches"]
    axes, dilation = case["axes"], 1 if patches else case["dilation"]
    (height, width), kernel, stride = case["size"], list(case["kernel"]), list(case["stride"])
    size = [height, width]
    if axes == 1:
        size, kernel, stride = size[1:], kernel[1:], stride[1:]
    elif axes == 3:
        size, kernel, stride = [3, *size], [kernel[0], *kernel], [1, *stride]
    if patches:
        stride = kernel
    reach = [dilation * (k - 1) + 1 for k in kernel]
    padding = {
        "none": [0] * axes,
        "same": [(r - 1) // 2 for r in reach],
        "one": [1] * axes,
        "before": [r - 1 for r in reach] + [0] * axes,
        "wide": [r for r in reach],
    }["none" if patches else case["padding"]]
    if case["transposed"]:  # it cuts the padding off the result
        padding = [min(p, (r - 1) // 2) for p, r in zip(padding, reach * 2, strict=False)]
    before, after = padding[:axes], padding[-axes:]
    size = [max(s, r - b - a) for s, r, b, a in zip(size, reach, before, after, strict=True)]
    batch, dtype = case["batch"], case["dtype"]
    work = batch * inputs * outputs // groups * int(np.prod(size)) * int(np.prod(kernel))
    if work > _MOST_WORK:
        size = [min(s, r + 4) for s, r in zip(size, reach, strict=True)]
    dilations = [dilation] * axes
    if case["transposed"]:
        x = values((batch, inputs, *size), dtype)
        transposed = _c.ConvTransposeHandle(
            x, kernel, stride, padding, [0] * axes, inputs, outputs, case["bias"], groups, dilations
        )
        W = values((inputs, outputs // groups, *kernel), dtype)
        b = values((outputs,), dtype) if case["bias"] else _c.Tensor()
        y = _c.ConvTransposeForward(x, W, b, transposed)
        dy = values(y.shape(), dtype)
        _c.ConvTransposeBackward(dy, x, W, transposed, True, True, case["bias"])
        return
    x = values((batch, inputs, *size), dtype)
    handle = _c.ConvHandle(
        x, kernel, stride, padding, inputs, outputs, case["bias"], groups, dilations
    )
    W = values((outputs, inputs // groups, *kernel), dtype)
    b = values((outputs,), dtype) if case["bias"] else _c.Tensor()
    y = _c.ConvForward(x, W, b, handle)
    if case["end"]:
        add = values(y.shape(), dtype) if "add" in case["end"] else _c.Tensor()
        _c.ConvForward(x, W, b, handle, add, "relu" in case["end"])
    _c.ConvBackward(values(y.shape(), dtype), x, W, handle, True, True, case["bias"])
    _quantized(values, handle, x.shape(), W.shape(), case["bias"], case["end"])


def _quantized(
    values: _Values,
    handle: Any,
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    bias: bool,
    end: str,
) -> None:
    """The same convolution of bytes, with results of int8 and int32."""
    x, W = values.bytes(x_shape, "int8" if bias else "uint8"), values.bytes(w_shape, "int8")
    zero = _c.from_buffer(np.array([3], np.int32))
    numbers = np.full(w_shape[:1], 0.01, np.float32)
    scale, none = _c.from_buffer(numbers), _c.Tensor()
    b = _c.from_buffer(100 * numbers) if bias else none
    _c.QuantizedConv(x, W, zero, scale, b, zero, handle, _c.kInt8, "relu" in end)
    _c.QuantizedConv(x, W, none, none, none, none, handle, _c.kInt32)


def _product(case: _Case, values: _Values) -> None:
    m, n, k, dtype = case["m"], case["n"], case["k"], case["dtype"]
    a = values((*case["batch"], *((k, m) if case["trans_a"] else (m, k))), dtype)
    b = values((*case["batch"], *((n, k) if case["trans_b"] else (k, n))), dtype)
    y = _c.MatMul(a, b, case["trans_a"], case["trans_b"])
    dy = values(y.shape(), dtype)
    _c.MatMulBackward(dy, a, b, case["trans_a"], case["trans_b"], True, True)


def _window(case: _Case, values: _Values) -> None:
    kernel, padding = case["kernel"], case["padding"]
    if 2 * padding > min(kernel):
        padding = 0
    size = [max(s, k) for s, k in zip(case["size"], kernel, strict=True)]
    x = values((case["batch"], case["channels"], *size), case["dtype"])
    handle = _c.PoolingHandle(
        x, list(kernel), list(case["stride"]), [padding, padding], case["is_max"]
    )
    y, saved = _c.PoolingForward(handle, x)
    _c.PoolingBackward(handle, values(y.shape(), case["dtype"]), x, y, saved)


def _rows(case: _Case, values: _Values) -> None:
    shape = (case["batch"], case["channels"], *case["size"])
    x, dy = values(shape, case["dtype"]), values(shape, case["dtype"])
    _c.SoftmaxBackward(dy, _c.Softmax(x, 1), 1)
    _c.LogSoftmaxBackward(dy, _c.LogSoftmax(x, 1), 1)
    y, saved = _c.LrnForward(x, case["window"])
    _c.LrnBackward(dy, x, y, saved, case["window"], 1e-4, 0.75, 1.0)


# Operations, the lists that their calls are drawn from, and the share of the time that they get.
_FAMILIES: tuple[tuple[Callable[[_Case, _Values], None], Mapping[str, Any], int], ...] = (
    (_convolution, _CONVOLUTION, 6),
    (_product, _PRODUCT, 1),
    (_window, _WINDOW, 1),
    (_rows, _ROWS, 1),
)


@dataclass
class Implementation:
    """What was seen of one implementation of an operation, in all layouts."""

    op: str
    name: str  # "onednn jit:avx2"
    calls: int = 0
    wrong: int = 0  # of the calls for which singa may choose it
    refused: int = 0  # calls for which singa never chooses it
    refused_and_wrong: int = 0
    worst_ratio: float = 0.0  # largest difference / tolerance, of the calls that it may get
    reasons: set[str] = field(default_factory=set)
    example: str = ""


@dataclass
class KernelReport:
    """Result of `check_kernels`."""

    cases: int
    machine: str  # processor, libraries, threads
    implementations: list[Implementation]

    def instruction_sets(self) -> dict[str, str]:
        """For each instruction set of oneDNN's kernels: "seen", or why none of them was run."""
        names = " ".join(row.name for row in self.implementations)
        states = {}
        for isa, flag in _INSTRUCTION_SETS.items():
            if re.search(rf"{isa}(?![a-z_])", names):
                states[isa] = "seen"
            elif flag in cpu_flags():
                states[isa] = "skipped: not offered here"
            else:
                states[isa] = "skipped: the processor lacks it"
        return states

    @property
    def wrong(self) -> list[Implementation]:
        """Implementations that singa may choose and that differed from `reference`."""
        return [row for row in self.implementations if row.wrong]

    def __str__(self) -> str:
        rows = [("operation", "implementation", "calls", "wrong", "refused (wrong)", "worst")]
        for row in self.implementations:
            refused = f"{row.refused} ({row.refused_and_wrong})" if row.refused else ""
            figures = (str(row.calls), str(row.wrong), refused, f"{row.worst_ratio:.2g}")
            rows.append((row.op, row.name, *figures))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        for reason in sorted({text for row in self.implementations for text in row.reasons}):
            lines.append(f"refused: {reason}")
        for row in self.wrong:
            lines.append(f"WRONG: {row.op} by {row.name}: {row.example}")
        if not self.machine.startswith("GPU"):
            lines += [f"{isa}: {state}" for isa, state in self.instruction_sets().items()]
        lines.append(
            f"{self.cases} cases, {len(self.implementations)} implementations of operations, "
            f"{len(self.wrong)} wrong, on {self.machine}"
        )
        return "\n".join(lines)


def check_kernels(seconds: float = 20.0, seed: int = 0, cases: int | None = None) -> KernelReport:
    """Compares every implementation that the default device offers with `reference`.

    Draws convolutions, transposed convolutions, matrix products, pooling, softmax and local
    response normalisation with a fixed `seed`, for about `seconds` seconds, but at least once each,
    or as many `cases`, and runs each, forward and backward, by all implementations in all layouts
    that they offer (`singa.opcheck(every_kernel=True)`). "worst" in the report is the largest
    difference in units of its tolerance. Kernels for instructions that the processor lacks do
    not appear.
    """
    seconds = number("check_kernels", "seconds", seconds)
    seed = integer("check_kernels", "seed", seed, 0)
    values = _Values(np.random.default_rng(seed))
    draws = []
    for at, (run, factors, share) in enumerate(_FAMILIES):
        drawn = pairwise(factors, np.random.default_rng([seed, at]))
        draws += [(run, drawn)] * share
    threads = get_num_threads()
    least = len(draws) if cases is None else cases
    end, done = time.monotonic() + seconds, 0
    with opcheck(action="warn", every_kernel=True) as check:
        try:
            for run, drawn in itertools.cycle(draws):
                if done >= least and (cases is not None or time.monotonic() >= end):
                    break
                case = next(drawn)
                set_num_threads(1 if case["threads"] == "one" else threads)
                run(case, values)
                done += 1
        finally:
            set_num_threads(threads)
        rows = check.kernels()
    device = get_default_device()
    machine = _c.TuningMachine() if device.kind() == _c.DeviceKind_kCpu else device_query(0)
    return KernelReport(done, machine, _by_implementation(rows))


def _by_implementation(rows: Sequence[Mapping[str, Any]]) -> list[Implementation]:
    found: dict[tuple[str, str], Implementation] = {}
    for row in rows:
        name = " ".join(row["kernel"].split()[:2])
        entry = found.setdefault((row["op"], name), Implementation(row["op"], name))
        entry.calls += row["checked"]
        if row["refused"]:
            entry.refused += row["checked"]
            entry.refused_and_wrong += row["failed"]
            entry.reasons.add(f"{name}: {row['refused']}")
            continue
        entry.wrong += row["failed"]
        entry.worst_ratio = max(entry.worst_ratio, row["worst_ratio"])
        if row["example"] and not entry.example:
            entry.example = f"{row['kernel']}: {row['example']}"
    return [found[key] for key in sorted(found)]
