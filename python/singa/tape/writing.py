"""What fills a Tensor, and what changes its elements in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .. import singa_wrap as _c
from ..raw.arrays import fill
from ..raw.calls import checks_flags
from ..raw.check import integer, number
from .elements import as_raw, flattened, from_array
from .grad_mode import state
from .step_recording import move_back

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from .tensor import Tensor


class Writing:
    """Methods of Tensor that write its elements."""

    __slots__ = ()

    data: Any  # of Tensor

    @checks_flags
    def set_value(self: Any, x: ArrayLike | Tensor, inplace: bool = True) -> Tensor:
        """Fills with a number, or with the elements of an array that broadcasts to its shape.

        >>> tensor.zeros((2, 2)).set_value([1.0, 2.0])
        Tensor([[1., 2.],
                [1., 2.]], dtype=float32)
        """
        t = self if inplace else self.deepcopy()
        if isinstance(x, (int, float)):
            fill(t.data, x)
        else:
            t.data.CopyFrom(as_raw(x, device=self.device))
        return t

    def copy_from_numpy(self: Any, np_array: NDArray[Any], offset: int = 0) -> None:
        """Copies an array's elements, in order, to its own from number `offset` on.

        Raises ValueError when they do not fit, or, without an offset, when the sizes differ.

        >>> x = tensor.zeros((4,))
        >>> x.copy_from_numpy(np.array([5.0, 6.0], np.float32), offset=1)
        >>> x
        Tensor([0., 5., 6., 0.], dtype=float32)
        """
        source = from_array(np.asarray(np_array), self.device).Reshape((-1,))
        offset = integer("copy_from_numpy", "offset", offset)
        size, room = source.size(), self.size() - offset
        if offset < 0 or size > room or (not offset and size != room):
            raise ValueError(
                f"[copy_from_numpy] {size} elements at offset {offset} of {room + offset}"
            )
        flattened(self, "copy_from_numpy").SliceAxis(0, offset, offset + size).CopyFrom(source)

    def copy_data(self: Any, t: Tensor) -> None:
        """Copies another tensor's elements. Raises ValueError when the sizes differ.

        While the tape records, the copy goes to new memory, which other tensors do not share: a
        recurrent network that keeps its state so in the middle of a step needs the old elements
        for backward. At the end of a step that is recorded it moves back to the old memory. Memory
        that NumPy or another library shares is written to itself.

        >>> x = tensor.zeros((2, 1))
        >>> x.copy_data(tensor.Tensor(data=[1.0, 2.0]))
        >>> x
        Tensor([[1.],
                [2.]], dtype=float32)
        """
        if t.size() != self.size():
            raise ValueError(f"[copy_data] {t.shape} into {self.shape}: the sizes differ")
        source = t.data if t.shape == self.shape else t.data.Reshape(self.shape)
        if state.recording and not self.data.IsPinned():
            move_back(self)
            self.data = source.AsType(int(self.dtype)).ToDevice(self.device).Clone()
        else:
            self.data.CopyFrom(source)

    def copy_from(self: Any, t: Tensor | NDArray[Any], offset: int = 0) -> None:
        """Copies a tensor's or an array's elements to its own from number `offset` on.

        >>> x = tensor.zeros((3,))
        >>> x.copy_from(tensor.Tensor(data=[1.0, 2.0]), offset=1)
        >>> x
        Tensor([0., 1., 2.], dtype=float32)
        """
        if isinstance(t, _c.TapeTensor) and not offset:
            self.copy_data(t)
        else:
            self.copy_from_numpy(t.numpy() if isinstance(t, _c.TapeTensor) else t, offset)

    def reset_like(self, t: Tensor) -> Self:
        """Takes another tensor's shape, type and device, filled with zeros.

        >>> tensor.ones((3,)).reset_like(tensor.ones((1, 2)))
        Tensor([[0., 0.]], dtype=float32)
        """
        self.data = _c.Full(t.shape, 0.0, t.device, int(t.dtype))
        return self

    # Random fills, from the device's sequence. Each returns the tensor that it filled.

    @checks_flags
    def bernoulli(self: Any, p: float, inplace: bool = True) -> Tensor:
        """1 with probability p, else 0.

        >>> tensor.zeros((3,)).bernoulli(1.0)
        Tensor([1., 1., 1.], dtype=float32)
        """
        t = self if inplace else self.deepcopy()
        _c.Bernoulli(number("bernoulli", "p", p), t.data)
        return t

    @checks_flags
    def gaussian(self: Any, mean: float, std: float, inplace: bool = True) -> Tensor:
        """Normally distributed.

        >>> x = tensor.zeros((1000,)).gaussian(5.0, 0.1)
        >>> round(x.mean().item())
        5
        """
        t = self if inplace else self.deepcopy()
        _c.Gaussian(number("gaussian", "mean", mean), number("gaussian", "std", std), t.data)
        return t

    @checks_flags
    def uniform(self: Any, low: float, high: float, inplace: bool = True) -> Tensor:
        """Uniform in [low, high).

        >>> x = tensor.zeros((1000,)).uniform(2.0, 3.0)
        >>> x.min().item() >= 2, x.max().item() < 3
        (True, True)
        """
        t = self if inplace else self.deepcopy()
        _c.Uniform(number("uniform", "low", low), number("uniform", "high", high), t.data)
        return t

    # A matrix with a vector, in place.

    def add_column(self, v: Tensor) -> Self:
        """Adds v to each column.

        >>> tensor.zeros((2, 3)).add_column(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1., 1., 1.],
                [2., 2., 2.]], dtype=float32)
        """
        return self._with_column(_c.BinaryOp_kAdd, v)

    def add_row(self, v: Tensor) -> Self:
        """Adds v to each row.

        >>> tensor.zeros((2, 3)).add_row(tensor.Tensor(data=[1.0, 2.0, 3.0]))
        Tensor([[1., 2., 3.],
                [1., 2., 3.]], dtype=float32)
        """
        return self._with_row(_c.BinaryOp_kAdd, v)

    def div_column(self, v: Tensor) -> Self:
        """Divides each column by v.

        >>> tensor.ones((2, 3)).div_column(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1. , 1. , 1. ],
                [0.5, 0.5, 0.5]], dtype=float32)
        """
        return self._with_column(_c.BinaryOp_kDiv, v)

    def div_row(self, v: Tensor) -> Self:
        """Divides each row by v.

        >>> tensor.ones((2, 2)).div_row(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1. , 0.5],
                [1. , 0.5]], dtype=float32)
        """
        return self._with_row(_c.BinaryOp_kDiv, v)

    def mult_column(self, v: Tensor) -> Self:
        """Multiplies each column by v.

        >>> tensor.ones((2, 3)).mult_column(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1., 1., 1.],
                [2., 2., 2.]], dtype=float32)
        """
        return self._with_column(_c.BinaryOp_kMul, v)

    def mult_row(self, v: Tensor) -> Self:
        """Multiplies each row by v.

        >>> tensor.ones((2, 2)).mult_row(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1., 2.],
                [1., 2.]], dtype=float32)
        """
        return self._with_row(_c.BinaryOp_kMul, v)

    def _with_column(self, code: int, v: Tensor) -> Self:
        _c.BinaryInto(code, self.data, v.data.Reshape((-1, 1)), self.data)
        return self

    def _with_row(self, code: int, v: Tensor) -> Self:
        _c.BinaryInto(code, self.data, v.data.Reshape((1, -1)), self.data)
        return self
