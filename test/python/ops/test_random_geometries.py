"""Windows and normalisation, compared with PyTorch over 200 random geometries of each family.

`random_geometry` has the method. `test_random_products` tests matrix products, losses and recurrent
layers; `test_random_shapes` elementwise operators, reductions and movement.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from random_geometry import Bound, Bounds, Families, Trial, copies, products, run
from singa import autograd, tensor
from singa import singa_wrap as wrap

family = Families()


@pytest.mark.parametrize("check", family, ids=lambda check: check.__name__)
def test_family_is_pytorch(check: Callable[[Trial], None], torch: ModuleType) -> None:
    run(check, torch)


# Convolution and pooling. Padding is (top, left, bottom, right), as handles take it.


def _sides(pads: list[int]) -> tuple[int, int, int, int]:
    """Padding in the order of torch's pad: left, right, top, bottom."""
    top, left, bottom, right = pads
    return left, right, top, bottom


def _window(
    t: Trial, size: list[int], kernel: list[int], dilation: list[int], pooling: bool = False
) -> list[int]:
    """Random padding that gives at least one window. Each window of a pooling must overlap the
    input."""
    pads = t.integers(4, 0, 2) if t.chance() else [0, 0, 0, 0]
    for axis in (0, 1):
        reach = dilation[axis] * (kernel[axis] - 1) + 1
        if pooling:
            pads[axis::2] = [min(pad, reach - 1) for pad in pads[axis::2]]
        lack = reach - size[axis] - pads[axis] - pads[axis + 2]
        if lack > 0:
            pads[axis] += lack // 2
            pads[axis + 2] += lack - lack // 2
    return pads


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


def _geometry(t: Trial, largest: int = 9) -> tuple[list[int], list[int], list[int], list[int]]:
    """Size, kernel, stride, dilation. One in five has height 1 (one dimension); some are 1 x 1."""
    size, kernel = t.integers(2, 1, largest), t.integers(2, 1, 4)
    if t.chance(0.2):
        size[0] = kernel[0] = 1
    if t.chance(0.1):
        size = [1, 1]
    stride = t.integers(2, 1, 3) if t.chance() else [1, 1]
    dilation = t.integers(2, 1, 3) if t.chance(0.3) else [1, 1]
    return size, kernel, stride, dilation


