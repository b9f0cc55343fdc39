"""Operators that choose elements by indices or conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from .._check import number
from .._tensor import Tensor, as_raw
from ..dtypes import as_dtype
from ..tape import apply
from .base import Constant, Op, indices_of, integers_of, numbers_of, tensor_of
from .movement import Index

if TYPE_CHECKING:
    from ..tape import Raw


class Gather(Op):
    """x[..., indices, ...] along an axis: indices (array, list or tensor of any shape) take the
    place of the axis; negative ones count from the end. As in SINGA, those of a list may be below
    -length: they are taken modulo the length. IndexError outside."""

    fresh_gradients = True

    def __init__(self, axis: int, indices: Any) -> None:
        super().__init__()
        self.axis = axis
        self.indices = indices
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        indices = indices_of("Gather", self._wrapped(), x)
        self.save(indices)
        return _c.Gather(x, self.axis, indices)

    def _wrapped(self) -> Any:
        if not isinstance(self.indices, (list, tuple)) or not (
            -len(self._shape) <= self.axis < len(self._shape)
        ):
            return self.indices
        indices, length = np.asarray(self.indices), self._shape[self.axis]
        if indices.dtype.kind not in "if" or not length:
            return self.indices
        return np.where(indices < 0, indices % length, indices)

    def backward(self, dy: Raw) -> Raw:
        (indices,) = self.load()
        return _c.GatherBackward(dy, self._shape, self.axis, indices)


class ScatterElements(Op):
    """x with updates[i] written to position indices[i] along an axis, as in ONNX.

    `updates` is a constant of the operator, or its second input.
    """

    def __init__(self, indices: Any, updates: Any = None, axis: int = 0) -> None:
        super().__init__()
        self.indices, self.updates, self.axis = indices, updates, axis
        self._one = True

    def forward(self, x: Raw, updates: Raw | None = None) -> Raw:
        self._one = updates is None
        if updates is None:
            updates = as_raw(self.updates, x.data_type(), x.device())
        indices = indices_of("ScatterElements", self.indices, x)
        self.save(indices)
        return _c.ScatterElements(x, indices, updates, self.axis)

    def backward(self, dy: Raw) -> Raw | tuple[Raw | None, ...]:
        (indices,) = self.load()
        dx, dupdates = _c.ScatterElementsBackward(dy, indices, self.axis)
        return dx if self._one else (dx, dupdates)


class Embedding(Op):
    """The rows of w (vocabulary, width) that x (whole numbers, any shape) names."""

    fresh_gradients = True

    def __init__(self) -> None:
        super().__init__()
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw, w: Raw) -> Raw:
        self._shape = w.shape()
        self.save(x)
        return _c.EmbeddingForward(x, w)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        (x,) = self.load()
        # Positions have no slope; a caller who asks for one gets zeros, as from SINGA.
        dx = _c.Full(x.shape(), 0.0, x.device(), dy.data_type()) if self._need(0) else None
        return dx, _c.EmbeddingBackward(dy, x, self._shape) if self._need(1) else None


class Where(Op):
    """x where the condition (bool, or not 0) holds, else y."""

    fresh_gradients = True

    def __init__(self, condition: Any) -> None:
        super().__init__()
        self.condition = condition
        self._shapes: tuple[tuple[int, ...], ...] = ()

    def forward(self, x: Raw, y: Raw) -> Raw:
        condition = as_raw(self.condition, device=x.device())
        self._shapes = (x.shape(), y.shape())
        self.save(condition)
        return _c.Where(condition, x, y)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        (condition,) = self.load()
        return _c.WhereBackward(dy, condition, *self._shapes, self._need(0), self._need(1))


class OneHot(Constant):
    """values[1] where the new axis' position equals the index, else values[0]. `depth` is the
    length of the new axis; the result has the type of `values`."""

    def __init__(self, axis: int, depth: Any, values: Any) -> None:
        super().__init__()
        self.axis = axis
        depths, numbers = integers_of("OneHot", "depth", depth, 0), numbers_of(values)
        if len(depths) != 1 or len(numbers) != 2:
            raise ValueError(
                f"[OneHot] takes one depth and two values (off, on), got {depths} and {numbers}"
            )
        self.depth = depths[0]
        self.off, self.on = (number("OneHot", "values", value) for value in numbers)
        if isinstance(values, (Tensor, np.ndarray)):
            self.dtype = as_dtype(values.dtype)
        else:
            self.dtype = as_dtype("float32")

    def forward(self, indices: Raw) -> Raw:
        indices = indices_of("OneHot", indices, indices)
        off, on = float(self.off), float(self.on)
        return _c.OneHot(indices, self.depth, off, on, self.axis, int(self.dtype))


class NonZero(Constant):
    """Positions of the elements that are not 0: int64, one row for each axis."""

    def forward(self, x: Raw) -> Raw:
        return _c.NonZero(x)


def gather(x: Tensor, axis: int, indices: Any) -> Tensor:
    """x[..., indices, ...] along an axis."""
    return Gather(axis, indices)(x)[0]


def scatter_elements(x: Tensor, indices: Any, updates: Any, axis: int = 0) -> Tensor:
    """x with updates[i] written to position indices[i] along an axis. Gradients flow to a tensor of
    updates that requires them by being a parameter or computed."""
    if isinstance(updates, Tensor) and (updates.stores_grad or not updates.is_dummy()):
        return ScatterElements(indices, None, axis)(x, updates)[0]
    return ScatterElements(indices, updates, axis)(x)[0]


def embedding(x: Tensor, w: Tensor) -> Tensor:
    """The rows of w (vocabulary, width) that x (whole numbers, any shape) names."""
    return Embedding()(tensor_of(x), w)[0]


def where(x: Tensor, y: Tensor, condition: Any) -> Tensor:
    """x where the condition (bool, or not 0) holds, else y."""
    if not isinstance(x, Tensor):
        x = tensor_of(x, y)
    return Where(condition)(x, tensor_of(y, x))[0]


def onehot(axis: int, indices: Tensor, depth: Any, values: Any) -> Tensor:
    """values[1] where the new axis' position equals the index, else values[0]."""
    return OneHot(axis, depth, values)(tensor_of(indices))[0]


def nonzero(x: Tensor) -> Tensor:
    """Positions of the elements that are not 0: int64, one row for each axis."""
    return NonZero()(x)[0]


def take(x: Tensor, entries: Sequence[Any]) -> Tensor:
    """What `x[key]` gives where the key has an array: rows by indices along one axis, or the
    elements that a boolean mask over the first axes selects."""
    arrays = [i for i, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
    if len(arrays) > 1:
        raise NotImplementedError("[getitem] only one array of indices at a time is possible")
    position = arrays[0]
    key = entries[position]
    before = list(entries[:position])
    if key.dtype == np.bool_:
        if before:
            raise NotImplementedError("[getitem] a mask has to be the first index")
        if key.shape != x.shape[: key.ndim]:
            raise IndexError(f"[getitem] a mask of shape {key.shape} for a tensor of {x.shape}")
        x = x.reshape((key.size, *x.shape[key.ndim :]))
        key = np.flatnonzero(key)
    # The basic indices first, with the array's axis left whole; then the array.
    axis = sum(1 for entry in before if entry is None or isinstance(entry, slice))
    rest = [*before, slice(None), *entries[position + 1 :]]
    x = apply(Index(rest), x)
    return apply(Gather(axis, key.astype(np.int64)), x)
