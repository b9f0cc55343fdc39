"""Readers that compose operators, beside PyTorch and NumPy, with their gradients."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx_files import info, network, node
from singa import autograd, tensor

_RANDOM = np.random.default_rng(0)


def _grid_sample(axes: int, **attributes: Any) -> Any:
    model = network(
        [node("GridSample", "x grid", "y", **attributes)],
        [info("x", [None] * (axes + 2), "float64"), info("grid", [None] * (axes + 2), "float64")],
        [info("y", [None] * (axes + 2), "float64")],
    )
    return singa.onnx.load(model)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("axes", [2, 3])
def test_sampling_like_torch(
    torch: ModuleType, axes: int, mode: str, padding: str, align: bool
) -> None:
    """Positions inside and far outside, with gradients of image and positions."""
    lengths, spots = ((3, 5), (4, 2)) if axes == 2 else ((3, 2, 4), (2, 2, 3))
    x = _RANDOM.standard_normal((2, 3, *lengths))
    grid = _RANDOM.uniform(-2.6, 2.6, (2, *spots, axes))
    if mode == "cubic":
        if axes == 3:
            pytest.skip("PyTorch has no cubic sampling of volumes")
        if padding != "zeros":  # ONNX Runtime moves the positions first, PyTorch the elements
            grid = np.clip(grid, -0.55, 0.55)
    net = _grid_sample(axes, mode=mode, padding_mode=padding, align_corners=int(align))
    given = [tensor.from_numpy(a, dtype="float64") for a in (x, grid)]
    for t in given:
        t.stores_grad = True
    autograd.training = True
    y = net.forward(*given)
    weights = _RANDOM.standard_normal(tuple(y.shape))
    total = autograd.reduce_sum(y * tensor.from_numpy(weights, dtype="float64"))
    found = autograd.gradients(total)
    autograd.training = False
    pair = [torch.tensor(a, requires_grad=True) for a in (x, grid)]
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    wanted = torch.nn.functional.grid_sample(*pair, mode, padding, align)
    np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-11, atol=1e-12)
    (wanted * torch.tensor(weights)).sum().backward()
    for t, p in zip(given, pair, strict=True):
        gradient = found[t].numpy() if mode != "nearest" or t is given[0] else np.zeros(t.shape)
        np.testing.assert_allclose(gradient, p.grad.numpy(), rtol=1e-9, atol=1e-11)


def test_sampling_of_an_axis_of_one_element_and_far_away() -> None:
    """Reflection at one element, and positions beyond all integers."""
    x = np.full((1, 1, 1, 3), 2.0)
    grid = np.array([0.5, -0.3, 1e30, -1e30]).reshape(1, 1, 2, 2)
    for padding, far in (("zeros", 0.0), ("border", 2.0)):
        net = _grid_sample(2, padding_mode=padding, align_corners=1)
        y = net(*(tensor.from_numpy(a, dtype="float64") for a in (x, grid))).numpy()
        assert y[0, 0, 0, 1] == far
    net = _grid_sample(2, padding_mode="reflection", align_corners=1)
    grid = np.array([0.5, -0.3, -7.5, 9.0]).reshape(1, 1, 2, 2)
    y = net(*(tensor.from_numpy(a, dtype="float64") for a in (x, grid))).numpy()
    np.testing.assert_array_equal(y, 2.0)
    with pytest.raises(ValueError, match=r"\[GridSample\] grid"):
        net(*(tensor.from_numpy(a, dtype="float64") for a in (x, grid[..., :1])))


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("shape", [(1, 2), (5, 2), (8, 1), (0, 3)])
def test_cumulative_products(shape: tuple[int, ...], exclusive: int, reverse: int) -> None:
    model = network(
        [node("CumProd", "x axis", "y", exclusive=exclusive, reverse=reverse)],
        [info("x", ["n", "m"], "float64")],
        [info("y", ["n", "m"], "float64")],
        {"axis": np.array(-2, np.int64)},
        opset=26,
    )
    net = singa.onnx.load(model)
    x = _RANDOM.uniform(0.5, 1.5, shape) * _RANDOM.choice([-1, 1], shape)
    turned = x[::-1] if reverse else x
    wanted = np.cumprod(turned, 0)
    if exclusive and len(x):
        wanted = np.concatenate([np.ones((1, shape[1])), wanted[:-1]])
    wanted = wanted[::-1] if reverse else wanted
    given = tensor.from_numpy(x, dtype="float64")
    np.testing.assert_allclose(net(given).numpy(), wanted, rtol=1e-12)
    if len(x):
        assert autograd.gradcheck(net.forward, given)


@pytest.mark.parametrize("batch_first", [False, True])
def test_reversed_sequences(batch_first: bool) -> None:
    """Each to its own length, which may be 0 or 1, and wrong lengths."""
    axes = {"time_axis": int(batch_first), "batch_axis": int(not batch_first)}
    model = network(
        [node("ReverseSequence", "x lengths", "y", **axes)],
        [info("x", ["a", "b", 2], "float64"), info("lengths", ["c"], "int64")],
        [info("y", ["a", "b", 2], "float64")],
    )
    net = singa.onnx.load(model)
    x = _RANDOM.standard_normal((4, 5, 2))  # (batch, time, features)
    lengths = np.array([5, 0, 1, 3])
    wanted = x.copy()
    for row, n in enumerate(lengths):
        wanted[row, :n] = x[row, :n][::-1]
    turn = (lambda a: a) if batch_first else (lambda a: a.transpose(1, 0, 2).copy())
    given = tensor.from_numpy(turn(x), dtype="float64")
    found = net(given, tensor.from_numpy(lengths, dtype="int64")).numpy()
    np.testing.assert_array_equal(found, turn(wanted))
    for wrong in ([5, 0, 1, 6], [5, 0, 1], [-1, 0, 0, 0]):
        with pytest.raises(ValueError, match=r"\[ReverseSequence\] sequences of lengths"):
            net(given, tensor.from_numpy(np.array(wrong), dtype="int64"))


def test_bits_of_integers() -> None:
    nodes = [
        node("BitwiseAnd", "a b", "c"),
        node("BitwiseNot", "c", "d"),
        node("BitwiseXor", "d a", "e"),
        node("BitwiseOr", "e b", "y"),
    ]
    ends = [info(name, ["n"], "int32") for name in "ab"]
    net = singa.onnx.load(network(nodes, ends, [info("y", ["n"], "int32")]))
    a, b = _RANDOM.integers(-(2**31), 2**31, (2, 9)).astype(np.int32)
    found = net(*(tensor.from_numpy(v, dtype="int32") for v in (a, b))).numpy()
    np.testing.assert_array_equal(found, (~(a & b) ^ a) | b)
