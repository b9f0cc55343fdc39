"""Branches and loops: equal names, wrong forms, and lengths that only one branch takes."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx import helper, numpy_helper
from onnx_files import info, network, node
from onnx_runtime import runtime_outputs
from singa import tensor
from singa.onnx.save import to_model

_X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def _graph(
    nodes: Sequence[Any], outputs: str, inputs: str = "", constants: dict[str, Any] | None = None
) -> Any:
    found = [numpy_helper.from_array(np.float32(v), n) for n, v in (constants or {}).items()]
    ends = ([info(name) for name in names.split()] for names in (inputs, outputs))
    return helper.make_graph(list(nodes), "inner", *ends, found)


def _if(then: Any, other: Any, outputs: str = "y") -> Any:
    return node("If", "c", outputs, then_branch=then, else_branch=other)


def _tensor(x: Any) -> tensor.Tensor:
    array = np.asarray(x)
    return tensor.from_numpy(array, dtype=array.dtype.name)


_NEG = _graph([node("Neg", "x", "t")], "t")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("condition", [True, False])
def test_branches_of_several_ifs_may_have_the_same_names(known: bool, condition: bool) -> None:
    """Of values, constants and nested branches; also where the conditions are known at import."""

    def branches(op: str, number: float) -> tuple[Any, Any]:
        inner = _graph([node(op, "t", "u"), node("Mul", "u k", "v")], "v")
        other = _graph([node("Neg", "x", "z")], "z")
        nodes = [
            node("Add", "x k", "t"),
            node("If", "d", "w", then_branch=inner, else_branch=other),
        ]
        return _graph(nodes, "w", constants={"k": number}), _graph([node(op, "x", "t")], "t")

    nodes = [_if(*branches("Relu", 1.0), "a"), _if(*branches("Exp", 2.0), "b")]
    nodes.append(node("Sub", "a b", "y"))
    values = {"c": np.array(condition), "d": np.array(True)}
    x, y = info("x", _X.shape), info("y", _X.shape)
    given = [x] if known else [x, info("c", [], "bool"), info("d", [], "bool")]
    net = singa.onnx.load(network(nodes, given, [y], values if known else {}))
    found = net(_tensor(_X), *([] if known else map(_tensor, values.values()))).numpy()
    if condition:
        wanted = np.maximum(_X + 1, 0) - 2 * np.exp(_X + 2)
    else:
        wanted = np.maximum(_X, 0) - np.exp(_X)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


_TWO = _graph([node("Neg", "x", "t"), node("Exp", "x", "u")], "t u")
_FORMS = {
    "a branch with an input": (_if(_graph([node("Neg", "q", "t")], "t", "q"), _NEG), "0 inputs"),
    "too many results": (_if(_TWO, _NEG), "then_branch .* 1 outputs, has 0 and 2"),
    "too few results": (_if(_TWO, _NEG, "y z"), "else_branch .* 2 outputs, has 0 and 1"),
    "a loop without a condition": (
        node("Loop", "n - x", "y", body=_graph([node("Neg", "v", "w")], "w", "v")),
        "body must have 3 inputs and 2 outputs, has 1 and 1",
    ),
    "a scan with another state": (
        node("Scan", "x", "y", body=_TWO, num_scan_inputs=1),
        "body must have 1 inputs and 1 outputs, has 0 and 2",
    ),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", _FORMS)
def test_graphs_of_the_wrong_form(name: str, known: bool) -> None:
    call, why = _FORMS[name]
    nodes = [call] if "y" in call.output else [call, node("Neg", "x", "y")]
    constants = {"n": np.array(2)} | ({"c": np.array("few" not in name)} if known else {})
    inputs = [info("x", _X.shape)] + ([] if known else [info("c", [], "bool")])
    with pytest.raises(singa.onnx.InvalidModelError, match=why):
        singa.onnx.load(network(nodes, inputs, [info("y")], constants))


def _rates() -> Any:
    """A layer for frames of 16 or of 8 numbers, chosen by an integer, as voice detectors have."""

    def branch(n: int) -> Any:
        weight = numpy_helper.from_array(np.full((n, 3), 0.5, np.float32), f"w{n}")
        y = info(f"y{n}", [None, 3])
        return helper.make_graph([node("MatMul", f"x w{n}", f"y{n}")], "of", [], [y], [weight])

    nodes = [node("Equal", "rate k", "c"), _if(branch(16), branch(8))]
    inputs = [info("x", ["frames", None]), info("rate", [], "int64")]
    return network(nodes, inputs, [info("y", [None, 3])], {"k": np.array(16000)}, opset=17)


_AXES = [None, {"x": {0: "n"}}, {"x": {0: "n", 1: "t"}}, {"x": {1: "frames"}}]


@pytest.mark.parametrize("axes", _AXES)
def test_open_lengths_survive_saving(axes: Any) -> None:
    """With the example's lengths, a branch would contradict itself. The names are the file's, or
    those of dynamic_axes."""
    net = singa.onnx.load(_rates())
    proto = to_model(net, [_tensor(np.ones((2, 16), "f4")), _tensor(16000)], dynamic_axes=axes)
    onnx.checker.check_model(proto, full_check=True)
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    given = {0: "frames", 1: ""} if axes is None else {0: "", 1: ""} | axes["x"]
    names = [given[0], given[1]]
    assert [dim.dim_param for dim in dims] == names
    assert not any(dim.HasField("dim_value") for dim in dims)
    for length, rate in ((16, 16000), (8, 8000)):
        x = np.ones((5, length), np.float32)
        (y,) = runtime_outputs(proto, [x, np.array(rate)])
        np.testing.assert_array_equal(y, np.full((5, 3), length / 2))


def test_summaries_and_pictures_run_what_compile_was_given(tmp_path: Path) -> None:
    """On zeros this network would take the branch for other lengths."""
    net = singa.onnx.load(_rates())
    net.compile([_tensor(np.ones((2, 16), "f4")), _tensor(16000)], is_train=False)
    assert "MatMul" in str(net.summary(io.StringIO()))
    net.plot(tmp_path / "net.svg")
    assert "MatMul" in str(singa.explain(net))
