"""Elementwise functions of one tensor, of two, and of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ops.case import ABOVE_ONE, POSITIVE, UNIT, Family, X, apart, both, functional, torch, uniform
from singa import autograd

CASES = Family()
add = CASES.add


def unary(name: str, operator: str, torch_name: str | None = None, x: Any = X, **kw: Any) -> None:
    add(
        name,
        operator,
        getattr(autograd, name),
        lambda t: getattr(torch, torch_name or name)(t),
        [x],
        **kw,
    )


# Elementwise functions.

unary("abs", "Abs")
unary("acos", "Acos", x=UNIT)
unary("acosh", "Acosh", x=ABOVE_ONE)
unary("asin", "Asin", x=UNIT)
unary("asinh", "Asinh")
unary("atan", "Atan")
unary("atanh", "Atanh", x=UNIT)
unary("ceil", "Ceil")
unary("cos", "Cos")
unary("cosh", "Cosh")
unary("erf", "Erf")
unary("exp", "Exp")
unary("floor", "Floor")
unary("log", "Log", x=POSITIVE)
unary("negative", "Negative")
unary("reciprocal", "Reciprocal", x=POSITIVE)
unary("relu", "ReLU")
unary("rounde", "Rounde", "round")
unary("sigmoid", "Sigmoid")
unary("sign", "Sign")
unary("sin", "Sin")
unary("sinh", "Sinh")
unary("sqrt", "Sqrt", x=POSITIVE)
unary("square", "Square")
unary("tan", "Tan")
unary("tanh", "Tanh")
add(
    "round", "Round", autograd.round, lambda x: torch.sign(x) * torch.floor(torch.abs(x) + 0.5), [X]
)
add("gelu", "Gelu", *both("gelu"), [X])
add(
    "gelu by tanh",
    "GeluTanh",
    lambda x: autograd.gelu(x, "tanh"),
    lambda x: functional.gelu(x, approximate="tanh"),
    [3 * X],
)
add("mish", "Mish", *both("mish"), [3 * X])
add("celu", "Celu", *both("celu", 0.5), [X])
add("celu of large numbers", "Celu", *both("celu", 2.0), [20 * X])
for _size, _x in [("", X), (" of large numbers", 100 * X)]:
    add(f"logsigmoid{_size}", "LogSigmoid", *both("logsigmoid"), [_x])
add("hardswish", "HardSwish", *both("hardswish"), [3 * X])
add("silu", "Silu", *both("silu"), [X])
add("softplus", "SoftPlus", autograd.softplus, lambda x: torch.log1p(torch.exp(x)), [X])
add("softplus of beta and threshold", "SoftPlus", *both("softplus", 2.0, 0.9), [X])
add("glu", "Glu", *both("glu", 1), [X])
add("softsign", "SoftSign", autograd.softsign, lambda x: x / (1 + torch.abs(x)), [X])
add("clip", "Clip", lambda x: autograd.clip(x, -0.5, 0.7), lambda x: x.clip(-0.5, 0.7), [X])
add("relu6", "ReLU6", *both("relu6"), [4 * X])
add("hardtanh", "HardTanh", *both("hardtanh", -0.5, 0.7), [X])
add("clip below", "Clip", lambda x: autograd.clip(x, min=-0.5), lambda x: x.clip(-0.5), [X])
add("clip above", "Clip", lambda x: autograd.clip(x, max=0.5), lambda x: x.clip(max=0.5), [X])
add("elu", "Elu", *both("elu", 0.7), [X])
add(
    "selu",
    "SeLU",
    lambda x: autograd.selu(x, 1.5, 1.1),
    lambda x: torch.where(x > 0, 1.1 * x, 1.1 * 1.5 * (torch.exp(x) - 1)),
    [X],
)
add("leakyrelu", "LeakyRelu", *both("leakyrelu", 0.1, theirs="leaky_relu"), [X])
add("leakyrelu that turns", "LeakyRelu", *both("leakyrelu", -0.3, theirs="leaky_relu"), [X])
add(
    "hardsigmoid",
    "HardSigmoid",
    lambda x: autograd.hardsigmoid(x, 0.6, 0.5),
    lambda x: (0.6 * x + 0.5).clip(0, 1),
    [X],
)
add(
    "_not",
    "Not",
    autograd._not,
    lambda x: (x == 0).to(x.dtype),
    [np.array([0.0, 1.0, -2.0, 0.0])],
    differentiable=False,
)

for _size, _x in [("", X), (" of small numbers", 1e-3 * X), (" of large numbers", 5 * X)]:
    add(f"expm1{_size}", "Expm1", *both("expm1"), [_x])
    add(f"log1p{_size}", "Log1p", *both("log1p"), [np.where(_x < 0, _x / 8, _x)])
unary("log2", "Log2", x=POSITIVE)
unary("log10", "Log10", x=POSITIVE)
unary("exp2", "Exp2")
unary("trunc", "Trunc")
for _name in ("isnan", "isinf", "isfinite"):
    add(
        _name,
        "NotEqual Equal Less",
        *both(_name),
        [np.array([0.0, np.nan, np.inf, -np.inf, -2.5])],
        differentiable=False,
        one_step=False,
    )
unary("rsqrt", "Sqrt Reciprocal", x=POSITIVE, one_step=False)
add("nan_to_num", "Where", *both("nan_to_num", 0.5, 9.0, -8.0), [X], one_step=False)
# Two tensors, with shapes that broadcast both ways.

_A, _B = apart(3, 1, 5, seed=3) / 4, apart(4, 1, seed=4) / 4


def binary(name: str, operator: str, torch_function: Callable[..., Any], **kw: Any) -> None:
    inputs = kw.pop("inputs", [_A, _B])
    add(
        name,
        operator,
        getattr(autograd, name),
        torch_function,
        inputs,
        **kw,
    )


binary("add", "Add", lambda a, b: a + b)
binary("sub", "Sub", lambda a, b: a - b)
binary("mul", "Mul", lambda a, b: a * b)
binary("div", "Div", lambda a, b: a / b)
binary("pow", "Pow", lambda a, b: a**b, inputs=[POSITIVE, uniform(4, 1)])
binary("atan2", "Atan2", lambda a, b: torch.atan2(a, b))
add(
    "clip by tensors",
    "Where",
    lambda x, low, high: autograd.clip(x, low, high),
    lambda x, low, high: torch.clamp(x, low, high),
    [X, apart(4, 1, seed=21) / 8 - 0.2, apart(3, 1, 5, seed=22) / 8 + 0.3],
    one_step=False,
)
binary(
    "mod",
    "Mod",
    lambda a, b: torch.remainder(a, b),
    inputs=[POSITIVE, uniform(4, 1, low=3.5, high=4.0)],
)
binary(
    "floor_divide",
    "FloorDiv",
    lambda a, b: torch.floor_divide(a, b),
    inputs=[np.array([7.5, -7.5, 1.0, 5.0]), np.array([2.0, 2.0, 0.1, -3.0])],
    differentiable=False,
)
binary(
    "fmod",
    "Fmod",
    lambda a, b: torch.fmod(a, b),
    inputs=[uniform(3, 1, 5, low=-3.0, high=-0.2), uniform(4, 1, low=3.5, high=4.0)],
)
binary("hypot", "Hypot", lambda a, b: torch.hypot(a, b))
binary("copysign", "CopySign", lambda a, b: torch.copysign(a, b))
binary("logaddexp", "LogAddExp", lambda a, b: torch.logaddexp(a, b))
add("logaddexp of large numbers", "LogAddExp", *both("logaddexp"), [300 * _A, 300 * _B])
for _weight in (0.25, 0.75, 1.0):
    add(
        f"lerp by {_weight}",
        "Sub Scalar Add",
        *both("lerp", weight=_weight),
        [_A, _B],
        one_step=False,
    )
add("lerp", "Where", *both("lerp"), [_A, _B, apart(3, 4, 5, seed=9) / 16], one_step=False)
for _equal_nan in (False, True):
    add(
        f"isclose, equal_nan {_equal_nan}",
        "LessEqual Or",
        *both("isclose", rtol=0.01, atol=0.1, equal_nan=_equal_nan),
        [
            np.array([1.0, 1.0, 100.0, np.nan, np.inf, np.inf, 5.0]),
            np.array([1.1, 1.2, 101.0, np.nan, np.inf, -np.inf, np.inf]),
        ],
        differentiable=False,
        one_step=False,
    )
binary("prelu", "PRelu", lambda a, b: torch.where(a > 0, a, b * a), inputs=[X, uniform(4, 1)])
binary(
    "ranking_loss",
    "RankingLoss",
    lambda a, b: torch.clip(0.2 - (a - b), min=0).mean().reshape(1),
    inputs=[apart(6, 1, seed=5), apart(6, 1, seed=6) * 1.01],
)
for _name, _operator, _sign in [
    ("less", "Less", "lt"), ("less_equal", "LessEqual", "le"), ("greater", "Greater", "gt"),
    ("greater_equal", "GreaterEqual", "ge"), ("equal", "Equal", "eq"),
    ("not_equal", "NotEqual", "ne"),
]:  # fmt: skip
    binary(
        _name,
        _operator,
        lambda a, b, sign=_sign: getattr(torch, sign)(a, b).to(a.dtype),
        inputs=[np.array([1.0, 2.0, 3.0, -1.0]), np.array([2.0, 2.0, 1.0, -1.0])],
        differentiable=False,
    )
for _name, _operator, _sign in [
    ("_and", "And", "and"), ("_or", "Or", "or"), ("_xor", "Xor", "xor")
]:  # fmt: skip
    binary(
        _name,
        _operator,
        lambda a, b, sign=_sign: getattr(torch, f"logical_{sign}")(a, b).to(a.dtype),
        inputs=[np.array([0.0, -0.3, 0.5, 0.0]), np.array([0.0, 0.0, 2.0, 1.0])],
        differentiable=False,
    )

for _scalar in (2.5, -1.5):
    add(
        f"tensor and {_scalar}",
        "Scalar",
        lambda x, v=_scalar: ((x + v) * v - v) / v + (v - x) + v * x,
        lambda x, v=_scalar: ((x + v) * v - v) / v + (v - x) + v * x,
        [X],
        one_step=False,
    )
add("scalar / tensor", "Scalar", lambda x: 2.0 / x, lambda x: 2.0 / x, [POSITIVE])
add(
    "tensor ** scalar",
    "Scalar",
    lambda x: x**2.5 + x**2,
    lambda x: x**2.5 + x**2,
    [POSITIVE],
    one_step=False,
)
add("scalar ** tensor", "Scalar", lambda x: 2.5**x, lambda x: 2.5**x, [X])

_L = [apart(3, 4, seed=i) * (1 + i / 50) for i in (7, 8, 9)]
add("sum", "Sum", autograd.sum, lambda *ts: ts[0] + ts[1] + ts[2], _L)
add("sum, broadcast", "Sum", autograd.sum, lambda *ts: ts[0] + ts[1], [_A, _B])
add("mean", "Mean", autograd.mean, lambda *ts: (ts[0] + ts[1] + ts[2]) / 3, _L)
add("max", "Max", autograd.max, lambda *ts: torch.maximum(torch.maximum(*ts[:2]), ts[2]), _L)
add("min", "Min", autograd.min, lambda *ts: torch.minimum(torch.minimum(*ts[:2]), ts[2]), _L)
add(
    "max of two, equal ones",
    "Max",
    *both("max", theirs="maximum"),
    [np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])],
    differentiable=False,
)
