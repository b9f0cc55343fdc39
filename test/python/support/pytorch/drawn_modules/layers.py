"""Layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .draw import Draw, Step, divisor, kind, layer_step


@kind(4)
def _norm(d: Draw) -> Step:
    nn, i = d.nn, d.value(2, 3, 4)
    shape = d.shape(i)
    channels, rank = shape[1], len(shape)
    options = {
        "eps": d.one(1e-5, 1e-3),
        "momentum": d.one(0.1, 0.3),
        "affine": d.one(True, True, False),
        "track_running_stats": d.one(True, True, False),
    }
    batch = nn.BatchNorm2d if rank == 4 else nn.BatchNorm1d
    groups = divisor(d, channels)
    makes: list[Callable[[], Any]] = [
        lambda: batch(channels, **options),
        lambda: nn.GroupNorm(groups, channels, affine=options["affine"]),
        lambda: nn.LayerNorm(shape[-1:], elementwise_affine=options["affine"]),
        lambda: nn.LayerNorm(shape[2:] or shape[1:], bias=options["affine"]),
        lambda: nn.RMSNorm(shape[-1], eps=1e-5),
    ]
    if rank == 4:
        makes += [
            lambda: nn.InstanceNorm2d(channels, affine=options["affine"]),
            lambda: nn.LocalResponseNorm(3),
        ]
    return layer_step(d, i, d.one(*makes), d.one(False, False, True))


@kind(7)
def convolution(d: Draw) -> Step:
    nn, i = d.nn, d.value(3, 4)
    shape = d.shape(i)
    axes, channels, out = len(shape) - 2, shape[1], d.one(3, 4, 6, 8)
    groups = d.one(1, 1, divisor(d, math.gcd(channels, out)))
    if d.one(*[False] * 3, True):  # depthwise
        groups = channels
        out = channels * d.one(1, 1, 2)
    kernel = d.one(1, 3, 3, 2, 5)
    same = kernel % 2 and d.one(True, False)
    options = {
        "padding": d.one(kernel // 2, "same") if same else d.one(0, 1),
        "stride": 1 if same else d.one(1, 1, 2, 3),
        "dilation": 1 if same else d.one(1, 1, 2),
        "groups": groups,
        "bias": d.one(True, False),
        "padding_mode": d.one("zeros", "zeros", "circular", "reflect", "replicate"),
    }
    kind = nn.Conv1d if axes == 1 else nn.Conv2d
    fits = bool(same) and out == channels
    return layer_step(
        d, i, lambda: kind(channels, out, kernel, **options), fits and d.one(True, False)
    )


@kind()
def _transposed(d: Draw) -> Step:
    i = d.value(3, 4)
    shape = d.shape(i)
    kind = d.nn.ConvTranspose1d if len(shape) == 3 else d.nn.ConvTranspose2d
    stride, groups = d.one(1, 2), divisor(d, shape[1])
    more = {"output_padding": d.one(0, stride - 1), "padding": d.one(0, 1), "groups": groups}
    return layer_step(d, i, lambda: kind(shape[1], 2 * groups, d.one(2, 3), stride, **more))


@kind(3)
def linear(d: Draw) -> Step:
    i = d.value(2, 3, 4)
    wide, out = d.shape(i)[-1], d.one(3, 5, 8)
    bias = d.one(True, False)
    if wide == out:
        return layer_step(d, i, lambda: d.nn.Linear(wide, out, bias), d.one(True, False))
    return layer_step(d, i, lambda: d.nn.Linear(wide, out, bias))


@kind(3)
def _activation(d: Draw) -> Step:
    nn, i = d.nn, d.value()
    make = d.one(
        nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.GELU, nn.PReLU, nn.Tanh, nn.ELU, nn.Softmin
    )
    if make is nn.Softmin:
        return layer_step(d, i, lambda: nn.Softmin(-1))
    if make in (nn.GELU, nn.PReLU, nn.Tanh):
        return layer_step(d, i, make)
    place = d.layer(make(inplace=True))
    return lambda net, v: net.layers[place](v[i] * 1.1)


@kind()
def _sequences(d: Draw) -> Step:
    nn, i = d.nn, d.value(3)
    wide = d.shape(i)[-1]
    heads = divisor(d, wide)
    kind = d.one("attention", "encoder", "gru", "lstm", "rnn")
    if kind == "attention":
        place = d.layer(nn.MultiheadAttention(wide, heads, batch_first=True))
        weights = d.one(True, False)
        return lambda net, v: net.layers[place](v[i], v[i], v[i], need_weights=weights)[0]
    if kind == "encoder":
        options = {"dropout": 0.0, "batch_first": True, "norm_first": d.one(True, False)}
        return layer_step(d, i, lambda: nn.TransformerEncoderLayer(wide, heads, 8, **options))
    make = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}[kind]
    options = {"num_layers": d.one(1, 2), "bidirectional": d.one(True, False)}
    place = d.layer(make(wide, 3, batch_first=True, **options))
    return lambda net, v: net.layers[place](v[i])[0]


@kind()
def _embedding(d: Draw) -> Step:
    i = d.value(2, 3)
    padding = d.one(None, 2)
    place = d.layer(d.nn.Embedding(6, 4, padding_idx=padding))
    kind = d.one("layer", "one_hot", "index")

    def step(net: Any, v: list[Any]) -> Any:
        places = (v[i] * 2).long().clamp(0, 5)
        table = net.layers[place].weight
        if kind == "one_hot":
            return d.F.one_hot(places, 6).to(v[i].dtype) @ table
        return table[places] if kind == "index" else net.layers[place](places)

    return step
