"""Activation layers beside PyTorch's, and drop path."""

from __future__ import annotations

import numpy as np
import pytest
from singa import autograd, layer, tensor

# Without 0 and 6, where the derivative of ReLU6 is a choice.
_X = np.linspace(-40, 40, 400, dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("GELU", ()),
        ("GELU", ("tanh",)),
        ("SiLU", ()),
        ("Hardsigmoid", ()),
        ("Hardswish", ()),
        ("Mish", ()),
        ("ReLU6", ()),
    ],
)
def test_like_torch_far_from_zero_too(
    name: str, arguments: tuple[str, ...], training: None
) -> None:
    torch = pytest.importorskip("torch")
    options = {"approximate": arguments[0]} if arguments else {}
    x = tensor.Tensor(data=_X, stores_grad=True)
    y = getattr(layer, name)(*arguments)(x)
    px = torch.from_numpy(_X.astype(np.float64)).requires_grad_()
    py = getattr(torch.nn, name)(**options)(px)
    py.sum().backward()
    np.testing.assert_allclose(y.numpy(), py.detach().numpy(), rtol=2e-6, atol=1e-6)
    ((_, dx),) = autograd.backward(y, np.ones_like(_X))
    np.testing.assert_allclose(dx.numpy(), px.grad.numpy(), rtol=2e-6, atol=2e-6)


def test_gelu_refuses_other_approximations() -> None:
    with pytest.raises(ValueError, match="approximate must be 'none' or 'tanh', got 'erf'"):
        layer.GELU("erf")
    with pytest.raises(ValueError, match="approximate must be"):
        autograd.gelu(tensor.Tensor((2,)), "fast")


def test_drop_path_drops_whole_samples(training: None) -> None:
    x = tensor.from_numpy(np.ones((4000, 2, 3), np.float32))
    y = layer.DropPath(0.25)(x).numpy()
    samples = y[:, 0, 0]
    assert (y == samples[:, None, None]).all()
    assert set(np.unique(samples)) == {np.float32(0), np.float32(1) / np.float32(0.75)}
    # 4000 draws: a standard deviation of 0.007.
    assert abs((samples == 0).mean() - 0.25) < 0.035


def test_drop_path_passes_gradients_of_kept_samples(training: None) -> None:
    x = tensor.Tensor(data=np.ones((64, 3), np.float32), stores_grad=True)
    y = layer.DropPath(0.5)(x)
    ((_, dx),) = autograd.backward(y, np.ones((64, 3), np.float32))
    np.testing.assert_array_equal(dx.numpy(), y.numpy())


def test_drop_path_is_identity_in_evaluation(training: None) -> None:
    autograd.training = False  # the fixture restores it
    x = tensor.from_numpy(np.ones((4, 3), np.float32))
    assert layer.DropPath(0.5)(x) is x
