"""Single steps of recurrent networks, with PyTorch's arguments and names of weights."""

from __future__ import annotations

import math
from typing import ClassVar

from .. import autograd, tensor
from ..raw.check import integer, one_of
from ..tensor import Tensor
from .base import Layer


class _Cell(Layer):
    """Base class: x (N, input_size) and a state (N, hidden_size) by one Linear layer each.

    The weights weight_ih (gates · hidden_size, input_size), weight_hh, bias_ih and bias_hh begin
    uniform in ±1/√hidden_size.
    """

    gates: ClassVar[int] = 1
    fixed_settings = ("input_size", "hidden_size", "bias")
    input_types = "own"
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        kind = type(self).__name__
        self.input_size: int = integer(kind, "input_size", input_size, 1)
        self.hidden_size: int = integer(kind, "hidden_size", hidden_size, 1)
        self.bias: bool = bool(bias)

    def initialize(self, x: Tensor, *states: object) -> None:
        rows, limit = self.gates * self.hidden_size, 1.0 / math.sqrt(self.hidden_size)
        for name, columns in (("ih", self.input_size), ("hh", self.hidden_size)):
            self._new_param(
                f"weight_{name}", (rows, columns), x, lambda t: t.uniform(-limit, limit)
            )
        self.bias_ih = self.bias_hh = None
        for name in ("bias_ih", "bias_hh") if self.bias else ():
            self._new_param(name, (rows,), x, lambda t: t.uniform(-limit, limit))

    def _products(self, x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """(state, products of x, products of the state); zeros where no state is given."""
        if len(x.shape) != 2 or x.shape[1] != self.input_size:
            raise ValueError(f"[{self.title}] x must be (N, {self.input_size}), got {x.shape}")
        state = self._state(x, "h", h)
        of_x = autograd.linear(x, self.weight_ih, self.bias_ih, True)
        return state, of_x, autograd.linear(state, self.weight_hh, self.bias_hh, True)

    def _state(self, x: Tensor, name: str, state: Tensor | None) -> Tensor:
        shape = (x.shape[0], self.hidden_size)
        if state is None:
            state = tensor.zeros(shape, x.device, x.dtype)
            state.requires_grad = False
        if tuple(state.shape) != shape:
            raise ValueError(f"[{self.title}] {name} must be {shape}, got {tuple(state.shape)}")
        return state


class RNNCell(_Cell):
    """h' = tanh(W_ih·x + b_ih + W_hh·h + b_hh), or relu with `nonlinearity` of "relu": one step of
    a recurrent network, as torch.nn.RNNCell. Elman 1990.

    x is (N, input_size); h and the result are (N, hidden_size). Raises ValueError for other shapes.

    >>> layer.RNNCell(3, 4)(tensor.ones((2, 3))).shape
    (2, 4)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = one_of("RNNCell", "nonlinearity", nonlinearity, ["tanh", "relu"])

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """The next state, from zeros if there is no `h`."""
        _, of_x, of_h = self._products(x, h)
        return (autograd.relu if self.nonlinearity == "relu" else autograd.tanh)(of_x + of_h)


class LSTMCell(_Cell):
    """One step of an LSTM, as torch.nn.LSTMCell. Hochreiter & Schmidhuber 1997.

        i, f, o = sigmoid and g = tanh of the gates;  c' = f·c + i·g;  h' = o·tanh(c')

    x is (N, input_size), states are (N, hidden_size). Raises ValueError for other shapes.

    >>> h, c = layer.LSTMCell(3, 4)(tensor.ones((2, 3)))
    >>> h.shape, c.shape
    ((2, 4), (2, 4))
    """

    gates = 4

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The next (h, c), from zeros if there is no `state`."""
        h, c = (None, None) if state is None else state
        _, of_x, of_h = self._products(x, h)
        i, f, g, o = autograd.split(of_x + of_h, 1, num_output=4)
        kept = autograd.sigmoid(f) * self._state(x, "c", c)
        cell = kept + autograd.sigmoid(i) * autograd.tanh(g)
        return autograd.sigmoid(o) * autograd.tanh(cell), cell


class GRUCell(_Cell):
    """One step of a GRU, as torch.nn.GRUCell. Cho et al. 2014.

        r, z = sigmoid of the gates;  n = tanh(W_in·x + b_in + r·(W_hn·h + b_hn))
        h' = (1 - z)·n + z·h

    x is (N, input_size); h and the result are (N, hidden_size). Raises ValueError for other shapes.

    >>> layer.GRUCell(3, 4)(tensor.ones((2, 3))).shape
    (2, 4)
    """

    gates = 3

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """The next state, from zeros if there is no `h`."""
        state, of_x, of_h = self._products(x, h)
        r_x, z_x, n_x = autograd.split(of_x, 1, num_output=3)
        r_h, z_h, n_h = autograd.split(of_h, 1, num_output=3)
        n = autograd.tanh(n_x + autograd.sigmoid(r_x + r_h) * n_h)
        return n + autograd.sigmoid(z_x + z_h) * (state - n)
