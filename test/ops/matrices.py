"""Matrices from vectors, diagonals, and functions of bits."""

from typing import Any

import numpy as np
from ops.case import Family, X, both, torch, uniform
from singa import autograd

CASES = Family()
add = CASES.add

_SQUARE, _VECTOR = uniform(4, 5), uniform(4)

for _k in (-2, 0, 1, 7, -7):
    for _x in (_SQUARE, _VECTOR):
        add(
            f"diag {_k} of {_x.ndim} axes",
            "Pad Slice Reshape",
            *both("diag", _k),
            [_x],
            one_step=False,
        )
    add(
        f"trace {_k}",
        "Slice ReduceSum",
        lambda x, k=_k: autograd.trace(x, k),
        lambda x, k=_k: torch.diagonal(x, k).sum(-1),
        [_SQUARE],
        one_step=False,
    )
    add(
        f"diagonal {_k} of axes 2 and 0",
        "Slice Transpose",
        *both("diagonal", _k, -1, 0),
        [X],
        one_step=False,
    )
add("outer", "Mul Reshape", *both("outer"), [_VECTOR, uniform(3)], one_step=False)
for _a, _b in ((uniform(2, 3), uniform(3, 2)), (uniform(2), uniform(2, 1, 3)), (X, _VECTOR)):
    add(f"kron of {_a.shape}", "Mul Reshape", *both("kron"), [_a, _b], one_step=False)


def _grid(function: Any, xs: Any, indexing: str) -> Any:
    a, b, c = function(*xs, indexing=indexing)
    return a + b * b + a * c


for _indexing in ("ij", "xy"):
    add(
        f"meshgrid, {_indexing}",
        "Expand Reshape",
        lambda *xs, way=_indexing: _grid(autograd.meshgrid, xs, way),
        lambda *xs, way=_indexing: _grid(torch.meshgrid, xs, way),
        [uniform(2), uniform(3), uniform(4)],
        one_step=False,
    )
for _axes in (None, 1, (0, -1)):
    add(
        f"count_nonzero over {_axes}",
        "ReduceSum",
        *both("count_nonzero", _axes),
        [np.round(X)],
        differentiable=False,
        one_step=False,
    )

_INTEGERS = [np.array([[6, -7, 0], [1 << 20, -1, 255]]), np.array([3, 12, -2])]
_DISTANCES = np.array([[0, 1, 31], [4, 2, 30]])
for _name, _operator in (("and", "BitAnd"), ("or", "BitOr"), ("xor", "BitXor")):
    add(
        f"bitwise_{_name}",
        _operator,
        *both(f"bitwise_{_name}"),
        _INTEGERS,
        constants=(0, 1),
        differentiable=False,
    )
for _name, _operator in (("left", "ShiftLeft"), ("right", "ShiftRight")):
    add(
        f"bitwise_{_name}_shift",
        _operator,
        getattr(autograd, f"bitwise_{_name}_shift"),
        lambda a, b, name=_name: getattr(torch, f"bitwise_{name}_shift")(a.int(), b.int()),
        [_INTEGERS[0], _DISTANCES],
        constants=(0, 1),
        differentiable=False,
    )
add(
    "bitwise_not",
    "Not",
    *both("bitwise_not"),
    [_INTEGERS[0]],
    constants=(0,),
    differentiable=False,
)
