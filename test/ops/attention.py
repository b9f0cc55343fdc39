"""Attention and rotary embeddings."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from ops.case import Family, both, functional, torch, uniform
from singa import autograd, tensor

CASES = Family()
add = CASES.add

_HEADS = [uniform(2, 4, 3, 6), uniform(2, 2, 5, 6, seed=1), uniform(2, 2, 5, 4, seed=2)]
add(
    "scaled_dot_product_attention",
    "ScaledDotProductAttention",
    *both("scaled_dot_product_attention", is_causal=True, scale=0.7, enable_gqa=True),
    _HEADS,
)
add(
    "scaled_dot_product_attention with a mask",
    "ScaledDotProductAttention",
    *both("scaled_dot_product_attention", enable_gqa=True),
    [*_HEADS, np.arange(15).reshape(3, 5) % 4 > 0],
    constants=(3,),
)
_MANY = [uniform(4, 2, 3, 6, seed=seed) for seed in range(3)]
add(
    "scaled_dot_product_attention with a bias that repeats",
    "ScaledDotProductAttention",
    autograd.scaled_dot_product_attention,
    lambda q, k, v, bias: functional.scaled_dot_product_attention(q, k, v, bias.repeat(2, 1, 1, 1)),
    [*_MANY, uniform(2, 2, 3, 3)],
)
for _shape in ((3, 5), (2, 1, 1, 5), (4, 3, 1)):
    add(
        f"scaled_dot_product_attention with a bias {_shape}",
        "ScaledDotProductAttention",
        *both("scaled_dot_product_attention", enable_gqa=True),
        [*_HEADS, uniform(*_shape)],
    )


def _turned(torch: Any, x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Rotary embedding by its formula."""
    cos, sin = (t.to(x.dtype) for t in (cos, sin))
    cos, sin = (t.unsqueeze(-3) if t.dim() == 3 else t for t in (cos, sin))
    pairs = cos.shape[-1]
    if interleaved:
        a, b = x[..., : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    else:
        a, b = x[..., :pairs], x[..., pairs : 2 * pairs]
        turned = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    return torch.cat((turned, x[..., 2 * pairs :]), -1)


# Exact in float32.
_TABLES = [np.round(16 * uniform(4, 3, seed=seed)) / 16 for seed in (3, 4)]


@functools.cache
def _rotary_tables() -> list[Any]:
    return [tensor.Tensor(data=t, dtype="float32", requires_grad=False) for t in _TABLES]


for _interleaved, _features in ((False, 6), (True, 6), (False, 9), (True, 9)):
    add(
        f"rotary_embedding of 6 of {_features} features, interleaved {_interleaved}",
        "RotaryEmbedding",
        lambda x, pairs=_interleaved: autograd.rotary_embedding(
            x, *_rotary_tables(), interleaved=pairs
        ),
        lambda x, pairs=_interleaved: _turned(
            torch, x, *map(torch.tensor, _TABLES), interleaved=pairs
        ),
        [uniform(2, 3, 4, _features)],
        one_step=False,
    )
