"""Readers of operators with subgraphs.

A branch or the number of iterations that depends on values of tensors is read by the host, so such
steps are executed and not replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import autograd
from ...networks.element_types import ALL, BOOL
from ...networks.errors import InvalidModelError, Refused
from ...networks.front_end import Compute
from ...networks.graph import Graph, Node
from ...tensor import Tensor
from ..values import axis_within
from .movement import reshaped
from .registry import reads

#: Most iterations of one loop, since a file could ask for any number.
_MOST_ITERATIONS = 1 << 16


def _graph(node: Node, attribute: str, inputs: int, outputs: int) -> Graph:
    graph = node.attributes.get(attribute)
    if not isinstance(graph, Graph):
        raise Refused(f"no graph in attribute {attribute!r}")
    if (len(graph.inputs), len(graph.outputs)) != (inputs, outputs):
        raise InvalidModelError(
            f"[onnx.load] node {node.name!r} ({node.op}): {attribute} must have {inputs} inputs "
            f"and {outputs} outputs, has {len(graph.inputs)} and {len(graph.outputs)}"
        )
    return graph


def branch(node: Node, condition: bool) -> Graph:
    """The subgraph that an If runs. Raises InvalidModelError for one with inputs, and for another
    number of outputs than that of the node."""
    name = "then_branch" if condition else "else_branch"
    return _graph(node, name, 0, len(node.outputs))


@reads("If", 1, 11, 13, 16, 19, 21, 23, 24, 25, types=BOOL, host=(0,))
def if_(node: Node) -> Compute:
    """One of two subgraphs."""
    then, other = branch(node, True), branch(node, False)

    def compute(run: Any, condition: Any) -> tuple[Any, ...]:
        if condition.size != 1:
            raise ValueError(f"[If] the condition has shape {condition.shape}")
        return tuple(run.call(then if condition.reshape(-1)[0] else other, {}))

    return compute


@reads(
    *("Loop", 1, 11, 13, 16, 19, 21, 23, 24, 25),
    types=ALL,
    host=(0, 1),
    either=True,
    sequences=True,
)
def loop(node: Node) -> Compute:
    """Repeats a subgraph a number of times, while a condition holds."""
    carried = max(0, len(node.inputs) - 2)
    body = _graph(node, "body", 2 + carried, 1 + len(node.outputs))

    def compute(run: Any, count: Any = None, condition: Any = None, *values: Any) -> Any:
        limit = None if count is None else int(count.reshape(-1)[0])
        goes_on = True if condition is None else bool(condition.reshape(-1)[0])
        state = list(values)
        collected: list[list[Any]] = [[] for _ in body.outputs[1 + carried :]]
        i = 0
        while goes_on and (limit is None or i < limit):
            if i == _MOST_ITERATIONS:
                raise Refused(f"more than {_MOST_ITERATIONS} iterations")
            inputs = [np.array(i, np.int64), np.array(True), *state]
            results = run.call(body, dict(zip(body.inputs, inputs, strict=True)))
            goes_on = bool(run.host(results[0]).reshape(-1)[0])
            state = results[1 : 1 + carried]
            for each, value in zip(collected, results[1 + carried :], strict=True):
                each.append(value)
            i += 1
        if collected and not i:
            raise Refused("a loop without iterations that collects values")
        return (*state, *(_stacked(run, each, 0) for each in collected))

    return compute


def _stacked(run: Any, values: Sequence[Any], axis: int) -> Any:
    if not any(isinstance(value, Tensor) for value in values):
        return np.stack(values, axis)
    rows = []
    for value in values:
        t = run.as_tensor(value)
        rows.append(reshaped(t, (*t.shape[:axis], 1, *t.shape[axis:])))
    return autograd.cat(rows, axis) if len(rows) > 1 else rows[0]


@reads("Scan", 9, 11, 16, 19, 21, 23, 24, 25, types=ALL)
def scan(node: Node) -> Compute:
    """Runs a subgraph over slices of tensors."""
    body = _graph(node, "body", len(node.inputs), len(node.outputs))
    scanned = node.attributes["num_scan_inputs"]
    carried = len(node.inputs) - scanned
    outputs = len(body.outputs) - carried
    of = node.attributes.get
    in_axes = of("scan_input_axes") or [0] * scanned
    out_axes = of("scan_output_axes") or [0] * outputs
    in_backward = of("scan_input_directions") or [0] * scanned
    out_backward = of("scan_output_directions") or [0] * outputs

    def compute(run: Any, *inputs: Tensor) -> Any:
        state, xs = list(inputs[:carried]), inputs[carried:]
        axes = [axis_within(node, a, len(x.shape)) for a, x in zip(in_axes, xs, strict=True)]
        counts = {x.shape[a] for a, x in zip(axes, xs, strict=True)}
        if len(counts) != 1:
            raise ValueError(f"[Scan] scan inputs of lengths {sorted(counts)}")
        count = counts.pop()
        if not count:
            raise Refused("a scan over nothing")
        collected: list[list[Any]] = [[] for _ in range(outputs)]
        for i in range(count):
            slices = []
            for x, axis, backward in zip(xs, axes, in_backward, strict=True):
                at = count - 1 - i if backward else i
                part = autograd.slice(x, [at], [at + 1], [axis])
                slices.append(reshaped(part, (*x.shape[:axis], *x.shape[axis + 1 :])))
            results = run.call(body, dict(zip(body.inputs, [*state, *slices], strict=True)))
            state = results[:carried]
            for each, value in zip(collected, results[carried:], strict=True):
                each.append(value)
        stacked = []
        for each, axis, backward in zip(collected, out_axes, out_backward, strict=True):
            rows = each[::-1] if backward else each
            rank = len(rows[0].shape) + 1
            stacked.append(_stacked(run, rows, axis_within(node, axis, rank)))
        return (*state, *stacked)

    return compute
