"""layer.MultiheadAttention beside torch.nn.MultiheadAttention."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from like_torch import check_like_torch
from singa import autograd, layer, tensor
from singa.models import description

RNG = np.random.default_rng(5)
PADDING = np.arange(7)[None] >= np.array([[5], [7]])
MASKS: dict[str, dict[str, np.ndarray]] = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "bool": {"attn_mask": RNG.random((5, 7)) < 0.3},
    "float": {"attn_mask": RNG.normal(size=(5, 7))},
    "both": {"key_padding_mask": PADDING, "attn_mask": RNG.random((5, 7)) < 0.3},
    "bool and float": {"key_padding_mask": PADDING, "attn_mask": RNG.normal(size=(5, 7))},
    "heads": {"attn_mask": RNG.random((8, 5, 7)) < 0.3},
}


def compared(
    torch: ModuleType,
    shapes: list[tuple[int, ...]],
    options: dict[str, Any],
    dtype: str = "float32",
    **arguments: Any,
) -> None:
    """Results, weights and all gradients."""

    def ours(inner: Any, *xs: Any) -> Any:
        masks = {n: tensor.from_numpy(v) for n, v in options.items() if isinstance(v, np.ndarray)}
        return inner(*xs, **options | masks)

    def other(module: Any, *xs: Any) -> Any:
        masks = {n: torch.from_numpy(v) for n, v in options.items() if isinstance(v, np.ndarray)}
        if len({mask.dtype for mask in masks.values()}) > 1:  # PyTorch asks for one type of both
            padding = torch.zeros(2, 7).masked_fill(masks["key_padding_mask"], -torch.inf)
            masks["key_padding_mask"] = padding.double()
        return module(*xs, **options | masks)

    check_like_torch(
        torch,
        layer.MultiheadAttention(24, 4, **arguments),
        torch.nn.MultiheadAttention(24, 4, **arguments),
        [RNG.normal(size=shape) for shape in shapes],
        dtype,
        ours,
        other,
    )


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(
    "use", [{}, {"average_attn_weights": False}, {"need_weights": False}], ids=str
)
def test_values_and_gradients(torch: ModuleType, name: str, use: dict[str, bool]) -> None:
    shapes = [(5, 2, 24), (7, 2, 24), (7, 2, 24)]  # length first, by default
    compared(torch, shapes, MASKS[name] | use)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("use", [{}, {"need_weights": False}], ids=str)
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 10, "vdim": 14}], ids=str)
def test_arguments(
    torch: ModuleType, options: dict[str, Any], use: dict[str, bool], dtype: str
) -> None:
    widths = options.get("kdim", 24), options.get("vdim", 24)
    shapes = [(2, 5, 24), (2, 7, widths[0]), (2, 7, widths[1])]
    compared(torch, shapes, use, dtype, batch_first=True, **options)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("use", [{}, {"average_attn_weights": False}, {"need_weights": False}])
def test_one_sequence(torch: ModuleType, batch_first: bool, use: dict[str, Any]) -> None:
    masks = {"key_padding_mask": PADDING[0], "attn_mask": RNG.random((5, 7)) < 0.2}
    compared(torch, [(5, 24), (7, 24), (7, 24)], {**masks, **use}, batch_first=batch_first)


def test_self_attention_has_one_projection() -> None:
    """Its weights are those of MultiHeadAttention, which is called with one tensor."""
    x = tensor.from_numpy(RNG.normal(size=(2, 5, 8)).astype(np.float32))
    one, other = layer.MultiheadAttention(8, 2, batch_first=True), layer.MultiHeadAttention(8, 2)
    expected = other(x).numpy()
    one(x, x, x)
    one.set_states(other.get_states())
    y, weights = one(x, x, x)
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, atol=1e-6)
    causal = tensor.from_numpy(np.triu(np.ones((5, 5), bool), 1))
    y, weights = one(x, x, x, attn_mask=causal, is_causal=True)
    np.testing.assert_allclose(y.numpy(), other(x, is_causal=True).numpy(), atol=1e-6)
    assert not np.triu(weights.numpy(), 1).any()


def test_dropout_is_that_of_the_weights() -> None:
    attention = layer.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    x = tensor.from_numpy(RNG.normal(size=(4, 9, 8)).astype(np.float32))
    with autograd.no_grad():
        whole = attention(x, x, x, average_attn_weights=False)[1].numpy()
    before, autograd.training = autograd.training, True
    try:
        dropped = attention(x, x, x, average_attn_weights=False)[1].numpy()
    finally:
        autograd.training = before
    kept = dropped != 0
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(dropped[kept], 2 * whole[kept], rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: layer.MultiheadAttention(8, 2, add_bias_kv=True), ValueError, "add_bias_kv must"),
        (
            lambda: layer.MultiheadAttention(8, 2, 0.0, True, False, True),
            ValueError,
            "add_zero_attn must be False",
        ),
        (lambda: layer.MultiheadAttention(8, 3), ValueError, "num_heads must divide embed_dim"),
        (
            lambda: layer.MultiheadAttention(8, 2)(*[tensor.zeros((3, 1, 8))] * 3, is_causal=True),
            ValueError,
            "give attn_mask",
        ),
        (
            lambda: layer.MultiheadAttention(8, 2)(*[tensor.zeros((3, 1, 6))] * 3),
            ValueError,
            r"query must have shape \(batch, length, 8\)",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_file_describes_it(tmp_path: Any) -> None:
    described = description.describe_layer(layer.MultiheadAttention(8, 2, dropout=0.1))
    again = description.build_layer(described)
    assert (type(again), again.dropout, again.batch_first) == (layer.MultiheadAttention, 0.1, False)
