"""Readers of RNN, GRU and LSTM.

What singa's kernel computes goes to the kernel: all steps and both directions in one operation.
It has the usual activations and takes biases, initial states and lengths. The rest (peepholes,
clip, other activations, coupled gates, on GPUs a reset gate before the product) is computed step by
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ... import autograd, singa_wrap, tensor
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...tensor import Tensor
from .movement import reshaped
from .registry import reads

#: Number of gates, and how to order them as the kernel does: i f g o, and r z n.
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ORDER = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_MODES = {"RNN": 1, "GRU": 3, "LSTM": 2}
_MOST_STEPS = 1 << 16


def _activation(name: str, alpha: float | None, beta: float | None) -> Callable[[Tensor], Tensor]:
    """An activation function by ONNX's name, which is not sensitive to case."""

    def of(value: float | None, default: float) -> float:
        return default if value is None else value

    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": autograd.relu,
        "tanh": autograd.tanh,
        "sigmoid": autograd.sigmoid,
        "softsign": autograd.softsign,
        "softplus": autograd.softplus,
        "affine": lambda x: x * of(alpha, 1.0) + of(beta, 0.0),
        "leakyrelu": lambda x: autograd.leakyrelu(x, of(alpha, 0.01)),
        "scaledtanh": lambda x: autograd.tanh(x * of(beta, 1.0)) * of(alpha, 1.0),
        "hardsigmoid": lambda x: autograd.hardsigmoid(x, of(alpha, 0.2), of(beta, 0.5)),
        "elu": lambda x: autograd.elu(x, of(alpha, 1.0)),
    }
    if name.lower() not in functions:
        raise Refused(f"activation {name!r}")
    return functions[name.lower()]


@dataclass
class _Direction:
    """Weights of one direction: W (gates·hidden, input), R (gates·hidden, hidden), biases of both,
    and peepholes (3·hidden)."""

    W: Tensor
    R: Tensor
    Wb: Tensor | None
    Rb: Tensor | None
    P: Tensor | None


