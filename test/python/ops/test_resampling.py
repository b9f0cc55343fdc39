"""Interpolation under PyTorch's and ONNX's arguments, over random sizes, types and layouts."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from singa import autograd, tensor
from trials import draws

pytestmark = pytest.mark.usefixtures("training")


def _both(torch: ModuleType, x: np.ndarray, dtype: str, tolerance: float, **arguments: Any) -> None:
    """The result and the gradient of `interpolate` are PyTorch's."""
    ours = tensor.Tensor(data=x, dtype=dtype, stores_grad=True)
    theirs = torch.tensor(x.astype(dtype)).requires_grad_()
    y = autograd.interpolate(ours, **arguments)
    truth = torch.nn.functional.interpolate(theirs, **arguments)
    np.testing.assert_allclose(y.numpy(), truth.detach().numpy(), rtol=0, atol=tolerance)
    dy = np.random.default_rng(1).standard_normal(y.shape).astype(dtype)
    truth.backward(torch.tensor(dy))
    gradient = autograd.gradients(y, dy)[ours].numpy()
    limit = tolerance * max(1.0, float(np.abs(gradient).max(initial=0.0)))
    np.testing.assert_allclose(gradient, theirs.grad.numpy(), rtol=0, atol=4 * limit)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_random_sizes(torch: ModuleType, mode: str, dtype: str, tolerance: float) -> None:
    rng = np.random.default_rng(2)
    for _ in range(draws(25)):
        x = rng.standard_normal(rng.integers(1, [3, 4, 9, 9]))
        size = [int(n) for n in rng.integers(1, 14, 2)]
        corners = (None,) if mode.startswith("nearest") else (None, True)
        for align_corners in corners:
            _both(torch, x, dtype, tolerance, size=size, mode=mode, align_corners=align_corners)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialias(torch: ModuleType, mode: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(draws(25)):
        x = rng.standard_normal(rng.integers(1, [3, 4, 12, 12]))
        # With one column PyTorch 2.13's result is not the one that its gradient belongs to.
        size = [int(rng.integers(1, 14)), int(rng.integers(2, 14))]
        _both(torch, x, "float64", 1e-12, size=size, mode=mode, antialias=True)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
def test_area(torch: ModuleType, dtype: str, tolerance: float) -> None:
    rng = np.random.default_rng(8)
    for _ in range(draws(25)):
        axes = int(rng.integers(1, 4))
        x = rng.standard_normal(rng.integers(1, [3, 4, 14, 9, 7][: 2 + axes]))
        size = [int(n) for n in rng.integers(1, 16, axes)]
        _both(torch, x, dtype, tolerance, size=size, mode="area")
        if x.shape[2] > 1:
            factors = [0.6, 2.3, 1.0][:axes]
            _both(torch, x, dtype, tolerance, scale_factor=factors, mode="area")


def test_area_has_no_corners() -> None:
    x = tensor.Tensor((1, 1, 4, 4))
    with pytest.raises(ValueError, match="align_corners has no meaning for mode 'area'"):
        autograd.interpolate(x, 2, mode="area", align_corners=False)


@pytest.mark.parametrize("recompute", [None, True])
def test_scale_factors(torch: ModuleType, recompute: bool | None) -> None:
    rng = np.random.default_rng(4)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        for scale in (2, 3.0, 1.5, 0.7, 2.3, (0.5, 4), (1.1, 1.5), (2.1, 1.19)):
            x = rng.standard_normal((2, 3, 7, 5))
            _both(
                torch, x, "float64", 1e-12, scale_factor=scale, mode=mode,
                recompute_scale_factor=recompute,
            )  # fmt: skip


@pytest.mark.parametrize("mode", ["linear", "bilinear", "trilinear", "bicubic"])
def test_factors_of_axes_that_keep_their_length(torch: ModuleType, mode: str) -> None:
    """The results are PyTorch's, whose gradients are not those of its results with `antialias`, nor
    for "bicubic" where all axes keep their length."""
    rng = np.random.default_rng(6)
    axes = {"linear": 1, "trilinear": 3}.get(mode, 2)
    x = rng.standard_normal((2, 3, 7, 5, 6)[: 2 + axes])
    for factors in ((1.1, 1.5, 1.15), (1.5, 1.1, 1.0), (1.1, 1.1, 1.1)):
        scale = factors[:axes]
        if mode != "bicubic" or max(scale) > 1.4:
            _both(torch, x, "float64", 1e-12, scale_factor=scale, mode=mode)
        if axes == 2:
            ours = tensor.Tensor(data=x, dtype="float64")
            y = autograd.interpolate(ours, None, scale, mode, antialias=True)
            truth = torch.nn.functional.interpolate(
                torch.tensor(x), None, scale, mode, antialias=True
            )
            np.testing.assert_allclose(y.numpy(), truth.numpy(), rtol=0, atol=1e-12)


def test_one_and_three_axes(torch: ModuleType) -> None:
    rng = np.random.default_rng(5)
    sequences, volumes = rng.standard_normal((2, 3, 7)), rng.standard_normal((2, 3, 4, 5, 6))
    for size in (3, 11):
        _both(torch, sequences, "float64", 1e-12, size=size, mode="linear", align_corners=True)
        _both(torch, volumes, "float64", 1e-12, size=(size, 4, 7), mode="trilinear")
        _both(torch, volumes, "float32", 2e-5, size=(size, 4, 7), mode="nearest")


def test_bfloat16_is_rounded_once() -> None:
    x = tensor.from_numpy(np.random.default_rng(6).standard_normal((2, 18, 5, 6), np.float32))
    narrow = x.as_type(tensor.bfloat16)
    for mode in ("nearest", "bilinear", "bicubic"):
        y = autograd.interpolate(narrow, scale_factor=2, mode=mode)
        assert y.dtype == tensor.bfloat16
        wide = autograd.interpolate(narrow.as_type(tensor.float32), scale_factor=2, mode=mode)
        np.testing.assert_array_equal(y.numpy(), wide.as_type(tensor.bfloat16).numpy())


@pytest.mark.cpu("blocks of channels are layouts of the CPU")
def test_blocked_images_stay_blocked() -> None:
    x = tensor.from_numpy(np.random.default_rng(8).standard_normal((2, 32, 6, 5), np.float32))
    blocked = autograd.to_blocked(x)
    y = autograd.interpolate(blocked, scale_factor=2, mode="bilinear")
    assert y.data.layout_name() == blocked.data.layout_name()
    want = autograd.interpolate(x, scale_factor=2, mode="bilinear").numpy()
    np.testing.assert_allclose(y.numpy(), want, rtol=0, atol=1e-6)


def test_resize_as_onnx() -> None:
    """Examples of ONNX's specification of Resize."""
    x = tensor.from_numpy(np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4))
    cases: list[tuple[dict[str, Any], list[list[float]]]] = [
        ({"scales": [1, 1, 0.6, 0.6], "mode": "linear"}, [[2.6666665, 4.3333331], [9.333333, 11]]),
        (
            {"scales": [1, 1, 0.6, 0.6], "mode": "linear",
             "coordinate_transformation_mode": "align_corners"},
            [[1, 4], [13, 16]],
        ),
        (
            {"scales": [1, 1, 0.8, 0.8], "mode": "cubic"},
            [[1.47119141, 2.78125, 4.08251953], [6.71142578, 8.02148438, 9.32275391],
             [11.91650391, 13.2265625, 14.52783203]],
        ),
        (
            {"scales": [1, 1, 0.8, 0.8], "mode": "cubic", "cubic_coeff_a": -0.5,
             "exclude_outside": True},
            [[1.36812675, 2.6695014, 4.0133367], [6.57362535, 7.875, 9.2188353],
             [11.94896657, 13.25034122, 14.59417652]],
        ),
        (
            {"sizes": [3, 3], "axes": [2, 3], "coordinate_transformation_mode": "half_pixel"},
            [[1, 2, 4], [5, 6, 8], [13, 14, 16]],
        ),
        (
            {"sizes": [2, 2], "axes": [-2, -1], "nearest_mode": "ceil",
             "coordinate_transformation_mode": "asymmetric"},
            [[1, 3], [9, 11]],
        ),
    ]  # fmt: skip
    for arguments, truth in cases:
        y = autograd.resize(x, **arguments).numpy()[0, 0]
        np.testing.assert_allclose(y, truth, rtol=1e-6, err_msg=str(arguments))


def test_nearest_keeps_other_types() -> None:
    for dtype in ("uint8", "int32", "int64", "bool"):
        x = np.arange(12).reshape(1, 1, 3, 4).astype(dtype)
        y = autograd.interpolate(tensor.from_numpy(x, dtype=dtype), scale_factor=2)
        assert y.numpy().dtype == x.dtype
        np.testing.assert_array_equal(y.numpy(), x.repeat(2, 2).repeat(2, 3))
