#!/usr/bin/env python3
"""Compares a training step with the sum of its convolutions, each run alone at its best.

    python benchmark/convolutions.py                            # resnet50, batch 32
    python benchmark/convolutions.py --model vgg16_cifar --batch 128

Times each pass of each distinct convolution with all available implementations, on row-major,
channels-last and blocked images, in warm memory with random values, without reorders. The best time
is multiplied by the number of these convolutions in the network. There are two sums: with direct
methods only (oneDNN's), and with Winograd's, too. Then times the network's recorded training step
with the default choices in the same process. Prints milliseconds of the sums by pass, milliseconds
of the step, and the step divided by each sum.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import harness
import numpy as np
import singa
from singa import bench, tensor, tuning
from singa import singa_wrap as raw

PASSES = ("y", "dx", "dW")
BLOCKED = raw.ToBlocked(raw.Tensor((1, 32, 2, 2))).layout_name()
LAYOUTS = ("", "nhwc", BLOCKED)  # row-major, channels-last, blocks


class Geometry(NamedTuple):
    """The geometry of a convolution, from the handle of its layer."""

    image: tuple[int, ...]
    weights: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    group: int
    needs_dx: bool


@contextlib.contextmanager
def noted(found: collections.Counter[Geometry]) -> Iterator[None]:
    """Counts the convolutions whose backward is called in this context."""
    before = raw.ConvBackward

    def note(dy: Any, x: Any, w: Any, handle: Any, *needs: bool) -> Any:
        r = handle.recorder
        geometry = Geometry(
            image=x.shape(),
            weights=w.shape(),
            stride=(r.stride_h, r.stride_w),
            padding=(r.pad_top, r.pad_left, r.pad_bottom, r.pad_right),
            dilation=(r.dilation_h, r.dilation_w),
            group=r.group,
            needs_dx=needs[0],
        )
        found[geometry] += 1
        return before(dy, x, w, handle, *needs)

    raw.ConvBackward = note
    try:
        yield
    finally:
        raw.ConvBackward = before


def handle_of(g: Geometry, image: Any) -> Any:
    return raw.ConvHandle(
        image, g.weights[2:], g.stride, g.padding, g.image[1], g.weights[0], False, g.group,
        g.dilation, 1 << 30, "autotune",
    )  # fmt: skip


def laid_out(plain: Any, tag: str) -> Any:
    """Converts `plain` to a layout, as the result of a convolution by the identity."""
    if not tag:
        return plain
    channels = plain.shape()[1]
    identity = tensor.from_numpy(np.eye(channels, dtype=np.float32)[:, :, None, None]).data
    one = Geometry(plain.shape(), identity.shape(), (1, 1), (0, 0), (1, 1), 1, False)
    raw.SetTuningScope(tag)
    try:
        return raw.ConvForward(plain, identity, None, handle_of(one, plain))
    finally:
        raw.SetTuningScope("")
        tuning.clear()


def fastest() -> float:
    """Milliseconds of the fastest measurement in the table of choices. Clears the table."""
    times = [float(choice["measured"].split(" ms ")[0]) for choice in tuning.choices()]
    tuning.clear()
    return min(times)


def best_times(g: Geometry) -> tuple[float, float, float]:
    """The best time of each pass, in milliseconds."""
    random = np.random.default_rng(0)

    def values(shape: tuple[int, ...]) -> Any:
        return tensor.from_numpy(random.standard_normal(shape, dtype=np.float32)).data

    image, w = values(g.image), values(g.weights)
    handle = handle_of(g, image)
    r = handle.recorder
    result = values((g.image[0], g.weights[0], r.conv_height, r.conv_width))
    pairs = [(laid_out(image, tag), laid_out(result, tag)) for tag in LAYOUTS]
    # The gradient of the weights comes first. After the other passes it would also be measured with
    # their layouts of the weights.
    for x, dy in pairs:
        raw.ConvBackwardW(dy, x, handle)
    dw = fastest()
    for x, _ in pairs:
        raw.ConvForward(x, w, None, handle)
    y = fastest()
    if not g.needs_dx:
        return y, 0.0, dw
    for x, dy in pairs:
        raw.ConvBackward(dy, x, w, handle, True, False, False)
    return y, fastest(), dw


def sums(found: collections.Counter[Geometry], strict: bool) -> np.ndarray:
    """Milliseconds of each pass, summed over all convolutions of the network."""
    singa.set_strict(strict)
    try:
        return np.sum([np.multiply(n, best_times(g)) for g, n in found.items()], axis=0)
    finally:
        singa.set_strict(False)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--model", default="resnet50", help="network of singa.models [%(default)s]")
    parser.add_argument(
        "--batch", type=int, default=0, help="batch size; 0: 32 large or 128 small images [0]"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    singa.set_num_threads(args.threads)
    print(f"{harness.cpu_name()}, {args.threads} threads")
    found: collections.Counter[Geometry] = collections.Counter()
    case = bench.Case(args.model, args.batch)
    case.compile()
    with noted(found):
        case()
    del case
    print(f"{args.model}, batch {next(iter(found)).image[0]}: {found.total()} convolutions")
    direct, every = sums(found, strict=True), sums(found, strict=False)
    step = bench.bench(args.model, args.batch, args.steps, warmup=4, use_graph=True)["ms"]
    rows = [
        {
            "": name,
            **{f"{label}, ms": f"{ms:.1f}" for label, ms in zip(PASSES, times, strict=True)},
            "sum, ms": f"{times.sum():.1f}",
            "step / sum": f"{step / times.sum():.2f}",
        }
        for name, times in (("best direct", direct), ("best of all", every))
    ]
    print(harness.table(rows))
    print(f"step: {step:.1f} ms")


if __name__ == "__main__":
    main()
