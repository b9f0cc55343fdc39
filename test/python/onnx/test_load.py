"""Import: what a loaded network is, and how it runs and trains."""

import cProfile
import pickle
import pstats
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx_files import info, network, node
from singa import autograd, layer, opt, tensor
from singa.onnx import InvalidModelError, UnsupportedError

Tensor = tensor.Tensor
_RANDOM = np.random.default_rng(0)


def _array(*shape: int, dtype: str = "float32") -> Any:
    return _RANDOM.standard_normal(shape).astype(dtype)


def _tensor(*shape: int, dtype: str = "float32") -> Tensor:
    return tensor.from_numpy(_array(*shape), dtype=dtype)


def _classifier(dtype: str = "float32") -> Any:
    """Conv, BatchNormalization, Relu, global mean, Flatten, Gemm."""
    channels = {
        "bn.weight": np.ones(4),
        "bn.bias": np.zeros(4),
        "bn.running_mean": _array(4),
        "bn.running_var": np.full(4, 0.7),
    }
    weights = {
        "conv.weight": _array(4, 3, 3, 3),
        **channels,
        "fc.weight": _array(5, 4),
        "fc.bias": _array(5),
    }
    nodes = [
        node("Conv", "x conv.weight", "c", "conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c " + " ".join(channels), "b", "bn", momentum=0.9),
        node("Relu", "b", "r", "relu"),
        node("GlobalAveragePool", "r", "p", "pool"),
        node("Flatten", "p", "f", "flatten"),
        node("Gemm", "f fc.weight fc.bias", "y", "fc", transB=1),
    ]
    return network(
        nodes,
        [info("x", ["n", 3, "h", "w"], dtype)],
        [info("y", ["n", 5], dtype)],
        {name: array.astype(dtype) for name, array in weights.items()},
    )


def _losses(net: Any, steps: int, graph: bool) -> Any:
    random = np.random.default_rng(1)
    net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9))
    x = tensor.from_numpy(random.standard_normal((4, 3, 6, 6)), dtype=net_type(net))
    net.compile([x], is_train=True, use_graph=graph)
    losses = []
    for i in range(steps):
        y = tensor.from_numpy((np.arange(4) * (i + 1) % 5).astype(np.int32))
        losses.append(net(x, y)[1].numpy()[0])
    return np.array(losses)


def net_type(net: Any) -> str:
    """The float type of a network's parameters."""
    return next(iter(net.get_params().values())).dtype.name


def test_parameters_have_their_onnx_names() -> None:
    """Weights are trained, running statistics are states, and all are saved and loaded."""
    net = singa.onnx.load(_classifier())
    assert sorted(net.get_params()) == [
        *("bn.bias", "bn.weight", "conv.weight", "fc.bias", "fc.weight"),
    ]
    states = {"bn.running_mean", "bn.running_var"}
    assert net.get_states().keys() - net.get_params().keys() == states
    net.save_states("net.npz")
    twin = singa.onnx.load(_classifier())
    twin.load_states("net.npz")
    x = _tensor(2, 3, 6, 6)
    np.testing.assert_array_equal(twin(x).numpy(), net(x).numpy())
    copy = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(copy(x).numpy(), net(x).numpy())


def test_replayed_training_gives_the_executed_bits() -> None:
    """Steps of an imported network are recorded and replayed."""
    model = _classifier()
    executed, replayed = singa.onnx.load(model), singa.onnx.load(model)
    np.testing.assert_array_equal(_losses(executed, 8, False), _losses(replayed, 8, True))
    assert replayed._graphs().reasons() == []
    assert len(replayed._graphs().graphs()) == 1
    assert _losses(replayed, 1, True)[0] < _losses(singa.onnx.load(model), 1, True)[0]


def test_gradients_are_right() -> None:
    """Gradients of an imported network against finite differences."""
    net = singa.onnx.load(_classifier("float64"))
    net.freeze()
    assert autograd.gradcheck(net.forward, _tensor(2, 3, 4, 4, dtype="float64"))


