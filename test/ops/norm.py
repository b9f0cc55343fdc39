"""Normalisation over a batch, or over features."""

from __future__ import annotations

import functools
from typing import Any

from ops.case import Family, both, functional, torch, uniform
from rank_memory import Alone
from singa import autograd
from singa import singa_wrap as wrap
from singa.ops import normalization

CASES = Family()
add = CASES.add


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


def _torch_batchnorm(x: Any, scale: Any, bias: Any, frozen: bool = False) -> Any:
    running = torch.zeros(x.shape[1], dtype=x.dtype), torch.ones(x.shape[1], dtype=x.dtype)
    return functional.batch_norm(x, *running, scale, bias, not frozen)


_NORMALIZED = [uniform(3, 4, 5, 2), uniform(4, low=0.5, high=1.5), uniform(4)]
_RESIDUAL = uniform(3, 4, 5, 2, seed=3)
add("batchnorm_2d", "_BatchNorm2d", _batchnorm, _torch_batchnorm, _NORMALIZED)
add(
    "batchnorm_2d and relu",
    "_BatchNorm2d",
    lambda x, s, b: _batchnorm(x, s, b, relu=True),
    lambda x, s, b: torch.relu(_torch_batchnorm(x, s, b)),
    _NORMALIZED,
)
for _name in ("relu6", "hardswish", "silu"):
    add(
        f"batchnorm_2d and {_name}",
        "_BatchNorm2d",
        lambda x, s, b, name=_name: _batchnorm(x, s, b, activation=name),
        lambda x, s, b, name=_name: getattr(functional, name)(_torch_batchnorm(x, s, b)),
        [_NORMALIZED[0], uniform(4, low=3.0, high=6.0), _NORMALIZED[2]],
    )
add(
    "batchnorm_2d and a residual",
    "_BatchNorm2d",
    _batchnorm,
    lambda x, s, b, z: _torch_batchnorm(x, s, b) + z,
    [*_NORMALIZED, _RESIDUAL],
)
add(
    "batchnorm_2d, a residual and relu",
    "_BatchNorm2d",
    lambda x, s, b, z: _batchnorm(x, s, b, z, relu=True),
    lambda x, s, b, z: torch.relu(_torch_batchnorm(x, s, b) + z),
    [*_NORMALIZED, _RESIDUAL],
)


def _sync_batchnorm(x: Any, scale: Any, bias: Any, add: Any = None, **activation: Any) -> Any:
    running = [wrap.Full((4,), value, x.device, int(x.dtype)) for value in (0.0, 1.0)]
    handle = wrap.BatchNormHandle(0.9, x.data)
    op = normalization._SyncBatchNorm2d(handle, *running, Alone(), **activation)
    return op(x, scale, bias)[0] if add is None else op(x, scale, bias, add)[0]


add("sync_batchnorm_2d", "_SyncBatchNorm2d", _sync_batchnorm, _torch_batchnorm, _NORMALIZED)
add(
    "sync_batchnorm_2d and relu6",
    "_SyncBatchNorm2d",
    lambda x, s, b: _sync_batchnorm(x, s, b, activation="relu6"),
    lambda x, s, b: functional.relu6(_torch_batchnorm(x, s, b)),
    [_NORMALIZED[0], uniform(4, low=3.0, high=6.0), _NORMALIZED[2]],
)
add(
    "sync_batchnorm_2d, a residual and relu",
    "_SyncBatchNorm2d",
    lambda x, s, b, z: _sync_batchnorm(x, s, b, z, relu=True),
    lambda x, s, b, z: torch.relu(_torch_batchnorm(x, s, b) + z),
    [*_NORMALIZED, _RESIDUAL],
)
_WEIGHTED = [uniform(3, 4, 6), uniform(6, seed=1), uniform(6, seed=2)]
_IMAGES = [uniform(2, 6, 3, 5), uniform(6, seed=1), uniform(6, seed=2)]
add(
    "layer_norm",
    "LayerNorm",
    autograd.layer_norm,
    lambda x, w, b: functional.layer_norm(x, (6,), w, b),
    _WEIGHTED,
)
add(
    "layer_norm of two axes, without bias",
    "LayerNorm",
    lambda x, w: autograd.layer_norm(x, w, axis=-2, eps=0.1),
    lambda x, w: functional.layer_norm(x, (4, 6), w, None, 0.1),
    [uniform(3, 4, 6), uniform(4, 6, seed=1)],
)
add(
    "rms_norm",
    "LayerNorm",
    autograd.rms_norm,
    lambda x, w: functional.rms_norm(x, (6,), w),
    _WEIGHTED[:2],
)
add(
    "channel_norm",
    "ChannelNorm",
    autograd.channel_norm,
    lambda x, w, b: functional.layer_norm(x.movedim(1, -1), (6,), w, b).movedim(-1, 1),
    _IMAGES,
)
add(
    "group_norm",
    "GroupNorm",
    lambda x, w, b: autograd.group_norm(x, 2, w, b),
    lambda x, w, b: functional.group_norm(x, 2, w, b),
    _IMAGES,
)
add("instance_norm", "GroupNorm", *both("instance_norm"), _IMAGES[:1])
add(
    "lrn",
    "LRN",
    *both("lrn", 5, 0.1, 0.75, 2.0, theirs="local_response_norm"),
    [uniform(2, 7, 3, 3)],
)

