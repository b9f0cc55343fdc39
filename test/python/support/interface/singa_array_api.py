"""singa's functions under the names and with the arguments of the array API standard, version
2025.12, for its test suite (`scripts/array_api.py`).

A name that singa has with the same arguments is singa's own; a wrapper only renames or moves
arguments, or is the line that singa's error messages propose for the name. What singa does not
have is missing here, too. Importing this module gives Tensor the attributes that the standard
spells otherwise.

Draws for which singa promises something else are left out, so that the others of a test count.
"""

from __future__ import annotations

import builtins
import functools
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import hypothesis
import numpy as np
from singa import autograd, device, tensor
from singa.dtypes import numpy_dtype
from singa.ops.signs import SIGNS
from singa.tensor import DType, Tensor

__array_api_version__ = "2025.12"

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi

bool = DType.bool
int8, int32, int64, uint8 = DType.int8, DType.int32, DType.int64, DType.uint8
float32, float64 = DType.float32, DType.float64

_KINDS = {
    "bool": (bool,),
    "signed integer": (int8, int32, int64),
    "unsigned integer": (uint8,),
    "integral": (int8, int32, int64, uint8),
    "real floating": (float32, float64),
    "complex floating": (),
    "numeric": (int8, int32, int64, uint8, float32, float64),
}
#: The types of what Python and NumPy count as bool, integer and float.
_DEFAULTS = {"b": bool, "i": int64, "u": int64, "f": float32}

#: How many draws were left out, by reason.
left_out: Counter[str] = Counter()


def _leave_out(reason: str) -> None:
    left_out[reason] += 1
    hypothesis.reject()


def _promoting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for tensors whose types promote as the standard says."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        listed = args[0] if args and isinstance(args[0], list | tuple) else args
        _check_types([x for x in listed if isinstance(x, Tensor)])
        return function(*args, **kwargs)

    return call


def _check_types(xs: Sequence[Any]) -> None:
    dtypes = {x.dtype if isinstance(x, Tensor) else x for x in xs}
    if len(dtypes) < 2:
        return
    if {int8, uint8} <= dtypes:
        _leave_out("int8 and uint8 give int32: there is no int16")
    if tensor.result_type(*xs) != tensor.result_type(*dtypes):
        _leave_out("a tensor without axes decides the type only by a higher kind, as in PyTorch")


def _reducing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for axes that mean what the standard says."""

    @functools.wraps(function)
    def call(*args: Any, axis: Any = None, **kwargs: Any) -> Any:
        if axis == ():
            _leave_out("axis=() means all axes, as in PyTorch's sum and in ONNX")
        return function(*args, axis=axis, **kwargs)

    return call


# Tensors.


class _Number(int):
    """A number that can be called, because SINGA spells it `x.ndim()`."""

    def __call__(self) -> int:
        return int(self)


def _array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    return sys.modules[__name__]


Tensor.ndim = property(lambda self: _Number(self.data.rank()))  # type: ignore[assignment]
Tensor.size = property(lambda self: _Number(self.data.size()))  # type: ignore[assignment]
Tensor.__array_namespace__ = _array_namespace  # type: ignore[attr-defined]
for _name, _sign in SIGNS.items():
    if not _name.startswith("__i") and "matmul" not in _name:  # in place nothing is promoted
        setattr(Tensor, _name, _promoting(_sign))


# Inspection.


class _Info:
    """What the namespace offers."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 12}

    def default_device(self) -> Any:
        return device.get_default_device()

    def devices(self) -> tuple[Any, ...]:
        return (device.get_default_device(),)

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        return {"real floating": float32, "integral": int64, "indexing": int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        kinds = (
            kind if isinstance(kind, tuple) else ("bool", "numeric") if kind is None else (kind,)
        )
        return {dtype.name: dtype for each in kinds for dtype in _KINDS[each]}


def __array_namespace_info__() -> _Info:  # noqa: N807 - the standard's name
    return _Info()


# Types.


class _FloatInfo(NamedTuple):
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class _IntegerInfo(NamedTuple):
    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> _FloatInfo:
    dtype = type.dtype if isinstance(type, Tensor) else type
    found = np.finfo(numpy_dtype(dtype))
    numbers = (found.eps, found.max, found.min, found.smallest_normal)
    return _FloatInfo(found.bits, *map(float, numbers), dtype)


def iinfo(type: Any, /) -> _IntegerInfo:
    dtype = type.dtype if isinstance(type, Tensor) else type
    found = np.iinfo(numpy_dtype(dtype))
    return _IntegerInfo(found.bits, int(found.max), int(found.min), dtype)


def isdtype(dtype: DType, kind: Any) -> Any:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return builtins.any(
        dtype in _KINDS[each] if isinstance(each, str) else dtype == each for each in kinds
    )


def can_cast(from_: Any, to: DType, /) -> Any:
    return result_type(from_, to) == to


def astype(x: Tensor, dtype: DType, /, *, copy: Any = True, device: Any = None) -> Tensor:
    return asarray(x, dtype=dtype, copy=copy or None, device=device)


def result_type(*arrays_and_dtypes: Any) -> DType:
    _check_types([x for x in arrays_and_dtypes if isinstance(x, Tensor | DType)])
    return tensor.result_type(*arrays_and_dtypes)


# Creation.


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Tensor:
    if isinstance(obj, Tensor):
        x = obj.to(dtype=dtype, device=device)
        if copy is False and x is not obj:
            raise ValueError(f"[asarray] {obj.dtype} cannot become {dtype} without a copy")
        return x.clone() if copy and x is obj else x
    array = np.asarray(obj)
    return tensor.from_numpy(array, device, _DEFAULTS[array.dtype.kind] if dtype is None else dtype)


def _shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    return tensor.zeros(_shape(shape), device, float32 if dtype is None else dtype)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    return tensor.ones(_shape(shape), device, float32 if dtype is None else dtype)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    if dtype is None:
        dtype = _DEFAULTS[np.asarray(fill_value).dtype.kind]
    return zeros(shape, dtype=dtype, device=device).set_value(fill_value)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    return ones(x.shape, dtype=x.dtype if dtype is None else dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device)


empty, empty_like = zeros, zeros_like  # as singa's error message for `tensor.empty` proposes


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: Any = True,
) -> Tensor:
    count = num if endpoint else num + 1
    return autograd.linspace(start, stop, count, device, float32 if dtype is None else dtype)[:num]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    return autograd.meshgrid(*arrays, indexing=indexing)


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Tensor:
    return tensor.from_dlpack(x, device, copy)