def test_the_mode_of_the_model_decides() -> None:
    """train() uses the batch's statistics and updates the running ones; eval() uses those."""
    net = singa.onnx.load(_classifier())
    x = _tensor(4, 3, 6, 6)
    before = net.get_states()["bn.running_mean"].numpy()
    inferred = net(x).numpy()
    np.testing.assert_array_equal(net.get_states()["bn.running_mean"].numpy(), before)
    autograd.training = True
    try:
        trained = net.forward(x).numpy()
    finally:
        autograd.training = False
    assert np.abs(trained - inferred).max() > 1e-3
    assert (net.get_states()["bn.running_mean"].numpy() != before).all()


def test_freeze_and_replace_head() -> None:
    """Parameters are frozen by pattern; the last layer gets another number of outputs."""
    net = singa.onnx.load(_classifier())
    net.freeze("conv.*")
    assert not net.get_params()["conv.weight"].requires_grad
    assert net.get_params()["fc.weight"].requires_grad
    net.freeze(False)
    assert net.get_params()["conv.weight"].requires_grad
    with pytest.raises(ValueError, match=r"\[freeze\] no parameter matches 'layer9"):
        net.freeze("layer9.*")
    assert net.replace_head(7) == ("fc.weight", "fc.bias")
    assert net(_tensor(2, 3, 6, 6)).shape == (2, 7)
    assert net.get_params()["fc.weight"].shape == (7, 4)
    with pytest.raises(ValueError, match="num_outputs must be at least 1, got 0"):
        net.replace_head(0)
    bare = singa.onnx.load(network([node("Relu", "x", "y")], [info("x", [2])], [info("y", [2])]))
    with pytest.raises(ValueError, match="comes from a Relu"):
        bare.replace_head(2)


def test_another_dtype() -> None:
    """dtype converts weights, constants and casts."""
    nodes = [
        node("Mul", "x half", "a"),
        node("Cast", "a", "b", to=1),
        node("Add", "b w", "y"),
    ]
    weights = {"half": np.array(0.1, np.float32), "w": _array(3)}
    model = network(nodes, [info("x", [2, 3])], [info("y", [2, 3])], weights)
    net = singa.onnx.load(model, dtype="float64")
    x = _array(2, 3, dtype="float64")
    y = net(tensor.from_numpy(x, dtype="float64"))
    assert y.dtype == tensor.float64
    wanted = x * np.float64(weights["half"]) + weights["w"]
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-15)
    with pytest.raises(ValueError, match="dtype must be 'bfloat16', "):
        singa.onnx.load(model, dtype="int32")


def test_sixteen_bits_stay() -> None:
    """Weights of float16 files are float16."""
    model = network(
        [node("MatMul", "x w", "y")],
        [info("x", [2, 3], "float16")],
        [info("y", [2, 4], "float16")],
        {"w": _array(3, 4).astype(np.float16)},
    )
    net = singa.onnx.load(model)
    assert net.get_params()["w"].dtype == tensor.float16
    assert net(_tensor(2, 3, dtype="float16")).dtype == tensor.float16


