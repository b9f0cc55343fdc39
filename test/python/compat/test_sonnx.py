"""SINGA's names for ONNX: every one, with its arguments and what it returns."""

from pathlib import Path

import device_under_test
import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx_files import info, network, node
from onnx_runtime import runtime_outputs
from singa import autograd, compat, device, layer, opt, singa_wrap, sonnx, tensor

_RANDOM = np.random.default_rng(0)
X = _RANDOM.standard_normal((3, 4)).astype(np.float32)
W1 = _RANDOM.standard_normal((4, 6)).astype(np.float32)
W2 = _RANDOM.standard_normal((6, 5)).astype(np.float32)
B2 = _RANDOM.standard_normal(5).astype(np.float32)
HIDDEN = np.maximum(X @ W1, 0)
SCORES = HIDDEN @ W2 + B2
PRODUCT = X @ W1


@pytest.fixture
def proto():
    """MatMul, Relu, Gemm: scores of five classes."""
    return network(
        [node("MatMul", "x w1", "a"), node("Relu", "a", "h"), node("Gemm", "h w2 b2", "y")],
        [info("x", ["n", 4])],
        [info("y", ["n", 5])],
        {"w1": W1, "w2": W2, "b2": B2},
    )


def _of(array):
    return tensor.from_numpy(np.asarray(array))


def _close(found, wanted):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "where", ["CPU", pytest.param(None, id="a device"), pytest.param("path", id="a path")]
)
def test_prepare_and_run(proto, tmp_path, where):
    """A ModelProto or a path; a device by name or as an object; SINGA's other arguments."""
    if where == "path":
        sonnx.save(proto, tmp_path / "net.onnx")
        rep = sonnx.prepare(str(tmp_path / "net.onnx"))
    elif where is None:
        dev = device.create_cpu_device()
        rep = sonnx.prepare(proto, device=dev, init_inputs=[_of(X)])
        assert {t.device.id() for t in rep.states.values()} == {dev.id()}
    else:
        rep = sonnx.prepare(proto, where, keep_initializers_as_inputs=False)
    assert isinstance(rep, sonnx.SingaRep)
    assert isinstance(rep.net, singa.onnx.ImportedModel)
    assert sorted(rep.states) == ["b2", "w1", "w2"]
    for inputs in ([_of(X)], (X,), _of(X), X):
        (y,) = rep.run(inputs)
        assert isinstance(y, tensor.Tensor)
        _close(y, SCORES)
    assert rep.run([X[:1]])[0].shape == (1, 5)


@pytest.mark.parametrize(
    ("last_layers", "wanted"),
    [
        *[(None, SCORES), (2, SCORES), (1, HIDDEN), (0, PRODUCT)],
        *[(-2, SCORES), (-3, HIDDEN), (-4, PRODUCT), (-1, PRODUCT), (-5, SCORES)],
    ],
)
def test_last_layers(proto, last_layers, wanted):
    """The number of the last node that runs; a negative one is counted as SINGA counts."""
    rep, net = sonnx.prepare(proto), sonnx.SONNXModel(proto)
    (found,) = rep.run([X], last_layers=last_layers)
    _close(found, wanted)
    (found,) = net.forward(_of(X), last_layers=last_layers)
    _close(found, wanted)


def test_last_layers_that_are_not_there(proto):
    for count in (3, 4):
        with pytest.raises(ValueError, match=f"last_layers is {count}; there are 3 nodes"):
            sonnx.prepare(proto).run([X], last_layers=count)


def test_layers(proto, tmp_path):
    """Each node with its function, from a proto and from a file."""
    sonnx.save(proto, tmp_path / "net.onnx")
    for model in (proto, str(tmp_path / "net.onnx")):
        layers = sonnx.prepare(model).layers
        assert [node.op_type for node, _ in layers] == ["MatMul", "Relu", "Gemm"]
        _, relu = layers[1]
        (y,) = relu(_of(np.array([-1.0, 2.0], np.float32)))
        assert y.numpy().tolist() == [0, 2]


def test_aux_output(proto):
    """Values by their names, after the outputs."""
    rep, net = sonnx.prepare(proto), sonnx.SONNXModel(proto)
    for found in (
        rep.run([X], aux_output=("h", "a")),
        net.forward(_of(X), aux_output=["h", "a"]),
    ):
        for t, wanted in zip(found, (SCORES, HIDDEN, PRODUCT), strict=True):
            _close(t, wanted)
    y, hidden = net.forward(_of(X), aux_output=("h",), last_layers=0)
    _close(y, PRODUCT)
    _close(hidden, HIDDEN)
    with pytest.raises(ValueError, match="the graph has no values nowhere"):
        rep.run([X], aux_output=("nowhere",))


