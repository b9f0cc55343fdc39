"""Tensors, and functions on them as SINGA has them.

The functions here calculate, fill and copy. Those that calculate are recorded on the tape, as
operators such as `a + b` are, where an argument leads to a tensor that stores its gradient.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from . import singa_wrap as _c
from ._arguments import names_arguments
from ._arrays import as_shape, narrowed
from ._check import integer
from ._deferred import ops as _ops
from ._deferred import tape as _tape
from ._tensor import Tensor, _flat, as_raw, wrap
from .contraction import einsum, tensordot
from .device import named_or_default
from .dtypes import (
    DType,
    as_dtype,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .singa_wrap import Device

CTensor = _c.Tensor
PlaceHolder = Tensor  # SINGA's name for the inputs that Model.compile takes

__all__ = [
    "CTensor",
    "DType",
    "PlaceHolder",
    "Tensor",
    "abs",
    "add",
    "add_column",
    "add_row",
    "average",
    "axpy",
    "bernoulli",
    "bfloat16",
    "bool_",
    "ceil",
    "concatenate",
    "contiguous",
    "copy_data_to_from",
    "copy_from_numpy",
    "div",
    "einsum",
    "eltwise_mult",
    "eq",
    "exp",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "from_raw_tensor",
    "from_raw_tensors",
    "gaussian",
    "ge",
    "gt",
    "int8",
    "int32",
    "int64",
    "le",
    "log",
    "lt",
    "mult",
    "ones",
    "ones_like",
    "pow",
    "product",
    "random",
    "repeat",
    "reshape",
    "sigmoid",
    "sign",
    "sizeof",
    "softmax",
    "sqrt",
    "square",
    "sub",
    "sum",
    "sum_columns",
    "sum_rows",
    "tanh",
    "tensordot",
    "to_host",
    "to_numpy",
    "transpose",
    "uint8",
    "uniform",
    "zeros",
    "zeros_like",
]

# Making tensors.


def from_raw_tensor(t: _c.Tensor) -> Tensor:
    """A Tensor over a raw tensor, which it shares."""
    return Tensor(data=t)


def from_raw_tensors(tt: Sequence[_c.Tensor]) -> list[Tensor]:
    """A Tensor over each raw tensor."""
    return [from_raw_tensor(t) for t in tt]


def _call_singa_func(_singa_func: Callable[..., _c.Tensor], *args: Any) -> Tensor:
    """A Tensor over what a function of singa_wrap returns for these arguments."""
    return from_raw_tensor(_singa_func(*args))


def from_numpy(np_array: NDArray[Any], dev: Device | None = None, dtype: object = None) -> Tensor:
    """A copy of an array. As in SINGA, float64 becomes float32 and int64 becomes int32 (ValueError
    where that does not fit); `dtype` says otherwise."""
    array = np.asarray(np_array)
    if dtype is None:
        return Tensor(data=as_raw(narrowed(array), device=dev))
    return Tensor(data=as_raw(array, as_dtype(dtype), dev))


def from_dlpack(t: Any) -> Tensor:
    """A Tensor over the memory of another library's tensor (PyTorch, NumPy, ...), on the CPU.

    `t` has `__dlpack__`, or is a capsule. Raises TypeError for element types that singa lacks.
    """
    capsule = t.__dlpack__() if hasattr(t, "__dlpack__") else t
    return wrap(_c.from_dlpack(capsule), True)


def zeros(shape: Sequence[int], device: Device | None = None, dtype: object = float32) -> Tensor:
    """A tensor of zeros."""
    return Tensor(shape, device, as_dtype(dtype))


def ones(shape: Sequence[int], device: Device | None = None, dtype: object = float32) -> Tensor:
    """A tensor of ones."""
    device = named_or_default(device)
    return Tensor(data=_c.Full(as_shape(shape), 1.0, device, int(as_dtype(dtype))))


def random(shape: Sequence[int], device: Device | None = None, dtype: object = float32) -> Tensor:
    """Uniform numbers in [0, 1), from the device's sequence."""
    return Tensor(shape, device, as_dtype(dtype)).uniform(0.0, 1.0)


def zeros_like(t: Tensor) -> Tensor:
    """Zeros of t's shape, type and device."""
    return Tensor(t.shape, t.device, t.dtype)


def ones_like(t: Tensor) -> Tensor:
    """Ones of t's shape, type and device."""
    return ones(t.shape, t.device, t.dtype)


# Facts.


