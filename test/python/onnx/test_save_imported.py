"""Export of networks that came from ONNX: the nodes stay, whatever the example's values are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx import helper, numpy_helper
from onnx_runtime import runtime_outputs
from singa import autograd, layer, model, tensor
from singa.onnx.save import to_model

Array = np.ndarray[Any, Any]
_node = helper.make_node


def _array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _tensor(array: Array) -> tensor.Tensor:
    return tensor.from_numpy(array, dtype=array.dtype.name)


def _info(name: str, array: Array, shape: Sequence[int | str | None] | None = None) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if shape is None else shape)


def _graph(nodes: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[Any] = ()) -> Any:
    return helper.make_graph(nodes, "inner", inputs, outputs)


def _model(
    nodes: Sequence[Any],
    inputs: dict[str, Array],
    outputs: Sequence[Any],
    constants: dict[str, Array],
    opset: int = 17,
    shapes: dict[str, Sequence[int | str]] | None = None,
) -> Any:
    given = [_info(name, array, (shapes or {}).get(name)) for name, array in inputs.items()]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", given, outputs, initializers)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


def _number(value: float, kind: Any = np.int64) -> Array:
    return np.array(value, kind)


_X = _array(4, 6)
_TWO = _number(2, np.float32)
_THEN = _graph([_node("Mul", ["x", "two"], ["t"])], [_info("t", _X)])
_ELSE = _graph([_node("Neg", ["x"], ["e"])], [_info("e", _X)])
_BODY = _graph(
    [_node("Identity", ["go"], ["more"]), _node("Sin", ["v"], ["w"])],
    [_info("more", np.array(True)), _info("w", _X)],
    [_info("i", _number(0)), _info("go", np.array(True)), _info("v", _X)],
)
_SUM = _graph(  # adds row i of x, which is a value of the graph around
    [
        _node("Gather", ["x", "i"], ["row"], axis=0),
        _node("Add", ["v", "row"], ["w"]),
        _node("Less", ["i", "last"], ["more"]),
        _node("Identity", ["w"], ["kept"]),
    ],
    [_info("more", np.array(True)), _info("w", _X[0]), _info("kept", _X[0])],
    [_info("i", _number(0)), _info("go", np.array(True)), _info("v", _X[0])],
)
_ZERO = _number(0, np.float32)
_GRU = {"u": _ints(0), "W": _array(1, 9, 6), "R": _array(1, 9, 3)}

#: By name: nodes, the input c in the example and another one (None: another x), and constants.
_HOST_READS: dict[str, tuple[list[Any], tuple[Array, Array] | None, dict[str, Array]]] = {
    "If": (
        [_node("If", ["c"], ["y"], then_branch=_THEN, else_branch=_ELSE)],
        (np.array(True), np.array(False)),
        {"two": _TWO},
    ),
    "If of a computed value": (
        [
            _node("ReduceMean", ["x"], ["m"], keepdims=0),
            _node("Greater", ["m", "zero"], ["c"]),
            _node("If", ["c"], ["y"], then_branch=_THEN, else_branch=_ELSE),
        ],
        None,
        {"two": _TWO, "zero": _ZERO},
    ),
    "Loop": (
        [_node("Loop", ["c", "t", "x"], ["y"], body=_BODY)],
        (_number(2), _number(4)),
        {"t": np.array(True)},
    ),
    "Loop until a condition, which collects": (
        [
            _node("Sub", ["c", "one"], ["last"]),
            _node("ReduceSum", ["x", "zero"], ["v0"], keepdims=0),
            _node("Loop", ["", "t", "v0"], ["v1", "y"], body=_SUM),
        ],
        (_number(1), _number(3)),
        {"t": np.array(True), "one": _number(1), "zero": _ints(0)},
    ),
    "Reshape": ([_node("Reshape", ["x", "c"], ["y"])], (_ints(3, 8), _ints(8, 3)), {}),
    "Slice": (
        [_node("Slice", ["x", "c", "e", "a"], ["y"])],
        (_ints(1), _ints(2)),
        {"e": _ints(4), "a": _ints(1)},
    ),
    "Gather": ([_node("Gather", ["x", "c"], ["y"], axis=1)], (_ints(1), _ints(2)), {}),
    "TopK": ([_node("TopK", ["x", "c"], ["y", "i"], axis=1)], (_ints(2), _ints(3)), {}),
    "Tile": ([_node("Tile", ["x", "c"], ["y"])], (_ints(1, 2), _ints(2, 1)), {}),
    "Pad": ([_node("Pad", ["x", "c"], ["y"])], (_ints(0, 1, 0, 0), _ints(0, 0, 0, 1)), {}),
    "Expand": ([_node("Expand", ["x", "c"], ["y"])], (_ints(2, 4, 6), _ints(3, 4, 6)), {}),
    "ReduceSum": ([_node("ReduceSum", ["x", "c"], ["y"], keepdims=0)], (_ints(0), _ints(1)), {}),
    "CumSum": ([_node("CumSum", ["x", "c"], ["y"])], (_number(0), _number(1)), {}),
    "Range": (
        [
            _node("Range", ["s", "c", "d"], ["r"]),
            _node("Cast", ["r"], ["f"], to=1),
            _node("Mul", ["f", "two"], ["y"]),
        ],
        (_number(3), _number(5)),
        {"s": _number(0), "d": _number(1), "two": _TWO},
    ),
    "Clip": (
        [_node("Clip", ["x", "", "c"], ["y"])],
        (_number(0.1, np.float32), _number(0.5, np.float32)),
        {},
    ),
    "Split": ([_node("Split", ["x", "c"], ["y", "y2"], axis=1)], (_ints(2, 4), _ints(3, 3)), {}),
    "Trilu": ([_node("Trilu", ["x", "c"], ["y"])], (_number(0), _number(1)), {}),
    "Resize": (
        [
            _node("Unsqueeze", ["x", "u"], ["image"]),
            _node("Resize", ["image", "", "", "c"], ["y"], mode="nearest"),
        ],
        (_ints(1, 1, 8, 6), _ints(1, 1, 4, 12)),
        {"u": _ints(0, 1)},
    ),
    "OneHot": (
        [
            _node("ArgMax", ["x"], ["am"], axis=1, keepdims=0),
            _node("OneHot", ["am", "c", "v"], ["y"]),
        ],
        (_number(6), _number(8)),
        {"v": np.array([0, 1], np.float32)},
    ),
    "Unsqueeze": ([_node("Unsqueeze", ["x", "c"], ["y"])], (_ints(0), _ints(2)), {}),
    "QuantizeLinear": (
        [_node("QuantizeLinear", ["x", "c"], ["q"]), _node("Cast", ["q"], ["y"], to=1)],
        (_number(0.1, np.float32), _number(0.5, np.float32)),
        {},
    ),
    "NonZero": (
        [
            _node("Greater", ["x", "zero"], ["g"]),
            _node("NonZero", ["g"], ["nz"]),
            _node("Transpose", ["nz"], ["ti"]),
            _node("GatherND", ["x", "ti"], ["y"]),
        ],
        None,
        {"zero": _ZERO},
    ),
    "ConstantOfShape": (
        [_node("ConstantOfShape", ["c"], ["k"]), _node("Add", ["k", "two"], ["y"])],
        (_ints(2, 3), _ints(4, 1)),
        {"two": _TWO},
    ),
    "Where": (
        [_node("Where", ["c", "x", "two"], ["y"])],
        (np.array(True), np.array(False)),
        {"two": _TWO},
    ),
    "GRU": (
        [
            _node("Unsqueeze", ["x", "u"], ["x3"]),
            _node("GRU", ["x3", "W", "R", "", "c"], ["", "y"], hidden_size=3),
        ],
        (np.array([1, 1, 1, 1], np.int32), np.array([1, 0, 1, 1], np.int32)),
        _GRU,
    ),
}


@pytest.mark.parametrize("name", _HOST_READS)
def test_what_the_host_reads_is_not_kept(name: str) -> None:
    """ONNX Runtime computes the same from the saved file as from the original, for the example and
    for other values."""
    nodes, pair, constants = _HOST_READS[name]
    given = {"x": _X} if pair is None else {"x": _X, "c": pair[0]}
    other = {"x": -_X - 0.5} if pair is None else {"x": _X, "c": pair[1]}
    open_ = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    original = _model(nodes, given, [open_], constants)
    expected = [runtime_outputs(original, list(each.values())) for each in (given, other)]
    assert expected[0][0].shape != expected[1][0].shape or (expected[0][0] != expected[1][0]).any()
    rank = [None] * expected[0][0].ndim
    original.graph.output[0].CopyFrom(_info("y", expected[0][0], rank))
    net = singa.onnx.load(original)
    proto = to_model(net, [_tensor(x) for x in given.values()])
    onnx.checker.check_model(proto, full_check=True)
    assert [value.name for value in proto.graph.output] == ["y"]
    assert proto.opset_import[0].version == 17
    back = singa.onnx.load(proto.SerializeToString())
    assert back.get_states().keys() == net.get_states().keys()
    for each, wanted in zip((given, other), expected, strict=True):
        (y,) = runtime_outputs(proto, list(each.values()))
        assert y.dtype == wanted[0].dtype
        np.testing.assert_array_equal(y, wanted[0])
        found = back(*[_tensor(x) for x in each.values()]).numpy()
        np.testing.assert_allclose(found, wanted[0], rtol=1e-5, atol=1e-5)


def _classifier(opset: int = 9) -> Any:
    """Convolution, batch norm, dropout and a linear layer."""
    constants = {
        "w": _array(4, 3, 3, 3),
        "scale": _array(4, seed=1),
        "shift": _array(4, seed=2),
        "mean": _array(4, seed=3),
        "var": np.abs(_array(4, seed=4)) + 0.5,
        "fc": _array(4, 5, seed=5),
        "b": _array(5, seed=6),
    }
    nodes = [
        _node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        _node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        _node("GlobalAveragePool", ["n"], ["p"]),
        _node("Flatten", ["p"], ["f"]),
        _node("Dropout", ["f"], ["d"]),
        _node("Gemm", ["d", "fc", "b"], ["y"]),
        _node("Softmax", ["y"], ["unused"]),
    ]
    x, y = _array(2, 3, 8, 8), _array(2, 5)
    shapes = {"x": ("n", 3, 8, 8)}
    return _model(nodes, {"x": x}, [_info("y", y, ("n", 5))], constants, opset, shapes)


def test_parameters_are_those_of_now() -> None:
    """After a new head and a change of the weights, the file has today's."""
    net = singa.onnx.load(_classifier())
    net.replace_head(7)
    for t in net.get_params().values():
        t.copy_from_numpy(t.numpy() + np.float32(0.25))
    x = _array(2, 3, 8, 8)
    wanted = net(_tensor(x)).numpy()
    proto = to_model(net, [_tensor(x)], dynamic_axes={"x": {0: "n"}})
    onnx.checker.check_model(proto, full_check=True)
    assert wanted.shape == (2, 7)
    assert [d.dim_value or d.dim_param for d in proto.graph.output[0].type.tensor_type.shape.dim][
        1
    ] == 7
    (found,) = runtime_outputs(proto, [x])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert "Softmax" not in {node.op_type for node in proto.graph.node}  # nothing needs it
    more = _array(5, 3, 8, 8)
    (found,) = runtime_outputs(proto, [more])
    np.testing.assert_allclose(found, net(_tensor(more)).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [None, 13, 17, 21])
