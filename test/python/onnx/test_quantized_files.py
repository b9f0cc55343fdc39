"""Operators of quantised files, as onnxruntime.quantization writes them.

The oracle is onnx's reference evaluator, and ONNX Runtime for the operators that it adds to ONNX.
Weights lie within ±63, where the sums of two products do not saturate on processors without VNNI.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_files import info, network, node
from onnx_runtime import runtime_outputs
from singa import tensor
from singa.networks.element_types import HELD
from singa.networks.tensors import as_tensor
from singa.onnx.save import to_model

Array = np.ndarray[Any, Any]
_RANDOM = np.random.default_rng(0)
_MICROSOFT = "com.microsoft"


def _bytes(*shape: int) -> Array:
    return _RANDOM.integers(0, 256, shape).astype(np.uint8)


def _weight(*shape: int) -> Array:
    return _RANDOM.integers(-63, 64, shape).astype(np.int8)


def _floats(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _scales(*shape: int) -> Array:
    return _RANDOM.uniform(0.001, 0.02, shape).astype(np.float32)


def _scale(value: float) -> Array:
    return np.array(value, np.float32)


def _zero(value: int, kind: str = "uint8") -> Array:
    return np.array(value, kind)


def _model(
    op: str, arrays: Mapping[str, Array | None], given: int, version: int = 21, **attributes: Any
) -> Any:
    """One node. The first `given` arrays are inputs, the others initializers; None: left out."""
    domain = _MICROSOFT if attributes.pop("microsoft", False) else ""
    names = " ".join("-" if array is None else name for name, array in arrays.items())
    count = attributes.pop("outputs", 1)
    results = " ".join(f"y{i}" for i in range(count))
    present = {name: array for name, array in arrays.items() if array is not None}
    call = node(op, names, results, "call", domain=domain, **attributes)
    outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(count)]
    inputs = [
        info(name, present[name].shape, present[name].dtype.name) for name in [*arrays][:given]
    ]
    weights = dict([*present.items()][given:])
    imports = [helper.make_opsetid(_MICROSOFT, 1)]
    return network([call], inputs, outputs, weights, version, imports=imports)


def _results(model: Any, arrays: list[Array]) -> list[Array]:
    net = singa.onnx.load(model)
    device = tensor.Tensor((1,)).device
    values = net.values([as_tensor(array, device) for array in arrays], net.output_names)
    return [value.numpy() for value in values]


def _check_steps(found: list[Array], wanted: list[Any], most: int = 1) -> None:
    for y, expected in zip(found, wanted, strict=True):
        assert y.shape == expected.shape
        name = expected.dtype.name
        assert y.dtype.name == ("int32" if name in HELD else name)
        assert np.abs(y.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= most
        assert len(np.unique(y)) > 2


# Products and convolutions.

_CONV = {
    "x": _bytes(2, 4, 7, 6), "x_scale": _scale(0.02), "x_zero": _zero(100),
    "w": _weight(6, 2, 3, 3), "w_scale": _scales(6), "w_zero": np.zeros(6, np.int8),
    "y_scale": _scale(0.13), "y_zero": _zero(121),
    "bias": _RANDOM.integers(-900, 900, 6).astype(np.int32),
}  # fmt: skip
_MATMUL = {
    "a": _bytes(2, 5, 40), "a_scale": _scale(0.02), "a_zero": _zero(100),
    "b": _weight(40, 3), "b_scale": _scales(3), "b_zero": _weight(3),
    "y_scale": _scale(0.2), "y_zero": _zero(121),
}  # fmt: skip


def _without(arrays: Mapping[str, Array], *names: str) -> dict[str, Array | None]:
    return {name: None if name in names else array for name, array in arrays.items()}


def _steps_apart(model: Any, x: Array, most: int = 1) -> None:
    names = [value.name for value in model.graph.input]
    wanted = ReferenceEvaluator(model).run(None, dict(zip(names, [x], strict=True)))
    _check_steps(_results(model, [x]), wanted, most)


@pytest.mark.parametrize("fine", [1.0, 0.02])
@pytest.mark.parametrize("left_out", [(), ("bias",)])
def test_quantized_convolution(left_out: tuple[str, ...], fine: float) -> None:
    """In groups, with strides, padding and a scale for each channel; also with steps so small that
    most results saturate."""
    arrays = _without(_CONV, *left_out)
    arrays = {**arrays, "y_scale": _scale(0.13 * fine)}
    attributes = {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 2], "kernel_shape": [3, 3]}
    # The reference evaluator takes one scale of weights; ONNX Runtime takes one for each channel.
    model = _model("QLinearConv", arrays, 1, **attributes)
    x = _CONV["x"]
    _check_steps(_results(model, [x]), runtime_outputs(model, [x]))
    whole = _model(
        "QLinearConv",
        {**arrays, "w_scale": _scale(0.01), "w_zero": _zero(3, "int8")},
        1,
        **attributes,
    )
    _steps_apart(whole, x)


@pytest.mark.parametrize("zeros", [(), ("w_zero",), ("x_zero", "w_zero")])
def test_convolution_of_integers(zeros: tuple[str, ...]) -> None:
    """All sums are exact. The padding has the value of the zero point."""
    whole = {"x": _CONV["x"], "w": _CONV["w"], "x_zero": _zero(100), "w_zero": _zero(2, "int8")}
    arrays = {name: array for name, array in whole.items() if name not in zeros}
    model = _model("ConvInteger", arrays, 1, group=2, strides=[1, 2], pads=[1, 1, 0, 1])
    x = _CONV["x"]
    wide = x.astype(np.float64) - (0 if "x_zero" in zeros else 100)
    w = _CONV["w"].astype(np.float64) - (0 if "w_zero" in zeros else 2)
    conv = network(
        [node("Conv", "x w", "y", group=2, strides=[1, 2], pads=[1, 1, 0, 1])],
        [info("x", wide.shape, "float64"), info("w", w.shape, "float64")],
        [info("y", None, "float64")],
    )
    (wanted,) = ReferenceEvaluator(conv).run(None, {"x": wide, "w": w})
    (found,) = _results(model, [x])
    np.testing.assert_array_equal(found, wanted.astype(np.int32))


@pytest.mark.parametrize("length", [40, 300, 1500])
@pytest.mark.parametrize("constant", [True, False])
def test_product_of_integers(length: int, constant: bool) -> None:
    """All sums are exact, also where float32 would not hold them."""
    a, b, zeros = _bytes(2, 3, length) | 128, np.full((length, 4), -127, np.int8), _weight(4)
    arrays = {"a": a, "b": b, "a_zero": _zero(3), "b_zero": zeros}
    model = _model("MatMulInteger", arrays, 1 if constant else 2)
    wanted = (a.astype(np.int64) - 3) @ (b.astype(np.int64) - zeros)
    (found,) = _results(model, [a] if constant else [a, b])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("opset", [10, 21])
@pytest.mark.parametrize("step", [0.2, 0.002])
def test_quantized_product(opset: int, step: float) -> None:
    model = _model("QLinearMatMul", {**_MATMUL, "y_scale": _scale(step)}, 1, opset)
    _steps_apart(model, _MATMUL["a"])


def test_quantized_product_with_a_scale_for_each_row() -> None:
    arrays = {**_MATMUL, "a": _MATMUL["a"][0], "a_scale": _scales(5), "a_zero": _bytes(5)}
    model = _model("QLinearMatMul", arrays, 1)
    a, b = arrays["a"].astype(np.float64), arrays["b"].astype(np.float64)
    sums = (a - arrays["a_zero"][:, None]) @ (b - arrays["b_zero"])
    real = sums * arrays["a_scale"][:, None] * arrays["b_scale"] / arrays["y_scale"]
    wanted = np.clip(np.rint(real) + 121, 0, 255).astype(np.uint8)
    _check_steps(_results(model, [arrays["a"]]), [wanted])


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_matmul_of_wide_integers(kind: str) -> None:
    a, b = (_RANDOM.integers(-(2**30), 2**30, s).astype(kind) for s in ((2, 3, 4), (4, 5)))
    model = _model("MatMul", {"a": a, "b": b}, 2, version=13)
    (found,) = _results(model, [a, b])
    assert found.dtype.name == kind
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, a @ b)


# Values: to integers and back.


@pytest.mark.parametrize("opset", [11, 13, 19, 21, 23])
@pytest.mark.parametrize(("low", "high"), [(-1, 2), (0.5, 3), (-3, -0.5)])
def test_dynamic_quantization(opset: int, low: float, high: float) -> None:
    """The range of x, extended to 0."""
    x = _RANDOM.uniform(low, high, (3, 5)).astype(np.float32)
    model = _model("DynamicQuantizeLinear", {"x": x}, 1, opset, outputs=3)
    y, scale, zero = _results(model, [x])
    wanted = ReferenceEvaluator(model).run(None, {"x": x})
    _check_steps([y], wanted[:1])
    np.testing.assert_allclose(scale, wanted[1], rtol=1e-6)
    assert abs(int(zero) - int(wanted[2])) <= 1


def test_dynamic_quantization_of_zeros() -> None:
    """The scale is 1, where ONNX's formula divides by 0."""
    x = np.zeros((2, 3), np.float32)
    y, scale, zero = _results(_model("DynamicQuantizeLinear", {"x": x}, 1, outputs=3), [x])
    assert not y.any()
    assert (float(scale), int(zero)) == (1.0, 0)


