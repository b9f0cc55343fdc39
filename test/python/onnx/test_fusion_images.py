"""Products, sums and padding of images that run as part of a batch norm or a convolution."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa
import singa.onnx
from onnx_files import info, network, node
from singa import autograd, tensor

_RANDOM = np.random.default_rng(0)
_W = _RANDOM.standard_normal((16, 3, 3, 3))
_SCALE, _SHIFT = _RANDOM.uniform(0.5, 1.5, (16, 1, 1)), _RANDOM.standard_normal((1, 16, 1, 1))
_X = _RANDOM.standard_normal((2, 3, 7, 6))


def _steps(net: Any) -> list[str]:
    return [step.node.op for step in net.network().main.steps]


def _net(nodes: list[Any], weights: dict[str, Any], kind: str, shape: Any = None) -> Any:
    stored = {n: a.astype(kind) if a.dtype.kind == "f" else a for n, a in weights.items()}
    shape = ["n", 3, "h", "w"] if shape is None else shape
    return singa.onnx.load(
        network(nodes, [info("x", shape, kind)], [info("y", [None] * 4, kind)], stored)
    )


def _reference(nodes: list[Any], weights: dict[str, Any], x: Any) -> Any:
    from onnx.reference import ReferenceEvaluator

    ends = [info("x", x.shape, "float64")], [info("y", [None] * 4, "float64")]
    return ReferenceEvaluator(network(nodes, *ends, weights)).run(None, {"x": x})[0]


_AFFINE = {
    "plain": [node("Add", "m shift", "y")],
    "relu": [node("Add", "shift m", "a"), node("Relu", "a", "y")],
    "relu6": [node("Add", "m shift", "a"), node("Clip", "a low high", "y")],
    "residual": [node("Add", "m shift", "a"), node("Add", "a c", "s"), node("Relu", "s", "y")],
    "silu": [node("Add", "m shift", "a"), node("Sigmoid", "a", "s"), node("Mul", "a s", "y")],
    "hardswish": [node("Add", "m shift", "a"), node("HardSwish", "a", "y")],
}


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("end", _AFFINE)
def test_scale_and_shift(end: str, kind: str) -> None:
    """One number per channel, as Keras's exporter leaves of batch norm: executed, replayed, and
    with training on. Images stay in blocks."""
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Mul", "c scale", "m"), *_AFFINE[end]]
    weights = {"w": _W, "scale": _SCALE, "shift": _SHIFT}
    weights |= {"low": np.array(0.0), "high": np.array(6.0)} if end == "relu6" else {}
    wanted = _reference(nodes, weights, _X)
    net = _net(nodes, weights, kind)
    assert _steps(net) == ["Conv", "+".join(each.op_type for each in nodes[1:])]
    x = tensor.from_numpy(_X, dtype=kind)
    # The reference has 1/6 of HardSwish as a float32.
    bound = 1e-12 if kind == "float64" and end != "hardswish" else 3e-6
    net.compile([x], is_train=False, use_graph=True)
    for _ in range(2):
        singa.layout_report()
        found = net(x).numpy()
        reorders = [r for r in singa.layout_report(record=False) if r["to"] == "plain"]
        np.testing.assert_allclose(found, wanted, rtol=bound, atol=bound * 10)
    assert len(reorders) <= 1  # for numpy()
    autograd.training = True
    np.testing.assert_allclose(net.forward(x).numpy(), wanted, rtol=bound, atol=bound * 10)


def test_scale_and_shift_have_gradients() -> None:
    nodes = [node("Mul", "x scale", "m"), node("Add", "m shift", "a"), node("Relu", "a", "y")]
    weights = {"scale": _SCALE[:3], "shift": _SHIFT[:, :3]}
    found = []
    for outputs in ("y", "ym"):  # a product that is read twice stays
        ends = [info(name, [None] * 4, "float64") for name in outputs]
        model = network(nodes, [info("x", ["n", 3, "h", "w"], "float64")], ends, weights)
        net = singa.onnx.load(model)
        assert len(_steps(net)) == (1 if outputs == "y" else 3)
        x = tensor.from_numpy(_X, dtype="float64")
        x.requires_grad = x.stores_grad = True
        with autograd.enable_grad():
            y = net.values([x], ["y"])[0]
            total = autograd.reduce_sum(y * tensor.from_numpy(np.cos(_X), dtype="float64"))
            gradients = autograd.gradients(total)
        found.append([gradients[t].numpy() for t in (x, *net.get_params().values())])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("shape", [(16, 1, 1), (1, 16, 1, 1)])
def test_a_sum_behind_a_convolution_is_its_bias(shape: tuple[int, ...], front: bool) -> None:
    """It takes the same operations, besides copies of the bias, so images stay in blocks."""
    conv, last = node("Conv", "x w", "c", pads=[1] * 4), node("Conv", "a v", "y")
    nodes = [conv, node("Add", "b c" if front else "c b", "a"), last]
    weights = {"w": _W, "b": _SHIFT.reshape(shape), "v": _RANDOM.standard_normal((8, 16, 3, 3))}
    net = _net(nodes, weights, "float32")
    assert _steps(net) == ["Conv+Add", "Conv"]
    x = tensor.from_numpy(_X, dtype="float32")
    autograd.training = True

    def trained(net: Any) -> tuple[Any, Any, Any]:
        with singa.explain() as operations:
            y = net.forward(x)
            gradients = autograd.gradients(autograd.reduce_sum(y * y))
        return y, gradients, [each["op"] for each in operations if each["op"] != "Copy"]

    y, gradients, operations = trained(net)
    np.testing.assert_allclose(y.numpy(), _reference(nodes, weights, _X), rtol=1e-4, atol=1e-4)
    with_bias = [node("Conv", "x w b", "a", pads=[1] * 4), last]
    assert (
        operations == trained(_net(with_bias, {**weights, "b": _SHIFT[0, :, 0, 0]}, "float32"))[2]
    )
    # Each number of the bias is in all pixels of its channel.
    apart = _net(nodes, {**weights, "b": weights["b"] * np.ones((1, 1, 7, 6))}, "float32")
    other = autograd.gradients(autograd.reduce_sum(autograd.square(apart.forward(x))))
    wanted = other[apart.get_params()["b"]].numpy().sum((-2, -1), keepdims=True)
    found = gradients[net.get_params()["b"]].numpy()
    np.testing.assert_allclose(found, wanted.reshape(shape), rtol=1e-4, atol=1e-3)


def test_a_sum_behind_a_convolution_of_volumes_stays_apart() -> None:
    """Its axis of the same length is not that of the channels."""
    x, w = _RANDOM.standard_normal((1, 2, 3, 4, 5)), _RANDOM.standard_normal((3, 2, 1, 1, 1))
    b = _RANDOM.standard_normal((3, 1, 1))
    nodes = [node("Conv", "x w", "c"), node("Add", "c b", "y")]
    stored = {"w": w, "b": b}
    ends = [info("x", x.shape, "float64")], [info("y", [None] * 5, "float64")]
    net = singa.onnx.load(network(nodes, *ends, stored))
    found = net(tensor.from_numpy(x, dtype="float64")).numpy()
    np.testing.assert_allclose(found, _reference(nodes, stored, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(16, 1), (1, 1, 16, 1), (2, 16, 1, 1), (16, 7, 1)])
def test_other_products_stay_apart(shape: tuple[int, ...]) -> None:
    """Parameters with another axis than that of the channels."""
    if shape[-2] == 16:
        x, w = _RANDOM.standard_normal((2, 3, 16, 6)), _W
    else:
        x, w = _X, _W
    factor = _RANDOM.standard_normal(shape)
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 4),
        node("Mul", "c f", "m"),
        node("Add", "m f", "y"),
    ]
    wanted = _reference(nodes, {"w": w, "f": factor}, x)
    net = _net(nodes, {"w": w, "f": factor}, "float64")
    assert _steps(net) == ["Conv", "Mul", "Add"]
    found = net(tensor.from_numpy(x, dtype="float64")).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("pads", "value", "mode", "merged"),
    [
        ([0, 0, 0, 1, 0, 0, 2, 1], None, "constant", True),
        ([0, 0, 2, 0, 0, 0, 0, 3], 0.0, "constant", True),
        ([0, 0, 1, 1, 0, 0, 1, 1], 0.5, "constant", False),
        ([0, 0, 1, 1, 0, 0, 1, 1], None, "edge", False),
        ([0, 0, 2, 2, 0, 0, -1, 1], None, "constant", False),
        ([1, 0, 1, 1, 0, 0, 1, 1], None, "constant", False),
    ],
)
def test_padding_before_a_convolution(pads: Any, value: Any, mode: str, merged: bool) -> None:
    given = "x pads" + (" value" if value is not None else "")
    nodes = [
        node("Pad", given, "p", mode=mode),
        node("Conv", "p w", "y", strides=[2, 2], pads=[0, 1, 1, 0]),
    ]
    weights = {"pads": np.array(pads, np.int64), "w": _W}
    weights |= {} if value is None else {"value": np.array(value)}
    if min(pads) < 0:  # NumPy, and so the reference, does not take elements away
        stored = {**weights, "pads": np.maximum(weights["pads"], 0)}
        wanted = _reference(nodes, stored, _X[:, :, :-1])
    else:
        wanted = _reference(nodes, weights, _X)
    net = _net(nodes, weights, "float64")
    assert _steps(net) == (["Pad+Conv"] if merged else ["Pad", "Conv"])
    found = net(tensor.from_numpy(_X, dtype="float64")).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
