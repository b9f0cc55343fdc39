"""A table of all operators: how each is applied, to which inputs, and the same in PyTorch.

`test_operators.py` tests all lines. Inputs are float64 arrays away from kinks and poles, so that
finite differences are valid.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rank_memory import Alone
from singa import autograd, ops, tensor
from singa import singa_wrap as wrap
from singa.ops import normalization

Arrays = list[np.ndarray[Any, Any]]


@dataclass
class Case:
    """One operator. `apply(*tensors)` is singa's form, `torch(torch, *tensors)` PyTorch's. `covers`
    are the names of the operator classes that it runs."""

    name: str
    covers: tuple[str, ...]
    apply: Callable[..., Any]
    torch: Callable[..., Any] | None
    inputs: Arrays
    differentiable: bool = True
    tolerance: float = 64  # in units of eps of the type, relative to the largest value
    constants: Sequence[int] = field(default=())  # inputs without gradient, of fixed type
    one_step: bool = True  # applies one operator with one output


def _random(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Any:
    return np.random.default_rng(seed + 7919 * len(shape)).uniform(low, high, shape)


def _apart(*shape: int, seed: int = 0, gap: float = 0.05) -> Any:
    """Distinct values, each at least `gap` away from multiples of one half."""
    count = int(np.prod(shape))
    values = np.random.default_rng(seed).permutation(count) - count // 2
    return (values * 0.37 + np.where(values % 2, gap, -gap) + 0.21).reshape(shape)


_X = _apart(3, 4, 5, seed=1) / 8  # in (-1.4, 1.4)
_UNIT = _random(3, 4, 5, low=-0.9, high=0.9)
_POSITIVE = _random(3, 4, 5, low=0.2, high=3.0)
_ABOVE_ONE = _random(3, 4, 5, low=1.1, high=3.0)

CASES: list[Case] = []


def add(name: str, covers: str, *args: Any, **kwargs: Any) -> None:
    CASES.append(Case(name, tuple(covers.split()), *args, **kwargs))


def unary(name: str, operator: str, torch_name: str | None = None, x: Any = _X, **kw: Any) -> None:
    add(
        name,
        operator,
        getattr(autograd, name),
        lambda torch, t: getattr(torch, torch_name or name)(t),
        [x],
        **kw,
    )


# Elementwise functions.

unary("abs", "Abs")
unary("acos", "Acos", x=_UNIT)
unary("acosh", "Acosh", x=_ABOVE_ONE)
unary("asin", "Asin", x=_UNIT)
unary("asinh", "Asinh")
unary("atan", "Atan")
unary("atanh", "Atanh", x=_UNIT)
unary("ceil", "Ceil")
unary("cos", "Cos")
unary("cosh", "Cosh")
unary("erf", "Erf")
unary("exp", "Exp")
unary("floor", "Floor")
unary("log", "Log", x=_POSITIVE)
unary("negative", "Negative")
unary("reciprocal", "Reciprocal", x=_POSITIVE)
unary("relu", "ReLU")
unary("rounde", "Rounde", "round")
unary("sigmoid", "Sigmoid")
unary("sign", "Sign")
unary("sin", "Sin")
unary("sinh", "Sinh")
unary("sqrt", "Sqrt", x=_POSITIVE)
unary("square", "Square")
unary("tan", "Tan")
unary("tanh", "Tanh")
add(
    "round",
    "Round",
    autograd.round,
    lambda torch, x: torch.sign(x) * torch.floor(torch.abs(x) + 0.5),
    [_X],
)
add("gelu", "Gelu", autograd.gelu, lambda torch, x: torch.nn.functional.gelu(x), [_X])
add(
    "gelu by tanh",
    "GeluTanh",
    lambda x: autograd.gelu(x, "tanh"),
    lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
    [3 * _X],
)
add("mish", "Mish", autograd.mish, lambda torch, x: torch.nn.functional.mish(x), [3 * _X])
add(
    "hardswish",
    "HardSwish",
    autograd.hardswish,
    lambda torch, x: torch.nn.functional.hardswish(x),
    [3 * _X],
)
add("silu", "Silu", autograd.silu, lambda torch, x: torch.nn.functional.silu(x), [_X])
add("softplus", "SoftPlus", autograd.softplus, lambda torch, x: torch.log1p(torch.exp(x)), [_X])
add(
    "softplus of beta and threshold",
    "SoftPlus",
    lambda x: autograd.softplus(x, 2.0, 0.9),
    lambda torch, x: torch.nn.functional.softplus(x, 2.0, 0.9),
    [_X],
)
add(
    "glu", "Glu", lambda x: autograd.glu(x, 1), lambda torch, x: torch.nn.functional.glu(x, 1), [_X]
)
add("softsign", "SoftSign", autograd.softsign, lambda torch, x: x / (1 + torch.abs(x)), [_X])
add("clip", "Clip", lambda x: autograd.clip(x, -0.5, 0.7), lambda torch, x: x.clip(-0.5, 0.7), [_X])
add(
    "relu6",
    "ReLU6",
    lambda x: autograd.relu6(x * 4.0),
    lambda torch, x: torch.nn.functional.relu6(x * 4.0),
    [_X],
    one_step=False,
)
add(
    "hardtanh",
    "HardTanh",
    lambda x: autograd.hardtanh(x, -0.5, 0.7),
    lambda torch, x: torch.nn.functional.hardtanh(x, -0.5, 0.7),
    [_X],
)
add("clip below", "Clip", lambda x: autograd.clip(x, min=-0.5), lambda torch, x: x.clip(-0.5), [_X])
add(
    "clip above",
    "Clip",
    lambda x: autograd.clip(x, max=0.5),
    lambda torch, x: x.clip(max=0.5),
    [_X],
)
add(
    "elu",
    "Elu",
    lambda x: autograd.elu(x, 0.7),
    lambda torch, x: torch.nn.functional.elu(x, 0.7),
    [_X],
)
add(
    "selu",
    "SeLU",
    lambda x: autograd.selu(x, 1.5, 1.1),
    lambda torch, x: torch.where(x > 0, 1.1 * x, 1.1 * 1.5 * (torch.exp(x) - 1)),
    [_X],
)
add(
    "leakyrelu",
    "LeakyRelu",
    lambda x: autograd.leakyrelu(x, 0.1),
    lambda torch, x: torch.nn.functional.leaky_relu(x, 0.1),
    [_X],
)
add(
    "leakyrelu that turns",
    "LeakyRelu",
    lambda x: autograd.leakyrelu(x, -0.3),
    lambda torch, x: torch.nn.functional.leaky_relu(x, -0.3),
    [_X],
)
add(
    "hardsigmoid",
    "HardSigmoid",
    lambda x: autograd.hardsigmoid(x, 0.6, 0.5),
    lambda torch, x: (0.6 * x + 0.5).clip(0, 1),
    [_X],
)
add(
    "_not",
    "Not",
    autograd._not,
    lambda torch, x: (x == 0).to(x.dtype),
    [np.array([0.0, 1.0, -2.0, 0.0])],
    differentiable=False,
)

for _size, _x in [("", _X), (" of small numbers", 1e-3 * _X), (" of large numbers", 5 * _X)]:
    add(f"expm1{_size}", "Expm1", autograd.expm1, lambda torch, x: torch.expm1(x), [_x])
    add(
        f"log1p{_size}",
        "Log1p",
        autograd.log1p,
        lambda torch, x: torch.log1p(x),
        [np.where(_x < 0, _x / 8, _x)],
    )
unary("log2", "Log", x=_POSITIVE, one_step=False)
unary("rsqrt", "Sqrt Reciprocal", x=_POSITIVE, one_step=False)
add(
    "nan_to_num",
    "Where",
    lambda x: autograd.nan_to_num(x, 0.5, 9.0, -8.0),
    lambda torch, x: torch.nan_to_num(x, 0.5, 9.0, -8.0),
    [_X],
    one_step=False,
)
for _p in (1, 2, 3.5, np.inf):
    add(
        f"normalize by the {_p}-norm",
        "ReduceL2 ReduceL1",
        lambda x, p=_p: autograd.normalize(x, p, -1),
        lambda torch, x, p=_p: torch.nn.functional.normalize(x, p, -1),
        [_X],
        one_step=False,
    )

# Two tensors, with shapes that broadcast both ways.

_A, _B = _apart(3, 1, 5, seed=3) / 4, _apart(4, 1, seed=4) / 4


def binary(name: str, operator: str, torch_function: Callable[..., Any], **kw: Any) -> None:
    inputs = kw.pop("inputs", [_A, _B])
    add(
        name,
        operator,
        getattr(autograd, name),
        lambda torch, a, b: torch_function(torch, a, b),
        inputs,
        **kw,
    )


binary("add", "Add", lambda torch, a, b: a + b)
binary("sub", "Sub", lambda torch, a, b: a - b)
binary("mul", "Mul", lambda torch, a, b: a * b)
binary("div", "Div", lambda torch, a, b: a / b)
binary("pow", "Pow", lambda torch, a, b: a**b, inputs=[_POSITIVE, _random(4, 1)])
binary("atan2", "Atan2", lambda torch, a, b: torch.atan2(a, b))
binary(
    "mod",
    "Mod",
    lambda torch, a, b: torch.remainder(a, b),
    inputs=[_POSITIVE, _random(4, 1, low=3.5, high=4.0)],
)
binary(
    "floor_divide",
    "FloorDiv",
    lambda torch, a, b: torch.floor_divide(a, b),
    inputs=[np.array([7.5, -7.5, 1.0, 5.0]), np.array([2.0, 2.0, 0.1, -3.0])],
    differentiable=False,
)
binary(
    "prelu", "PRelu", lambda torch, a, b: torch.where(a > 0, a, b * a), inputs=[_X, _random(4, 1)]
)
binary(
    "ranking_loss",
    "RankingLoss",
    lambda torch, a, b: torch.clip(0.2 - (a - b), min=0).mean().reshape(1),
    inputs=[_apart(6, 1, seed=5), _apart(6, 1, seed=6) * 1.01],
)
for _name, _operator, _sign in [
    ("less", "Less", "lt"), ("less_equal", "LessEqual", "le"), ("greater", "Greater", "gt"),
    ("greater_equal", "GreaterEqual", "ge"), ("equal", "Equal", "eq"),
    ("not_equal", "NotEqual", "ne"),
]:  # fmt: skip
    binary(
        _name,
        _operator,
        lambda torch, a, b, sign=_sign: getattr(torch, sign)(a, b).to(a.dtype),
        inputs=[np.array([1.0, 2.0, 3.0, -1.0]), np.array([2.0, 2.0, 1.0, -1.0])],
        differentiable=False,
    )
for _name, _operator, _sign in [
    ("_and", "And", "and"), ("_or", "Or", "or"), ("_xor", "Xor", "xor")
]:  # fmt: skip
    binary(
        _name,
        _operator,
        lambda torch, a, b, sign=_sign: getattr(torch, f"logical_{sign}")(a, b).to(a.dtype),
        inputs=[np.array([0.0, -0.3, 0.5, 0.0]), np.array([0.0, 0.0, 2.0, 1.0])],
        differentiable=False,
    )

for _scalar in (2.5, -1.5):
    add(
        f"tensor and {_scalar}",
        "Scalar",
        lambda x, v=_scalar: ((x + v) * v - v) / v + (v - x) + v * x,
        lambda torch, x, v=_scalar: ((x + v) * v - v) / v + (v - x) + v * x,
        [_X],
        one_step=False,
    )
add("scalar / tensor", "Scalar", lambda x: 2.0 / x, lambda torch, x: 2.0 / x, [_POSITIVE])
add(
    "tensor ** scalar",
    "Scalar",
    lambda x: x**2.5 + x**2,
    lambda torch, x: x**2.5 + x**2,
    [_POSITIVE],
    one_step=False,
)
add("scalar ** tensor", "Scalar", lambda x: 2.5**x, lambda torch, x: 2.5**x, [_X])

_L = [_apart(3, 4, seed=i) * (1 + i / 50) for i in (7, 8, 9)]
add("sum", "Sum", autograd.sum, lambda torch, *ts: ts[0] + ts[1] + ts[2], _L)
add("sum, broadcast", "Sum", autograd.sum, lambda torch, *ts: ts[0] + ts[1], [_A, _B])
add("mean", "Mean", autograd.mean, lambda torch, *ts: (ts[0] + ts[1] + ts[2]) / 3, _L)
add("max", "Max", autograd.max, lambda torch, *ts: torch.maximum(torch.maximum(*ts[:2]), ts[2]), _L)
add("min", "Min", autograd.min, lambda torch, *ts: torch.minimum(torch.minimum(*ts[:2]), ts[2]), _L)
add(
    "max of two, equal ones",
    "Max",
    autograd.max,
    lambda torch, a, b: torch.maximum(a, b),
    [np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])],
    differentiable=False,
)

# Reductions.

for _axes, _keep in [(None, 1), ([0, 2], 1), ([1], 0), ([-1, 0], 0)]:
    for _name, _operator, _torch in [
        ("reduce_sum", "ReduceSum", "sum"), ("reduce_mean", "ReduceMean", "mean"),
        ("reduce_max", "ReduceMax", "amax"), ("reduce_min", "ReduceMin", "amin"),
    ]:  # fmt: skip
        add(
            f"{_name} over {_axes}, keepdims {_keep}",
            _operator,
            lambda x, name=_name, axes=_axes, keep=_keep: getattr(autograd, name)(x, axes, keep),
            lambda torch, x, name=_torch, axes=_axes, keep=_keep: getattr(torch, name)(
                x, dim=axes or (0, 1, 2), keepdim=bool(keep)
            ),
            [_X],
        )
add(
    "reduce_prod",
    "ReduceProd",
    lambda x: autograd.reduce_prod(x, 1, 0),
    lambda torch, x: torch.prod(x, 1),
    [_POSITIVE],
)
add(
    "reduce_l1",
    "ReduceL1",
    lambda x: autograd.reduce_l1(x, 1, 0),
    lambda torch, x: torch.abs(x).sum(1),
    [_X],
)
add(
    "reduce_l2",
    "ReduceL2",
    lambda x: autograd.reduce_l2(x, 1, 0),
    lambda torch, x: torch.sqrt((x * x).sum(1)),
    [_X],
)
add(
    "reduce_sum_square",
    "ReduceSumSquare",
    lambda x: autograd.reduce_sum_square(x, 1, 0),
    lambda torch, x: (x * x).sum(1),
    [_X],
)
for _axes, _keep in [(None, 1), ((0, 2), 0), (1, 1)]:
    add(
        f"reduce_log_sum_exp over {_axes}, keepdims {_keep}",
        "ReduceLogSumExp",
        lambda x, axes=_axes, keep=_keep: autograd.reduce_log_sum_exp(x, axes, keep),
        lambda torch, x, axes=_axes, keep=_keep: torch.logsumexp(
            x, (0, 1, 2) if axes is None else axes, keepdim=bool(keep)
        ),
        [3 * _X],
    )
add(
    "reduce_log_sum",
    "ReduceSum Log",
    lambda x: autograd.reduce_log_sum(x, 1, 0),
    lambda torch, x: torch.log(x.sum(1)),
    [_POSITIVE],
    one_step=False,
)
for _axes, _keep, _correction in [(None, False, 1), ((0, -1), True, 0), (1, False, 2)]:
    for _name in ("var", "std"):
        add(
            f"{_name} over {_axes}, correction {_correction}",
            "ReduceSumSquare ReduceL2",
            lambda x, name=_name, axes=_axes, keep=_keep, correction=_correction: getattr(
                autograd, name
            )(x, axes, keep, correction),
            lambda torch, x, name=_name, axes=_axes, keep=_keep, correction=_correction: getattr(
                torch, name
            )(x, axes, keepdim=keep, correction=correction),
            [_X],
            one_step=False,
        )
for _name in ("any", "all"):
    add(
        f"{_name} over 0 and 2",
        "ReduceSum",
        lambda x, name=_name: getattr(autograd, name)(x, (0, 2)),
        lambda torch, x, name=_name: getattr(torch, name)(x, dim=(0, 2)),
        [np.array([[[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [-1.0, 3.0], [0.0, 0.0]]])],
        differentiable=False,
    )
add(
    "argmax",
    "ArgMax",
    lambda x: autograd.argmax(x, 1),
    lambda torch, x: torch.argmax(x, 1),
    [_X],
    differentiable=False,
)
add(
    "argmin",
    "ArgMin",
    lambda x: autograd.argmin(x, 1, True),
    lambda torch, x: torch.argmin(x, 1, keepdim=True),
    [_X],
    differentiable=False,
)
add(
    "argmax of the last",
    "ArgMax",
    lambda x: autograd.argmax(x, 1, select_last_index=True),
    lambda torch, x: 4 - torch.argmax(x.flip(1), 1),
    [np.round(_X * 2)[:, [0, 1, 2, 3, 0]]],
    differentiable=False,
)
for _axis in (0, 1, -1):
    add(
        f"softmax along {_axis}",
        "SoftMax",
        lambda x, axis=_axis: autograd.softmax(x, axis),
        lambda torch, x, axis=_axis: torch.softmax(x, axis),
        [_X],
    )
    add(
        f"log_softmax along {_axis}",
        "LogSoftMax",
        lambda x, axis=_axis: autograd.log_softmax(x, axis),
        lambda torch, x, axis=_axis: torch.log_softmax(x, axis),
        [_X],
    )
add(
    "cossim",
    "CosSim",
    autograd.cossim,
    lambda torch, a, b: torch.nn.functional.cosine_similarity(a, b),
    [_random(3, 10, seed=1), _random(3, 10, seed=2)],
)

# Matrix products.

add("matmul", "Matmul", autograd.matmul, lambda torch, a, b: a @ b, [_random(4, 6), _random(6, 3)])
add(
    "matmul of batches",
    "Matmul",
    autograd.matmul,
    lambda torch, a, b: a @ b,
    [_random(2, 3, 4, 6), _random(3, 6, 5)],
)
add(
    "matmul with a vector",
    "Matmul",
    autograd.matmul,
    lambda torch, a, b: a @ b,
    [_random(4, 6), _random(6)],
)
for _ta, _tb in [(0, 0), (1, 0), (0, 1), (1, 1)]:
    _ab = [_random(6, 4) if _ta else _random(4, 6), _random(3, 6) if _tb else _random(6, 3)]
    _c = [_random(1, 3, seed=5)]
    add(
        f"gemm, transposed {_ta}{_tb}",
        "Gemm",
        lambda a, b, c, ta=_ta, tb=_tb: autograd.gemm(a, b, c, 0.7, 0.3, ta, tb),
        lambda torch, a, b, c, ta=_ta, tb=_tb: (
            0.7 * (a.T if ta else a) @ (b.T if tb else b) + 0.3 * c
        ),
        _ab + _c,
    )
add(
    "gemm without C",
    "Gemm",
    lambda a, b: autograd.gemm(a, b, alpha=2.0),
    lambda torch, a, b: 2 * a @ b,
    [_random(4, 6), _random(6, 3)],
)
add(
    "add_bias to rows",
    "AddBias",
    autograd.add_bias,
    lambda torch, x, b: x + b,
    [_random(4, 6), _random(6)],
)
add(
    "add_bias to columns",
    "AddBias",
    lambda x, b: autograd.add_bias(x, b, 1),
    lambda torch, x, b: x + b[:, None],
    [_random(4, 6), _random(4)],
)
add(
    "linear",
    "Linear",
    autograd.linear,
    lambda torch, x, w, b: x @ w + b,
    [_random(4, 6), _random(6, 3), _random(3)],
)
add(
    "linear, transposed weight",
    "Linear",
    lambda x, w: autograd.linear(x, w, transposed=True),
    lambda torch, x, w: x @ w.T,
    [_random(4, 6), _random(3, 6)],
)

_HEADS = [_random(2, 4, 3, 6), _random(2, 2, 5, 6, seed=1), _random(2, 2, 5, 4, seed=2)]
add(
    "scaled_dot_product_attention",
    "ScaledDotProductAttention",
    lambda q, k, v: autograd.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=0.7, enable_gqa=True
    ),
    lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=0.7, enable_gqa=True
    ),
    _HEADS,
)
add(
    "scaled_dot_product_attention with a mask",
    "ScaledDotProductAttention",
    lambda q, k, v, mask: autograd.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True),
    lambda torch, q, k, v, mask: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask, enable_gqa=True
    ),
    [*_HEADS, np.arange(15).reshape(3, 5) % 4 > 0],
    constants=(3,),
)
_MANY = [_random(4, 2, 3, 6, seed=seed) for seed in range(3)]
add(
    "scaled_dot_product_attention with a bias that repeats",
    "ScaledDotProductAttention",
    autograd.scaled_dot_product_attention,
    lambda torch, q, k, v, bias: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, bias.repeat(2, 1, 1, 1)
    ),
    [*_MANY, _random(2, 2, 3, 3)],
)
for _shape in ((3, 5), (2, 1, 1, 5), (4, 3, 1)):
    add(
        f"scaled_dot_product_attention with a bias {_shape}",
        "ScaledDotProductAttention",
        lambda q, k, v, bias: autograd.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True),
        lambda torch, q, k, v, bias: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, bias, enable_gqa=True
        ),
        [*_HEADS, _random(*_shape)],
    )


def _turned(torch: Any, x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Rotary embedding by its formula."""
    cos, sin = (t.to(x.dtype) for t in (cos, sin))
    cos, sin = (t.unsqueeze(-3) if t.dim() == 3 else t for t in (cos, sin))
    pairs = cos.shape[-1]
    if interleaved:
        a, b = x[..., : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    else:
        a, b = x[..., :pairs], x[..., pairs : 2 * pairs]
        turned = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    return torch.cat((turned, x[..., 2 * pairs :]), -1)


# Exact in float32.
_TABLES = [np.round(16 * _random(4, 3, seed=seed)) / 16 for seed in (3, 4)]


@functools.cache
def _rotary_tables() -> list[Any]:
    return [tensor.Tensor(data=t, dtype="float32", requires_grad=False) for t in _TABLES]


for _interleaved, _features in ((False, 6), (True, 6), (False, 9), (True, 9)):
    add(
        f"rotary_embedding of 6 of {_features} features, interleaved {_interleaved}",
        "RotaryEmbedding",
        lambda x, pairs=_interleaved: autograd.rotary_embedding(
            x, *_rotary_tables(), interleaved=pairs
        ),
        lambda torch, x, pairs=_interleaved: _turned(
            torch, x, *map(torch.tensor, _TABLES), interleaved=pairs
        ),
        [_random(2, 3, 4, _features)],
        one_step=False,
    )

# Movement of elements.

add("identity", "Identity", autograd.identity, lambda torch, x: x, [_X])
add("clone", "Clone", lambda x: x.clone(), lambda torch, x: x.clone(), [_X])
add(
    "contiguous",
    "Contiguous",
    lambda x: x.transpose().contiguous(),
    lambda torch, x: x.permute(2, 1, 0),
    [_X],
    one_step=False,
)
add(
    "to blocked",
    "ToBlocked",
    lambda x: autograd.to_blocked(x) * 2.0,
    lambda torch, x: x * 2.0,
    [_random(2, 18, 3, 4)],
    one_step=False,
)
add(
    "to device",
    "ToDevice",
    lambda x: ops.ToDevice(x.device)(x)[0],
    lambda torch, x: x.cpu(),
    [_X],
)
add(
    "reshape",
    "Reshape",
    lambda x: autograd.reshape(x, (5, -1)),
    lambda torch, x: x.reshape(5, -1),
    [_X],
)
add(
    "reshape with 0",
    "Reshape",
    lambda x: autograd.reshape(x, (0, 2, 10)),
    lambda torch, x: x.reshape(3, 2, 10),
    [_X],
)
add("flatten", "Flatten", autograd.flatten, lambda torch, x: x.reshape(3, 20), [_X])
add(
    "flatten at 2",
    "Flatten",
    lambda x: autograd.flatten(x, 2),
    lambda torch, x: x.reshape(12, 5),
    [_X],
)
add("squeeze", "Squeeze", autograd.squeeze, lambda torch, x: x.squeeze(), [_random(1, 3, 1, 4)])
add(
    "squeeze one axis",
    "Squeeze",
    lambda x: autograd.squeeze(x, 2),
    lambda torch, x: x.squeeze(2),
    [_random(1, 3, 1, 4)],
)
add("unsqueeze", "Unsqueeze", autograd.unsqueeze, lambda torch, x: x[..., None], [_X])
add(
    "unsqueeze two axes",
    "Unsqueeze",
    lambda x: autograd.unsqueeze(x, [0, 2]),
    lambda torch, x: x[None, :, None],
    [_X],
)
add("transpose", "Transpose", autograd.transpose, lambda torch, x: x.permute(2, 1, 0), [_X])
add(
    "transpose by axes",
    "Transpose",
    lambda x: autograd.transpose(x, (1, -1, 0)),
    lambda torch, x: x.permute(1, 2, 0),
    [_X],
)
add(
    "expand",
    "Expand",
    lambda x: autograd.expand(x, [2, 1, 6]),
    lambda torch, x: x.expand(2, 3, 6),
    [_random(3, 1)],
)
add("index", "Index", lambda x: x[1:, None, ::2, -1], lambda torch, x: x[1:, None, ::2, -1], [_X])
add(
    "index backwards",
    "Index",
    lambda x: x[..., ::-1, :2],
    lambda torch, x: torch.flip(x, (1,))[..., :2],
    [_X],
)
add(
    "slice",
    "Slice",
    lambda x: autograd.slice(x, [0, 1], [2, -1], [1, 2], [1, 2]),
    lambda torch, x: x[:, 0:2, 1:-1:2],
    [_X],
)
add(
    "slice of first axes",
    "Slice",
    lambda x: autograd.slice(x, [1], [3]),
    lambda torch, x: x[1:3],
    [_X],
)
add(
    "split",
    "Split",
    lambda x: autograd.split(x, 1, (1, 3)),
    lambda torch, x: torch.split(x, [1, 3], 1),
    [_X],
    one_step=False,
)
add(
    "split into equal pieces",
    "Split",
    lambda x: autograd.split(x, -2, num_output=2),
    lambda torch, x: torch.split(x, 2, 1),
    [_X],
    one_step=False,
)
add(
    "cat",
    "Concat",
    lambda *xs: autograd.cat(xs, 1),
    lambda torch, *xs: torch.cat(xs, 1),
    [_random(2, 3), _random(2, 1), _random(2, 4)],
)
add("tile", "Tile", lambda x: autograd.tile(x, [2, 1, 3]), lambda torch, x: x.tile(2, 1, 3), [_X])
add(
    "tile by a number",
    "Tile",
    lambda x: autograd.tile(x, 2),
    lambda torch, x: x.tile(2, *[1] * (x.ndim - 1)),
    [_X],
)
add(
    "tile with new axes",
    "Tile",
    lambda x: autograd.tile(x, [2, 1, 2]),
    lambda torch, x: x.tile(2, 1, 2),
    [_random(3, 2)],
)
add("repeat", "Repeat", lambda x: x.repeat(2, 1), lambda torch, x: x.repeat_interleave(2, 1), [_X])
add(
    "repeat by elements",
    "Repeat",
    lambda x: x.repeat([1, 0, 2], 0),
    lambda torch, x: x.repeat_interleave(torch.tensor([1, 0, 2]), 0),
    [_X],
)
add(
    "repeat flattened",
    "Repeat",
    lambda x: x.repeat(3),
    lambda torch, x: x.repeat_interleave(3),
    [_X],
)
add(
    "roll",
    "Roll",
    lambda x: autograd.roll(x, (2, -1, 7), (2, 0, 2)),
    lambda torch, x: x.roll((2, -1, 7), (2, 0, 2)),
    [_X],
)
add("roll flattened", "Roll", lambda x: autograd.roll(x, 7), lambda torch, x: x.roll(7), [_X])
for _mode, _torch in [("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate")]:
    add(
        f"pad, {_mode}",
        "Pad",
        lambda x, mode=_mode: autograd.pad(
            x, mode, [0, 0, 1, 2, 0, 0, 2, 1], *([0.5] if mode == "constant" else [])
        ),
        lambda torch, x, mode=_torch: torch.nn.functional.pad(
            x, (2, 1, 1, 2), mode, *([0.5] if mode == "constant" else [])
        ),
        [_random(2, 3, 4, 5)],
    )
add(
    "upsample",
    "UpSample",
    lambda x: autograd.upsample(x, "nearest", [1.0, 1.0, 2.0, 3.0]),
    lambda torch, x: x.repeat_interleave(2, 2).repeat_interleave(3, 3),
    [_random(2, 3, 2, 3)],
)

for _mode, _corners, _size in [
    ("nearest", None, (5, 3)),
    ("nearest-exact", None, (3, 7)),
    ("bilinear", False, (8, 10)),
    ("bilinear", True, (3, 9)),
    ("bicubic", False, (2, 9)),
    ("bicubic", True, (8, 5)),
]:
    add(
        f"interpolate, {_mode}, corners {_corners}",
        "Interpolate",
        lambda x, size=_size, mode=_mode, corners=_corners: autograd.interpolate(
            x, size, mode=mode, align_corners=corners
        ),
        lambda torch, x, size=_size, mode=_mode, corners=_corners: torch.nn.functional.interpolate(
            x, size, mode=mode, align_corners=corners
        ),
        [_random(2, 3, 4, 5)],
    )
add(
    "interpolate, antialiased",
    "Interpolate",
    lambda x: autograd.interpolate(x, (3, 4), mode="bicubic", antialias=True),
    lambda torch, x: torch.nn.functional.interpolate(x, (3, 4), mode="bicubic", antialias=True),
    [_random(2, 3, 7, 9)],
)
add(
    "interpolate, area",
    "Interpolate",
    lambda x: autograd.interpolate(x, (3, 7), mode="area"),
    lambda torch, x: torch.nn.functional.interpolate(x, (3, 7), mode="area"),
    [_random(2, 3, 5, 6)],
)
add(
    "interpolate, trilinear",
    "Interpolate",
    lambda x: autograd.interpolate(x, scale_factor=(2, 1.5, 0.7), mode="trilinear"),
    lambda torch, x: torch.nn.functional.interpolate(
        x, scale_factor=(2, 1.5, 0.7), mode="trilinear"
    ),
    [_random(1, 2, 3, 4, 5)],
)


def _depth_to_space(torch: Any, x: Any, mode: str) -> Any:
    n, c, h, w = x.shape
    if mode == "CRD":
        return torch.nn.functional.pixel_shuffle(x, 2)
    return x.reshape(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(
        n, c // 4, h * 2, w * 2)  # fmt: skip


def _space_to_depth(torch: Any, x: Any, mode: str) -> Any:
    n, c, h, w = x.shape
    if mode == "CRD":
        return torch.nn.functional.pixel_unshuffle(x, 2)
    return x.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(
        n, c * 4, h // 2, w // 2)  # fmt: skip


for _mode in ("DCR", "CRD"):
    add(
        f"depth_to_space {_mode}",
        "DepthToSpace",
        lambda x, mode=_mode: autograd.depth_to_space(x, 2, mode),
        lambda torch, x, mode=_mode: _depth_to_space(torch, x, mode),
        [_random(2, 8, 2, 3)],
    )
    add(
        f"space_to_depth {_mode}",
        "SpaceToDepth",
        lambda x, mode=_mode: autograd.space_to_depth(x, 2, mode),
        lambda torch, x, mode=_mode: _space_to_depth(torch, x, mode),
        [_random(2, 2, 4, 6)],
    )
add(
    "pixel_shuffle",
    "DepthToSpace",
    lambda x: autograd.pixel_shuffle(x, 2),
    lambda torch, x: torch.nn.functional.pixel_shuffle(x, 2),
    [_random(2, 8, 2, 3)],
)
add(
    "pixel_unshuffle",
    "SpaceToDepth",
    lambda x: autograd.pixel_unshuffle(x, 2),
    lambda torch, x: torch.nn.functional.pixel_unshuffle(x, 2),
    [_random(2, 2, 4, 6)],
)
for _groups in (2, 3, 6):
    add(
        f"channel_shuffle {_groups}",
        "ChannelShuffle",
        lambda x, groups=_groups: autograd.channel_shuffle(x, groups),
        lambda torch, x, groups=_groups: x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2),
        [_random(2, 6, 2, 3)],
    )
add("cast", "Cast", lambda x: autograd.cast(x, "float64"), lambda torch, x: x.double(), [_X])
add(
    "cast to int",
    "Cast",
    lambda x: autograd.cast(x * 3, "int32"),
    lambda torch, x: (x * 3).int(),
    [_X],
    differentiable=False,
)
add(
    "shape",
    "Shape",
    autograd.shape,
    lambda torch, x: torch.tensor(x.shape),
    [_X],
    differentiable=False,
)
add(
    "constant_of_shape",
    "ConstantOfShape",
    lambda x: autograd.constant_of_shape(x, 2.5),
    lambda torch, x: torch.full((2, 3), 2.5),
    [np.array([2.0, 3.0])],
    differentiable=False,
)

# Selection of elements.

add(
    "gather",
    "Gather",
    lambda x: autograd.gather(x, 1, [[0, 3], [-1, 3]]),
    lambda torch, x: x[:, torch.tensor([[0, 3], [3, 3]])],
    [_X],
)
add(
    "index by an array",
    "Gather",
    lambda x: x[1:, [0, 3, 0]],
    lambda torch, x: x[1:, [0, 3, 0]],
    [_X],
    one_step=False,
)
_INDICES = np.array([[1, 0, 2], [0, 2, 1]])
add(
    "scatter_elements",
    "ScatterElements",
    lambda x: autograd.scatter_elements(x, _INDICES, np.ones((2, 3)) * 2.0),
    lambda torch, x: x.scatter(0, torch.tensor(_INDICES), 2.0),
    [_random(3, 3)],
)
add(
    "scatter_elements of a parameter",
    "ScatterElements",
    lambda x, u: autograd.scatter_elements(x, _INDICES, u, 1),
    lambda torch, x, u: x.scatter(1, torch.tensor(_INDICES), u),
    [_random(3, 3), _random(2, 3)],
)
_PICKS = np.array([[[1, 0, -1], [0, 2, 1]]])
add(
    "gather_elements",
    "GatherElements",
    lambda x: autograd.gather_elements(x, _PICKS, 0),
    lambda torch, x: torch.gather(x, 0, torch.tensor(_PICKS % 3)),
    [_X],
)
add(
    "take_along_axis",
    "GatherElements",
    lambda x: autograd.take_along_axis(x, _PICKS[:, :1], 2),
    lambda torch, x: torch.take_along_dim(x, torch.tensor(_PICKS[:, :1] % 5), 2),
    [_X],
)
_PLACES = np.array([[[0, 1], [2, -1]], [[0, 1], [1, 2]]])
add(
    "gather_nd",
    "GatherND",
    lambda x: autograd.gather_nd(x, _PLACES),
    lambda torch, x: x[torch.tensor(_PLACES[..., 0]), torch.tensor(_PLACES[..., 1] % 4)],
    [_X],
)
add(
    "gather_nd of batches",
    "GatherND",
    lambda x: autograd.gather_nd(x, np.array([[1], [0], [-1]]), 1),
    lambda torch, x: x[torch.arange(3), torch.tensor([1, 0, 3])],
    [_X],
)
add(
    "scatter_nd",
    "ScatterND",
    lambda x: autograd.scatter_nd(x, [[2], [0]], np.full((2, 4, 5), 0.5)),
    lambda torch, x: torch.cat([torch.full_like(x[:1], 0.5), x[1:2], torch.full_like(x[:1], 0.5)]),
    [_X],
)
# Updates of one place several times, and places without one.
_HITS = np.array([[0, 2, 0, 0, 2], [1, 1, 1, 0, 2], [0, 2, 1, 0, 2], [0, 0, 1, 0, 2]])
_FEW, _MANY = _apart(3, 5, seed=6) / 8, _apart(4, 5, seed=5) / 8
for _reduction, _torch in [("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")]:
    add(
        f"scatter_elements, {_reduction}",
        "ScatterElements",
        lambda x, u, how=_reduction: autograd.scatter_elements(x, _HITS, u, 0, how),
        lambda torch, x, u, how=_torch: x.scatter_reduce(0, torch.tensor(_HITS), u, how),
        [_FEW, _MANY],
    )
    add(
        f"scatter_nd, {_reduction}",
        "ScatterND",
        lambda x, u, how=_reduction: autograd.scatter_nd(x, [[1], [0], [1], [1]], u, how),
        lambda torch, x, u, how=_torch: x.scatter_reduce(
            0, torch.tensor([[1], [0], [1], [1]]).expand(4, 5), u, how
        ),
        [_FEW, _MANY],
    )
for _largest in (True, False):
    add(
        f"topk, largest {_largest}",
        "TopK",
        lambda x, largest=_largest: autograd.topk(x, 3, 1, largest)[0],
        lambda torch, x, largest=_largest: torch.topk(x, 3, 1, largest)[0],
        [_X],
    )
    add(
        f"sort, descending {_largest}",
        "TopK",
        lambda x, down=_largest: autograd.sort(x, descending=down)[0],
        lambda torch, x, down=_largest: torch.sort(x, descending=down)[0],
        [_X],
    )
add(
    "argsort",
    "TopK",
    lambda x: autograd.argsort(x, 0),
    lambda torch, x: torch.sort(x, dim=0, stable=True).indices,
    [np.round(_X * 2)],
    differentiable=False,
)
for _axis in (0, 1, 2):
    add(
        f"cumsum along {_axis}",
        "CumSum",
        lambda x, axis=_axis: autograd.cumsum(x, axis),
        lambda torch, x, axis=_axis: torch.cumsum(x, axis),
        [_X],
    )
add(
    "cumsum, exclusive and reverse",
    "CumSum",
    lambda x: autograd.cumsum(x, -1, exclusive=True, reverse=True),
    lambda torch, x: torch.nn.functional.pad(
        torch.cumsum(x.flip(-1), -1).flip(-1)[..., 1:], (0, 1)
    ),
    [_X],
)
for _k in (-1, 0, 2):
    add(
        f"triu from {_k}",
        "Triangle",
        lambda x, k=_k: autograd.triu(x, k),
        lambda torch, x, k=_k: torch.triu(x, k),
        [_X],
    )
    add(
        f"tril to {_k}",
        "Triangle",
        lambda x, k=_k: autograd.tril(x, k),
        lambda torch, x, k=_k: torch.tril(x, k),
        [_X],
    )
add(
    "where",
    "Where",
    lambda x, y: autograd.where(x, y, np.array([[True], [False], [True]])),
    lambda torch, x, y: torch.where(torch.tensor([[True], [False], [True]]), x, y),
    [_random(3, 4), _random(4, seed=3)],
)
add(
    "embedding",
    "Embedding",
    lambda x, w: autograd.embedding(x, w),
    lambda torch, x, w: w[x.long()],
    [np.array([[0, 2, 1], [4, 2, 2]]), _random(5, 3)],
    constants=(0,),
)
add(
    "onehot",
    "OneHot",
    lambda x: autograd.onehot(1, x, 4, [0.5, 2.0]),
    lambda torch, x: torch.nn.functional.one_hot(x.long(), 4).permute(0, 2, 1) * 1.5 + 0.5,
    [np.array([[0, 2, 1], [3, 2, 2]])],
    differentiable=False,
    constants=(0,),
)
add(
    "nonzero",
    "NonZero",
    autograd.nonzero,
    lambda torch, x: torch.nonzero(x).T,
    [np.array([[0.0, 1.0, -2.0], [3.0, 0.0, 0.0]])],
    differentiable=False,
)

# Losses.

_P = _random(5, 4, low=0.05, high=0.95)
_T = np.array([0, 3, 1, 1, 2])
_SOFT = np.random.default_rng(3).dirichlet(np.ones(4), 5)
add(
    "softmax_cross_entropy, classes",
    "SoftMaxCrossEntropy",
    lambda x: autograd.softmax_cross_entropy(x, _T.astype(np.int32)),
    lambda torch, x: torch.nn.functional.cross_entropy(x, torch.tensor(_T)).reshape(1),
    [_random(5, 4)],
)
add(
    "softmax_cross_entropy, probabilities",
    "SoftMaxCrossEntropy",
    lambda x: autograd.softmax_cross_entropy(x, _SOFT),
    lambda torch, x: torch.nn.functional.cross_entropy(
        x, torch.tensor(_SOFT, dtype=x.dtype)
    ).reshape(1),
    [_random(5, 4)],
)
add(
    "softmax_cross_entropy, smoothed",
    "SoftMaxCrossEntropy",
    lambda x: autograd.softmax_cross_entropy(x, _T, 0.1),
    lambda torch, x: torch.nn.functional.cross_entropy(
        x, torch.tensor(_T), label_smoothing=0.1
    ).reshape(1),
    [_random(5, 4)],
)
add(
    "cross_entropy",
    "CrossEntropy",
    lambda x: autograd.cross_entropy(x, np.eye(4)[_T]),
    lambda torch, x: -(torch.tensor(np.eye(4)[_T]) * torch.log(x)).sum().reshape(1) / 5,
    [_P],
)
add(
    "binary_cross_entropy",
    "BinaryCrossEntropy",
    lambda x: autograd.binary_cross_entropy(x, np.eye(4)[_T]),
    lambda torch, x: (
        torch.nn.functional.binary_cross_entropy(
            x, torch.tensor(np.eye(4)[_T], dtype=x.dtype), reduction="sum"
        ).reshape(1)
        / 5
    ),
    [_P],
)
add(
    "mse_loss",
    "MeanSquareError",
    lambda x: autograd.mse_loss(x, _SOFT),
    lambda torch, x: torch.nn.functional.mse_loss(x, torch.tensor(_SOFT, dtype=x.dtype)).reshape(1),
    [_random(5, 4)],
)

# Sampling and windows.

_GRID = _random(2, 4, 5, 2, low=-1.3, high=1.3)
_VOLUME_GRID = _random(2, 2, 3, 2, 3, low=-1.3, high=1.3)
for _mode, _padding, _align in [
    ("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False),
    ("nearest", "zeros", True), ("nearest", "reflection", False), ("bicubic", "zeros", False),
    ("bicubic", "border", False), ("bicubic", "reflection", True),
]:  # fmt: skip
    for _axes in (2, 3)[: 2 - (_mode == "bicubic")]:
        add(
            f"grid_sample over {_axes} axes, {_mode}, {_padding}, align {_align}",
            "GatherElements Floor",
            lambda x, grid, how=(_mode, _padding, _align): autograd.grid_sample(x, grid, *how),
            lambda torch, x, grid, how=(_mode, _padding, _align): torch.nn.functional.grid_sample(
                x, grid, *how
            ),
            [_random(2, 3, 5, 4), _GRID] if _axes == 2 else [_random(2, 2, 3, 5, 4), _VOLUME_GRID],
            constants=(1,) if _mode == "nearest" else (),
            tolerance=512,
            one_step=False,
        )
for _name, _arguments in [
    ("plain", (2,)), ("all", ((3, 2), (1, 2), (1, 0), (2, 1))), ("one element", (1, 1, 1, 2)),
]:  # fmt: skip
    add(
        f"unfold, {_name}",
        "Slice Concat Pad",
        lambda x, given=_arguments: autograd.unfold(x, *given),
        lambda torch, x, given=_arguments: torch.nn.functional.unfold(x, *given),
        [_random(2, 3, 6, 5)],
        one_step=False,
    )
for _name, _columns, _arguments in [
    ("plain", (2, 12, 20), ((6, 5), 2)),
    ("all", (2, 18, 9), ((6, 5), (3, 2), (1, 2), (1, 0), (2, 1))),
    ("crops", (2, 27, 4), (4, 3, 1, 1, 2)),
]:
    add(
        f"fold, {_name}",
        "Slice Pad",
        lambda x, given=_arguments: autograd.fold(x, *given),
        lambda torch, x, given=_arguments: torch.nn.functional.fold(x, *given),
        [_random(*_columns)],
        one_step=False,
    )
add(
    "masked_scatter",
    "CumSum Gather Where",
    lambda x, mask, source: autograd.masked_scatter(x, mask, source),
    lambda torch, x, mask, source: torch.masked_scatter(x, mask, source),
    [_random(3, 4), np.arange(12).reshape(3, 4) % 3 == 1, _random(5)],
    constants=(1,),
    one_step=False,
)
for _right in (False, True):
    add(
        f"searchsorted, right {_right}",
        "ReduceSum",
        lambda x, v, right=_right: autograd.searchsorted(x, v, right),
        lambda torch, x, v, right=_right: torch.searchsorted(x, v, right=right),
        [np.sort(np.round(4 * _random(2, 9))) / 4, np.round(4 * _random(2, 6)) / 4],
        differentiable=False,
        one_step=False,
    )
    add(
        f"searchsorted in one sequence, right {_right}",
        "ReduceSum",
        lambda x, v, right=_right: autograd.searchsorted(x, v, right),
        lambda torch, x, v, right=_right: torch.searchsorted(x, v, right=right),
        [np.array([-1.0, 0.5, 0.5, 2.0]), np.array([[0.5, -2.0, 0.0], [2.0, 3.0, -1.0]])],
        differentiable=False,
        one_step=False,
    )

_PIXELS = _random(2, 3, 2, 4)
_MAP = np.array([[[0, 2, 1, 9], [1, 1, 0, 2]], [[2, 9, 9, 0], [0, 1, 2, 2]]])
_MASKS = (_random(2, 3, 2, 4, seed=1) > 0.3).astype(np.float64)
_CLASS_WEIGHTS = np.array([0.5, 2.0, 1.25])


for _reduction in ("mean", "sum", "none"):
    add(
        f"softmax_cross_entropy of pixels, {_reduction}",
        "GatherElements LogSoftMax",
        lambda x, t, w, how=_reduction: autograd.softmax_cross_entropy(x, t, 0.1, w, 9, how),
        lambda torch, x, t, w, how=_reduction: torch.nn.functional.cross_entropy(
            x, t, w.to(x.dtype), ignore_index=9, label_smoothing=0.1, reduction=how
        ).reshape((2, 2, 4) if how == "none" else 1),
        [_PIXELS, _MAP, _CLASS_WEIGHTS],
        constants=(1, 2),
        one_step=False,
    )
    add(
        f"nll_loss, {_reduction}",
        "GatherElements",
        lambda x, t, how=_reduction: autograd.nll_loss(x, t, None, 9, how),
        lambda torch, x, t, how=_reduction: torch.nn.functional.nll_loss(
            x, t, ignore_index=9, reduction=how
        ).reshape((2, 2, 4) if how == "none" else 1),
        [_PIXELS, _MAP],
        constants=(1,),
        one_step=False,
    )
add(
    "softmax_cross_entropy of pixels, probabilities",
    "LogSoftMax",
    lambda x, t, w: autograd.softmax_cross_entropy(x, t, 0.2, w),
    lambda torch, x, t, w: torch.nn.functional.cross_entropy(x, t, w, label_smoothing=0.2).reshape(
        1
    ),
    [_PIXELS, _random(2, 3, 2, 4, seed=3, low=0.1, high=1.0), _CLASS_WEIGHTS],
    one_step=False,
)


def _reduced(loss: Any, how: str) -> Any:
    return loss if how == "none" else getattr(loss, how)().reshape(1)


def loss(name: str, x: Any, t: Any, covers: str, **options: Any) -> None:
    """A loss of pairs of elements. Targets get gradients, too."""
    for how in ("mean", "sum", "none")[name == "mse_loss" :]:
        add(
            f"{name} over pairs, {how}{' in logarithms' * ('log_target' in options)}",
            covers,
            lambda x, t, how=how: getattr(autograd, name)(x, t, reduction=how, **options),
            lambda torch, x, t, how=how: _reduced(
                getattr(torch.nn.functional, name)(x, t, reduction="none", **options), how
            ),
            [x, t],
            one_step=False,
        )


loss("l1_loss", _random(5, 4), _SOFT, "Abs")
loss("mse_loss", _random(5, 4), _SOFT, "Square")
loss("huber_loss", _random(5, 4), _SOFT, "Clip", delta=0.7)
loss("smooth_l1_loss", _random(5, 4), _SOFT, "Clip", beta=0.7)
loss("kl_div", np.log(_P), _SOFT, "Log")
loss("kl_div", np.log(_P), np.log(_SOFT), "Exp", log_target=True)
loss("binary_cross_entropy_with_logits", 3 * _random(5, 4), _SOFT, "SoftPlus")
add(
    "kl_div, batchmean",
    "Log",
    lambda x, t: autograd.kl_div(x, t, "batchmean"),
    lambda torch, x, t: torch.nn.functional.kl_div(x, t, reduction="batchmean").reshape(1),
    [np.log(_P), _SOFT],
    one_step=False,
)
add(
    "binary_cross_entropy_with_logits, weights",
    "SoftPlus",
    lambda x, t, w, p: autograd.binary_cross_entropy_with_logits(x, t, w, p),
    lambda torch, x, t, w, p: torch.nn.functional.binary_cross_entropy_with_logits(
        x, t, w, pos_weight=p
    ).reshape(1),
    [3 * _random(5, 4), _SOFT, *(np.array(w) for w in ([[0.5]] * 5, [2.0, 0.25, 1.0, 3.5]))],
    constants=(2, 3),
    one_step=False,
)


def _focal(torch: Any, x: Any, t: Any, alpha: float, gamma: float) -> Any:
    p = torch.sigmoid(x)
    loss = -t * (1 - p) ** gamma * torch.log(p) * (alpha if alpha >= 0 else 1)
    other = -(1 - t) * p**gamma * torch.log(1 - p) * (1 - alpha if alpha >= 0 else 1)
    return (loss + other).mean().reshape(1)


for _alpha, _gamma in ((0.25, 2.0), (-1.0, 1.5)):
    add(
        f"sigmoid_focal_loss, alpha {_alpha}",
        "SoftPlus Sigmoid",
        lambda x, t, a=_alpha, g=_gamma: autograd.sigmoid_focal_loss(x, t, a, g),
        lambda torch, x, t, a=_alpha, g=_gamma: _focal(torch, x, t, a, g),
        [_PIXELS, _MASKS],
        constants=(1,),
        one_step=False,
    )


def _dice(torch: Any, p: Any, t: Any) -> Any:
    both, each = (p * t).sum((2, 3)), (p + t).sum((2, 3))
    return (1 - (2 * both + 0.5) / (each + 0.5)).mean().reshape(1)


add(
    "dice_loss of masks",
    "Sigmoid",
    lambda x, t: autograd.dice_loss(x, t, 0.5),
    lambda torch, x, t: _dice(torch, torch.sigmoid(x), t),
    [_PIXELS, _MASKS],
    constants=(1,),
    one_step=False,
)
add(
    "dice_loss of classes",
    "SoftMax OneHot",
    lambda x, t: autograd.dice_loss(x, t, 0.5),
    lambda torch, x, t: _dice(
        torch, torch.softmax(x, 1), torch.nn.functional.one_hot(t, 3).permute(0, 3, 1, 2)
    ),
    [_PIXELS, np.where(_MAP == 9, 0, _MAP)],
    constants=(1,),
    one_step=False,
)

# Operators of networks. ops/test_*.py tests more geometries.


def _handle(kind: Any, x: Any, *args: Any) -> Any:
    return kind(x.data, *args)


add(
    "conv2d",
    "_Conv2d",
    lambda x, w, b: autograd.conv2d(
        _handle(wrap.ConvHandle, x, [3, 3], [2, 1], [1, 1], 4, 6, True, 2), x, w, b
    ),
    lambda torch, x, w, b: torch.nn.functional.conv2d(x, w, b, (2, 1), 1, 1, 2),
    [_random(2, 4, 7, 6), _random(6, 2, 3, 3), _random(6)],
)
add(
    "conv2d, odd padding",
    "_Conv2d",
    lambda x, w: autograd.conv2d(
        wrap.ConvHandle(wrap.Tensor((2, 3, 6, 8)), [3, 3], [1, 1], [0, 0], 3, 4, False),
        x,
        w,
        None,
        (0, 1, 2, 1),
    ),
    lambda torch, x, w: torch.nn.functional.conv2d(torch.nn.functional.pad(x, (2, 1, 0, 1)), w),
    [_random(2, 3, 5, 5), _random(4, 3, 3, 3)],
)
add(
    "conv1d",
    "_Conv",
    lambda x, w, b: autograd.conv1d(
        _handle(wrap.ConvHandle, x, [3], [2], [1, 0], 4, 6, True, 2), x, w, b
    ),
    lambda torch, x, w, b: torch.nn.functional.conv1d(
        torch.nn.functional.pad(x, (1, 0)), w, b, 2, 0, 1, 2
    ),
    [_random(2, 4, 9), _random(6, 2, 3), _random(6)],
)
add(
    "conv3d",
    "_Conv",
    lambda x, w, b: autograd.conv3d(
        _handle(wrap.ConvHandle, x, [2, 3, 3], [1, 2, 1], [1, 1, 0], 2, 3), x, w, b
    ),
    lambda torch, x, w, b: torch.nn.functional.conv3d(x, w, b, (1, 2, 1), (1, 1, 0)),
    [_random(2, 2, 3, 5, 4), _random(3, 2, 2, 3, 3), _random(3)],
)
add(
    "conv_transpose1d",
    "_ConvTranspose",
    lambda x, w, b: autograd.conv_transpose1d(
        _handle(wrap.ConvTransposeHandle, x, [3], [2], [1], [1], 4, 6, True, 2), x, w, b
    ),
    lambda torch, x, w, b: torch.nn.functional.conv_transpose1d(x, w, b, 2, 1, 1, 2),
    [_random(2, 4, 6), _random(4, 3, 3), _random(6)],
)
add(
    "conv_transpose3d",
    "_ConvTranspose",
    lambda x, w, b: autograd.conv_transpose3d(
        _handle(wrap.ConvTransposeHandle, x, [2, 3, 2], [1, 2, 2], [0, 1, 0], [0, 1, 0], 2, 3),
        *(x, w, b),
    ),
    lambda torch, x, w, b: torch.nn.functional.conv_transpose3d(
        x, w, b, (1, 2, 2), (0, 1, 0), (0, 1, 0)
    ),
    [_random(2, 2, 2, 3, 3), _random(2, 3, 2, 3, 2), _random(3)],
)
add(
    "conv_transpose2d",
    "_ConvTranspose2d",
    lambda x, w, b: autograd.conv_transpose2d(
        _handle(wrap.ConvTransposeHandle, x, [3, 3], [2, 2], [1, 1], [1, 0], 4, 6, True, 2), x, w, b
    ),
    lambda torch, x, w, b: torch.nn.functional.conv_transpose2d(x, w, b, 2, 1, (1, 0), 2),
    [_random(2, 4, 5, 6), _random(4, 3, 3, 3), _random(6)],
)
add(
    "pooling_2d, maximum",
    "_Pooling2d",
    lambda x: autograd.pooling_2d(_handle(wrap.PoolingHandle, x, [3, 2], [2, 2], [1, 1], True), x),
    lambda torch, x: torch.nn.functional.max_pool2d(x, (3, 2), 2, 1),
    [_apart(2, 3, 7, 6)],
)
add(
    "pooling_2d, average",
    "_Pooling2d",
    lambda x: autograd.pooling_2d(_handle(wrap.PoolingHandle, x, [3, 2], [2, 2], [1, 1], False), x),
    lambda torch, x: torch.nn.functional.avg_pool2d(x, (3, 2), 2, 1, count_include_pad=False),
    [_random(2, 3, 7, 6)],
)
add(
    "pooling_2d, odd padding",
    "_Pooling2d",
    lambda x: autograd.pooling_2d(
        wrap.PoolingHandle(wrap.Tensor((2, 3, 6, 6)), [2, 2], [2, 2], [0, 0], True), x, (0, 1, 1, 0)
    ),
    lambda torch, x: torch.nn.functional.max_pool2d(
        torch.nn.functional.pad(x, (1, 0, 0, 1), value=-1e30), 2
    ),
    [_apart(2, 3, 5, 5)],
)
add(
    "pooling_1d",
    "_Pooling",
    lambda x: autograd.pooling_1d(_handle(wrap.PoolingHandle, x, [3], [2], [1], True), x),
    lambda torch, x: torch.nn.functional.max_pool1d(x, 3, 2, 1),
    [_apart(2, 3, 11)],
)
add(
    "pooling_3d",
    "_Pooling",
    lambda x: autograd.pooling_3d(
        _handle(wrap.PoolingHandle, x, [2, 3, 2], [1, 2, 2], [1, 1, 0], False), x
    ),
    lambda torch, x: torch.nn.functional.avg_pool3d(
        x, (2, 3, 2), (1, 2, 2), (1, 1, 0), count_include_pad=False
    ),
    [_random(2, 3, 3, 5, 4)],
)
add(
    "lp_pool",
    "LpPool",
    lambda x: autograd.lp_pool(_handle(wrap.PoolingHandle, x, [2, 3], [2, 1], [0, 0], False), x, 3),
    lambda torch, x: torch.nn.functional.lp_pool2d(x.abs(), 3, (2, 3), (2, 1)),
    [_apart(2, 3, 5, 6) / 8],
)
add(
    "adaptive_avg_pool",
    "AdaptiveAvgPool",
    lambda x: autograd.adaptive_avg_pool(x, (3, None)),
    lambda torch, x: torch.nn.functional.adaptive_avg_pool2d(x, (3, None)),
    [_random(2, 3, 7, 5)],
)
add(
    "adaptive_max_pool",
    "AdaptiveMaxPool",
    lambda x: autograd.adaptive_max_pool(x, 4),
    lambda torch, x: torch.nn.functional.adaptive_max_pool1d(x, 4),
    [_apart(2, 3, 9)],
)
add(
    "globalmaxpool",
    "GlobalMaxPool",
    autograd.globalmaxpool,
    lambda torch, x: torch.nn.functional.adaptive_max_pool3d(x, 1),
    [_apart(2, 3, 2, 4, 5)],
)
add(
    "globalmaxpool, channels last",
    "GlobalMaxPool",
    lambda x: autograd.globalmaxpool(x, "channels_last"),
    lambda torch, x: torch.nn.functional.adaptive_max_pool2d(x.movedim(3, 1), 1).movedim(1, 3),
    [_apart(2, 4, 5, 3)],
)
add(
    "globalaveragepool",
    "GlobalAveragePool",
    autograd.globalaveragepool,
    lambda torch, x: x.mean((2, 3), keepdim=True),
    [_random(2, 3, 4, 5)],
)
add(
    "globalaveragepool, channels last",
    "GlobalAveragePool",
    lambda x: autograd.globalaveragepool(x, "channels_last"),
    lambda torch, x: x.mean((1, 2), keepdim=True),
    [_random(2, 4, 5, 3)],
)


def _batchnorm(x: Any, scale: Any, bias: Any, add: Any = None, **activation: Any) -> Any:
    running = [wrap.Full((4,), value, x.device, int(x.dtype)) for value in (0.0, 1.0)]
    handle = wrap.BatchNormHandle(0.9, x.data)
    return autograd.batchnorm_2d(handle, x, scale, bias, *running, add=add, **activation)


def _torch_batchnorm(torch: Any, x: Any, scale: Any, bias: Any) -> Any:
    running = torch.zeros(4, dtype=x.dtype), torch.ones(4, dtype=x.dtype)
    return torch.nn.functional.batch_norm(x, *running, scale, bias, True)


_NORMALIZED = [_random(3, 4, 5, 2), _random(4, low=0.5, high=1.5), _random(4)]
_RESIDUAL = _random(3, 4, 5, 2, seed=3)
add("batchnorm_2d", "_BatchNorm2d", _batchnorm, _torch_batchnorm, _NORMALIZED)
add(
    "batchnorm_2d and relu",
    "_BatchNorm2d",
    lambda x, s, b: _batchnorm(x, s, b, relu=True),
    lambda torch, x, s, b: torch.relu(_torch_batchnorm(torch, x, s, b)),
    _NORMALIZED,
)
for _name in ("relu6", "hardswish", "silu"):
    add(
        f"batchnorm_2d and {_name}",
        "_BatchNorm2d",
        lambda x, s, b, name=_name: _batchnorm(x, s, b, activation=name),
        lambda torch, x, s, b, name=_name: getattr(torch.nn.functional, name)(
            _torch_batchnorm(torch, x, s, b)
        ),
        [_NORMALIZED[0], _random(4, low=3.0, high=6.0), _NORMALIZED[2]],
    )
add(
    "batchnorm_2d and a residual",
    "_BatchNorm2d",
    _batchnorm,
    lambda torch, x, s, b, z: _torch_batchnorm(torch, x, s, b) + z,
    [*_NORMALIZED, _RESIDUAL],
)
add(
    "batchnorm_2d, a residual and relu",
    "_BatchNorm2d",
    lambda x, s, b, z: _batchnorm(x, s, b, z, relu=True),
    lambda torch, x, s, b, z: torch.relu(_torch_batchnorm(torch, x, s, b) + z),
    [*_NORMALIZED, _RESIDUAL],
)


def _sync_batchnorm(x: Any, scale: Any, bias: Any, add: Any = None, **activation: Any) -> Any:
    running = [wrap.Full((4,), value, x.device, int(x.dtype)) for value in (0.0, 1.0)]
    handle = wrap.BatchNormHandle(0.9, x.data)
    op = normalization._SyncBatchNorm2d(handle, *running, Alone(), **activation)
    return op(x, scale, bias)[0] if add is None else op(x, scale, bias, add)[0]


add("sync_batchnorm_2d", "_SyncBatchNorm2d", _sync_batchnorm, _torch_batchnorm, _NORMALIZED)
add(
    "sync_batchnorm_2d and relu6",
    "_SyncBatchNorm2d",
    lambda x, s, b: _sync_batchnorm(x, s, b, activation="relu6"),
    lambda torch, x, s, b: torch.nn.functional.relu6(_torch_batchnorm(torch, x, s, b)),
    [_NORMALIZED[0], _random(4, low=3.0, high=6.0), _NORMALIZED[2]],
)
add(
    "sync_batchnorm_2d, a residual and relu",
    "_SyncBatchNorm2d",
    lambda x, s, b, z: _sync_batchnorm(x, s, b, z, relu=True),
    lambda torch, x, s, b, z: torch.relu(_torch_batchnorm(torch, x, s, b) + z),
    [*_NORMALIZED, _RESIDUAL],
)
_WEIGHTED = [_random(3, 4, 6), _random(6, seed=1), _random(6, seed=2)]
_IMAGES = [_random(2, 6, 3, 5), _random(6, seed=1), _random(6, seed=2)]
add(
    "layer_norm",
    "LayerNorm",
    autograd.layer_norm,
    lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (6,), w, b),
    _WEIGHTED,
)
add(
    "layer_norm of two axes, without bias",
    "LayerNorm",
    lambda x, w: autograd.layer_norm(x, w, axis=-2, eps=0.1),
    lambda torch, x, w: torch.nn.functional.layer_norm(x, (4, 6), w, None, 0.1),
    [_random(3, 4, 6), _random(4, 6, seed=1)],
)
add(
    "rms_norm",
    "LayerNorm",
    autograd.rms_norm,
    lambda torch, x, w: torch.nn.functional.rms_norm(x, (6,), w),
    _WEIGHTED[:2],
)
add(
    "channel_norm",
    "ChannelNorm",
    autograd.channel_norm,
    lambda torch, x, w, b: torch.nn.functional.layer_norm(x.movedim(1, -1), (6,), w, b).movedim(
        -1, 1
    ),
    _IMAGES,
)
add(
    "group_norm",
    "GroupNorm",
    lambda x, w, b: autograd.group_norm(x, 2, w, b),
    lambda torch, x, w, b: torch.nn.functional.group_norm(x, 2, w, b),
    _IMAGES,
)
add(
    "instance_norm",
    "GroupNorm",
    autograd.instance_norm,
    lambda torch, x: torch.nn.functional.instance_norm(x),
    _IMAGES[:1],
)
add(
    "lrn",
    "LRN",
    lambda x: autograd.lrn(x, 5, 0.1, 0.75, 2.0),
    lambda torch, x: torch.nn.functional.local_response_norm(x, 5, 0.1, 0.75, 2.0),
    [_random(2, 7, 3, 3)],
)