@pytest.mark.parametrize("training", [False, True])
def test_opset_and_form(opset: int | None, training: bool) -> None:
    net = singa.onnx.load(_classifier())
    proto = to_model(net, [_tensor(_array(2, 3, 8, 8))], opset=opset, training=training)
    onnx.checker.check_model(proto, full_check=True)
    assert proto.opset_import[0].version == (opset or 9)
    nodes = {node.op_type: node for node in proto.graph.node}
    modes = [a.i for a in nodes["BatchNormalization"].attribute if a.name == "training_mode"]
    assert modes == ([1] if training and (opset or 9) >= 14 else [])
    ratio = 1 if opset is None else 2  # an attribute before opset 12
    assert len(nodes["Dropout"].input) == ratio + (training and (opset or 9) >= 12)
    x = _array(2, 3, 8, 8, seed=7)
    wanted = net(_tensor(x)).numpy()
    np.testing.assert_array_equal(singa.onnx.load(proto)(_tensor(x)).numpy(), wanted)
    if not training:
        (found,) = runtime_outputs(proto, [x])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_an_opset_in_which_the_nodes_have_no_form() -> None:
    x = _array(2, 6)
    nodes = [_node("Gelu", ["x"], ["y"])]
    net = singa.onnx.load(_model(nodes, {"x": x}, [_info("y", x)], {}, opset=20))
    assert to_model(net, [_tensor(x)]).graph.node[-1].op_type == "Gelu"
    with pytest.raises(singa.onnx.ExportError, match="came from a file of opset 20, and its nodes"):
        to_model(net, [_tensor(x)], opset=13)


