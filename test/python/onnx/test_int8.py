"""Quantized layers as operations on integers, beside the same nodes in float64."""

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx.reference import ReferenceEvaluator
from onnx_files import info, network, node
from singa import singa_wrap, tensor

Array = np.ndarray[Any, Any]
_RANDOM = np.random.default_rng(0)

needs_int8 = pytest.mark.skipif(
    not singa_wrap.ComputesInt8(tensor.Tensor((1,)).device),
    reason="this processor has no AVX-512 VNNI",
)


def _integers(kind: str, *shape: int) -> Array:
    limits = np.iinfo(kind)
    return _RANDOM.integers(limits.min, limits.max + 1, shape).astype(kind)


def _pair(name: str, scale: str, **attributes: Any) -> list[Any]:
    """QuantizeLinear and DequantizeLinear of a value, to name_q and name_f."""
    given = f"{scale}_scale {scale}_zero"
    return [
        node("QuantizeLinear", f"{name} {given}", f"{name}_q", **attributes),
        node("DequantizeLinear", f"{name}_q {given}", f"{name}_f", **attributes),
    ]


def _layer(op: str, kind: str, relu: bool, bias: str, ends: bool, **attributes: Any) -> Any:
    """x in steps → a layer → ReLU → y in steps, or y in floats."""
    conv = op == "Conv"
    w_shape = (6, 2, 3, 3) if conv else (6, 20) if attributes.get("transB") else (20, 6)
    axis = 0 if conv or attributes.get("transB") else 1
    weights = {
        "x_scale": np.array(0.02, np.float32), "x_zero": np.array(7, kind),
        "w_q": _integers("int8", *w_shape), "w_zero": np.zeros(6, np.int8),
        "w_scale": _RANDOM.uniform(0.005, 0.02, 6).astype(np.float32),
        "y_scale": np.array(0.11, np.float32), "y_zero": np.array(5, kind),
    }  # fmt: skip
    nodes = [*_pair("x", "x")]
    nodes.append(node("DequantizeLinear", "w_q w_scale w_zero", "w", axis=axis))
    if bias == "integers":
        weights["b_q"] = _RANDOM.integers(-3000, 3000, 6).astype(np.int32)
        weights["b_scale"] = weights["w_scale"] * np.float32(0.02)
        nodes.append(node("DequantizeLinear", "b_q b_scale", "b", axis=0))
    elif bias:
        weights["b"] = _RANDOM.standard_normal(6).astype(np.float32)
    nodes.append(node(op, "x_f w b" if bias else "x_f w", "h", "layer", **attributes))
    if relu:
        nodes.append(node("Relu", "h", "r"))
    last = "r" if relu else "h"
    if ends:
        nodes.append(node("QuantizeLinear", f"{last} y_scale y_zero", "y"))
    x = (3, 4, 7, 6) if conv else (5, 20)
    outputs = [info("y" if ends else last, None, kind if ends else "float32")]
    return network(nodes, [info("x", x)], outputs, weights)


def _plain(shape: tuple[int, ...]) -> Array:
    return _RANDOM.uniform(-2, 3, shape).astype(np.float32)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("op", "relu", "bias", "attributes"),
    [
        ("Conv", True, "integers", {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 2]}),
        ("Conv", False, "floats", {"group": 2, "dilations": [1, 2], "pads": [1, 2, 1, 2]}),
        ("Gemm", True, "integers", {"transB": 1}),
        ("Gemm", False, "floats", {}),
        ("MatMul", True, "", {}),
    ],
)
def test_layers(
    op: str, relu: bool, bias: str, attributes: dict[str, Any], kind: str, ends: bool
) -> None:
    """Executed and replayed, each integer is at most one step from that of the nodes."""
    model = _layer(op, kind, relu, bias, ends, **attributes)
    x = _plain(tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim))
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    net = singa.onnx.load(model)
    fused = {step.node.op for step in net.network().main.steps}
    assert f"Quantized{op}" in fused
    assert op not in fused
    given = tensor.from_numpy(x)
    net.compile([given], is_train=False, use_graph=True)
    for _ in range(4):
        found = net(given).numpy()
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        if ends:
            apart = np.abs(found.astype(int) - wanted.astype(int))
            assert apart.max() <= 1
            assert len(np.unique(found)) > 10
        else:
            np.testing.assert_allclose(found, wanted, atol=2e-5 * np.abs(wanted).max())


