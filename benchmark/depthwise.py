#!/usr/bin/env python3
"""Compares depthwise convolutions with the machine's copy bandwidth, and with PyTorch.

    python benchmark/depthwise.py                             # all kernels, layouts and types
    python benchmark/depthwise.py --kernels 3 --channels 144 --size 56
    python benchmark/depthwise.py --group-width 4             # grouped, 4 channels in each group

Times each pass on images that exceed the caches: the time is the minimum of several runs. Bytes are
those that have to move: x and y of the forward pass, dy and dx of the gradient of the input, x and
dy of the gradient of the weights. Prints GB/s and their share of the copy bandwidth, which is
measured between the cases, on the same number of threads: a copy of n bytes moves 2n. PyTorch's
time is the better one of its two memory formats. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import convolutions
import harness
import numpy as np
import singa
from singa import singa_wrap as raw
from singa import tensor

PASSES = ("y", "dx", "dW")


class Copy:
    """Copies 256 MB on all threads."""

    def __init__(self, threads: int) -> None:
        random = np.random.default_rng(0)
        self.source = random.standard_normal(1 << 26, dtype=np.float32)
        self.target = np.ones_like(self.source)
        self.pool = ThreadPoolExecutor(threads)
        self.parts = np.array_split(np.arange(self.source.size), threads)
        self.parts = [slice(part[0], part[-1] + 1) for part in self.parts]

    def __call__(self) -> None:
        list(self.pool.map(self.part, self.parts))

    def part(self, part: slice) -> None:
        np.copyto(self.target[part], self.source[part])

    def rate(self, repeats: int) -> float:
        """Bytes per second."""
        return 2 * self.source.nbytes / min(harness.seconds_of(self, repeats))


class Case:
    """One geometry, type and layout."""

    def __init__(self, args: argparse.Namespace, kernel: int, stride: int, dtype: str) -> None:
        self.shape = (args.batch, args.channels, args.size, args.size)
        self.weights = (args.channels, args.group_width, kernel, kernel)
        self.kernel, self.stride, self.dtype, self.repeats = kernel, stride, dtype, args.repeats
        random = np.random.default_rng(0)
        side = (args.size - 1) // stride + 1
        self.result = (*self.shape[:2], side, side)
        self.x, self.w, self.dy = (
            random.standard_normal(shape, dtype=np.float32)
            for shape in (self.shape, self.weights, self.result)
        )
        each = 4 if dtype == "float32" else 2
        self.bytes = (self.x.size + self.dy.size) * each

    def singa(self, layout: str) -> list[tuple[float, str]]:
        """Seconds and implementation of each pass."""
        x, w, dy = (tensor.from_numpy(values).data for values in (self.x, self.w, self.dy))
        pads, strides = [self.kernel // 2] * 2, [self.stride] * 2
        channels, groups = self.shape[1], self.shape[1] // self.weights[1]
        x, dy = (convolutions.laid_out(t, layout) for t in (x, dy))
        if self.dtype != "float32":
            x, w, dy = (t.ToType(raw.kBFloat16) for t in (x, w, dy))
        if {x.layout_name(), dy.layout_name()} != {layout}:
            raise RuntimeError(f"images are in {x.layout_name()} and {dy.layout_name()}")
        handle = raw.ConvHandle(
            x, self.weights[2:], strides, pads, channels, channels, False, groups
        )
        runs: tuple[Callable[[], Any], ...] = (
            lambda: raw.ConvForward(x, w, None, handle),
            lambda: raw.ConvBackward(dy, x, w, handle, True, False, False),
            lambda: raw.ConvBackward(dy, x, w, handle, False, True, False),
        )
        found = []
        for run in runs:
            with singa.profile() as profile:
                run()
            names = [record.implementation for record in profile.records]
            found.append((min(harness.seconds_of(run, self.repeats)), " + ".join(names)))
        return found

    def torch(self) -> list[float]:
        """Seconds of each pass, in the better memory format."""
        import torch

        dtype = getattr(torch, self.dtype)
        groups = self.shape[1] // self.weights[1]
        times = []
        for form in (torch.channels_last, torch.contiguous_format):
            x, dy = (
                torch.from_numpy(values).to(dtype).contiguous(memory_format=form)
                for values in (self.x, self.dy)
            )
            w = torch.from_numpy(self.w).to(dtype)
            geometry = [self.stride] * 2, [self.kernel // 2] * 2, [1, 1]

            forward = functools.partial(torch.conv2d, x, w, None, *geometry, groups)
            backward = functools.partial(
                torch.ops.aten.convolution_backward,
                dy,
                x,
                w,
                None,
                *geometry,
                False,
                [0, 0],
                groups,
            )
            calls = (
                forward,
                functools.partial(backward, [True, False, False]),
                functools.partial(backward, [False, True, False]),
            )
            with torch.no_grad():
                times.append([min(harness.seconds_of(call, self.repeats)) for call in calls])
        return [min(each) for each in zip(*times, strict=True)]


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[3, 5, 7])
    parser.add_argument("--strides", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--layouts", nargs="+", default=["nhwc", convolutions.BLOCKED])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--channels", type=int, default=96)
    parser.add_argument("--size", type=int, default=112, help="height and width [%(default)s]")
    parser.add_argument("--group-width", type=int, default=1, help="channels per group")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-torch", action="store_true")
    args = parser.parse_args()
    singa.set_num_threads(args.threads)
    print(f"{harness.cpu_name()}, {args.threads} threads")
    print(f"images of {args.batch} x {args.channels} x {args.size} x {args.size}")
    copy = Copy(args.threads)
    rows = []
    for dtype in args.dtypes:
        for kernel in args.kernels:
            for stride in args.strides:
                case = Case(args, kernel, stride, dtype)
                torch_times = [0.0] * 3 if args.no_torch else case.torch()
                for layout in args.layouts:
                    rate = copy.rate(args.repeats)
                    times = case.singa(layout)
                    rate = max(rate, copy.rate(args.repeats))
                    for name, (seconds, implementation), torch in zip(
                        PASSES, times, torch_times, strict=True
                    ):
                        rows.append(
                            {
                                "": f"{dtype} {kernel}x{kernel} / {stride} {layout} {name}",
                                "ms": f"{seconds * 1e3:.2f}",
                                "GB/s": f"{case.bytes / seconds / 1e9:.1f}",
                                "of copy": f"{case.bytes / seconds / rate:.2f}",
                                "torch, ms": f"{torch * 1e3:.2f}",
                                "implementation": implementation,
                            }
                        )
                print(f"{dtype} {kernel} / {stride}: copy {rate / 1e9:.1f} GB/s", flush=True)
    print(harness.table(rows))


if __name__ == "__main__":
    main()
