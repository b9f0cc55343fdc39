"""Recurrent layers. RNN and LSTM go step by step through a list of inputs, and their state is seen
at each step; CudnnRNN takes whole sequences in one operation of the core."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import autograd, singa_wrap
from .._check import fraction, integer
from ..tensor import Tensor
from .base import Layer
from .linear import zeros


class _Recurrent(Layer):
    """What every recurrent layer is asked for."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
    ) -> None:
        super().__init__()
        kind = type(self).__name__
        self.hidden_size = integer(kind, "hidden_size", hidden_size, 1)
        self.num_layers = integer(kind, "num_layers", num_layers, 1)
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = fraction(kind, "dropout", dropout, open_end=True)
        self.bidirectional = bidirectional


class RNN_Base(_Recurrent):  # noqa: N801 - SINGA's name
    """A layer that goes through a sequence step by step. Raises NotImplementedError for several
    layers or directions, dropout, no bias, or a sequence in one tensor: CudnnRNN has those."""

    def __init__(self, input_size: int, *common: Any) -> None:
        super().__init__(*common)
        self.input_size = integer(type(self).__name__, "input_size", input_size, 1)
        one = self.num_layers == 1 and not self.bidirectional
        if not one or not self.bias or self.batch_first or self.dropout:
            raise NotImplementedError(
                f"[{type(self).__name__}] has one layer, one direction, biases, and takes a list "
                "of steps; CudnnRNN has the other forms"
            )

    def step_forward(
        self,
        x: Any = None,
        h: Any = None,
        c: Any = None,
        Wx: Any = None,
        Wh: Any = None,
        Bx: Any = None,
        Bh: Any = None,
        b: Any = None,
    ) -> Any:
        """One step."""
        raise NotImplementedError(f"{type(self).__name__} does not define step_forward()")

    def _check_steps(self, xs: Sequence[Tensor]) -> None:
        if not isinstance(xs, list | tuple) or not xs:
            raise TypeError(f"[{self.title}] expected a list of inputs, one a step")


class RNN(RNN_Base):
    """h' = f(x · Wx + h · Wh + b), f being tanh or ReLU.

    Takes xs, a list of (batch, input_size), and h0 (batch, hidden_size); returns (list of all h,
    last h).
    """

    Wx: Tensor
    Wh: Tensor
    b: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"[RNN] nonlinearity {nonlinearity!r}: 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity

    def initialize(self, xs: Sequence[Tensor], h0: Tensor) -> None:
        self._check_steps(xs)
        hidden = self.hidden_size
        self._new_param("Wx", (self.input_size, hidden), xs[0], lambda t: t.gaussian(0.0, 1.0))
        self._new_param("Wh", (hidden, hidden), xs[0], lambda t: t.gaussian(0.0, 1.0))
        self._new_param("b", (hidden,), xs[0], zeros)

    def forward(self, xs: Sequence[Tensor], h0: Tensor) -> tuple[list[Tensor], Tensor]:
        self._check_steps(xs)
        out, h = [], h0
        for x in xs:
            h = self.step_forward(x, h, self.Wx, self.Wh, self.b)
            out.append(h)
        return out, h

    def step_forward(  # type: ignore[override]
        self, x: Tensor, h: Tensor, Wx: Tensor, Wh: Tensor, b: Tensor
    ) -> Tensor:
        y = autograd.add(autograd.matmul(x, Wx), autograd.matmul(h, Wh))
        y = autograd.add_bias(y, b, axis=0)
        return autograd.tanh(y) if self.nonlinearity == "tanh" else autograd.relu(y)


