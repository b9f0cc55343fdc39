"""Files that ONNX Runtime runs although they break a rule that onnx's checker has, or bend one."""

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx import helper
from onnx_files import info, network, node
from singa import tensor
from singa.onnx import InvalidModelError

_X = np.array([[-1.0, 2.0, 3.0], [4.0, -5.0, 6.0]], np.float32)


def _run(model: Any) -> Any:
    return singa.onnx.load(model)(tensor.from_numpy(_X)).numpy()


def _relu(shape: Any, result: Any) -> Any:
    return network([node("Relu", "x", "y")], [info("x", shape)], [info("y", result)])


@pytest.mark.parametrize(
    ("shape", "result"),
    [([-1, 3], [-1, 3]), (["n", 3], [0, 3]), ([2, 3], [0, 0]), ([-1, -1], None), (None, None)],
)
def test_lengths_that_are_not_known(shape: Any, result: Any) -> None:
    """Lengths below 0, results of length 0, and no shape at all."""
    np.testing.assert_array_equal(_run(_relu(shape, result)), np.maximum(_X, 0))


def test_an_input_of_length_0_takes_no_other() -> None:
    """ONNX Runtime refuses it, too."""
    net = singa.onnx.load(_relu([0, 3], ["n", 3]))
    assert net(tensor.from_numpy(_X[:0])).shape == (0, 3)
    with pytest.raises(ValueError, match=r"has shape \(0, 3\), got \(2, 3\)"):
        net(tensor.from_numpy(_X))


def test_an_output_without_a_type() -> None:
    model = _relu([2, 3], [2, 3])
    model.graph.output[0].ClearField("type")
    net = singa.onnx.load(model)
    assert net._graph.types["y"].type == "float32"
    np.testing.assert_array_equal(net(tensor.from_numpy(_X)).numpy(), np.maximum(_X, 0))


@pytest.mark.parametrize("in_imports", [False, True])
@pytest.mark.parametrize("in_nodes", [False, True])
def test_the_long_name_of_the_domain(in_imports: bool, in_nodes: bool) -> None:
    """In nodes, in functions, and in the list of opsets."""
    long, mine = helper.make_opsetid("ai.onnx", 21), helper.make_opsetid("mine", 1)
    body = [node("Neg", "a", "b")]
    call = helper.make_node("Minus", ["x"], ["m"], domain="mine")
    model = network([call, node("Relu", "m", "y")], [info("x", [2, 3])], [info("y", [2, 3])])
    model.functions.append(helper.make_function("mine", "Minus", ["a"], ["b"], body, [long]))
    if in_imports:
        model.opset_import[0].CopyFrom(long)
    model.opset_import.append(mine)
    if in_nodes:
        model.graph.node[1].domain = model.functions[0].node[0].domain = "ai.onnx"
    np.testing.assert_array_equal(_run(model), np.maximum(-_X, 0))


def test_nodes_in_any_order() -> None:
    """In the graph, in a branch that reads a later value of the graph, and in a function."""
    then = helper.make_graph(
        [node("Relu", "a", "t"), node("Neg", "later", "a")], "then", [], [info("t")]
    )
    other = helper.make_graph([node("Neg", "x", "e")], "else", [], [info("e")])
    twice = [node("Exp", "b", "c"), node("Neg", "a", "b")]
    imports = [helper.make_opsetid("", 21)]
    nodes = [
        helper.make_node("F", ["i"], ["y"], domain="mine"),
        node("If", "c", "i", then_branch=then, else_branch=other),
        node("Less", "zero x1", "c"),
        node("Identity", "x", "later"),
    ]
    model = network(
        nodes,
        [info("x", [2, 3])],
        [info("y", [2, 3])],
        {"zero": np.array(0.0, np.float32), "x1": np.array(1.0, np.float32)},
        imports=[helper.make_opsetid("mine", 1)],
        functions=[helper.make_function("mine", "F", ["a"], ["c"], twice, imports)],
    )
    np.testing.assert_allclose(_run(model), np.exp(-np.maximum(-_X, 0)), rtol=1e-6)


def test_a_cycle_is_refused() -> None:
    nodes = [node("Add", "x b", "a", "first"), node("Relu", "a", "b"), node("Neg", "b", "y")]
    with pytest.raises(InvalidModelError, match=r"sorted.*first"):
        singa.onnx.load(network(nodes, [info("x", [2, 3])], [info("y", [2, 3])]))


def test_the_order_of_sorted_nodes_stays() -> None:
    """A node moves only behind those that it needs."""
    nodes = [node("Neg", "x", "a"), node("Exp", "c", "y"), node("Abs", "a", "b")]
    nodes += [node("Add", "a b", "c"), node("Sqrt", "b", "z")]
    model = network(nodes, [info("x", [2])], [info("y", [2]), info("z", [2])])
    net = singa.onnx.load(model)
    assert [n.op for n in net._graph.nodes] == ["Neg", "Abs", "Add", "Exp", "Sqrt"]


def test_loading_is_linear_in_the_nodes() -> None:
    """Unnamed nodes: names are looked up a few times for each, not once for each other node."""

    class Names(set[str]):
        lookups = 0

        def __contains__(self, name: object) -> bool:
            Names.lookups += 1
            return super().__contains__(name)

    from singa.onnx.parsing import _Parser, _Storage

    count = 3000
    nodes = [node("Neg", f"v{i}", f"v{i + 1}") for i in range(count)]
    model = network(nodes, [info("v0", [2])], [info(f"v{count}", [2])])
    parser = _Parser({"": 21}, _Storage(None, False))
    parser._names = Names()
    graph = parser.graph(model.graph, {}, main=True)
    assert [n.name for n in graph.nodes] == [f"Neg_{i}" for i in range(count)]
    assert Names.lookups <= 3 * count
