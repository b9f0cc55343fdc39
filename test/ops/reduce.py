"""Sums, extrema and norms along axes; softmax."""

from typing import Any

import numpy as np
from ops.case import POSITIVE, Family, X, torch, uniform

CASES = Family()
call = CASES.call

for _p in (1, 2, 3.5, np.inf):
    call(f"normalize by the {_p}-norm", "ReduceL2 ReduceL1", [X], _p, -1, one_step=False)
for _axes, _keep in [(None, 1), ([0, 2], 1), ([1], 0), ([-1, 0], 0)]:
    for _name, _operator, _torch in [
        ("reduce_sum", "ReduceSum", "sum"), ("reduce_mean", "ReduceMean", "mean"),
        ("reduce_max", "ReduceMax", "amax"), ("reduce_min", "ReduceMin", "amin"),
    ]:  # fmt: skip
        call(
            *(f"{_name} over {_axes}, keepdims {_keep}", _operator, [X], _axes, _keep),
            theirs=lambda x, axes, keep, name=_torch: getattr(torch, name)(
                x, dim=axes or (0, 1, 2), keepdim=bool(keep)
            ),
        )


def _l1(x: Any, axis: int, keep: int) -> Any:
    # The slope of NaN is NaN, for which PyTorch's abs says 0.
    return (x.abs() + torch.where(x.isnan(), x, 0.0) ** 2).sum(axis)


call("reduce_prod", "ReduceProd", [POSITIVE], 1, 0, theirs=lambda x, *_: torch.prod(x, 1))
call("reduce_l1", "ReduceL1", [X], 1, 0, theirs=_l1)
call("reduce_l2", "ReduceL2", [X], 1, 0, theirs=lambda x, *_: torch.sqrt((x * x).sum(1)))
call("reduce_sum_square", "ReduceSumSquare", [X], 1, 0, theirs=lambda x, *_: (x * x).sum(1))
for _axes, _keep in [(None, 1), ((0, 2), 0), (1, 1)]:
    call(
        f"reduce_log_sum_exp over {_axes}, keepdims {_keep}",
        *("ReduceLogSumExp", [3 * X], _axes, _keep),
        theirs=lambda x, axes, keep: torch.logsumexp(
            x, (0, 1, 2) if axes is None else axes, keepdim=bool(keep)
        ),
    )
call(
    *("reduce_log_sum", "ReduceSum Log", [POSITIVE], 1, 0),
    theirs=lambda x, *_: torch.log(x.sum(1)),
    one_step=False,
)
for _axes, _keep, _correction in [(None, False, 1), ((0, -1), True, 0), (1, False, 2)]:
    for _name in ("var", "std"):
        call(
            f"{_name} over {_axes}, correction {_correction}",
            *("ReduceSumSquare ReduceL2", [X], _axes, _keep, _correction),
            theirs=lambda x, axes, keep, correction, name=_name: getattr(torch, name)(
                x, axes, keepdim=keep, correction=correction
            ),
            one_step=False,
        )
_TRUTHS = [np.array([[[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [-1.0, 3.0], [0.0, 0.0]]])]
for _name in ("any", "all"):
    call(f"{_name} over 0 and 2", "ReduceSum", _TRUTHS, (0, 2), differentiable=False)
call("argmax", "ArgMax", [X], 1, differentiable=False)
call("argmin", "ArgMin", [X], 1, True, differentiable=False)
call(
    *("argmax of the last", "ArgMax", [np.round(X * 2)[:, [0, 1, 2, 3, 0]]], 1),
    select_last_index=True,
    theirs=lambda x, axis, select_last_index: 4 - torch.argmax(x.flip(axis), axis),
    differentiable=False,
)
for _axis in (0, 1, -1):
    call(f"softmax along {_axis}", "SoftMax", [X], _axis)
    call(f"log_softmax along {_axis}", "LogSoftMax", [X], _axis)
_ROWS = [uniform(3, 10, seed=1), uniform(3, 10, seed=2)]
call("cossim", "CosSim", _ROWS, theirs="cosine_similarity")

# Long sums, by rows and by columns.
for _name, _operator, _torch in [
    ("reduce_sum", "ReduceSum", lambda x, axes, keep: x.sum(axes)),
    ("reduce_max", "ReduceMax", lambda x, axes, keep: x.amax(axes)),
    ("reduce_sum_square", "ReduceSumSquare", lambda x, axes, keep: (x * x).sum(axes)),
]:
    for _shape, _axes in [
        ((6, 40, 20, 21), [0, 2, 3]), ((3000, 48), [0]), ((48, 3000), [1]), ((40_000, 3), [1]),
        ((40_000, 3), [0]), ((2, 20_000, 2), [0, 2]), ((130_000,), [0]), ((17, 2000, 5), [1]),
    ]:  # fmt: skip
        call(
            *(f"{_name} of {_shape} over {_axes}", _operator, [uniform(*_shape)], _axes, 0),
            theirs=_torch,
            large=True,
        )
for _shape, _low, _high in [
    ((128, 1000), -3, 3), ((2, 21, 33, 35), -3, 3), ((40_000, 3), -3, 3), ((3, 5000), -200, 80)
]:  # fmt: skip
    for _name, _operator in [("softmax", "SoftMax"), ("log_softmax", "LogSoftMax")]:
        _x = uniform(*_shape, low=_low, high=_high)
        call(f"{_name} of {_shape}", _operator, [_x], 1, large=True)
