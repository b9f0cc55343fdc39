"""Convolutions. ops/test_random_geometries.py draws more geometries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ops.case import Family, functional, handle, uniform
from singa import autograd
from singa import singa_wrap as wrap

CASES = Family()
add = CASES.add


def _paired(pads: Sequence[int], axes: int) -> list[int]:
    """Padding in the order of torch's pad: begin and end of the last axis first."""
    pads = [*pads, *pads] if len(pads) == axes else pads
    return [pads[end * axes + axis] for axis in reversed(range(axes)) for end in (0, 1)]


def convolution(
    x: Sequence[int],
    out: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int] | None = None,
    group: int = 1,
    name: str = "",
) -> None:
    """A geometry of peculiar size, if it has no name of its own."""
    axes, channels = len(kernel), x[1]
    dilation = dilation or [1] * axes
    function = f"conv{axes}d"
    geometry = f"{tuple(x)} to {out}, {kernel} by {stride}, pads {pads}, {group} groups"
    add(
        name or f"{function} of {geometry}",
        "_Conv2d" if axes == 2 else "_Conv",
        lambda x, w, b: getattr(autograd, function)(
            handle(wrap.ConvHandle, x, kernel, stride, pads, channels, out, True, group, dilation),
            *(x, w, b),
        ),
        lambda x, w, b: getattr(functional, function)(
            functional.pad(x, _paired(pads, axes)), w, b, stride, 0, dilation, group
        ),
        [uniform(*x), uniform(out, channels // group, *kernel), uniform(out)],
        large=not name,
    )


def transposed(
    name: str, x: Sequence[int], out: int, kernel: Sequence[int], *geometry: Any, group: int = 1
) -> None:
    """`geometry` is the stride, the padding, and the padding of the output."""
    axes, channels = len(kernel), x[1]
    function = f"conv_transpose{axes}d"
    add(
        name or function,
        "_ConvTranspose2d" if axes == 2 else "_ConvTranspose",
        lambda x, w, b: getattr(autograd, function)(
            handle(wrap.ConvTransposeHandle, x, kernel, *geometry, channels, out, True, group),
            *(x, w, b),
        ),
        lambda x, w, b: getattr(functional, function)(x, w, b, *geometry, group),
        [uniform(*x), uniform(channels, out // group, *kernel), uniform(out)],
        large=bool(name),
    )


def upsampling(x: Sequence[int], out: int, kernel: Sequence[int]) -> None:
    """A transposed convolution whose stride is its kernel: patches do not overlap."""
    axes = len(kernel)
    name = f"conv_transpose{axes}d of {tuple(x)} to {out}, patches {kernel}"
    transposed(name, x, out, kernel, kernel, [0] * axes, [0] * axes)


convolution((2, 4, 7, 6), 6, [3, 3], [2, 1], [1, 1], group=2, name="conv2d")
add(
    *("conv2d, odd padding", "_Conv2d"),
    lambda x, w: autograd.conv2d(
        wrap.ConvHandle(wrap.Tensor((2, 3, 6, 8)), [3, 3], [1, 1], [0, 0], 3, 4, False),
        *(x, w, None, (0, 1, 2, 1)),
    ),
    lambda x, w: functional.conv2d(functional.pad(x, (2, 1, 0, 1)), w),
    [uniform(2, 3, 5, 5), uniform(4, 3, 3, 3)],
)
convolution((2, 4, 9), 6, [3], [2], [1, 0], group=2, name="conv1d")
convolution((2, 2, 3, 5, 4), 3, [2, 3, 3], [1, 2, 1], [1, 1, 0], name="conv3d")
transposed("", (2, 4, 6), 6, [3], [2], [1], [1], group=2)
transposed("", (2, 2, 2, 3, 3), 3, [2, 3, 2], [1, 2, 2], [0, 1, 0], [0, 1, 0])
transposed("", (2, 4, 5, 6), 6, [3, 3], [2, 2], [1, 1], [1, 0], group=2)

# Groups narrower than a vector.
for _inside, _outside in [(4, 4), (8, 8), (4, 8), (8, 4), (2, 6), (12, 4), (3, 3)]:
    for _groups in (4, 8, 32):
        for _step in (1, 2):
            convolution(
                *((2, _inside * _groups, 6, 7), _outside * _groups, [3, 3], [_step, _step], [1, 1]),
                group=_groups,
            )
convolution((2, 32, 40), 32, [5], [1], [2], group=8)
convolution((2, 16, 5, 6, 4), 16, [3, 3, 3], [1, 1, 1], [1, 1, 1], group=4)
# One row.
convolution((2, 5, 1, 700), 9, [1, 7], [1, 3], [0, 3], [1, 2])
convolution((1, 3, 1, 2500), 2, [1, 4], [1, 1], [0, 0, 0, 3])
# Images narrower than the stride, and than the padding.
for _width in (1, 2):
    for _step in (2, 3):
        convolution((2, 16, 3, _width), 17, [2, 4], [2, _step], [1, 2, 1, 2])
    for _side in (5, 7):
        convolution((3, 640, _width, _width), 32, [_side] * 2, [1, 1], [_side // 2] * 2)
# Whole blocks of channels, and several pieces of the im2col matrix.
convolution((2, 32, 9, 8), 48, [1, 1], [1, 1], [0, 0])
convolution((2, 32, 9, 8), 32, [3, 3], [1, 1], [1, 1])
convolution((1, 70, 33, 33), 8, [3, 3], [1, 1], [1, 1])
convolution((2, 3, 40, 40), 40, [5, 5], [1, 1], [2, 2])
for _kernel in ([2, 2], [3, 2], [1, 4]):
    for _inside, _outside in [(32, 16), (16, 64), (20, 48), (24, 20), (3, 8), (1, 1)]:
        upsampling((2, _inside, 5, 7), _outside, _kernel)
upsampling((2, 32, 11), 16, [2])