def product(shape: Sequence[int]) -> int:
    """Number of elements of a shape."""
    return functools.reduce(operator.mul, as_shape(shape), 1)


def sizeof(dtype: object) -> int:
    """Bytes of one element."""
    return _c.SizeOf(int(as_dtype(dtype)))


# To the host, and copies.


def to_host(t: Tensor) -> Tensor:
    """The tensor, or a copy of it, on the CPU."""
    return wrap(t.data.ToHost(), t.requires_grad)


def to_numpy(t: Tensor) -> NDArray[Any]:
    """A copy as an array; bfloat16 as float32."""
    return t.numpy()


def copy_from_numpy(data: _c.Tensor | Tensor, np_array: NDArray[Any]) -> None:
    """Copies an array's elements, in order, to a tensor of the same size."""
    (data if isinstance(data, Tensor) else from_raw_tensor(data)).copy_from_numpy(np_array)


def copy_data_to_from(
    dst: Tensor, src: Tensor, size: int, dst_offset: int = 0, src_offset: int = 0
) -> None:
    """Copies `size` elements, counted in row-major order. Raises ValueError outside either."""
    for name, value in (("size", size), ("dst_offset", dst_offset), ("src_offset", src_offset)):
        integer("copy_data_to_from", name, value)
    for what, t, offset in (("dst", dst, dst_offset), ("src", src, src_offset)):
        if size < 0 or offset < 0 or offset + size > t.size():
            raise ValueError(
                f"[copy_data_to_from] {size} elements at offset {offset} of {what}, which has "
                f"{t.size()}"
            )
    source = src.data.Reshape((-1,)).SliceAxis(0, src_offset, src_offset + size)
    _flat(dst, "copy_data_to_from").SliceAxis(0, dst_offset, dst_offset + size).CopyFrom(source)


def contiguous(tensor: Tensor) -> Tensor:
    """Itself when its elements lie in row-major order, else a copy that does."""
    return tensor.contiguous()


# Shape.


def reshape(tensor: Tensor, shape: Sequence[int] | int) -> Tensor:
    """The elements in another shape, of which one entry may be -1; a view where possible."""
    return tensor.reshape(shape)


