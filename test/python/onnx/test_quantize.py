"""`Model.quantize`: the numbers in the file, what it leaves in float, and who runs the file."""

import collections
import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa
import singa.onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_files import info, network, node
from onnx_runtime import runtime_outputs
from singa import autograd, layer, model, tensor
from singa.model.above import OF_ABOVE
from singa.onnx import checking

Array = np.ndarray[Any, Any]


def _array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class _Residual(model.Model):
    """Convolutions with batch norm, one depthwise, a sum, pooling, and a fully connected layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = layer.Conv2d(3, 8, 3, padding=1), layer.BatchNorm2d(8)
        self.deep, self.deep_norm = layer.Conv2d(8, 8, 3, padding=1, group=8), layer.BatchNorm2d(8)
        self.pool, self.fc = layer.MaxPool2d(2, 2), layer.Linear(8, 5)

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        x = self.pool(autograd.relu(self.norm(self.first(x))))
        x = autograd.relu(self.deep_norm(self.deep(x)) + x)
        return self.fc(autograd.flatten(autograd.globalaveragepool(x)))


class _Linears(model.Model):
    """Two fully connected layers with ReLU between them."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.one, self.two = layer.Linear(6, width), layer.Linear(width, 3)

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.two(autograd.relu(self.one(x)))


def _ready(net: model.Model, *inputs: Array) -> model.Model:
    singa.seed(3)
    net.compile([tensor.from_numpy(x) for x in inputs], is_train=False)
    for i, (name, t) in enumerate(sorted(net.get_states().items())):
        if "running" in name or "norm" in name:  # numbers that batch norm would have learnt
            t.copy_from_numpy(np.abs(_array(*t.shape, seed=i)) + np.float32(0.2))
    return net.eval() or net


@pytest.fixture(scope="module")
def residual() -> model.Model:
    return _ready(_Residual(), _array(2, 3, 8, 8))


def _images() -> list[Array]:
    return [_array(4, 3, 8, 8, seed=seed) for seed in (1, 2)]


def _read(path: Path) -> tuple[Any, dict[str, Array]]:
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    return proto, {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}


def _apart(y: Array, wanted: Array) -> float:
    return float(np.linalg.norm(y.astype(np.float64) - wanted) / np.linalg.norm(wanted))


def test_the_file_has_integers_and_its_numbers_are_those_of_the_samples(
    residual: model.Model, tmp_path: Path
) -> None:
    """int8 weights with a scale for each output, uint8 values with one, and no batch norm."""
    path, samples = tmp_path / "net.onnx", _images()
    residual.quantize(samples, path)
    proto, arrays = _read(path)
    operators = collections.Counter(node.op_type for node in proto.graph.node)
    assert operators["BatchNormalization"] == 0
    assert operators["Conv"] == 2
    makers = {node.output[0]: node for node in proto.graph.node}
    states = {name: t.numpy().astype(np.float64) for name, t in residual.get_states().items()}
    for name, norm in (("first", "norm"), ("deep", "deep_norm")):
        conv = next(n for n in proto.graph.node if n.name == f"{name}/Conv")
        steps, scales, zeros = (arrays[n] for n in makers[conv.input[1]].input)
        factor = states[f"{norm}.scale"] / np.sqrt(states[f"{norm}.running_var"] + 1e-5)
        folded = states[f"{name}.W"] * factor[:, None, None, None]
        assert (steps.dtype, zeros.any()) == (np.int8, False)
        np.testing.assert_allclose(scales, np.abs(folded).max((1, 2, 3)) / 127, rtol=1e-6)
        assert np.abs(steps - folded / scales[:, None, None, None]).max() <= 0.501
        shift = states[f"{norm}.bias"] - states[f"{norm}.running_mean"] * factor
        shift += states[f"{name}.b"] * factor
        bias, bias_scales = (arrays[n] for n in makers[conv.input[2]].input[:2])
        x_scale = arrays[makers[conv.input[0]].input[1]]
        assert bias.dtype == np.int32
        np.testing.assert_allclose(bias_scales, scales * x_scale, rtol=1e-6)
        assert np.abs(bias - shift / (scales * x_scale)).max() <= 0.51
    first = next(node for node in proto.graph.node if node.op_type == "QuantizeLinear")
    assert first.input[0] == "x"
    low, high = min(x.min() for x in samples), max(x.max() for x in samples)
    scale, zero = (arrays[name] for name in first.input[1:])
    assert zero.dtype == np.uint8
    np.testing.assert_allclose(scale, (high - low) / 255, rtol=1e-6)
    assert zero == round(-low / scale)


