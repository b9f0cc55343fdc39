"""Writer of attention, as products and a softmax."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd as ag
from ...networks.element_types import numpy_type
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call


@writes(ag.ScaledDotProductAttention, reads="dropout causal scale first_query")
def attention(call: Call) -> None:
    """softmax(scale · q·kᵀ + mask)·v. A query that uses no key gives zeros, where the softmax of
    ONNX would give NaN."""
    op, found = call.op, call.type_of_input()
    if op.dropout and call.writer.training:
        raise call.refuse("dropout of weights in training form")
    wide = found if found in ("float32", "float64") else "float32"
    q, k, v = (call.cast(name, found, wide) for name in call.inputs[:3])
    heads, shared = call.in_shapes()[0][1], call.in_shapes(1)[0][1]
    if heads != shared:
        each = call.constant(np.repeat(np.arange(shared, dtype=np.int64), heads // shared))
        k, v = (call.step("Gather", [x, each], axis=1) for x in (k, v))
    width = call.in_shapes()[0][3]
    scale = (1 / math.sqrt(width) if width else 1.0) if op.scale is None else op.scale
    turned = call.step("Transpose", [k], perm=[0, 1, 3, 2])
    q = call.step("Mul", [q, call.constant(scale, wide)])
    scores = call.step("MatMul", [q, turned])
    minus_infinity = call.constant(np.array(-np.inf, numpy_type(wide)))
    empty = op.causal and any(first < 0 for first in call.each(lambda o: o.first_query))
    if len(call.inputs) > 3:
        empty = True
        kind, mask = call.type_of_input(3), call.inputs[3]
        if repeats := _repeats(call):
            scores = call.reshape(scores, *repeats)
        if kind == "bool":
            scores = call.step("Where", [mask, scores, minus_infinity])
        else:
            scores = call.step("Add", [scores, call.cast(mask, kind, wide)])
        if repeats:
            scores = call.reshape(scores, *reversed(repeats))
    if op.causal:
        scores = call.step("Where", [_causal(call), scores, minus_infinity])
    hidden = ""
    if empty:
        least = call.constant(np.array(np.finfo(wide).min, numpy_type(wide)))
        hidden = call.step("Less", [scores, least])
        scores = call.step("Where", [hidden, least, scores])
    weights = call.step("Softmax", [scores], axis=-1)
    if hidden:
        weights = call.step("Where", [hidden, call.constant(0.0, wide), weights])
    call.finish(call.step("MatMul", [weights, v]), wide)


def _repeats(call: Call) -> tuple[list[Any], list[Any]] | None:
    """Where the mask repeats along the batch: the shapes of the scores, and with an axis for the
    repetitions."""
    masks = [shape[0] if len(shape) == 4 else 1 for shape in call.in_shapes(3)]
    scores = [(*q[:3], k[2]) for q, k in zip(call.in_shapes(), call.in_shapes(1), strict=True)]
    if all(own in (1, shape[0]) for own, shape in zip(masks, scores, strict=True)):
        return None
    apart = [(shape[0] // own, own, *shape[1:]) for own, shape in zip(masks, scores, strict=True)]
    return scores, apart


def _causal(call: Call) -> str:
    """Which keys each query uses, (N, M)."""
    queries = [(shape[2],) for shape in call.in_shapes()]
    keys = [(shape[2],) for shape in call.in_shapes(1)]
    first = [(n,) for n in call.each(lambda op: op.first_query)]
    if all(len(set(rows)) == 1 for rows in (queries, keys, first)):
        (n,), (m,), (start,) = queries[0], keys[0], first[0]
        return call.constant(np.arange(m) <= np.arange(n)[:, None] + start)
    scalar = call.constant(np.array([], np.int64))
    zero, one = (call.constant(np.array(i, np.int64)) for i in (0, 1))

    def numbers(rows: list[tuple[int]], what: str) -> str:
        count = call.step("Reshape", [call.writer.integers(rows, what), scalar])
        return call.step("Range", [zero, count, one])

    last = call.step(
        "Add", [numbers(queries, "queries"), call.writer.integers(first, "the first query")]
    )
    column = call.step("Unsqueeze", [last, call.constant(np.array([1], np.int64))])
    beyond = call.step("Greater", [numbers(keys, "keys"), column])
    return call.step("Not", [beyond])