def test_shapes_are_computed_on_the_host() -> None:
    """Shape, Gather, Concat and Reshape follow the size of the input, and replays of each size
    give the executed bits."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n axis", "n1"),
        node("Concat", "n1 minus", "shape", axis=0),
        node("Reshape", "x shape", "flat"),
        node("Range", "zero n one", "positions"),
        node("Cast", "positions", "p", to=1),
        node("Unsqueeze", "p last", "column"),
        node("Mul", "flat w", "scaled"),
        node("Add", "scaled column", "y"),
    ]
    weights = {
        "zero": np.array(0),
        "one": np.array(1),
        "axis": np.array([0]),
        "last": np.array([1]),
        "minus": np.array([-1]),
        "w": _array(6),
    }
    model = network(nodes, [info("x", ["n", 2, 3])], [info("y", ["n", 6])], weights)
    net = singa.onnx.load(model)
    net.compile([_tensor(4, 2, 3)], is_train=False, use_graph=True)
    for count in (4, 4, 4, 2, 4, 2, 2, 2, 5):
        x = _array(count, 2, 3)
        wanted = x.reshape(count, 6) * weights["w"] + np.arange(count, dtype=np.float32)[:, None]
        np.testing.assert_array_equal(net(tensor.from_numpy(x)).numpy(), wanted)
    assert net._graphs().reasons() == []


#: Operators whose argument is an input of the network: (nodes, two values of that input, what the
#: network computes for x and such a value).
_READ_BY_THE_HOST = {
    "Clip": (
        [node("Clip", "x - c", "y")],
        (np.float32(0.25), np.float32(0.5)),
        lambda x, c: np.minimum(x, c),
    ),
    "Reshape": (
        [node("Reshape", "x c", "y")],
        (np.array([3, 8]), np.array([8, 3])),
        lambda x, c: x.reshape(c),
    ),
    "ReduceSum": (
        [node("ReduceSum", "x c", "y", keepdims=0)],
        (np.array([0]), np.array([1])),
        lambda x, c: x.sum(axis=int(c[0])),
    ),
    "Tile": (
        [node("Tile", "x c", "y")],
        (np.array([1, 2]), np.array([2, 1])),
        lambda x, c: np.tile(x, c),
    ),
    "Slice": (
        [node("Slice", "x c end axis", "y")],
        (np.array([1]), np.array([2])),
        lambda x, c: x[:, int(c[0]) : 5],
    ),
}


@pytest.mark.parametrize("name", _READ_BY_THE_HOST)
def test_values_of_inputs_that_the_host_reads_are_recorded_each(name: str) -> None:
    nodes, values, expected = _READ_BY_THE_HOST[name]
    x = _array(4, 6)
    kind, shape = str(values[0].dtype), list(values[0].shape)
    model = network(
        nodes,
        [info("x", [4, 6]), info("c", shape, kind)],
        [info("y", [None] * expected(x, values[0]).ndim)],
        {"end": np.array([5]), "axis": np.array([1])},
    )
    net = singa.onnx.load(model)
    given = [tensor.from_numpy(np.asarray(v), dtype=kind) for v in values]
    net.compile([tensor.from_numpy(x), given[0]], is_train=False, use_graph=True)
    for which in (0, 0, 0, 1, 1, 1, 0, 1, 0):
        out = net(tensor.from_numpy(x), given[which]).numpy()
        np.testing.assert_allclose(out, expected(x, values[which]), rtol=1e-6, atol=1e-6)
    assert net._graphs().reasons() == []
    assert len(net._graphs().graphs()) == 2


def test_constants_are_folded() -> None:
    """A chain of constants leaves nothing to run."""
    nodes = [
        node("ConstantOfShape", "shape", "ones"),
        node("Trilu", "ones", "mask", upper=0),
        node("Add", "x mask", "y"),
    ]
    model = network(nodes, [info("x", [3, 3])], [info("y", [3, 3])], {"shape": np.array([3, 3])})
    net = singa.onnx.load(model)
    assert [step.node.op for step in net.network().main.steps] == ["Add"]


def test_values_of_any_node() -> None:
    """Results between nodes, also of those that run merged with others."""
    net = singa.onnx.load(_classifier())
    x = _tensor(2, 3, 6, 6)
    b, r, y = net.values([x], ["b", "r", "y"])
    np.testing.assert_array_equal(np.maximum(b.numpy(), 0), r.numpy())
    np.testing.assert_allclose(y.numpy(), net(x).numpy(), rtol=1e-6)
    (alone,) = net.values(x, ["b"])
    np.testing.assert_array_equal(alone.numpy(), b.numpy())
    with pytest.raises(InvalidModelError, match="no values nowhere"):
        net.values([x], ["nowhere"])


def _branches() -> Any:
    from onnx import helper

    then = helper.make_graph([node("Neg", "x", "a")], "then", [], [info("a", [2])])
    other = helper.make_graph([node("Exp", "x", "b")], "else", [], [info("b", [2])])
    return {"then_branch": then, "else_branch": other}


def test_if() -> None:
    """A constant condition chooses at import, a computed one at run time."""
    x = _array(2)
    nodes = [node("If", "c", "y", **_branches())]
    for condition in (True, False):
        wanted = -x if condition else np.exp(x)
        model = network(nodes, [info("x", [2])], [info("y", [2])], {"c": np.array(condition)})
        net = singa.onnx.load(model)
        assert net.network().main.steps[0].node.op == ("Neg" if condition else "Exp")
        np.testing.assert_allclose(net(tensor.from_numpy(x)).numpy(), wanted, rtol=1e-6)
    inputs = [info("x", [2]), info("c", [], "bool")]
    net = singa.onnx.load(network(nodes, inputs, [info("y", [2])]))
    for condition in (True, False, True):
        c = tensor.from_numpy(np.array(condition), dtype="bool")
        wanted = -x if condition else np.exp(x)
        result = net(tensor.from_numpy(x), c)
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-6)


def test_local_functions_are_inlined() -> None:
    """A function of the file, which calls another one."""
    from onnx import helper

    imports = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    inner = helper.make_function(
        "mine", "Inner", ["a"], ["b"], [node("Neg", "a", "b")], imports[:1]
    )
    call = helper.make_node("Inner", ["a"], ["t"], domain="mine")
    outer = helper.make_function(
        "mine", "Outer", ["a"], ["b"], [call, node("Exp", "t", "b")], imports
    )
    main = helper.make_node("Outer", ["x"], ["y"], domain="mine")
    model = network(
        [main], [info("x", [2])], [info("y", [2])], imports=imports[1:], functions=[inner, outer]
    )
    x = _array(2)
    found = singa.onnx.load(model)(tensor.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, np.exp(-x), rtol=1e-6)


def test_all_unsupported_nodes_are_listed() -> None:
    """One error has every node, its operator, its version, and what is missing."""
    from onnx import helper

    nodes = [
        node("RandomNormalLike", "x", "a", "first"),
        helper.make_node("FusedGemm", ["x", "x"], ["b"], "second", domain="com.microsoft"),
        node("Pad", "x pads", "c", "third", mode="mirror"),
    ]
    model = network(
        nodes,
        [info("x", [2, 2])],
        [info("a", [2, 2]), info("b", ["n", "m"]), info("c", ["k", "l"])],
        {"pads": np.array([1, 0, 0, 0])},
        imports=[helper.make_opsetid("com.microsoft", 1)],
    )
    with pytest.raises(UnsupportedError) as error:
        singa.onnx.load(model)
    lines = str(error.value).splitlines()
    assert lines[0] == "[onnx.load] 3 nodes are not supported:"
    assert lines[1].startswith("  node 'first' (RandomNormalLike version 1): ")
    assert "node 'second' (com.microsoft.FusedGemm version 1): " in lines[2]
    assert "singa has no such operator" in lines[2]
    assert "node 'third' (Pad version 21): mode 'mirror'" in lines[3]
    assert [p.node for p in error.value.problems] == ["first", "second", "third"]


def test_wrong_inputs_are_named() -> None:
    """Number, kind, type and shape of the inputs."""
    net = singa.onnx.load(_classifier())
    for inputs, error, words in [
        ([], ValueError, r"expected 1 inputs \(x\), got 0"),
        ([_array(2, 3, 6, 6)], TypeError, "input 'x' must be a Tensor, got ndarray"),
        ([_tensor(2, 4, 6, 6)], ValueError, r"input 'x' has shape \(n, 3, h, w\), got"),
        ([_tensor(2, 3, 6, 6, dtype="float64")], TypeError, "input 'x' has type float32"),
    ]:
        with pytest.raises(error, match=words):
            net.forward(*inputs)


def test_errors_name_the_node() -> None:
    """An error of an operation says in which node."""
    nodes = [node("MatMul", "x z", "y", "product")]
    model = network(nodes, [info("x", ["a", "b"]), info("z", ["c", "d"])], [info("y", ["e", "f"])])
    with pytest.raises(ValueError, match="MatMul") as error:
        singa.onnx.load(model)(_tensor(2, 3), _tensor(4, 5))
    assert any("ONNX node 'product' (MatMul)" in note for note in error.value.__notes__)


def test_reports_name_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """The summary has a row for each node."""
    net = singa.onnx.load(_classifier())
    net.compile([_tensor(2, 3, 6, 6)], is_train=False)
    summary = net.summary()
    assert [row.name for row in summary.rows] == ["conv", "bn", "pool", "flatten", "fc"]
    assert [row.params for row in summary.rows] == [108, 8, 0, 0, 25]
    assert "Conv" in capsys.readouterr().out


def test_as_a_part_of_another_model() -> None:
    """An imported network is a layer of a larger one, with its name before those of parameters."""

    class Larger(singa.model.Model):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.backbone = singa.onnx.load(_classifier())
            self.head = layer.Linear(2)
            self.loss = autograd.softmax_cross_entropy

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.backbone.forward(x))

    net = Larger()
    x = _tensor(4, 3, 6, 6)
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([x], is_train=True, use_graph=True)
    assert {"backbone.conv.weight", "head.W"} <= net.get_params().keys()
    before = net.get_params()["backbone.conv.weight"].numpy()
    labels = tensor.from_numpy(np.array([0, 1, 0, 1], np.int32))
    losses = [net(x, labels)[1].numpy()[0] for _ in range(6)]
    assert losses[-1] < losses[0]
    assert (net.get_params()["backbone.conv.weight"].numpy() != before).any()
    assert net._graphs().reasons() == []


def test_it_says_that_batch_norm_may_be_folded() -> None:
    """A file of PyTorch's in which every convolution has a bias, and nothing is normalised."""
    weights: dict[str, Any] = {}
    nodes = []
    for i in range(4):
        weights[f"w{i}"], weights[f"b{i}"] = _array(3, 3, 1, 1), _array(3)
        nodes.append(node("Conv", f"v{i} w{i} b{i}", f"v{i + 1}"))
    model = network(
        nodes,
        [info("v0", [1, 3, 4, 4])],
        [info("v4", [1, 3, 4, 4])],
        weights,
        producer_name="pytorch",
    )
    net = singa.onnx.load(model)
    with pytest.warns(UserWarning, match="may have folded it.*do_constant_folding=False"):
        net.set_optimizer(opt.SGD(lr=0.1))
    assert singa.onnx.load(_classifier()).notes == []


