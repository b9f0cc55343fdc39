"""Sums, extrema and norms along axes; softmax."""

import numpy as np
from ops.case import POSITIVE, Family, X, both, torch, uniform
from singa import autograd

CASES = Family()
add = CASES.add

for _p in (1, 2, 3.5, np.inf):
    add(
        f"normalize by the {_p}-norm",
        "ReduceL2 ReduceL1",
        *both("normalize", _p, -1),
        [X],
        one_step=False,
    )
for _axes, _keep in [(None, 1), ([0, 2], 1), ([1], 0), ([-1, 0], 0)]:
    for _name, _operator, _torch in [
        ("reduce_sum", "ReduceSum", "sum"), ("reduce_mean", "ReduceMean", "mean"),
        ("reduce_max", "ReduceMax", "amax"), ("reduce_min", "ReduceMin", "amin"),
    ]:  # fmt: skip
        add(
            f"{_name} over {_axes}, keepdims {_keep}",
            _operator,
            lambda x, name=_name, axes=_axes, keep=_keep: getattr(autograd, name)(x, axes, keep),
            lambda x, name=_torch, axes=_axes, keep=_keep: getattr(torch, name)(
                x, dim=axes or (0, 1, 2), keepdim=bool(keep)
            ),
            [X],
        )
add(
    "reduce_prod",
    "ReduceProd",
    lambda x: autograd.reduce_prod(x, 1, 0),
    lambda x: torch.prod(x, 1),
    [POSITIVE],
)
add(
    "reduce_l1",
    "ReduceL1",
    lambda x: autograd.reduce_l1(x, 1, 0),
    # The slope of NaN is NaN, for which PyTorch's abs says 0.
    lambda x: (x.abs() + torch.where(x.isnan(), x, 0.0) ** 2).sum(1),
    [X],
)
add(
    "reduce_l2",
    "ReduceL2",
    lambda x: autograd.reduce_l2(x, 1, 0),
    lambda x: torch.sqrt((x * x).sum(1)),
    [X],
)
add(
    "reduce_sum_square",
    "ReduceSumSquare",
    lambda x: autograd.reduce_sum_square(x, 1, 0),
    lambda x: (x * x).sum(1),
    [X],
)
for _axes, _keep in [(None, 1), ((0, 2), 0), (1, 1)]:
    add(
        f"reduce_log_sum_exp over {_axes}, keepdims {_keep}",
        "ReduceLogSumExp",
        lambda x, axes=_axes, keep=_keep: autograd.reduce_log_sum_exp(x, axes, keep),
        lambda x, axes=_axes, keep=_keep: torch.logsumexp(
            x, (0, 1, 2) if axes is None else axes, keepdim=bool(keep)
        ),
        [3 * X],
    )
add(
    "reduce_log_sum",
    "ReduceSum Log",
    lambda x: autograd.reduce_log_sum(x, 1, 0),
    lambda x: torch.log(x.sum(1)),
    [POSITIVE],
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
            lambda x, name=_name, axes=_axes, keep=_keep, correction=_correction: getattr(
                torch, name
            )(x, axes, keepdim=keep, correction=correction),
            [X],
            one_step=False,
        )
for _name in ("any", "all"):
    add(
        f"{_name} over 0 and 2",
        "ReduceSum",
        lambda x, name=_name: getattr(autograd, name)(x, (0, 2)),
        lambda x, name=_name: getattr(torch, name)(x, dim=(0, 2)),
        [np.array([[[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], [[0.0, 0.0], [-1.0, 3.0], [0.0, 0.0]]])],
        differentiable=False,
    )
add("argmax", "ArgMax", *both("argmax", 1), [X], differentiable=False)
add(
    "argmin",
    "ArgMin",
    lambda x: autograd.argmin(x, 1, True),
    lambda x: torch.argmin(x, 1, keepdim=True),
    [X],
    differentiable=False,
)
add(
    "argmax of the last",
    "ArgMax",
    lambda x: autograd.argmax(x, 1, select_last_index=True),
    lambda x: 4 - torch.argmax(x.flip(1), 1),
    [np.round(X * 2)[:, [0, 1, 2, 3, 0]]],
    differentiable=False,
)
for _axis in (0, 1, -1):
    add(f"softmax along {_axis}", "SoftMax", *both("softmax", _axis), [X])
    add(f"log_softmax along {_axis}", "LogSoftMax", *both("log_softmax", _axis), [X])
add(
    "cossim",
    "CosSim",
    *both("cossim", theirs="cosine_similarity"),
    [uniform(3, 10, seed=1), uniform(3, 10, seed=2)],
)

# Long sums, by rows and by columns.
for _name, _operator in [
    ("reduce_sum", "ReduceSum"),
    ("reduce_max", "ReduceMax"),
    ("reduce_sum_square", "ReduceSumSquare"),
]:
    for _shape, _axes in [
        ((6, 40, 20, 21), [0, 2, 3]), ((3000, 48), [0]), ((48, 3000), [1]), ((40_000, 3), [1]),
        ((40_000, 3), [0]), ((2, 20_000, 2), [0, 2]), ((130_000,), [0]), ((17, 2000, 5), [1]),
    ]:  # fmt: skip
        add(
            f"{_name} of {_shape} over {_axes}",
            _operator,
            lambda x, name=_name, axes=_axes: getattr(autograd, name)(x, axes, 0),
            lambda x, name=_name, axes=_axes: {
                "reduce_sum": x.sum(axes),
                "reduce_max": x.amax(axes),
                "reduce_sum_square": (x * x).sum(axes),
            }[name],
            [uniform(*_shape)],
            large=True,
        )
for _shape, _low, _high in [
    ((128, 1000), -3, 3), ((2, 21, 33, 35), -3, 3), ((40_000, 3), -3, 3), ((3, 5000), -200, 80)
]:  # fmt: skip
    for _name, _operator in [("softmax", "SoftMax"), ("log_softmax", "LogSoftMax")]:
        add(
            f"{_name} of {_shape}",
            _operator,
            lambda x, name=_name: getattr(autograd, name)(x, 1),
            lambda x, name=_name: getattr(torch, name)(x, 1),
            [uniform(*_shape, low=_low, high=_high)],
            large=True,
        )