def _fused(model: Any) -> tuple[Any, list[str]]:
    """The network, and the operators of its steps."""
    net = singa.onnx.load(model)
    return net, [step.node.op for step in net.network().main.steps]


def _steps_apart(net: Any, wanted: Array, x: Array) -> int:
    """The largest difference in integers, executed and replayed."""
    given = tensor.from_numpy(x)
    net.compile([given], is_train=False, use_graph=True)
    found = [net(given).numpy() for _ in range(4)][-1]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert len(np.unique(found)) > 2
    return int(np.abs(found.astype(int) - wanted.astype(int)).max())


@pytest.mark.parametrize(
    ("kind", "zero", "low", "high", "fused"),
    [
        ("uint8", 0, 0.0, 6.0, True),  # 6 is 255 steps: the integers are limited as Clip does
        ("uint8", 0, 0.0, 5.9, False),
        ("uint8", 9, 0.0, 6.0, True),  # ReLU is left
        ("uint8", 9, -1.0, 6.0, True),
        ("uint8", 99, -1.0, 6.0, False),
        ("int8", -128, 0.0, 6.0, True),
        ("int8", 0, 0.0, 6.0, True),
        ("int8", 0, 0.0, 2.0, False),
    ],
)
def test_clip(kind: str, zero: int, low: float, high: float, fused: bool) -> None:
    """Clip before a rounding is left out where the range of the integers limits them as well."""
    model = _layer("Gemm", kind, True, "floats", True)
    (relu,) = [n for n in model.graph.node if n.op_type == "Relu"]
    relu.CopyFrom(node("Clip", "h low high", "r"))
    kept = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    kept |= {"low": np.array(low, np.float32), "high": np.array(high, np.float32)}
    kept |= {"y_zero": np.array(zero, kind), "y_scale": np.array(6 / 255, np.float32)}
    kept["b"] = np.linspace(-3, 9, 6, dtype=np.float32)
    del model.graph.initializer[:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in kept.items())
    x = _plain((5, 20))
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    net, operators = _fused(model)
    assert ("Clip" not in operators) == fused
    assert _steps_apart(net, wanted, x) <= 1


def _gelu(x: str, y: str) -> list[Any]:
    return [
        node("Div", f"{x} root", "g1"),
        node("Erf", "g1", "g2"),
        node("Add", "g2 one", "g3"),
        node("Mul", f"{x} g3", "g4"),
        node("Mul", "g4 half", y),
    ]


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("gelu", ["nodes", "operator", ""])
def test_product_bias_and_gelu(gelu: str, ends: bool) -> None:
    """MatMul, Add of a vector and GELU, as exporters write the layers of transformers."""
    nodes = [*_pair("x", "x"), node("DequantizeLinear", "w_q w_scale w_zero", "w", axis=1)]
    nodes += [node("MatMul", "x_f w", "p"), node("Add", "b p", "h")]
    nodes += _gelu("h", "g") if gelu == "nodes" else [node("Gelu", "h", "g")] if gelu else []
    last = "g" if gelu else "h"
    if ends:
        nodes.append(node("QuantizeLinear", f"{last} y_scale y_zero", "y"))
    weights = {
        "x_scale": np.array(0.02, np.float32), "x_zero": np.array(7, np.uint8),
        "w_q": _integers("int8", 20, 6), "w_zero": np.zeros(6, np.int8),
        "w_scale": _RANDOM.uniform(0.005, 0.01, 6).astype(np.float32),
        "b": _RANDOM.standard_normal(6).astype(np.float32),
        "y_scale": np.array(0.05, np.float32), "y_zero": np.array(5, np.uint8),
        "root": np.array(np.sqrt(2), np.float32), "one": np.array(1, np.float32),
        "half": np.array(0.5, np.float32),
    }  # fmt: skip
    outputs = [info("y" if ends else last, None, "uint8" if ends else "float32")]
    model = network(nodes, [info("x", (2, 5, 20))], outputs, weights)
    x = _plain((2, 5, 20))
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    net, operators = _fused(model)
    assert "QuantizedMatMul" in operators
    assert "Add" not in operators
    if ends:
        assert operators == ["QuantizeLinear", "QuantizedMatMul"]
        assert _steps_apart(net, wanted, x) <= 1
    else:
        given = tensor.from_numpy(x)
        np.testing.assert_allclose(net(given).numpy(), wanted, atol=2e-5)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("same", [True, False])