class Tuned(sonnx.SONNXModel):
    """The network up to its last node, and a new head: a script as SINGA's examples have it."""

    def __init__(self, model, num_classes):
        super().__init__(model)
        self.linear = layer.Linear(num_classes)

    def forward(self, *x):
        y = super().forward(*x, last_layers=-3)[0]
        return self.linear(y)

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


@pytest.mark.parametrize("graph", [False, True])
def test_a_subclass_trains(proto, graph):
    net = Tuned(proto, 3)
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    x, y = _of(X), _of(np.array([0, 2, 1], np.int32))
    net.compile([x], is_train=True, use_graph=graph)
    assert sorted(net.get_params()) == ["b2", "linear.W", "linear.b", "w1", "w2"]
    losses = [float(net(x, y)[1]) for _ in range(20)]
    assert losses[-1] < losses[0] / 4
    params = net.get_params()
    assert (params["w1"].numpy() != W1).any()
    np.testing.assert_array_equal(params["w2"].numpy(), W2)  # of the node that does not run
    assert params["linear.W"].shape == (6, 3)


@pytest.mark.parametrize("graph", [False, True])
def test_arrays_as_arguments(proto, graph):
    """Float64 arrays become float32, as `tensor.from_numpy` makes them."""
    net = sonnx.SONNXModel(proto)
    net.compile([X.astype(np.float64)], is_train=False, use_graph=graph)
    for _ in range(4):
        _close(net(X.astype(np.float64))[0], SCORES)


def test_the_model_alone(proto):
    """SONNXModel as it is returns a list."""
    net = sonnx.SONNXModel(proto, device.create_cpu_device())
    net.compile([_of(X)], is_train=False)
    found = net(_of(X))
    assert isinstance(found, list)
    _close(found[0], SCORES)


def _tape_of(net, x):
    before, autograd.training = autograd.training, True
    try:
        return net(x)
    finally:
        autograd.training = before


def test_to_onnx():
    """The tape as a file: names, bits, and ONNX Runtime's numbers."""
    net = layer.Sequential(layer.Linear(6), layer.ReLU(), layer.Linear(5))
    x = _of(X)
    x.name = "pixels"
    y = _tape_of(net, x)
    proto = sonnx.to_onnx([x], [y], "scores")
    onnx.checker.check_model(proto, full_check=True)
    assert proto.graph.name == "scores"
    assert [value.name for value in proto.graph.input] == ["pixels"]
    assert {t.name for t in proto.graph.initializer} == {"0.W", "0.b", "2.W", "2.b"}
    (again,) = sonnx.prepare(proto, y.device).run([X])
    # On a GPU a layer adds its bias in the product, and the file after it.
    np.testing.assert_allclose(again.numpy(), y.numpy(), rtol=1e-6 * device_under_test.ON_GPU)
    (found,) = runtime_outputs(proto, [X])
    np.testing.assert_allclose(found, y.numpy(), rtol=1e-5, atol=1e-5)
    assert sonnx.SingaFrontend.singa_to_onnx_model(x, y).graph.name == "sonnx"


def test_to_onnx_of_numbers_and_tuples():
    """They are attributes of the operators, so the graph holds them."""
    x = _of(X)
    autograd.training = True
    try:
        clipped = autograd.clip(x, -0.5, 0.5)
        turned = autograd.reshape(clipped, (X.size, 1))
    finally:
        autograd.training = False
    proto = sonnx.to_onnx([x, -0.5, 0.5, (X.size, 1)], [turned])
    assert len(proto.graph.input) == 1
    (y,) = sonnx.prepare(proto).run([X])
    np.testing.assert_array_equal(y.numpy(), np.clip(X, -0.5, 0.5).reshape(-1, 1))


def test_to_onnx_keeps_running_statistics_in_the_graph():
    images = np.random.default_rng(0).standard_normal((2, 3, 2, 2)).astype(np.float32)
    x, scale, bias = _of(images), _of(np.float32([1, 2, 3])), _of(np.float32([0, 1, 2]))
    mean, var = _of(np.float32([0.1, 0.2, 0.3])), _of(np.float32([1, 2, 3]))
    handle = singa_wrap.BatchNormHandle(0.9, x.data)
    autograd.training = True
    try:
        y = autograd.batchnorm_2d(handle, x, scale, bias, mean, var)
        proto = sonnx.to_onnx([x, scale, bias, mean, var], [y])
    finally:
        autograd.training = False
    assert len(proto.graph.input) == 3
    (found,) = sonnx.prepare(proto).run([x, scale, bias])
    parts = [t.numpy().reshape(1, 3, 1, 1) for t in (mean, var, scale, bias)]
    wanted = (images - parts[0]) / np.sqrt(parts[1] + 1e-5) * parts[2] + parts[3]
    _close(found, wanted)


