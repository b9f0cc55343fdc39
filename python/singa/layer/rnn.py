"""Recurrent layers.

RNN and LSTM run one step after the other over a list of inputs, and give the state of each step.
CudnnRNN and GRU run whole sequences in one operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from .. import autograd, singa_wrap
from ..ops.conversion import autocast_operands
from ..raw.check import fraction, integer
from ..tape.grad_mode import training
from ..tape.tensor import wrap
from ..tensor import Tensor
from .base import Layer
from .linear import zeros


class _Recurrent(Layer):
    """Common arguments of recurrent layers, and their checks."""

    fixed_settings = ("input_size", "hidden_size", "num_layers", "bias", "bidirectional")
    input_types = "own"
    handle_settings: ClassVar[tuple[str, ...]] = ("batch_first", "dropout")

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
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional

    def _checked_setting(self, name: str, value: Any) -> Any:
        if name in ("hidden_size", "num_layers", "input_size"):
            return integer(type(self).__name__, name, value, 1)
        if name == "dropout":
            return fraction(type(self).__name__, name, value, open_end=True)
        return value


class RNN_Base(_Recurrent):  # noqa: N801 - SINGA's name
    """Base class of layers that run a sequence step by step.

    Raises NotImplementedError for num_layers other than 1, bidirectional, dropout and bias=False.
    CudnnRNN has these. `batch_first` is the order of the axes of a tensor of sequences.

    >>> issubclass(layer.LSTM, layer.RNN_Base)
    True
    """

    handle_settings = ("nonlinearity",)
    _nonlinearities: ClassVar[tuple[str, ...]] = ("tanh",)

    def __init__(self, input_size: int, *common: Any) -> None:
        super().__init__(*common)
        self.input_size = input_size

    def _checked_setting(self, name: str, value: Any) -> Any:
        value, kind = super()._checked_setting(name, value), type(self).__name__
        expected = {"num_layers": 1, "bidirectional": 0, "bias": 1, "dropout": 0}
        if name in expected and value != expected[name]:
            raise NotImplementedError(
                f"[{kind}] has one layer, one direction and biases, and no dropout; CudnnRNN "
                "has the other forms"
            )
        if name == "nonlinearity" and value not in self._nonlinearities:
            names = " or ".join(map(repr, self._nonlinearities))
            raise ValueError(f"[{kind}] nonlinearity must be {names}, got {value!r}")
        return value

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
        """Computes one step. Subclasses implement it."""
        raise NotImplementedError(f"{type(self).__name__} does not define step_forward()")

    def _steps(self, xs: Sequence[Tensor] | Tensor) -> Sequence[Tensor]:
        """The inputs of the steps: a list, or the parts of a tensor of sequences."""
        if isinstance(xs, Tensor) and len(xs.shape) == 3:
            x = autograd.transpose(xs, (1, 0, 2)) if self.batch_first else xs
            return [_entry(x, step) for step in range(x.shape[0])]
        if not isinstance(xs, list | tuple) or not xs:
            order = "batch, steps" if self.batch_first else "steps, batch"
            raise TypeError(
                f"[{self.title}] expected a list of inputs, one for each step, or a tensor "
                f"({order}, features)"
            )
        return xs

    def _state(self, h: Tensor | None, x: Tensor) -> Tensor:
        """A first state (batch, hidden_size): zeros, or what was given, perhaps with an axis before
        it, as PyTorch has it."""
        if h is None:
            return Tensor((x.shape[0], self.hidden_size), x.device, x.dtype, requires_grad=False)
        return autograd.squeeze(h, 0) if len(h.shape) == 3 else h

    def _outputs(self, states: list[Tensor]) -> Tensor:
        """The states as a tensor of sequences."""
        y = _stacked(states)
        return autograd.transpose(y, (1, 0, 2)) if self.batch_first else y


class RNN(RNN_Base):
    """Elman network: h' = f(x · Wx + h · Wh + b), where f is tanh or ReLU.

    input_size    number of input features
    hidden_size   number of features of the state h
    nonlinearity  "tanh" (the default) or "relu"

    The other arguments accept only their defaults, but for `batch_first`; see `RNN_Base`. The layer
    is called with xs, a list of tensors (batch, input_size), and h0 (batch, hidden_size), which is
    0 by default. It returns (list of all h, last h). With a tensor x (steps, batch, input_size) it
    returns, as GRU does, (output (steps, batch, hidden_size), last h (1, batch, hidden_size)).
    Weights are initialized normally with standard deviation 1, b with 0.

    Raises ValueError for inputs with another number of features.

    >>> rnn = layer.RNN(3, 4)
    >>> steps = [tensor.ones((2, 3)) for _ in range(5)]
    >>> outputs, last = rnn(steps, tensor.zeros((2, 4)))
    >>> len(outputs), last.shape
    (5, (2, 4))
    """

    _nonlinearities = ("tanh", "relu")
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
        self.nonlinearity = nonlinearity

    def initialize(self, xs: Sequence[Tensor] | Tensor, h0: Tensor | None = None) -> None:
        xs, hidden = self._steps(xs), self.hidden_size
        self._new_param("Wx", (self.input_size, hidden), xs[0], lambda t: t.gaussian(0.0, 1.0))
        self._new_param("Wh", (hidden, hidden), xs[0], lambda t: t.gaussian(0.0, 1.0))
        self._new_param("b", (hidden,), xs[0], zeros)

    def forward(
        self, xs: Sequence[Tensor] | Tensor, h0: Tensor | None = None
    ) -> tuple[list[Tensor] | Tensor, Tensor]:
        steps = self._steps(xs)
        out, h = [], self._state(h0, steps[0])
        for x in steps:
            h = self.step_forward(x, h, self.Wx, self.Wh, self.b)
            out.append(h)
        if isinstance(xs, Tensor):
            return self._outputs(out), autograd.unsqueeze(h, 0)
        return out, h

    def step_forward(  # type: ignore[override]
        self, x: Tensor, h: Tensor, Wx: Tensor, Wh: Tensor, b: Tensor
    ) -> Tensor:
        """The next state h' for the input x and the state h."""
        y = autograd.add(autograd.matmul(x, Wx), autograd.matmul(h, Wh))
        y = autograd.add_bias(y, b, axis=0)
        return autograd.tanh(y) if self.nonlinearity == "tanh" else autograd.relu(y)


