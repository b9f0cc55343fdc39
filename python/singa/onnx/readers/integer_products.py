"""Readers of products and convolutions of integers.

Those of int8 weights with zero points of 0 are computed in int8 where the processor does that
(`singa_wrap.ComputesInt8`). All others are computed in float64, which holds the sums exactly, or in
float32 where that gives the same: where the sums stay below 2^24, or where an error of a few units
is less than a tenth of a step of the result.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd, singa_wrap, tensor
from ...dtypes import DType
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...tensor import Tensor
from .convolution import conv, handles_of
from .movement import reshaped
from .quantization import rounded
from .registry import reads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_BYTES = frozenset({"int8", "uint8"})
_LARGEST = 255  # |x - zero point| of bytes
_EXACT = 1 << 24  # up to here, float32 holds all integers
_FINE = 0.01  # a result's steps per unit of a sum, up to which float32 is enough


def shifted(run: Any, x: Any, zero: Any, wide: Any, shape: tuple[int, ...] = (-1,)) -> Tensor:
    """x - zero as floats. Several zero points in one axis get `shape`, which has a -1."""
    x = autograd.cast(run.as_tensor(x), wide)
    if zero is None or (isinstance(zero, np.ndarray) and not zero.any()):
        return x
    return x - autograd.cast(_along(run.as_tensor(zero), shape), wide)


def _along(t: Any, shape: tuple[int, ...]) -> Any:
    """A scale or zero point in a shape that broadcasts: `shape` if it has one axis."""
    count = math.prod(t.shape)
    if count > 1 and len(t.shape) > 1:
        return t
    new = () if count == 1 else tuple(count if n < 0 else n for n in shape)
    return t.reshape(new) if isinstance(t, np.ndarray) else reshaped(t, new)


def requantized(run: Any, key: Any, sums: Tensor, factor: Array, zero: Array) -> Tensor:
    """round(sums·factor) + zero in the type of zero. `key` is that of the factor."""
    factors = run.tensor(run.made((*key, "factor"), lambda: factor))
    zeros = run.tensor(run.made((*key, "zero"), lambda: np.asarray(zero, np.float32)))
    return rounded(autograd.cast(sums, tensor.float32) * factors, zeros, zero.dtype.name)


def wide_for(factor: Array) -> Any:
    """The type in which sums are computed that are multiplied by this factor and rounded."""
    return tensor.float32 if np.abs(factor).max(initial=0) < _FINE else tensor.float64


def _is_of_bytes(x: Tensor, w: Any, *zeros: Any) -> bool:
    """Whether a product is computed in int8. The last zero point is that of the weights, which has
    to be known to be 0; the others have one element."""
    *others, w_zero = zeros
    return (
        w.dtype in (tensor.int8, np.dtype(np.int8))
        and x.dtype in (tensor.int8, tensor.uint8)
        and all(zero is None or math.prod(zero.shape) == 1 for zero in others)
        and (w_zero is None or (isinstance(w_zero, np.ndarray) and not w_zero.any()))
        and bool(singa_wrap.ComputesInt8(x.device))
    )


def _raw_zero(run: Any, key: Any, zero: Any) -> Any:
    """A zero point as singa_wrap takes it: None for 0."""
    if isinstance(zero, Tensor):
        return autograd.cast(reshaped(zero, (1,)), tensor.int32).data
    if zero is None or not zero.any():
        return None
    made = run.made((*key, "zero"), lambda: zero.reshape(1).astype(np.int32))
    return run.tensor(made).data


def _channels(w: Any) -> tuple[int, ...]:
    return (-1, *(1,) * (len(w.shape) - 1))


@reads("ConvInteger", 10, types=_BYTES, gradient=False, either=(2, 3))
def conv_integer(node: Node) -> Compute:
    """The convolution of x - x_zero_point and w - w_zero_point, as int32."""
    convolve, handle_of = conv(node), handles_of(node)

    def compute(run: Any, x: Tensor, w: Tensor, x_zero: Any = None, w_zero: Any = None) -> Tensor:
        if _is_of_bytes(x, w, x_zero, w_zero):
            zero, handle = _raw_zero(run, (node.name, "x"), x_zero), handle_of(x, w, False)
            arguments = (x.data, w.data, zero, None, None, None, handle, tensor.int32)
            return Tensor(data=singa_wrap.QuantizedConv(*arguments), requires_grad=False)
        wide = tensor.float64  # convolutions in float32 may round more than sums do
        given = shifted(run, x, x_zero, wide), shifted(run, w, w_zero, wide, _channels(w))
        return autograd.cast(convolve(run, *given), tensor.int32)

    return compute


@reads("QLinearConv", 10, types=_BYTES, gradient=False, host=(1, 2, 4, 5, 6, 7))
def qlinear_conv(node: Node) -> Compute:
    """A convolution of quantised values, with a bias of int32, quantised again."""
    convolve, handle_of = conv(node), handles_of(node)

    def compute(
        run: Any,
        x: Tensor,
        x_scale: Array,
        x_zero: Array,
        w: Tensor,
        w_scale: Array,
        w_zero: Array,
        y_scale: Array,
        y_zero: Array,
        bias: Tensor | None = None,
    ) -> Tensor:
        if _is_of_bytes(x, w, x_zero, y_zero, w_zero):
            ratio = np.float32(x_scale.reshape(-1)[0] / y_scale.reshape(-1)[0])
            key, shape = (node.name, "factor"), (w.shape[0],)
            factors = run.made(key, lambda: np.full(shape, w_scale.reshape(-1) * ratio, np.float32))
            factor = run.tensor(factors)
            # Biases have the scales of the sums.
            shift = None if bias is None else autograd.cast(bias, tensor.float32) * factor
            y = singa_wrap.QuantizedConv(
                x.data,
                w.data,
                _raw_zero(run, (node.name, "x"), x_zero),
                factor.data,
                None if shift is None else shift.data,
                _raw_zero(run, (node.name, "y"), y_zero),
                handle_of(x, w, False),
                DType[y_zero.dtype.name],
            )
            return Tensor(data=y, requires_grad=False)
        scale = _along(w_scale, _channels(w)[:-1])
        factor = np.asarray(x_scale * scale / y_scale.reshape(-1)[0], np.float32)
        wide = wide_for(factor)
        given = [shifted(run, x, x_zero, wide), shifted(run, w, w_zero, wide, _channels(w))]
        given += [] if bias is None else [autograd.cast(bias, wide)]
        return requantized(run, (node.name,), convolve(run, *given), factor, y_zero)

    return compute


class _Bounds:
    """Whether float32 holds the sums of a product with a matrix, which is checked once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Array, bool]] = {}

    def wide(self, b: Any, zero: Any) -> Any:
        """The type in which a product of bytes with b is exact."""
        exact = _LARGEST**2 * (b.shape[-2] if len(b.shape) > 1 else b.shape[0]) < _EXACT
        known = zero is None or isinstance(zero, np.ndarray)
        if not exact and isinstance(b, np.ndarray) and b.ndim > 1 and known:
            kept = self._known.get(id(b))
            if kept is None:
                rows = b.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))
                most = int(np.abs(rows).sum(-2).max(initial=0))
                kept = self._known[id(b)] = b, _LARGEST * most < _EXACT
            exact = kept[1]
        return tensor.float32 if exact else tensor.float64


