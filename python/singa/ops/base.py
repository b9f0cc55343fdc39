"""Base classes and helpers of the operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..raw.arrays import full
from ..raw.check import integer, integers, with_facts
from ..tape.elements import as_raw
from ..tape.operator import Operator
from ..tape.tensor import Tensor, wrap
from .types import type_beside

if TYPE_CHECKING:
    from ..tape.operator import Raw


_PACKAGE = __name__.removesuffix("base")


class BuiltinOperator(Operator):
    """Base class of singa's own operators.

    They keep tensors for backward by `save` only, not in other attributes. Their gradients always
    have the shapes of the inputs, so the tape does not check that.
    """

    _keeps_attributes = False
    _is_builtin = True

    def __init_subclass__(cls) -> None:
        cls._is_builtin = cls.__module__.startswith(_PACKAGE)  # False for a user's subclass

    if not TYPE_CHECKING:
        __init__ = object.__init__  # Operator.__init__ has nothing to set here

    def forward(self, *xs: Any) -> Any:
        raise NotImplementedError

    def backward(self, *dys: Any) -> Any:
        raise NotImplementedError


class Constant(BuiltinOperator):
    """Base class of operators without gradient, such as comparisons, shapes and positions."""

    differentiable = False

    def backward(self, *dys: Any) -> Any:
        raise TypeError(f"[{type(self).__name__}] has no gradient")


def tensor_of(value: Any, like: Tensor | None = None) -> Tensor:
    """Converts an array, list or number to a constant Tensor; returns a Tensor unchanged.

    The result is on the device of `like`. Lists and numbers also get its type, unless theirs is of
    a higher kind (`types.type_beside`).
    """
    if isinstance(value, Tensor):
        return value
    if like is None:
        return wrap(as_raw(value), False)
    own = isinstance(value, (np.ndarray, np.generic, _c.Tensor))
    dtype = None if own else type_beside(value, like.dtype)
    if dtype is not None and isinstance(value, (int, float)):
        # By an operation, which a recorded step repeats.
        return wrap(full((), value, like.device, dtype), False)
    return wrap(as_raw(value, dtype, like.device), False)


def axes_of(op: str, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """Converts an axis or a sequence of axes to a tuple. None becomes the empty tuple."""
    if axis is None:
        return ()
    if isinstance(axis, int) or not hasattr(axis, "__len__"):
        return (integer(op, "axis", axis),)
    return integers(op, "axes", axis)


def indices_of(op: str, value: Any, like: Raw) -> Raw:
    """Converts indices to a raw integer tensor on the device of `like`.

    Raises ValueError for floats that are not whole numbers.
    """
    listed = isinstance(value, (int, list, tuple))
    raw = as_raw(np.asarray(value) if listed else value, device=like.device())
    if not _c.IsFloat(raw.data_type()):
        return raw
    whole = raw.AsType(_c.kInt64)
    # NaN and numbers beyond int64 also change in the conversion and back.
    same = _c.Binary(_c.BinaryOp_kEqual, whole.AsType(raw.data_type()), raw)
    if raw.size() and not _c.Reduce(_c.ReduceOp_kMin, same).Item():
        error = f"[{op}] indices must be whole numbers, got {numbers_of(raw)!s:.60}"
        raise with_facts(ValueError(error), "not_whole", op=op)
    return whole


def numbers_of(value: Any) -> list[Any]:
    """The elements of a tensor, array, list or number as Python numbers."""
    if isinstance(value, (_c.Tensor, Tensor)):
        value = wrap(as_raw(value), False).numpy()
    return np.asarray(value).reshape(-1).tolist()


def integers_of(op: str, name: str, value: Any, least: int | None = None) -> tuple[int, ...]:
    """The elements of a tensor, array, list or number as integers, each at least `least`."""
    return integers(op, name, numbers_of(value), least)


def loss_like(loss: Raw) -> Raw:
    """Gives a loss the shape (1,), because SINGA's scripts read `to_numpy(loss)[0]`."""
    return loss.Reshape((1,))
