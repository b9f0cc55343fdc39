"""Normalisation over a batch, or over features."""

from __future__ import annotations

import functools
from typing import Any

from ops.case import Family, functional, torch, uniform
from rank_memory import Alone
from singa import autograd
from singa import singa_wrap as wrap
from singa.ops import normalization

CASES = Family()
add, call = CASES.add, CASES.call


def _batchnorm(
    x: Any, scale: Any, bias: Any, add: Any = None, frozen: bool = False, **activation: Any
) -> Any:
    channels = x.shape[1]
    running = [wrap.Full((channels,), value, x.device, int(x.dtype)) for value in (0.0, 1.0)]
    handle = wrap.BatchNormHandle(0.9, x.data)
    run = functools.partial(autograd.batchnorm_2d, handle, x, scale, bias, *running, add=add)
    if not frozen:
        return run(**activation)
    before, autograd.training = autograd.training, False
    try:
        with autograd.enable_grad():
            return run(**activation)
    finally:
        autograd.training = before


def _sync_batchnorm(x: Any, scale: Any, bias: Any, add: Any = None, **activation: Any) -> Any:
    running = [wrap.Full((4,), value, x.device, int(x.dtype)) for value in (0.0, 1.0)]
    handle = wrap.BatchNormHandle(0.9, x.data)
    op = normalization._SyncBatchNorm2d(handle, *running, Alone(), **activation)
    return op(x, scale, bias)[0] if add is None else op(x, scale, bias, add)[0]


def batchnorm(name: str, inputs: Any, large: bool = False, **options: Any) -> None:
    """Options are relu, activation and frozen; the fourth input is a residual."""

    def of_torch(x: Any, scale: Any, bias: Any, add: Any = 0.0) -> Any:
        running = torch.zeros(x.shape[1], dtype=x.dtype), torch.ones(x.shape[1], dtype=x.dtype)
        training = not options.get("frozen")
        y = functional.batch_norm(x, *running, scale, bias, training) + add
        name = "relu" if options.get("relu") else options.get("activation", "none")
        return y if name == "none" else getattr(functional, name)(y)

    sync = name.startswith("sync")
    add(
        *(name, "_SyncBatchNorm2d" if sync else "_BatchNorm2d"),
        lambda *xs: (_sync_batchnorm if sync else _batchnorm)(*xs, **options),
        *(of_torch, inputs),
        large=large,
    )


_NORMALIZED = [uniform(3, 4, 5, 2), uniform(4, low=0.5, high=1.5), uniform(4)]
_SCALED = [_NORMALIZED[0], uniform(4, low=3.0, high=6.0), _NORMALIZED[2]]
_WITH_RESIDUAL = [*_NORMALIZED, uniform(3, 4, 5, 2, seed=3)]
batchnorm("batchnorm_2d", _NORMALIZED)
batchnorm("batchnorm_2d and relu", _NORMALIZED, relu=True)
for _name in ("relu6", "hardswish", "silu"):
    batchnorm(f"batchnorm_2d and {_name}", _SCALED, activation=_name)
batchnorm("batchnorm_2d and a residual", _WITH_RESIDUAL)
batchnorm("batchnorm_2d, a residual and relu", _WITH_RESIDUAL, relu=True)
batchnorm("sync_batchnorm_2d", _NORMALIZED)
batchnorm("sync_batchnorm_2d and relu6", _SCALED, activation="relu6")
batchnorm("sync_batchnorm_2d, a residual and relu", _WITH_RESIDUAL, relu=True)


def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    return functional.layer_norm(x, w.shape, w, b)


def _channel_norm(x: Any, w: Any, b: Any) -> Any:
    return _layer_norm(x.movedim(1, -1), w, b).movedim(-1, 1)


def _weights(count: int) -> Any:
    return uniform(count, seed=1), uniform(count, seed=2)


