"""Convolutions. ops/test_random_geometries.py draws more geometries."""

from __future__ import annotations

from collections.abc import Sequence

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
) -> None:
    """A geometry of peculiar size."""
    axes, channels = len(kernel), x[1]
    dilation = dilation or [1] * axes
    name = f"conv{axes}d"
    add(
        f"{name} of {tuple(x)} to {out}, {kernel} by {stride}, pads {pads}, {group} groups",
        "_Conv2d" if axes == 2 else "_Conv",
        lambda x, w, b: getattr(autograd, name)(
            handle(wrap.ConvHandle, x, kernel, stride, pads, channels, out, True, group, dilation),
            *(x, w, b),
        ),
        lambda x, w, b: getattr(functional, name)(
            functional.pad(x, _paired(pads, axes)), w, b, stride, 0, dilation, group
        ),
        [uniform(*x), uniform(out, channels // group, *kernel), uniform(out)],
        large=True,
    )


def upsampling(x: Sequence[int], out: int, kernel: Sequence[int]) -> None:
    """A transposed convolution whose stride is its kernel: patches do not overlap."""
    axes, channels = len(kernel), x[1]
    name = f"conv_transpose{axes}d"
    add(
        f"{name} of {tuple(x)} to {out}, patches {kernel}",
        "_ConvTranspose2d" if axes == 2 else "_ConvTranspose",
        lambda x, w, b: getattr(autograd, name)(
            handle(
                wrap.ConvTransposeHandle,
                *(x, kernel, kernel, [0] * axes, [0] * axes, channels, out, True),
            ),
            *(x, w, b),
        ),
        lambda x, w, b: getattr(functional, name)(x, w, b, kernel),
        [uniform(*x), uniform(channels, out, *kernel), uniform(out)],
        large=True,
    )


add(
    "conv2d",
    "_Conv2d",
    lambda x, w, b: autograd.conv2d(
        handle(wrap.ConvHandle, x, [3, 3], [2, 1], [1, 1], 4, 6, True, 2), x, w, b
    ),
    lambda x, w, b: functional.conv2d(x, w, b, (2, 1), 1, 1, 2),
    [uniform(2, 4, 7, 6), uniform(6, 2, 3, 3), uniform(6)],
)
add(
    "conv2d, odd padding",
    "_Conv2d",
    lambda x, w: autograd.conv2d(
        wrap.ConvHandle(wrap.Tensor((2, 3, 6, 8)), [3, 3], [1, 1], [0, 0], 3, 4, False),
        x,
        w,
        None,
        (0, 1, 2, 1),
    ),
    lambda x, w: functional.conv2d(functional.pad(x, (2, 1, 0, 1)), w),
    [uniform(2, 3, 5, 5), uniform(4, 3, 3, 3)],
)
add(
    "conv1d",
    "_Conv",
    lambda x, w, b: autograd.conv1d(
        handle(wrap.ConvHandle, x, [3], [2], [1, 0], 4, 6, True, 2), x, w, b
    ),
    lambda x, w, b: functional.conv1d(functional.pad(x, (1, 0)), w, b, 2, 0, 1, 2),
    [uniform(2, 4, 9), uniform(6, 2, 3), uniform(6)],
)
add(
    "conv3d",
    "_Conv",
    lambda x, w, b: autograd.conv3d(
        handle(wrap.ConvHandle, x, [2, 3, 3], [1, 2, 1], [1, 1, 0], 2, 3), x, w, b
    ),
    lambda x, w, b: functional.conv3d(x, w, b, (1, 2, 1), (1, 1, 0)),
    [uniform(2, 2, 3, 5, 4), uniform(3, 2, 2, 3, 3), uniform(3)],
)
add(
    "conv_transpose1d",
    "_ConvTranspose",
    lambda x, w, b: autograd.conv_transpose1d(
        handle(wrap.ConvTransposeHandle, x, [3], [2], [1], [1], 4, 6, True, 2), x, w, b
    ),
    lambda x, w, b: functional.conv_transpose1d(x, w, b, 2, 1, 1, 2),
    [uniform(2, 4, 6), uniform(4, 3, 3), uniform(6)],
)
add(
    "conv_transpose3d",
    "_ConvTranspose",
    lambda x, w, b: autograd.conv_transpose3d(
        handle(wrap.ConvTransposeHandle, x, [2, 3, 2], [1, 2, 2], [0, 1, 0], [0, 1, 0], 2, 3),
        *(x, w, b),
    ),
    lambda x, w, b: functional.conv_transpose3d(x, w, b, (1, 2, 2), (0, 1, 0), (0, 1, 0)),
    [uniform(2, 2, 2, 3, 3), uniform(2, 3, 2, 3, 2), uniform(3)],
)
add(
    "conv_transpose2d",
    "_ConvTranspose2d",
    lambda x, w, b: autograd.conv_transpose2d(
        handle(wrap.ConvTransposeHandle, x, [3, 3], [2, 2], [1, 1], [1, 0], 4, 6, True, 2), x, w, b
    ),
    lambda x, w, b: functional.conv_transpose2d(x, w, b, 2, 1, (1, 0), 2),
    [uniform(2, 4, 5, 6), uniform(4, 3, 3, 3), uniform(6)],
)

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