def test_loading_leaves_the_caller_s_mode() -> None:
    """A network that is loaded during training infers, and the training goes on."""
    x = _tensor(2, 3, 6, 6)
    model = _classifier()
    wanted = singa.onnx.load(model)(x).numpy()
    before, autograd.training = autograd.training, True
    try:
        net = singa.onnx.load(model)
        assert autograd.training
        np.testing.assert_array_equal(net(x).numpy(), wanted)
        assert autograd.training
    finally:
        autograd.training = before


def test_sources(tmp_path: Path) -> None:
    """A path, bytes, and a ModelProto."""
    model = _classifier()
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    x = _tensor(2, 3, 6, 6)
    results = [
        singa.onnx.load(source)(x).numpy() for source in (model, path, str(path), path.read_bytes())
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def _moved(model: Any, into_nodes: bool) -> Any:
    """The model with all initializers but the last, or all, in Constant nodes."""
    from onnx import helper

    kept = [] if into_nodes else [model.graph.initializer[-1]]
    moved = list(model.graph.initializer)[: None if into_nodes else -1]
    constants = [helper.make_node("Constant", [], [t.name], value=t) for t in moved]
    nodes = [*constants, *model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("into_nodes", [False, True])
def test_weights_in_constant_nodes(tmp_path: Path, into_nodes: bool) -> None:
    """They train, are saved and get a new head as initializers do; statistics are states."""
    x = _tensor(4, 3, 6, 6)
    y = tensor.from_numpy(np.array([0, 1, 2, 3], np.int32))
    found = []
    model = _classifier()
    for each in (model, _moved(onnx_copy(model), into_nodes)):
        net = singa.onnx.load(each)
        net.set_optimizer(opt.SGD(lr=0.05))
        net.compile([x], is_train=True, use_graph=False)
        net.train()
        for _ in range(3):
            net(x, y)
        net.eval()
        found.append((sorted(net.get_params()), sorted(net.get_states()), net(x).numpy()))
        path = tmp_path / "states.zip"
        net.save_states(str(path))
        again = singa.onnx.load(each)
        again.load_states(str(path))
        again.eval()
        np.testing.assert_array_equal(again(x).numpy(), found[-1][2])
        assert net.replace_head(7) == ("fc.weight", "fc.bias")
    assert found[0][:2] == found[1][:2]
    np.testing.assert_array_equal(found[0][2], found[1][2])


def onnx_copy(model: Any) -> Any:
    """Another ModelProto of the same content."""
    return type(model).FromString(model.SerializeToString())


def test_constants_of_pytorch_s_files_do_not_train() -> None:
    """The scale of an instance norm without parameters; PyTorch writes parameters as initializers,
    unless the module is frozen."""
    from onnx import helper, numpy_helper

    tensors = {"g": np.ones(3), "b": np.zeros(3)}
    constants = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(a.astype("f"), name))
        for name, a in tensors.items()
    ]
    nodes = [
        *constants,
        node("InstanceNormalization", "x g b", "n"),
        node("Conv", "n w", "y"),
    ]
    for weights, expected in [({"w": _array(2, 3, 1, 1)}, ["w"]), ({}, ["b", "g", "w"])]:
        more = [] if weights else [node("Identity", "x", "unused")]
        if not weights:
            value = numpy_helper.from_array(_array(2, 3, 1, 1), "w")
            more = [helper.make_node("Constant", [], ["w"], value=value)]
        shape = info("x", ["n", 3, 4, 4])
        model = network(
            [*more, *nodes], [shape], [info("y", [None] * 4)], weights, producer_name="pytorch"
        )
        assert sorted(singa.onnx.load(model).get_params()) == expected


