"""Running results and differences at corners: NaN, infinities, empty axes, numbers, all types."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from singa import autograd, tensor

pytestmark = pytest.mark.usefixtures("training")

_FUNCTIONS = ("cumprod", "logcumsumexp", "cummax", "cummin")
_CORNERS = np.float32(
    [[1, np.nan, 2, np.inf, 3], [-np.inf, -np.inf, np.inf, -np.inf, 0], [3, 1, 3, 1, 3]]
)


def _tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, tuple) else (results,)


def _compare(name: str, x: Any, axis: int, torch: ModuleType) -> None:
    got = _tuple(getattr(autograd, name)(tensor.from_numpy(x, dtype=x.dtype.name), axis))
    expected = _tuple(getattr(torch, name)(torch.tensor(x), axis))
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)
        assert tuple(ours.shape) == tuple(theirs.shape)


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_nan_and_infinities_are_pytorchs(name: str, torch: ModuleType) -> None:
    for axis in (0, 1):
        _compare(name, _CORNERS, axis, torch)


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_numbers_and_empty_axes(name: str, torch: ModuleType) -> None:
    for axis in (0, -1):
        _compare(name, np.float32(2.5), axis, torch)
        _compare(name, np.zeros((2, 0), np.float32), axis, torch)
        _compare(name, np.ones((2, 1), np.float32), axis, torch)
    with pytest.raises(ValueError, match=rf"\[{name}\] axis 2 is outside .* \(3, 5\)"):
        getattr(autograd, name)(tensor.from_numpy(_CORNERS), 2)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float64"])
def test_types_are_pytorchs(dtype: str, torch: ModuleType) -> None:
    x = np.random.default_rng(0).integers(0, 5, (3, 9)).astype(dtype)
    for name in ("cumprod", "cummax", "cummin", "diff"):
        _compare(name, x, 1, torch)


def test_half_types_are_computed_in_float32() -> None:
    x = np.random.default_rng(0).uniform(0.9, 1.1, 300).astype(np.float32)
    for dtype in ("float16", "bfloat16"):
        t = tensor.from_numpy(x).as_type(dtype)
        for name in ("cumprod", "logcumsumexp"):
            y = getattr(autograd, name)(t, 0)
            wide = getattr(autograd, name)(t.as_type("float32"), 0)
            assert y.dtype.name == dtype
            np.testing.assert_array_equal(y.numpy(), wide.as_type(dtype).numpy())


def test_gradients_pass_zeros_and_infinities(torch: ModuleType) -> None:
    for name, x in (
        ("cumprod", [2.0, 0.0, 3.0, 0.0, 4.0]),
        ("logcumsumexp", [-700.0, 800.0, 799.0, -np.inf, 3.0]),
        ("cummax", [1.0, 5.0, 2.0, 5.0, 3.0]),
    ):
        t = tensor.Tensor(data=np.float64(x), dtype="float64", stores_grad=True)
        theirs = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        dy = np.arange(1.0, 6.0)
        y = _tuple(getattr(autograd, name)(t, 0))[0]
        _tuple(getattr(torch, name)(theirs, 0))[0].backward(torch.tensor(dy))
        got = autograd.gradients(y, dy)[t]
        np.testing.assert_allclose(got.numpy(), theirs.grad.numpy(), rtol=1e-12)


def test_differences_of_few_elements(torch: ModuleType) -> None:
    for shape, n in (((3,), 2), ((3,), 3), ((3,), 5), ((1, 4), 0), ((0,), 1), ((2, 0), 1)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) ** 2
        got, theirs = autograd.diff(tensor.from_numpy(x), n), torch.diff(torch.tensor(x), n)
        np.testing.assert_array_equal(got.numpy(), theirs.numpy())
    bools = np.array([True, True, False, True])
    got = autograd.diff(tensor.from_numpy(bools))
    assert got.dtype == tensor.bool_
    np.testing.assert_array_equal(got.numpy(), np.diff(bools))
    with pytest.raises(ValueError, match=r"\[diff\] a tensor without axes"):
        autograd.diff(tensor.Tensor(data=1.0))


_REDUCTIONS = ("sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin")


@pytest.mark.parametrize("name", _REDUCTIONS)
def test_a_number_has_axis_0(name: str, torch: ModuleType) -> None:
    """As PyTorch's; NumPy raises."""
    t, theirs = tensor.Tensor(data=2.5), torch.tensor(2.5)
    method = {"max": "amax", "min": "amin"}.get(name, name)
    for axis in (0, -1):
        for keep in (False, True):
            got = getattr(t, name)(axis, keep)
            expected = getattr(theirs, method)(dim=axis, keepdim=keep)
            assert got.shape == tuple(expected.shape)
            np.testing.assert_array_equal(got.numpy(), expected.numpy())
    with pytest.raises(ValueError, match="axis 1"):
        getattr(t, name)(1)


def test_the_sum_of_a_number_has_a_gradient() -> None:
    x = tensor.Tensor(data=2.5, stores_grad=True)
    for name in ("sum", "mean", "max", "prod"):
        got = autograd.gradients(getattr(x, name)(0), np.float32(3.0))[x]
        np.testing.assert_array_equal(got.numpy(), np.float32(3.0))
