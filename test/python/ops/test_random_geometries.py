"""Normalisation, compared with PyTorch over 200 random geometries of each family.

`random_geometry` has the method.
"""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from random_geometry import Bound, Bounds, Families, Trial, products, run
from singa import autograd, tensor
from singa import singa_wrap as wrap

family = Families()


@pytest.mark.parametrize("check", family, ids=lambda check: check.__name__)
def test_family_is_pytorch(check: Callable[[Trial], None], torch: ModuleType) -> None:
    run(check, torch)


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
    training = training and math.prod(shape) > shape[1]  # one value for each channel is refused
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
