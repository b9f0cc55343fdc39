"""Writers of sorting, running sums and triangles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ... import autograd as ag
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call


@writes(ag.TopK, reads="k axis largest")
def top_k(call: Call) -> None:
    """TopK. Its second output are the indices, which are no output of the operator."""
    op = call.op
    axis = op.axis
    k = call.writer.integers([(shape[axis],) for shape in call.out_shapes()], "k")
    name = call.writer.fresh(f"{call.outputs[0]}_indices")
    call.writer.node(
        "TopK",
        [call.inputs[0], k],
        [call.outputs[0], name],
        axis=axis,
        largest=int(op.largest),
        sorted=1,
    )
    call.bind_indices(name)


@writes(ag.CumSum, reads="axis exclusive reverse")
def cum_sum(call: Call) -> None:
    """CumSum."""
    op = call.op
    axis = call.constant(np.array(op.axis, np.int64))
    x = call.cast(call.inputs[0], call.type_of_input(), call.type_of_output())
    call.node("CumSum", [x, axis], exclusive=int(op.exclusive), reverse=int(op.reverse))


@writes(ag.Triangle, reads="k upper")
def triangle(call: Call) -> None:
    """Trilu, from opset 14 on."""
    if call.opset < 14:
        raise call.refuse("triangles need opset 14")
    k = call.integer(lambda op: op.k, "k")
    call.node("Trilu", [call.inputs[0], k], upper=int(call.op.upper))