def test_the_file_runs_everywhere(residual: model.Model, tmp_path: Path) -> None:
    """The network, the loaded file, onnx's reference evaluator and ONNX Runtime, for any batch."""
    path, samples = tmp_path / "net.onnx", _images()
    net = residual.quantize(samples, path)
    x = np.concatenate(samples)[:7]
    y = net(tensor.from_numpy(x)).numpy()
    np.testing.assert_array_equal(singa.onnx.load(path)(tensor.from_numpy(x)).numpy(), y)
    proto, _ = _read(path)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x})
    assert _apart(y, wanted) < 0.02
    assert _apart(runtime_outputs(proto, [x])[0], wanted) < 0.2  # without VNNI, sums saturate
    exact = residual(tensor.from_numpy(np.concatenate(samples))).numpy()
    found = net(tensor.from_numpy(np.concatenate(samples))).numpy()
    assert net.error == pytest.approx(_apart(found, exact), rel=0.01)
    assert 0.001 < net.error < 0.05
    assert net.float_layers == {}


def test_values_that_only_move_keep_their_scale(residual: model.Model, tmp_path: Path) -> None:
    """Maximum pooling and reshapes, so that integers can pass through them."""
    residual.quantize(_images(), tmp_path / "net.onnx")
    proto, _ = _read(tmp_path / "net.onnx")
    makers = {name: n for n in proto.graph.node for name in n.output}
    readers = {name: n for n in proto.graph.node for name in n.input}
    moving = [n for n in proto.graph.node if n.op_type in ("MaxPool", "Flatten")]
    assert len(moving) == 2
    for each in moving:
        before, behind = makers[each.input[0]], readers[each.output[0]]
        assert (before.op_type, behind.op_type) == ("DequantizeLinear", "QuantizeLinear")
        assert list(before.input[1:]) == list(behind.input[1:])


def test_a_quantised_network_is_saved_and_recorded(residual: model.Model, tmp_path: Path) -> None:
    """`singa.onnx.save` writes the same integers, and a recorded step gives the same bits."""
    net, x = residual.quantize(_images()), tensor.from_numpy(_images()[0])
    y = net(x).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        singa.onnx.save(net, tmp_path / "net.onnx", [x], dynamic_axes={"x": {0: "n"}}, check=False)
    np.testing.assert_array_equal(singa.onnx.load(tmp_path / "net.onnx")(x).numpy(), y)
    net.compile([x], is_train=False, use_graph=True)
    for _ in range(4):
        np.testing.assert_array_equal(net(x).numpy(), y)


