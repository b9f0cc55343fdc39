"""Reductions, products, and gates."""

from __future__ import annotations

from typing import Any

from .draw import Draw, Step, kind


@kind(4)
def _reduced(d: Draw) -> Step:
    t, F, i = d.torch, d.F, d.value(2, 3, 4)
    rank = d.values[i].ndim
    axis, keep = d.axis(i), d.one(True, False) or rank == 2
    both = tuple(range(1, rank)) if rank > 2 else (axis,)
    k = d.integer(1, min(3, d.shape(i)[axis]))
    return d.one(
        lambda net, v: v[i].mean(axis, keepdim=keep),
        lambda net, v: v[i].sum(both, keepdim=True),
        lambda net, v: v[i] * v[i].mean(both, keepdim=True).sigmoid(),
        lambda net, v: v[i].amax(axis, keepdim=keep),
        lambda net, v: v[i].amin(both, keepdim=True),
        lambda net, v: v[i].max(axis, keepdim=keep)[0],
        lambda net, v: v[i].min(axis, keepdim=keep).values,
        lambda net, v: v[i].var(axis, keepdim=keep),
        lambda net, v: (v[i].var(axis, correction=0, keepdim=True) + 0.1).sqrt(),
        lambda net, v: v[i].std(both, keepdim=True),
        lambda net, v: t.var_mean(v[i], axis, keepdim=keep)[0],
        lambda net, v: v[i].norm(dim=axis, keepdim=keep),
        lambda net, v: t.linalg.vector_norm(v[i], 3, axis, keepdim=keep),
        lambda net, v: v[i].norm(p=1, dim=axis, keepdim=keep),
        lambda net, v: v[i].logsumexp(axis, keepdim=keep),
        lambda net, v: v[i].prod(axis, keepdim=keep),
        lambda net, v: v[i].softmax(axis),
        lambda net, v: v[i].log_softmax(axis),
        lambda net, v: F.normalize(v[i], dim=axis),
        lambda net, v: F.normalize(v[i], p=1, dim=axis),
        lambda net, v: v[i].cumsum(axis),
        lambda net, v: v[i].cumprod(axis),
        lambda net, v: t.logcumsumexp(v[i], axis),
        lambda net, v: v[i].topk(k, axis)[0],
        lambda net, v: v[i].sort(axis, descending=keep)[0],
        lambda net, v: v[i].kthvalue(k, axis, keepdim=keep)[0],
        lambda net, v: v[i] * (v[i] > 0).any(axis, keepdim=True),
        lambda net, v: v[i] * (v[i] < 9).all(axis, keepdim=True),
        lambda net, v: v[i] * t.count_nonzero(v[i] > 0, axis).unsqueeze(axis),
        lambda net, v: v[i] - v[i].mean(),
        lambda net, v: v[i] / (v[i].abs().amax() + 1),
        lambda net, v: v[i].mean(0, keepdim=True) + v[i],
        lambda net, v: t.aminmax(v[i], dim=axis, keepdim=True).max - v[i],
        lambda net, v: v[i].square().mean(axis, keepdim=True).rsqrt() * v[i],
        lambda net, v: F.glu(t.cat([v[i], v[i]], axis), axis),
        lambda net, v: v[i] * t.median(v[i].detach()),
    )


@kind(2)
def _products(d: Draw) -> Step:
    t, F, i = d.torch, d.F, d.value(3, 4)
    n, rank = d.shape(i)[-1], d.values[i].ndim
    place = d.layer(d.nn.ParameterList([d.torch.randn(n, n) * 0.5, d.torch.randn(n)]))
    causal, scale = d.one(True, False), d.one(None, 0.3)
    mask = d.torch.rand(d.shape(i)[-2], d.shape(i)[-2]) > 0.3
    mask.fill_diagonal_(True)

    def weight(net: Any) -> Any:
        return net.layers[place][0]

    steps: list[Step] = [
        lambda net, v: v[i] @ weight(net),
        lambda net, v: v[i] @ v[i].mT @ v[i] * 0.1,
        lambda net, v: (v[i] @ v[i].mT * 0.3).softmax(-1) @ v[i],
        lambda net, v: (v[i] @ v[i].mT).masked_fill(~mask, -9.0).softmax(-1) @ v[i],
        lambda net, v: t.einsum("...ij,jk->...ik", v[i], weight(net)),
        lambda net, v: t.einsum("b...i,i->b...", v[i], net.layers[place][1]).unsqueeze(-1),
        lambda net, v: F.linear(v[i], weight(net), net.layers[place][1]),
        lambda net, v: t.matmul(v[i], net.layers[place][1]).unsqueeze(-1),
        lambda net, v: t.tensordot(v[i], weight(net), 1),
        lambda net, v: F.scaled_dot_product_attention(
            v[i], v[i], v[i] * 2, is_causal=causal, scale=scale
        ),
        lambda net, v: F.scaled_dot_product_attention(v[i], v[i], v[i], attn_mask=mask),
    ]
    if rank == 3:
        steps += [
            lambda net, v: t.bmm(v[i], v[i].mT) * 0.2,
            lambda net, v: t.baddbmm(v[i], v[i], weight(net).expand(v[i].shape[0], -1, -1)),
            lambda net, v: t.einsum("bij,bkj->bik", v[i], v[i]) * 0.2,
            lambda net, v: t.einsum("bij,bij->bi", v[i], v[i])[..., None],
            lambda net, v: t.cdist(v[i], v[i] + 1),
        ]
    else:
        steps.append(lambda net, v: t.einsum("bchw,bcwk->bhk", v[i], v[i].mT)[:, None] * 0.1)
    return d.one(*steps)


@kind(2)
def _gate(d: Draw) -> Step:
    i = d.value(4)
    channels = d.shape(i)[1]
    less = d.layer(d.nn.Conv2d(channels, 2, 1))
    more = d.layer(d.nn.Conv2d(2, channels, 1))
    gate = d.one(d.torch.sigmoid, d.F.hardsigmoid)

    def step(net: Any, v: list[Any]) -> Any:
        y = net.layers[less](v[i].mean((2, 3), keepdim=True)).relu_()
        return v[i] * gate(net.layers[more](y))

    return step
