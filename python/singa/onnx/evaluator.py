"""Operators that onnx's reference evaluator computes on the host, with NumPy.

Its results have no gradient, and it is slow where it loops in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..networks.errors import InvalidModelError, Refused
from ..networks.graph import Node
from .data_types import NUMBERS
from .graph_proto import node_proto

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

#: Largest number of elements of a value that the host makes, since a file could ask for any.
_MOST_ELEMENTS = 1 << 27
#: Values up to this size take part in the inference of the results' shapes.
_SMALL = 4096

#: Axes of inputs of one number: ONNX Runtime takes any, the evaluator only these.
_NUMBERS: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "CumSum": {1: ()},
    "OneHot": {1: ()},
    "NonMaxSuppression": {2: (1,), 3: (1,), 4: (1,)},
}
#: Optional inputs that the evaluator needs.
_DEFAULTS: Mapping[str, tuple[Array | None, ...]] = {
    "NonMaxSuppression": (None, None, np.zeros(1, np.int64), np.zeros(1, np.float32)),
}


def bounded(node: Node, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a result. Raises InvalidModelError if it is negative or huge."""
    sizes = tuple(int(n) for n in shape)
    if any(n < 0 for n in sizes) or math.prod(sizes) > _MOST_ELEMENTS:
        raise InvalidModelError(
            f"[onnx] node {node.name!r} ({node.op}) makes a constant of shape {sizes}"
        )
    return sizes


def evaluator(node: Node) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """The function that computes a node of the values of its inputs: arrays, lists of arrays for
    sequences, None where an input is not given.

    It raises InvalidModelError for inputs that do not fit the operator, and for a huge result.
    """
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    defaults = _DEFAULTS.get(node.op, ())
    count = max(len(node.inputs), len(defaults))
    is_given = [node.has(i) or (defaults[i:] or (None,))[0] is not None for i in range(count)]
    proto = node_proto(node)
    proto.input[:] = [f"in{i}" if given else "" for i, given in enumerate(is_given)]
    outputs = 4 if node.op == "Unique" else len(node.outputs)  # it sorts if others are missing
    proto.output[:] = [f"out{i}" for i in range(outputs)]
    opsets = [helper.make_opsetid(node.domain, node.version)]
    names = [name for name in proto.input if name]
    function = helper.make_function("singa", "node", names, proto.output, [proto], opsets)
    schema = onnx.defs.get_schema(node.op, node.version, node.domain)
    reference = ReferenceEvaluator(function)

    def compute(values: Sequence[Any]) -> tuple[Any, ...]:
        padded = [*values, *[None] * (count - len(values))]
        filled: list[Any] = [
            defaults[i] if value is None and i < len(defaults) else value
            for i, value in enumerate(padded)
        ]
        for i, axes in _NUMBERS.get(node.op, {}).items():
            if i < len(filled) and filled[i] is not None and filled[i].size == 1:
                filled[i] = filled[i].reshape(axes)
        feeds = {f"in{i}": value for i, value in enumerate(filled) if value is not None}
        for value in feeds.values():
            for array in value if isinstance(value, list) else [value]:
                bounded(node, array.shape)
        try:
            types = _types(schema, proto, feeds, opsets)
            for kind in types.values():
                bounded(node, [d.dim_value or 1 for d in kind.tensor_type.shape.dim])
            with np.errstate(all="ignore"):
                results = reference.run(None, feeds, {})
        except InvalidModelError:
            raise
        except NotImplementedError as error:
            raise Refused(f"onnx's reference evaluator: {error}") from None
        except Exception as error:  # it raises errors of many kinds
            what = " ".join(str(error.__cause__ or error).split())[:300] or type(error).__name__
            raise InvalidModelError(f"[onnx] node {node.name!r} ({node.op}): {what}") from None
        return tuple(
            _of_type(result, types.get(name))
            for name, result in zip(proto.output, results, strict=False)
        )

    return compute


def _types(
    schema: Any, proto: Any, feeds: Mapping[str, Any], opsets: Sequence[Any]
) -> dict[str, Any]:
    """TypeProtos of the outputs for these inputs."""
    from onnx import numpy_helper, shape_inference

    if any(isinstance(value, list) and not value for value in feeds.values()):
        return {}  # an empty sequence has no element type
    types = {name: _type_proto(value) for name, value in feeds.items()}
    data = {
        name: numpy_helper.from_array(value, name)
        for name, value in feeds.items()
        if not isinstance(value, list) and value.dtype.kind in "iub" and value.size <= _SMALL
    }

    def inferred() -> dict[str, Any]:
        found: dict[str, Any] = shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=list(opsets)
        )
        return found

    try:
        return inferred()
    except Exception:  # old versions lack bfloat16, but a network may be converted to it
        narrow = [
            k.tensor_type for k in types.values() if k.tensor_type.elem_type == NUMBERS["bfloat16"]
        ]
        if not narrow:
            raise
    for kind in narrow:
        kind.elem_type = NUMBERS["float32"]
    found = inferred()
    for each in found.values():
        if each.tensor_type.elem_type == NUMBERS["float32"]:
            each.tensor_type.elem_type = NUMBERS["bfloat16"]
    return found


def _type_proto(value: Any) -> Any:
    from onnx import helper

    if isinstance(value, list):
        element = helper.np_dtype_to_tensor_dtype(value[0].dtype)
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None))
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _of_type(value: Any, kind: Any) -> Any:
    """A result as an array of the type that the operator declares; texts are objects."""
    from onnx import helper

    if isinstance(value, list):
        return [_of_type(each, None) for each in value]
    array = np.asarray(value)
    if kind is not None and kind.tensor_type.elem_type:
        array = array.astype(
            helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type), copy=False
        )
    return array.astype(object) if array.dtype.kind in "US" else array
