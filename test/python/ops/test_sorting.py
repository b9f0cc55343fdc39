"""Sorting, running sums, ranges, and the positions that go with them."""

from __future__ import annotations

import numpy as np
import pytest
import singa
from singa import autograd, tensor

pytestmark = pytest.mark.usefixtures("training")


def test_ties_keep_their_order() -> None:
    x = tensor.from_numpy(np.array([[3.0, 1.0, 3.0, -0.0, 0.0, 3.0]], np.float32))
    values, indices = autograd.topk(x, 4)
    np.testing.assert_array_equal(values.numpy(), [[3, 3, 3, 1]])
    np.testing.assert_array_equal(indices.numpy(), [[0, 2, 5, 1]])
    assert indices.dtype == tensor.int64
    np.testing.assert_array_equal(autograd.argsort(x).numpy(), [[3, 4, 1, 0, 2, 5]])
    down = autograd.argsort(x, descending=True).numpy()
    np.testing.assert_array_equal(down, [[0, 2, 5, 1, 3, 4]])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint8"])
def test_sort_is_numpys(dtype: str) -> None:
    rng = np.random.default_rng(1)
    for axis in (0, 1, -1):
        x = rng.integers(0, 9, (4, 30, 5)).astype(dtype)
        values, indices = autograd.sort(tensor.from_numpy(x, dtype=dtype), axis)
        np.testing.assert_array_equal(values.numpy(), np.sort(x, axis))
        np.testing.assert_array_equal(indices.numpy(), np.argsort(x, axis, kind="stable"))


def test_indices_have_no_gradient_and_values_have_one() -> None:
    x = tensor.Tensor(data=np.array([[1.0, 5.0, 2.0], [7.0, 0.0, 7.0]]), stores_grad=True)
    values, indices = autograd.topk(x, 2, largest=True)
    assert not indices.requires_grad
    gradient = autograd.gradients(values, np.array([[10, 20], [30, 40]], np.float32))[x]
    np.testing.assert_array_equal(gradient.numpy(), [[0, 10, 20], [30, 0, 40]])


def test_gradients_of_equal_indices_are_summed_in_one_order() -> None:
    rng = np.random.default_rng(2)
    indices = rng.integers(0, 7, (500, 6))
    dy = rng.standard_normal((500, 6)).astype(np.float32)
    results = []
    values = rng.standard_normal((7, 6))
    for threads in (1, 2):
        before = singa.get_num_threads()
        singa.set_num_threads(threads)
        try:
            x = tensor.Tensor(data=values, stores_grad=True)
            y = autograd.gather_elements(x, indices, 0)
            results.append(autograd.gradients(y, dy)[x].numpy())
        finally:
            singa.set_num_threads(before)
    np.testing.assert_array_equal(*results)
    truth = np.zeros((7, 6))
    np.add.at(truth, (indices, np.arange(6)), dy)
    np.testing.assert_allclose(results[0], truth, rtol=1e-6, atol=1e-5)


def test_arange() -> None:
    for arguments in [(5,), (2, 9), (2, 9, 3), (9, 2, -2), (0.0, 1.0, 0.25), (3, 3)]:
        ours, truth = autograd.arange(*arguments), np.arange(*arguments)
        np.testing.assert_array_equal(ours.numpy(), truth)
        assert ours.dtype == (tensor.int64 if truth.dtype.kind == "i" else tensor.float32)
    assert autograd.arange(3, dtype="float64").dtype == tensor.float64
    assert not autograd.arange(3).requires_grad


def test_triangles_of_long_diagonals() -> None:
    x = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
    for k in (-(2**62), -3, -2, 3, 4, 2**62):
        near = int(np.clip(k, -10, 10))
        ours = tensor.from_numpy(x)
        np.testing.assert_array_equal(autograd.triu(ours, k).numpy(), np.triu(x, near))
        np.testing.assert_array_equal(autograd.tril(ours, k).numpy(), np.tril(x, near))
    x[0, 0] = np.nan
    assert autograd.triu(tensor.from_numpy(x), 1).numpy()[0, 0] == 0