def test_weights_of_branches_and_loops_train() -> None:
    """Initializers and Constant nodes of subgraphs, whose names may be the same."""
    from onnx import helper, numpy_helper

    arrays = [_array(4, 3), _array(4, 3), _array(1, 3)]
    first, second, added = (numpy_helper.from_array(a, "w") for a in arrays)
    then = helper.make_graph(
        [helper.make_node("Constant", [], ["w"], value=first), node("MatMul", "x w", "t")],
        "then",
        [],
        [info("t")],
    )
    other = helper.make_graph([node("MatMul", "x w", "e")], "else", [], [info("e")], [second])
    body = helper.make_graph(
        [node("Add", "before w", "after"), node("Identity", "on", "still")],
        "body",
        [info("i", [], "int64"), info("on", [], "bool"), info("before")],
        [info("still", [], "bool"), info("after")],
        [added],
    )
    nodes = [
        node("If", "c", "h", then_branch=then, else_branch=other),
        node("Loop", "count - h", "y", body=body),
    ]
    inputs = [info("x", ["n", 4]), info("c", [], "bool")]
    model = network(nodes, inputs, [info("y", ["n", 3])], {"count": np.array(2)})
    net = singa.onnx.load(model)
    assert sorted(net.get_params()) == ["w_1", "w_2", "w_3"]
    x = _array(2, 4)
    by_value = {p.numpy().tobytes(): name for name, p in net.get_params().items()}
    used = [by_value[a.tobytes()] for a in arrays]
    for condition, name, weight in [(True, used[0], arrays[0]), (False, used[1], arrays[1])]:
        c = tensor.from_numpy(np.array(condition), dtype="bool")
        autograd.training = True
        try:
            y = net.forward(tensor.from_numpy(x), c)
            grads = {p.name: g.numpy() for p, g in autograd.backward(autograd.reduce_sum(y))}
        finally:
            autograd.training = False
        np.testing.assert_allclose(y.numpy(), x @ weight + 2 * arrays[2], rtol=1e-5, atol=1e-6)
        assert grads.keys() == {name, used[2]}
        np.testing.assert_allclose(grads[name], np.tile(x.sum(0)[:, None], 3), rtol=1e-5)
        np.testing.assert_array_equal(grads[used[2]], np.full((1, 3), 4.0))


