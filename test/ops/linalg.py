"""Matrix products."""

from ops.case import Family, uniform
from singa import autograd

CASES = Family()
add = CASES.add

add("matmul", "Matmul", autograd.matmul, lambda a, b: a @ b, [uniform(4, 6), uniform(6, 3)])
add(
    "matmul of batches",
    "Matmul",
    autograd.matmul,
    lambda a, b: a @ b,
    [uniform(2, 3, 4, 6), uniform(3, 6, 5)],
)
add(
    "matmul with a vector",
    "Matmul",
    autograd.matmul,
    lambda a, b: a @ b,
    [uniform(4, 6), uniform(6)],
)
for _ta, _tb in [(0, 0), (1, 0), (0, 1), (1, 1)]:
    _ab = [uniform(6, 4) if _ta else uniform(4, 6), uniform(3, 6) if _tb else uniform(6, 3)]
    _c = [uniform(1, 3, seed=5)]
    _wide = [uniform(200, 12, seed=_ta), uniform(12, 520, seed=_tb)]
    add(
        f"gemm of several blocks, transposed {_ta}{_tb}",
        "Gemm",
        lambda a, b, ta=_ta, tb=_tb: autograd.gemm(a, b, None, 1.0, 1.0, ta, tb),
        lambda a, b, ta=_ta, tb=_tb: (a.T if ta else a) @ (b.T if tb else b),
        [_wide[0].T if _ta else _wide[0], _wide[1].T if _tb else _wide[1]],
        large=True,
    )
    add(
        f"gemm, transposed {_ta}{_tb}",
        "Gemm",
        lambda a, b, c, ta=_ta, tb=_tb: autograd.gemm(a, b, c, 0.7, 0.3, ta, tb),
        lambda a, b, c, ta=_ta, tb=_tb: 0.7 * (a.T if ta else a) @ (b.T if tb else b) + 0.3 * c,
        _ab + _c,
    )
add(
    "gemm without C",
    "Gemm",
    lambda a, b: autograd.gemm(a, b, alpha=2.0),
    lambda a, b: 2 * a @ b,
    [uniform(4, 6), uniform(6, 3)],
)
add(
    "add_bias to rows",
    "AddBias",
    autograd.add_bias,
    lambda x, b: x + b,
    [uniform(4, 6), uniform(6)],
)
add(
    "add_bias to columns",
    "AddBias",
    lambda x, b: autograd.add_bias(x, b, 1),
    lambda x, b: x + b[:, None],
    [uniform(4, 6), uniform(4)],
)
add(
    "linear",
    "Linear",
    autograd.linear,
    lambda x, w, b: x @ w + b,
    [uniform(4, 6), uniform(6, 3), uniform(3)],
)
add(
    "linear, transposed weight",
    "Linear",
    lambda x, w: autograd.linear(x, w, transposed=True),
    lambda x, w: x @ w.T,
    [uniform(4, 6), uniform(3, 6)],
)
