"""Writer of rotary position embedding, as products and sums: RotaryEmbedding is of opset 23."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ... import autograd as ag
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call


@writes(ag.RotaryEmbedding, reads="interleaved")
def rotary_embedding(call: Call) -> None:
    """(a·cos - b·sin, a·sin + b·cos) for pairs (a, b), and the rest as it is."""
    interleaved = call.op.interleaved
    found = call.type_of_input()
    wide = found if found in ("float32", "float64") else "float32"
    x = call.cast(call.inputs[0], found, wide)
    cos, sin = (call.cast(call.inputs[i], call.type_of_input(i), wide) for i in (1, 2))
    width, pairs = call.in_shapes()[0][3], call.in_shapes(1)[0][-1]
    if len(call.in_shapes(1)[0]) == 3:  # (B, N, R / 2), for all heads
        axis = call.constant(np.array([1], np.int64))
        cos, sin = (call.step("Unsqueeze", [table, axis]) for table in (cos, sin))

    def part(first: int, last: int, step: int = 1) -> str:
        bounds = [call.constant(np.array([n], np.int64)) for n in (first, last, 3, step)]
        return call.step("Slice", [x, *bounds])

    if interleaved:
        a, b = part(0, 2 * pairs, 2), part(1, 2 * pairs, 2)
    else:
        a, b = part(0, pairs), part(pairs, 2 * pairs)
    turned = [
        call.step("Sub", [call.step("Mul", [a, cos]), call.step("Mul", [b, sin])]),
        call.step("Add", [call.step("Mul", [a, sin]), call.step("Mul", [b, cos])]),
    ]
    if interleaved:
        last = call.constant(np.array([4], np.int64))
        both = call.step("Concat", [call.step("Unsqueeze", [t, last]) for t in turned], axis=4)
        # 0 keeps an axis.
        shape = call.constant(np.array([0, 0, 0, 2 * pairs], np.int64))
        turned = [call.step("Reshape", [both, shape])]
    if width > 2 * pairs:
        turned.append(part(2 * pairs, width))
    call.finish(call.step("Concat", turned, axis=3), wide)