@pytest.mark.parametrize(("microsoft", "opset"), [(True, 13), (False, 21)])
@pytest.mark.parametrize("kind", ["int16", "uint16", "int8", "uint8"])
def test_to_integers_and_back(kind: str, microsoft: bool, opset: int) -> None:
    x, limits = 2 * _floats(4, 6), np.iinfo(kind)
    scale, zero = (
        _scale(6 / (limits.max - limits.min)),
        _zero(limits.min // 2 + limits.max // 2, kind),
    )
    arrays = {"x": x, "scale": scale, "zero": zero}
    model = _model("QuantizeLinear", arrays, 1, opset, microsoft=microsoft)
    steps = np.rint(x.astype(np.float64) / scale) + zero.astype(np.int64)
    wanted = np.clip(steps, limits.min, limits.max).astype(kind)
    (found,) = _results(model, [x])
    _check_steps([found], [wanted])
    scales = _scales(6)
    back = {"q": wanted, "scale": scales, "zero": np.full(6, zero)}
    model = _model("DequantizeLinear", back, 1, opset, axis=-1, microsoft=microsoft)
    (y,) = _results(model, [wanted])
    exact = (wanted.astype(np.float64) - zero.astype(np.int64)) * scales
    np.testing.assert_allclose(y, exact, rtol=1e-6)


@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_weights_of_four_bits(kind: str) -> None:
    """With a scale for each block of two rows."""
    import ml_dtypes

    low = 0 if kind == "uint4" else -8
    q = _RANDOM.integers(low, low + 16, (4, 3)).astype(getattr(ml_dtypes, kind))
    scales = _scales(2, 3)
    weights = {"q": q, "scale": scales}
    nodes = [
        node("DequantizeLinear", "q scale", "w", axis=0, block_size=2),
        node("MatMul", "x w", "y"),
    ]
    x = _floats(5, 4)
    model = network(nodes, [info("x", x.shape)], [info("y")], weights)
    (found,) = _results(model, [x])
    wide = q.astype(np.float64) * scales.repeat(2, 0)
    np.testing.assert_allclose(found, x @ wide, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("as_array", [True, False])
def test_operators_between_quantization_of_other_widths(as_array: bool) -> None:
    """Those that the host computes get integers of the declared type: sums wrap around."""
    nodes = [
        node("Add", "x x", "a"),
        node("DequantizeLinear", "a scale zero", "f"),
        node("QuantizeLinear", "f scale zero", "q"),
        node("Add", "q x", "y"),
        node("Reshape", "y shape", "z"),
        node("DequantizeLinear", "z scale zero", "d"),
    ]
    weights = {"scale": _scale(0.5), "zero": _zero(0, "int16"), "shape": np.array([2, 2])}
    outputs = [info("y", [4], "int16"), info("d", [2, 2])]
    net = singa.onnx.load(network(nodes, [info("x", [4], "int16")], outputs, weights))
    x = np.array([30000, -20000, 12000, 7], np.int16)
    given = x if as_array else tensor.from_numpy(x.astype(np.int32), dtype="int32")
    y, d = net(given)
    with np.errstate(over="ignore"):
        wanted = x + x + x
    assert y.dtype == tensor.int32
    np.testing.assert_array_equal(y.numpy(), wanted)
    np.testing.assert_array_equal(d.numpy(), wanted.reshape(2, 2) * np.float32(0.5))


def test_integers_of_other_widths_are_saved() -> None:
    """Inputs and results are of int32 in singa, and so in the file that it writes."""
    zero, scale = _zero(0, "int16"), _scale(0.5)
    nodes = [
        node("DequantizeLinear", "x scale zero", "f"),
        node("Neg", "f", "g"),
        node("QuantizeLinear", "g scale zero", "y"),
    ]
    weights = {"scale": scale, "zero": zero}
    model = network(nodes, [info("x", [3], "int16")], [info("y", [3], "int16")], weights)
    net = singa.onnx.load(model)
    x = np.array([-30000, 5, 7], np.int32)
    proto = to_model(net, [tensor.from_numpy(x, dtype="int32")])
    np.testing.assert_array_equal(net(tensor.from_numpy(x, dtype="int32")).numpy(), -x)
    (y,) = runtime_outputs(proto, [x])
    assert y.dtype == np.int32
    np.testing.assert_array_equal(y, -x)


# Operators that ONNX Runtime adds.

_PAIR: dict[str, Array | None] = {
    "a": _bytes(2, 4, 6, 6), "a_scale": _scale(0.03), "a_zero": _zero(120),
    "b": _bytes(2, 4, 6, 6), "b_scale": _scale(0.05), "b_zero": _zero(90),
    "y_scale": _scale(0.07), "y_zero": _zero(110),
}  # fmt: skip


def _one(step: float, zero: int) -> dict[str, Array | None]:
    first = dict([*_PAIR.items()][:3])
    return {**first, "y_scale": _scale(step), "y_zero": _zero(zero)}


def _moved(names: str) -> dict[str, Array | None]:
    return {name: _PAIR[name] for name in names.split()}


_CALLS: dict[str, tuple[dict[str, Array | None], dict[str, Any]]] = {
    "QLinearAdd": (_PAIR, {}),
    "QLinearMul": (_PAIR, {}),
    "QLinearSigmoid": (_one(1 / 255, 0), {}),
    "QLinearLeakyRelu": (_one(0.03, 50), {"alpha": 0.1}),
    "QLinearSoftmax": (_one(1 / 256, 0), {"axis": -1, "opset": 13}),
    "QLinearSoftmax 11": (_one(1 / 256, 0), {"axis": 2, "opset": 11}),
    "QLinearAveragePool": (_one(0.03, 100), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "QLinearGlobalAveragePool": (_one(0.01, 100), {}),
    "QLinearConcat": (_moved("y_scale y_zero a a_scale a_zero b b_scale b_zero"), {"axis": 1}),
    "QLinearWhere": (
        {"c": _RANDOM.integers(0, 2, (2, 4, 6, 6)).astype(bool), **_PAIR},
        {},
    ),
    "QGemm": (
        {
            "a": _bytes(3, 5), "a_scale": _scale(0.02), "a_zero": _zero(100),
            "b": _weight(5, 8), "b_scale": _scales(8), "b_zero": np.zeros(8, np.int8),
            "c": _RANDOM.integers(-500, 500, 8).astype(np.int32),
            "y_scale": _scale(0.05), "y_zero": _zero(128),
        },
        {},
    ),
    "QGemm transposed": (
        {
            "a": _bytes(3, 5), "a_scale": _scale(0.02), "a_zero": _zero(100),
            "b": _weight(8, 5), "b_scale": _scales(8), "b_zero": np.zeros(8, np.int8), "c": None,
            "y_scale": _scale(0.05), "y_zero": _zero(128),
        },
        {"transB": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", _CALLS)
def test_operators_between_integers(call: str) -> None:
    arrays, attributes = _CALLS[call]
    model = _model(call.partition(" ")[0], arrays, 0, microsoft=True, **attributes)
    x = arrays["a"]
    assert x is not None
    at = [t.name for t in model.graph.initializer].index("a")
    del model.graph.initializer[at]
    model.graph.input.append(info("a", x.shape, "uint8"))
    _check_steps(_results(model, [x]), runtime_outputs(model, [x]))


def test_quantized_product_with_a_float_result() -> None:
    arrays = dict([*_CALLS["QGemm"][0].items()][:7])
    model = _model("QGemm", arrays, 1, microsoft=True)
    a = arrays["a"]
    (found,), (wanted,) = _results(model, [a]), runtime_outputs(model, [a])
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("with_sum", [True, False])
@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Relu", []),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.5, 0.6]),
        ("HardSigmoid", [0.3, 0.4]),
        ("Tanh", []),
        ("Sigmoid", []),
    ],
)
def test_convolution_with_an_activation(
    activation: str, parameters: list[float], with_sum: bool
) -> None:
    arrays: dict[str, Array | None] = {
        "x": _floats(2, 3, 7, 7),
        "w": _floats(4, 3, 3, 3),
        "b": _floats(4),
    }
    arrays |= {"z": _floats(2, 4, 7, 7)} if with_sum else {}
    attributes = {"activation_params": parameters} if parameters else {}
    model = _model(
        "FusedConv", arrays, 1, microsoft=True, activation=activation, pads=[1] * 4, **attributes
    )
    (found,), (wanted,) = _results(model, [arrays["x"]]), runtime_outputs(model, [arrays["x"]])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_dynamically_quantized_lstm(direction: str, per_channel: bool) -> None:
    """Input and state are quantised as ONNX Runtime does. Peepholes and first states, too."""
    n, hidden = 2 if direction == "bidirectional" else 1, 6
    shape = (n, 4 * hidden) if per_channel else (n,)
    arrays = {
        "x": _floats(5, 3, 4), "w": _weight(n, 4, 4 * hidden), "r": _weight(n, hidden, 4 * hidden),
        "b": _floats(n, 8 * hidden), "lengths": None, "h0": _floats(n, 3, hidden),
        "c0": _floats(n, 3, hidden), "p": _floats(n, 3 * hidden),
        "w_scale": _scales(*shape), "w_zero": np.zeros(shape, np.int8),
        "r_scale": _scales(*shape), "r_zero": np.zeros(shape, np.int8),
    }  # fmt: skip
    model = _model(
        "DynamicQuantizeLSTM", arrays, 1, microsoft=True, outputs=3, hidden_size=hidden,
        direction=direction,
    )  # fmt: skip
    x = arrays["x"]
    for y, wanted in zip(_results(model, [x]), runtime_outputs(model, [x]), strict=True):
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
def test_quantised_files_in_other_types(kind: str) -> None:
    """`dtype=` converts the floats between the integers, such as scales and their products."""
    weights = {
        "w": _weight(4, 3, 1, 1), "w_scale": _scale(0.01), "m": _weight(4, 2),
        "one": _scale(0.02), "at": _zero(128), "shape": np.array([-1, 4]),
    }  # fmt: skip
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("ConvInteger", "q w z", "i"),
        node("Cast", "i", "f", to=1),
        node("Mul", "s w_scale", "both"),
        node("Mul", "f both", "c"),
        node("QuantizeLinear", "c one at", "cq"),
        node("QLinearConcat", "one at cq one at cq one at", "joined", axis=0, domain=_MICROSOFT),
        node("Reshape", "joined shape", "rows"),
        node("MatMulInteger", "rows m at", "j"),
        node("Cast", "j", "y", to=1),
    ]
    imports = [helper.make_opsetid(_MICROSOFT, 1)]
    model = network(
        nodes, [info("x", [1, 3, 2, 2])], [info("y", [None, 2])], weights, imports=imports
    )
    x = _floats(1, 3, 2, 2)
    (wanted,) = runtime_outputs(model, [x])
    found = singa.onnx.load(model, dtype=kind)(tensor.from_numpy(x, dtype=kind))
    assert found.dtype.name == kind
    bound = 1e-6 if kind == "float64" else 0.03
    assert np.abs(found.numpy() - wanted).max() < bound * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("op", "names", "text"),
    [
        ("QLinearAdd", "x s z x - z s z", "input 4 is missing"),
        ("QLinearSigmoid", "x s z", "input 3 is missing"),
        ("QLinearConcat", "s z x s z x", "input 6 is missing"),
        ("QGemm", "x s z x s", "input 5 is missing"),
        ("DequantizeLinear", "x", "no scale"),
        ("QLinearAveragePool", "x s z s z", "channels_last"),
    ],
)
def test_calls_that_are_refused(op: str, names: str, text: str) -> None:
    """The onnx package does not check operators that are not ONNX's."""
    attributes = {"channels_last": 1} if text == "channels_last" else {}
    call = node(op, names, "y", "call", domain=_MICROSOFT, **attributes)
    weights = {"s": _scale(1), "z": _zero(0)}
    imports = [helper.make_opsetid(_MICROSOFT, 1)]
    inputs = [info("x", [1, 1, 2, 2], "uint8")]
    with pytest.raises(singa.onnx.UnsupportedError, match=rf"'call' .*{text}"):
        singa.onnx.load(network([call], inputs, [info("y")], weights, imports=imports))


def test_unknown_operators_of_onnx_runtime_are_named() -> None:
    model = _model("QAttention", {"x": _bytes(2, 3)}, 1, microsoft=True)
    with pytest.raises(singa.onnx.UnsupportedError, match=r"call.*com\.microsoft\.QAttention"):
        singa.onnx.load(model)


_JOINED: dict[str, tuple[dict[str, Array | None], dict[str, Any]]] = {
    "FastGelu": ({"x": _floats(2, 3, 4), "bias": _floats(4)}, {}),
    "FastGelu without bias": ({"x": 3 * _floats(2, 3, 4)}, {}),
    "SkipLayerNormalization": (
        {
            "x": _floats(2, 3, 4), "skip": _floats(2, 3, 4), "gamma": _floats(4),
            "beta": _floats(4), "bias": _floats(4),
        },
        {"epsilon": 1e-5},
    ),
    "SkipLayerNormalization without biases": (
        {"x": _floats(2, 3, 4), "skip": _floats(2, 3, 4), "gamma": _floats(4)},
        {},
    ),
    "FusedMatMul": (
        {"a": _floats(2, 4, 3), "b": _floats(5, 4)},
        {"transA": 1, "transB": 1, "alpha": 0.25},
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", _JOINED)
def test_operators_of_the_optimizer(call: str) -> None:
    """Quantised transformers have them."""
    arrays, attributes = _JOINED[call]
    model = _model(call.partition(" ")[0], arrays, 1, microsoft=True, **attributes)
    x = next(iter(arrays.values()))
    assert x is not None
    (found,), (wanted,) = _results(model, [x]), runtime_outputs(model, [x])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-6)


def test_the_sum_of_a_skipping_layer_norm() -> None:
    """The fourth output. The others between are training's."""
    x, skip, gamma = _floats(2, 4), _floats(2, 4), _floats(4)
    model = _model(
        "SkipLayerNormalization", {"x": x, "skip": skip, "gamma": gamma}, 1, microsoft=True
    )
    call = model.graph.node[0]
    call.output.extend(["", "", "total"])
    model.graph.output.append(helper.make_empty_tensor_value_info("total"))
    np.testing.assert_allclose(_results(model, [x])[1], x + skip, rtol=1e-6)
    call.output[1] = "mean"
    with pytest.raises(singa.onnx.UnsupportedError, match="the mean and variance as outputs"):
        singa.onnx.load(model)