def test_choosing_steps_pass_integers_on(kind: str, same: bool) -> None:
    """A maximum, a permutation and a reshape between values that are quantized alike."""
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [*_pair("x", "x"), node("MaxPool", "x_f", "m", **window), *_pair("m", "x")]
    nodes += [node("Transpose", "m_f", "t", perm=[0, 2, 3, 1]), *_pair("t", "x")]
    nodes += [node("Flatten", "t_f", "f")]
    nodes += [node("QuantizeLinear", "f x_scale x_zero" if same else "f y_scale x_zero", "y")]
    weights: dict[str, Array] = {"x_scale": np.array(0.02, np.float32), "x_zero": np.array(7, kind)}
    weights["y_scale"] = np.array(0.03, np.float32)
    model = network(nodes, [info("x", (2, 5, 9, 8))], [info("y", None, kind)], weights)
    x = _plain((2, 5, 9, 8))
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    net, operators = _fused(model)
    assert operators[1:3] == ["QuantizedMaxPool", "QuantizedTranspose"]
    assert (operators[3:] == ["QuantizedFlatten"]) == same
    assert _steps_apart(net, wanted, x) == 0


@needs_int8
def test_products_are_of_bytes() -> None:
    model = _layer("Conv", "uint8", True, "integers", True, group=2)
    net, x = singa.onnx.load(model), tensor.from_numpy(_plain((3, 4, 7, 6)))
    net(x)
    with singa.profile() as profile:
        net(x)
    text = str(profile)
    assert "QuantizedConv" in text
    assert "ConvForward" not in text


def _residual(weights: dict[str, Array]) -> Any:
    nodes = [
        *_pair("a", "a"),
        *_pair("b", "b"),
        node("Add", "a_f b_f", "s"),
        node("Relu", "s", "r"),
    ]
    nodes += [*_pair("r", "r"), node("Identity", "r_q", "y"), node("Add", "r_f a_f", "z")]
    shape = (2, 3, 5, 4)
    inputs = [info("a", shape), info("b", shape)]
    return network(nodes, inputs, [info("y", None, "int8"), info("z")], weights)


def test_sums_are_those_of_the_nodes() -> None:
    """Bit by bit; a value that others read as floats is dequantized for them."""
    weights: dict[str, Array] = {}
    for name, scale, zero in (("a", 0.02, 3), ("b", 0.031, -20), ("r", 0.027, -128)):
        weights[f"{name}_scale"] = np.array(scale, np.float32)
        weights[f"{name}_zero"] = np.array(zero, np.int8)
    model = _residual(weights)
    given = [_plain((2, 3, 5, 4)) for _ in range(2)]
    wanted = ReferenceEvaluator(model).run(None, dict(zip("ab", given, strict=True)))
    net = singa.onnx.load(model)
    assert "QuantizedAdd" in {step.node.op for step in net.network().main.steps}
    found = net(*(tensor.from_numpy(x) for x in given))
    np.testing.assert_array_equal(found[0].numpy(), wanted[0])
    np.testing.assert_array_equal(found[1].numpy(), wanted[1])


@pytest.mark.parametrize(
    ("zero", "fused"),
    [
        (np.full(6, 128, np.uint8), True),  # as int8 with a zero point of 0
        (np.full(6, 90, np.uint8), False),  # 255 - 90 is no int8
    ],
)
def test_weights_of_other_zero_points(zero: Array, fused: bool) -> None:
    model = _layer("Gemm", "uint8", False, "", True)
    kept = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    kept |= {"w_q": _integers("uint8", 20, 6), "w_zero": zero}
    del model.graph.initializer[:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in kept.items())
    x = _plain((5, 20))
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    net = singa.onnx.load(model)
    assert ("QuantizedGemm" in {step.node.op for step in net.network().main.steps}) == fused
    found = net(tensor.from_numpy(x)).numpy()
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_training_computes_the_nodes() -> None:
    """The scales of the weights get the gradients that they have in float."""
    model = _layer("Gemm", "uint8", False, "floats", False)
    net = singa.onnx.load(model)
    x = tensor.from_numpy(_plain((5, 20)))
    net.train()
    net.set_optimizer(singa.opt.SGD(lr=0.1))
    before = {name: t.numpy().copy() for name, t in net.get_params().items()}
    net.train_one_batch(x, tensor.from_numpy(np.arange(5, dtype=np.int32)))
    changed = [name for name, t in net.get_params().items() if (t.numpy() != before[name]).any()]
    assert sorted(changed) == ["b", "w_scale"]
