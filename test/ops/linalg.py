"""Matrix products."""

from typing import Any

from ops.case import Family, uniform

CASES = Family()
call = CASES.call

call("matmul", "Matmul", [uniform(4, 6), uniform(6, 3)])
call("matmul of batches", "Matmul", [uniform(2, 3, 4, 6), uniform(3, 6, 5)])
call("matmul with a vector", "Matmul", [uniform(4, 6), uniform(6)])


def _gemm(
    a: Any, b: Any, c: Any = None, alpha: float = 1, beta: float = 1, ta: int = 0, tb: int = 0
) -> Any:
    product = alpha * (a.T if ta else a) @ (b.T if tb else b)
    return product if c is None else product + beta * c


for _ta, _tb in [(0, 0), (1, 0), (0, 1), (1, 1)]:
    _ab = [uniform(6, 4) if _ta else uniform(4, 6), uniform(3, 6) if _tb else uniform(6, 3)]
    _wide = [uniform(200, 12, seed=_ta), uniform(12, 520, seed=_tb)]
    call(
        *(f"gemm of several blocks, transposed {_ta}{_tb}", "Gemm"),
        [_wide[0].T if _ta else _wide[0], _wide[1].T if _tb else _wide[1]],
        *(None, 1.0, 1.0, _ta, _tb),
        theirs=_gemm,
        large=True,
    )
    call(
        *(f"gemm, transposed {_ta}{_tb}", "Gemm", [*_ab, uniform(1, 3, seed=5)]),
        *(0.7, 0.3, _ta, _tb),
        theirs=_gemm,
    )
call("gemm without C", "Gemm", [uniform(4, 6), uniform(6, 3)], alpha=2.0, theirs=_gemm)
call("add_bias to rows", "AddBias", [uniform(4, 6), uniform(6)], theirs="add")
call(
    *("add_bias to columns", "AddBias", [uniform(4, 6), uniform(4)], 1),
    theirs=lambda x, b, _: x + b[:, None],
)
_PRODUCT = [uniform(4, 6), uniform(6, 3), uniform(3)]
call("linear", "Linear", _PRODUCT, theirs=lambda x, w, b: x @ w + b)
call(
    *("linear, transposed weight", "Linear", [uniform(4, 6), uniform(3, 6)]),
    transposed=True,
    theirs=lambda x, w, transposed: x @ w.T,
)
