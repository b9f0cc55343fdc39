"""Movement of elements, and casts."""

from __future__ import annotations

from typing import Any

import numpy as np
from ops.case import Family, X, functional, torch, uniform
from singa import autograd, ops

CASES = Family()
add, call, alike = CASES.add, CASES.call, CASES.alike

call("identity", "Identity", [X], theirs=lambda x: x)
alike("clone", "Clone", [X], lambda x: x.clone())
add(
    *("contiguous", "Contiguous"),
    lambda x: x.transpose().contiguous(),
    lambda x: x.permute(2, 1, 0),
    [X],
    one_step=False,
)
add(
    *("to blocked", "ToBlocked"),
    lambda x: autograd.to_blocked(x) * 2.0,
    lambda x: x * 2.0,
    [uniform(2, 18, 3, 4)],
    one_step=False,
)
add("to device", "ToDevice", lambda x: ops.ToDevice(x.device)(x)[0], lambda x: x.cpu(), [X])
call("reshape", "Reshape", [X], (5, -1))
call("reshape with 0", "Reshape", [X], (0, 2, 10), theirs=lambda x, _: x.reshape(3, 2, 10))
call("flatten", "Flatten", [X], theirs=lambda x: x.reshape(3, 20))
call("flatten at 2", "Flatten", [X], 2, theirs=lambda x, _: x.reshape(12, 5))
call("squeeze", "Squeeze", [uniform(1, 3, 1, 4)])
call("squeeze one axis", "Squeeze", [uniform(1, 3, 1, 4)], 2)
call("unsqueeze", "Unsqueeze", [X], theirs=lambda x: x[..., None])
call("unsqueeze two axes", "Unsqueeze", [X], [0, 2], theirs=lambda x, _: x[None, :, None])
call("transpose", "Transpose", [X], theirs=lambda x: x.permute(2, 1, 0))
call("transpose by axes", "Transpose", [X], (1, -1, 0), theirs="permute")
call("expand", "Expand", [uniform(3, 1)], [2, 1, 6], theirs=lambda x, _: x.expand(2, 3, 6))
alike("index", "Index", [X], lambda x: x[1:, None, ::2, -1])
add(
    *("index backwards", "Index"),
    lambda x: x[..., ::-1, :2],
    lambda x: torch.flip(x, (1,))[..., :2],
    [X],
)
call(
    *("slice", "Slice", [X], [0, 1], [2, -1], [1, 2], [1, 2]),
    theirs=lambda x, *_: x[:, 0:2, 1:-1:2],
)
call("slice of first axes", "Slice", [X], [1], [3], theirs=lambda x, *_: x[1:3])
call(
    *("split", "Split", [X], 1, (1, 3)),
    theirs=lambda x, axis, parts: torch.split(x, parts, axis),
    one_step=False,
)
add(
    *("split of channels", "Split"),
    lambda x: autograd.split(x, 1, (5, 19))[1],
    lambda x: torch.split(x, [5, 19], 1)[1],
    [uniform(2, 24, 3, 2)],
    one_step=False,
)
add(
    *("split into equal pieces", "Split"),
    lambda x: autograd.split(x, -2, num_output=2),
    lambda x: torch.split(x, 2, 1),
    [X],
    one_step=False,
)
add(
    *("cat", "Concat"),
    lambda *xs: autograd.cat(xs, 1),
    lambda *xs: torch.cat(xs, 1),
    [uniform(2, 3), uniform(2, 1), uniform(2, 4)],
)
call("tile", "Tile", [X], [2, 1, 3])
call("tile by a number", "Tile", [X], 2, theirs=lambda x, n: x.tile(n, *[1] * (x.ndim - 1)))
call("tile with new axes", "Tile", [uniform(3, 2)], [2, 1, 2])
for _name, _arguments in [("", (2, 1)), (" by elements", ([1, 0, 2], 0)), (" flattened", (3,))]:
    add(
        *(f"repeat{_name}", "Repeat"),
        lambda x, arguments=_arguments: x.repeat(*arguments),
        lambda x, n=_arguments[0], axis=_arguments[1:]: x.repeat_interleave(torch.tensor(n), *axis),
        [X],
    )
call("roll", "Roll", [X], (2, -1, 7), (2, 0, 2))
call("roll flattened", "Roll", [X], 7)
for _mode, _torch, _value in [
    ("constant", "constant", [0.5]), ("reflect", "reflect", []), ("edge", "replicate", []),
    ("wrap", "circular", []),
]:  # fmt: skip
    call(
        *(f"pad, {_mode}", "Pad", [uniform(2, 3, 4, 5)], _mode, [0, 0, 1, 2, 0, 0, 2, 1], *_value),
        theirs=lambda x, _, __, *v, mode=_torch: functional.pad(x, (2, 1, 1, 2), mode, *v),
    )


def _depth_to_space(x: Any, n: int, mode: str) -> Any:
    if mode == "CRD":
        return functional.pixel_shuffle(x, n)
    return x.unflatten(1, (n, n, -1)).permute(0, 3, 4, 1, 5, 2).flatten(4).flatten(2, 3)


def _space_to_depth(x: Any, n: int, mode: str) -> Any:
    if mode == "CRD":
        return functional.pixel_unshuffle(x, n)
    x = x.unflatten(3, (-1, n)).unflatten(2, (-1, n))
    return x.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)


_DEEP, _WIDE = [uniform(2, 8, 2, 3)], [uniform(2, 2, 4, 6)]
for _mode in ("DCR", "CRD"):
    call(f"depth_to_space {_mode}", "DepthToSpace", _DEEP, 2, _mode, theirs=_depth_to_space)
    call(f"space_to_depth {_mode}", "SpaceToDepth", _WIDE, 2, _mode, theirs=_space_to_depth)
call("pixel_shuffle", "DepthToSpace", _DEEP, 2)
call("pixel_unshuffle", "SpaceToDepth", _WIDE, 2)
for _groups in (2, 3, 6):
    call(
        *(f"channel_shuffle {_groups}", "ChannelShuffle", [uniform(2, 6, 2, 3)], _groups),
        theirs=lambda x, n: x.unflatten(1, (n, -1)).transpose(1, 2).flatten(1, 2),
    )
call("cast", "Cast", [X], "float64", theirs=lambda x, _: x.double())
add(
    *("cast to int", "Cast"),
    lambda x: autograd.cast(x * 3, "int32"),
    lambda x: (x * 3).int(),
    [X],
    differentiable=False,
)
call("shape", "Shape", [X], theirs=lambda x: torch.tensor(x.shape), differentiable=False)
call(
    *("constant_of_shape", "ConstantOfShape", [np.array([2.0, 3.0])], 2.5),
    theirs=lambda x, value: torch.full((2, 3), value),
    differentiable=False,
)
call("tile of long rows", "Tile", [uniform(3, 700)], [5, 20], large=True)
