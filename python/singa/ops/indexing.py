"""Operators that select elements by indices or conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import as_dtype
from ..raw.check import integer, number, one_of
from ..tape.elements import as_raw
from ..tape.tensor import Tensor
from .base import BuiltinOperator, Constant, indices_of, integers_of, numbers_of, tensor_of
from .conversion import Promoting

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..tape.operator import Raw


class Gather(BuiltinOperator):
    """x[..., indices, ...] along an axis. The axes of `indices` replace the axis.

    `indices` is an array, list or tensor of any shape. Negative indices count from the end. Raises
    IndexError for an index outside the axis. With SINGA's behaviour (`singa.compat`), all in a list
    are taken modulo the length.
    """

    fresh_gradients = True
    #: Whether indices in a list are taken modulo the length.
    wraps: bool = False

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
        if not (
            self.wraps
            and isinstance(self.indices, (list, tuple))
            and -len(self._shape) <= self.axis < len(self._shape)
        ):
            return self.indices
        indices, length = np.asarray(self.indices), self._shape[self.axis]
        if indices.dtype.kind not in "if" or not length:
            return self.indices
        return indices % length

    def backward(self, dy: Raw) -> Raw:
        (indices,) = self.load()
        return _c.GatherBackward(dy, self._shape, self.axis, indices)


class GatherElements(BuiltinOperator):
    """The elements of x with the coordinate along an axis replaced by `indices`, as in ONNX.

    `indices` has the rank of x and is no longer than it, but for the axis. Negative indices count
    from the end. The result has the shape of `indices`. Gradients of equal indices are summed in
    their order. Raises IndexError for an index outside the axis, ValueError for another shape.
    """

    fresh_gradients = True

    def __init__(self, indices: Any, axis: int = 0) -> None:
        super().__init__()
        self.indices = indices
        self.axis: int = integer(type(self).__name__, "axis", axis)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        indices = indices_of("GatherElements", self.indices, x)
        self.save(indices)
        return _c.GatherElements(x, indices, self.axis)

    def backward(self, dy: Raw) -> Raw:
        (indices,) = self.load()
        return _c.GatherElementsBackward(dy, self._shape, indices, self.axis)


class GatherND(BuiltinOperator):
    """Slices of x named by the last axis of `indices`, as in ONNX.

    The last axis holds coordinates in x, from its first axis on, or from the first one behind
    `batch_dims` axes that x and `indices` share. The result has the shape of `indices` without the
    last axis, then that of a slice. Negative indices count from the end. Raises IndexError for an
    index outside its axis, ValueError for shapes that do not fit.
    """

    fresh_gradients = True

    def __init__(self, indices: Any, batch_dims: int = 0) -> None:
        super().__init__()
        self.indices = indices
        self.batch_dims: int = integer("GatherND", "batch_dims", batch_dims, 0)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        indices = indices_of("GatherND", self.indices, x)
        self.save(indices)
        return _c.GatherND(x, indices, self.batch_dims)

    def backward(self, dy: Raw) -> Raw:
        (indices,) = self.load()
        return _c.GatherNDBackward(dy, self._shape, indices, self.batch_dims)


_REDUCTIONS = {
    "none": _c.ScatterReduction_kNone,
    "add": _c.ScatterReduction_kAdd,
    "mul": _c.ScatterReduction_kMul,
    "max": _c.ScatterReduction_kMax,
    "min": _c.ScatterReduction_kMin,
}


class _Scatter(BuiltinOperator):
    """Base class of scatters: `updates` are a constant of the operator, or its second input."""

    fresh_gradients = True

    def __init__(self, indices: Any, updates: Any, reduction: str) -> None:
        super().__init__()
        self.indices: Any = indices
        self.updates: Any = updates
        one_of(type(self).__name__, "reduction", reduction, _REDUCTIONS)
        self.reduction: Any = _REDUCTIONS[reduction]
        self._one = True

    def forward(self, x: Raw, updates: Raw | None = None) -> Raw:
        self._one = updates is None
        if updates is None:
            updates = as_raw(self.updates, x.data_type(), x.device())
        indices = indices_of(type(self).__name__, self.indices, x)
        y = self._scatter(x, indices, updates)
        adds = self.reduction in (_c.ScatterReduction_kNone, _c.ScatterReduction_kAdd)
        self.save(indices, *((None, None, None) if adds else (x, updates, y)))
        return y

    def backward(self, dy: Raw) -> Raw | tuple[Raw | None, ...]:
        dx, dupdates = self._gradients(dy, *self.load())
        return dx if self._one else (dx, dupdates)

    def _scatter(self, x: Raw, indices: Raw, updates: Raw) -> Raw:
        raise NotImplementedError

    def _gradients(self, dy: Raw, indices: Raw, *kept: Raw | None) -> tuple[Raw, Raw]:
        raise NotImplementedError


class ScatterElements(_Scatter):
    """A copy of x with updates[i] at position indices[i] along an axis, as in ONNX.

    `reduction` joins the updates with the elements there: "add", "mul", "max" or "min". With "none"
    the last update of an element replaces it. `updates` is a constant of the operator, or its
    second input. Updates are joined in row-major order, the same on every run.
    """

    def __init__(
        self, indices: Any, updates: Any = None, axis: int = 0, reduction: str = "none"
    ) -> None:
        super().__init__(indices, updates, reduction)
        self.axis = axis

    def _scatter(self, x: Raw, indices: Raw, updates: Raw) -> Raw:
        return _c.ScatterElements(x, indices, updates, self.axis, self.reduction)

    def _gradients(self, dy: Raw, indices: Raw, *kept: Raw | None) -> tuple[Raw, Raw]:
        return _c.ScatterElementsBackward(dy, indices, self.axis, self.reduction, *kept)


class ScatterND(_Scatter):
    """A copy of x with `updates` at the slices that GatherND would take, as in ONNX.

    `reduction` is as for ScatterElements. `updates` is a constant of the operator, or its second
    input.
    """

    def __init__(self, indices: Any, updates: Any = None, reduction: str = "none") -> None:
        super().__init__(indices, updates, reduction)

    def _scatter(self, x: Raw, indices: Raw, updates: Raw) -> Raw:
        return _c.ScatterND(x, indices, updates, self.reduction)

    def _gradients(self, dy: Raw, indices: Raw, *kept: Raw | None) -> tuple[Raw, Raw]:
        return _c.ScatterNDBackward(dy, indices, self.reduction, *kept)


class Embedding(BuiltinOperator):
    """Rows of w (vocabulary, width) by the indices x, which have any shape."""

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
        # Indices have no gradient. As in SINGA, it is zero if it is asked for.
        dx = _c.Full(x.shape(), 0.0, x.device(), dy.data_type()) if self._need(0) else None
        return dx, _c.EmbeddingBackward(dy, x, self._shape) if self._need(1) else None


class Where(Promoting):
    """x where `condition` is true or not 0, else y, with broadcasting."""

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
    """One-hot encoding of indices along a new axis of length `depth`.

    `values` are (off, on). The result has the type of `values` if they are a tensor or array,
    otherwise float32. Negative indices count from the end. An index outside [-depth, depth) has no
    `on`, as in ONNX; with `strict` it raises IndexError.
    """

    def __init__(self, axis: int, depth: Any, values: Any, strict: bool = False) -> None:
        super().__init__()
        self.axis = axis
        self.strict = strict
        depths, numbers = integers_of("OneHot", "depth", depth, 0), numbers_of(values)
        if len(depths) != 1 or len(numbers) != 2:
            raise ValueError(
                f"[OneHot] takes one depth and two values (off, on), got {depths} and {numbers}"
            )
        self.depth: int = depths[0]
        self.off: float
        self.on: float
        # C++ refuses integers that it would round.
        self.off, self.on = (
            value if isinstance(value, int) else number("OneHot", "values", value)
            for value in numbers
        )
        self.dtype: DType = as_dtype("float32")
        if isinstance(values, (Tensor, np.ndarray)):
            self.dtype = as_dtype(values.dtype)

    def forward(self, indices: Raw) -> Raw:
        indices = indices_of("OneHot", indices, indices)
        if self.strict:  # the kernel of Gather checks them, also in replays
            zero = _c.Full((1,), 0.0, indices.device(), indices.data_type())
            zeros = _c.Gather(zero.Broadcast((self.depth,)), 0, indices)
            indices = _c.Binary(_c.BinaryOp_kAdd, indices, zeros)
        return _c.OneHot(indices, self.depth, self.off, self.on, self.axis, int(self.dtype))


class NonZero(Constant):
    """Indices (int64) of the elements that are not 0, with one row for each axis of x."""

    def forward(self, x: Raw) -> Raw:
        return _c.NonZero(x)


def gather(x: Tensor, axis: int, indices: Any) -> Tensor:
    """x[..., indices, ...] along an axis, as numpy.take. The axes of `indices` replace the axis.

    Negative indices count from the end. Raises IndexError for indices outside the axis.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> autograd.gather(x, 0, [2, 0])
    Tensor([[5., 6.],
            [1., 2.]], dtype=float32)
    """
    return Gather(axis, indices)(x)[0]


def gather_elements(x: Tensor, indices: Any, axis: int = 0) -> Tensor:
    """The elements of x with the coordinate along an axis (default 0) replaced by `indices`, as in
    ONNX's GatherElements and torch.gather.

    `indices` has the rank of x and is no longer than it, but for the axis. Negative indices count
    from the end. Raises IndexError for an index outside the axis.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
    >>> autograd.gather_elements(x, [[0], [1]], axis=1)
    Tensor([[1.],
            [4.]], dtype=float32)
    """
    return GatherElements(indices, axis)(x)[0]


def take_along_axis(x: Tensor, indices: Any, axis: int = -1) -> Tensor:
    """gather_elements with `indices` broadcast to x along the other axes, as numpy.take_along_axis.

    The axis is the last one by default. Raises ValueError if the shapes do not broadcast.

    >>> x = tensor.Tensor(data=[[3.0, 1.0, 2.0]])
    >>> autograd.take_along_axis(x, np.argsort(x.numpy()))
    Tensor([[1., 2., 3.]], dtype=float32)
    """
    picks = as_raw(indices, device=x.device)
    place, rank = integer("take_along_axis", "axis", axis), len(x.shape)
    if not -rank <= place < rank or picks.rank() != rank:
        raise ValueError(
            f"[take_along_axis] axis {place} of x {x.shape} and indices {picks.shape()} do not fit"
        )
    shape = list(x.shape)
    shape[place] = picks.shape()[place]
    return GatherElements(picks.Broadcast(shape), place)(x)[0]


def gather_nd(x: Tensor, indices: Any, batch_dims: int = 0) -> Tensor:
    """Slices of x named by the last axis of `indices`, as in ONNX: `indices` of shape (..., m) hold
    coordinates along the first m axes of x, or along the first m behind `batch_dims` axes that x
    and `indices` share. Raises IndexError for an index outside its axis.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
    >>> autograd.gather_nd(x, [[0, 1], [1, 0]])
    Tensor([2., 3.], dtype=float32)
    """
    return GatherND(indices, batch_dims)(x)[0]


def _scattered(operator: Any, x: Tensor, updates: Any, **named: Any) -> Tensor:
    """Applies a scatter. Gradients flow to updates that are a parameter or computed on the tape."""
    if isinstance(updates, Tensor) and (updates.stores_grad or not updates.is_dummy()):
        return operator(**named)(x, updates)[0]
    return operator(updates=updates, **named)(x)[0]


def scatter_elements(
    x: Tensor, indices: Any, updates: Any, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """A copy of x with updates[i] at position indices[i] along an axis (default 0), as in ONNX.

    `reduction` is "none", with which the last update of an element replaces it, "add", "mul", "max"
    or "min". Gradients also flow to `updates` if it is a parameter or was computed on the tape.

    Raises IndexError for an index outside the axis, ValueError for shapes that do not fit.

    >>> autograd.scatter_elements(tensor.zeros((4,)), [1, 3], [5.0, 6.0])
    Tensor([0., 5., 0., 6.], dtype=float32)
    """
    return _scattered(ScatterElements, x, updates, indices=indices, axis=axis, reduction=reduction)


def scatter_nd(x: Tensor, indices: Any, updates: Any, reduction: str = "none") -> Tensor:
    """A copy of x with `updates` at the slices that gather_nd would take, as in ONNX.

    `updates` has the shape of gather_nd's result. `reduction` and gradients are as for
    scatter_elements.

    Raises IndexError for an index outside its axis, ValueError for shapes that do not fit.

    >>> autograd.scatter_nd(tensor.zeros((3, 2)), [[2], [0]], [[1.0, 2.0], [3.0, 4.0]])
    Tensor([[3., 4.],
            [0., 0.],
            [1., 2.]], dtype=float32)
    """
    return _scattered(ScatterND, x, updates, indices=indices, reduction=reduction)


def embedding(x: Tensor, w: Tensor) -> Tensor:
    """Rows of w (vocabulary, width) by the indices x.

    x has any shape; the result has one more axis, of length width. Raises IndexError for an index
    outside the vocabulary, ValueError for floats that are not whole numbers.

    >>> words = tensor.Tensor(data=[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    >>> autograd.embedding([2, 1], words)
    Tensor([[2., 2.],
            [1., 1.]], dtype=float32)
    """
    return Embedding()(tensor_of(x), w)[0]


def where(x: Any, y: Any, condition: Any) -> Tensor:
    """x where `condition` is true or not 0, else y, with broadcasting. x or y may be a number or an
    array.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> x = tensor.Tensor(data=[-1.0, 2.0, -3.0])
    >>> autograd.where(x, 0.0, x > 0)
    Tensor([0., 2., 0.], dtype=float32)
    """
    if not isinstance(x, Tensor):
        x = tensor_of(x, y if isinstance(y, Tensor) else None)
    return Where(condition)(x, tensor_of(y, x))[0]


def onehot(axis: int, indices: Tensor, depth: Any, values: Any) -> Tensor:
    """One-hot encoding: adds an axis of length `depth`, in which the element at the index is
    values[1] and all others are values[0].

    Raises IndexError for an index outside [-depth, depth). With SINGA's behaviour (`singa.compat`)
    all elements are values[0] there.

    >>> autograd.onehot(-1, [2, 0], 3, [0.0, 1.0])
    Tensor([[0., 0., 1.],
            [1., 0., 0.]], dtype=float32)
    """
    return OneHot(axis, depth, values, strict=True)(tensor_of(indices))[0]


def nonzero(x: Tensor) -> Tensor:
    """Indices (int64) of the elements that are not 0, with one row for each axis of x.

    >>> autograd.nonzero(tensor.Tensor(data=[[0.0, 5.0], [7.0, 0.0]]))
    Tensor([[0, 1],
            [1, 0]], dtype=int64)
    """
    return NonZero()(x)[0]
