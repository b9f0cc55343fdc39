"""Det and the indices of MaxPool, beside NumPy and PyTorch."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx_files import info, network, node
from singa import autograd, tensor

_RANDOM = np.random.default_rng(0)


def _det(rank: int = 2, kind: str = "float64") -> Any:
    ends = info("x", [None] * rank, kind), info("y", [None] * (rank - 2), kind)
    model = network([node("Det", "x", "y")], ends[:1], ends[1:], opset=22)
    return singa.onnx.load(model)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 3, 3), (2, 3, 6, 6), (0, 3, 3), (2, 0, 0)])
def test_determinants(shape: tuple[int, ...]) -> None:
    """With gradients, of matrices that need exchanges of rows and columns."""
    net, x = _det(len(shape)), _RANDOM.standard_normal(shape)
    if min(shape) > 1:
        x[..., 0, 0] = 0
    given = tensor.from_numpy(x, dtype="float64")
    found = net(given).numpy()
    np.testing.assert_allclose(found, np.linalg.det(x), rtol=1e-10, atol=1e-13)
    if x.size:
        assert autograd.gradcheck(net.forward, given)


def test_matrices_without_inverse() -> None:
    """Of rank n - 1 the gradient is that of the cofactors; of lower rank it is 0."""
    net = _det()
    for rank in (3, 2, 1, 0):
        x = _RANDOM.standard_normal((4, rank)) @ _RANDOM.standard_normal((rank, 4))
        if rank == 3:
            x = np.round(x * 4) / 4
            x[:, 2] = 0  # exactly
        elif rank < 3:
            x[:, 2:] = 0
        wanted = np.zeros((4, 4))
        for i in range(4):
            for j in range(4):
                minor = np.delete(np.delete(x, i, 0), j, 1)
                wanted[i, j] = (-1) ** (i + j) * np.linalg.det(minor)
        t = tensor.from_numpy(x, dtype="float64")
        t.requires_grad = t.stores_grad = True
        with autograd.enable_grad():
            gradient = autograd.gradients(net.forward(t))[t].numpy()
        assert float(net(tensor.from_numpy(x, dtype="float64")).numpy()) == 0
        np.testing.assert_allclose(gradient, wanted, rtol=1e-9, atol=1e-12)


def test_determinants_of_what_is_no_matrix() -> None:
    """A shape that is not square, and NaN."""
    with pytest.raises(ValueError, match=r"\[Det\] node 'Det_0': x has shape \(2, 3\)"):
        _det()(tensor.from_numpy(np.ones((2, 3)), dtype="float64"))
    x = np.eye(3, dtype=np.float32)
    x[1, 2] = np.nan
    assert np.isnan(_det(kind="float32")(tensor.from_numpy(x)).numpy())


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_indices_of_pooling(torch: ModuleType, axes: int, dilation: int, ceil_mode: int) -> None:
    """PyTorch's, counted through the whole tensor, of images with equal elements; two sizes."""
    options = {"kernel_shape": [3] * axes, "strides": [2] * axes, "pads": [1] * (2 * axes)}
    model = network(
        [node("MaxPool", "x", "y i", dilations=[dilation] * axes, ceil_mode=ceil_mode, **options)],
        [info("x", [None] * (axes + 2))],
        [info("y", [None] * (axes + 2)), info("i", [None] * (axes + 2), "int64")],
        opset=22,
    )
    net = singa.onnx.load(model)
    pool = getattr(torch.nn.functional, f"max_pool{axes}d")
    for count, lengths in ((2, (8, 7, 6)), (1, (6, 9, 7))):
        x = _RANDOM.integers(-3, 3, (count, 3, *lengths[:axes])).astype(np.float32)
        y, places = net(tensor.from_numpy(x))
        best, wanted = pool(
            torch.tensor(x), 3, 2, 1, dilation, bool(ceil_mode), return_indices=True
        )
        np.testing.assert_array_equal(y.numpy(), best.numpy())
        images = np.arange(count * 3).reshape(count, 3, *(1,) * axes)
        size = int(np.prod(x.shape[2:]))
        np.testing.assert_array_equal(places.numpy(), wanted.numpy() + images * size)
        np.testing.assert_array_equal(x.reshape(-1)[places.numpy()], y.numpy())


def test_pooling_and_its_reverse_train() -> None:
    """An encoder and a decoder with the places between them have gradients."""
    nodes = [
        node("MaxPool", "x", "y i", kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxUnpool", "y i", "z", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    model = network(
        nodes, [info("x", [2, 2, 4, 6], "float64")], [info("z", [None] * 4, "float64")], opset=22
    )
    net = singa.onnx.load(model)
    x = _RANDOM.permutation(96).reshape(2, 2, 4, 6) / 7.0
    given = tensor.from_numpy(x, dtype="float64")
    best = x.reshape(2, 2, 2, 2, 3, 2).max((3, 5))
    found = net(given).numpy()
    np.testing.assert_array_equal(np.sort(found[found != 0]), np.sort(best[best != 0], axis=None))
    assert autograd.gradcheck(net.forward, given)
