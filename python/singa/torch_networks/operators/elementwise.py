"""Elementwise operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import autograd, ops, tensor
from ...dtypes import is_float
from ...networks.element_types import numpy_type
from ...networks.tensors import same_type
from ...tensor import Tensor
from .registry import Call, computes, equals, in_type_of_result

for _name, _function in (
    ("abs", autograd.abs),
    ("acos", autograd.acos),
    ("acosh", autograd.acosh),
    ("asin", autograd.asin),
    ("asinh", autograd.asinh),
    ("atan", autograd.atan),
    ("atanh", autograd.atanh),
    ("ceil", autograd.ceil),
    ("cos", autograd.cos),
    ("cosh", autograd.cosh),
    ("digamma", autograd.digamma),
    ("erf", autograd.erf),
    ("erfc", autograd.erfc),
    ("erfinv", autograd.erfinv),
    ("copysign.Scalar", autograd.copysign),
    ("copysign.Tensor", autograd.copysign),
    ("exp", autograd.exp),
    ("exp2", autograd.exp2),
    ("expm1", autograd.expm1),
    ("floor", autograd.floor),
    ("fmod.Scalar", autograd.fmod),
    ("fmod.Tensor", autograd.fmod),
    ("hardswish", autograd.hardswish),
    ("log", autograd.log),
    ("hypot", autograd.hypot),
    ("isinf", autograd.isinf),
    ("isnan", autograd.isnan),
    ("gcd", autograd.gcd),
    ("lcm", autograd.lcm),
    ("lerp.Scalar", autograd.lerp),
    ("lerp.Tensor", autograd.lerp),
    ("log10", autograd.log10),
    ("log1p", autograd.log1p),
    ("log2", autograd.log2),
    ("lgamma", autograd.lgamma),
    ("log_sigmoid", autograd.logsigmoid),
    ("logaddexp", autograd.logaddexp),
    ("mish", autograd.mish),
    ("neg", autograd.negative),
    ("polygamma", autograd.polygamma),
    ("reciprocal", autograd.reciprocal),
    ("relu", autograd.relu),
    ("relu6", autograd.relu6),
    ("round", autograd.rounde),
    ("rsqrt", autograd.rsqrt),
    ("sigmoid", autograd.sigmoid),
    ("sign", autograd.sign),
    ("signbit", autograd.signbit),
    ("silu", autograd.silu),
    ("sin", autograd.sin),
    ("sinh", autograd.sinh),
    ("sqrt", autograd.sqrt),
    ("square", autograd.square),
    ("tan", autograd.tan),
    ("tanh", autograd.tanh),
    ("trunc", autograd.trunc),
):
    equals(_name, _function)


@computes("round.decimals")
def round_decimals(call: Call, x: Tensor, *, decimals: int) -> Tensor:
    """x rounded to so many decimal places, halves to even."""
    power = 10.0 ** abs(decimals)
    if decimals < 0:
        return autograd.rounde(x / power) * power
    return autograd.rounde(x * power) / power if decimals else autograd.rounde(x)


@computes("ldexp.Tensor")
def ldexp(call: Call, x: Tensor, exponent: Tensor) -> Tensor:
    """x·2^exponent."""
    return x * autograd.exp2(exponent)


@computes("gelu")
def gelu(call: Call, x: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x), or its approximation by tanh."""
    return autograd.gelu(x, approximate)


