"""Multi-head attention, transformer encoders and the cache, beside PyTorch's modules."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from bits import check_replays
from like_torch import check_like_torch
from singa import autograd, layer, model, tensor


@pytest.fixture
def sampling() -> Iterator[None]:
    """Inference: no dropout, and nothing is recorded for backward."""
    before = autograd.training
    autograd.training = False
    yield
    autograd.training = before


def _arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    return [rng.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"bias": False}])
def test_self_attention(torch: ModuleType, dtype: str, options: dict[str, Any]) -> None:
    """MultiheadAttention, which has tests of its own, calls it with three tensors."""
    ours = layer.MultiHeadAttention(24, 4, **options)
    theirs = torch.nn.MultiheadAttention(24, 4, batch_first=True, **options)
    of = lambda module, x: module(x, x, x)[0]  # noqa: E731
    check_like_torch(torch, ours, theirs, _arrays((2, 7, 24)), dtype, other=of)


def test_masks_of_four_axes_are_those_of_each_head() -> None:
    rng = np.random.default_rng(6)
    x = tensor.from_numpy(rng.normal(size=(2, 5, 24)).astype(np.float32))
    attention = layer.MultiHeadAttention(24, 4)
    mask = rng.random((2, 4, 5, 5)) < 0.3
    whole = attention(x, attn_mask=tensor.from_numpy(mask)).numpy()
    flat = attention(x, attn_mask=tensor.from_numpy(mask.reshape(8, 5, 5))).numpy()
    np.testing.assert_array_equal(whole, flat)
    causal = attention(x, is_causal=True).numpy()
    excluded = tensor.from_numpy(np.triu(np.ones((5, 5), bool), 1))
    np.testing.assert_allclose(attention(x, attn_mask=excluded).numpy(), causal, atol=1e-6)


def test_grouped_heads_share_keys_and_values() -> None:
    """Two heads of keys for four of queries: as four, with the weights of the two repeated."""
    x = tensor.from_numpy(_arrays((2, 7, 24))[0].astype(np.float32))
    grouped, full = layer.MultiHeadAttention(24, 4, num_kv_heads=2), layer.MultiHeadAttention(24, 4)
    y = grouped(x).numpy()
    full(x)
    weight = grouped.in_proj_weight.numpy()
    assert weight.shape == (24 + 12 + 12, 24)
    q, k, v = weight[:24], weight[24:36], weight[36:]
    repeated = [np.repeat(w.reshape(2, 6, 24), 2, 0).reshape(24, 24) for w in (k, v)]
    full.set_params(
        {
            "in_proj_weight": np.concatenate([q, *repeated]),
            "out_proj.W": grouped.out_proj.W.numpy(),
        },
        strict=False,  # biases are 0
    )
    np.testing.assert_allclose(full(x).numpy(), y, rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(torch: ModuleType, norm_first: bool, activation: str) -> None:
    options = {"dim_feedforward": 40, "norm_first": norm_first, "activation": activation}
    check_like_torch(
        torch,
        layer.TransformerEncoderLayer(24, 4, dropout=0.0, **options),
        torch.nn.TransformerEncoderLayer(24, 4, dropout=0.0, batch_first=True, **options),
        _arrays((2, 7, 24)),
        "float64",
    )


def test_encoder(torch: ModuleType) -> None:
    ours = layer.TransformerEncoderLayer(24, 4, 40, dropout=0.0)
    theirs = torch.nn.TransformerEncoderLayer(24, 4, 40, dropout=0.0, batch_first=True)
    mask = torch.from_numpy(np.triu(np.ones((7, 7), bool), 1))
    check_like_torch(
        torch,
        layer.TransformerEncoder(ours, 3, layer.LayerNorm(24)),
        torch.nn.TransformerEncoder(theirs, 3, torch.nn.LayerNorm(24)),
        _arrays((2, 7, 24)),
        "float64",
        lambda inner, x: inner(x, is_causal=True),
        lambda module, x: module(x, mask),
    )


def test_defaults_are_pytorchs(torch: ModuleType) -> None:
    ours = layer.TransformerEncoderLayer(24, 4)
    theirs = torch.nn.TransformerEncoderLayer(24, 4)
    x = tensor.Tensor((1, 2, 24))
    ours(x)
    assert ours.linear1.W.shape == (24, theirs.linear1.out_features)
    assert ours.dropout.ratio == ours.dropout1.ratio == theirs.dropout.p
    assert ours.self_attn.dropout == theirs.self_attn.dropout
    assert ours.norm1.eps == theirs.norm1.eps
    assert not ours.norm_first
    assert not theirs.norm_first
    bound = np.sqrt(6 / (24 + 72))
    weight = ours.self_attn.in_proj_weight.numpy()
    assert 0.9 * bound < np.abs(weight).max() <= bound
    weight = ours.self_attn.out_proj.W.numpy()
    assert 0.9 / np.sqrt(24) < np.abs(weight).max() <= 1 / np.sqrt(24)
    assert not ours.self_attn.in_proj_bias.numpy().any()


def test_copies_have_weights_of_their_own() -> None:
    encoder = layer.TransformerEncoder(layer.TransformerEncoderLayer(8, 2, 16), 2)
    encoder(tensor.Tensor((1, 3, 8)))
    first, second = (encoder.layers[i].self_attn.in_proj_weight.numpy() for i in range(2))
    assert (first != second).any()
    assert "layers.1.self_attn.out_proj.W" in encoder.get_params()


@pytest.mark.usefixtures("sampling")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("steps", [[1] * 9, [4, 1, 3, 1], [9]])
def test_sampling_with_caches_is_the_whole_pass(dtype: str, steps: list[int]) -> None:
    x = tensor.from_numpy(_arrays((2, 9, 24))[0].astype(np.float32)).as_type(dtype)
    encoder = layer.TransformerEncoder(
        layer.TransformerEncoderLayer(24, 4, 40, norm_first=True), 2, layer.LayerNorm(24)
    )
    whole = encoder(x, is_causal=True).as_type("float64").numpy()
    caches = [layer.KeyValueCache(capacity=2) for _ in range(2)]
    parts, at = [], 0
    for n in steps:
        part = tensor.Tensor(data=x.data.SliceAxis(1, at, at + n))
        parts.append(encoder(part, is_causal=True, caches=caches).as_type("float64").numpy())
        at += n
    assert [len(cache) for cache in caches] == [9, 9]
    limit = {"float32": 3e-6, "float64": 1e-12, "bfloat16": 4e-2}[dtype]
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=0, atol=limit)


@pytest.mark.usefixtures("sampling")
def test_a_cache_without_causal_and_with_masks() -> None:
    x = _arrays((2, 6, 24))[0].astype(np.float32)
    attention = layer.MultiHeadAttention(24, 4)
    last = tensor.from_numpy(x[:, 4:])
    padding = tensor.from_numpy(np.arange(6)[None] == np.array([[1], [3]]))
    for options in ({}, {"key_padding_mask": padding}):
        whole = attention(tensor.from_numpy(x), **options).numpy()[:, 4:]
        cache = layer.KeyValueCache()
        attention(tensor.from_numpy(x[:, :4]), cache=cache)
        np.testing.assert_allclose(
            attention(last, cache=cache, **options).numpy(), whole, rtol=0, atol=1e-6
        )
    cache.clear()
    assert len(cache) == 0
    again = attention(last, cache=cache).numpy()
    np.testing.assert_array_equal(again, attention(last, cache=layer.KeyValueCache()).numpy())


class Classifier(model.Model):
    """An encoder with dropout, and a Linear on the mean of its results."""

    def __init__(self) -> None:
        super().__init__()
        inner = layer.TransformerEncoderLayer(16, 2, 32, dropout=0.2, activation="gelu")
        self.encoder = layer.TransformerEncoder(inner, 2)
        self.head = layer.Linear(5)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.head(autograd.reduce_mean(self.encoder(x, is_causal=True), 1, 0))


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_training_replays_the_executed_bits(dtype: str | None) -> None:
    rng = np.random.default_rng(7)
    batches = [
        (rng.normal(size=(2, 6, 16)).astype(np.float32), rng.integers(0, 5, 2).astype(np.int32))
        for _ in range(5)
    ]
    check_replays(Classifier, batches, {}, {"fuse": True}, {"recompute": True}, dtype=dtype)


@pytest.mark.usefixtures("sampling")
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: layer.MultiHeadAttention(10, 3), ValueError, "num_heads must divide embed_dim"),
        (
            lambda: layer.MultiHeadAttention(12, 4, num_kv_heads=3),
            ValueError,
            "num_kv_heads must divide num_heads",
        ),
        (
            lambda: layer.MultiHeadAttention(8, 2)(tensor.Tensor((3, 6))),
            ValueError,
            r"query must have shape \(batch, length, 8\), got \(3, 6\)",
        ),
        (
            lambda: layer.MultiHeadAttention(8, 2)(
                tensor.Tensor((1, 3, 8)), attn_mask=tensor.Tensor((3, 4))
            ),
            ValueError,
            "attn_mask must have shape",
        ),
        (
            lambda: layer.MultiHeadAttention(8, 2)(
                tensor.Tensor((1, 3, 8)), key_padding_mask=tensor.Tensor((3, 3))
            ),
            ValueError,
            r"key_padding_mask must have shape \(1, 3\)",
        ),
        (
            lambda: layer.TransformerEncoderLayer(8, 2, activation="tanh"),
            ValueError,
            "activation must be 'relu', 'gelu' or a function",
        ),
        (
            lambda: layer.TransformerEncoder(layer.TransformerEncoderLayer(8, 2), 2)(
                tensor.Tensor((1, 3, 8)), caches=[layer.KeyValueCache()]
            ),
            ValueError,
            "1 caches for 2 layers",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.usefixtures("sampling")
def test_cache_errors() -> None:
    attention = layer.MultiHeadAttention(8, 2)
    cache = layer.KeyValueCache()
    attention(tensor.Tensor((2, 3, 8)), cache=cache)
    with pytest.raises(ValueError, match="does not fit what is kept"):
        attention(tensor.Tensor((1, 3, 8)), cache=cache)
    with (
        autograd.enable_grad(),
        pytest.raises(RuntimeError, match="no gradients"),
    ):
        attention(tensor.Tensor((2, 3, 8)), cache=cache)
