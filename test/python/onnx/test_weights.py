"""Import: which values are parameters, and networks that get another head."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from arrays import array
from onnx_files import classifier, drawn, info, network, node
from singa import autograd, opt, tensor

Tensor = tensor.Tensor


def test_freeze_and_replace_head() -> None:
    """Parameters are frozen by pattern; the last layer gets another number of outputs."""
    net = singa.onnx.load(classifier())
    net.freeze("conv.*")
    assert not net.get_params()["conv.weight"].requires_grad
    assert net.get_params()["fc.weight"].requires_grad
    net.freeze(False)
    assert net.get_params()["conv.weight"].requires_grad
    with pytest.raises(ValueError, match=r"\[freeze\] no parameter matches 'layer9"):
        net.freeze("layer9.*")
    assert net.replace_head(7) == ("fc.weight", "fc.bias")
    assert net(drawn(2, 3, 6, 6)).shape == (2, 7)
    assert net.get_params()["fc.weight"].shape == (7, 4)
    with pytest.raises(ValueError, match="num_outputs must be at least 1, got 0"):
        net.replace_head(0)
    bare = singa.onnx.load(network([node("Relu", "x", "y")], [info("x", [2])], [info("y", [2])]))
    with pytest.raises(ValueError, match="comes from a Relu"):
        bare.replace_head(2)


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
    x = drawn(4, 3, 6, 6)
    y = tensor.from_numpy(np.array([0, 1, 2, 3], np.int32))
    found = []
    model = classifier()
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
    for weights, expected in [({"w": array(2, 3, 1, 1)}, ["w"]), ({}, ["b", "g", "w"])]:
        more = [] if weights else [node("Identity", "x", "unused")]
        if not weights:
            value = numpy_helper.from_array(array(2, 3, 1, 1), "w")
            more = [helper.make_node("Constant", [], ["w"], value=value)]
        shape = info("x", ["n", 3, 4, 4])
        model = network(
            [*more, *nodes], [shape], [info("y", [None] * 4)], weights, producer_name="pytorch"
        )
        assert sorted(singa.onnx.load(model).get_params()) == expected


def test_weights_of_branches_and_loops_train() -> None:
    """Initializers and Constant nodes of subgraphs, whose names may be the same."""
    from onnx import helper, numpy_helper

    arrays = [array(4, 3), array(4, 3), array(1, 3)]
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
    x = array(2, 4)
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
    weights = {"w": array(*shape), "b": array(*bias)}
    nodes = [node(kind, "x w", "h"), node("Add", "h b", "y")]
    model = network(nodes, [info("x", x)], [info("y", [None] * len(x))], weights)
    net = singa.onnx.load(model)
    assert list(net.get_params()) == ["w", "b"]
    assert net.replace_head(5) == ("w", "b")
    assert net(drawn(*x)).shape == (2, 5, *x[2:])
    wanted = {1: [5], 4: [1, 5, 1, 1]}[len(bias)]
    assert list(net.get_params()["b"].shape) == wanted


def test_a_head_before_a_transposition() -> None:
    """A convolution whose channels come last in the result."""
    weights = {"w": array(2, 4, 1, 1), "b": array(2)}
    nodes = [node("Conv", "x w b", "c"), node("Transpose", "c", "y", perm=[0, 2, 3, 1])]
    model = network(nodes, [info("x", ["n", 4, 3, 3])], [info("y", ["n", 3, 3, 2])], weights)
    net = singa.onnx.load(model)
    assert net.replace_head(5) == ("w", "b")
    assert net(drawn(2, 4, 3, 3)).shape == (2, 3, 3, 5)
