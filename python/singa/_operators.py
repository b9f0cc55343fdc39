"""What `+`, `<`, `@`, `+=` and their like do with tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from ._deferred import ops as _ops
from ._deferred import tape as _tape

if TYPE_CHECKING:
    from ._tensor import Tensor
    from .tape import Operator


class Operators:
    """The operators of a Tensor. Recorded while the tape records and an operand leads to a stored
    gradient."""

    __slots__ = ()

    #: NumPy leaves `array + tensor` to us.
    __array_priority__ = 1000
    __hash__ = object.__hash__

    if TYPE_CHECKING:  # of the Tensor
        stores_grad: bool

        def _apply(self, op: Operator) -> Tensor: ...
        def _operand(self, value: Any) -> Tensor: ...

    def __add__(self, other: Any) -> Tensor:
        return _ops().operate("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _ops().operate("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _ops().operate("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _ops().operate("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _ops().operate("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _ops().operate("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _ops().operate("div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _ops().operate("div", other, self)

    __div__, __rdiv__ = __truediv__, __rtruediv__  # SINGA's scripts call them by name

    def __floordiv__(self, other: Any) -> Tensor:
        return (self / other)._apply(_ops().Floor())

    def __mod__(self, other: Any) -> Tensor:
        return _ops().operate("mod", self, other)

    def __pow__(self, other: Any) -> Tensor:
        return _ops().operate("pow", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return _ops().operate("pow", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return _tape().apply(_ops().Matmul(), self, self._operand(other))

    def __rmatmul__(self, other: Any) -> Tensor:
        return _tape().apply(_ops().Matmul(), self._operand(other), self)

    def __neg__(self) -> Tensor:
        return self._apply(_ops().Negative())

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Tensor:
        return self._apply(_ops().Abs())

    # Comparisons give 1 or 0 in the operands' type, as in SINGA.

    def __lt__(self, other: Any) -> Tensor:
        return _ops().operate("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return _ops().operate("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _ops().operate("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _ops().operate("greater_equal", self, other)

    def __eq__(self, other: object) -> Any:
        return _ops().operate("equal", self, other)

    def __ne__(self, other: object) -> Any:
        return _ops().operate("not_equal", self, other)

    # In place: the memory is written and nothing is recorded, so a parameter can be updated at any
    # time. Where that would lose a gradient, because one side was computed on the tape, the name is
    # bound to the recorded result instead.

    def __iadd__(self, other: Any) -> Tensor:
        return self._update("add", other)

    def __isub__(self, other: Any) -> Tensor:
        return self._update("sub", other)

    def __imul__(self, other: Any) -> Tensor:
        return self._update("mul", other)

    def __itruediv__(self, other: Any) -> Tensor:
        return self._update("div", other)

    def __ipow__(self, other: Any) -> Tensor:
        return self._update("pow", other)

    def _update(self, kind: str, other: Any) -> Tensor:
        tape = _tape()
        if tape.is_computed(self) or (
            not self.stores_grad and isinstance(other, Operators) and tape.is_computed(other)
        ):
            return _ops().operate(kind, self, other)
        return _ops().operate_into(kind, self, other)
