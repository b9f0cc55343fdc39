"""Sequences of tensors inside of a network, and as its inputs and results."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx import TensorProto, helper
from onnx_files import info, network, node
from singa import autograd, opt, tensor
from singa.onnx import UnsupportedError

_RANDOM = np.random.default_rng(0)


def _sequence(name: str) -> Any:
    return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)


def _given(array: Any) -> tensor.Tensor:
    return tensor.from_numpy(array, dtype=str(array.dtype))


@pytest.mark.parametrize("length", [4, 5])
@pytest.mark.parametrize("parts", [None, 2, [1, 0, 3]])
@pytest.mark.parametrize("keep", [0, 1])
def test_pieces(length: int, parts: Any, keep: int) -> None:
    weights = {} if parts is None else {"parts": np.array(parts, np.int64)}
    model = network(
        [node("SplitToSequence", "x" + " parts" * bool(weights), "s", axis=-1, keepdims=keep)],
        [info("x", ["n", None])],
        [_sequence("s")],
        weights,
    )
    net = singa.onnx.load(model)
    for count in (1, 3):
        x = _RANDOM.standard_normal((count, length)).astype(np.float32)
        if isinstance(parts, list) and sum(parts) != length:
            with pytest.raises(ValueError, match=r"\[SplitToSequence\].*for 5 elements"):
                net(_given(x))
            continue
        at = (
            np.cumsum(parts)[:-1]
            if isinstance(parts, list)
            else range(parts or 1, length, parts or 1)
        )
        wanted = np.split(x, at, -1)
        if parts is None and not keep:
            wanted = [piece[:, 0] for piece in wanted]
        found = net(_given(x))
        assert len(found) == len(wanted)
        for y, piece in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(y.numpy(), piece)


def test_sequences_train_and_replay() -> None:
    body = helper.make_graph(
        [
            node("SequenceAt", "pieces i", "piece"),
            node("Mul", "piece w", "product"),
            node("SequenceInsert", "made product", "more"),
            node("Identity", "go", "still"),
        ],
        "body",
        [info("i", [], "int64"), info("go", [], "bool"), _sequence("made")],
        [info("still", [], "bool"), _sequence("more")],
    )
    nodes = [
        node("SplitToSequence", "x", "pieces", axis=1),
        node("SequenceLength", "pieces", "count"),
        node("SequenceEmpty", "", "none"),
        node("Loop", "count - none", "all", body=body),
        node("SequenceErase", "all zero", "rest"),
        node("ConcatFromSequence", "rest", "y", axis=1),
    ]
    weights = {"w": np.array([[0.5], [1.5]]), "zero": np.array(0, np.int64)}
    model = network(
        nodes, [info("x", [2, 3], "float64")], [info("y", [2, None], "float64")], weights
    )
    x, labels = _RANDOM.standard_normal((2, 3)), _given(np.array([0, 1], np.int32))
    net = singa.onnx.load(model)
    np.testing.assert_array_equal(net(_given(x)).numpy(), x[:, 1:] * weights["w"])
    net.freeze()
    assert autograd.gradcheck(net.forward, _given(x))

    def losses(graph: bool) -> list[float]:
        trained = singa.onnx.load(model)
        trained.set_optimizer(opt.SGD(lr=0.5))
        trained.compile([_given(x)], is_train=True, use_graph=graph)
        found = [float(trained(_given(x), labels)[1]) for _ in range(4)]
        assert not graph or trained._graphs().reasons() == []
        return found

    executed = losses(False)
    assert executed == losses(True)
    assert executed[-1] < executed[0]


def test_sequences_as_inputs() -> None:
    """A list of tensors of any shapes; another position and another length."""
    nodes = [node("SequenceAt", "s at", "first"), node("SequenceInsert", "s first at", "t")]
    model = network(nodes, [_sequence("s"), info("at", [], "int64")], [_sequence("t")])
    net = singa.onnx.load(model)
    arrays = [_RANDOM.standard_normal(shape).astype(np.float32) for shape in ((2,), (3, 1), (4,))]
    for count, at in ((3, 1), (2, -2)):
        found = net([_given(a) for a in arrays[:count]], _given(np.array(at, np.int64)))
        wanted = arrays[:count]
        wanted.insert(at, arrays[at % count])
        for y, a in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(y.numpy(), a)
    with pytest.raises(IndexError, match=r"\[SequenceAt\].*position \[2\] of 2 elements"):
        net([_given(a) for a in arrays[:2]], _given(np.array(2, np.int64)))
    with pytest.raises(TypeError, match="input 's' must be a list of Tensors"):
        net(_given(arrays[0]), _given(np.array(0, np.int64)))


def test_a_sequence_in_the_place_of_a_tensor() -> None:
    """Is refused at import where types say so."""
    model = network([node("Relu", "s", "y")], [_sequence("s")], [info("y", None)])
    with pytest.raises((UnsupportedError, ValueError)):
        singa.onnx.load(model)
