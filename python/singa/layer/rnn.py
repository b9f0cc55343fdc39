"""Recurrent layers that run one step after the other, and give the state of each step. Those of
sequences.py, which CudnnRNN and GRU are, run whole sequences in one operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from .. import autograd
from ..raw.check import one_of
from ..raw.words import spelled
from ..tensor import Tensor
from .linear import zeros
from .sequences import _entry, _Recurrent, _Stack, _stacked


class RNN_Base(_Recurrent):  # noqa: N801 - SINGA's name
    """Base class of layers that run a sequence step by step.

    With several layers or directions, dropout or without biases a layer takes a tensor of sequences
    only, and computes it in one operation, as GRU does; `load_torch` then reads PyTorch's weights.
    `batch_first` is the order of the axes of a tensor of sequences.

    >>> issubclass(layer.LSTM, layer.RNN_Base)
    True
    """

    handle_settings = ("nonlinearity",)
    _nonlinearities: ClassVar[tuple[str, ...]] = ("tanh",)

    def __init__(self, input_size: int, *common: Any) -> None:
        super().__init__(*common)
        self.input_size = input_size
        #: What computes several layers or directions; None with one of each.
        self.stack: _Stack | None = None

    def _make_stack(self, rnn_mode: str) -> None:
        """Makes `stack` if the layer has more than one layer and direction with biases."""
        if self.num_layers > 1 or self.bidirectional or self.dropout or not self.bias:
            sizes = self.input_size, rnn_mode, self.hidden_size, self.num_layers, self.bias
            self.stack = _Stack(*sizes, self.batch_first, self.dropout, self.bidirectional)

    def _of_stack(
        self, xs: Any, hx: Tensor | None = None, cx: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        assert self.stack is not None
        if not isinstance(xs, Tensor) or len(xs.shape) != 3:
            raise TypeError(
                f"[{self.title}] several layers or directions, dropout, or no biases need a tensor "
                "of sequences, with three axes"
            )
        for name in ("batch_first", "dropout"):  # they may have changed
            if getattr(self.stack, name) != getattr(self, name):
                setattr(self.stack, name, getattr(self, name))
        return self.stack(xs, hx, cx)

    def _checked_setting(self, name: str, value: Any) -> Any:
        value = super()._checked_setting(name, value)
        if name == "nonlinearity":
            one_of(type(self).__name__, name, value, self._nonlinearities)
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
        it, as PyTorch has it. Raises ValueError for inputs with another number of features."""
        if x.shape[-1] != self.input_size:
            raise ValueError(
                f"[{self.title}] input_size is {self.input_size}, got input {tuple(x.shape)}"
            )
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

    The other arguments are GRU's; see `RNN_Base`. The layer
    is called with xs, a list of tensors (batch, input_size), and h0 (batch, hidden_size), which is
    0 by default. It returns (list of all h, last h). With a tensor x (steps, batch, input_size) it
    returns, as GRU does, (output (steps, batch, directions · hidden_size), last h (num_layers ·
    directions, batch, hidden_size)).
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
        self._make_stack(nonlinearity)

    def initialize(self, xs: Sequence[Tensor] | Tensor, h0: Tensor | None = None) -> None:
        if self.stack is not None:
            return
        xs, hidden = self._steps(xs), self.hidden_size
        self._new_param("Wx", (self.input_size, hidden), xs[0], lambda t: t.gaussian(0.0, 1.0))
        self._new_param("Wh", (hidden, hidden), xs[0], lambda t: t.gaussian(0.0, 1.0))
        self._new_param("b", (hidden,), xs[0], zeros)

    def forward(
        self, xs: Sequence[Tensor] | Tensor, h0: Tensor | None = None
    ) -> tuple[list[Tensor] | Tensor, Tensor]:
        if self.stack is not None:
            y, last = self._of_stack(xs, h0)
            return y, last
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


@spelled(
    *("num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size"),
    shared=2,
    proj_size=(0,),
)
class LSTM(RNN_Base):
    """Long short-term memory with gates i, f, o and candidate g. Hochreiter & Schmidhuber 1997.

    c' = sigmoid(f) · c + sigmoid(i) · tanh(g) and h' = sigmoid(o) · tanh(c'). Each of i, f, o and g
    is x · Wx + Bx + h · Wh + Bh with its own weights.

    input_size   number of input features
    hidden_size  number of features of the states h and c

    The other arguments are GRU's, `nonlinearity` is "tanh"; see `RNN_Base`. The layer is called
    with xs, a list of tensors (batch, input_size), and (h0, c0), each (batch, hidden_size), by
    default 0. It returns (list of all h, last h, last c). With a tensor x (steps, batch,
    input_size) it returns, as torch.nn.LSTM does, (output (steps, batch, directions · hidden_size),
    (last h, last c)), both (num_layers · directions, batch, hidden_size). Weights are initialized
    normally with standard deviation 0.01, biases with 0; those of several layers as GRU's.

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
        self._make_stack("lstm")

    def initialize(
        self, xs: Sequence[Tensor] | Tensor, h0_c0: tuple[Tensor, Tensor] | None = None
    ) -> None:
        if self.stack is not None:
            return
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
        given: Any = (None, None) if h0_c0 is None else h0_c0
        if not isinstance(given, list | tuple) or len(given) != 2:
            raise TypeError(f"[{self.title}] expected (h0, c0), got {type(h0_c0).__name__}")
        if self.stack is not None:
            y, last_h, last_c = self._of_stack(xs, *given)
            return y, (last_h, last_c)
        steps = self._steps(xs)
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