class Network:
    """One node: its attributes, and the two ways of computing it. `op` is RNN, GRU or LSTM."""

    def __init__(self, node: Node, op: str = "") -> None:
        self.node = node
        of = node.attributes.get
        self.op = op or node.op
        self.direction = of("direction", "forward")
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise Refused(f"direction {self.direction!r}")
        self.directions = 2 if self.direction == "bidirectional" else 1
        self.batch_first = bool(of("layout", 0))
        self.clip = of("clip")
        self.coupled = bool(of("input_forget", 0))
        self.after = bool(of("linear_before_reset", 0))
        names = of("activations") or _DEFAULTS[self.op] * self.directions
        count = len(_DEFAULTS[self.op])
        if len(names) != count * self.directions:
            raise Refused(f"{len(names)} activations for {self.directions} directions")
        alphas, betas = list(of("activation_alpha") or []), list(of("activation_beta") or [])
        self.functions = []
        for i, name in enumerate(names):
            # Alphas and betas are given for the activations that have them, in order.
            alpha = alphas[i] if i < len(alphas) else None
            beta = betas[i] if i < len(betas) else None
            self.functions.append(_activation(name, alpha, beta))
        names = [name.lower() for name in names]
        usual = names == [name.lower() for name in _DEFAULTS[self.op]] * self.directions
        relu = self.op == "RNN" and set(names) == {"relu"}
        self.mode = 0 if relu else _MODES[self.op]
        if self.op == "GRU" and not self.after:
            self.mode = singa_wrap.RnnMode_kGruResetBefore
        self.in_kernel = (
            (usual or relu)
            and self.clip is None
            and not self.coupled
            and self.direction != "reverse"
        )
        self.handles: dict[Any, Any] = {}

    def compute(
        self,
        run: Any,
        x: Tensor,
        W: Tensor,
        R: Tensor,
        B: Tensor | None = None,
        lengths: Tensor | None = None,
        h0: Tensor | None = None,
        c0: Tensor | None = None,
        P: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Y (steps, directions, batch, hidden), Y_h and, for an LSTM, Y_c (directions, batch,
        hidden); with layout 1 the batch is the first axis of all."""
        if self.batch_first:
            x = autograd.transpose(x, (1, 0, 2))
            h0, c0 = _swapped(h0), _swapped(c0)
        if tuple(W.shape[:1]) != (self.directions,) or len(x.shape) != 3:
            raise ValueError(
                f"[{self.op}] x {tuple(x.shape)} and W {tuple(W.shape)} for "
                f"{self.directions} directions"
            )
        on_cpu = x.device.kind() == singa_wrap.DeviceKind_kCpu
        before = self.mode == singa_wrap.RnnMode_kGruResetBefore
        if self.in_kernel and P is None and (on_cpu or not before):
            y, *states = self._by_kernel(x, W, R, B, lengths, h0, c0)
        else:
            y, *states = self._by_steps(run, x, W, R, B, lengths, h0, c0, P)
        if self.batch_first:
            y = autograd.transpose(y, (2, 0, 1, 3))
            states = [autograd.transpose(s, (1, 0, 2)) for s in states]
        return (y, *states)

    # By the kernel.

    def _by_kernel(
        self,
        x: Tensor,
        W: Tensor,
        R: Tensor,
        B: Tensor | None,
        lengths: Tensor | None,
        h0: Tensor | None,
        c0: Tensor | None,
    ) -> tuple[Tensor, ...]:
        steps, batch, width = x.shape
        hidden = R.shape[2]
        key = (width, hidden, B is not None)
        handle = self.handles.get(key)
        if handle is None:
            handle = self.handles[key] = singa_wrap.RnnHandle(
                x.data, hidden, self.mode, 1, B is not None, 0.0, self.directions == 2
            )
        vector = self._vector(W, R, B, hidden)
        shape = (self.directions, batch, hidden)
        h0 = _zeros(shape, x) if h0 is None else h0
        c0 = _zeros(shape, x) if c0 is None else c0
        y, *states = autograd.rnn(handle, x, h0, c0, vector, lengths)
        y = reshaped(y, (steps, batch, self.directions, hidden))
        return (autograd.transpose(y, (0, 2, 1, 3)), *states)

    def _vector(self, W: Tensor, R: Tensor, B: Tensor | None, hidden: int) -> Tensor:
        """All weights in the kernel's order, as a function of the parameters."""
        parts: list[Tensor] = []
        for d in range(self.directions):
            for weight in (W, R):
                parts += self._gates(autograd.slice(weight, [d], [d + 1], [0]), 1, hidden)
        if B is not None:
            rows = _GATES[self.op] * hidden
            for d in range(self.directions):
                for start in (0, rows):
                    half = autograd.slice(B, [d, start], [d + 1, start + rows], [0, 1])
                    parts += self._gates(half, 1, hidden)
        return autograd.cat([reshaped(p, (p.size(),)) for p in parts], 0)

    def _gates(self, t: Tensor, axis: int, hidden: int) -> list[Tensor]:
        return [
            autograd.slice(t, [i * hidden], [(i + 1) * hidden], [axis]) for i in _ORDER[self.op]
        ]

    # Step by step.

    def _by_steps(
        self,
        run: Any,
        x: Tensor,
        W: Tensor,
        R: Tensor,
        B: Tensor | None,
        lengths: Tensor | None,
        h0: Tensor | None,
        c0: Tensor | None,
        P: Tensor | None,
    ) -> tuple[Tensor, ...]:
        steps, batch, _ = x.shape
        if steps > _MOST_STEPS:
            raise Refused(f"more than {_MOST_STEPS} steps")
        hidden = R.shape[2]
        rows = _GATES[self.op] * hidden
        results: list[list[Tensor]] = []
        for d in range(self.directions):

            def of(t: Tensor, d: int = d) -> Tensor:
                return reshaped(autograd.slice(t, [d], [d + 1], [0]), tuple(t.shape[1:]))

            bias = None if B is None else of(B)
            weights = _Direction(
                of(W),
                of(R),
                None if bias is None else autograd.slice(bias, [0], [rows], [0]),
                None if bias is None else autograd.slice(bias, [rows], [2 * rows], [0]),
                None if P is None else of(P),
            )
            zero = _zeros((batch, hidden), x)
            backward = self.direction == "reverse" or d == 1
            state = [zero if h0 is None else of(h0)]
            if self.op == "LSTM":
                state.append(zero if c0 is None else of(c0))
            results.append(self._direction(run, x, weights, state, lengths, backward, d, hidden))
        joined = []
        for parts in zip(*results, strict=True):
            axis = len(parts[0].shape) - 2
            wide = [reshaped(p, (*p.shape[:axis], 1, *p.shape[axis:])) for p in parts]
            joined.append(autograd.cat(wide, axis) if len(wide) > 1 else wide[0])
        return tuple(joined)

    def _direction(
        self,
        run: Any,
        x: Tensor,
        weights: _Direction,
        state: list[Any],
        lengths: Tensor | None,
        backward: bool,
        d: int,
        hidden: int,
    ) -> list[Tensor]:
        """[outputs of all steps, last states...] of one direction."""
        steps = x.shape[0]
        count = len(_DEFAULTS[self.op])
        functions = self.functions[d * count : (d + 1) * count]
        outputs: dict[int, Tensor] = {}
        for t in range(steps - 1, -1, -1) if backward else range(steps):
            part = autograd.slice(x, [t], [t + 1], [0])
            new = self._step(reshaped(part, tuple(x.shape[1:])), state, weights, functions, hidden)
            y = new[0]
            if lengths is not None:
                inside = self._inside(run, lengths, t)
                y = autograd.where(y, run.number(0, y), inside)
                new = [autograd.where(n, old, inside) for n, old in zip(new, state, strict=True)]
            outputs[t] = y
            state = new
        rows = [reshaped(outputs[t], (1, *outputs[t].shape)) for t in range(steps)]
        return [autograd.cat(rows, 0) if len(rows) > 1 else rows[0], *state]

    def _inside(self, run: Any, lengths: Tensor, t: int) -> Tensor:
        column = reshaped(lengths, (lengths.size(), 1))
        return autograd.cast(column > run.number(t, column), tensor.bool_)

    def _step(
        self,
        x: Tensor,
        state: Sequence[Tensor],
        w: _Direction,
        functions: Sequence[Callable[[Tensor], Tensor]],
        hidden: int,
    ) -> list[Tensor]:
        from_x = autograd.linear(x, w.W, w.Wb, True)
        if self.op == "RNN":
            return [
                functions[0](self._clipped(from_x + autograd.linear(state[0], w.R, w.Rb, True)))
            ]
        if self.op == "GRU":
            return [self._gru(from_x, state[0], w, functions, hidden)]
        h, c = state
        gates = from_x + autograd.linear(h, w.R, w.Rb, True)
        i, o, f, g = (
            autograd.slice(gates, [k * hidden], [(k + 1) * hidden], [1]) for k in range(4)
        )

        def gate(x: Tensor, k: int, c: Tensor) -> Tensor:
            if w.P is not None:
                x = x + autograd.slice(w.P, [k * hidden], [(k + 1) * hidden], [0]) * c
            return functions[0](self._clipped(x))

        i = gate(i, 0, c)
        f = autograd.sub(1.0, i) if self.coupled else gate(f, 2, c)
        c = f * c + i * functions[1](self._clipped(g))
        o = gate(o, 1, c)
        return [o * functions[2](c), c]

    def _gru(
        self,
        from_x: Tensor,
        h: Tensor,
        w: _Direction,
        functions: Sequence[Callable[[Tensor], Tensor]],
        hidden: int,
    ) -> Tensor:
        def rows(t: Tensor, first: int, last: int) -> Tensor:
            return autograd.slice(t, [first * hidden], [last * hidden], [0])

        def bias(first: int, last: int) -> Tensor | None:
            return None if w.Rb is None else rows(w.Rb, first, last)

        def columns(t: Tensor, first: int, last: int) -> Tensor:
            return autograd.slice(t, [first * hidden], [last * hidden], [1])

        gates = columns(from_x, 0, 2) + autograd.linear(h, rows(w.R, 0, 2), bias(0, 2), True)
        z = functions[0](self._clipped(columns(gates, 0, 1)))
        r = functions[0](self._clipped(columns(gates, 1, 2)))
        R = rows(w.R, 2, 3)
        if self.after:
            from_h = r * autograd.linear(h, R, bias(2, 3), True)
        else:
            from_h = autograd.linear(r * h, R, bias(2, 3), True)
        new = functions[1](self._clipped(columns(from_x, 2, 3) + from_h))
        return autograd.sub(1.0, z) * new + z * h

    def _clipped(self, x: Tensor) -> Tensor:
        return x if self.clip is None else autograd.clip(x, -self.clip, self.clip)


def _swapped(state: Tensor | None) -> Tensor | None:
    return None if state is None else autograd.transpose(state, (1, 0, 2))


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    return Tensor(shape, like.device, like.dtype, requires_grad=False)


def _reader(op: str, *versions: int) -> None:
    @reads(op, *versions, weights=(1, 2, 3, 7))
    def make(node: Node) -> Compute:
        network = Network(node)
        lstm = op == "LSTM"

        def compute(run: Any, x: Tensor, W: Tensor, R: Tensor, *rest: Any) -> tuple[Any, ...]:
            given: list[Tensor | None] = [*rest, *[None] * 5]
            B, lengths, h0 = given[:3]
            c0, P = given[3:5] if lstm else (None, None)
            results = network.compute(run, x, W, R, B, lengths, h0, c0, P)
            return results[: len(node.outputs)]

        return compute


_reader("RNN", 7, 14, 22)
_reader("GRU", 7, 14, 22)
_reader("LSTM", 7, 14, 22)