def transpose(t: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """A view with permuted axes (default: reversed)."""
    return t.transpose(axes)


def concatenate(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Joins tensors along an axis."""
    return _tape().apply(_ops().Concat(axis), *tensors)


def repeat(t: Tensor, repeats: int | Sequence[int], axis: int | None = None) -> Tensor:
    """Each element several times: `repeats` of each, or one number for each along `axis`; without
    an axis, of the flattened tensor."""
    return _tape().apply(_ops().Repeat(repeats, axis), t)


# Elementwise.


def abs(t: Tensor) -> Tensor:
    """|t|."""
    return _tape().apply(_ops().Abs(), t)


def exp(t: Tensor) -> Tensor:
    """e^t."""
    return _tape().apply(_ops().Exp(), t)


def ceil(t: Tensor) -> Tensor:
    """The next whole number upwards."""
    return _tape().apply(_ops().Ceil(), t)


def log(t: Tensor) -> Tensor:
    """Natural logarithm."""
    return _tape().apply(_ops().Log(), t)


def sigmoid(t: Tensor) -> Tensor:
    """1 / (1 + e^-t)."""
    return _tape().apply(_ops().Sigmoid(), t)


def sign(t: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return _tape().apply(_ops().Sign(), t)


def sqrt(t: Tensor) -> Tensor:
    """Square root."""
    return _tape().apply(_ops().Sqrt(), t)


def square(t: Tensor) -> Tensor:
    """t²."""
    return _tape().apply(_ops().Square(), t)


def tanh(t: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return _tape().apply(_ops().Tanh(), t)


def pow(t: Tensor, x: Any, out: Tensor | None = None) -> Tensor:
    """t to the power of a number or a tensor."""
    return _into(t**x, out)


def softmax(t: Tensor, out: Tensor | None = None) -> Tensor:
    """Softmax along the last axis."""
    return _into(_tape().apply(_ops().SoftMax(-1), t), out)


def lt(t: Tensor, x: Any) -> Tensor:
    """1 where t < x, else 0."""
    return t < x


def le(t: Tensor, x: Any) -> Tensor:
    """1 where t <= x, else 0."""
    return t <= x


def gt(t: Tensor, x: Any) -> Tensor:
    """1 where t > x, else 0."""
    return t > x


def ge(t: Tensor, x: Any) -> Tensor:
    """1 where t >= x, else 0."""
    return t >= x


def eq(t: Tensor, x: Any) -> Tensor:
    """1 where t equals x, else 0."""
    return t == x


def add(lhs: Any, rhs: Any, ret: Tensor | None = None) -> Tensor:
    """lhs + rhs, of which one may be a number; written into `ret` where that is given."""
    return _into(lhs + rhs, ret)


def sub(lhs: Any, rhs: Any, ret: Tensor | None = None) -> Tensor:
    """lhs - rhs, as `add`."""
    return _into(lhs - rhs, ret)


def eltwise_mult(lhs: Any, rhs: Any, ret: Tensor | None = None) -> Tensor:
    """lhs * rhs elementwise, as `add`."""
    return _into(lhs * rhs, ret)


def div(lhs: Any, rhs: Any, ret: Tensor | None = None) -> Tensor:
    """lhs / rhs, as `add`."""
    return _into(lhs / rhs, ret)


def _into(result: Tensor, out: Tensor | None) -> Tensor:
    if out is None:
        return result
    out.data.CopyFrom(result.data)
    return out


def axpy(alpha: float | Tensor, x: Tensor, y: Tensor) -> Tensor:
    """y += alpha·x, in place; alpha is a number or a tensor of one element."""
    _c.Axpy(alpha.data if isinstance(alpha, Tensor) else float(alpha), x.data, y.data)
    return y


# Reductions.


def sum(t: Tensor, axis: int | Sequence[int] | None = None, out: Tensor | None = None) -> Tensor:
    """Sum along an axis or axes, which are removed; without, of all elements, of shape (1,)."""
    if axis is None:
        return _into(_tape().apply(_ops().ReduceSum(None, False), t).reshape((1,)), out)
    return _into(_tape().apply(_ops().ReduceSum(axis, False), t), out)


def average(t: Tensor, axis: int | None = None) -> Any:
    """Mean along an axis, which is removed; without, of all elements, as a number."""
    if axis is None:
        return _c.Reduce(_c.ReduceOp_kMean, t.data).Item()
    return _tape().apply(_ops().ReduceMean(axis, False), t)


def sum_columns(M: Tensor) -> Tensor:
    """Sum over the columns of a matrix: one value for each row."""
    return sum(M, 1)


def sum_rows(M: Tensor) -> Tensor:
    """Sum over the rows of a matrix: one value for each column."""
    return sum(M, 0)


# Matrices.


def mult(
    A: Tensor, B: Tensor, C: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0
) -> Tensor:
    """A·B (matrices or vectors); with C, writes alpha·A·B + beta·C into it and returns it."""
    if C is None:
        product = A @ B
        return product if alpha == 1.0 else product * alpha
    C.data.CopyFrom(_c.Gemm(A.data, B.data, C.data if beta else None, alpha, beta))
    return C


def add_column(alpha: float, v: Tensor, beta: float, M: Tensor) -> Tensor:
    """M = alpha·v + beta·M in place, v added to each column."""
    return _add_vector(alpha, v.data.Reshape((-1, 1)), beta, M)


def add_row(alpha: float, v: Tensor, beta: float, M: Tensor) -> Tensor:
    """M = alpha·v + beta·M in place, v added to each row."""
    return _add_vector(alpha, v.data.Reshape((1, -1)), beta, M)


def _add_vector(alpha: float, v: _c.Tensor, beta: float, M: Tensor) -> Tensor:
    _c.UnaryInto(_c.UnaryOp_kMulScalar, M.data, M.data, float(beta))
    scaled = _c.Unary(_c.UnaryOp_kMulScalar, v, float(alpha))
    _c.BinaryInto(_c.BinaryOp_kAdd, M.data, scaled, M.data)
    return M


# Random fills, in place.


def bernoulli(p: float, t: Tensor) -> Tensor:
    """1 with probability p, else 0."""
    return t.bernoulli(p)


def gaussian(mean: float, std: float, t: Tensor) -> Tensor:
    """Normally distributed."""
    return t.gaussian(mean, std)


def uniform(low: float, high: float, t: Tensor) -> Tensor:
    """Uniform in [low, high)."""
    return t.uniform(low, high)


for _name, _value in list(globals().items()):
    if _name in __all__ and isinstance(_value, FunctionType) and _value.__module__ == __name__:
        globals()[_name] = names_arguments(_value)
