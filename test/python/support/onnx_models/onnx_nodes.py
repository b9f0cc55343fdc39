"""Single nodes in singa and in ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import singa.onnx
from singa import tensor
from singa.networks.element_types import HELD, is_singas, name_of
from singa.networks.tensors import as_tensor
from singa.onnx import InvalidModelError, UnsupportedError

RIGHT, REFUSED, WRONG, UNKNOWN = "right", "refused", "wrong", "refused by ONNX Runtime"


@dataclass
class Call:
    """A node with arrays as inputs, None for one that is not given.

    version    opset of its domain
    constants  numbers of the inputs that are initializers of the file
    """

    op: str
    arrays: list[Any]
    outputs: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    version: int = 21
    constants: tuple[int, ...] = ()

    def model(self) -> Any:
        """A ModelProto of the node."""
        import onnx
        from onnx import helper, numpy_helper

        names = [f"i{i}" if x is not None else "" for i, x in enumerate(self.arrays)]
        results = [f"o{i}" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, results, domain=self.domain, **self.attributes)
        given = {name: x for name, x in zip(names, self.arrays, strict=True) if name}
        kinds = {n: helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in given.items()}
        types = {n: helper.make_tensor_type_proto(kinds[n], x.shape) for n, x in given.items()}
        schema = onnx.defs.get_schema(self.op, self.version, self.domain)
        opsets = [helper.make_opsetid(self.domain, self.version)]
        data = {n: numpy_helper.from_array(x, n) for n, x in given.items()}
        found = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=opsets
        )
        known = {f"i{i}" for i in self.constants if self.arrays[i] is not None}
        values = [onnx.ValueInfoProto(name=name) for name in (*given, *results)]
        for value in values:
            kind = types.get(value.name) or found.get(value.name)
            if kind is not None:
                value.type.CopyFrom(kind)
        inputs = [value for value in values[: len(given)] if value.name not in known]
        constants = [data[name] for name in given if name in known]
        graph = helper.make_graph([node], "node", inputs, values[len(given) :], constants)
        if self.domain:
            opsets.append(helper.make_opsetid("", 21))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


#: Largest differences of results, as a part of the largest number.
_TOLERANCES = {"float16": 4e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-6}


def beside_runtime(call: Call, other: list[Any] | None = None) -> tuple[str, str]:
    """(RIGHT, REFUSED, WRONG or UNKNOWN, why) of a node. Results may also be those of `other`."""
    import onnxruntime

    try:
        model = call.model()
    except Exception as error:  # onnx refuses types or shapes with errors of many kinds
        return UNKNOWN, str(error)
    names = [value.name for value in model.graph.input]
    given = {name: call.arrays[int(name[1:])] for name in names}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        expected = session.run(None, given)
    except Exception as error:  # it has a class of its own for each kind of refusal
        return UNKNOWN, str(error)
    try:
        net = singa.onnx.load(model)
        net.eval()
        found = net.values([as_input(x) for x in given.values()], net.output_names)
    except (UnsupportedError, InvalidModelError) as error:
        return REFUSED, str(error)
    for i, (y, wanted) in enumerate(zip(found, expected, strict=True)):
        why = difference(y, wanted)
        if why and (other is None or difference(y, other[i])):
            return WRONG, f"output {i}: {why}"
    return RIGHT, ""


def as_input(array: Any) -> Any:
    """An array as a tensor, where singa has tensors of its type."""
    return as_tensor(array, tensor.Tensor((1,)).device) if is_singas(name_of(array)) else array


def difference(y: Any, wanted: Any) -> str:
    """How a result differs from ONNX Runtime's; empty if it does not."""
    if isinstance(wanted, list):
        if len(y) != len(wanted):
            return f"{len(y)} elements, not {len(wanted)}"
        parts = (difference(*pair) for pair in zip(y, wanted, strict=True))
        return next((why for why in parts if why), "")
    array = y if isinstance(y, np.ndarray) else y.numpy()
    wanted = wanted.astype(np.int32) if name_of(wanted) in HELD else wanted
    if name_of(array).startswith("float8") and wanted.dtype == np.uint8:
        array = array.view(np.uint8)  # as ONNX Runtime gives them
    elif name_of(wanted) != y.dtype.name and name_of(wanted) != name_of(array):
        return f"type {y.dtype}, not {wanted.dtype}"
    if array.shape != wanted.shape:
        return f"shape {array.shape}, not {wanted.shape}"
    if wanted.dtype.kind in "OUS":
        return "" if array.tolist() == wanted.tolist() else f"{array.tolist()}, {wanted.tolist()}"
    if wanted.dtype.kind in "biu":
        return "" if np.array_equal(array, wanted) else f"{array.ravel()[:8]}, {wanted.ravel()[:8]}"
    a, b = array.astype(np.float64), wanted.astype(np.float64)
    tolerance = _TOLERANCES.get(y.dtype.name, 0.0)
    largest = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    if np.allclose(a, b, rtol=tolerance, atol=tolerance * largest, equal_nan=True):
        return ""
    return f"{a.ravel()[:8]}, not {b.ravel()[:8]}"
