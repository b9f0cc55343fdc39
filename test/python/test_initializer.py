"""Initial values of weights: standard deviations, limits and fans, compared with formulas."""

import math

import numpy as np
import pytest
import singa
from singa import initializer, tensor

MATRIX = (300, 200)  # (in, out)
KERNEL = (64, 32, 3, 3)  # (out, in, kh, kw)


def filled(fill, shape, **kwargs):
    singa.seed(1)
    t = tensor.Tensor(shape)
    fill(t, **kwargs)
    return t.numpy()


def test_fans_of_matrix_kernel_and_vector():
    assert initializer.compute_fans(MATRIX) == (300, 200)
    assert initializer.compute_fans(KERNEL) == (32 * 9, 64 * 9)
    assert initializer.compute_fans((49,)) == (7, 7)
    assert initializer.compute_fans(()) == (1, 1)


UNIFORM = {
    "lecun_uniform": lambda i, o: math.sqrt(3 / i),
    "glorot_uniform": lambda i, o: math.sqrt(6 / (i + o)),
    "he_uniform": lambda i, o: math.sqrt(6 / i),
    "fan_in_uniform": lambda i, o: math.sqrt(1 / i),
}
NORMAL = {
    "lecun_normal": lambda i, o: math.sqrt(1 / i),
    "glorot_normal": lambda i, o: math.sqrt(2 / (i + o)),
    "he_normal": lambda i, o: math.sqrt(2 / i),
    "he_normal_fan_out": lambda i, o: math.sqrt(2 / o),
}


@pytest.mark.parametrize("shape", [MATRIX, KERNEL])
@pytest.mark.parametrize("name", UNIFORM)
def test_uniform(name, shape):
    values = filled(getattr(initializer, name), shape)
    limit = UNIFORM[name](*initializer.compute_fans(shape))
    assert np.abs(values).max() <= limit * (1 + 1e-6)
    assert np.abs(values).max() > 0.99 * limit
    assert values.std() == pytest.approx(limit / math.sqrt(3), rel=0.02)
    assert values.mean() == pytest.approx(0, abs=0.02 * limit)


@pytest.mark.parametrize("shape", [MATRIX, KERNEL])
@pytest.mark.parametrize("name", NORMAL)
def test_normal(name, shape):
    values = filled(getattr(initializer, name), shape)
    std = NORMAL[name](*initializer.compute_fans(shape))
    assert values.std() == pytest.approx(std, rel=0.02)
    assert values.mean() == pytest.approx(0, abs=0.02 * std)
    assert np.abs(values).max() > 3 * std  # not truncated


def test_given_fans():
    assert filled(initializer.gaussian, MATRIX, fan_in=50).std() == pytest.approx(0.2, rel=0.02)
    both = filled(initializer.gaussian, MATRIX, fan_in=60, fan_out=40)
    assert both.std() == pytest.approx(0.2, rel=0.02)
    assert np.abs(filled(initializer.uniform, MATRIX, fan_out=300)).max() == pytest.approx(
        0.1, rel=0.01
    )
    with pytest.raises(ValueError, match="fans"):
        initializer.gaussian(tensor.Tensor(MATRIX), fan_in=-3, fan_out=2)


def test_old_names():
    assert np.abs(filled(initializer.xavier, MATRIX)).max() == pytest.approx(
        math.sqrt(6 / 500), rel=0.01
    )
    assert filled(initializer.glorot, MATRIX).std() == pytest.approx(math.sqrt(2 / 500), rel=0.02)
    assert filled(initializer.msra, MATRIX).std() == pytest.approx(math.sqrt(2 / 300), rel=0.02)
    with pytest.raises(ValueError, match=r"\[msra\] expected a matrix"):
        initializer.msra(tensor.Tensor((3,)))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (6, 2, 3, 3)])
def test_orthogonal(shape):
    values = filled(initializer.orthogonal, shape, gain=2.0).reshape(shape[0], -1)
    small = values @ values.T if values.shape[0] <= values.shape[1] else values.T @ values
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_orthogonal_in_float64():
    t = tensor.Tensor((20, 30), dtype=tensor.float64)
    initializer.orthogonal(t)
    np.testing.assert_allclose(t.numpy() @ t.numpy().T, np.eye(20), atol=1e-14)


def test_eye():
    np.testing.assert_array_equal(filled(initializer.eye, (3, 4)), np.eye(3, 4))
    with pytest.raises(ValueError, match="expected a matrix"):
        initializer.eye(tensor.Tensor((2, 2, 2)))


def test_same_seed_same_values():
    first = filled(initializer.he_normal, KERNEL)
    np.testing.assert_array_equal(first, filled(initializer.he_normal, KERNEL))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"scale": 0.0, "mode": "fan_in", "distribution": "normal"}, "scale must be positive"),
        (
            {"scale": 1.0, "mode": "fan", "distribution": "normal"},
            "mode must be 'fan_in', ",
        ),
        ({"scale": 1.0, "mode": "fan_in", "distribution": "gamma"}, "distribution must be"),
    ],
)
def test_wrong_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        initializer.variance_scaling(tensor.Tensor(MATRIX), **kwargs)
