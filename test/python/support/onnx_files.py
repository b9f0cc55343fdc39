"""Small ONNX models for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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

    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), tensors)
    imports = [helper.make_opsetid("", opset), *options.pop("imports", [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **options)


def node(op: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> Any:
    """A node; names of values are separated by spaces, and "-" is an input that is not given."""
    from onnx import helper

    given = ["" if text == "-" else text for text in inputs.split()]
    return helper.make_node(op, given, outputs.split(), name, **attributes)
