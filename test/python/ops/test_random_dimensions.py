"""Convolution and pooling with one to three spatial axes, compared with PyTorch over 200 or 400
random geometries of each family. `random_geometry` has the method."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from random_geometry import Families, Trial, copies, products, run
from singa import autograd
from singa import singa_wrap as wrap
from trials import TRIALS

family = Families()


@pytest.mark.parametrize("check", family, ids=lambda check: check.__name__)
def test_family_is_pytorch(check: Callable[[Trial], None], torch: ModuleType) -> None:
    run(check, torch, TRIALS if "adaptive" in check.__name__ else 2 * TRIALS)


def _axes(t: Trial, largest: int) -> tuple[int, list[int]]:
    """The number of spatial axes, and their lengths. Signals are longer than volumes; some images
    are a row or a pixel."""
    axes = t.pick(2, 1, 3, 2, 2)
    size = t.integers(axes, 1, {1: 3 * largest, 2: largest + 3, 3: largest}[axes])
    if axes == 2 and t.chance(0.2):
        size = [1, t.pick(1, size[1])]
    return axes, size


def _window(t: Trial, size: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Kernel, stride and dilation."""
    axes = len(size)
    kernel = t.integers(axes, 1, 3 if axes == 3 else 4)
    stride = t.integers(axes, 1, 3) if t.chance() else [1] * axes
    dilation = t.integers(axes, 1, 2 if axes == 3 else 3) if t.chance(0.3) else [1] * axes
    return kernel, stride, dilation


def _reach(kernel: list[int], dilation: list[int]) -> list[int]:
    return [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]


def _groups(t: Trial) -> tuple[int, int, int]:
    """(input channels, output channels, groups): dense, grouped or depthwise."""
    kind = t.pick("dense", "dense", "grouped", "depthwise")
    if kind == "dense":
        return t.channels(), t.channels(), 1
    if kind == "grouped":
        group = t.integer(2, 4)
        return group * t.integer(1, 9), group * t.integer(1, 9), group
    group = t.channels(33)
    return group, group * t.pick(1, 1, 1, 2), group


def _paired(pads: list[int], axes: int) -> list[int]:
    """Padding in the order of torch's pad: begin and end of the last axis first."""
    return [pads[end * axes + axis] for axis in reversed(range(axes)) for end in (0, 1)]


def _odd(t: Trial, axes: int, most: int) -> list[int]:
    """SINGA's additional padding of images: top, bottom, left, right."""
    return t.integers(4, 0, most) if axes == 2 and t.chance(0.2) else [0, 0, 0, 0]


def _widened(size: list[int], odd: list[int]) -> list[int]:
    return [n + sum(odd[2 * i : 2 * i + 2]) for i, n in enumerate(size)] if any(odd) else size


def _outside(t: Trial, x: Any, odd: list[int], pads: list[int], value: float = 0.0) -> Any:
    """x with both paddings."""
    pad = t.torch.nn.functional.pad
    if any(odd):
        x = pad(x, (*odd[2:], *odd[:2]), value=value)
    return pad(x, _paired(pads, x.ndim - 2), value=value)


