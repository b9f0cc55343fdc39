"""Pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
from ops.case import Family, apart, functional, handle, torch, uniform
from singa import autograd
from singa import singa_wrap as wrap

CASES = Family()
add, call = CASES.add, CASES.call

_WINDOW = [3, 2], [2, 2], [1, 1]


def _pooling(x: Any, *window: Any) -> Any:
    return getattr(autograd, f"pooling_{len(x.shape) - 2}d")(
        handle(wrap.PoolingHandle, x, *window), x
    )


add(
    *("pooling_2d, maximum", "_Pooling2d"),
    lambda x: _pooling(x, *_WINDOW, True),
    lambda x: functional.max_pool2d(x, *_WINDOW),
    [apart(2, 3, 7, 6)],
)
add(
    *("pooling_2d, average", "_Pooling2d"),
    lambda x: _pooling(x, *_WINDOW, False),
    lambda x: functional.avg_pool2d(x, *_WINDOW, count_include_pad=False),
    [uniform(2, 3, 7, 6)],
)
add(
    *("pooling_2d, odd padding", "_Pooling2d"),
    lambda x: autograd.pooling_2d(
        wrap.PoolingHandle(wrap.Tensor((2, 3, 6, 6)), [2, 2], [2, 2], [0, 0], True), x, (0, 1, 1, 0)
    ),
    lambda x: functional.max_pool2d(functional.pad(x, (1, 0, 0, 1), value=-1e30), 2),
    [apart(2, 3, 5, 5)],
)
for _what, _i in (("maxima", 0), ("indices", 1)):
    add(
        *(f"max_pool_with_indices, {_what}", "MaxPoolWithIndices"),
        lambda x, i=_i: autograd.max_pool_with_indices(
            handle(wrap.PoolingHandle, x, *_WINDOW, True), x
        )[i],
        lambda x, i=_i: functional.max_pool2d(x, *_WINDOW, return_indices=True)[i],
        [apart(2, 3, 7, 6)],
        differentiable=_i == 0,
        one_step=False,
    )
add(
    *("pooling_1d", "_Pooling"),
    lambda x: _pooling(x, [3], [2], [1], True),
    lambda x: functional.max_pool1d(x, 3, 2, 1),
    [apart(2, 3, 11)],
)
add(
    *("pooling_3d", "_Pooling"),
    lambda x: _pooling(x, [2, 3, 2], [1, 2, 2], [1, 1, 0], False),
    lambda x: functional.avg_pool3d(x, (2, 3, 2), (1, 2, 2), (1, 1, 0), count_include_pad=False),
    [uniform(2, 3, 3, 5, 4)],
)
add(
    *("lp_pool", "LpPool"),
    lambda x: autograd.lp_pool(handle(wrap.PoolingHandle, x, [2, 3], [2, 1], [0, 0], False), x, 3),
    lambda x: functional.lp_pool2d(x.abs(), 3, (2, 3), (2, 1)),
    [apart(2, 3, 5, 6) / 8],
)
_X = [uniform(2, 3, 7, 5)]
call("adaptive_avg_pool", "AdaptiveAvgPool", _X, (3, None), theirs="adaptive_avg_pool2d")
call("adaptive_max_pool", "AdaptiveMaxPool", [apart(2, 3, 9)], 4, theirs="adaptive_max_pool1d")
call(
    *("globalmaxpool", "GlobalMaxPool", [apart(2, 3, 2, 4, 5)]),
    theirs=lambda x: functional.adaptive_max_pool3d(x, 1),
)
call(
    *("globalmaxpool, channels last", "GlobalMaxPool", [apart(2, 4, 5, 3)], "channels_last"),
    theirs=lambda x, _: functional.adaptive_max_pool2d(x.movedim(3, 1), 1).movedim(1, 3),
)
call(
    *("globalaveragepool", "GlobalAveragePool", [uniform(2, 3, 4, 5)]),
    theirs=lambda x: x.mean((2, 3), keepdim=True),
)
call(
    "globalaveragepool, channels last",
    *("GlobalAveragePool", [uniform(2, 4, 5, 3)], "channels_last"),
    theirs=lambda x, _: x.mean((1, 2), keepdim=True),
)
for _axes, _p in [(1, 0.5), (2, 2.5), (3, 1.0), (2, 2.0)]:
    add(
        f"lp_pool over {_axes} axes by the {_p}-norm",
        "LpPool",
        lambda x, n=_axes, p=_p: autograd.lp_pool(
            handle(wrap.PoolingHandle, x, [2, 3, 2][:n], [2, 1, 1][:n], [0] * n, False), x, p
        ),
        lambda x, n=_axes, p=_p: getattr(functional, f"lp_pool{n}d")(
            x.abs(), p, (2, 3, 2)[:n] if n > 1 else 2, (2, 1, 1)[:n] if n > 1 else 2
        ),
        [uniform(2, 3, *(5, 6, 4)[:_axes], low=0.1) * np.where(np.arange(3) % 2, 1, -1).reshape(
            3, *[1] * _axes
        )],
    )  # fmt: skip


def _pooled(x: Any, kernel: list[int], stride: list[int], pads: list[int], how: str) -> Any:
    """By PyTorch, with padding of its own for each side."""
    top, left, bottom, right = pads if len(pads) == 4 else [*pads, *pads]
    sides = (left, right, top, bottom)
    if how == "maximum":
        return functional.max_pool2d(functional.pad(x, sides, value=-np.inf), kernel, stride)
    mean = functional.avg_pool2d(functional.pad(x, sides), kernel, stride)
    if how == "average with padding":
        return mean
    return mean / functional.avg_pool2d(functional.pad(torch.ones_like(x), sides), kernel, stride)


# Windows of networks.
for _how in ("maximum", "average", "average with padding"):
    for _shape, _kernel, _stride, _pads in [
        ((2, 32, 14, 14), [3, 3], [2, 2], [1, 1]), ((2, 16, 13, 13), [3, 3], [2, 2], [0, 0]),
        ((2, 17, 12, 12), [3, 3], [1, 1], [1, 1]), ((2, 24, 7, 7), [7, 7], [1, 1], [0, 0]),
        ((1, 3, 40, 41), [20, 17], [3, 3], [4, 5, 6, 7]), ((2, 5, 1, 33), [1, 3], [1, 2], [0, 1]),
        ((2, 16, 8, 8), [2, 2], [2, 2], [0, 0, 1, 1]), ((1, 19, 97, 90), [3, 3], [2, 2], [1, 1]),
    ]:  # fmt: skip
        add(
            f"pooling_2d of {_shape}, {_kernel} by {_stride}, pads {_pads}, {_how}",
            "_Pooling2d",
            lambda x, w=(_kernel, _stride, _pads), how=_how: _pooling(
                x, *w, how == "maximum", False, how.endswith("padding")
            ),
            lambda x, w=(_kernel, _stride, _pads), how=_how: _pooled(x, *w, how),
            [apart(*_shape) / 2**10],
            large=True,
        )