class LSTM(RNN_Base):
    """Long short-term memory, with gates i, f, o and candidate g. Hochreiter & Schmidhuber 1997.

    c' = sigmoid(f) · c + sigmoid(i) · tanh(g);  h' = sigmoid(o) · tanh(c'), where each of the four
    is x · Wx + Bx + h · Wh + Bh with weights of its own.
    Takes xs, a list of (batch, input_size), and (h0, c0); returns (list of all h, last h, last c).
    """

    gates = ("i", "f", "o", "g")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        nonlinearity: str = "tanh",
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        if nonlinearity != "tanh":
            raise ValueError(f"[LSTM] nonlinearity {nonlinearity!r}: only 'tanh'")
        self.nonlinearity = nonlinearity

    def initialize(self, xs: Sequence[Tensor], h0_c0: tuple[Tensor, Tensor]) -> None:
        self._check_steps(xs)
        hidden = self.hidden_size
        for gate in self.gates:
            small = {"fill": lambda t: t.gaussian(0.0, 0.01)}
            self._new_param(f"Wx_{gate}", (self.input_size, hidden), xs[0], **small)
            self._new_param(f"Wh_{gate}", (hidden, hidden), xs[0], **small)
            self._new_param(f"Bx_{gate}", (hidden,), xs[0], zeros)
            self._new_param(f"Bh_{gate}", (hidden,), xs[0], zeros)

    def forward(
        self, xs: Sequence[Tensor], h0_c0: tuple[Tensor, Tensor]
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        self._check_steps(xs)
        if not isinstance(h0_c0, list | tuple) or len(h0_c0) != 2:
            raise TypeError(f"[{self.title}] expected (h0, c0), got {type(h0_c0).__name__}")
        h, c = h0_c0
        out = []
        for x in xs:
            h, c = self.step_forward(x, h, c)
            out.append(h)
        return out, h, c

    def step_forward(  # type: ignore[override]
        self, x: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor]:
        i, f, o, g = (self._gate(gate, x, h) for gate in self.gates)
        kept = autograd.mul(autograd.sigmoid(f), c)
        new = autograd.mul(autograd.sigmoid(i), autograd.tanh(g))
        c = autograd.add(kept, new)
        return autograd.mul(autograd.sigmoid(o), autograd.tanh(c)), c

    def _gate(self, gate: str, x: Tensor, h: Tensor) -> Tensor:
        wx, wh, bx, bh = (getattr(self, f"{name}_{gate}") for name in ("Wx", "Wh", "Bx", "Bh"))
        return autograd.add(
            autograd.add_bias(autograd.matmul(x, wx), bx, axis=0),
            autograd.add_bias(autograd.matmul(h, wh), bh, axis=0),
        )


class CudnnRNN(_Recurrent):
    """Recurrent network over whole sequences: x (batch, steps, features), or (steps, batch,
    features) without `batch_first`. Runs on the CPU, too.

    `rnn_mode` is "lstm", "gru", "tanh" ("vanilla") or "relu". Returns all outputs, axes as in x, or
    with return_sequences=False the last ones (batch, directions · hidden). `use_mask` makes
    forward take `seq_lengths` (batch): steps beyond them do not count. All weights lie in one
    vector W, in cuDNN's order, and start uniform over ±1 / sqrt(hidden_size).
    """

    W: Tensor
    transient = ("handle",)
    _MODES = {"relu": 0, "tanh": 1, "vanilla": 1, "lstm": 2, "gru": 3}  # noqa: RUF012

    def __init__(
        self,
        hidden_size: int,
        activation: str = "tanh",
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0,
        bidirectional: bool = False,
        rnn_mode: str = "lstm",
        use_mask: bool = False,
        return_sequences: bool = True,
    ) -> None:
        super().__init__(hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        if rnn_mode not in self._MODES:
            raise ValueError(f"[CudnnRNN] rnn_mode {rnn_mode!r}: one of {sorted(self._MODES)}")
        self.rnn_mode = rnn_mode
        self.directions = 2 if bidirectional else 1
        self.use_mask = use_mask
        self.return_sequences = return_sequences
        self.handle: Any = None

    def initialize(
        self,
        x: Tensor,
        hx: Tensor | None = None,
        cx: Tensor | None = None,
        seq_lengths: Tensor | None = None,
    ) -> None:
        if len(x.shape) != 3:
            raise ValueError(
                f"[{self.title}] expected three axes: batch, steps, features; got {tuple(x.shape)}"
            )
        self.handle = self._make_handle(x)
        limit = 1.0 / math.sqrt(self.hidden_size)
        self._new_param("W", (self.handle.weights_size,), x, lambda t: t.uniform(-limit, limit))

    def _make_handle(self, x: Tensor) -> Any:
        data = x.data.Transpose((1, 0, 2)) if self.batch_first else x.data
        return singa_wrap.RnnHandle(
            data,
            self.hidden_size,
            self._MODES[self.rnn_mode],
            self.num_layers,
            bool(self.bias),
            float(self.dropout),
            bool(self.bidirectional),
        )

    def forward(
        self,
        x: Tensor,
        hx: Tensor | None = None,
        cx: Tensor | None = None,
        seq_lengths: Tensor | None = None,
    ) -> Tensor:
        if self.handle is None:
            self.handle = self._make_handle(x)
        if self.use_mask and not isinstance(seq_lengths, Tensor):
            raise TypeError(f"[{self.title}] use_mask needs seq_lengths, a tensor (batch)")
        if self.batch_first:
            x = autograd.transpose(x, (1, 0, 2))
        state = (self.num_layers * self.directions, x.shape[1], self.hidden_size)
        hx = self._zero_state(state, x) if hx is None else hx
        cx = self._zero_state(state, x) if cx is None else cx
        operator = autograd._RNN(
            self.handle,
            return_sequences=self.return_sequences,
            use_mask=self.use_mask,
            seq_lengths=seq_lengths if self.use_mask else None,
        )
        y = operator(x, hx, cx, self.W)[0]
        if self.return_sequences and self.batch_first:
            y = autograd.transpose(y, (1, 0, 2))
        return y

    def _zero_state(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        return Tensor(shape, like.device, like.dtype, requires_grad=False)