def test_what_the_host_computes_from_is_constant() -> None:
    """Scales of a Resize that are joined from floats: as parameters they would be read from the
    device in each step, which could then not be recorded."""
    tensors = {"ones": np.ones(2, np.float32), "twos": np.full(2, 2, np.float32)}
    nodes = [
        node("Concat", "ones twos", "scales", axis=0),
        node("Resize", "x - scales", "y", mode="nearest"),
    ]
    model = network(nodes, [info("x", [1, 1, 2, 2])], [info("y", [1, 1, 4, 4])], tensors)
    for each in (model, _moved(onnx_copy(model), True)):
        net = singa.onnx.load(each)
        assert list(net.get_params()) == []
        assert [step.node.op for step in net.network().main.steps] == ["Resize"]


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "Conv"])
def test_a_head_with_its_bias_behind_it(kind: str, outputs: int) -> None:
    """The bias of a layer with one output is a parameter, too."""
    x: tuple[int, ...] = (2, 4)
    shape: tuple[int, ...] = (4, outputs)
    bias: tuple[int, ...] = (outputs,)
    if kind == "Conv":
        x, shape, bias = (2, 4, 3, 3), (outputs, 4, 1, 1), (1, outputs, 1, 1)
    weights = {"w": _array(*shape), "b": _array(*bias)}
    nodes = [node(kind, "x w", "h"), node("Add", "h b", "y")]
    model = network(nodes, [info("x", x)], [info("y", [None] * len(x))], weights)
    net = singa.onnx.load(model)
    assert list(net.get_params()) == ["w", "b"]
    assert net.replace_head(5) == ("w", "b")
    assert net(_tensor(*x)).shape == (2, 5, *x[2:])
    wanted = {1: [5], 4: [1, 5, 1, 1]}[len(bias)]
    assert list(net.get_params()["b"].shape) == wanted


def test_a_head_before_a_transposition() -> None:
    """A convolution whose channels come last in the result."""
    weights = {"w": _array(2, 4, 1, 1), "b": _array(2)}
    nodes = [node("Conv", "x w b", "c"), node("Transpose", "c", "y", perm=[0, 2, 3, 1])]
    model = network(nodes, [info("x", ["n", 4, 3, 3])], [info("y", ["n", 3, 3, 2])], weights)
    net = singa.onnx.load(model)
    assert net.replace_head(5) == ("w", "b")
    assert net(_tensor(2, 4, 3, 3)).shape == (2, 3, 3, 5)


def test_loading_takes_as_much_for_each_node_of_a_large_file() -> None:
    """Nodes without names: eight times as many take eight times as many calls."""
    counts = []
    for count in (100, 800):
        calls = [node("Relu", f"v{i}", f"v{i + 1}") for i in range(count)]
        model = network(calls, [info("v0", [2])], [info(f"v{count}", [2])])
        profile = cProfile.Profile()
        profile.runcall(singa.onnx.load, model)
        counts.append(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
    assert counts[1] < 9 * counts[0]
