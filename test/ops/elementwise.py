"""Elementwise functions of one tensor, of two, and of several."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from ops.case import ABOVE_ONE, POSITIVE, UNIT, VALUES, Family, X, apart, torch, uniform
from singa import autograd

CASES = Family()
call, alike = CASES.call, CASES.alike

# Functions of one tensor.

for _x, _operators in [
    (X, "Abs Asinh Atan Ceil Cos Cosh Erf Erfc Exp Exp2 Floor Gelu Negative ReLU Sigmoid Sign"),
    (X, "Silu Sin Sinh Square Tan Tanh Trunc"),
    (UNIT, "Acos Asin Atanh Erfinv"),
    (ABOVE_ONE, "Acosh"),
    (POSITIVE, "Lgamma Log Log2 Log10 Reciprocal Sqrt"),
    (3 * X, "HardSwish Mish"),
    (4 * X, "ReLU6"),
]:
    for _operator in _operators.split():
        call(_operator.lower(), _operator, [_x])
call("rounde", "Rounde", [X], theirs="round")
call("round", "Round", [X], theirs=lambda x: torch.sign(x) * torch.floor(torch.abs(x) + 0.5))
call("gelu by tanh", "GeluTanh", [3 * X], approximate="tanh")
call("celu", "Celu", [X], 0.5)
call("celu of large numbers", "Celu", [20 * X], 2.0)
for _size, _x in [("", X), (" of large numbers", 100 * X)]:
    call(f"logsigmoid{_size}", "LogSigmoid", [_x])
call("softplus", "SoftPlus", [X], theirs=lambda x: torch.log1p(torch.exp(x)))
call("softplus of beta and threshold", "SoftPlus", [X], 2.0, 0.9)
call("glu", "Glu", [X], 1)
call("softsign", "SoftSign", [X], theirs=lambda x: x / (1 + torch.abs(x)))
call("clip", "Clip", [X], -0.5, 0.7)
call("hardtanh", "HardTanh", [X], -0.5, 0.7)
call("clip below", "Clip", [X], min=-0.5)
call("clip above", "Clip", [X], max=0.5)
call("elu", "Elu", [X], 0.7)
call(
    *("selu", "SeLU", [X], 1.5, 1.1),
    theirs=lambda x, a, g: torch.where(x > 0, g * x, g * a * (torch.exp(x) - 1)),
)
call("leakyrelu", "LeakyRelu", [X], 0.1, theirs="leaky_relu")
call("leakyrelu that turns", "LeakyRelu", [X], -0.3, theirs="leaky_relu")
call("hardsigmoid", "HardSigmoid", [X], 0.6, 0.5, theirs=lambda x, a, b: (a * x + b).clip(0, 1))
_TRUTHS = [np.array([0.0, 1.0, -2.0, 0.0])]
call("_not", "Not", _TRUTHS, theirs=lambda x: (x == 0).to(x.dtype), differentiable=False)
for _size, _x in [("", X), (" of small numbers", 1e-3 * X), (" of large numbers", 5 * X)]:
    call(f"expm1{_size}", "Expm1", [_x])
    call(f"log1p{_size}", "Log1p", [np.where(_x < 0, _x / 8, _x)])
_SPECIAL = [np.array([0.0, np.nan, np.inf, -np.inf, -2.5])]
for _name in ("isnan", "isinf", "isfinite"):
    call(_name, "NotEqual Equal Less", _SPECIAL, **VALUES)
_SIGNED = np.array([-0.0, 0.0, np.inf, -np.inf, -2.5, 1e-30])
call("signbit", "CopySign Less", [_SIGNED], **VALUES)
_BETWEEN_POLES = uniform(3, 4, 5, low=-2.8, high=-2.2)


def _polygamma(x: Any, order: int) -> Any:
    """PyTorch's polygamma(1, x), the gradient of digamma, is right to 11 digits alone."""
    if order == 0:
        at = x.detach()
        return torch.digamma(at) + torch.special.zeta(2, at) * (x - at)
    return (-1) ** (order + 1) * math.factorial(order) * torch.special.zeta(order + 1, x)


call("lgamma below 0", "Lgamma", [_BETWEEN_POLES])
for _place, _x in [("", POSITIVE), (" below 0", _BETWEEN_POLES)]:
    call(f"digamma{_place}", "Polygamma", [_x], theirs=lambda x: _polygamma(x, 0))
    for _order in (1, 2):
        CASES.add(
            *(f"polygamma of order {_order}{_place}", "Polygamma"),
            lambda x, n=_order: autograd.polygamma(n, x),
            lambda x, n=_order: _polygamma(x, n),
            [_x],
        )
call("rsqrt", "Sqrt Reciprocal", [POSITIVE], one_step=False)
call("nan_to_num", "Where", [X], 0.5, 9.0, -8.0, one_step=False)

