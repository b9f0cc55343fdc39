"""Recurrent layers over whole sequences in one operation: CudnnRNN and GRU, and what RNN and LSTM
of several layers or directions are made of."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import autograd, singa_wrap
from ..ops.conversion import autocast_operands
from ..raw.check import fraction, integer, one_of
from ..tape.grad_mode import training
from ..tape.tensor import wrap
from ..tensor import Tensor
from .base import Layer


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
            one_of(type(self).__name__, name, value, self._MODES)
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


class _Stack(_Sequences):
    """The layers and directions of an RNN or LSTM with several of them, dropout, or without biases:
    what GRU is, for the modes "tanh", "relu" and "lstm". Weights have PyTorch's names."""

    def __init__(self, input_size: int, rnn_mode: str, *common: Any) -> None:
        super().__init__(*common)
        self.input_size = input_size
        self.rnn_mode = rnn_mode

    def forward(self, x: Tensor, hx: Tensor | None, cx: Tensor | None) -> tuple[Tensor, ...]:
        """(outputs, last h) or (outputs, last h, last c)."""
        if x.shape[2] != self.input_size:
            raise ValueError(
                f"[{self.title}] expected {self.input_size} features, got shape {x.shape}"
            )
        x = self._steps_first(x)
        hx = self._zero_state(x) if hx is None else hx
        cx = self._zero_state(x) if cx is None else cx
        y, *last = autograd.rnn(self.handle, x, hx, cx, self.W)
        return (autograd.transpose(y, (1, 0, 2)) if self.batch_first else y), *last


def _part(t: Tensor, axis: int, begin: int, end: int) -> Tensor:
    return autograd.slice(t, (begin,), (end,), (axis,))


def _entry(t: Tensor, i: int) -> Tensor:
    return autograd.squeeze(_part(t, 0, i, i + 1), 0)


def _stacked(ts: list[Tensor]) -> Tensor:
    return autograd.cat([autograd.unsqueeze(t, 0) for t in ts], 0)
