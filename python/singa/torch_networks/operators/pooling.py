"""Pooling and resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import autograd, singa_wrap
from ...networks.errors import Refused
from ...tensor import Tensor
from .contraction import _batched, _each
from .registry import Call, computes, of_floats

_POOLING: Any = (autograd.pooling_1d, autograd.pooling_2d, autograd.pooling_3d)


def _pooled(
    call: Call,
    axes: int,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    count_padding: bool,
    is_max: bool,
) -> Any:
    x, alone = _batched(x, axes)
    window = _each(kernel, axes)
    strides = window if stride is None or stride == [] else _each(stride, axes)
    handle = call.kept.get(x.shape[1])
    if handle is None:
        handle = call.kept[x.shape[1]] = singa_wrap.PoolingHandle(
            x.data,
            window,
            strides,
            _each(padding, axes) * 2,
            is_max,
            ceil_mode,
            count_padding,
            _each(dilation, axes),
        )
    if any(call.node.used[1:]):
        results = autograd.max_pool_with_indices(handle, x)
        return tuple(autograd.reshape(y, y.shape[1:]) for y in results) if alone else results
    y: Tensor = _POOLING[axes - 1](handle, x)
    return autograd.reshape(y, tuple(y.shape[1:])) if alone else y


def _over(axes: int) -> None:
    """The rows of pooling over so many axes."""

    @computes(f"max_pool{axes}d", f"max_pool{axes}d_with_indices")
    @of_floats
    def max_pool(
        call: Call,
        x: Tensor,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        return _pooled(
            call, axes, x, kernel, stride, padding, dilation, ceil_mode, False, is_max=True
        )

    @computes(f"avg_pool{axes}d")
    @of_floats
    def avg_pool(
        call: Call,
        x: Tensor,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if divisor_override is not None:
            if ceil_mode:
                raise Refused(
                    "divisor_override with ceil_mode: take ceil_mode=False, and F.pad in front"
                )
            y = _pooled(call, axes, x, kernel, stride, padding, 1, False, True, is_max=False)
            return y * (math.prod(_each(kernel, axes)) / divisor_override)
        pads = _each(padding, axes)
        if not (ceil_mode and count_include_pad and any(pads)):
            return _pooled(
                call, axes, x, kernel, stride, padding, 1, ceil_mode, count_include_pad, False
            )
        # A window counts padding, but not what lies behind it: as if the padding were pixels.
        lengths = x.shape[-axes:]
        outer = (0,) * (len(x.shape) - axes)
        y = autograd.pad(x, "constant", [*outer, *pads, *outer, *pads], 0.0)
        y = _pooled(call, axes, y, kernel, stride, 0, 1, True, False, is_max=False)
        # No window begins behind the last pixel.
        strides = _each(kernel if stride in (None, []) else stride, axes)
        ends = [
            min(y.shape[i - axes], (lengths[i] + pads[i] - 1) // strides[i] + 1)
            for i in range(axes)
        ]
        along = list(range(len(x.shape) - axes, len(x.shape)))
        return autograd.slice(y, [0] * axes, ends, along)

    private = () if axes == 1 else (f"_adaptive_avg_pool{axes}d",)

    @computes(f"adaptive_avg_pool{axes}d", *private)
    @of_floats
    def adaptive_avg_pool(call: Call, x: Tensor, size: Any) -> Tensor:
        x, alone = _batched(x, axes)
        sizes = _each(size, axes)
        if all(n == 1 for n in sizes):
            y = autograd.globalaveragepool(x)
        else:
            y = autograd.adaptive_avg_pool(x, sizes)
        return autograd.reshape(y, tuple(y.shape[1:])) if alone else y

    @computes(f"adaptive_max_pool{axes}d")
    @of_floats
    def adaptive_max_pool(call: Call, x: Tensor, size: Any) -> Tensor:
        x, alone = _batched(x, axes)
        y = autograd.adaptive_max_pool(x, _each(size, axes))
        return autograd.reshape(y, tuple(y.shape[1:])) if alone else y


for _axes in (1, 2, 3):
    _over(_axes)


def _resized(mode: str, has_corners: bool, antialias: bool, *names: str) -> None:
    """A row of interpolation: of `name.vec`, which has factors, and of `name`."""

    @computes(*(f"{name}.vec" for name in names))
    def row(call: Call, x: Tensor, size: Any, *others: Any) -> Tensor:
        corners = bool(others[0]) if has_corners else None
        factors: Sequence[float] | None = others[-1]
        return autograd.interpolate(
            x,
            size=None if size is None else tuple(size),
            scale_factor=None if factors is None else tuple(factors),
            mode=mode,
            align_corners=corners,
            antialias=antialias,
        )


_resized("nearest", False, False, *(f"upsample_nearest{n}d" for n in (1, 2, 3)))
_resized("nearest-exact", False, False, *(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)))
_resized("linear", True, False, "upsample_linear1d")
_resized("bilinear", True, False, "upsample_bilinear2d")
_resized("bilinear", True, True, "_upsample_bilinear2d_aa")
_resized("bicubic", True, False, "upsample_bicubic2d")
_resized("bicubic", True, True, "_upsample_bicubic2d_aa")
_resized("trilinear", True, False, "upsample_trilinear3d")


_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


@computes("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    call: Call, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool
) -> Tensor:
    """Images at real-valued positions."""
    return autograd.grid_sample(x, grid, _MODES[mode], _PADDINGS[padding], align_corners)