def test_layers_that_lose_accuracy_stay_in_float(tmp_path: Path) -> None:
    """A hidden number a thousand times as large as the others leaves these only few steps, so the
    layer that reads it stays in float, and only this one."""
    x = _array(32, 6)
    net = _ready(_Linears(), x)
    one, bias, two = (net.get_states()[name] for name in ("one.W", "one.b", "two.W"))
    for t, factor, axis in ((one, 1000, 1), (two, 1e-3, 0)):
        scales = np.ones(16, np.float32)
        scales[0] = factor
        t.copy_from_numpy(t.numpy() * np.expand_dims(scales, 1 - axis))
    bias.copy_from_numpy(np.ones(16, np.float32))
    with pytest.warns(
        UserWarning, match=r"\[quantize\] layers that lose accuracy .*: two \("
    ) as seen:
        quantized = net.quantize([x], tmp_path / "net.onnx")
    assert "one" not in str(seen[0].message)
    assert list(quantized.float_layers) == ["two"]
    assert quantized.float_layers["two"] > 0.1 > quantized.error
    proto, arrays = _read(tmp_path / "net.onnx")
    gemms = {n.name: n for n in proto.graph.node if n.op_type == "Gemm"}
    np.testing.assert_array_equal(arrays[gemms["two/Gemm"].input[1]], two.numpy())
    makers = {name: n.op_type for n in proto.graph.node for name in n.output}
    assert makers[gemms["one/Gemm"].input[0]] == "DequantizeLinear"
    assert makers[gemms["two/Gemm"].input[0]] == "Relu"
    exact = net(tensor.from_numpy(x)).numpy()
    assert _apart(quantized(tensor.from_numpy(x)).numpy(), exact) < 0.1


@pytest.mark.filterwarnings("ignore:.*stay in float")
def test_a_tolerance_of_0_keeps_all_layers_in_float() -> None:
    x = _array(8, 6)
    net = _ready(_Linears(), x)
    quantized = net.quantize(x, tolerance=0)
    assert sorted(quantized.float_layers) == ["one", "two"]
    y = quantized(tensor.from_numpy(x)).numpy()
    np.testing.assert_allclose(y, net(tensor.from_numpy(x)).numpy(), rtol=1e-6, atol=1e-7)


def test_the_mode_of_the_network_does_not_matter() -> None:
    """Nor does that of the thread: batch norm that is not folded has its running statistics, and
    dropout drops nothing."""

    class Net(model.Model):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.drop, self.fc = (
                layer.BatchNorm2d(3),
                layer.Dropout(0.5),
                layer.Linear(4),
            )

        def forward(self, x: tensor.Tensor) -> tensor.Tensor:
            return self.fc(autograd.flatten(self.drop(self.norm(x))))

    x = _array(6, 3, 4, 4)
    net = _ready(Net(), x)
    calm = net.quantize(x)
    net.train()
    autograd.training = True
    busy = net.quantize(x)
    assert net.training
    autograd.training = False
    net.eval()
    assert busy.error == calm.error < 0.02
    y = busy(tensor.from_numpy(x)).numpy()
    assert _apart(y, net(tensor.from_numpy(x)).numpy()) == pytest.approx(calm.error, rel=1e-4)


def test_a_large_bias_fits_into_int32() -> None:
    """Even where the product of both scales is tiny."""
    x = _array(8, 6) * np.float32(1e-4)
    net = _ready(_Linears(), x)
    net.get_states()["one.W"].copy_from_numpy(_array(6, 16) * np.float32(1e-4))
    net.get_states()["one.b"].copy_from_numpy(np.full(16, 30, np.float32))
    quantized = net.quantize(x)
    assert not quantized.float_layers
    assert quantized.error < 0.02


def test_networks_from_files_and_several_inputs() -> None:
    """A network of ONNX, of an opset without scales for each channel: the nodes are kept."""
    w, v = _array(7, 3, 3), _array(4, 2, seed=1)
    nodes = [
        node("Conv", "x w", "h", "layer/Conv", pads=[1, 1]),
        node("MatMul", "z v", "k", "product"),
        node("ReduceMean", "h", "g", "mean", axes=[2], keepdims=0),
        node("Concat", "g k", "y", "join", axis=1),
    ]
    ins = [info("x", ["n", 3, "t"]), info("z", ["n", 4])]
    proto = network(nodes, ins, [info("y", ["n", 9])], {"w": w, "v": v}, opset=11)
    net = singa.onnx.load(proto)
    batches = [(_array(2, 3, 9, seed=i), _array(2, 4, seed=i + 9)) for i in range(3)]
    quantized = net.quantize(batches)
    assert quantized.input_names == ("x", "z")
    xs = [np.concatenate(parts) for parts in zip(*batches, strict=True)]
    given = [tensor.from_numpy(x) for x in xs]
    y, wanted = quantized(*given).numpy(), net(*given).numpy()
    assert 0 < _apart(y, wanted) < 0.02
    assert quantized.error == pytest.approx(_apart(y, wanted), rel=1e-3)


