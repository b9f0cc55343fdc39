"""BatchNorm1d, BatchNorm3d, batch norms without weights, and Unflatten."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, models, tensor


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 5)], ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_of_rows_and_signals(
    torch: ModuleType, shape: tuple[int, ...], affine: bool
) -> None:
    theirs, ours = torch.nn.BatchNorm1d(3, affine=affine), layer.BatchNorm1d(3, affine=affine)
    x = np.random.default_rng(1).normal(2.0, 3.0, shape).astype(np.float32)
    tx = tensor.Tensor(data=x, stores_grad=True)
    px = torch.tensor(x).requires_grad_()
    autograd.training = True
    try:
        y, py = ours(tx), theirs(px)
        gradient = autograd.gradients(y, x)[tx]
    finally:
        autograd.training = False
    py.backward(torch.tensor(x))
    np.testing.assert_allclose(y.numpy(), py.detach().numpy(), rtol=0, atol=2e-5)
    np.testing.assert_allclose(gradient.numpy(), px.grad.numpy(), rtol=0, atol=2e-5)
    np.testing.assert_allclose(ours(tx).numpy(), theirs.eval()(px).detach().numpy(), atol=2e-5)
    assert list(ours.get_params()) == (["scale", "bias"] if affine else [])
    assert list(ours.get_states())[-2:] == ["running_mean", "running_var"]


def test_wrong_axes_of_batch_norms() -> None:
    with pytest.raises(ValueError, match=r"\[BatchNorm1d\] expected 2 or 3 axes"):
        layer.BatchNorm1d(3)(tensor.ones((2, 3, 4, 4)))
    with pytest.raises(ValueError, match=r"\[BatchNorm3d\] expected 5 axes"):
        layer.BatchNorm3d(3)(tensor.ones((2, 3, 4, 4)))


def test_batch_norm_without_weights_converts_as_a_whole() -> None:
    norm = layer.BatchNorm2d(3, affine=False)
    norm(tensor.ones((2, 3)))
    norm.to_type("float64")
    assert norm(tensor.Tensor(data=np.ones((2, 3)), dtype="float64")).dtype == tensor.float64


def test_a_file_has_the_new_layers(tmp_path: Any) -> None:
    net = models.Sequential(
        layer.Linear(6),
        layer.BatchNorm1d(6, affine=False),
        layer.Unflatten(1, (2, 3)),
        layer.Flatten(start_dim=1),
        layer.Linear(2),
    )
    x = tensor.random((5, 4))
    net.compile([x], is_train=False)
    net.save(tmp_path / "net.safetensors")
    again = singa.load(tmp_path / "net.safetensors")
    assert isinstance(again, model.Model)
    np.testing.assert_array_equal(again(x).numpy(), net(x).numpy())


@pytest.mark.parametrize("sizes", [(2, 2), (4, -1), (-1, -1), (0, -1)], ids=str)
def test_unflatten_refuses_lengths_that_do_not_divide(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"\[Unflatten\] 6 elements along axis 1"):
        layer.Unflatten(1, sizes)(tensor.ones((2, 6)))
    with pytest.raises(ValueError, match="axis 2 is outside"):
        layer.Unflatten(2, (2, 3))(tensor.ones((2, 6)))
