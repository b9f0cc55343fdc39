"""Operators of tensors of each element type, as NumPy's and PyTorch's."""

import numpy as np
import pytest
import singa
from singa import autograd, layer, singa_wrap, tensor
from typed_tensors import INTEGERS, TYPES, elements, of


def test_masks_are_joined_by_signs():
    x, y = np.array([1.0, -2.0, 3.0, -4.0], np.float32), np.array([1.0, 2.0, -3.0, -4.0])
    a, b = tensor.from_numpy(x) > 0, tensor.from_numpy(y) > 0
    m, n = x > 0, y > 0
    for ours, wanted in (
        (a & b, m & n), (a | b, m | n), (a ^ b, m ^ n), (~a, ~m), (a & True, m), (False | a, m),
        (a ^ n, m ^ n), (a & ~b | (~a & b), m ^ n),
    ):  # fmt: skip
        assert ours.dtype == tensor.bool_
        np.testing.assert_array_equal(ours.numpy(), wanted)
    np.testing.assert_array_equal(tensor.from_numpy(x)[a & ~b].numpy(), x[m & ~n])


@pytest.mark.parametrize("dtype", [t for t in TYPES if t != "bool"])
def test_positions_and_sums_along_each_axis_are_numpys(dtype):
    values = np.random.default_rng(5).integers(0, 20, (5, 4, 3))
    x = of(values, dtype)
    for axis in range(3):
        for ours_, theirs_ in (
            (autograd.argmax(x, axis), values.argmax(axis)),
            (autograd.argmin(x, axis), values.argmin(axis)),
            (autograd.cumsum(x, axis), values.cumsum(axis)),
        ):
            assert elements(ours_) == np.ravel(theirs_).tolist()


@pytest.mark.parametrize("dtype", TYPES)
def test_sort_of_all_types_is_numpys(dtype):
    values = np.random.default_rng(6).integers(0, 2 if dtype == "bool" else 20, (5, 4, 3))
    for axis in range(3):
        found, positions = autograd.sort(of(values, dtype), axis)
        assert elements(found.as_type("int32")) == np.sort(values, axis).ravel().tolist()
        assert elements(positions) == values.argsort(axis, kind="stable").ravel().tolist()


@pytest.mark.parametrize("labels", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_top_k_of_all_types(dtype, labels):
    rng = np.random.default_rng(7)
    scores = np.stack([rng.permutation(9) for _ in range(20)])
    truth = rng.integers(0, 9, 20)
    above = 8 - scores[np.arange(20), truth]
    for k in (1, 3):
        found = singa_wrap.CountTopK(of(scores, dtype).data, of(truth, labels).data, k)
        assert found == (above < k).sum()


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_every_kernel_of_images_of_other_types(training, dtype):
    """Those of the operator table are compared in float32."""
    x = of(np.random.default_rng(8).standard_normal((2, 16, 6, 6)), dtype)
    x.requires_grad = x.stores_grad = True
    with singa.opcheck(every_kernel=True) as check:
        for apply in (
            layer.GroupNorm(4, 16),
            lambda x: autograd.lrn(x, 5),
            lambda x: autograd.interpolate(x, 8, mode="bilinear"),
        ):
            for kept in (x, autograd.to_blocked(x)):
                y = apply(kept)
                autograd.gradients(y, np.ones(y.shape, np.float32))
    assert not [row for row in check.kernels() if row["failed"] and not row["refused"]]


@pytest.mark.parametrize(
    ("dtype", "rounding"), [("float64", 2**-44), ("float16", 2**-11), ("bfloat16", 2**-8)]
)
def test_gradient_of_lrn_without_saved_values(torch, dtype, rounding):
    """The sums of squares are computed again."""
    x, dy = (
        of(np.random.default_rng(seed).uniform(0.5, 2, (2, 6, 3, 3)), dtype) for seed in range(2)
    )
    arguments = 5, 0.5, 0.75, 1.5
    t, g = (torch.tensor(v.as_type("float64").numpy()) for v in (x, dy))
    y = torch.nn.functional.local_response_norm(t.requires_grad_(), *arguments)
    (expected,) = torch.autograd.grad(y, t, g)
    found = singa_wrap.LrnBackward(dy.data, x.data, None, None, *arguments)
    found = tensor.from_raw_tensor(found)
    assert found.dtype.name == dtype
    # dx is a difference of terms that are smaller than 2.
    assert elements(found) == pytest.approx(np.ravel(expected).tolist(), rel=0, abs=2 * rounding)


@pytest.mark.parametrize("dtype", TYPES)
def test_nonzero_of_all_types_is_numpys(dtype):
    values = np.random.default_rng(9).integers(0, 2, (5, 4, 3))
    found = singa_wrap.NonZero(of(values, dtype).data)
    assert tensor.from_raw_tensor(found).numpy().tolist() == [list(at) for at in values.nonzero()]


@pytest.mark.parametrize("indices", INTEGERS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int32"])
def test_one_hot_of_all_types(dtype, indices):
    positions = np.array([[2, 0, 3], [1, 1, 7]])
    kind = getattr(singa_wrap, "k" + dtype.capitalize())
    found = singa_wrap.OneHot(of(positions, indices).data, 4, 0.0, 3.0, 2, kind)
    rows = np.concatenate([3 * np.eye(4), np.zeros((4, 4))])[positions]
    assert tensor.from_raw_tensor(found).as_type("float64").numpy().tolist() == rows.tolist()
