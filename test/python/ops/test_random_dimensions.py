"""Convolution and pooling with one to three spatial axes, compared with PyTorch over 200 random
geometries of each family. `random_geometry` has the method."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from random_geometry import Families, Trial, copies, products, run
from singa import autograd
from singa import singa_wrap as wrap

family = Families()


@pytest.mark.parametrize("check", family, ids=lambda check: check.__name__)
def test_family_is_pytorch(check: Callable[[Trial], None], torch: ModuleType) -> None:
    run(check, torch)


def _axes(t: Trial, largest: int) -> tuple[int, list[int]]:
    """The number of spatial axes, and their lengths. Signals are longer than volumes."""
    axes = t.pick(1, 3, 3, 1, 2)
    return axes, t.integers(axes, 1, 3 * largest if axes == 1 else largest)


def _window(t: Trial, size: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Kernel, stride and dilation."""
    axes = len(size)
    kernel = t.integers(axes, 1, 3 if axes == 3 else 4)
    stride = t.integers(axes, 1, 3) if t.chance() else [1] * axes
    dilation = t.integers(axes, 1, 2) if t.chance(0.3) else [1] * axes
    return kernel, stride, dilation


def _reach(kernel: list[int], dilation: list[int]) -> list[int]:
    return [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]


def _paired(pads: list[int], axes: int) -> list[int]:
    """Padding in the order of torch's pad: begin and end of the last axis first."""
    return [pads[end * axes + axis] for axis in reversed(range(axes)) for end in (0, 1)]


@family
def convolution(t: Trial) -> None:
    axes, size = _axes(t, 6)
    kernel, stride, dilation = _window(t, size)
    pads = t.integers(2 * axes, 0, 2) if t.chance() else [0] * 2 * axes
    for axis, reach in enumerate(_reach(kernel, dilation)):  # at least one window
        pads[axis] += max(0, reach - size[axis] - pads[axis] - pads[axes + axis])
    group = t.pick(1, 1, 2, 3)
    channels, out = group * t.pick(1, 2, 5, 8, 16), group * t.pick(1, 3, 8, 16)
    batch, bias = t.batch(), t.chance(0.7)
    t.facts.update(
        x=(batch, channels, *size), out=out, kernel=kernel, stride=stride, pads=pads,
        dilation=dilation, group=group, bias=bias,
    )  # fmt: skip
    inputs = [
        t.input((batch, channels, *size)),
        t.input((out, channels // group, *kernel)),
        *([t.input((out,))] if bias else []),
    ]
    handle = wrap.ConvHandle(
        inputs[0].raw, kernel, stride, pads, channels, out, bias, group, dilation
    )
    functional = t.torch.nn.functional
    theirs = getattr(functional, f"conv{axes}d")
    ours = (autograd.conv1d, autograd.conv2d, autograd.conv3d)[axes - 1]

    def oracle(x: Any, w: Any, b: Any = None) -> Any:
        return theirs(functional.pad(x, _paired(pads, axes)), w, b, stride, 0, dilation, group)

    t.check(lambda x, w, b=None: ours(handle, x, w, b), oracle, inputs, products())


@family
def transposed_convolution(t: Trial) -> None:
    axes, size = _axes(t, 4)
    kernel, stride, dilation = _window(t, size)
    extra = [t.integer(0, s - 1) for s in stride]
    pads = [0] * axes
    for axis in range(axes):  # at least one element stays
        whole = (size[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1)
        if t.chance():
            pads[axis] = t.integer(0, min(2, whole // 2))
    group = t.pick(1, 1, 2, 3)
    channels, out = group * t.pick(1, 2, 5, 8, 16), group * t.pick(1, 3, 8, 16)
    batch, bias = t.batch(), t.chance(0.7)
    t.facts.update(
        x=(batch, channels, *size), out=out, kernel=kernel, stride=stride, pads=pads, extra=extra,
        dilation=dilation, group=group, bias=bias,
    )  # fmt: skip
    inputs = [
        t.input((batch, channels, *size)),
        t.input((channels, out // group, *kernel)),
        *([t.input((out,))] if bias else []),
    ]
    handle = wrap.ConvTransposeHandle(
        inputs[0].raw, kernel, stride, pads, extra, channels, out, bias, group, dilation
    )
    theirs = getattr(t.torch.nn.functional, f"conv_transpose{axes}d")
    name = f"conv_transpose{axes}d"
    t.check(
        lambda x, w, b=None: getattr(autograd, name)(handle, x, w, b),
        lambda x, w, b=None: theirs(x, w, b, stride, pads, extra, group, dilation),
        inputs,
        products(),
    )


def _pool(t: Trial, is_max: bool) -> tuple[tuple[int, ...], Callable[..., Any]]:
    """The shape of x, and singa's pooling."""
    axes, size = _axes(t, 6)
    kernel, stride, dilation = _window(t, size)
    if not is_max:
        dilation = [1] * axes
    kernel = [min(k, (n - 1) // d + 1) for k, n, d in zip(kernel, size, dilation, strict=True)]
    pads = [t.integer(0, k // 2) for k in kernel]  # torch's rule
    batch, channels = t.batch(), t.channels()
    counted, ceil = not is_max and t.chance(), t.chance(0.4)
    shape = (batch, channels, *size)
    t.facts.update(
        x=shape, kernel=kernel, stride=stride, pads=pads, dilation=dilation, ceil=ceil,
        counted=counted,
    )  # fmt: skip
    handle = wrap.PoolingHandle(
        wrap.Tensor(shape), kernel, stride, pads, is_max, ceil, counted, dilation
    )
    ours = (autograd.pooling_1d, autograd.pooling_2d, autograd.pooling_3d)[axes - 1]
    return shape, lambda x: ours(handle, x)


@family
def max_pooling(t: Trial) -> None:
    shape, ours = _pool(t, True)
    f, axes = t.facts, len(shape) - 2
    theirs = getattr(t.torch.nn.functional, f"max_pool{axes}d")
    values = t.random.integers(-2, 3, shape) if t.chance(0.3) else None  # ties
    t.check(
        ours,
        lambda x: theirs(x, f["kernel"], f["stride"], f["pads"], f["dilation"], f["ceil"]),
        [t.input(shape, values=values)],
        copies(),
    )


@family
def average_pooling(t: Trial) -> None:
    shape, ours = _pool(t, False)
    f, axes = t.facts, len(shape) - 2
    theirs = getattr(t.torch.nn.functional, f"avg_pool{axes}d")
    t.check(
        ours,
        lambda x: theirs(x, f["kernel"], f["stride"], f["pads"], f["ceil"], f["counted"]),
        [t.input(shape)],
        products(terms=int(np.prod(f["kernel"]))),
    )


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
