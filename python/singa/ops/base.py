"""What the operator families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from .._check import integer, integers
from .._tensor import Tensor, as_raw, wrap
from ..tape import Operator

if TYPE_CHECKING:
    from ..tape import Raw


class Op(Operator):
    """An operator of singa's own: what it keeps for backward goes through `save`, never through
    other attributes, so the tape need not look for it."""

    _saved = ()

    def forward(self, *xs: Any) -> Any:
        raise NotImplementedError

    def backward(self, *dys: Any) -> Any:
        raise NotImplementedError


class Constant(Op):
    """An operator whose result has no gradient: comparisons, shapes, positions."""

    differentiable = False

    def backward(self, *dys: Any) -> Any:
        raise TypeError(f"[{type(self).__name__}] has no gradient")


def tensor_of(value: Any, like: Tensor | None = None) -> Tensor:
    """A Tensor, or a constant one made of an array, list or number, with the type and device of
    `like` where that is given and the value has no type of its own."""
    if isinstance(value, Tensor):
        return value
    if like is None:
        return wrap(as_raw(value), False)
    own = isinstance(value, (np.ndarray, np.generic, _c.Tensor))
    return wrap(as_raw(value, None if own else like.dtype, like.device), False)


def axes_of(op: str, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """An axis, several or none (empty) as a tuple."""
    if axis is None:
        return ()
    if isinstance(axis, int) or not hasattr(axis, "__len__"):
        return (integer(op, "axis", axis),)
    return integers(op, "axes", axis)


def indices_of(op: str, value: Any, like: Raw) -> Raw:
    """Whole numbers as a raw integer tensor on the device of `like`. Raises ValueError for floats
    with a fraction."""
    raw = as_raw(value, device=like.device())
    if not _c.IsFloat(raw.data_type()):
        return raw
    whole = raw.AsType(_c.kInt64)
    # What has no integer (NaN, 1e30) becomes another number on the way there and back, too.
    same = _c.Binary(_c.BinaryOp_kEqual, whole.AsType(raw.data_type()), raw)
    if raw.size() and not _c.Reduce(_c.ReduceOp_kMin, same).Item():
        raise ValueError(f"[{op}] indices have to be whole numbers, got {numbers_of(raw)!s:.60}")
    return whole


def numbers_of(value: Any) -> list[Any]:
    """The elements of a tensor, array, list or number as Python numbers."""
    if isinstance(value, (_c.Tensor, Tensor)):
        value = wrap(as_raw(value), False).numpy()
    return np.asarray(value).reshape(-1).tolist()


def integers_of(op: str, name: str, value: Any, least: int | None = None) -> tuple[int, ...]:
    """The elements of a tensor, array, list or number as whole numbers."""
    return integers(op, name, numbers_of(value), least)


def loss_like(loss: Raw) -> Raw:
    """A loss has shape (1,), as SINGA's scripts read it: `to_numpy(loss)[0]`."""
    return loss.Reshape((1,))