# Functions of two tensors, with shapes that broadcast both ways.

_A, _B = apart(3, 1, 5, seed=3) / 4, apart(4, 1, seed=4) / 4
for _operator in ("Add", "Sub", "Mul", "Div", "Atan2", "Hypot", "CopySign", "LogAddExp"):
    call(_operator.lower(), _operator, [_A, _B])
call("pow", "Pow", [POSITIVE, uniform(4, 1)])
_LIMITS = [apart(4, 1, seed=21) / 8 - 0.2, apart(3, 1, 5, seed=22) / 8 + 0.3]
call("clip by tensors", "Where", [X, *_LIMITS], one_step=False)
_DIVISORS = uniform(4, 1, low=3.5, high=4.0)
call("mod", "Mod", [POSITIVE, _DIVISORS], theirs="remainder")
call("fmod", "Fmod", [uniform(3, 1, 5, low=-3.0, high=-0.2), _DIVISORS])
_QUOTIENTS = [np.array([7.5, -7.5, 1.0, 5.0]), np.array([2.0, 2.0, 0.1, -3.0])]
call("floor_divide", "FloorDiv", _QUOTIENTS, differentiable=False)
call("logaddexp of large numbers", "LogAddExp", [300 * _A, 300 * _B])
for _weight in (0.25, 0.75, 1.0):
    call(f"lerp by {_weight}", "Sub Scalar Add", [_A, _B], weight=_weight, one_step=False)
call("lerp", "Where", [_A, _B, apart(3, 4, 5, seed=9) / 16], one_step=False)
_CLOSE = [
    np.array([1.0, 1.0, 100.0, np.nan, np.inf, np.inf, 5.0]),
    np.array([1.1, 1.2, 101.0, np.nan, np.inf, -np.inf, np.inf]),
]
for _nan in (False, True):
    call(f"isclose, equal_nan {_nan}", "LessEqual Or", _CLOSE, 0.01, 0.1, _nan, **VALUES)
call("prelu", "PRelu", [X, uniform(4, 1)], theirs=lambda a, b: torch.where(a > 0, a, b * a))
call(
    *("ranking_loss", "RankingLoss", [apart(6, 1, seed=5), apart(6, 1, seed=6) * 1.01]),
    theirs=lambda a, b: torch.clip(0.2 - (a - b), min=0).mean().reshape(1),
)
_ORDERED = [np.array([1.0, 2.0, 3.0, -1.0]), np.array([2.0, 2.0, 1.0, -1.0])]
_LOGICAL = [np.array([0.0, -0.3, 0.5, 0.0]), np.array([0.0, 0.0, 2.0, 1.0])]
for _name, _operator, _sign, _inputs in [
    ("less", "Less", "lt", _ORDERED), ("less_equal", "LessEqual", "le", _ORDERED),
    ("greater", "Greater", "gt", _ORDERED), ("greater_equal", "GreaterEqual", "ge", _ORDERED),
    ("equal", "Equal", "eq", _ORDERED), ("not_equal", "NotEqual", "ne", _ORDERED),
    ("_and", "And", "logical_and", _LOGICAL), ("_or", "Or", "logical_or", _LOGICAL),
    ("_xor", "Xor", "logical_xor", _LOGICAL),
]:  # fmt: skip
    call(_name, _operator, _inputs, theirs=_sign, differentiable=False)

# A tensor and a number.

for _v in (2.5, -1.5):
    alike(
        *(f"tensor and {_v}", "Scalar", [X]),
        lambda x, v=_v: ((x + v) * v - v) / v + (v - x) + v * x,
        one_step=False,
    )
alike("scalar / tensor", "Scalar", [POSITIVE], lambda x: 2.0 / x)
alike("tensor ** scalar", "Scalar", [POSITIVE], lambda x: x**2.5 + x**2, one_step=False)
alike("scalar ** tensor", "Scalar", [X], lambda x: 2.5**x)

# Functions of several tensors.

_L = [apart(3, 4, seed=i) * (1 + i / 50) for i in (7, 8, 9)]
call("sum", "Sum", _L, theirs=lambda *ts: ts[0] + ts[1] + ts[2])
call("sum, broadcast", "Sum", [_A, _B], theirs="add")
call("mean", "Mean", _L, theirs=lambda *ts: (ts[0] + ts[1] + ts[2]) / 3)
call("max", "Max", _L, theirs=lambda *ts: torch.maximum(torch.maximum(*ts[:2]), ts[2]))
call("min", "Min", _L, theirs=lambda *ts: torch.minimum(torch.minimum(*ts[:2]), ts[2]))
_EQUAL = [np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])]
call("max of two, equal ones", "Max", _EQUAL, theirs="maximum", differentiable=False)
