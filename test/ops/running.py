"""Running products, extrema and sums of exponentials; differences."""

import numpy as np
from ops.case import VALUES, Family, X, apart, torch, uniform
from singa import autograd

CASES = Family()
add, call = CASES.add, CASES.call

_WITH_ZEROS = np.array([[1.5, 0.0, -2.0, 0.5], [0.0, 3.0, 0.0, 2.0], [1.0, 2.0, 3.0, 0.0]])
_TIES = np.round(uniform(3, 6, seed=4))

for _axis in (0, -1):
    for _zeros, _x in (("", 1.5 * X), (" of zeros", _WITH_ZEROS)):
        call(f"cumprod{_zeros} along {_axis}", "Mul Concat Slice", [_x], _axis, one_step=False)
    call(f"logcumsumexp along {_axis}", "LogAddExp", [X], _axis, one_step=False)
    for _name in ("cummax", "cummin"):
        for _what, _i, _x, _options in (
            ("", 0, apart(3, 4, 5), {"one_step": False}),
            ("indices of ", 1, _TIES, VALUES),
        ):
            add(
                *(f"{_what}{_name} along {_axis}", "GatherElements"),
                lambda x, name=_name, axis=_axis, i=_i: getattr(autograd, name)(x, axis)[i],
                lambda x, name=_name, axis=_axis, i=_i: getattr(torch, name)(x, axis)[i],
                [_x],
                **_options,
            )
    call(f"diff along {_axis}", "Sub Slice", [X], 1, _axis, one_step=False)
_LARGE = np.array([-800.0, 500.0, 499.0, -3.0, 501.0, 900.0])
call("logcumsumexp of large numbers", "LogAddExp", [_LARGE], 0, one_step=False)
call("diff twice", "Sub Slice", [X], 2, one_step=False)
add(
    *("diff with more elements", "Concat Sub Slice"),
    lambda x, a, b: autograd.diff(x, 1, 0, a, b),
    lambda x, a, b: torch.diff(x, 1, 0, a, b),
    [X, uniform(1, 4, 5), uniform(2, 4, 5)],
    one_step=False,
)
