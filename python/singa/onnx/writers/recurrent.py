"""Writers of recurrent networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd as ag
from ... import ops
from ...dtypes import BY_VALUE
from ...tensor import Tensor
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call

#: By mode: operator, number of gates, and the kernel's gates in ONNX's order.
_KINDS = {
    0: ("RNN", 1, (0,)),
    1: ("RNN", 1, (0,)),
    2: ("LSTM", 4, (0, 3, 1, 2)),
    3: ("GRU", 3, (1, 0, 2)),
    4: ("GRU", 3, (1, 0, 2)),
}


class _Weights:
    """The parts of the flat weights, as slices of the one parameter: it keeps its name."""

    def __init__(self, call: Call, handle: Any, W: str) -> None:
        self.call, self.handle, self.W = call, handle, W
        self.op, self.gates, self.order = _KINDS[int(handle.mode)]

    def _part(self, offset: int, rows: int, columns: int | None) -> str:
        """Gates at an offset, (1, gates·hidden, columns) in ONNX's order; None: a vector."""
        call = self.call
        size = rows * (columns or 1)
        ends = [call.constant(np.array([n], np.int64)) for n in (offset, offset + size)]
        flat = call.step("Slice", [self.W, *ends, call.constant(np.array([0], np.int64))])
        hidden = self.handle.hidden_size
        shape = [self.gates, hidden] + ([] if columns is None else [columns])
        cube = call.step("Reshape", [flat, call.constant(np.array(shape, np.int64))])
        if self.order != tuple(range(self.gates)):
            order = call.constant(np.array(self.order, np.int64))
            cube = call.step("Gather", [cube, order], axis=0)
        last = [1, rows] + ([] if columns is None else [columns])
        return call.step("Reshape", [cube, call.constant(np.array(last, np.int64))])

    def of_layer(self, layer: int) -> list[str]:
        """[W, R] or [W, R, B] of one layer."""
        h = self.handle
        rows = self.gates * h.hidden_size
        width = h.input_size if layer == 0 else h.directions * h.hidden_size
        offset = 0
        for i in range(layer):
            before = h.input_size if i == 0 else h.directions * h.hidden_size
            offset += h.directions * rows * (before + h.hidden_size)
        inputs, states = [], []
        for d in range(h.directions):
            start = offset + d * rows * (width + h.hidden_size)
            inputs.append(self._part(start, rows, width))
            states.append(self._part(start + rows * width, rows, h.hidden_size))
        result = [self._joined(inputs), self._joined(states)]
        if h.bias:
            first = h.weights_size - h.num_layers * h.directions * 2 * rows
            first += layer * h.directions * 2 * rows
            both = []
            for d in range(h.directions):
                halves = [self._part(first + (2 * d + k) * rows, rows, None) for k in range(2)]
                both.append(self.call.step("Concat", halves, axis=1))
            result.append(self._joined(both))
        return result

    def _joined(self, parts: list[str]) -> str:
        return parts[0] if len(parts) == 1 else self.call.step("Concat", parts, axis=0)


def _network(call: Call) -> tuple[str, list[str], str]:
    """(outputs of all steps, last states, lengths) of the network."""
    h = call.op.handle
    x, hx, cx, W = call.inputs
    weights = _Weights(call, h, W)
    lengths = ""
    if call.op.seq_lengths is not None:
        given = call.op.seq_lengths
        raw = given.data if isinstance(given, Tensor) else given
        lengths = call.cast(call.value(given), BY_VALUE[raw.data_type()].name, "int32")
    states: list[list[str]] = [[], []]
    shapes = call.in_shapes()
    for layer in range(h.num_layers):
        parts = weights.of_layer(layer)
        parts += [""] * (3 - len(parts))
        ends = [layer * h.directions, (layer + 1) * h.directions]
        initial = []
        for t in (hx, cx) if weights.op == "LSTM" else (hx,):
            if h.num_layers > 1:
                bounds = [call.constant(np.array([n], np.int64)) for n in ends]
                t = call.step("Slice", [t, *bounds, call.constant(np.array([0], np.int64))])
            initial.append(t)
        attributes: dict[str, Any] = {
            "hidden_size": h.hidden_size,
            "direction": "bidirectional" if h.directions == 2 else "forward",
        }
        if weights.op == "GRU":
            attributes["linear_before_reset"] = int(int(h.mode) == 3)
        if int(h.mode) == 0:
            attributes["activations"] = ["Relu"] * h.directions
        count = 3 if weights.op == "LSTM" else 2
        y, *last = call.writer.node(weights.op, [x, *parts, lengths, *initial], count, **attributes)
        for kept, t in zip(states, last, strict=False):
            kept.append(t)
        # (steps, directions, batch, hidden) to (steps, batch, directions·hidden)
        turned = call.step("Transpose", [y], perm=[0, 2, 1, 3])
        width = h.directions * h.hidden_size
        before = [(s[0], s[1], h.directions, h.hidden_size) for s in shapes]
        x = call.reshape(turned, before, [(s[0], s[1], width) for s in shapes])
    results = [t[0] if len(t) == 1 else call.step("Concat", t, axis=0) for t in states if t]
    return x, results, lengths


@writes(ops.RNN, reads="handle seq_lengths")
def rnn(call: Call) -> None:
    """One RNN, GRU or LSTM for each layer."""
    y, states, _ = _network(call)
    for output, name in zip(call.outputs, [y, *states], strict=True):
        call.writer.node("Identity", [name], [output])


@writes(ag._RNN, reads="handle return_sequences use_mask seq_lengths")
def singas_rnn(call: Call) -> None:
    """The outputs of all steps, or of the last one."""
    y, _, lengths = _network(call)
    if call.op.return_sequences:
        call.node("Identity", [y])
        return
    if not lengths:
        call.node("Gather", [y, call.constant(np.array(-1, np.int64))], axis=0)
        return
    # Each sequence ends at its own step: its one-hot row selects it.
    steps = call.step("Shape", [y])
    count = call.step("Gather", [steps, call.constant(np.array([0], np.int64))], axis=0)
    last = call.step("Sub", [lengths, call.constant(np.array(1, np.int32))])
    kind = call.type_of_output()
    rows = call.step("OneHot", [last, count, call.constant(np.array([0, 1], kind))], axis=0)
    wide = call.step("Unsqueeze", [rows, call.constant(np.array([2], np.int64))])
    product = call.step("Mul", [y, wide])
    call.node("ReduceSum", [product, call.constant(np.array([0], np.int64))], keepdims=0)