arange, eye, tril, triu = autograd.arange, autograd.eye, autograd.tril, autograd.triu

# Elementwise.

abs, acos, acosh, add = autograd.abs, autograd.acos, autograd.acosh, autograd.add
asin, asinh, atan, atan2 = autograd.asin, autograd.asinh, autograd.atan, autograd.atan2
atanh, bitwise_and, bitwise_or = autograd.atanh, autograd.bitwise_and, autograd.bitwise_or
bitwise_left_shift = autograd.bitwise_left_shift
bitwise_right_shift = autograd.bitwise_right_shift
bitwise_invert, bitwise_xor = autograd.bitwise_not, autograd.bitwise_xor
ceil, clip, copysign, cos = autograd.ceil, autograd.clip, autograd.copysign, autograd.cos
cosh, divide, equal, exp = autograd.cosh, autograd.div, autograd.equal, autograd.exp
expm1, floor, floor_divide = autograd.expm1, autograd.floor, autograd.floor_divide
greater, greater_equal, hypot = autograd.greater, autograd.greater_equal, autograd.hypot
isfinite, isinf, isnan, less = autograd.isfinite, autograd.isinf, autograd.isnan, autograd.less
less_equal, log, log1p, log2 = autograd.less_equal, autograd.log, autograd.log1p, autograd.log2
log10, logaddexp, maximum = autograd.log10, autograd.logaddexp, autograd.max
minimum, multiply, negative = autograd.min, autograd.mul, autograd.negative
not_equal, pow, reciprocal = autograd.not_equal, autograd.pow, autograd.reciprocal
remainder, round, sign, signbit = autograd.mod, autograd.rounde, autograd.sign, autograd.signbit
sin, sinh, sqrt, square = autograd.sin, autograd.sinh, autograd.sqrt, autograd.square
subtract, tan, tanh, trunc = autograd.sub, autograd.tan, autograd.tanh, autograd.trunc


def logical_and(x1: Any, x2: Any, /) -> Tensor:
    return x1 & x2


def logical_or(x1: Any, x2: Any, /) -> Tensor:
    return x1 | x2


def logical_xor(x1: Any, x2: Any, /) -> Tensor:
    return x1 ^ x2


def logical_not(x: Tensor, /) -> Tensor:
    return ~x


def positive(x: Tensor, /) -> Tensor:
    return +x


# Statistics, utility, searching, sorting, sets.

sum, mean, max, min = autograd.sum, autograd.mean, autograd.max, autograd.min
all, any, count_nonzero, diff = autograd.all, autograd.any, autograd.count_nonzero, autograd.diff
take_along_axis = autograd.take_along_axis


def prod(x: Tensor, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Tensor:
    return x.prod(axis, keepdims, dtype)


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0, keepdims: Any = False) -> Tensor:
    return autograd.std(x, axis, keepdims, correction)


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0, keepdims: Any = False) -> Tensor:
    return autograd.var(x, axis, keepdims, correction)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: Any = False
) -> Tensor:
    return _cumulated(autograd.cumsum, zeros, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: Any = False
) -> Tensor:
    return _cumulated(autograd.cumprod, ones, x, axis, dtype, include_initial)


