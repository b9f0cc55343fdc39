"""Attention and rotary embeddings."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from ops.case import Family, functional, torch, uniform
from singa import autograd, tensor

CASES = Family()
add, call = CASES.add, CASES.call

_HEADS = [uniform(2, 4, 3, 6), uniform(2, 2, 5, 6, seed=1), uniform(2, 2, 5, 4, seed=2)]
_NAME, _OPERATOR = "scaled_dot_product_attention", "ScaledDotProductAttention"
call(_NAME, _OPERATOR, _HEADS, is_causal=True, scale=0.7, enable_gqa=True)
_MASK = np.arange(15).reshape(3, 5) % 4 > 0
call(f"{_NAME} with a mask", _OPERATOR, [*_HEADS, _MASK], enable_gqa=True, constants=(3,))
call(
    *(f"{_NAME} with a bias that repeats", _OPERATOR),
    [*(uniform(4, 2, 3, 6, seed=seed) for seed in range(3)), uniform(2, 2, 3, 3)],
    theirs=lambda q, k, v, bias: getattr(functional, _NAME)(q, k, v, bias.repeat(2, 1, 1, 1)),
)
for _shape in ((3, 5), (2, 1, 1, 5), (4, 3, 1)):
    _inputs = [*_HEADS, uniform(*_shape)]
    call(f"{_NAME} with a bias {_shape}", _OPERATOR, _inputs, enable_gqa=True)


def _turned(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
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


for _pairs, _features in ((False, 6), (True, 6), (False, 9), (True, 9)):
    add(
        f"rotary_embedding of 6 of {_features} features, interleaved {_pairs}",
        "RotaryEmbedding",
        lambda x, pairs=_pairs: autograd.rotary_embedding(x, *_rotary_tables(), interleaved=pairs),
        lambda x, pairs=_pairs: _turned(x, *map(torch.tensor, _TABLES), interleaved=pairs),
        [uniform(2, 3, 4, _features)],
        one_step=False,
    )
