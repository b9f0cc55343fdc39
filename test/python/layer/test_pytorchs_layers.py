"""BatchNorm1d, BatchNorm3d, batch norms without weights, and Unflatten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import singa
from singa import layer, model, models, tensor


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