def _cumulated(
    function: Any, start: Any, x: Tensor, axis: int | None, dtype: Any, include_initial: Any
) -> Tensor:
    axis = 0 if axis is None else axis
    y = function(x if dtype is None else x.as_type(dtype), axis)
    y = y if dtype is None else y.as_type(dtype)
    if not include_initial:
        return y
    shape = list(y.shape)
    shape[axis] = 1
    return autograd.cat([start(shape, dtype=y.dtype), y], axis)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: Any = False) -> Tensor:
    return autograd.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: Any = False) -> Tensor:
    return autograd.argmin(x, axis, keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    if not x.shape:
        raise ValueError("[nonzero] a tensor without axes has no indices")
    return tuple(autograd.nonzero(x))


def searchsorted(
    x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    x1 = x1 if sorter is None else x1[sorter]
    return autograd.searchsorted(x1, x2, side == "right")


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    return autograd.where(x1, x2, condition)


def sort(x: Tensor, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Tensor:
    return autograd.sort(x, axis, descending)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Tensor:
    return autograd.argsort(x, axis, descending)


class _Counts(NamedTuple):
    values: Tensor
    counts: Tensor


class _Inverse(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


def unique_values(x: Tensor, /) -> Tensor:
    return autograd.unique(x)


def unique_counts(x: Tensor, /) -> _Counts:
    return _Counts(*autograd.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> _Inverse:
    return _Inverse(*autograd.unique(x, return_inverse=True))


# Shape.


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    return autograd.gather(x, 0 if axis is None else axis, indices)


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    return autograd.expand(x, shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    if axis is None:
        return autograd.cat([x.reshape(-1) for x in arrays], 0)
    return autograd.cat(arrays, axis)


def expand_dims(x: Tensor, /, axis: Any) -> Tensor:
    if isinstance(axis, int):
        return autograd.unsqueeze(x, axis)
    # Of a list, only rising axes from 0 on are positions in the result, as in SINGA.
    rank = x.ndim() + len(axis)
    places = sorted(i if i >= 0 else i + rank for i in axis)
    if places and places[0] < 0:
        raise ValueError(f"[expand_dims] axes {axis} are outside {rank} axes")
    return autograd.unsqueeze(x, places)


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    rank = x.ndim()
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    backwards = {i % rank for i in axes}
    return x[tuple(slice(None, None, -1 if i in backwards else 1) for i in range(rank))]


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    rank = x.ndim()
    to, come = ([i % rank for i in np.atleast_1d(axes)] for axes in (destination, source))
    order = [i for i in range(rank) if i not in come]
    for place, axis in sorted(zip(to, come, strict=True)):
        order.insert(place, axis)
    return autograd.transpose(x, order)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    return autograd.transpose(x, axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    return tensor.repeat(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: Any = None) -> Tensor:
    y = autograd.reshape(x, shape)
    return y.clone() if copy else y


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    return autograd.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    return x if axis == () else autograd.squeeze(x, axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    return autograd.cat([autograd.unsqueeze(x, axis) for x in arrays], axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    return tuple(moveaxis(x, axis, 0))


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """singa's counts begin with the first axis, as SINGA's."""
    return autograd.tile(x, (1,) * (x.ndim() - len(repetitions)) + tuple(repetitions))


# Matrices. Of the extension linalg, what singa has.

matmul = autograd.matmul


def matrix_transpose(x: Tensor, /) -> Tensor:
    return x.mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    return tensor.tensordot(x1, x2, axes)


def _diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    return autograd.diagonal(x, offset, -2, -1)


def _trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    y = autograd.trace(x if dtype is None else x.as_type(dtype), offset, -2, -1)
    return y if dtype is None else y.as_type(dtype)


linalg = SimpleNamespace(
    diagonal=_diagonal,
    matmul=matmul,
    matrix_transpose=matrix_transpose,
    outer=autograd.outer,
    tensordot=tensordot,
    trace=_trace,
)


for _name in (
    *("add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift"),
    *("bitwise_xor", "concat", "copysign", "divide", "equal", "floor_divide", "greater"),
    *("greater_equal", "hypot", "less", "less_equal", "logaddexp", "matmul", "maximum", "minimum"),
    *("multiply", "not_equal", "pow", "remainder", "stack", "subtract", "tensordot", "where"),
):
    globals()[_name] = _promoting(globals()[_name])
for _name in ("all", "any", "count_nonzero", "max", "mean", "min", "prod", "std", "sum", "var"):
    globals()[_name] = _reducing(globals()[_name])