class LSTM(RNN_Base):
    """Long short-term memory with gates i, f, o and candidate g. Hochreiter & Schmidhuber 1997.

    c' = sigmoid(f) · c + sigmoid(i) · tanh(g) and h' = sigmoid(o) · tanh(c'). Each of i, f, o and g
    is x · Wx + Bx + h · Wh + Bh with its own weights.

    input_size   number of input features
    hidden_size  number of features of the states h and c

    The other arguments accept only their defaults, but for `batch_first`; see `RNN_Base`. The layer
    is called with xs, a list of tensors (batch, input_size), and (h0, c0), each (batch,
    hidden_size), by default 0. It returns (list of all h, last h, last c). With a tensor x
    (steps, batch, input_size) it returns, as torch.nn.LSTM does, (output (steps, batch,
    hidden_size), (last h, last c)), both (1, batch, hidden_size). Weights are initialized normally
    with standard deviation 0.01, biases with 0.

    Raises ValueError for inputs with another number of features.

    >>> lstm = layer.LSTM(3, 4)
    >>> steps = [tensor.ones((2, 3)) for _ in range(5)]
    >>> outputs, h, c = lstm(steps, (tensor.zeros((2, 4)), tensor.zeros((2, 4))))
    >>> len(outputs), h.shape, c.shape
    (5, (2, 4), (2, 4))
    >>> output, (h, c) = layer.LSTM(3, 4)(tensor.ones((5, 2, 3)))
    >>> output.shape, h.shape, c.shape
    ((5, 2, 4), (1, 2, 4), (1, 2, 4))
    """

    gates: tuple[str, ...] = ("i", "f", "o", "g")

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
        self.nonlinearity = nonlinearity

    def initialize(
        self, xs: Sequence[Tensor] | Tensor, h0_c0: tuple[Tensor, Tensor] | None = None
    ) -> None:
        xs, hidden = self._steps(xs), self.hidden_size
        for gate in self.gates:
            small = {"fill": lambda t: t.gaussian(0.0, 0.01)}
            self._new_param(f"Wx_{gate}", (self.input_size, hidden), xs[0], **small)
            self._new_param(f"Wh_{gate}", (hidden, hidden), xs[0], **small)
            self._new_param(f"Bx_{gate}", (hidden,), xs[0], zeros)
            self._new_param(f"Bh_{gate}", (hidden,), xs[0], zeros)

    def forward(
        self, xs: Sequence[Tensor] | Tensor, h0_c0: tuple[Tensor, Tensor] | None = None
    ) -> Any:
        steps = self._steps(xs)
        given: Any = (None, None) if h0_c0 is None else h0_c0
        if not isinstance(given, list | tuple) or len(given) != 2:
            raise TypeError(f"[{self.title}] expected (h0, c0), got {type(h0_c0).__name__}")
        h, c = (self._state(each, steps[0]) for each in given)
        out = []
        for x in steps:
            h, c = self.step_forward(x, h, c)
            out.append(h)
        if isinstance(xs, Tensor):
            return self._outputs(out), (autograd.unsqueeze(h, 0), autograd.unsqueeze(c, 0))
        return out, h, c

    def step_forward(  # type: ignore[override]
        self, x: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The next states (h', c') for the input x and the states h and c."""
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


class _Sequences(_Recurrent):
    """Base class of layers that run whole sequences. All weights are in one vector W, in cuDNN's
    order, which is initialized uniformly over ±1 / sqrt(hidden_size)."""

    W: Tensor
    transient: ClassVar[tuple[str, ...]] = ("handle",)
    handle_settings = ("rnn_mode", "linear_before_reset")
    rnn_mode: str
    _MODES = {"relu": 0, "tanh": 1, "vanilla": 1, "lstm": 2, "gru": 3}  # noqa: RUF012
    _GATES = {"lstm": 4, "gru": 3}  # noqa: RUF012 - of other modes: 1

    def __init__(self, *common: Any) -> None:
        super().__init__(*common)
        self.handle: Any = None

    @property
    def directions(self) -> int:
        """2 if sequences also run backwards, else 1."""
        return 2 if self.bidirectional else 1

    def _checked_setting(self, name: str, value: Any) -> Any:
        if name == "rnn_mode":
            kind = type(self).__name__
            if value not in self._MODES:
                modes = sorted(self._MODES)
                raise ValueError(f"[{kind}] rnn_mode must be one of {modes}, got {value!r}")
            before = self.__dict__.get(name, value)
            if self._initialized and self._GATES.get(before, 1) != self._GATES.get(value, 1):
                raise ValueError(
                    f"[{self.title}] rnn_mode cannot change from {before} to {value}, which has "
                    "other weights; make a new layer"
                )
        return super()._checked_setting(name, value)

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
            self._mode(),
            self.num_layers,
            bool(self.bias),
            float(self.dropout),
            bool(self.bidirectional),
        )

    def _mode(self) -> int:
        """The number of singa_wrap.RnnMode."""
        return self._MODES[self.rnn_mode]

    def _steps_first(self, x: Tensor) -> Tensor:
        """x as (steps, batch, features)."""
        if self.handle is None:
            self.handle = self._make_handle(x)
        return autograd.transpose(x, (1, 0, 2)) if self.batch_first else x

    def _zero_state(self, x: Tensor) -> Tensor:
        """A state of zeros for x (steps, batch, features)."""
        shape = (self.num_layers * self.directions, x.shape[1], self.hidden_size)
        return Tensor(shape, x.device, x.dtype, requires_grad=False)

    def weight_places(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """{PyTorch's name of a weight: (its first element in W, its shape)}."""
        rows = self._GATES.get(self.rnn_mode, 1) * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {}
        ends = [
            f"_l{layer}{end}"
            for layer in range(self.num_layers)
            for end in ("", "_reverse")[: self.directions]
        ]
        for end in ends:
            shapes[f"weight_ih{end}"] = (rows, self.directions * self.hidden_size)
            shapes[f"weight_hh{end}"] = (rows, self.hidden_size)
        if self.bias:
            for end in ends:
                shapes[f"bias_ih{end}"] = shapes[f"bias_hh{end}"] = (rows,)
        # Only the first layer's number of inputs is not known. It follows from the length of W.
        first = [f"weight_ih{end}" for end in ends[: self.directions]]
        rest = sum(math.prod(shape) for name, shape in shapes.items() if name not in first)
        inputs = (self.W.size() - rest) // (rows * self.directions)
        shapes.update({name: (rows, inputs) for name in first})
        places, at = {}, 0
        for name, shape in shapes.items():
            places[name] = (at, shape)
            at += math.prod(shape)
        return places

    def weight_views(self) -> dict[str, Tensor]:
        """{PyTorch's name of a weight: its part of W}. The parts share W's memory."""
        return {
            name: wrap(self.W.data.SliceAxis(0, at, at + math.prod(shape)).Reshape(shape), False)
            for name, (at, shape) in self.weight_places().items()
        }


class CudnnRNN(_Sequences):
    """A recurrent network over whole sequences. It runs on the CPU, too.

    hidden_size       number of features of a state
    activation        accepted for SINGA's scripts; `rnn_mode` chooses the activation
    num_layers        number of stacked layers (default 1)
    bias              whether there are biases (default True)
    batch_first       x is (batch, steps, features), the default, or (steps, batch, features)
    dropout           probability of dropout between layers in training (default 0)
    bidirectional     whether sequences also run backwards (default False)
    rnn_mode          "lstm" (the default), "gru", "tanh" (or "vanilla") or "relu"
    use_mask          whether a call needs `seq_lengths` (default False)
    return_sequences  whether a call returns the outputs of all steps (default True), or those of
                      the last step

    The layer is called with x, optional states hx and cx (num_layers · directions, batch,
    hidden_size), which are 0 by default, and with `use_mask` the lengths of the sequences (batch).
    Steps beyond the length of a sequence are ignored. It returns outputs with the axes of x and
    directions · hidden_size features, or with return_sequences=False those of the last step
    (batch, directions · hidden_size). All weights are in one vector W, in cuDNN's order, which is
    initialized uniformly over ±1 / sqrt(hidden_size). Raises ValueError for another `rnn_mode` and
    for values outside their range.

    >>> layer.CudnnRNN(4)(tensor.ones((2, 5, 3))).shape
    (2, 5, 4)
    >>> layer.CudnnRNN(4, return_sequences=False)(tensor.ones((2, 5, 3))).shape
    (2, 4)
    """

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
        self.rnn_mode = rnn_mode
        self.use_mask = use_mask
        self.return_sequences = return_sequences

    def forward(
        self,
        x: Tensor,
        hx: Tensor | None = None,
        cx: Tensor | None = None,
        seq_lengths: Tensor | None = None,
    ) -> Tensor:
        if self.use_mask and not isinstance(seq_lengths, Tensor):
            raise TypeError(f"[{self.title}] use_mask needs seq_lengths, a tensor (batch)")
        x = self._steps_first(x)
        hx = self._zero_state(x) if hx is None else hx
        cx = self._zero_state(x) if cx is None else cx
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


class GRU(_Sequences):
    """Gated recurrent units over whole sequences, with torch.nn.GRU's arguments and results. Cho et
    al. 2014.

    r = sigmoid(W_ir·x + b_ir + W_hr·h + b_hr), z likewise, n = tanh(W_in·x + b_in + r·(W_hn·h +
    b_hn)), and h' = (1 - z)·n + z·h.

    input_size           number of features of x
    hidden_size          number of features of a state
    num_layers           number of stacked layers (default 1)
    bias                 whether there are biases (default True)
    batch_first          x is (batch, steps, features), or (steps, batch, features), the default
    dropout              probability of dropout between layers in training (default 0)
    bidirectional        whether sequences also run backwards (default False)
    linear_before_reset  False: n = tanh(W_in·x + b_in + W_hn·(r·h) + b_hn), as in the first version
                         of the paper and ONNX's default. cuDNN has no such network, so a GPU runs
                         it step by step and takes longer.

    The layer is called with x and optionally the states hx (num_layers · directions, batch,
    hidden_size), which are 0 by default. It returns (output with directions · hidden_size features,
    the last states in the shape of hx). `load_torch` reads the weights of torch.nn.GRU.

    Raises ValueError for inputs with another number of features.

    >>> output, last = layer.GRU(3, 4, batch_first=True)(tensor.ones((2, 5, 3)))
    >>> output.shape, last.shape
    ((2, 5, 4), (1, 2, 4))
    """

    rnn_mode = "gru"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        linear_before_reset: bool = True,
    ) -> None:
        super().__init__(hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.input_size = input_size
        self.linear_before_reset = linear_before_reset

    def _mode(self) -> int:
        if self.linear_before_reset:
            return super()._mode()
        return singa_wrap.RnnMode_kGruResetBefore

    def forward(self, x: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if len(x.shape) != 3 or x.shape[2] != self.input_size:
            raise ValueError(
                f"[{self.title}] expected three axes and {self.input_size} features, got {x.shape}"
            )
        x = self._steps_first(x)
        hx = self._zero_state(x) if hx is None else hx
        if self.linear_before_reset or x.device.kind() == singa_wrap.DeviceKind_kCpu:
            y, h = autograd.rnn(self.handle, x, hx, hx, self.W)
        else:
            y, h = self._step_by_step(x, hx)
        return (autograd.transpose(y, (1, 0, 2)) if self.batch_first else y), h

    def _step_by_step(self, x: Tensor, hx: Tensor) -> tuple[Tensor, Tensor]:
        x, hx, W = autocast_operands(x, hx, self.W)
        last = []
        for layer in range(self.num_layers):
            if layer and self.dropout and training():
                x = autograd.dropout(x, ratio=self.dropout)
            outputs = []
            for direction in range(self.directions):
                h = _entry(hx, layer * self.directions + direction)
                end = f"_l{layer}{'_reverse' * direction}"
                states = self._states(x, h, W, end, direction == 1)
                last.append(states[0 if direction else -1])
                outputs.append(_stacked(states))
            x = outputs[0] if len(outputs) == 1 else autograd.cat(outputs, 2)
        return x, _stacked(last)

    def _states(self, x: Tensor, h: Tensor, W: Tensor, end: str, backwards: bool) -> list[Tensor]:
        """The states (batch, hidden_size) of all steps of one layer in one direction."""
        places, size = self.weight_places(), self.hidden_size

        def weight(name: str) -> Tensor:
            at, shape = places[f"{name}{end}"]
            return autograd.reshape(_part(W, 0, at, at + math.prod(shape)), shape)

        def linear(value: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
            y = autograd.matmul(value, autograd.transpose(matrix, (1, 0)))
            return y if bias is None else autograd.add(y, bias)

        def halves(t: Tensor | None) -> tuple[Tensor, Tensor] | tuple[None, None]:
            """The parts of r and z, and of n."""
            if t is None:
                return None, None
            return _part(t, 0, 0, 2 * size), _part(t, 0, 2 * size, 3 * size)

        inputs = linear(x, weight("weight_ih"), weight("bias_ih") if self.bias else None)
        gate_weight, new_weight = halves(weight("weight_hh"))
        gate_bias, new_bias = halves(weight("bias_hh") if self.bias else None)
        assert gate_weight is not None
        assert new_weight is not None
        states: list[Tensor] = []
        steps = range(x.shape[0])
        for step in reversed(steps) if backwards else steps:
            given = _entry(inputs, step)
            kept = linear(h, gate_weight, gate_bias)
            gates = autograd.sigmoid(autograd.add(_part(given, 1, 0, 2 * size), kept))
            reset, update = autograd.split(gates, 1, (size, size))
            kept = linear(autograd.mul(reset, h), new_weight, new_bias)
            new = autograd.tanh(autograd.add(_part(given, 1, 2 * size, 3 * size), kept))
            h = autograd.add(new, autograd.mul(update, autograd.sub(h, new)))
            states.append(h)
        return states[::-1] if backwards else states


def _part(t: Tensor, axis: int, begin: int, end: int) -> Tensor:
    return autograd.slice(t, (begin,), (end,), (axis,))


def _entry(t: Tensor, i: int) -> Tensor:
    return autograd.squeeze(_part(t, 0, i, i + 1), 0)


def _stacked(ts: list[Tensor]) -> Tensor:
    return autograd.cat([autograd.unsqueeze(t, 0) for t in ts], 0)
