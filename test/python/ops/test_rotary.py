"""Rotary position embedding beside its formula; positions, layouts, the layer, attention."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import autograd, layer, tensor
from trials import draws

pytestmark = pytest.mark.usefixtures("training")

Array = np.ndarray[Any, Any]


def _tables(positions: int, pairs: int, base: float = 10000.0) -> tuple[Array, Array]:
    angles = np.outer(np.arange(positions), base ** (-np.arange(pairs) / max(pairs, 1)))
    return np.cos(angles), np.sin(angles)


def _formula(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """cos and sin (B, N, R / 2)."""
    y, pairs = x.copy(), cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]
    first = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


_LIMITS = {"float64": 1e-14, "float32": 1e-6, "bfloat16": 2e-2, "float16": 2e-3}


@pytest.mark.parametrize("dtype", list(_LIMITS))
@pytest.mark.parametrize("interleaved", [False, True])
def test_is_the_formula(dtype: str, interleaved: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(draws(15)):
        batch, heads, length = (int(rng.integers(1, 6)) for _ in range(3))
        width = int(rng.integers(1, 40))
        pairs = int(rng.integers(0, width // 2 + 1))
        rows = length + int(rng.integers(0, 4))
        cos, sin = _tables(rows, pairs)
        x = rng.standard_normal((batch, heads, length, width))
        ours = tensor.Tensor(data=x, dtype=dtype, stores_grad=True)
        x = ours.as_type("float64").numpy()
        turned = [tensor.from_numpy(t, dtype="float64") for t in (cos, sin)]
        options: dict[str, Any] = {"first": int(rng.integers(0, rows - length + 1))}
        positions = options["first"] + np.tile(np.arange(length), (batch, 1))
        if rng.integers(2):
            positions = rng.integers(0, rows, (batch, length))
            options = {"positions": positions}
        y = autograd.rotary_embedding(ours, *turned, interleaved=interleaved, **options)
        assert y.dtype == ours.dtype
        want = _formula(x, cos[positions], sin[positions], interleaved)
        limit = _LIMITS[dtype] * 4
        np.testing.assert_allclose(y.as_type("float64").numpy(), want, rtol=0, atol=limit)
        dy = tensor.Tensor(data=rng.standard_normal(x.shape), dtype=dtype, requires_grad=False)
        back = _formula(dy.as_type("float64").numpy(), cos[positions], -sin[positions], interleaved)
        gradient = autograd.gradients(y, dy)[ours]
        np.testing.assert_allclose(gradient.as_type("float64").numpy(), back, rtol=0, atol=limit)


def test_is_the_rotation_of_llama(torch: ModuleType) -> None:
    """x · cos + rotate_half(x) · sin, with tables of twice the width."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 3, 5, 8))
    cos, sin = _tables(5, 4)
    half = torch.tensor(x)
    half = torch.cat((-half[..., 4:], half[..., :4]), -1)
    want = torch.tensor(x) * torch.tensor(np.tile(cos, 2)) + half * torch.tensor(np.tile(sin, 2))
    y = layer.RotaryEmbedding(8)(tensor.from_numpy(x, dtype="float64"))
    np.testing.assert_allclose(y.numpy(), want.numpy(), rtol=0, atol=1e-14)


def test_split_heads_are_turned_in_place_of_a_copy() -> None:
    """Heads that were split off an axis are read as they lie, and merged again by a view."""
    x = np.random.default_rng(3).standard_normal((2, 7, 4, 6)).astype(np.float32)
    split = tensor.Tensor(data=tensor.from_numpy(x).data.Transpose((0, 2, 1, 3)))
    cos, sin = (tensor.from_numpy(t) for t in _tables(7, 3))
    with singa.profile() as profile, autograd.no_grad():
        y = autograd.rotary_embedding(split, cos, sin)
    assert [record.op for record in profile.records] == ["Rotary"]
    assert y.transpose((0, 2, 1, 3)).data.is_contiguous()
    plain = autograd.rotary_embedding(
        tensor.from_numpy(np.ascontiguousarray(x.swapaxes(1, 2))), cos, sin
    )
    np.testing.assert_array_equal(y.numpy(), plain.numpy())


