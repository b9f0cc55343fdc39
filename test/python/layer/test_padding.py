"""Padding layers, and the divisor of mean pooling, compared with PyTorch's."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from arrays import of
from singa import autograd, layer

_SIDES = (2, 1, 0, 3, 1, 2)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["ConstantPad", "ZeroPad", "ReflectionPad", "ReplicationPad"])
@pytest.mark.parametrize("whole", [True, False])
def test_like_torch(kind: str, axes: int, whole: bool, torch: ModuleType, training: None) -> None:
    name = f"{kind}{axes}d"
    arguments: list[Any] = [2 if whole else _SIDES[: 2 * axes]]
    if kind == "ConstantPad":
        arguments.append(1.5)
    shape = (2, 3, 4, 5, 4)[: 2 + axes]
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x, theirs = of(values), torch.tensor(values).requires_grad_()
    x.stores_grad = True
    y, truth = getattr(layer, name)(*arguments)(x), getattr(torch.nn, name)(*arguments)(theirs)
    np.testing.assert_array_equal(y.numpy(), truth.detach().numpy())
    dy = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    truth.backward(torch.tensor(dy))
    gradient = autograd.gradients(y, dy)[x].numpy()
    np.testing.assert_allclose(gradient, theirs.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_negative_sides_crop() -> None:
    values = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)
    y = layer.ZeroPad2d((-1, -2, 1, -1))(of(values))
    expected = np.pad(values[..., :3, 1:4], ((0, 0), (0, 0), (1, 0), (0, 0)))
    np.testing.assert_array_equal(y.numpy(), expected)


def test_wrong_sides() -> None:
    with pytest.raises(ValueError, match=r"\[ZeroPad2d\].*4"):
        layer.ZeroPad2d((1, 2))
    with pytest.raises(ValueError, match="1 axes"):
        layer.ZeroPad2d(1)(of(np.ones(3, np.float32)))


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("padding", [0, 1])
def test_divisor_of_mean_pooling_like_torch(torch: ModuleType, axes: int, padding: int) -> None:
    values = np.random.default_rng(0).standard_normal((2, 3, 6, 7, 5)[: 2 + axes])
    x = of(values.astype(np.float32))
    ours = getattr(layer, f"AvgPool{axes}d")(3, 2, padding, divisor_override=4)
    theirs = getattr(torch.nn, f"AvgPool{axes}d")(3, 2, padding, divisor_override=4)
    expected = theirs(torch.tensor(values)).numpy()
    np.testing.assert_allclose(ours(x).numpy(), expected, rtol=1e-5, atol=1e-6)
    ours.divisor_override = 2
    np.testing.assert_allclose(ours(x).numpy(), 2 * expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="divisor_override"):
        layer.AvgPool2d(3, divisor_override=0)
    with pytest.raises(ValueError, match="ceil_mode"):
        layer.AvgPool2d(3, ceil_mode=True, divisor_override=4)