@pytest.mark.parametrize("opset", [9, 15])
def test_running_statistics_of_16_bits(opset: int) -> None:
    """The network keeps them in float32; before opset 15, a node has one type."""
    net = singa.onnx.load(_classifier(opset), dtype="float16")
    x = _array(2, 3, 8, 8).astype(np.float16)
    proto = to_model(net, [_tensor(x)])
    onnx.checker.check_model(proto, full_check=True)
    found = singa.onnx.load(proto)(_tensor(x)).numpy()
    np.testing.assert_allclose(found, net(_tensor(x)).numpy(), rtol=1e-2, atol=1e-2)


class _Around(model.Model):
    """A network with an imported part, whose branch depends on an input."""

    def __init__(self, part: singa.onnx.ImportedModel) -> None:
        super().__init__()
        self.part = part
        self.fc = layer.Linear(3)

    def forward(self, x: tensor.Tensor, c: tensor.Tensor) -> tensor.Tensor:
        return self.fc(autograd.relu(self.part(autograd.add(x, x), c)))


def test_an_imported_part_of_a_network() -> None:
    nodes, pair, constants = _HOST_READS["If"]
    assert pair is not None
    given = {"x": _X, "c": pair[0]}
    proto = _model(nodes, given, [_info("y", _X)], constants, 13)
    net = _Around(singa.onnx.load(proto))
    net.eval()
    inputs = [_tensor(x) for x in given.values()]
    net(*inputs)
    proto = to_model(net, inputs)
    onnx.checker.check_model(proto, full_check=True)
    assert proto.opset_import[0].version == 13  # that of the part
    for condition in pair:
        (y,) = runtime_outputs(proto, [_X, condition])
        wanted = net(inputs[0], _tensor(condition)).numpy()
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def test_names_that_a_subgraph_hides() -> None:
    """Two branches may have a value of the same name, which is also that of an output."""
    hides = _graph([_node("Neg", ["x"], ["y"]), _node("Abs", ["y"], ["z"])], [_info("z", _X)])
    returns = _graph([_node("Identity", ["x2"], ["y"])], [_info("y", _X)])
    nodes = [
        _node("Mul", ["x", "x"], ["x2"]),
        _node("If", ["c"], ["r"], "y", then_branch=hides, else_branch=returns),
        _node("Add", ["r", "x2"], ["out"]),
    ]
    given = {"x": _X, "c": np.array(True)}
    net = singa.onnx.load(_model(nodes, given, [_info("out", _X)], {}))
    proto = to_model(net, [_tensor(x) for x in given.values()], output_names=["y"])
    onnx.checker.check_model(proto, full_check=True)
    for condition, wanted in ((True, np.abs(_X) + _X**2), (False, 2 * _X**2)):
        (y,) = runtime_outputs(proto, [_X, np.array(condition)])
        np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_a_rank_that_depends_on_the_batch() -> None:
    """Squeeze without axes drops a batch of one."""
    x = _array(1, 3)
    nodes = [_node("Squeeze", ["x"], ["y"])]
    net = singa.onnx.load(_model(nodes, {"x": x}, [_info("y", x[0])], {}, shapes={"x": ("n", 3)}))
    with pytest.raises(singa.onnx.ExportError, match=r"results of the imported graph .*\[1\] axes"):
        to_model(net, [_tensor(x)], dynamic_axes={"x": {0: "n"}})
