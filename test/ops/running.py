"""Running products, extrema and sums of exponentials; differences."""

import numpy as np
from ops.case import Family, X, apart, both, torch, uniform
from singa import autograd

CASES = Family()
add = CASES.add

_WITH_ZEROS = np.array([[1.5, 0.0, -2.0, 0.5], [0.0, 3.0, 0.0, 2.0], [1.0, 2.0, 3.0, 0.0]])
_TIES = np.round(uniform(3, 6, seed=4))

for _axis in (0, -1):
    add(
        f"cumprod along {_axis}",
        "Mul Concat Slice",
        *both("cumprod", _axis),
        [1.5 * X],
        one_step=False,
    )
    add(
        f"cumprod of zeros along {_axis}",
        "Mul Concat Slice",
        *both("cumprod", _axis),
        [_WITH_ZEROS],
        one_step=False,
    )
    add(
        f"logcumsumexp along {_axis}",
        "LogAddExp",
        *both("logcumsumexp", _axis),
        [X],
        one_step=False,
    )
    for _name in ("cummax", "cummin"):
        add(
            f"{_name} along {_axis}",
            "GatherElements",
            lambda x, name=_name, axis=_axis: getattr(autograd, name)(x, axis)[0],
            lambda x, name=_name, axis=_axis: getattr(torch, name)(x, axis)[0],
            [apart(3, 4, 5)],
            one_step=False,
        )
        add(
            f"indices of {_name} along {_axis}",
            "GatherElements",
            lambda x, name=_name, axis=_axis: getattr(autograd, name)(x, axis)[1],
            lambda x, name=_name, axis=_axis: getattr(torch, name)(x, axis)[1],
            [_TIES],
            differentiable=False,
            one_step=False,
        )
    add(f"diff along {_axis}", "Sub Slice", *both("diff", 1, _axis), [X], one_step=False)
add(
    "logcumsumexp of large numbers",
    "LogAddExp",
    *both("logcumsumexp", 0),
    [np.array([-800.0, 500.0, 499.0, -3.0, 501.0, 900.0])],
    one_step=False,
)
add("diff twice", "Sub Slice", *both("diff", 2), [X], one_step=False)
add(
    "diff with more elements",
    "Concat Sub Slice",
    lambda x, a, b: autograd.diff(x, 1, 0, a, b),
    lambda x, a, b: torch.diff(x, 1, 0, a, b),
    [X, uniform(1, 4, 5), uniform(2, 4, 5)],
    one_step=False,
)