def test_inputs_of_another_type_and_batch_than_declared(monkeypatch):
    """With SINGA's behaviour: scripts pass float32 for int64, and batches to fixed ones."""
    helper = onnx.helper
    inputs = [helper.make_tensor_value_info("i", onnx.TensorProto.INT64, (2, 1))]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, (2, 1))]
    nodes = [helper.make_node("Add", ["i", "i"], ["y"])]
    graph = helper.make_graph(nodes, "twice", inputs, outputs)
    opset = [helper.make_opsetid("", 13)]
    rep = sonnx.prepare(helper.make_model(graph, opset_imports=opset, ir_version=8))
    floats = np.float32([[1], [2], [3]])
    with pytest.raises(TypeError, match="int64"):
        rep.run([floats[:2]])
    with pytest.raises(ValueError, match="shape"):
        rep.run([floats.astype(np.int32)])
    monkeypatch.setattr(compat, "enabled", True)
    (y,) = rep.run([floats])
    assert (y.tolist(), y.dtype) == ([[2], [4], [6]], np.int64)
    with pytest.raises(ValueError, match="shape"):
        rep.run([np.ones((2, 2), np.float32)])


def test_arrays_give_arrays(proto, monkeypatch):
    """With SINGA's behaviour, unless `is_graph` is set. Tensors always give tensors."""
    rep = sonnx.prepare(proto)
    assert not rep.is_graph
    for enabled, is_graph, x, kind in [
        (False, False, X, tensor.Tensor),
        (False, True, X, tensor.Tensor),
        (True, False, X, np.ndarray),
        (True, True, X, tensor.Tensor),
        (True, False, _of(X), tensor.Tensor),
        (True, True, _of(X), tensor.Tensor),
    ]:
        monkeypatch.setattr(compat, "enabled", enabled)
        rep.is_graph = is_graph
        for found, wanted in zip(rep.run([x], aux_output=("h",)), (SCORES, HIDDEN), strict=True):
            assert type(found) is kind
            array = found if kind is np.ndarray else found.numpy()
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)
    rep.is_graph = False
    (hidden,) = rep.run([X], last_layers=1)
    np.testing.assert_allclose(hidden, HIDDEN, rtol=1e-5, atol=1e-5)
    assert type(sonnx.SingaBackend.run_model(proto, [X])[0]) is np.ndarray
    assert type(sonnx.SONNXModel(proto).forward(_of(X))[0]) is tensor.Tensor


@pytest.mark.parametrize(
    "kind",
    [
        *["DOUBLE", "FLOAT", "FLOAT16", "BFLOAT16", "BOOL", "INT64", "INT32", "INT16", "INT8"],
        *["INT4", "UINT64", "UINT32", "UINT16", "UINT8", "UINT4"],
    ],
)
def test_arrays_have_the_declared_type(monkeypatch, kind):
    """As ONNX's backend tests ask for it."""
    monkeypatch.setattr(compat, "enabled", True)
    number = getattr(onnx.TensorProto, kind)
    output = onnx.helper.make_tensor_value_info("y", number, [2])
    model = network([node("Cast", "x", "y", to=number)], [info("x", [2])], [output])
    (y,) = sonnx.prepare(model).run([np.float32([5, 0])])
    assert y.dtype == onnx.helper.tensor_dtype_to_np_dtype(number)
    assert y.astype(int).tolist() == [1 if kind == "BOOL" else 5, 0]


def test_operators_of_singas_backend():
    """SINGA's tests take their list of operators from here."""
    backend = sonnx.SingaBackend
    assert (backend._opset_version, backend._ir_version) == (11, 6)
    assert len(backend._rename_operators) == 81
    for name, kind in backend._rename_operators.items():
        assert onnx.defs.get_schema(name, 9 if name == "Upsample" else 11).name == name
        where, _, attribute = kind.rpartition(".")
        assert isinstance(getattr(layer if where else autograd, attribute), type)


