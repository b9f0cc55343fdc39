"""layer.MultiheadAttention beside torch.nn.MultiheadAttention."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from singa import autograd, layer, model, tensor
from singa.models import description

RNG = np.random.default_rng(5)
PADDING = np.arange(7)[None] >= np.array([[5], [7]])
MASKS: dict[str, dict[str, np.ndarray]] = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "bool": {"attn_mask": RNG.random((5, 7)) < 0.3},
    "float": {"attn_mask": RNG.normal(size=(5, 7)).astype(np.float32)},
    "both": {"key_padding_mask": PADDING, "attn_mask": RNG.random((5, 7)) < 0.3},
    "heads": {"attn_mask": RNG.random((8, 5, 7)) < 0.3},
}


class Around(model.Model):
    """A model of one layer, whose weights load_torch can name."""

    def __init__(self, inner: layer.Layer) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *xs: Any, **options: Any) -> Any:
        return self.inner(*xs, **options)


def made(torch: ModuleType, *args: Any, **options: Any) -> tuple[Around, Any]:
    """Both layers with the same random weights, not compiled yet."""
    theirs = torch.nn.MultiheadAttention(*args, **options)
    with torch.no_grad():
        for parameter in theirs.parameters():
            values = RNG.normal(0, 0.4, parameter.shape).astype(np.float32)
            parameter.copy_(torch.from_numpy(values))
    return Around(layer.MultiheadAttention(*args, **options)), theirs


def compared(
    torch: ModuleType, ours: Around, theirs: Any, shapes: Any, options: dict[str, Any]
) -> None:
    """Results, weights and all gradients, of a sum over both results."""
    arrays = [RNG.normal(size=shape).astype(np.float32) for shape in shapes]
    xs = [tensor.from_numpy(array) for array in arrays]
    for x in xs:
        x.requires_grad = x.stores_grad = True
    ours.compile(xs, is_train=True, use_graph=False)
    ours.load_torch({f"inner.{name}": value for name, value in theirs.state_dict().items()})
    masks = {
        n: tensor.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in options.items()
    }
    y, weights = ours.forward(*xs, **masks)
    pxs = [torch.from_numpy(array).requires_grad_() for array in arrays]
    masks = {n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in options.items()}
    their_y, their_weights = theirs(*pxs, **masks)
    assert (weights is None) == (their_weights is None)
    factors = [RNG.normal(size=tuple(their_y.shape)).astype(np.float32)]
    loss, their_loss = (
        autograd.reduce_sum(y * factors[0]),
        (their_y * torch.from_numpy(factors[0])).sum(),
    )
    if weights is not None:
        assert weights.shape == tuple(their_weights.shape)
        np.testing.assert_allclose(weights.numpy(), their_weights.detach().numpy(), atol=1e-6)
        factor = RNG.normal(size=tuple(their_weights.shape)).astype(np.float32)
        loss = loss + autograd.reduce_sum(weights * factor)
        their_loss = their_loss + (their_weights * torch.from_numpy(factor)).sum()
    assert y.shape == tuple(their_y.shape)
    np.testing.assert_allclose(y.numpy(), their_y.detach().numpy(), atol=2e-5)
    their_loss.backward()
    gradients = autograd.gradients(loss)
    for x, px in zip(xs, pxs, strict=True):
        np.testing.assert_allclose(gradients[x].numpy(), px.grad.numpy(), atol=5e-5)
    for name, value in ours.get_params().items():
        leaf = {"out_proj.W": "out_proj.weight", "out_proj.b": "out_proj.bias"}
        own = leaf.get(name.removeprefix("inner."), name.removeprefix("inner."))
        want = theirs.get_parameter(own).grad.numpy()
        want = want.T if name.endswith(".W") else want
        np.testing.assert_allclose(gradients[value].numpy(), want, atol=5e-5, err_msg=name)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("use", ["averaged", "each head", "no weights"])
def test_values_and_gradients(torch: ModuleType, name: str, use: str) -> None:
    options = {
        "averaged": {},
        "each head": {"average_attn_weights": False},
        "no weights": {"need_weights": False},
    }[use]
    ours, theirs = made(torch, 24, 4)
    shapes = [(5, 2, 24), (7, 2, 24), (7, 2, 24)]  # length first, by default
    compared(torch, ours, theirs, shapes, {**MASKS[name], **options})


@pytest.mark.parametrize(
    "options",
    [
        {"batch_first": True},
        {"batch_first": True, "bias": False},
        {"batch_first": True, "kdim": 10, "vdim": 14},
    ],
)
def test_arguments(torch: ModuleType, options: dict[str, Any]) -> None:
    ours, theirs = made(torch, 24, 4, **options)
    widths = options.get("kdim", 24), options.get("vdim", 24)
    compared(torch, ours, theirs, [(2, 5, 24), (2, 7, widths[0]), (2, 7, widths[1])], {})


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("use", [{}, {"average_attn_weights": False}, {"need_weights": False}])
def test_one_sequence(torch: ModuleType, batch_first: bool, use: dict[str, Any]) -> None:
    ours, theirs = made(torch, 24, 4, batch_first=batch_first)
    masks = {"key_padding_mask": PADDING[0], "attn_mask": RNG.random((5, 7)) < 0.2}
    compared(torch, ours, theirs, [(5, 24), (7, 24), (7, 24)], {**masks, **use})


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