@family
def convolution(t: Trial) -> None:
    size, kernel, stride, dilation = _geometry(t)
    channels, out, group = _groups(t)
    pads = _window(t, size, kernel, dilation)
    batch, bias = t.batch(), t.chance(0.7)
    odd = [0, 0, 0, 0]  # top, bottom, left, right: SINGA's additional padding
    if t.chance(0.2):
        odd = t.integers(4, 0, 2)
    t.facts.update(
        x=(batch, channels, *size), out=out, kernel=kernel, stride=stride, pads=pads, odd=odd,
        dilation=dilation, group=group, bias=bias,
    )  # fmt: skip
    inputs = [
        t.input((batch, channels, *size)),
        t.input((out, channels // group, *kernel)),
        *([t.input((out,))] if bias else []),
    ]
    padded = wrap.Tensor((batch, channels, size[0] + sum(odd[:2]), size[1] + sum(odd[2:])))
    handle = wrap.ConvHandle(padded, kernel, stride, pads, channels, out, bias, group, dilation)
    functional = t.torch.nn.functional

    def oracle(x: Any, w: Any, b: Any = None) -> Any:
        x = functional.pad(functional.pad(x, (odd[2], odd[3], odd[0], odd[1])), _sides(pads))
        return functional.conv2d(x, w, b, stride, 0, dilation, group)

    def ours(x: Any, w: Any, b: Any = None) -> Any:
        return autograd.conv2d(handle, x, w, b, odd)

    t.check(ours, oracle, inputs, products())


@family
def transposed_convolution(t: Trial) -> None:
    size, kernel, stride, dilation = _geometry(t, 6)
    channels, out, group = _groups(t)
    extra = [t.integer(0, s - 1) for s in stride]
    pads = [0, 0, 0, 0]
    for axis in (0, 1):  # at least one element stays
        whole = (size[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1)
        if t.chance() and whole > 0:
            pads[axis] = t.integer(0, min(2, whole))
            pads[axis + 2] = t.integer(0, min(2, whole - pads[axis]))
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
    functional = t.torch.nn.functional
    crop = (-pads[1], extra[1] - pads[3], -pads[0], extra[0] - pads[2])

    def oracle(x: Any, w: Any, b: Any = None) -> Any:
        y = functional.conv_transpose2d(x, w, None, stride, 0, 0, group, dilation)
        y = functional.pad(y, crop)
        return y if b is None else y + b[:, None, None]

    def ours(x: Any, w: Any, b: Any = None) -> Any:
        return autograd.conv_transpose2d(handle, x, w, b)

    t.check(ours, oracle, inputs, products())


def _pool(t: Trial, is_max: bool) -> tuple[Any, list[int], Any]:
    """Arguments of both pooling families: (torch's padding, odd padding, singa's handle)."""
    size, kernel, stride, dilation = _geometry(t)
    batch, channels, ceil = t.batch(), t.channels(), t.chance(0.4)
    counted = not is_max and t.chance()
    odd = [0, 0, 0, 0]
    if ceil:  # torch's rule, which needs symmetric padding of at most half the window
        dilation = [1, 1]
        kernel = [min(k, n) for k, n in zip(kernel, size, strict=True)]
        pads = [t.integer(0, k // 2) for k in kernel] * 2
    else:
        pads = _window(t, size, kernel, dilation, pooling=True)
        if t.chance(0.2):
            odd = t.integers(4, 0, 1)
    t.facts.update(
        x=(batch, channels, *size), kernel=kernel, stride=stride, pads=pads, odd=odd,
        dilation=dilation, ceil=ceil, counted=counted,
    )  # fmt: skip
    padded = wrap.Tensor((batch, channels, size[0] + sum(odd[:2]), size[1] + sum(odd[2:])))
    handle = wrap.PoolingHandle(padded, kernel, stride, pads, is_max, ceil, counted, dilation)
    return (batch, channels, *size), odd, handle


@family
def max_pooling(t: Trial) -> None:
    shape, odd, handle = _pool(t, True)
    f, functional = t.facts, t.torch.nn.functional
    values = None
    if t.chance(0.3):  # ties: the first is the maximum
        values = t.random.integers(-2, 3, shape)
    x = t.input(shape, values=values)

    def oracle(x: Any) -> Any:
        if f["ceil"]:
            return functional.max_pool2d(x, f["kernel"], f["stride"], f["pads"][:2], ceil_mode=True)
        outside = -np.inf
        x = functional.pad(x, (odd[2], odd[3], odd[0], odd[1]), value=outside)
        x = functional.pad(x, _sides(f["pads"]), value=outside)
        return functional.max_pool2d(x, f["kernel"], f["stride"], 0, f["dilation"])

    t.check(lambda x: autograd.pooling_2d(handle, x, odd), oracle, [x], copies())


@family
def average_pooling(t: Trial) -> None:
    shape, odd, handle = _pool(t, False)
    f, functional = t.facts, t.torch.nn.functional
    kernel, stride, counted = f["kernel"], f["stride"], f["counted"]

    def summed(x: Any) -> Any:
        ones = t.torch.ones((shape[1], 1, *kernel), dtype=x.dtype)
        return functional.conv2d(x, ones, None, stride, 0, f["dilation"], shape[1])

    def oracle(x: Any) -> Any:
        if f["ceil"]:
            return functional.avg_pool2d(x, kernel, stride, f["pads"][:2], True, counted)
        x = functional.pad(x, (odd[2], odd[3], odd[0], odd[1]))
        inside = functional.pad(t.torch.ones_like(x), _sides(f["pads"]), value=float(counted))
        return summed(functional.pad(x, _sides(f["pads"]))) / summed(inside).clamp(min=1)

    t.check(
        lambda x: autograd.pooling_2d(handle, x, odd),
        oracle,
        [t.input(shape)],
        products(terms=kernel[0] * kernel[1]),
    )


@family
def global_average_pooling(t: Trial) -> None:
    last = t.chance(0.3)
    batch, channels, size = t.batch(), t.channels(40), t.integers(2, 1, 9)
    shape = (batch, *size, channels) if last else (batch, channels, *size)
    t.facts.update(x=shape, last=last)
    t.check(
        lambda x: autograd.globalaveragepool(x, "channels_last" if last else "channels_first"),
        lambda x: x.mean((1, 2) if last else (2, 3), keepdim=True),
        [t.input(shape)],
        products(terms=size[0] * size[1]),
    )


# Normalisation.


def _batchnorm_bound(shape: tuple[int, ...], frozen: Any, epsilon: float) -> Bound:
    """Bound of sums over the n values of a channel, 8·eps·√n·Σ|terms|, carried through y = scale·(x
    - mean)·r + bias, with r = 1/√(var + epsilon), and its derivative, to first order."""

    def bound(trial: Trial, oracle: Any, xs: list[Any], dys: list[Any]) -> Bounds:
        torch = trial.torch
        x, scale, bias = (x.detach() for x in xs)
        dy = dys[0].abs()
        axes = [0, *range(2, len(shape))]
        wide = [1, -1, *[1] * (len(shape) - 2)]
        n = max(1, x.numel() // shape[1])
        if frozen is None:
            mean, var = x.mean(axes), x.var(axes, correction=0)
            off_mean = 8 * n**0.5 * x.abs().mean(axes)
            # Relative to var + epsilon. The deviations are from a mean that has an error, too.
            off_r = (8 * n**0.5 * var + off_mean * (x.abs().mean(axes) * 2**-20)) / (var + epsilon)
        else:
            mean, var = frozen
            off_mean, off_r = mean.abs(), torch.ones_like(var)
        r = 1 / torch.sqrt(var + epsilon)
        mean, r, s, off_mean, off_r = (
            v.reshape(wide) for v in (mean, r, scale.abs(), off_mean, off_r)
        )
        hat = ((x - mean) * r).abs()
        off_hat = off_mean * r + hat * (off_r + 8)
        y = s * off_hat + 8 * (s * hat + bias.abs().reshape(wide))
        sum_dy, sum_hat = dy.sum(axes).reshape(wide), (dy * hat).sum(axes).reshape(wide)
        off_sum = (dy * off_hat).sum(axes).reshape(wide)
        dx = s * r * dy * (8 + off_r)
        if frozen is None:
            dx = dx + s * r / n * (8 * n**0.5 + off_r) * (sum_dy + hat * sum_hat)
            dx = dx + s * r / n * (off_hat * sum_hat + hat * off_sum)
        dscale = 8 * n**0.5 * (dy * hat).sum(axes) + (dy * off_hat).sum(axes)
        return [y], [dx, dscale, 8 * n**0.5 * dy.sum(axes)]

    return bound


@family
def batch_norm(t: Trial) -> None:
    rank, training = t.integer(2, 5), t.chance()
    shape = (t.integer(1, 5), t.channels(), *t.integers(rank - 2, 1, 4 if rank == 5 else 7))
    factor, epsilon = t.pick(0.1, 0.3, 1.0), t.pick(1e-5, 1e-3)
    t.facts.update(x=shape, training=training, factor=factor, epsilon=epsilon)
    channels, torch = shape[1], t.torch
    statistics = "float64" if t.dtype == "float64" else "float32"
    center, spread = t.pick(0.0, 0.0, 3.0), t.real(0.5, 2.0)
    inputs = [
        t.input(shape, center - spread, center + spread),
        t.input((channels,), 0.5, 1.5),
        t.input((channels,)),
    ]
    running = t.rounded(t.random.uniform(0.5, 2, (2, channels)), statistics)
    mean, var = (torch.tensor(values) for values in running)
    n = inputs[0].values.size // channels
    after: list[Any] = []

    def oracle(x: Any, scale: Any, bias: Any) -> Any:
        axes = [0, *range(2, rank)]
        wide = [1, -1, *[1] * (rank - 2)]
        m, v = mean, var
        if training:
            m, v = x.mean(axes), x.var(axes, correction=0)
            unbiased = v * n / max(1, n - 1)
            after[:] = [
                (1 - factor) * old + factor * new.detach()
                for old, new in ((mean, m), (var, unbiased))
            ]
        r = 1 / torch.sqrt(v + epsilon)
        return ((x - m.reshape(wide)) * (r * scale).reshape(wide)) + bias.reshape(wide)

    states: list[list[tensor.Tensor]] = []

    def ours(x: Any, scale: Any, bias: Any) -> Any:
        state = [tensor.from_numpy(v, dtype=statistics) for v in running]
        states.append(state)
        handle = wrap.BatchNormHandle(factor, x.data, epsilon)
        autograd.training = training
        with autograd.enable_grad():
            y = autograd.batchnorm_2d(handle, x, scale, bias, *state)
        autograd.training = True
        return y

    bound = _batchnorm_bound(shape, None if training else (mean, var), epsilon)
    t.check(ours, oracle, inputs, bound)
    x = torch.tensor(inputs[0].values)
    axes = [0, *range(2, rank)]
    size, square = x.abs().mean(axes), (x * x).mean(axes)
    for state in states:
        if training:
            t.compare("running mean", state[0], after[0], 8 * n**0.5 * (size + mean.abs()))
            t.compare("running var", state[1], after[1], 8 * n**0.5 * (2 * square + var))
        else:
            t.compare("running mean", state[0], mean, mean * 0)
            t.compare("running var", state[1], var, var * 0)


@family
def local_response_norm(t: Trial) -> None:
    shape = (t.batch(), t.channels(), *t.integers(t.integer(1, 2), 1, 6))
    size, beta = t.integer(1, 9), t.pick(0.75, 0.75, 0.5, 1.0, 0.3)
    alpha, k = t.pick(1e-4, 0.1, 1.0), t.pick(1.0, 2.0, 0.5)
    t.facts.update(x=shape, size=size, alpha=alpha, beta=beta, k=k)

    def oracle(x: Any) -> Any:
        if 0 in shape:  # torch raises for these
            return x * 1
        return t.torch.nn.functional.local_response_norm(x, size, alpha, beta, k)

    def bound(trial: Trial, oracle: Any, xs: list[Any], dys: list[Any]) -> Bounds:
        """Bound of y: the sum of `size` squares and a power, whose relative error is beta times
        that of its base. Bound of dx: the same for each term, with absolute values."""
        units = 8 * size**0.5 * (1 + beta)
        x, dy = xs[0].detach(), dys[0].abs()
        y = oracle(x).abs()
        power = t.torch.where(x == 0, k**-beta, (y / x).abs())
        # The derivative of y_i by x_j contains 2·beta·alpha/size·x_i·x_j·base_i^(-beta - 1).
        terms = 2 * beta * alpha / size * dy * x.abs() * power ** (1 + 1 / beta)
        spread = sum(
            t.torch.zeros_like(x).index_add(
                1,
                t.torch.arange(max(0, d), min(shape[1], shape[1] + d)),
                terms[:, max(0, -d) : max(0, shape[1] - max(0, d))],
            )
            for d in range(1 - size, size)
            if abs(d) < shape[1]
        )
        return [units * y], [units * (dy * power + x.abs() * spread)]

    t.check(lambda x: autograd.lrn(x, size, alpha, beta, k), oracle, [t.input(shape, -2, 2)], bound)


def _softmax_bound(axis: int, log: bool) -> Bound:
    """Bound of softmax: e^(x - m) has the rounding error of its argument, |x - m|; the sum of C
    terms has √C."""

    def bound(trial: Trial, oracle: Any, xs: list[Any], dys: list[Any]) -> Bounds:
        x, dy = xs[0].detach(), dys[0].abs()
        if not x.numel():
            return [x], [x]
        p = x.softmax(axis)  # kept for backward, rounded to the type of x
        reach = (x - x.amax(axis, keepdim=True)).abs()
        total = x.shape[axis] ** 0.5
        off = 8 * (1 + total + reach + reach.amax(axis, keepdim=True))
        if log:
            y = 8 * (reach + p.log().abs()) + 8 * (1 + total)
            off = off + trial.coarse * p.log().abs()
            return [y], [8 * dy + p * (off + 8 * total) * dy.sum(axis, keepdim=True)]
        y, off_p = p * off, p * (off + trial.coarse) + trial.tiny
        weighted, shared = ((dy * v).sum(axis, keepdim=True) for v in (p, off_p))
        slope = off_p * (dy + weighted) + p * (8 * dy + 8 * (1 + total) * weighted + shared)
        return [y], [slope]

    return bound


@family
def softmax(t: Trial) -> None:
    shape = t.shape(t.integer(1, 4), 9)
    axis, log = t.integer(-len(shape), len(shape) - 1), t.chance()
    t.facts.update(x=shape, axis=axis, log=log)
    reach = t.pick(2.0, 2.0, 20.0)
    ours, theirs = ("log_softmax", "log_softmax") if log else ("softmax", "softmax")
    t.check(
        lambda x: getattr(autograd, ours)(x, axis),
        lambda x: getattr(t.torch, theirs)(x, axis),
        [t.input(shape, -reach, reach)],
        _softmax_bound(axis, log),
    )