@pytest.mark.parametrize("interleaved", [False, True])
def test_products_depend_on_distances_alone(interleaved: bool) -> None:
    rng = np.random.default_rng(4)
    rotary = layer.RotaryEmbedding(6, interleaved=interleaved)
    q, k = (
        tensor.from_numpy(
            np.tile(rng.standard_normal((1, 1, 1, 8)), (1, 1, 30, 1)), dtype="float64"
        )
        for _ in range(2)
    )
    near = (rotary(q).numpy() @ rotary(k).numpy().swapaxes(2, 3))[0, 0]
    far = (rotary(q, first=900).numpy() @ rotary(k, first=900).numpy().swapaxes(2, 3))[0, 0]
    np.testing.assert_allclose(near, far, rtol=0, atol=1e-11)
    for distance in (-29, -3, 0, 7):
        diagonal = np.diagonal(near, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=0, atol=1e-12)


def test_attention_with_a_cache_turns_by_the_position() -> None:
    """Position after position with a cache gives what all positions give at once."""
    rng = np.random.default_rng(5)
    attention = layer.MultiHeadAttention(
        24, 4, num_kv_heads=2, rotary=layer.RotaryEmbedding(4, max_positions=16)
    )
    x = tensor.from_numpy(rng.standard_normal((2, 9, 24)).astype(np.float32))
    with autograd.no_grad():
        whole = attention(x, is_causal=True).numpy()
        cache = layer.KeyValueCache(4)
        steps = [
            attention(autograd.slice(x, [i], [i + 1], [1]), is_causal=True, cache=cache).numpy()
            for i in range(9)
        ]
        plain = layer.MultiHeadAttention(24, 4, num_kv_heads=2)
        plain(x)
        plain.set_params({name: p.clone() for name, p in attention.get_params().items()})
        assert np.abs(plain(x, is_causal=True).numpy() - whole).max() > 1e-3
    np.testing.assert_allclose(np.concatenate(steps, 1), whole, rtol=0, atol=1e-5)
    assert set(attention.get_params()) == set(plain.get_params())


def test_errors() -> None:
    x, cos = tensor.Tensor((2, 3, 5, 8)), tensor.Tensor((6, 4))
    rotary = autograd.rotary_embedding
    with pytest.raises(ValueError, match=r"x must have shape \(B, H, N, D\)"):
        rotary(tensor.Tensor((3, 5, 8)), cos, cos)
    with pytest.raises(ValueError, match=r"\(6, 4\) and \(6, 3\)"):
        rotary(x, cos, tensor.Tensor((6, 3)))
    with pytest.raises(ValueError, match="positions up to 7 need as many rows"):
        rotary(x, cos, cos, first=2)
    with pytest.raises(IndexError, match="6"):
        rotary(x, cos, cos, positions=np.full((2, 5), 6)).numpy()  # a GPU raises when it is read
    with pytest.raises(ValueError, match=r"\[Rotary\] cos must have shape"):
        rotary(x, tensor.Tensor((5, 5)), tensor.Tensor((5, 5)))
    with pytest.raises(TypeError, match=r"\[Rotary\] x must be of a float type"):
        rotary(tensor.Tensor((2, 3, 5, 8), dtype=tensor.int32), cos, cos)
    trained = tensor.Tensor((5, 4), stores_grad=True, requires_grad=True)
    with pytest.raises(ValueError, match="no gradients of cos and sin"):
        rotary(x, trained, trained)
    for arguments in ((3,), (0,), (4, 0), (4, 8, -1.0)):
        with pytest.raises(ValueError, match="RotaryEmbedding"):
            layer.RotaryEmbedding(*arguments)