def test_to_onnx_refuses_what_the_tape_does_not_have():
    """A constant may depend on the inputs; a tape that was walked is gone."""
    x, w = _of(X), _of(W1)
    w.stores_grad = True
    autograd.training = True
    try:
        product = autograd.matmul(x, w)
        constant = autograd.add(product, _of(np.ones((3, 6), np.float32)))
        walked = autograd.reduce_sum(product)
    finally:
        autograd.training = False
    with pytest.raises(ValueError, match="neither among the inputs nor a parameter"):
        sonnx.to_onnx([x], [constant])
    autograd.gradients(walked)
    with pytest.raises(ValueError, match="the tape does not lead beyond"):
        sonnx.to_onnx([x], [walked])


def test_run_node():
    """A NodeProto or OnnxNode; inputs in order or by name; a device; an old version."""
    add = node("Add", "a b", "c")
    for given in ([X, X], [_of(X), _of(X)], {"b": X, "a": X}):
        for what in (add, sonnx.OnnxNode(add)):
            (found,) = sonnx.run_node(what, given, "CPU")
            _close(found, 2 * X)
    split = node("Split", "x", "p q", axis=1, num_outputs=2)
    parts = sonnx.run_node(split, [X], device.create_cpu_device())
    for found, wanted in zip(parts, np.split(X, 2, 1), strict=True):
        _close(found, wanted)
    squeeze = node("Squeeze", "x", "y", axes=[0])
    (found,) = sonnx.run_node(squeeze, [X[None]], opset_version=11)
    _close(found, X)
    with pytest.raises(ValueError, match=r"\[Add\] expected 2 inputs, got 1"):
        sonnx.run_node(add, [X])
    with pytest.raises(NotImplementedError, match="RandomNormalLike"):
        sonnx.run_node(node("RandomNormalLike", "x", "y"), [X[:, :3]])


def test_get_op():
    """A function of tensors, which the tape records."""
    function = sonnx.get_op(sonnx.OnnxNode(node("LeakyRelu", "x", "y", alpha=0.25)))
    x = _of(X)
    _close(function(x)[0], np.where(X > 0, X, X / 4))
    x.stores_grad = True
    autograd.training = True
    try:
        (y,) = function(x)
        gradient = autograd.gradients(autograd.reduce_sum(y))[x]
    finally:
        autograd.training = False
    _close(gradient, np.where(X > 0, 1, 0.25))


def test_onnx_node():
    proto = node("LeakyRelu", "x", "y", "leaky", alpha=0.25)
    found = sonnx.OnnxNode(proto)
    assert (found.name, found.op_type, found.inputs, found.outputs) == (
        *("leaky", "LeakyRelu"),
        *(["x"], ["y"]),
    )
    assert found.attrs == {"alpha": 0.25}
    assert (found.getattr("alpha"), found.getattr("beta"), found.getattr("beta", 1)) == (
        *(0.25, None),
        1,
    )
    assert sonnx.OnnxNode(node("Relu", "x", "y")).name == "y"  # one without a name


def test_backend(proto):
    """The names of the interface of ONNX's backends."""
    backend = sonnx.SingaBackend
    _close(backend.run_model(proto, [X])[0], SCORES)
    _close(backend.prepare(proto).run([X])[0], SCORES)
    _close(backend.run_node(node("Relu", "x", "y"), [X])[0], np.maximum(X, 0))
    assert backend.is_compatible(proto)
    unsupported = network(
        [node("RandomNormalLike", "x", "y")], [info("x", [2, 2])], [info("y", [2, 2])]
    )
    assert not backend.is_compatible(unsupported)
    assert sonnx.supports_device("CPU")
    assert backend.supports_device("CPU")
    assert not backend.supports_device("TPU")
    with pytest.raises(ValueError, match="device must be 'CPU' or 'CUDA', got 'TPU'"):
        sonnx.prepare(proto, "TPU")


def test_load_and_save(proto, tmp_path):
    """As onnx.load and onnx.save."""
    path = tmp_path / "net.onnx"
    sonnx.save(proto, path)
    assert sonnx.load(path) == proto
    assert onnx.load(str(path)) == proto
    sonnx.save(proto, tmp_path / "large.onnx", save_as_external_data=True, size_threshold=0)
    _close(sonnx.prepare(str(tmp_path / "large.onnx")).run([X])[0], SCORES)


def test_every_name_is_tested():
    """The list that scripts import from."""
    text = Path(__file__).read_text()
    assert [name for name in sonnx.__all__ if f"sonnx.{name}" not in text] == []
