"""Padding layers, and the divisor of mean pooling, compared with PyTorch's."""

from types import ModuleType

import numpy as np
import pytest
from arrays import of
from singa import layer


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
