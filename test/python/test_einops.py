"""Tensors in einops, compared with arrays."""

import numpy as np
import pytest

pytest.importorskip("einops", reason="the package einops is not installed")
import singa.einops  # noqa: F401
from arrays import of
from einops import einsum, pack, rearrange, reduce, repeat
from singa import autograd
from singa.tensor import Tensor

_X = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)


def test_rearrange_keeps_the_tape(training: None) -> None:
    x = of(_X)
    x.stores_grad = True
    pattern = "n c (h p) (w q) -> n (h w) (p q c)"
    y = rearrange(x, pattern, p=2, q=3)
    np.testing.assert_array_equal(y.numpy(), rearrange(_X, pattern, p=2, q=3))
    weight = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    gradient = autograd.gradients(y, weight)[x]
    back = "n (h w) (p q c) -> n c (h p) (w q)"
    np.testing.assert_array_equal(gradient.numpy(), rearrange(weight, back, p=2, q=3, h=2))


@pytest.mark.parametrize("operation", ["sum", "mean", "max", "min", "prod"])
def test_reduce(operation: str) -> None:
    y = reduce(of(_X), "n c h w -> c w", operation)
    assert isinstance(y, Tensor)
    expected = reduce(_X.astype(np.float64), "n c h w -> c w", operation)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_repeat_pack_and_einsum() -> None:
    x, y = _X[0, 0], _X[0, 1]
    tiled = repeat(of(x), "h w -> h (w k) n", k=2, n=3)
    np.testing.assert_array_equal(tiled.numpy(), repeat(x, "h w -> h (w k) n", k=2, n=3))
    packed, shapes = pack([of(x), of(y)], "* w")
    np.testing.assert_array_equal(packed.numpy(), np.concatenate([x, y]))
    assert list(shapes) == [(4,), (4,)]
    product = einsum(of(x), of(y), "h w, k w -> h k")
    np.testing.assert_allclose(product.numpy(), x @ y.T, rtol=1e-5, atol=1e-6)
    stacked = rearrange([of(x), of(y)], "n h w -> n (h w)")
    np.testing.assert_array_equal(stacked.numpy(), np.stack([x, y]).reshape(2, -1))
