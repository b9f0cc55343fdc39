"""Conversion of elements to other types, asked for or by promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dtypes import as_dtype, float32, is_float
from ..tape.autocast import dtype as autocast_dtype
from ..tape.operator import followers
from ..tape.tensor import Tensor, wrap
from .base import BuiltinOperator
from .types import result_type

if TYPE_CHECKING:
    from ..dtypes import DType
    from ..tape.operator import Raw


class Cast(BuiltinOperator):
    """Converts to another element type. Integer and bool results have no gradient."""

    def __init__(self, to: Any) -> None:
        super().__init__()
        self.to: DType = as_dtype(to)
        self.differentiable: bool = is_float(self.to)
        self._from = 0

    def forward(self, x: Raw) -> Raw:
        self._from = x.data_type()
        self.fresh_gradients: bool = self._from != int(self.to)
        return x.AsType(int(self.to))

    def backward(self, dy: Raw) -> Raw:
        return dy.AsType(self._from)


def promoted(xs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands of several types in the type of the result (`result_type`), so that each gets a
    gradient of its own type. Others are returned as they are."""
    tensors = [x for x in xs if isinstance(x, Tensor)]
    if len({x.dtype for x in tensors}) < 2:
        return xs
    to = result_type(*tensors)
    return tuple([Cast(to)(x)[0] if isinstance(x, Tensor) and x.dtype != to else x for x in xs])


class Promoting(BuiltinOperator):
    """An operator that promotes its operands."""

    def __call__(self, *xs: Tensor) -> tuple[Tensor, ...]:
        return super().__call__(*promoted(xs))


def converted(t: Tensor, dtype: DType) -> Tensor:
    """An operand in the type of a result. It is off the tape, for it has no gradient, but followers
    see a `Cast`."""
    result = wrap(t.data.AsType(int(dtype)), t.requires_grad)
    for follow in followers:
        follow(Cast(dtype), (t,), (result,))
    return result


def in_type(reduce: Callable[[Tensor], Tensor], t: Tensor, dtype: Any) -> Tensor:
    """reduce(t), computed from a `dtype` and given in it; None: in its own type."""
    if dtype is None:
        return reduce(t)
    y = reduce(cast(t, dtype))
    return cast(y, dtype) if y.dtype != as_dtype(dtype) else y


def as_float(op: str, t: Tensor, dtype: Any) -> Tensor:
    """t in a float type; None: in its own."""
    if dtype is None:
        return t
    if not is_float(as_dtype(dtype)):
        raise TypeError(f"[{op}] dtype must be a float type, got {as_dtype(dtype)}")
    return cast(t, dtype)


def floating(x: Any) -> Any:
    """x, integers as float32."""
    return converted(x, float32) if isinstance(x, Tensor) and not is_float(x.dtype) else x


def autocast_operands(*xs: Any) -> tuple[Any, ...]:
    """Converts float32 operands of a matrix product to this thread's autocast type, if it has
    one."""
    target = autocast_dtype()
    if target is None:
        return xs
    return tuple(
        Cast(target)(x)[0] if isinstance(x, Tensor) and x.dtype == float32 else x for x in xs
    )


def cast(x: Tensor, to: Any) -> Tensor:
    """Converts to the element type `to`. Integer and bool results have no gradient.

    Raises TypeError for an unknown type.

    >>> autograd.cast(tensor.Tensor(data=[1.7, -1.7]), "int32")
    Tensor([ 1, -1], dtype=int32)
    """
    return Cast(to)(x)[0]
