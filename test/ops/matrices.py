"""Matrices from vectors, diagonals, and functions of bits."""

from typing import Any

import numpy as np
from ops.case import VALUES, Family, X, torch, uniform
from singa import autograd

CASES = Family()
add, call = CASES.add, CASES.call

_SQUARE, _VECTOR = uniform(4, 5), uniform(4)


def _trace(x: Any, k: int) -> Any:
    return torch.diagonal(x, k).sum(-1)


for _k in (-2, 0, 1, 7, -7):
    for _x in (_SQUARE, _VECTOR):
        call(f"diag {_k} of {_x.ndim} axes", "Pad Slice Reshape", [_x], _k, one_step=False)
    call(f"trace {_k}", "Slice ReduceSum", [_SQUARE], _k, theirs=_trace, one_step=False)
    call(f"diagonal {_k} of axes 2 and 0", "Slice Transpose", [X], _k, -1, 0, one_step=False)
call("outer", "Mul Reshape", [_VECTOR, uniform(3)], one_step=False)
for _a, _b in ((uniform(2, 3), uniform(3, 2)), (uniform(2), uniform(2, 1, 3)), (X, _VECTOR)):
    call(f"kron of {_a.shape}", "Mul Reshape", [_a, _b], one_step=False)


def _grid(function: Any, xs: Any, indexing: str) -> Any:
    a, b, c = function(*xs, indexing=indexing)
    return a + b * b + a * c


for _indexing in ("ij", "xy"):
    add(
        *(f"meshgrid, {_indexing}", "Expand Reshape"),
        lambda *xs, way=_indexing: _grid(autograd.meshgrid, xs, way),
        lambda *xs, way=_indexing: _grid(torch.meshgrid, xs, way),
        [uniform(2), uniform(3), uniform(4)],
        one_step=False,
    )
for _axes in (None, 1, (0, -1)):
    call(f"count_nonzero over {_axes}", "ReduceSum", [np.round(X)], _axes, **VALUES)

_BITS = {"constants": (0, 1), "differentiable": False}
_INTEGERS = [np.array([[6, -7, 0], [1 << 20, -1, 255]]), np.array([3, 12, -2])]
_SHIFTED = [_INTEGERS[0], np.array([[0, 1, 31], [4, 2, 30]])]
for _name, _operator in (("and", "BitAnd"), ("or", "BitOr"), ("xor", "BitXor")):
    call(f"bitwise_{_name}", _operator, _INTEGERS, **_BITS)
for _name, _operator in (("left", "ShiftLeft"), ("right", "ShiftRight")):
    call(
        *(f"bitwise_{_name}_shift", _operator, _SHIFTED),
        theirs=lambda a, b, name=_name: getattr(torch, f"bitwise_{name}_shift")(a.int(), b.int()),
        **_BITS,
    )
for _name, _operator in (("gcd", "Gcd"), ("lcm", "Lcm")):
    call(_name, _operator, _INTEGERS, **_BITS)
call("bitwise_not", "Not", [_INTEGERS[0]], constants=(0,), differentiable=False)
