"""Operators that ONNX defines as functions, and functions of a model, at every opset.

Those without a reader are replaced by their definition, whose operators have the versions that the
definition means. The oracle is onnx's reference evaluator, which has its own code for each.
"""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator
from onnx_files import info, network, node
from singa import autograd, tensor
from singa.onnx.readers.registry import is_readable

_RANDOM = np.random.default_rng(0)
_NEWEST = defs.onnx_opset_version()


def _array(*shape: int) -> Any:
    return _RANDOM.standard_normal(shape).astype(np.float32)


_EIGHT = np.array(8, np.int64)
_CLASSES = np.array([1, 0, 4], np.int64)
_ATTENTION = [_array(1, 2, 4, 8), _array(1, 2, 5, 8), _array(1, 2, 5, 8)]

#: For each operator without a reader: attributes, inputs, and the number of outputs.
_CALLS: dict[str, list[tuple[dict[str, Any], list[Any], int]]] = {
    "Attention": [({}, _ATTENTION, 1), ({"is_causal": 1}, _ATTENTION, 1)],
    **{
        f"{name}Window": [({}, [_EIGHT], 1), ({"periodic": 0, "output_datatype": 11}, [_EIGHT], 1)]
        for name in ("Hann", "Hamming", "Blackman")
    },
    "Celu": [({}, [_array(3, 5)], 1), ({"alpha": 0.5}, [_array(3, 5)], 1)],
    "CenterCropPad": [
        ({}, [_array(10, 9), np.array([6, 12])], 1),
        ({"axes": [1]}, [_array(10, 9), np.array([4])], 1),
    ],
    "MeanVarianceNormalization": [
        ({}, [_array(2, 3, 4, 5)], 1),
        ({"axes": [1, 2]}, [_array(2, 3, 4)], 1),
    ],
    "NegativeLogLikelihoodLoss": [
        ({}, [_array(3, 5), _CLASSES], 1),
        ({"reduction": "sum", "ignore_index": 0}, [_array(3, 5), _CLASSES, np.abs(_array(5))], 1),
        ({"reduction": "none"}, [_array(3, 5, 2), np.stack([_CLASSES] * 2, 1)], 1),
    ],
    "SoftmaxCrossEntropyLoss": [
        ({}, [_array(3, 5), _CLASSES], 1),
        ({"reduction": "sum", "ignore_index": 0}, [_array(3, 5), _CLASSES, np.abs(_array(5))], 2),
        ({"reduction": "none"}, [_array(3, 5, 2), np.stack([_CLASSES] * 2, 1)], 2),
    ],
}

#: One of random numbers, which singa refuses, and those of one opset, which the onnx package tests.
_ELSEWHERE = {"Bernoulli", "SequenceMap", "CausalConvWithState", "LinearAttention", "SwiGLU"}


def _definitions() -> dict[str, list[int]]:
    """Operators with a definition and without a reader, with the opsets that they are in."""
    found: dict[str, list[int]] = {}
    for opset in range(1, _NEWEST + 1):
        for name in {s.name for s in defs.get_all_schemas_with_history() if not s.domain}:
            try:
                schema = defs.get_schema(name, opset, "")
            except defs.SchemaError:
                continue
            defined = schema.has_function or schema.has_context_dependent_function
            if defined and not is_readable("", name, schema.since_version):
                found.setdefault(name, []).append(opset)
    return found


def test_every_definition_is_tested() -> None:
    assert _definitions().keys() - _ELSEWHERE == _CALLS.keys()


@pytest.mark.parametrize("op", sorted(_CALLS))
def test_definitions_at_every_opset(op: str) -> None:
    """The same values as onnx's own implementation."""
    for opset in _definitions()[op]:
        for attributes, arrays, count in _CALLS[op]:
            names = [f"i{i}" for i in range(len(arrays))]
            outputs = [f"o{i}" for i in range(count)]
            call = helper.make_node(op, names, outputs, **attributes)
            given = [info(n, a.shape, a.dtype.name) for n, a in zip(names, arrays, strict=True)]
            model = network([call], given, [info(name) for name in outputs], opset=opset)
            for output in model.graph.output:
                output.ClearField("type")
            wanted = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
            inputs = [tensor.from_numpy(a, dtype=a.dtype.name) for a in arrays]
            found = singa.onnx.load(model).values(inputs, outputs)
            for y, expected in zip(found, wanted, strict=True):
                assert y.shape == expected.shape, (op, opset, attributes)
                np.testing.assert_allclose(
                    y.numpy(), expected, rtol=2e-6, atol=1e-6, err_msg=f"{op} {opset} {attributes}"
                )


@pytest.mark.parametrize("opset", [15, 21, _NEWEST])
def test_what_a_definition_lacks_is_named(opset: int) -> None:
    """The error names the call and the operator inside, without names that singa made up."""
    call = helper.make_node("Bernoulli", ["x"], ["y"], name="mine")
    model = network([call], [info("x", [2, 3])], [info("y", [2, 3])], opset=opset)
    with pytest.raises(singa.onnx.UnsupportedError, match="node 'mine/RandomUniformLike") as error:
        singa.onnx.load(model)
    assert "singa.inlined" not in str(error.value)
    assert "@" not in str(error.value)


@pytest.mark.parametrize("opset", [17, 18, 21, _NEWEST])
def test_a_function_of_another_opset_than_the_model(opset: int) -> None:
    """Its operators have the versions of its own opset: softmax over all axes but the first, and
    axes as attributes."""
    body = [
        node("Softmax", "a", "s"),
        node("ReduceSum", "s", "t", axes=[1], keepdims=0),
        node("Squeeze", "a", "u", axes=[0]),
        node("Add", "t u", "b"),
    ]
    imports = [helper.make_opsetid("", 11)]
    function = helper.make_function("mine", "F", ["a"], ["b"], body, imports)
    model = network(
        [helper.make_node("F", ["x"], ["m"], domain="mine"), node("Softmax", "m", "y")],
        [info("x", [1, 2, 3])],
        [info("y", [2, 3])],
        opset=opset,
        imports=[helper.make_opsetid("mine", 1)],
        functions=[function],
    )
    x = _array(1, 2, 3)
    flat = np.exp(x.astype(np.float64))
    inner = x[0] + (flat / flat.sum()).sum(1)
    wanted = np.exp(inner) / np.exp(inner).sum(-1, keepdims=True)
    found = singa.onnx.load(model)(tensor.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [[1, 3, 4, 5], [2, 1, 4, 5], [2, 1, 1, 3], [1, 1, 2, 3, 4]])
def test_affine_grid_like_torch(torch: ModuleType, size: list[int], align: bool) -> None:
    """One image, axes of one element, and volumes, with the gradient of theta."""
    axes = len(size) - 2
    theta = _array(size[0], axes, axes + 1)
    model = network(
        [node("AffineGrid", "theta size", "y", align_corners=int(align))],
        [info("theta", [None] * 3)],
        [info("y", [None] * (axes + 2))],
        {"size": np.array(size)},
    )
    ours = tensor.from_numpy(theta)
    ours.stores_grad = True
    theirs = torch.tensor(theta, requires_grad=True)
    wanted = torch.nn.functional.affine_grid(theirs, size, align_corners=align)
    autograd.training = True
    y = singa.onnx.load(model).forward(ours)
    ((_, grad),) = autograd.backward(autograd.reduce_sum(y * y))
    autograd.training = False
    (wanted * wanted).sum().backward()
    np.testing.assert_allclose(y.numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(grad.numpy(), theirs.grad.numpy(), rtol=1e-5, atol=1e-5)
