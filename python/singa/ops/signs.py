"""Python's signs on tensors and raw tensors, such as `+` and `<`, which accept numbers and arrays.

They are recorded as `apply` does. Comparisons return bool; with SINGA's behaviour
(`singa.compat`), 1 or 0 in the type of the operands. Signs in place, such as `t += other`, write to
the memory of t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import bool_, is_float
from ..tape.elements import as_raw
from ..tape.grad_mode import no_grad
from ..tape.operator import apply, tracers
from ..tape.tensor import Tensor, has_gradient, is_computed, wrap
from .arithmetic import (
    Add,
    And,
    Binary,
    Div,
    Equal,
    FloorDiv,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Mod,
    Mul,
    NotEqual,
    Or,
    Pow,
    Sub,
    Xor,
    beside_number,
    constant_beside,
    with_operands,
)
from .base import tensor_of
from .bits import BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight, inverse
from .conversion import Cast, autocast_operands
from .elementwise import Abs, Negative
from .linalg import Matmul, wider

if TYPE_CHECKING:
    from ..tape.operator import Operator

# (sign, operator)
#: Signs with a reflected form, such as __radd__, and one in place, such as __iadd__.
_ARITHMETIC: dict[str, type[Binary]] = {
    "add": Add,
    "sub": Sub,
    "mul": Mul,
    "truediv": Div,
    "floordiv": FloorDiv,
    "mod": Mod,
    "pow": Pow,
}
_COMPARISONS: dict[str, type[Binary]] = {
    "lt": Less,
    "le": LessEqual,
    "gt": Greater,
    "ge": GreaterEqual,
}
#: Signs between bools, and between integers, which are symmetric.
_LOGIC: dict[str, tuple[type[Binary], type[Binary], str]] = {
    "and": (And, BitAnd, "&"),
    "or": (Or, BitOr, "|"),
    "xor": (Xor, BitXor, "^"),
}
_SHIFTS: dict[str, type[Binary]] = {"lshift": ShiftLeft, "rshift": ShiftRight}
_UNARY: dict[str, type[Operator]] = {"neg": Negative, "abs": Abs}

_Sign = Callable[..., Any]


def _operate(kind: type[Binary], a: Any, b: Any) -> Any:
    """Applies an operator to a and b, one of which may be a number or an array."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and kind is not Div:
        return apply(kind(), a, b)
    try:
        op, xs = with_operands(kind, a, b)
    except TypeError:
        if kind not in (Equal, NotEqual):
            raise
        if b is None:  # as in NumPy: no element is None
            return wrap(_c.Full(a.shape, kind is NotEqual, a.device, _c.kBool), False)
        return NotImplemented  # for a string and others, Python compares identities
    return apply(op, *xs)


def _sign(kind: type[Binary]) -> _Sign:
    def sign(self: Tensor, other: Any) -> Tensor:
        return _operate(kind, self, other)

    return sign


def _reflected(kind: type[Binary]) -> _Sign:
    def sign(self: Tensor, other: Any) -> Tensor:
        return _operate(kind, other, self)

    return sign


def _equality(kind: type[Binary]) -> _Sign:
    def sign(self: Tensor, other: object) -> Any:
        return _operate(kind, self, other)

    return sign


def _logical(of_bools: type[Binary], of_integers: type[Binary], text: str) -> _Sign:
    def sign(self: Tensor, other: Any) -> Tensor:
        given = other.dtype if isinstance(other, Tensor) else np.asarray(other).dtype
        if self.dtype == bool_ and given in (bool_, np.dtype(bool)):
            return _operate(of_bools, self, other)
        if is_float(self.dtype) or not _is_whole(given):
            name = of_bools.__name__
            raise TypeError(
                f"[{name}] {text} joins integers and bools, got {self.dtype} and {given}"
            )
        return _operate(of_integers, self, other)

    return sign


def _is_whole(dtype: Any) -> bool:
    """Whether a type, singa's or NumPy's, has integers or bools."""
    return dtype.kind in "iub" if isinstance(dtype, np.dtype) else not is_float(dtype)


def _unary(kind: type[Operator]) -> _Sign:
    def sign(self: Tensor) -> Tensor:
        return apply(kind(), self)

    return sign


def _in_place(kind: type[Binary]) -> _Sign:
    def sign(self: Tensor, other: Any) -> Tensor:
        return _update(kind, self, other)

    return sign


