"""Writers of operators that select elements by indices or conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd as ag
from ... import singa_wrap as _c
from ...dtypes import BY_VALUE
from ...tensor import Tensor
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call


def _indices(call: Call, value: Any) -> str:
    """Indices as int64: a tensor, or an array that is the same in all traces."""
    if isinstance(value, Tensor) or hasattr(value, "data_type"):
        raw = value.data if isinstance(value, Tensor) else value
        return call.cast(call.value(value), BY_VALUE[raw.data_type()].name, "int64")
    arrays = [np.asarray(v) for v in call.each(lambda op: op.indices)]
    if any(a.shape != arrays[0].shape or (a != arrays[0]).any() for a in arrays):
        raise call.refuse("indices that change with a dynamic axis")
    return call.constant(arrays[0].astype(np.int64))


@writes(ag.Gather, reads="axis indices")
def gather(call: Call) -> None:
    """Gather."""
    op: Any = call.op
    given, lengths = op.indices, [shape[op.axis] for shape in call.in_shapes()]
    listed = np.asarray(given if isinstance(given, (list, tuple)) else 0)
    if ((listed < -min(lengths)) | (listed >= min(lengths))).any():
        if len(set(lengths)) > 1:
            raise call.refuse("indices outside a dynamic axis")
        given = np.asarray(given) % lengths[0]  # as the operator takes them
        call.node("Gather", [call.inputs[0], call.constant(given.astype(np.int64))], axis=op.axis)
        return
    call.node("Gather", [call.inputs[0], _indices(call, given)], axis=op.axis)


@writes(ag.Embedding)
def embedding(call: Call) -> None:
    """Gather of rows."""
    x, w = call.inputs
    call.node("Gather", [w, call.cast(x, call.type_of_input(), "int64")], axis=0)


_REDUCTIONS = {
    _c.ScatterReduction_kNone: ("none", 0),
    _c.ScatterReduction_kAdd: ("add", 16),
    _c.ScatterReduction_kMul: ("mul", 16),
    _c.ScatterReduction_kMax: ("max", 18),
    _c.ScatterReduction_kMin: ("min", 18),
}


def _scatter(call: Call, node: str, **attributes: Any) -> None:
    reduction, opset = _REDUCTIONS[call.op.reduction]
    if call.opset < opset:
        raise call.refuse(f"reduction {reduction!r} needs opset {opset}")
    if len(call.inputs) > 1:
        updates = call.inputs[1]
    else:
        values = call.op.updates
        values = values if isinstance(values, Tensor) else Tensor(data=np.asarray(values))
        kind = call.type_of_input()
        updates = call.cast(call.value(values), values.dtype.name, kind)
    indices = _indices(call, call.op.indices)
    attributes["reduction"] = reduction if opset else None
    call.node(node, [call.inputs[0], indices, updates], **attributes)


@writes(ag.ScatterElements, reads="indices updates axis reduction")
def scatter_elements(call: Call) -> None:
    """ScatterElements."""
    _scatter(call, "ScatterElements", axis=call.op.axis)


@writes(ag.ScatterND, reads="indices updates reduction")
def scatter_nd(call: Call) -> None:
    """ScatterND."""
    _scatter(call, "ScatterND")


@writes(ag.GatherElements, reads="indices axis")
def gather_elements(call: Call) -> None:
    """GatherElements."""
    indices = _indices(call, call.op.indices)
    call.node("GatherElements", [call.inputs[0], indices], axis=call.op.axis)


@writes(ag.GatherND, reads="indices batch_dims")
def gather_nd(call: Call) -> None:
    """GatherND."""
    indices = _indices(call, call.op.indices)
    call.node("GatherND", [call.inputs[0], indices], batch_dims=call.op.batch_dims)


@writes(ag.Where, reads="condition")
def where(call: Call) -> None:
    """Where, whose condition is bool in ONNX."""
    condition = call.op.condition
    if isinstance(condition, Tensor) or hasattr(condition, "data_type"):
        raw = condition.data if isinstance(condition, Tensor) else condition
        name = call.cast(call.value(condition), BY_VALUE[raw.data_type()].name, "bool")
    else:
        name = call.constant(np.asarray(condition) != 0)
    wanted = call.type_of_output()
    x, y = (call.cast(v, call.type_of_input(i), wanted) for i, v in enumerate(call.inputs))
    call.node("Where", [name, x, y])


@writes(ag.OneHot, reads="axis depth values strict")
def one_hot(call: Call) -> None:
    """OneHot."""
    op = call.op
    depth = call.constant(np.array(op.depth, np.int64))
    values = call.constant(np.array([op.off, op.on], np.dtype(call.type_of_output())))
    indices = call.cast(call.inputs[0], call.type_of_input(), "int64")
    call.node("OneHot", [indices, depth, values], axis=op.axis)


@writes(ag.NonZero)
def non_zero(call: Call) -> None:
    """NonZero."""
    call.node("NonZero", call.inputs)