# Channels that are cut into pieces, images of any rank, and given statistics.
for _shape in [
    *((40, 35), (6, 17, 9), (4, 33, 7, 7), (2, 3, 2, 4, 5)),
    *((8, 64, 14, 14), (3, 5, 61, 67), (300, 130)),
]:
    for _frozen in (False, True):
        for _activation in ("none", "relu", "relu6", "hardswish", "silu"):
            add(
                f"batchnorm_2d of {_shape}, frozen {_frozen}, activation {_activation}",
                "_BatchNorm2d",
                lambda x, s, b, frozen=_frozen, name=_activation: _batchnorm(
                    x, s, b, None, frozen, **({} if name == "none" else {"activation": name})
                ),
                lambda x, s, b, frozen=_frozen, name=_activation: getattr(
                    functional, name, lambda y: y
                )(_torch_batchnorm(x, s, b, frozen)),
                [uniform(*_shape), uniform(_shape[1], low=0.5, high=4.0), uniform(_shape[1])],
                large=True,
            )
        for _relu in (False, True):
            add(
                f"batchnorm_2d of {_shape}, frozen {_frozen}, and a residual, relu {_relu}",
                "_BatchNorm2d",
                lambda x, s, b, z, frozen=_frozen, relu=_relu: _batchnorm(
                    x, s, b, z, frozen, relu=relu
                ),
                lambda x, s, b, z, frozen=_frozen, relu=_relu: (
                    torch.relu if relu else lambda y: y
                )(_torch_batchnorm(x, s, b, frozen) + z),
                [
                    *(uniform(*_shape), uniform(_shape[1], low=0.5, high=2.0)),
                    *(uniform(_shape[1]), uniform(*_shape, seed=3)),
                ],
                large=True,
            )
for _shape, _center in [((65, 4, 192), 0), ((3, 5000), 20), ((400, 768), 0)]:
    add(
        f"layer_norm of {_shape}",
        "LayerNorm",
        autograd.layer_norm,
        lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
        [uniform(*_shape) + _center, uniform(_shape[-1], seed=1), uniform(_shape[-1], seed=2)],
        large=True,
    )
for _shape in [(2, 96, 28, 28), (2, 96, 14, 14)]:
    add(
        f"channel_norm of {_shape}",
        "ChannelNorm",
        autograd.channel_norm,
        lambda x, w, b: functional.layer_norm(x.movedim(1, -1), w.shape, w, b).movedim(-1, 1),
        [uniform(*_shape), uniform(96, seed=1), uniform(96, seed=2)],
        large=True,
    )
for _shape, _groups, _center in [((2, 64, 33, 31), 8, 20), ((1, 600, 9, 9), 600, 0)]:
    add(
        f"group_norm of {_shape}, {_groups} groups",
        "GroupNorm",
        lambda x, w, b, groups=_groups: autograd.group_norm(x, groups, w, b),
        lambda x, w, b, groups=_groups: functional.group_norm(x, groups, w, b),
        [uniform(*_shape) + _center, uniform(_shape[1], seed=1), uniform(_shape[1], seed=2)],
        large=True,
    )
for _shape, _alpha, _k in [((2, 96, 13, 13), 1e-4, 2.0), ((1, 64, 28, 28), 1e-4, 1.0),
                           ((1, 48, 19, 19), 1.0, 1.0)]:  # fmt: skip
    add(
        f"lrn of {_shape}, alpha {_alpha}",
        "LRN",
        *both("lrn", 5, _alpha, 0.75, _k, theirs="local_response_norm"),
        [uniform(*_shape)],
        large=True,
    )