def _update(kind: type[Binary], t: Tensor, other: Any) -> Tensor:
    """Augmented assignment, such as `t += other`.

    It is not recorded, so a parameter can be updated at any time. If that would lose a gradient,
    because one side was computed on the tape, or `other` is a parameter and t is none, it returns
    the recorded result, to which Python binds the name. So it does for those who follow a forward
    pass, such as export to ONNX.

    Raises TypeError if the result is of a higher kind than t, such as a float, ValueError if
    `other` does not broadcast to the shape of t.
    """
    if is_computed(t) or (not t.stores_grad and has_gradient(other)):
        return _operate(kind, t, other)
    if tracers and not t.stores_grad:
        for tracer in tracers:
            tracer.writes_in_place = True
        result = _operate(kind, t, other)
        if result.shape == t.shape and is_float(result.dtype) == is_float(t.dtype):
            return result if result.dtype == t.dtype else apply(Cast(t.dtype), result)
    raw, code = t.data, _c.UnaryOp_kAddScalar if kind is Sub else kind.with_number
    if isinstance(other, (int, float)):
        fits = is_float(t.dtype)
        if not fits:
            wide, fits = beside_number(kind, t, other)
            if wide.dtype != t.dtype:
                name = kind.__name__.lower()
                raise TypeError(f"[{name}] a tensor of {t.dtype} cannot hold the result in place")
        if fits and code is not None:
            _c.UnaryInto(code, raw, raw, float(-other if kind is Sub else other))
            return t
        operand = constant_beside(other, t, kind).data
    else:
        operand = as_raw(other, device=t.device)
        if is_float(t.dtype):
            operand = operand.AsType(int(t.dtype))
        elif kind is Div:
            raise TypeError(f"[div] a tensor of {t.dtype} cannot hold the result in place")
    _c.BinaryInto(kind.code, raw, operand, raw)
    return t


def _product(self: Tensor, other: Any) -> Tensor:
    return _multiplied(self, tensor_of(other, self))


def _reflected_product(self: Tensor, other: Any) -> Tensor:
    return _multiplied(tensor_of(other, self), self)


def _multiplied(a: Tensor, b: Tensor) -> Tensor:
    factors = autocast_operands(a, b)
    try:
        return apply(Matmul(), *factors)
    except TypeError as error:
        return apply(Matmul(), *wider(error, *factors))


def _inverse(self: Tensor) -> Tensor:
    return apply(*inverse(self))


#: Tensor's signs, by name.
SIGNS: dict[str, _Sign] = {
    **{f"__{name}__": _sign(kind) for name, kind in (_ARITHMETIC | _COMPARISONS).items()},
    **{f"__r{name}__": _reflected(kind) for name, kind in _ARITHMETIC.items()},
    **{f"__i{name}__": _in_place(kind) for name, kind in _ARITHMETIC.items()},
    **{f"__{name}__": _equality(kind) for name, kind in (("eq", Equal), ("ne", NotEqual))},
    **{f"__{name}__": _logical(*kind) for name, kind in _LOGIC.items()},
    **{f"__r{name}__": _logical(*kind) for name, kind in _LOGIC.items()},
    **{f"__{name}__": _sign(kind) for name, kind in _SHIFTS.items()},
    **{f"__r{name}__": _reflected(kind) for name, kind in _SHIFTS.items()},
    **{f"__{name}__": _unary(kind) for name, kind in _UNARY.items()},
    "__div__": _sign(Div),  # SINGA's scripts call it by name
    "__rdiv__": _reflected(Div),
    "__matmul__": _product,
    "__rmatmul__": _reflected_product,
    "__invert__": _inverse,
}


# The same signs of raw tensors, for operators of a user's own: `x * self.a + 1` in `forward`. They
# return raw tensors. `==` and `!=` compare identities, as of any object.

_OF_RAW = (
    *(f"__{reflected}{name}__" for name in _ARITHMETIC for reflected in ("", "r")),
    *("__matmul__", "__rmatmul__"),
    *("__neg__", "__abs__", "__lt__", "__le__", "__gt__", "__ge__"),
)


def _of_raw(name: str) -> Callable[..., Any]:
    of_tensors = SIGNS[name]

    def sign(self: _c.Tensor, *others: Any) -> Any:
        if any([isinstance(other, Tensor) for other in others]):
            return NotImplemented  # Tensor's own sign takes both
        with no_grad():
            operands = [wrap(x, False) if isinstance(x, _c.Tensor) else x for x in others]
            result = of_tensors(wrap(self, False), *operands)
        return result.data if isinstance(result, Tensor) else result

    sign.__name__ = name
    return sign


_c.Tensor.__array_ufunc__ = None  # an array leaves its signs to the tensor beside it
for _name in _OF_RAW:
    setattr(_c.Tensor, _name, _of_raw(_name))
