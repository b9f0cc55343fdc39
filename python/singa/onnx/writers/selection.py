"""Writers of operators that select elements by indices or conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd as ag
from ... import singa_wrap as _c
from ...dtypes import BY_VALUE
from ...networks.element_types import numpy_type
from ...tensor import Tensor
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call


def _indices(call: Call) -> str:
    """The operator's indices as int64: a tensor, or an array."""
    given = call.each(lambda op: op.indices)
    if isinstance(given[0], Tensor | _c.Tensor):
        return call.cast(call.value(call.op.indices), _type_of(given[0]), "int64")
    return call.writer.kept([_whole(v) for v in given], f"indices of {call.title}")


def _type_of(t: Any) -> str:
    raw = t.data if isinstance(t, Tensor) else t
    return BY_VALUE[raw.data_type()].name


def _whole(value: Any) -> Any:
    return np.asarray(value).astype(np.int64)


@writes(ag.Gather, reads="axis indices")
def gather(call: Call) -> None:
    """Gather."""
    axis, given = call.op.axis, call.each(lambda op: op.indices)
    if isinstance(given[0], list | tuple | np.ndarray):
        lengths = [shape[axis] for shape in call.in_shapes()]
        arrays = [_whole(v) for v in given]
        if any(
            ((a < -n) | (a >= n)).any() for a, n in zip(arrays, lengths, strict=True)
        ):  # the operator takes them modulo the length
            arrays = [a % n for a, n in zip(arrays, lengths, strict=True)]
        indices = call.writer.kept(arrays, f"indices of {call.title}")
    else:
        indices = _indices(call)
    call.node("Gather", [call.inputs[0], indices], axis=axis)


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
        given, kind = call.each(lambda op: op.updates), call.type_of_input()
        if isinstance(given[0], Tensor | _c.Tensor):
            updates = call.cast(call.value(call.op.updates), _type_of(given[0]), kind)
        else:
            arrays = [np.asarray(v).astype(numpy_type(kind)) for v in given]
            updates = call.writer.kept(arrays, f"updates of {call.title}")
    indices = _indices(call)
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
    indices = _indices(call)
    call.node("GatherElements", [call.inputs[0], indices], axis=call.op.axis)


@writes(ag.GatherND, reads="indices batch_dims")
def gather_nd(call: Call) -> None:
    """GatherND."""
    indices = _indices(call)
    call.node("GatherND", [call.inputs[0], indices], batch_dims=call.op.batch_dims)


@writes(ag.Where, reads="condition")
def where(call: Call) -> None:
    """Where, whose condition is bool in ONNX."""
    given = call.each(lambda op: op.condition)
    if isinstance(given[0], Tensor | _c.Tensor):
        name = call.cast(call.value(call.op.condition), _type_of(given[0]), "bool")
    else:
        arrays = [np.asarray(v) != 0 for v in given]
        name = call.writer.kept(arrays, f"the condition of {call.title}")
    wanted = call.type_of_output()
    x, y = (call.cast(v, call.type_of_input(i), wanted) for i, v in enumerate(call.inputs))
    call.node("Where", [name, x, y])


@writes(ag.OneHot, reads="axis depth values strict")
def one_hot(call: Call) -> None:
    """OneHot."""
    op = call.op
    depth = call.integer(lambda o: o.depth, "depth")
    values = call.constant(np.array([op.off, op.on], np.dtype(call.type_of_output())))
    indices = call.cast(call.inputs[0], call.type_of_input(), "int64")
    call.node("OneHot", [indices, depth, values], axis=op.axis)


@writes(ag.NonZero)
def non_zero(call: Call) -> None:
    """NonZero."""
    call.node("NonZero", call.inputs)