@family
def convolution(t: Trial) -> None:
    axes, size = _axes(t, 6)
    kernel, stride, dilation = _window(t, size)
    pads = t.integers(2 * axes, 0, 2) if t.chance() else [0] * 2 * axes
    for axis, reach in enumerate(_reach(kernel, dilation)):  # at least one window
        pads[axis] += max(0, reach - size[axis] - pads[axis] - pads[axes + axis])
    channels, out, group = _groups(t)
    batch, bias, odd = t.batch(), t.chance(0.7), _odd(t, axes, 2)
    t.facts.update(
        x=(batch, channels, *size), out=out, kernel=kernel, stride=stride, pads=pads, odd=odd,
        dilation=dilation, group=group, bias=bias,
    )  # fmt: skip
    inputs = [
        t.input((batch, channels, *size)),
        t.input((out, channels // group, *kernel)),
        *([t.input((out,))] if bias else []),
    ]
    padded = wrap.Tensor((batch, channels, *_widened(size, odd)))
    handle = wrap.ConvHandle(padded, kernel, stride, pads, channels, out, bias, group, dilation)
    theirs = getattr(t.torch.nn.functional, f"conv{axes}d")
    ours = (autograd.conv1d, autograd.conv2d, autograd.conv3d)[axes - 1]
    more = [odd] if any(odd) else []

    def oracle(x: Any, w: Any, b: Any = None) -> Any:
        return theirs(_outside(t, x, odd, pads), w, b, stride, 0, dilation, group)

    t.check(lambda x, w, b=None: ours(handle, x, w, b, *more), oracle, inputs, products())


@family
def transposed_convolution(t: Trial) -> None:
    axes, size = _axes(t, 4)
    kernel, stride, dilation = _window(t, size)
    extra = [t.integer(0, s - 1) for s in stride]
    before, after = [0] * axes, [0] * axes
    for axis in range(axes):  # at least one element stays
        whole = (size[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1)
        if t.chance() and whole > 0:
            before[axis] = t.integer(0, min(2, whole))
            after[axis] = t.integer(0, min(2, whole - before[axis]))
    channels, out, group = _groups(t)
    batch, bias = t.batch(), t.chance(0.7)
    t.facts.update(
        x=(batch, channels, *size), out=out, kernel=kernel, stride=stride, before=before,
        after=after, extra=extra, dilation=dilation, group=group, bias=bias,
    )  # fmt: skip
    inputs = [
        t.input((batch, channels, *size)),
        t.input((channels, out // group, *kernel)),
        *([t.input((out,))] if bias else []),
    ]
    handle = wrap.ConvTransposeHandle(
        *(inputs[0].raw, kernel, stride, [*before, *after], extra, channels, out, bias, group),
        dilation,
    )
    theirs = getattr(t.torch.nn.functional, f"conv_transpose{axes}d")
    ours = getattr(autograd, f"conv_transpose{axes}d")
    crop = [-p for p in before] + [e - p for e, p in zip(extra, after, strict=True)]

    def oracle(x: Any, w: Any, b: Any = None) -> Any:
        y = theirs(x, w, None, stride, 0, 0, group, dilation)
        y = t.torch.nn.functional.pad(y, _paired(crop, axes))
        return y if b is None else y + b.reshape(-1, *[1] * axes)

    t.check(lambda x, w, b=None: ours(handle, x, w, b), oracle, inputs, products())


def _pool(t: Trial, is_max: bool) -> tuple[tuple[int, ...], list[int], Callable[..., Any]]:
    """The shape of x, odd padding, and singa's pooling."""
    axes, size = _axes(t, 6)
    kernel, stride, dilation = _window(t, size)
    counted, ceil, odd = not is_max and t.chance(), t.chance(0.3), [0, 0, 0, 0]
    if ceil:  # torch's rule, which needs symmetric padding of at most half the window
        dilation = dilation if is_max else [1] * axes
        kernel = [min(k, (n - 1) // d + 1) for k, n, d in zip(kernel, size, dilation, strict=True)]
        pads = [t.integer(0, k // 2) for k in kernel] * 2
    else:  # any padding with which each window overlaps the input
        odd = _odd(t, axes, 1)
        pads = t.integers(2 * axes, 0, 2) if t.chance() else [0] * 2 * axes
        for axis, reach in enumerate(_reach(kernel, dilation)):
            pads[axis::axes] = [min(pad, reach - 1) for pad in pads[axis::axes]]
            lack = max(0, reach - size[axis] - pads[axis] - pads[axes + axis])
            pads[axis] += lack // 2
            pads[axes + axis] += lack - lack // 2
    batch, channels = t.batch(), t.channels()
    shape = (batch, channels, *size)
    t.facts.update(
        x=shape, kernel=kernel, stride=stride, pads=pads, odd=odd, dilation=dilation, ceil=ceil,
        counted=counted,
    )  # fmt: skip
    handle = wrap.PoolingHandle(
        wrap.Tensor((batch, channels, *_widened(size, odd))),
        *(kernel, stride, pads, is_max, ceil, counted, dilation),
    )
    ours = (autograd.pooling_1d, autograd.pooling_2d, autograd.pooling_3d)[axes - 1]
    more = [odd] if any(odd) else []
    return shape, odd, lambda x: ours(handle, x, *more)


@family
def max_pooling(t: Trial) -> None:
    shape, odd, ours = _pool(t, True)
    f, axes = t.facts, len(shape) - 2
    theirs = getattr(t.torch.nn.functional, f"max_pool{axes}d")
    values = t.random.integers(-2, 3, shape) if t.chance(0.3) else None  # ties: the first one

    def oracle(x: Any) -> Any:
        window = f["kernel"], f["stride"]
        if f["ceil"]:
            return theirs(x, *window, f["pads"][:axes], f["dilation"], True)
        return theirs(_outside(t, x, odd, f["pads"], -np.inf), *window, 0, f["dilation"])

    t.check(ours, oracle, [t.input(shape, values=values)], copies())


@family
def average_pooling(t: Trial) -> None:
    shape, odd, ours = _pool(t, False)
    f, axes = t.facts, len(shape) - 2
    functional = t.torch.nn.functional
    kernel, stride, counted = f["kernel"], f["stride"], f["counted"]

    def summed(x: Any) -> Any:
        ones = t.torch.ones((shape[1], 1, *kernel), dtype=x.dtype)
        convolved = getattr(functional, f"conv{axes}d")
        return convolved(x, ones, None, stride, 0, f["dilation"], shape[1])

    def oracle(x: Any) -> Any:
        if f["ceil"]:
            theirs = getattr(functional, f"avg_pool{axes}d")
            return theirs(x, kernel, stride, f["pads"][:axes], True, counted)
        inside = _outside(t, t.torch.ones_like(x), odd, [0] * 2 * axes, 1.0)
        inside = functional.pad(inside, _paired(f["pads"], axes), value=float(counted))
        return summed(_outside(t, x, odd, f["pads"])) / summed(inside).clamp(min=1)

    t.check(ours, oracle, [t.input(shape)], products(terms=int(np.prod(kernel))))


def _adaptive(t: Trial) -> tuple[tuple[int, ...], list[int | None], int]:
    """The shape of x, the output's size, and the most elements of a window."""
    size = _axes(t, 7)[1]
    output: list[int | None] = [t.pick(1, 2, 3, 5, None, n, t.integer(1, 9)) for n in size]
    shape = (t.batch(), t.channels(), *size)
    t.facts.update(x=shape, output=output)
    return shape, output, int(np.prod([n + 1 for n in size]))


@family
def adaptive_max_pooling(t: Trial) -> None:
    shape, output, _ = _adaptive(t)
    theirs = getattr(t.torch.nn.functional, f"adaptive_max_pool{len(output)}d")
    values = t.random.integers(-2, 3, shape) if t.chance(0.3) else None  # ties
    sizes = [n if k is None else k for k, n in zip(output, shape[2:], strict=True)]
    t.check(
        lambda x: autograd.adaptive_max_pool(x, output),
        lambda x: theirs(x, sizes),
        [t.input(shape, values=values)],
        copies(),
    )


@family
def adaptive_average_pooling(t: Trial) -> None:
    shape, output, terms = _adaptive(t)
    theirs = getattr(t.torch.nn.functional, f"adaptive_avg_pool{len(output)}d")
    sizes = [n if k is None else k for k, n in zip(output, shape[2:], strict=True)]
    t.check(
        lambda x: autograd.adaptive_avg_pool(x, output),
        lambda x: theirs(x, sizes),
        [t.input(shape)],
        products(terms=terms),
    )
