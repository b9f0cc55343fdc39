"""Functions of one value and of two."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .draw import Draw, Step, kind

# Functions of one value.

_FUNCTIONS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda t, F, x: x.abs(),
    lambda t, F, x: t.sin(x) * t.cos(x),
    lambda t, F, x: x.tanh(),
    lambda t, F, x: (x * 0.3).exp(),
    lambda t, F, x: t.expm1(x * 0.2),
    lambda t, F, x: (x.abs() + 0.1).log(),
    lambda t, F, x: t.log1p(x.square()),
    lambda t, F, x: (x.square() + 0.5).sqrt(),
    lambda t, F, x: t.rsqrt(x.abs() + 0.3),
    lambda t, F, x: t.reciprocal(x.square() + 0.5),
    lambda t, F, x: t.erf(x) + t.special.expit(x),
    lambda t, F, x: x.atan() + t.asinh(x),
    lambda t, F, x: t.sign(x) * x,
    lambda t, F, x: x.pow(3) * 0.1,
    lambda t, F, x: x**2,
    lambda t, F, x: (x.abs() + 0.2) ** 0.7,
    lambda t, F, x: 1.3 ** (x * 0.5),
    lambda t, F, x: 2 - x,
    lambda t, F, x: -x / 3,
    lambda t, F, x: 0.7 / (x.abs() + 1),
    lambda t, F, x: t.remainder(x, 0.9),
    lambda t, F, x: t.fmod(x, 0.8),
    lambda t, F, x: x - x.floor(),
    lambda t, F, x: x + x.round().detach(),
    lambda t, F, x: t.frac(x),
    lambda t, F, x: x.clamp(-0.7, 0.9),
    lambda t, F, x: x.clamp(min=-0.2),
    lambda t, F, x: x.clip(max=0.6),
    lambda t, F, x: t.nan_to_num(x),
    lambda t, F, x: F.relu(x),
    lambda t, F, x: F.relu6(x * 4),
    lambda t, F, x: F.leaky_relu(x, 0.1),
    lambda t, F, x: F.elu(x, 0.8),
    lambda t, F, x: F.selu(x),
    lambda t, F, x: F.celu(x, 0.6),
    lambda t, F, x: F.gelu(x),
    lambda t, F, x: F.gelu(x, approximate="tanh"),
    lambda t, F, x: F.silu(x),
    lambda t, F, x: F.mish(x),
    lambda t, F, x: F.hardswish(x * 2),
    lambda t, F, x: F.hardsigmoid(x * 2),
    lambda t, F, x: F.hardtanh(x, -0.5, 0.8),
    lambda t, F, x: F.softplus(x, 2.0, 3.0),
    lambda t, F, x: F.logsigmoid(x),
    lambda t, F, x: F.softsign(x),
    lambda t, F, x: F.tanhshrink(x),
    lambda t, F, x: F.softshrink(x, 0.2),
    lambda t, F, x: F.hardshrink(x, 0.2),
    lambda t, F, x: F.threshold(x, 0.1, 0.3),
    lambda t, F, x: x * x.sigmoid(),
    lambda t, F, x: x * F.relu6(x + 3) / 6,
    lambda t, F, x: x * 0.5 * (1 + t.erf(x / math.sqrt(2))),
    lambda t, F, x: t.where(x > 0, x, x * 0.2),
    lambda t, F, x: x * (x > 0.1),
    lambda t, F, x: x * ((x > 0.1) | (x < -0.4)).to(x.dtype),
    lambda t, F, x: x * ~((x > 0.5) & (x != 0)),
    lambda t, F, x: x.masked_fill(x < -0.5, -0.5),
    lambda t, F, x: x + (x * 3).long().to(x.dtype),
    lambda t, F, x: x * ((x * 4).int() % 3),
    lambda t, F, x: x + x.detach() * 0.5,
    lambda t, F, x: x.clone().contiguous(),
    lambda t, F, x: x + t.zeros_like(x) + t.full_like(x, 0.1),
    lambda t, F, x: t.logaddexp(x, -x),
    lambda t, F, x: t.atan2(x, x.abs() + 0.4),
    lambda t, F, x: t.hypot(x, x.cos() + 1.5),
    lambda t, F, x: t.xlogy(x.abs() + 0.1, x.abs() + 0.3),
    lambda t, F, x: t.heaviside(x, t.zeros((), dtype=x.dtype)) * x,
    lambda t, F, x: t.sinc(x + 0.1),
)


@kind(9)
def _function(d: Draw) -> Step:
    i, function = d.value(), d.one(*_FUNCTIONS)
    return lambda net, v: function(d.torch, d.F, v[i])


# Functions of two values.

_PAIRS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda t, x, y: x + y,
    lambda t, x, y: x - y,
    lambda t, x, y: x * y,
    lambda t, x, y: x / (y.abs() + 1),
    lambda t, x, y: t.add(x, y, alpha=0.3),
    lambda t, x, y: t.sub(x, y, alpha=2),
    lambda t, x, y: t.maximum(x, y),
    lambda t, x, y: t.minimum(x, y),
    lambda t, x, y: t.where(x > y, x, y * 0.5),
    lambda t, x, y: t.lerp(x, y, 0.3),
    lambda t, x, y: t.addcmul(x, y, y, value=0.5),
    lambda t, x, y: t.addcdiv(x, y, y.square() + 1, value=0.5),
    lambda t, x, y: x * y.sigmoid(),
    lambda t, x, y: t.hypot(x + 2, y),
    lambda t, x, y: t.copysign(x.abs() + 0.1, y),
    lambda t, x, y: x * (x >= y) + y * (x < y),
    lambda t, x, y: t.fmax(x, y),
    lambda t, x, y: x.clamp(min=y.amin(), max=y.amax()),
    lambda t, x, y: (x.abs() + 0.5) ** y.tanh(),
    lambda t, x, y: t.nn.functional.mse_loss(x, y, reduction="none"),
    lambda t, x, y: t.nn.functional.smooth_l1_loss(x, y, reduction="none"),
    lambda t, x, y: x * t.cosine_similarity(x, y, -1).unsqueeze(-1),
)


@kind(5)
def _pair(d: Draw) -> Step:
    i = d.value()
    j, function = d.value(like=d.values[i].shape), d.one(*_PAIRS)
    return lambda net, v: function(d.torch, v[i], v[j])


@kind(2)
def _broadcast(d: Draw) -> Step:
    i = d.value(2, 3, 4)
    axis, function = d.axis(i), d.one(*_PAIRS[:8])
    if d.one(True, False):
        return lambda net, v: function(d.torch, v[i], v[i].mean(axis, keepdim=True))
    place = d.layer(d.nn.ParameterList([d.torch.randn(d.shape(i)[-1])]))
    return lambda net, v: function(d.torch, v[i], net.layers[place][0])
