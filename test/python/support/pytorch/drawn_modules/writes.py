"""Writes in place, also through views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .draw import Draw, Step, kind


@kind(7)
def _written(d: Draw) -> Step:
    t, F, i = d.torch, d.F, d.value(2, 3, 4)
    axis = d.axis(i)
    rank, n = d.values[i].ndim, d.shape(i)[axis]
    start = d.integer(0, n - 2)
    stop, s = d.integer(start + 1, n), d.number(0.2, 1.5)
    whole = [slice(None)] * (axis % rank)
    part = (*whole, slice(start, stop))
    every = (*whole, slice(start, None, 2))
    places = t.tensor([0, n - 1])

    def assign(y: Any, index: Any, value: Any) -> None:
        y[index] = value

    write: Callable[[Any, Any], Any] = d.one(
        lambda x, y: y.add_(x),
        lambda x, y: y.add_(x, alpha=s).mul_(s),
        lambda x, y: y.sub_(s).div_(1 + s),
        lambda x, y: y.relu_(),
        lambda x, y: F.leaky_relu(y, 0.2, inplace=True),
        lambda x, y: y.sigmoid_().tanh_(),
        lambda x, y: y.clamp_(-s, s),
        lambda x, y: y.masked_fill_(x > 0.3, s),
        lambda x, y: y.square_(),
        lambda x, y: assign(y, part, s),
        lambda x, y: assign(y, part, x[part] * s),
        lambda x, y: assign(y, every, 0.0),
        lambda x, y: assign(y, every, x[every] * 2),
        lambda x, y: assign(y, (Ellipsis, 0), x[..., -1]),
        lambda x, y: assign(y, (*whole, places), x[(*whole, places)] * s),
        lambda x, y: y[part].mul_(s),
        lambda x, y: y[every].add_(1),
        lambda x, y: y.select(axis, start).zero_(),
        lambda x, y: y.select(axis, start).copy_(x.select(axis, -1)),
        lambda x, y: y.transpose(1, -1)[:, :1].mul_(s),
        lambda x, y: y.view(-1)[::3].add_(s),
        lambda x, y: y.flatten(1)[:, :2].fill_(s),
        lambda x, y: y.unbind(axis)[0].add_(x.select(axis, 0)),
        lambda x, y: y.chunk(2, axis)[0].mul_(2),
        lambda x, y: y.narrow(axis, start, 1).neg_(),
        lambda x, y: y.index_add_(axis, places, x.index_select(axis, places)),
        lambda x, y: y.index_fill_(axis, places, s),
        lambda x, y: y.index_copy_(axis, places, x.index_select(axis, places)),
        lambda x, y: y.addcmul_(x, x, value=s),
        lambda x, y: y.lerp_(x * 2, 0.3),
        lambda x, y: y.unsqueeze_(0).squeeze_(0),
        lambda x, y: y.zero_().add_(x),
        lambda x, y: y.diagonal(0, -2, -1).add_(s),
        lambda x, y: y.permute(*reversed(range(rank)))[0].mul_(s),
        lambda x, y: y.scatter_(axis, x.argmax(axis, keepdim=True), s),
        lambda x, y: y.scatter_add_(axis, x.argsort(axis), x),
    )

    def step(net: Any, v: list[Any]) -> Any:
        y = v[i] * 1.2
        write(v[i], y)
        return y

    return step


@kind()
def _accumulated(d: Draw) -> Step:
    """Zeros that are written part by part."""
    t, i = d.torch, d.value(2, 3, 4)

    def step(net: Any, v: list[Any]) -> Any:
        x = v[i]
        y = t.zeros_like(x)
        y[:, ::2] = x[:, ::2]
        y[:, 1::2] += x[:, 1::2] * 0.5
        y += 0.1
        return y

    return step
