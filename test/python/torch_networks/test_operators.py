"""Rows of the table of operators beside PyTorch: many calls in one module, one output for each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch_oracle
from singa.torch_networks.operators import registry

#: Functions of torch, torch.nn.functional and a tensor (4, 3, 6, 5), by family.
_CALLS: dict[str, list[Callable[[Any, Any, Any], Any]]] = {
    "functions": [
        lambda t, F, x: x.abs() + x.neg() - x.square() + (-x.sign() * 0.5),
        lambda t, F, x: t.acos(x / 9) + t.asin(x / 9) + t.atan(x) + t.atan2(x, x.exp()),
        lambda t, F, x: t.acosh(x.square() + 1.5) + t.asinh(x) + t.atanh(x / 9),
        lambda t, F, x: x.cos() + x.sin() + t.tan(x / 9) + x.cosh() + x.sinh() + x.tanh(),
        lambda t, F, x: x.exp() + x.expm1() + t.erf(x) + x.sigmoid() + t.reciprocal(x.exp() + 1),
        lambda t, F, x: (x.abs() + 0.5).log() + (x.abs() + 0.5).log1p() + (x.abs() + 0.5).log2(),
        lambda t, F, x: (x.abs() + 0.5).sqrt() + (x.abs() + 0.5).rsqrt() + (x.abs() + 1) ** 1.5,
        lambda t, F, x: x.floor() + x.ceil() + x.round() + x * 0,
        lambda t, F, x: F.relu(x) + F.relu6(4 * x) + F.leaky_relu(x, 0.1) + F.elu(x, 0.7),
        lambda t, F, x: F.selu(x) + F.celu(x, 0.6) + F.silu(x) + F.mish(x) + F.gelu(x),
        lambda t, F, x: F.gelu(x, approximate="tanh") + F.softplus(x, 2.0) + F.logsigmoid(x),
        lambda t, F, x: F.hardswish(x * 2) + F.hardsigmoid(x * 2) + F.hardtanh(x, -0.7, 0.9),
        lambda t, F, x: x.clamp(min=-0.5) + x.clamp(max=0.5) + x.clamp(-0.3, 0.4) + F.softsign(x),
        lambda t, F, x: (x.abs() + 0.5).log10() + t.exp2(x) + x * t.trunc(3 * x),
        lambda t, F, x: t.erfc(x) + t.erfinv(x / 9) + t.lgamma(x - 4) + t.digamma(x.abs() + 0.5),
        lambda t, F, x: t.polygamma(2, x.abs() + 0.5) + t.special.multigammaln(x.abs() + 3, 3),
        lambda t, F, x: (
            x * t.gcd((x * 99).long(), t.tensor(12)) + x * t.lcm((x * 9).long(), t.tensor(4))
        ),
        lambda t, F, x: F.glu(x[:, :, :, :4], -1),
        lambda t, F, x: t.ops.aten.elu(x, 0.7, 1.1, 2.0) + F.dropout(x, 1.0),
        lambda t, F, x: x * (x * 9).long().clamp(-3, 2**60) + x * (x * 9).long().clamp(-(2**60)),
        lambda t, F, x: F.prelu(x, t.tensor([0.1, 0.2, 0.3], dtype=x.dtype)),
    ],
    "two operands": [
        lambda t, F, x: t.add(x, x.exp(), alpha=2) + t.sub(x, 1.5, alpha=0.5) + (3 - x),
        lambda t, F, x: x / (x.exp() + 1) + x / 3 + 2 / (x.exp() + 1),
        lambda t, F, x: t.maximum(x, x.flip(0)) + t.minimum(x, x.flip(1)) + 2.0**x,
        lambda t, F, x: (x.abs() + 0.5) ** x.flip(0),
        lambda t, F, x: t.where(x > 0, x, 0.5 * x) + t.where(x <= 0.2, 1.0, x),
        lambda t, F, x: x.masked_fill((x < 0.3) & (x > -0.3), 0.7) + x * ~(x >= 0.1),
        lambda t, F, x: x * ((x == 0) | (x != x) ^ (x < 1)).to(x.dtype),
        lambda t, F, x: x * t.logical_and(x > 0, x < 1) + x * t.isnan(x) + x * t.isinf(x),
        lambda t, F, x: t.fmod(x, 0.7) + t.hypot(x, x.exp()) + t.copysign(x, x.flip(0)),
        lambda t, F, x: t.logaddexp(x, x.flip(1)) + t.lerp(x, x.exp(), 0.3),
        lambda t, F, x: x + t.div(3 * x, 0.8, rounding_mode="trunc"),
        lambda t, F, x: x * ((x * 9).long() & 3 | 4) + x * ((x * 9).long() ^ 5 << 2),
        lambda t, F, x: (
            x * (~(x * 9).long() >> 1) + x * (x * 9).long().div(2, rounding_mode="trunc")
        ),
        lambda t, F, x: t.fmax(x, x.flip(0)) + t.fmin(x, x.flip(1)) + t.maximum(x, (x * 2).float()),
        lambda t, F, x: x * t.where(x > 0, 2.0, 0.5) + x * F.hardtanh((9 * x).long(), -1.5, 2.5),
        lambda t, F, x: F.bilinear(x, x.exp(), t.ones(2, 5, 5, dtype=x.dtype)),
        lambda t, F, x: F.rrelu(x, 0.2, 0.2, training=True) + F.rrelu(x, 0.1, 0.3) + F.rrelu(x),
        lambda t, F, x: x * t.copysign(x, -2.0) + t.ldexp(x, t.arange(5)) + x * t.signbit(x),
        lambda t, F, x: x + t.round(3 * x, decimals=2) + t.round(30 * x, decimals=-1),
        lambda t, F, x: x @ x.mT @ x + t.einsum("bcij,bckj->bcik", x, x) @ x,
        lambda t, F, x: t.addmm(x[0, 0, :5], x[0, 1, :5], x[0, 2, :5], beta=0.5, alpha=2),
        lambda t, F, x: (
            t.addmv(x[0, 0, :, 0], x[0, 1], x[0, 2, 0], beta=0.5, alpha=2)
            + t.addmv(x[0, 0, :, 0] * t.inf, x[0, 1], x[0, 2, 0], beta=0)
            + t.addbmm(x[0, 0, :, :1], x[:, 0], x[:, 1].mT, beta=2, alpha=0.5)
        ),
        lambda t, F, x: (
            x * F.linear((x * 9).long(), t.arange(25).view(5, 5))
            + x * F.linear(t.arange(5), t.arange(10).view(2, 5), t.arange(2)).sum()
            + x * t.addmm(t.arange(6), t.arange(6).view(6, 1), t.arange(6).view(1, 6)).sum()
        ),
        lambda t, F, x: (
            t.bmm(x[:, 0], x[:, 1].mT) + t.baddbmm(x[:, 0] @ x[:, 1].mT, x[:, 0], x[:, 2].mT)
        ),
    ],
    "reductions": [
        lambda t, F, x: x.mean(1) + x.sum(1) + x.prod(1) + x.amax(1) - x.amin(1),
        lambda t, F, x: x.mean((2, 3), keepdim=True) * x.var((2, 3), keepdim=True),
        lambda t, F, x: x.std(3) + x.var(3, correction=0) + x.norm(dim=3) + x.abs().sum(3),
        lambda t, F, x: t.var_mean(x, 2)[0] + t.var_mean(x, 2)[1] + x.logsumexp(2),
        lambda t, F, x: x.max(2)[0] + x.min(2)[0] + x.gather(2, x.argmax(2, keepdim=True))[:, :, 0],
        lambda t, F, x: x.topk(2, 3)[0].sum(3) + x.sort(3, descending=True)[0][..., 1],
        lambda t, F, x: t.linalg.vector_norm(x, 3, 1) + t.linalg.vector_norm(x, t.inf, 1),
        lambda t, F, x: t.linalg.vector_norm(x, 0, 1) + t.linalg.vector_norm(x, -t.inf, 1),
        lambda t, F, x: x.sort(stable=True, dim=2)[0] + x.sort(stable=False, dim=1)[0],
        lambda t, F, x: x.sort(stable=True, dim=0, descending=True)[0],
        lambda t, F, x: (
            t.where(x > 1.2, t.nan, x).nanmedian(2)[0] + x.nanmedian() + x.median(1)[0][:, :1]
        ),
        lambda t, F, x: (
            t.where(x > 1.2, t.nan, x).median(2)[0].nan_to_num(7) + x.nanmedian(2)[1] * x[:, :, 0]
        ),
        lambda t, F, x: x.kthvalue(2, 2)[0] + x.median(2)[0] + x.median() + (x * 0.1 + 1).prod(),
        lambda t, F, x: x * x.max() + x * x.min() + t.cdist(x, x[:, :, :5] + 1),
        lambda t, F, x: x * t.dist(x, x.exp()) + x * t.dist(x, x[0, 0].exp(), 3),
        lambda t, F, x: x.cumprod(2) + x.logcumsumexp(3) + x.cummax(2)[0] + x.cummin(1)[0],
        lambda t, F, x: t.ops.aten._safe_softmax(
            x.masked_fill(t.arange(6)[:, None] * t.arange(5) < 4, -t.inf), 3
        ),
        lambda t, F, x: x.cumsum(2) + x.softmax(2) + x.log_softmax(1) + F.normalize(x, dim=1),
        lambda t, F, x: x * t.argmax(x, keepdim=True) + x * x.sum().unfold(0, 1, 1),
        lambda t, F, x: x * (x > 9).any(3, keepdim=True) + x * (x > -9).all(3, keepdim=True),
        lambda t, F, x: (
            F.layer_norm(x, (6, 5)) + F.group_norm(x, 3) + F.rms_norm(x, (5,), eps=1e-6)
        ),
        lambda t, F, x: (
            F.instance_norm(x)
            + F.instance_norm(
                x, t.zeros(3, dtype=x.dtype), t.ones(3, dtype=x.dtype) * 2, use_input_stats=False
            )
        ),
        lambda t, F, x: (
            F.layer_norm(x, (6, 5), bias=x[0, 0])
            + F.group_norm(x, 3, bias=x[0, :, 0, 0].detach())
            + F.instance_norm(x, bias=x[0, :, 0, 0])
        ),
    ],
    "movement": [
        lambda t, F, x: x.reshape(x.shape[0], -1).view(-1, 9, 10).transpose(1, 2).flatten(1),
        lambda t, F, x: x.unsqueeze(1).squeeze(1).permute(0, 3, 1, 2).expand(-1, -1, -1, 6),
        lambda t, F, x: x[:, 1:].repeat(1, 2, 1, 1) + t.stack([x[:, 0]] * 4, 1),
        lambda t, F, x: t.cat([*x.chunk(2, 2), *x.split(4, 2), *x.unbind(3)[:0]], 2),
        lambda t, F, x: t.cat(x.split([1, 2, 3], 2)[::-1], 2) + x.flip(1, 2).roll(2, 3),
        lambda t, F, x: (
            x[:, -1, 1:5:2, -3:] + x.narrow(2, 1, 2)[:, 0, :, :3] + x.select(1, 2)[:, 4:, 2:]
        ),
        lambda t, F, x: F.pad(x, (1, 2, 0, 1), value=0.5) + F.pad(x, (1, 2, 0, 1), mode="reflect"),
        lambda t, F, x: F.pad(x[:, 0], (2, 1), mode="replicate") + F.pad(x[:, 1], (-1, 4)),
        lambda t, F, x: F.pad(x[:, 0], (2, 1), mode="circular"),
        lambda t, F, x: F.pad(x, (-5, 3, 2, -7), mode="replicate") + F.pad(x, (-4, 2, 0, -5)),
        lambda t, F, x: F.pad(x, (-4, 3, 3, -2), mode="reflect"),
        lambda t, F, x: F.pad(x, (-1, 2, 1, -2), mode="circular"),
        lambda t, F, x: x.tril() + x.triu(1) + F.pixel_unshuffle(x[:, :, :, :4], 2).sum(),
        lambda t, F, x: x[:, t.tensor([2, 0])] + x[:, [1, 2]] + x.index_select(1, t.tensor([0, 1])),
        lambda t, F, x: x[:, :, t.tensor([0, -1, 2]), t.tensor([4, 1, -2])],
        lambda t, F, x: x + t.zeros_like(x) + t.ones_like(x) + t.full_like(x, 2) + x.new_ones(5),
        lambda t, F, x: (
            x + t.arange(x.shape[0]).view(-1, 1, 1, 1) + t.linspace(0, 1, 5).to(x.dtype)
        ),
        lambda t, F, x: x + t.arange(30).view(5, 6).t().contiguous().view(6, 5) / 9,
        lambda t, F, x: F.one_hot((x[..., 0] * 2).long().clamp(0, 3), 4).to(x.dtype) @ x[:, :, :4],
        lambda t, F, x: x.unfold(2, 3, 2).unfold(3, 2, 1).sum(-1),
        lambda t, F, x: x.unfold(2, 2, 4) * 2 + x.unfold(-2, 1, 5),
        lambda t, F, x: (
            x.diagonal(0, 2, 3) + x.diagonal(-1, 3, 2)[..., :1] + x.diagonal(1, 2, 3)[..., :1]
        ),
        lambda t, F, x: (
            F.fold(F.unfold(x, 2), (6, 5), 2) + F.fold(F.unfold(x, 3, 1, 1, 2), (6, 5), 3, 1, 1, 2)
        ),
        lambda t, F, x: t.ops.aten.index_put(x, [None, t.tensor([0, -1])], x[:, :2] * 2),
        lambda t, F, x: t.ops.aten.index_put(x, [None, t.tensor([1, 1])], x[:, :2], True),
        lambda t, F, x: F.pad(x, (1, 2, 0, 1), mode="circular"),
        lambda t, F, x: x[:, t.tensor([0, 2, -1]), :, t.tensor([3, 0, 4])],
        lambda t, F, x: t.ops.aten.index_put(
            x, [None, t.tensor([0, 1]), None, t.tensor([3, -1])], x[:, :2, :, 0].transpose(0, 1)
        ),
        lambda t, F, x: t.ops.aten.index_put(x, [x > 0.5], t.tensor(0.3, dtype=x.dtype)),
        lambda t, F, x: x.mT.index_fill(2, t.tensor([0, 3]), 0.7),
        lambda t, F, x: t.ops.aten.slice_scatter(x, x[:, :, ::2] * 2, 2, 1, None, 2),
        lambda t, F, x: t.diagonal_scatter(x, x[:, :, :5, 0], 0, 3, 2),
        lambda t, F, x: t.diagonal_scatter(x, x[:, :, :4, 0], -2, 2, 3),
        lambda t, F, x: (
            t.cat([x, x > 0], 1) + x.scatter(2, x.argmin(2, keepdim=True), 0.4).repeat(1, 2, 1, 1)
        ),
        lambda t, F, x: x + x.gather(2, t.zeros(0, dtype=t.int64)).sum(),
        lambda t, F, x: (
            x * t.bucketize(x, t.tensor([-1.0, 0.0, 0.5], dtype=x.dtype))
            + x * t.bucketize((3 * x).long(), t.arange(-2, 3), right=True, out_int32=True)
            + x * t.searchsorted(x.sort(3)[0], x.sin(), side="right")[..., :1]
            + x * t.searchsorted(x, x.exp(), sorter=x.argsort(3))
            + x * t.searchsorted(t.arange(4), 2)
        ),
        lambda t, F, x: x.scatter(3, x.argmax(3, keepdim=True), x.mean(3, keepdim=True)),
        lambda t, F, x: (
            t.ops.aten.view_copy(x, (4, 3, 30)).view(4, 3, 6, 5)
            + t.permute_copy(x, (0, 1, 3, 2)).mT
            + t.narrow_copy(x, 2, 1, 2)[:, :, :1]
            + t.unbind_copy(x, 2)[0][:, :, None]
        ),
        lambda t, F, x: (
            x
            + x.detach().scatter(2, x.argmin(2, keepdim=True), 3.0, reduce="add")
            + x.detach().scatter(2, x.argmax(2, keepdim=True), 0.5, reduce="multiply")
        ),
        lambda t, F, x: x.scatter_add(2, (x[:, :2, :4] * 9).long() % 6, x.detach() * 2),
    ],
    "without axes": [
        lambda t, F, x: x.sum().cumsum(0) + x.sum().cumprod(-1) + x.sum().logcumsumexp(0),
        lambda t, F, x: x.sum().cummax(0)[0] + x.sum().cummin(0)[0] + x.sum().kthvalue(1)[0],
        lambda t, F, x: x.sum().max(0)[0] + x.sum().min(0, True)[0] + x.sum().median(0)[0],
        lambda t, F, x: x.sum().transpose(0, -1) + x.sum().permute(()) + x.sum().squeeze(0),
        lambda t, F, x: (
            F.prelu(-x.square().sum(), x[0, 0, 0, :1]) * t.linalg.vector_norm(x.sum(), 0)
        ),
        lambda t, F, x: x.sum().sort(0)[0] + x.sum().topk(1)[0] + x.sum().softmax(0),
        lambda t, F, x: x.sum().log_softmax(0) + x.sum() * (1 + x.sum().argmax(0)),
        lambda t, F, x: x.sum() * (3 + x.sum().sort(0)[1] + x.sum().max(0)[1] + x.sum().topk(1)[1]),
        lambda t, F, x: x.sum().gather(0, t.tensor(0)) + x.sum().index_select(0, t.tensor([0])),
        lambda t, F, x: x[0, 0, 0].index_select(0, t.tensor(2)),
        lambda t, F, x: x.sum().scatter(0, t.tensor(0), x.mean()),
        lambda t, F, x: x.sum().scatter(0, t.tensor(0), 2.0),
        lambda t, F, x: x.sum().scatter_add(0, t.tensor(0), x.mean()),
        lambda t, F, x: x.sum().scatter_reduce(0, t.tensor(0), x.mean(), "prod"),
    ],
    "scatter_reduce": [
        lambda t, F, x, reduce=reduce, own=own: x.scatter_reduce(
            2, (x * 9).long() % 6, 2 * x, reduce, include_self=own
        )
        for reduce in ("sum", "mean", "prod", "amax", "amin")
        for own in (True, False)
    ],
    "sampling": [
        *[
            lambda t, F, x, mode=mode, padding=padding: F.grid_sample(
                x,
                x[:, :2, :4, :3].permute(0, 2, 3, 1),
                mode,
                padding,
                align_corners=mode == "nearest",
            )
            for mode in ("bilinear", "nearest", "bicubic")
            for padding in ("zeros", "border", "reflection")
        ],
        lambda t, F, x: F.grid_sample(
            x[:, None], x[:, None, :2, :4, :3].repeat(1, 1, 1, 1, 1), align_corners=False
        ),
        lambda t, F, x: F.grid_sample(
            x,
            F.affine_grid(x[:, 0, :2, :3], (4, 3, 5, 7), align_corners=False),
            align_corners=False,
        ),
    ],
    "windows": [
        lambda t, F, x: (
            F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        ),
        lambda t, F, x: F.avg_pool2d(x, 2, ceil_mode=True) + F.max_pool2d(x, 2, ceil_mode=True),
        lambda t, F, x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True) + F.avg_pool2d(x, 2, 2, 1, True),
        lambda t, F, x: F.avg_pool2d(x, (3, 1), 2, (1, 0), divisor_override=2),
        lambda t, F, x: F.adaptive_avg_pool2d(x, (4, 3)) + F.adaptive_max_pool2d(x, (4, 3)),
        lambda t, F, x: x.flatten(2).gather(
            2, F.max_pool2d(x, 3, 2, 1, return_indices=True)[1].flatten(2)
        ),
        lambda t, F, x: F.max_pool1d(x[:, 0], 2) + F.avg_pool1d(x[:, 1], 2),
        lambda t, F, x: F.interpolate(x, (9, 7), mode="bicubic") + F.interpolate(x, (9, 7)),
        lambda t, F, x: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True),
        lambda t, F, x: F.interpolate(x, (4, 4), mode="bilinear", antialias=True),
        lambda t, F, x: F.conv1d(x[:, 0], t.ones(3, 6, 2, dtype=x.dtype), padding=1),
        lambda t, F, x: F.conv3d(
            x[:, None], t.ones(2, 1, 2, 3, 3, dtype=x.dtype), stride=(1, 2, 1)
        ),
        lambda t, F, x: F.conv_transpose1d(x[:, 0], t.ones(6, 2, 3, dtype=x.dtype), stride=2),
        lambda t, F, x: F.scaled_dot_product_attention(x, x, x, scale=0.3, is_causal=True),
        lambda t, F, x: F.scaled_dot_product_attention(x[:, 0], x[:, 1], x[:, 2]),
        lambda t, F, x: F.scaled_dot_product_attention(x[0, 0], x[0, 1], x[0, 2], x[0, 1, :, :1]),
        lambda t, F, x: F.scaled_dot_product_attention(
            x[:, 0], x[:, 1], x[:, 2], x[:, 1] @ x[:, 2].mT
        ),
        lambda t, F, x: F.scaled_dot_product_attention(
            x[:, None], x[:, None], x[:, None], (x @ x.mT)[:, None, :1]
        ),
        lambda t, F, x: (
            F.scaled_dot_product_attention(x, x, x, attn_mask=x[:1, :1, :, :1] > 9) * 0 + x
        ),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("family", _CALLS)
def test_calls(torch: ModuleType, family: str) -> None:
    class Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.factor = torch.nn.Parameter(torch.ones(3, 6, 5))

        def forward(self, x: Any) -> list[Any]:
            F = torch.nn.functional
            return [call(torch, F, x * self.factor) for call in _CALLS[family]]

    torch.manual_seed(1)
    torch_oracle.check(torch, Calls(), torch.randn(4, 3, 6, 5), steps=False)


#: Options that say where and how PyTorch keeps a result, or what types results have.
_PLACES = {"dtype", "layout", "device", "pin_memory", "memory_format", "generator", "non_blocking"}


def test_rows_take_the_arguments_of_pytorch(torch: ModuleType) -> None:
    """A row with **options would read past an argument that it does not name. Graphs leave out
    arguments that have PyTorch's default."""
    wrong = []
    for name in registry.names():
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        row = inspect.signature(registry.find(name)).parameters
        by_position = [x for x in [*row.values()][1:] if x.kind is x.POSITIONAL_OR_KEYWORD]
        any_number = any(x.kind is x.VAR_POSITIONAL for x in row.values())
        for i, argument in enumerate(op._schema.arguments):
            by_name = argument.kwarg_only or i >= len(by_position)
            own = row.get(argument.name) if by_name else by_position[i]
            default = argument.default_value
            if own is None:
                right = argument.name in _PLACES or any_number
            elif not argument.has_default_value():
                right = True
            elif isinstance(default, bool | float):
                right = own.default == default
            else:  # None, or lists, for which rows have numbers
                right = own.default is not own.empty
            if not right:
                wrong.append(f"{name}: {argument.name}")
    assert wrong == []


def test_rows_have_names_of_pytorch(torch: ModuleType) -> None:
    unknown = []
    for name in registry.names():
        packet, _, overload = name.partition(".")
        found = getattr(torch.ops.aten, packet, None)
        if found is None or (overload or "default") not in found.overloads():
            unknown.append(name)
    assert unknown == []
