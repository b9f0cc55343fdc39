"""Recurrent networks over whole sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..device import create_cpu_device
from ..tape.elements import as_raw
from ..tape.step_recording import is_recording_step
from ..tape.tensor import Tensor
from .base import BuiltinOperator, indices_of
from .conversion import autocast_operands

if TYPE_CHECKING:
    from ..tape.operator import Raw


class RNN(BuiltinOperator):
    """A recurrent network as one operator, with the results (y, hy, cy).

    x            inputs (steps, batch, features)
    hx, cx       initial states (layers · directions, batch, hidden); cx is used by LSTMs only
    W            all weights in one vector, in cuDNN's order
    seq_lengths  optional lengths of the sequences (batch)

    y has shape (steps, batch, directions · hidden). hy and cy are the final states; only LSTMs have
    cy. Steps beyond the length of a sequence give zeros and do not change its state. Lengths that
    are on the CPU stay there if x is on a GPU, so that the CPU does not have to wait for them.
    Under `autocast` it computes in 16 bits.
    """

    def __init__(self, handle: _c.RnnHandle, seq_lengths: Any = None) -> None:
        super().__init__()
        self.handle = handle
        self.seq_lengths = seq_lengths
        self._lstm = handle.mode == _c.RnnMode_kLstm

    def __call__(self, *xs: Tensor) -> tuple[Tensor, ...]:
        return super().__call__(*autocast_operands(*xs))

    def forward(self, x: Raw, hx: Raw, cx: Raw, W: Raw) -> tuple[Raw, ...]:
        lengths = None
        if self.seq_lengths is not None:
            lengths = indices_of("RNN", self.seq_lengths, _lengths_beside(self.seq_lengths, x))
            lengths = lengths.AsType(_c.kInt32)
        cell = cx if self._lstm else None
        y, hy, cy, saved = _c.RnnForward(
            self.handle, x, hx, cell, W, lengths, self.requires_grad is not False
        )
        self.save(x, hx, cell, W, y, lengths, saved)
        return (y, hy, cy) if self._lstm else (y, hy)

    def backward(self, dy: Raw, dhy: Raw | None = None, dcy: Raw | None = None) -> tuple[Raw, ...]:
        return _c.RnnBackward(self.handle, dy, dhy, dcy, *self.load())


def _lengths_beside(lengths: Any, x: Raw) -> Raw:
    """A tensor on the device to which the lengths are moved for RnnForward."""
    if is_recording_step() or x.device().kind() == _c.DeviceKind_kCpu:
        return x
    if isinstance(lengths, (Tensor, _c.Tensor)):
        raw = as_raw(lengths)
        return raw if raw.device().kind() == _c.DeviceKind_kCpu else x
    return _c.Tensor((), create_cpu_device(), _c.kInt32)


class _RNN(RNN):
    """SINGA's form of `RNN`. It returns y alone, or its last step (batch, features).

    With `use_mask` the last step of a sequence is that of its length. Raises ValueError if
    `use_mask` is set without `seq_lengths`.
    """

    def __init__(
        self,
        handle: _c.RnnHandle,
        return_sequences: bool = False,
        use_mask: bool = False,
        seq_lengths: Any = None,
    ) -> None:
        if use_mask and seq_lengths is None:
            raise ValueError("[_RNN] use_mask needs seq_lengths")
        super().__init__(handle, seq_lengths if use_mask else None)
        self.return_sequences = return_sequences
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw, hx: Raw, cx: Raw, W: Raw) -> Raw:  # type: ignore[override]
        y = super().forward(x, hx, cx, W)[0]
        self._shape = y.shape()
        return y if self.return_sequences else _last(y, self._lengths())

    def backward(self, dy: Raw, *others: Raw) -> tuple[Raw, ...]:  # type: ignore[override]
        if not self.return_sequences:
            last, dy = dy, _c.Full(self._shape, 0.0, dy.device(), dy.data_type())
            for step, batch in _steps(self._shape, self._lengths()):
                dy.SliceAxis(0, step, step + 1).SliceAxis(1, *batch).CopyFrom(
                    last.SliceAxis(0, *batch).Unsqueeze((0,))
                )
        return super().backward(dy)

    def _lengths(self) -> list[int] | None:
        if self.seq_lengths is None:
            return None
        return [int(n) for n in Tensor(data=self.seq_lengths).numpy().reshape(-1)]


def _steps(shape: tuple[int, ...], lengths: list[int] | None) -> list[tuple[int, tuple[int, int]]]:
    """(step, range of the batch) of the last step of each sequence."""
    if lengths is None:
        return [(shape[0] - 1, (0, shape[1]))]
    return [(length - 1, (i, i + 1)) for i, length in enumerate(lengths)]


def _last(y: Raw, lengths: list[int] | None) -> Raw:
    rows = [
        y.SliceAxis(0, step, step + 1).SliceAxis(1, *batch).Squeeze((0,))
        for step, batch in _steps(y.shape(), lengths)
    ]
    return rows[0].Clone() if len(rows) == 1 else _c.Concat(rows, 0)


def rnn(
    handle: _c.RnnHandle, x: Tensor, hx: Tensor, cx: Tensor, W: Tensor, seq_lengths: Any = None
) -> tuple[Tensor, ...]:
    """Applies a recurrent network to x (steps, batch, features); returns (y, hy, cy), or (y, hy) if
    it is not an LSTM. See `RNN` for arguments and results.

    Raises ValueError for shapes that do not fit the handle.

    >>> from singa import singa_wrap
    >>> x = tensor.ones((5, 2, 3))  # steps, batch, features
    >>> handle = singa_wrap.RnnHandle(x.data, 4, singa_wrap.RnnMode_kGru)
    >>> h, W = tensor.zeros((1, 2, 4)), tensor.random((handle.weights_size,))
    >>> y, hy = autograd.rnn(handle, x, h, h, W)
    >>> y.shape, hy.shape
    ((5, 2, 4), (1, 2, 4))
    """
    return RNN(handle, seq_lengths)(x, hx, cx, W)