def test_networks_for_one_batch_only() -> None:
    """What takes no other batch keeps it in the file."""
    nodes = [node("Gemm", "x w", "h"), node("Reshape", "h s", "y")]
    weights = {"w": _array(4, 6), "s": np.array([2, 2, 3])}
    net = singa.onnx.load(network(nodes, [info("x", [2, 4])], [info("y", [2, 2, 3])], weights))
    quantized = net.quantize([_array(2, 4)])
    assert quantized(tensor.from_numpy(_array(2, 4))).shape == (2, 2, 3)
    assert 0 < quantized.error < 0.02


def test_layers_that_share_a_weight_share_its_integers(tmp_path: Path) -> None:
    w = _array(5, 5)
    nodes = [node("MatMul", "x w", "h"), node("Tanh", "h", "t"), node("MatMul", "t w", "y")]
    net = singa.onnx.load(network(nodes, [info("x", ["n", 5])], [info("y", ["n", 5])], {"w": w}))
    assert net.quantize(_array(6, 5), tmp_path / "net.onnx").error < 0.03
    _, arrays = _read(tmp_path / "net.onnx")
    assert [a.shape for a in arrays.values() if a.dtype == np.int8 and a.ndim == 2] == [(5, 5)]


def test_the_check_of_save_allows_steps() -> None:
    """A number between two steps may go to either, so results of quantised files differ more."""
    x = np.linspace(-1, 1, 200, dtype=np.float32)
    steps = np.arange(200, dtype=np.uint8)
    checking.compare(["y"], [x + np.float32(0.04)], [x], "here", quantized=True)
    checking.compare(["y"], [steps + np.uint8(1)], [steps], "here", quantized=True)
    for found, wanted, quantized in (
        (x + np.float32(0.04), x, False),
        (x + np.float32(0.06), x, True),
        (steps + np.uint8(1), steps, False),
        (steps + np.uint8(2), steps, True),
        (x > 0, x > 0.1, True),
    ):
        with pytest.raises(singa.onnx.ExportError, match=r"another output .* output 'y'"):
            checking.compare(["y"], [found], [wanted], "here", quantized=quantized)
    for op, expected in (("QLinearAdd", True), ("MatMulInteger", True), ("MatMul", False)):
        assert checking.is_quantized(network([node(op, "x w", "y")], [], [])) is expected


@pytest.mark.parametrize(
    ("samples", "error", "text"),
    [
        ([], ValueError, r"\[quantize\] there are no samples"),
        (7, TypeError, r"\[quantize\] samples must be batches, got int"),
        (["text"], TypeError, r"\[quantize\] a batch must be tensors"),
        (
            [np.full((2, 6), np.nan, np.float32)],
            ValueError,
            r"\[quantize\] value 'x' is not finite",
        ),
    ],
)
def test_samples_that_are_refused(samples: Any, error: type[Exception], text: str) -> None:
    net = _ready(_Linears(), _array(2, 6))
    with pytest.raises(error, match=text):
        net.quantize(samples)


def test_a_network_without_layers_is_refused() -> None:
    class Plain(model.Model):
        def forward(self, x: tensor.Tensor) -> tensor.Tensor:
            return autograd.relu(x)

    net = _ready(Plain(), _array(2, 3))
    with pytest.raises(ValueError, match=r"\[quantize\] the network has no convolution"):
        net.quantize(_array(2, 3))


def test_methods_of_model_that_modules_above_implement() -> None:
    """Each is in the table, and has a function of its name there."""
    assert OF_ABOVE.keys() >= {"quantize", "fit", "evaluate", "predict"}
    for name, module in OF_ABOVE.items():
        assert hasattr(model.Model, name)
        assert callable(getattr(importlib.import_module(module), name))
