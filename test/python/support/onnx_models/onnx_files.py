"""Small ONNX models for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from arrays import array
from singa import tensor

Array = np.ndarray[Any, Any]


def info(name: str, shape: Sequence[int | str | None] | None = None, kind: str = "float32") -> Any:
    """A declaration of an input or output."""
    from onnx import helper

    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return helper.make_tensor_value_info(name, number, shape)


def network(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: Mapping[str, Array] | None = None,
    opset: int = 21,
    **options: Any,
) -> Any:
    """A ModelProto of these nodes; `weights` are initializers."""
    from onnx import helper, numpy_helper

    tensors = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), tensors)
    imports = [helper.make_opsetid("", opset), *options.pop("imports", [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **options)


def node(op: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> Any:
    """A node; names of values are separated by spaces, and "-" is an input that is not given."""
    from onnx import helper

    given = ["" if text == "-" else text for text in inputs.split()]
    return helper.make_node(op, given, outputs.split(), name, **attributes)


def drawn(*shape: int, dtype: str = "float32") -> tensor.Tensor:
    return tensor.from_numpy(array(*shape), dtype=dtype)


def classifier(dtype: str = "float32") -> Any:
    """Conv, BatchNormalization, Relu, global mean, Flatten, Gemm."""
    channels = {
        "bn.weight": np.ones(4),
        "bn.bias": np.zeros(4),
        "bn.running_mean": array(4),
        "bn.running_var": np.full(4, 0.7),
    }
    weights = {
        "conv.weight": array(4, 3, 3, 3),
        **channels,
        "fc.weight": array(5, 4),
        "fc.bias": array(5),
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
        {name: value.astype(dtype) for name, value in weights.items()},
    )