@computes("leaky_relu")
def leaky_relu(call: Call, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope·x."""
    return autograd.leakyrelu(x, negative_slope)


@computes("elu")
def elu(
    call: Call, x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Tensor:
    """scale·x where x > 0, else scale·alpha·(e^(input_scale·x) - 1)."""
    if input_scale != 1.0:
        below = autograd.expm1(autograd.clip(x, None, 0.0) * input_scale)
        return (autograd.relu(x) + below * alpha) * scale
    return autograd.elu(x, alpha) if scale == 1.0 else autograd.selu(x, alpha, scale)


@computes("selu")
def selu(call: Call, x: Tensor) -> Tensor:
    """SELU."""
    return autograd.selu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@computes("celu")
def celu(call: Call, x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha·(e^(x / alpha) - 1)."""
    return autograd.celu(x, alpha)


@computes("softplus")
def softplus(call: Call, x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e^(beta·x)) / beta."""
    return autograd.softplus(x, beta, threshold)


@computes("hardsigmoid")
def hardsigmoid(call: Call, x: Tensor) -> Tensor:
    """x / 6 + 1 / 2, limited to [0, 1]."""
    return autograd.hardsigmoid(x, 1.0 / 6.0, 0.5)


@computes("hardtanh")
def hardtanh(call: Call, x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to [min_val, max_val], without a gradient at the limits."""
    if not is_float(x.dtype):
        return autograd.clip(x, int(min_val), int(max_val))
    limits = (min_val, max_val)
    return autograd.relu6(x) if limits == (0, 6) else autograd.hardtanh(x, min_val, max_val)


@computes("clamp", "clamp.Tensor")
def clamp(call: Call, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """x limited to [min, max]."""
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        y = x if min is None else maximum(call, x, min)
        return y if max is None else minimum(call, y, max)
    if not is_float(x.dtype) and any(abs(v) > 1 << 53 for v in (min, max) if v is not None):
        # More than the 53 bits that clip has for a limit.
        limits = [None if each is None else _as_typed(call, each) for each in (min, max)]
        return clamp(call, x, *limits)
    return autograd.clip(x, min, max)


@computes("clamp_min")
def clamp_min(call: Call, x: Tensor, min: float) -> Tensor:
    """x where x > min, else min."""
    return clamp(call, x, min)


@computes("clamp_max")
def clamp_max(call: Call, x: Tensor, max: float) -> Tensor:
    """x where x < max, else max."""
    return clamp(call, x, None, max)


@computes("prelu", "_prelu_kernel")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    """x where x > 0, else slope·x, with a slope for each channel."""
    if len(slope.shape) == 1 and len(x.shape) != 1:
        slope = autograd.reshape(slope, (-1, *(1,) * (len(x.shape) - 2)) if x.shape else ())
    return autograd.prelu(x, slope)


@computes("glu")
def glu(call: Call, x: Tensor, dim: int = -1) -> Tensor:
    """The first half times the sigmoid of the second."""
    return autograd.glu(x, dim)


# Of two operands.


@computes("add.Tensor", "add.Scalar")
def add(call: Call, a: Any, b: Any, alpha: float = 1) -> Tensor:
    """a + alpha·b."""
    return a + (b if alpha == 1 else b * alpha)


@computes("sub.Tensor", "sub.Scalar")
def sub(call: Call, a: Any, b: Any, alpha: float = 1) -> Tensor:
    """a - alpha·b."""
    return a - (b if alpha == 1 else b * alpha)


@computes("rsub.Scalar", "rsub.Tensor")
def rsub(call: Call, a: Any, b: Any, alpha: float = 1) -> Tensor:
    """b - alpha·a."""
    return b - (a if alpha == 1 else a * alpha)


@computes("mul.Tensor", "mul.Scalar")
def mul(call: Call, a: Any, b: Any) -> Tensor:
    """a·b."""
    return a * b


@computes("div.Tensor", "div.Scalar")
def div(call: Call, a: Any, b: Any) -> Tensor:
    """a / b."""
    return a / b


@computes("div.Tensor_mode", "div.Scalar_mode")
def div_mode(call: Call, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    """a / b, rounded."""
    if rounding_mode is None:
        return div(call, a, b)
    if rounding_mode == "floor":
        return autograd.floor_divide(a, b)
    if not is_float(tensor.result_type(a, b)):
        return autograd.floor_divide(a - autograd.fmod(a, b), b)
    return autograd.trunc(div(call, a, b))


@computes("floor_divide")
def floor_divide(call: Call, a: Any, b: Any) -> Tensor:
    """floor(a / b)."""
    return autograd.floor_divide(a, b)


@computes("remainder.Scalar", "remainder.Tensor")
def remainder(call: Call, a: Any, b: Any) -> Tensor:
    """The remainder with the sign of b."""
    return autograd.mod(a, b)


@computes("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(call: Call, a: Any, b: Any) -> Tensor:
    """a ** b."""
    return autograd.square(a) if not isinstance(b, Tensor) and b == 2 else a**b


@computes("atan2")
def atan2(call: Call, y: Tensor, x: Tensor) -> Tensor:
    """The angle of the point (x, y)."""
    return autograd.atan2(y, x)


@computes("maximum")
def maximum(call: Call, a: Any, b: Any) -> Tensor:
    """The larger one of a and b."""
    if not isinstance(b, Tensor):
        return autograd.clip(a, b, None)
    return autograd.max(a, b)


@computes("minimum")
def minimum(call: Call, a: Any, b: Any) -> Tensor:
    """The smaller one of a and b."""
    if not isinstance(b, Tensor):
        return autograd.clip(a, None, b)
    return autograd.min(a, b)


@computes("fmax")
def fmax(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The larger one of a and b, where NaN is none."""
    return autograd.where(a, b, _truth(a >= b) | autograd.isnan(b))


@computes("fmin")
def fmin(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The smaller one of a and b, where NaN is none."""
    return autograd.where(a, b, _truth(a <= b) | autograd.isnan(b))


def _comparison(name: str, function: Any) -> None:
    @computes(f"{name}.Tensor", f"{name}.Scalar")
    def row(call: Call, a: Any, b: Any) -> Tensor:
        return autograd.cast(function(a, b), tensor.bool_)


for _name, _compares in (
    ("eq", autograd.equal),
    ("ne", autograd.not_equal),
    ("lt", autograd.less),
    ("le", autograd.less_equal),
    ("gt", autograd.greater),
    ("ge", autograd.greater_equal),
):
    _comparison(_name, _compares)


def _truth(x: Any) -> Tensor:
    return x if x.dtype == tensor.bool_ else autograd.cast(x != 0, tensor.bool_)


@computes("logical_not")
def logical_not(call: Call, x: Tensor) -> Tensor:
    """Whether x is false."""
    return autograd.cast(autograd._not(_truth(x)), tensor.bool_)


@computes("bitwise_not")
def bitwise_not(call: Call, x: Tensor) -> Tensor:
    """x with all bits inverted."""
    return ~x


def _logical(name: str, operator: Any) -> None:
    @computes(f"logical_{name}")
    def logical(call: Call, a: Tensor, b: Tensor) -> Tensor:
        return autograd.cast(operator()(_truth(a), _truth(b))[0], tensor.bool_)

    @computes(*(f"{each}.{kind}" for each in (f"bitwise_{name}", f"__{name}__")
                for kind in ("Tensor", "Scalar")))  # fmt: skip
    def bitwise(call: Call, a: Tensor, b: Any) -> Tensor:
        sign = getattr(Tensor, f"__{name}__")
        return sign(a, b)


for _name, _logic in (("and", ops.And), ("or", ops.Or), ("xor", ops.Xor)):
    _logical(_name, _logic)


def _shift(name: str, function: Any) -> None:
    @computes(
        *(f"bitwise_{name}_shift.{kind}" for kind in ("Tensor", "Tensor_Scalar")),
        *(f"__{name[0]}shift__.{kind}" for kind in ("Tensor", "Scalar")),
    )
    def row(call: Call, a: Tensor, b: Any) -> Tensor:
        return function(a, b)


_shift("left", autograd.bitwise_left_shift)
_shift("right", autograd.bitwise_right_shift)


@computes("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(call: Call, condition: Tensor, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y."""
    return autograd.where(_as_typed(call, x), _as_typed(call, y), condition)


def _as_typed(call: Call, value: Any) -> Any:
    """A number as a tensor of the type of the result, which tensors have."""
    if isinstance(value, Tensor):
        return value
    kind = call.node.output_types[0].type
    assert kind is not None
    key = (call.node.name, value, kind)
    return call.run.tensor(call.run.made(key, lambda: np.array(value, numpy_type(kind))))


@computes("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(call: Call, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """`value` where the mask holds, else x."""
    value = same_type(value, x) if isinstance(value, Tensor) else call.run.number(value, x)
    return autograd.where(value, x, mask)


# Types and copies.


@computes("_to_copy", "to.dtype", "type_as")
def to_type(call: Call, x: Tensor, *others: Any, **options: Any) -> Tensor:
    """x in the type of the result."""
    return in_type_of_result(call, x)


@computes("detach")
def detach(call: Call, x: Tensor) -> Tensor:
    """x as a constant."""
    return x.detach()