@reads("MatMulInteger", 10, types=_BYTES, gradient=False, either=(1, 2, 3))
def matmul_integer(node: Node) -> Compute:
    """(a - a_zero_point) @ (b - b_zero_point), as int32."""
    bounds = _Bounds()

    def compute(run: Any, a: Tensor, b: Any, a_zero: Any = None, b_zero: Any = None) -> Tensor:
        if len(b.shape) == 2 and _is_of_bytes(a, b, a_zero, b_zero):
            zero = _raw_zero(run, (node.name, "a"), a_zero)
            arguments = (a.data, run.as_tensor(b).data, zero, None, None, None, tensor.int32)
            return Tensor(data=singa_wrap.QuantizedMatMul(*arguments), requires_grad=False)
        wide = bounds.wide(b, b_zero)
        left = shifted(run, a, a_zero, wide, (-1, 1))
        product = autograd.matmul(left, shifted(run, b, b_zero, wide))
        return autograd.cast(product, tensor.int32)

    return compute


@reads("QLinearMatMul", 10, 21, types=_BYTES, gradient=False, host=(1, 2, 4, 5, 6, 7))
def qlinear_matmul(node: Node) -> Compute:
    """A product of quantised values, quantised again."""

    def compute(
        run: Any,
        a: Tensor,
        a_scale: Array,
        a_zero: Array,
        b: Tensor,
        b_scale: Array,
        b_zero: Array,
        y_scale: Array,
        y_zero: Array,
    ) -> Tensor:
        rows = (-1, 1)
        if len(b.shape) == 2 and _is_of_bytes(a, b, a_scale, a_zero, y_scale, y_zero, b_zero):
            ratio = np.float32(a_scale.reshape(-1)[0] / y_scale.reshape(-1)[0])
            factor = run.made(
                (node.name, "factor"),
                lambda: np.full(b.shape[1], b_scale.reshape(-1) * ratio, np.float32),
            )
            y = singa_wrap.QuantizedMatMul(
                a.data,
                b.data,
                _raw_zero(run, (node.name, "a"), a_zero),
                run.tensor(factor).data,
                None,
                _raw_zero(run, (node.name, "y"), y_zero),
                DType[y_zero.dtype.name],
            )
            return Tensor(data=y, requires_grad=False)
        scales = [s.astype(np.float32) for s in (a_scale, b_scale, y_scale)]
        factor = _along(scales[0], rows) * _along(scales[1], (-1,)) / _along(scales[2], rows)
        factor = np.asarray(factor, np.float32)
        wide = wide_for(factor)
        product = autograd.matmul(
            shifted(run, a, a_zero, wide, rows), shifted(run, b, b_zero, wide)
        )
        return requantized(run, (node.name,), product, factor, _along(y_zero, rows))

    return compute