_IMAGES = [uniform(2, 6, 3, 5), *_weights(6)]
call("layer_norm", "LayerNorm", [uniform(3, 4, 6), *_weights(6)], theirs=_layer_norm)
call(
    "layer_norm of two axes, without bias",
    *("LayerNorm", [uniform(3, 4, 6), uniform(4, 6, seed=1)]),
    axis=-2,
    eps=0.1,
    theirs=lambda x, w, axis, eps: functional.layer_norm(x, w.shape, w, None, eps),
)
call(
    *("rms_norm", "LayerNorm", [uniform(3, 4, 6), uniform(6, seed=1)]),
    theirs=lambda x, w: functional.rms_norm(x, (6,), w),
)
call("channel_norm", "ChannelNorm", _IMAGES, theirs=_channel_norm)
add(
    *("group_norm", "GroupNorm"),
    lambda x, w, b: autograd.group_norm(x, 2, w, b),
    lambda x, w, b: functional.group_norm(x, 2, w, b),
    _IMAGES,
)
call("instance_norm", "GroupNorm", _IMAGES[:1])
_LRN = "local_response_norm"
call("lrn", "LRN", [uniform(2, 7, 3, 3)], 5, 0.1, 0.75, 2.0, theirs=_LRN)

# Channels that are cut into pieces, images of any rank, and given statistics.
for _shape in [
    *((40, 35), (6, 17, 9), (4, 33, 7, 7), (2, 3, 2, 4, 5)),
    *((8, 64, 14, 14), (3, 5, 61, 67), (300, 130)),
]:
    for _frozen in (False, True):
        _name = f"batchnorm_2d of {_shape}, frozen {_frozen}"
        for _activation in ("none", "relu", "relu6", "hardswish", "silu"):
            batchnorm(
                f"{_name}, activation {_activation}",
                [uniform(*_shape), uniform(_shape[1], low=0.5, high=4.0), uniform(_shape[1])],
                large=True,
                frozen=_frozen,
                **({} if _activation == "none" else {"activation": _activation}),
            )
        for _relu in (False, True):
            batchnorm(
                f"{_name}, and a residual, relu {_relu}",
                [
                    *(uniform(*_shape), uniform(_shape[1], low=0.5, high=2.0)),
                    *(uniform(_shape[1]), uniform(*_shape, seed=3)),
                ],
                large=True,
                frozen=_frozen,
                relu=_relu,
            )
for _shape, _center in [((65, 4, 192), 0), ((3, 5000), 20), ((400, 768), 0)]:
    _inputs = [uniform(*_shape) + _center, *_weights(_shape[-1])]
    call(f"layer_norm of {_shape}", "LayerNorm", _inputs, theirs=_layer_norm, large=True)
for _shape in [(2, 96, 28, 28), (2, 96, 14, 14)]:
    _inputs = [uniform(*_shape), *_weights(96)]
    call(f"channel_norm of {_shape}", "ChannelNorm", _inputs, theirs=_channel_norm, large=True)
for _shape, _groups, _center in [((2, 64, 33, 31), 8, 20), ((1, 600, 9, 9), 600, 0)]:
    add(
        *(f"group_norm of {_shape}, {_groups} groups", "GroupNorm"),
        lambda x, w, b, groups=_groups: autograd.group_norm(x, groups, w, b),
        lambda x, w, b, groups=_groups: functional.group_norm(x, groups, w, b),
        [uniform(*_shape) + _center, *_weights(_shape[1])],
        large=True,
    )
for _shape, _alpha, _k in [((2, 96, 13, 13), 1e-4, 2.0), ((1, 64, 28, 28), 1e-4, 1.0),
                           ((1, 48, 19, 19), 1.0, 1.0)]:  # fmt: skip
    call(
        *(f"lrn of {_shape}, alpha {_alpha}", "LRN", [uniform(*_shape)], 5, _alpha, 0.75, _k),
        theirs=_LRN,
        large=True,
    )
