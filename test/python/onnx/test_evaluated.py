"""Operators that onnx's reference evaluator computes on the host, and those that it does not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx import helper
from onnx_files import info, network, node
from singa import __main__ as command_line
from singa import autograd, sonnx, tensor

pytestmark = pytest.mark.cpu("the host computes")

_X = np.random.default_rng(0).standard_normal((1, 1, 3, 3)).astype(np.float32)


def test_training_does_not_lose_a_gradient_in_silence() -> None:
    """A node on the host behind a layer cuts the gradient off."""
    nodes = [node("Mul", "x k", "h"), node("DeformConv", "h w offset", "y", kernel_shape=[1, 1])]
    weights = {"k": np.full((3, 3), 3, np.float32), "w": np.full((1, 1, 1, 1), 2, np.float32)}
    weights["offset"] = np.zeros((1, 2, 3, 3), np.float32)
    net = singa.onnx.load(network(nodes, [info("x", _X.shape)], [info("y", _X.shape)], weights))
    x = tensor.from_numpy(_X)
    np.testing.assert_allclose(net(x).numpy(), 6 * _X, rtol=1e-6)
    autograd.training = True
    with pytest.raises(singa.onnx.UnsupportedError, match="no gradient flows through it"):
        net.values([x], ["y"])


def _counted() -> Any:
    """How often 0, 1 and 2 occur, which is float32 in every file, and a sum with it."""
    attributes = {"ngram_counts": [0], "ngram_indexes": [0, 1, 2], "pool_int64s": [0, 1, 2]}
    call = helper.make_node(
        *("TfIdfVectorizer", ["t"], ["h"]),
        **attributes, max_gram_length=1, max_skip_count=0, min_gram_length=1, mode="TF",
    )  # fmt: skip
    inputs = [info("t", [5], "int64"), info("x", [3])]
    return network([call, node("Add", "h x", "y")], inputs, [info("y", [3])])


def test_another_float_type() -> None:
    """A network that was converted goes on in its type behind an operator that gives float32."""
    t = tensor.from_numpy(np.array([2, 0, 2, 1, 2]), dtype="int64")
    x = tensor.from_numpy(np.full(3, 0.5), dtype="float64")
    y = singa.onnx.load(_counted(), dtype="float64")(t, x)
    assert y.dtype.name == "float64"
    np.testing.assert_array_equal(y.numpy(), [1.5, 1.5, 3.5])


def test_texts_in_the_names_of_singa() -> None:
    """`sonnx` takes arrays of texts."""
    inputs = [info(name, [2], "object") for name in "ab"]
    nodes = [node("StringConcat", "a b", "c"), node("Equal", "c a", "y")]
    model = network(nodes, inputs, [info("y", [2], "bool")])
    (y,) = sonnx.prepare(model).run([np.array(["u", "v"]), np.array(["", "w"])])
    np.testing.assert_array_equal(y.numpy(), [True, False])


def test_the_command_says_what_the_host_computes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside each operator."""
    path = tmp_path / "net.onnx"
    onnx.save(_counted(), path)
    assert command_line.main(["onnx", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    marked = {line.split()[0] for line in lines if line.endswith("on the host, without a gradient")}
    assert marked == {"TfIdfVectorizer"}


@pytest.mark.parametrize(
    ("op", "domain", "why"),
    [
        ("TreeEnsembleRegressor", "ai.onnx.ml", "no classical models: ONNX Runtime computes them"),
        ("Scaler", "ai.onnx.ml", "no classical models: ONNX Runtime computes them"),
        ("RegexFullMatch", "", "no regular expressions of RE2: ONNX Runtime computes them"),
    ],
)
def test_what_onnx_runtime_computes(op: str, domain: str, why: str) -> None:
    call = node(op, "x", "y", domain=domain)
    kind = "object" if op == "RegexFullMatch" else "float32"
    inputs, imports = [info("x", [2, 4], kind)], [helper.make_opsetid("ai.onnx.ml", 3)]
    with pytest.raises(singa.onnx.UnsupportedError, match=why):
        singa.onnx.load(network([call], inputs, [info("y")], imports=imports))
