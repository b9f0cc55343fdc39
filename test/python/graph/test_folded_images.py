"""Recorded inference of a network of one's own: what scales and shifts channels behind a
convolution, and zeros in front of it, become a part of it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from recorded import graphs
from singa import autograd, layer, model, tensor
from singa.tensor import Tensor

_RANDOM = np.random.default_rng(0)
_X = [_RANDOM.standard_normal((2, 8, 9, 8)) for _ in range(2)]


def _parameter(*shape: int, low: float = -1.0) -> Tensor:
    return Tensor(data=_RANDOM.uniform(low, 2, shape), dtype="float64", stores_grad=True)


class Net(model.Model):
    """A function of an image and these layers and parameters."""

    def __init__(self, function: Callable[["Net", Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.conv = layer.Conv2d(16, 3, padding=1)
        self.strided = layer.Conv2d(16, 3, stride=2)
        self.depthwise = layer.Conv2d(8, 3, group=8)
        self.zeros = layer.ZeroPad2d((1, 2, 0, 1))
        self.scale, self.shift = _parameter(16, 1, 1, low=0.5), _parameter(1, 16, 1, 1)
        self.number = _parameter(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def _replayed(net: Net) -> list[str]:
    """The operations of a replay, without those that run once."""
    (graph,) = graphs(net)
    return re.findall(r"^  \d+ (\w+)", graph.ToString(), re.MULTILINE)


def _check(net: Net, kind: str, wanted: Callable[[Any], Any] | None = None) -> list[str]:
    """Compares replays with executions, and with NumPy's results in float64. Returns the operations
    of a replay, without reorders."""
    xs = [tensor.from_numpy(x, dtype=kind) for x in _X]
    net.compile([tensor.from_numpy(_X[0], dtype="float64")], is_train=False)
    net.to_type(kind)
    bound = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 0.03}[kind]
    executed = [net(x).numpy().astype(np.float64) for x in xs]
    net.graph(True)
    for _ in range(3):
        net(xs[0])
    for x, array, y in zip(xs, _X, executed, strict=True):
        found = net(x).numpy().astype(np.float64)
        np.testing.assert_allclose(found, y, rtol=0, atol=bound * np.abs(y).max())
        if wanted is not None and kind != "bfloat16":
            np.testing.assert_allclose(found, wanted(array), rtol=0, atol=bound * np.abs(y).max())
    return [name for name in _replayed(net) if name != "Reorder"]


def _convolved(x: Any, conv: layer.Conv2d, pads: tuple[int, int, int, int], step: int = 1) -> Any:
    """A convolution in float64, of an image with zeros before and after its rows and columns."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::step, ::step]
    W, b = (t.numpy().astype(np.float64) for t in (conv.W, conv.b))
    if conv.group == 1:
        return np.einsum("nchwij,ocij->nohw", windows, W) + b[:, None, None]
    return np.einsum("nchwij,cij->nchw", windows, W[:, 0]) + b[:, None, None]


_KINDS = ["float64", "float32", "bfloat16"]


@pytest.mark.parametrize("kind", _KINDS)
def test_scale_shift_and_relu_become_part_of_a_convolution(kind: str) -> None:
    def function(n: Net, x: Tensor) -> Tensor:
        return autograd.relu(autograd.add(n.shift, autograd.mul(n.conv(x), n.scale)))

    net = Net(function)

    def wanted(x: Any) -> Any:
        y = _convolved(x, net.conv, (1, 1, 1, 1))
        return np.maximum(y * net.scale.numpy() + net.shift.numpy(), 0)

    assert _check(net, kind, wanted) == ["ConvForward"]
    x = tensor.from_numpy(_X[0], dtype=kind)
    for parameter in (net.scale, net.shift, net.conv.W):  # prepared again
        parameter.set_value(0.75)
        found, y = net(x).numpy().astype(np.float64), wanted(_X[0])
        bound = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 0.03}[kind]
        np.testing.assert_allclose(found, y, rtol=0, atol=bound * np.abs(y).max())


@pytest.mark.parametrize(
    "function",
    [
        lambda n, x: autograd.mul(n.scale, n.conv(x)),
        lambda n, x: n.conv(x) + n.shift,
        lambda n, x: (n.conv(x) * n.number + n.shift) * n.scale + n.number,
        lambda n, x: autograd.silu(n.conv(x) * n.scale),
        lambda n, x: autograd.relu(n.conv(x) * n.scale + autograd.cat([x, x], 1)),
    ],
)
def test_other_chains_of_products_and_sums(function: Any) -> None:
    assert set(_check(Net(function), "float32")) <= {"ConvForward", "Silu", "Concat"}


@pytest.mark.parametrize(
    "function",
    [
        lambda n, x: n.conv(x) * n.conv.b.reshape((16, 1, 1)).sum(),  # computed
        lambda n, x: (n.conv(x) + autograd.cat([x, x], 1)) * n.scale,  # behind a residual
        lambda n, x: (lambda y: y * n.scale + y)(n.conv(x)),  # read twice
    ],
)
def test_other_products_stay(function: Any) -> None:
    assert {"Mul", "ChannelScale"} & set(_check(Net(function), "float32"))


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("depthwise", [False, True])
def test_zeros_become_the_padding_of_a_convolution(kind: str, depthwise: bool) -> None:
    net = Net(lambda n, x: (n.depthwise if depthwise else n.strided)(n.zeros(x)))

    def wanted(x: Any) -> Any:
        if depthwise:
            return _convolved(x, net.depthwise, (0, 1, 1, 2))
        return _convolved(x, net.strided, (0, 1, 1, 2), 2)

    assert _check(net, kind, wanted) == ["ConvForward"]


@pytest.mark.parametrize(
    ("mode", "pads", "value"),
    [
        ("constant", [0, 0, 1, 1, 0, 0, 1, 1], 0.5),
        ("constant", [0, 0, 1, 1, 0, 0, -1, 1], 0.0),
        ("constant", [0, 1, 1, 1, 0, -1, 1, 1], 0.0),
        ("constant", [0, 0, 3, 1, 0, 0, 1, 1], 0.0),
        ("reflect", [0, 0, 1, 1, 0, 0, 1, 1], 0.0),
    ],
)
def test_other_padding_stays(mode: str, pads: list[int], value: float) -> None:
    net = Net(lambda n, x: n.strided(autograd.pad(x, mode, pads, value)))
    assert _check(net, "float32") == ["Pad", "ConvForward"]


def test_a_sum_in_place_behind_a_convolution() -> None:
    def function(n: Net, x: Tensor) -> Tensor:
        y = n.conv(x)
        y += 1.5
        return autograd.relu(y)

    net = Net(function)
    _check(net, "float32", lambda x: np.maximum(_convolved(x, net.conv, (1, 1, 1, 1)) + 1.5, 0))
