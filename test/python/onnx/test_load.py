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
from arrays import array
from onnx_files import classifier, drawn, info, network, node
from singa import autograd, layer, opt, tensor
from singa.onnx import InvalidModelError, UnsupportedError

Tensor = tensor.Tensor


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
    net = singa.onnx.load(classifier())
    assert sorted(net.get_params()) == [
        *("bn.bias", "bn.weight", "conv.weight", "fc.bias", "fc.weight"),
    ]
    states = {"bn.running_mean", "bn.running_var"}
    assert net.get_states().keys() - net.get_params().keys() == states
    net.save_states("net.npz")
    twin = singa.onnx.load(classifier())
    twin.load_states("net.npz")
    x = drawn(2, 3, 6, 6)
    np.testing.assert_array_equal(twin(x).numpy(), net(x).numpy())
    copy = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(copy(x).numpy(), net(x).numpy())


def test_replayed_training_gives_the_executed_bits() -> None:
    """Steps of an imported network are recorded and replayed."""
    model = classifier()
    executed, replayed = singa.onnx.load(model), singa.onnx.load(model)
    np.testing.assert_array_equal(_losses(executed, 8, False), _losses(replayed, 8, True))
    assert replayed._graphs().reasons() == []
    assert len(replayed._graphs().graphs()) == 1
    assert _losses(replayed, 1, True)[0] < _losses(singa.onnx.load(model), 1, True)[0]


def test_gradients_are_right() -> None:
    """Gradients of an imported network against finite differences."""
    net = singa.onnx.load(classifier("float64"))
    net.freeze()
    assert autograd.gradcheck(net.forward, drawn(2, 3, 4, 4, dtype="float64"))


def test_the_mode_of_the_model_decides() -> None:
    """train() uses the batch's statistics and updates the running ones; eval() uses those."""
    net = singa.onnx.load(classifier())
    x = drawn(4, 3, 6, 6)
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


def test_another_dtype() -> None:
    """dtype converts weights, constants and casts."""
    nodes = [
        node("Mul", "x half", "a"),
        node("Cast", "a", "b", to=1),
        node("Add", "b w", "y"),
    ]
    weights = {"half": np.array(0.1, np.float32), "w": array(3)}
    model = network(nodes, [info("x", [2, 3])], [info("y", [2, 3])], weights)
    net = singa.onnx.load(model, dtype="float64")
    x = array(2, 3, dtype="float64")
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
        {"w": array(3, 4).astype(np.float16)},
    )
    net = singa.onnx.load(model)
    assert net.get_params()["w"].dtype == tensor.float16
    assert net(drawn(2, 3, dtype="float16")).dtype == tensor.float16


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
        "w": array(6),
    }
    model = network(nodes, [info("x", ["n", 2, 3])], [info("y", ["n", 6])], weights)
    net = singa.onnx.load(model)
    net.compile([drawn(4, 2, 3)], is_train=False, use_graph=True)
    for count in (4, 4, 4, 2, 4, 2, 2, 2, 5):
        x = array(count, 2, 3)
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
    x = array(4, 6)
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
    net = singa.onnx.load(classifier())
    x = drawn(2, 3, 6, 6)
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
    x = array(2)
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
    x = array(2)
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
    net = singa.onnx.load(classifier())
    for inputs, error, words in [
        ([], ValueError, r"expected 1 inputs \(x\), got 0"),
        ([array(2, 3, 6, 6)], TypeError, "input 'x' must be a Tensor, got ndarray"),
        ([drawn(2, 4, 6, 6)], ValueError, r"input 'x' has shape \(n, 3, h, w\), got"),
        ([drawn(2, 3, 6, 6, dtype="float64")], TypeError, "input 'x' has type float32"),
    ]:
        with pytest.raises(error, match=words):
            net.forward(*inputs)


def test_errors_name_the_node() -> None:
    """An error of an operation says in which node."""
    nodes = [node("MatMul", "x z", "y", "product")]
    model = network(nodes, [info("x", ["a", "b"]), info("z", ["c", "d"])], [info("y", ["e", "f"])])
    with pytest.raises(ValueError, match="MatMul") as error:
        singa.onnx.load(model)(drawn(2, 3), drawn(4, 5))
    assert any("ONNX node 'product' (MatMul)" in note for note in error.value.__notes__)


def test_reports_name_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    """The summary has a row for each node."""
    net = singa.onnx.load(classifier())
    net.compile([drawn(2, 3, 6, 6)], is_train=False)
    summary = net.summary()
    assert [row.name for row in summary.rows] == ["conv", "bn", "pool", "flatten", "fc"]
    assert [row.params for row in summary.rows] == [108, 8, 0, 0, 25]
    assert "Conv" in capsys.readouterr().out


def test_as_a_part_of_another_model() -> None:
    """An imported network is a layer of a larger one, with its name before those of parameters."""

    class Larger(singa.model.Model):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.backbone = singa.onnx.load(classifier())
            self.head = layer.Linear(2)
            self.loss = autograd.softmax_cross_entropy

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.backbone.forward(x))

    net = Larger()
    x = drawn(4, 3, 6, 6)
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
        weights[f"w{i}"], weights[f"b{i}"] = array(3, 3, 1, 1), array(3)
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
    assert singa.onnx.load(classifier()).notes == []


def test_loading_leaves_the_caller_s_mode() -> None:
    """A network that is loaded during training infers, and the training goes on."""
    x = drawn(2, 3, 6, 6)
    model = classifier()
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
    model = classifier()
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    x = drawn(2, 3, 6, 6)
    results = [
        singa.onnx.load(source)(x).numpy() for source in (model, path, str(path), path.read_bytes())
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


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
