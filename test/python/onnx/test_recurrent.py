"""RNN, GRU and LSTM with ONNX's layouts and options, beside ONNX Runtime."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa
import singa.onnx
from onnx_files import info, network, node
from onnx_runtime import runtime_outputs
from singa import tensor

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_STEPS, _BATCH, _INPUTS, _HIDDEN = 5, 3, 20, 40


def _network(op: str, both: bool, lengths: bool, **attributes: Any) -> tuple[Any, list[np.ndarray]]:
    """A model of one node, with its inputs."""
    random = np.random.default_rng(0)
    directions, rows = 1 + both, _GATES[op] * _HIDDEN
    shapes = {
        "W": (directions, rows, _INPUTS),
        "R": (directions, rows, _HIDDEN),
        "B": (directions, 2 * rows),
    }
    weights = {
        name: random.uniform(-0.2, 0.2, shape).astype(np.float32) for name, shape in shapes.items()
    }
    state = (directions, _BATCH, _HIDDEN)
    given = {"x": random.standard_normal((_STEPS, _BATCH, _INPUTS)).astype(np.float32)}
    if lengths:
        given["lengths"] = np.array([5, 2, 3], np.int32)
    given["h"] = random.standard_normal(state).astype(np.float32)
    if op == "LSTM":
        given["c"] = random.standard_normal(state).astype(np.float32)
    names = ["x W R B", "lengths" if lengths else "-", *list(given)[1 + lengths :]]
    outputs = {"y": (_STEPS, directions, _BATCH, _HIDDEN), "yh": state}
    if op == "LSTM":
        outputs["yc"] = state
    direction = "bidirectional" if both else "forward"
    options = {"hidden_size": _HIDDEN, "direction": direction, **attributes}
    model = network(
        [node(op, " ".join(names), " ".join(outputs), **options)],
        [info(name, a.shape, str(a.dtype)) for name, a in given.items()],
        [info(name, shape, "float32") for name, shape in outputs.items()],
        weights,
    )
    return model, list(given.values())


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("RNN", {}),
        ("LSTM", {}),
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"linear_before_reset": 0}),
    ],
)
def test_like_onnx_runtime(op: str, attributes: dict[str, Any], both: bool, lengths: bool) -> None:
    model, given = _network(op, both, lengths, **attributes)
    wanted = runtime_outputs(model, given)
    before = singa.get_num_threads()
    try:
        for threads in (1, 2):
            singa.set_num_threads(threads)
            net = singa.onnx.load(model)
            inputs = [tensor.from_numpy(a) for a in given]
            net.compile(inputs, is_train=False, use_graph=True)
            for _ in range(4):
                for ours, other in zip(net(*inputs), wanted, strict=True):
                    np.testing.assert_allclose(ours.numpy(), other, rtol=0, atol=1e-5)
    finally:
        singa.set_num_threads(before)


@pytest.mark.cpu("implementations by name")
def test_the_kernel_of_the_cpu_computes_them() -> None:
    model, given = _network("LSTM", False, False)
    net = singa.onnx.load(model)
    with singa.explain() as executed:
        net.forward(*map(tensor.from_numpy, given))
    by_op = {entry["op"]: entry["implementation"] for entry in executed}
    assert by_op["RnnForward"] == "cpu"
