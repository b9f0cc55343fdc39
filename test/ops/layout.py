"""Movement of elements, and casts."""

from __future__ import annotations

from typing import Any

import numpy as np
from ops.case import Family, X, both, functional, torch, uniform
from singa import autograd, ops

CASES = Family()
add = CASES.add

add("identity", "Identity", autograd.identity, lambda x: x, [X])
add("clone", "Clone", lambda x: x.clone(), lambda x: x.clone(), [X])
add(
    "contiguous",
    "Contiguous",
    lambda x: x.transpose().contiguous(),
    lambda x: x.permute(2, 1, 0),
    [X],
    one_step=False,
)
add(
    "to blocked",
    "ToBlocked",
    lambda x: autograd.to_blocked(x) * 2.0,
    lambda x: x * 2.0,
    [uniform(2, 18, 3, 4)],
    one_step=False,
)
add("to device", "ToDevice", lambda x: ops.ToDevice(x.device)(x)[0], lambda x: x.cpu(), [X])
add("reshape", "Reshape", lambda x: autograd.reshape(x, (5, -1)), lambda x: x.reshape(5, -1), [X])
add(
    "reshape with 0",
    "Reshape",
    lambda x: autograd.reshape(x, (0, 2, 10)),
    lambda x: x.reshape(3, 2, 10),
    [X],
)
add("flatten", "Flatten", autograd.flatten, lambda x: x.reshape(3, 20), [X])
add("flatten at 2", "Flatten", lambda x: autograd.flatten(x, 2), lambda x: x.reshape(12, 5), [X])
add("squeeze", "Squeeze", autograd.squeeze, lambda x: x.squeeze(), [uniform(1, 3, 1, 4)])
add(
    "squeeze one axis",
    "Squeeze",
    lambda x: autograd.squeeze(x, 2),
    lambda x: x.squeeze(2),
    [uniform(1, 3, 1, 4)],
)
add("unsqueeze", "Unsqueeze", autograd.unsqueeze, lambda x: x[..., None], [X])
add(
    "unsqueeze two axes",
    "Unsqueeze",
    lambda x: autograd.unsqueeze(x, [0, 2]),
    lambda x: x[None, :, None],
    [X],
)
add("transpose", "Transpose", autograd.transpose, lambda x: x.permute(2, 1, 0), [X])
add(
    "transpose by axes",
    "Transpose",
    lambda x: autograd.transpose(x, (1, -1, 0)),
    lambda x: x.permute(1, 2, 0),
    [X],
)
add(
    "expand",
    "Expand",
    lambda x: autograd.expand(x, [2, 1, 6]),
    lambda x: x.expand(2, 3, 6),
    [uniform(3, 1)],
)
add("index", "Index", lambda x: x[1:, None, ::2, -1], lambda x: x[1:, None, ::2, -1], [X])
add(
    "index backwards",
    "Index",
    lambda x: x[..., ::-1, :2],
    lambda x: torch.flip(x, (1,))[..., :2],
    [X],
)
add(
    "slice",
    "Slice",
    lambda x: autograd.slice(x, [0, 1], [2, -1], [1, 2], [1, 2]),
    lambda x: x[:, 0:2, 1:-1:2],
    [X],
)
add("slice of first axes", "Slice", lambda x: autograd.slice(x, [1], [3]), lambda x: x[1:3], [X])
add(
    "split",
    "Split",
    lambda x: autograd.split(x, 1, (1, 3)),
    lambda x: torch.split(x, [1, 3], 1),
    [X],
    one_step=False,
)
add(
    "split of channels",
    "Split",
    lambda x: autograd.split(x, 1, (5, 19))[1],
    lambda x: torch.split(x, [5, 19], 1)[1],
    [uniform(2, 24, 3, 2)],
    one_step=False,
)
add(
    "split into equal pieces",
    "Split",
    lambda x: autograd.split(x, -2, num_output=2),
    lambda x: torch.split(x, 2, 1),
    [X],
    one_step=False,
)
add(
    "cat",
    "Concat",
    lambda *xs: autograd.cat(xs, 1),
    lambda *xs: torch.cat(xs, 1),
    [uniform(2, 3), uniform(2, 1), uniform(2, 4)],
)
add("tile", "Tile", lambda x: autograd.tile(x, [2, 1, 3]), lambda x: x.tile(2, 1, 3), [X])
add(
    "tile by a number",
    "Tile",
    lambda x: autograd.tile(x, 2),
    lambda x: x.tile(2, *[1] * (x.ndim - 1)),
    [X],
)
add(
    "tile with new axes",
    "Tile",
    lambda x: autograd.tile(x, [2, 1, 2]),
    lambda x: x.tile(2, 1, 2),
    [uniform(3, 2)],
)
add("repeat", "Repeat", lambda x: x.repeat(2, 1), lambda x: x.repeat_interleave(2, 1), [X])
add(
    "repeat by elements",
    "Repeat",
    lambda x: x.repeat([1, 0, 2], 0),
    lambda x: x.repeat_interleave(torch.tensor([1, 0, 2]), 0),
    [X],
)
add("repeat flattened", "Repeat", lambda x: x.repeat(3), lambda x: x.repeat_interleave(3), [X])
add(
    "roll",
    "Roll",
    lambda x: autograd.roll(x, (2, -1, 7), (2, 0, 2)),
    lambda x: x.roll((2, -1, 7), (2, 0, 2)),
    [X],
)
add("roll flattened", "Roll", lambda x: autograd.roll(x, 7), lambda x: x.roll(7), [X])
for _mode, _torch in [
    ("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")
]:  # fmt: skip
    add(
        f"pad, {_mode}",
        "Pad",
        lambda x, mode=_mode: autograd.pad(
            x, mode, [0, 0, 1, 2, 0, 0, 2, 1], *([0.5] if mode == "constant" else [])
        ),
        lambda x, mode=_torch: functional.pad(
            x, (2, 1, 1, 2), mode, *([0.5] if mode == "constant" else [])
        ),
        [uniform(2, 3, 4, 5)],
    )


def _depth_to_space(torch: Any, x: Any, mode: str) -> Any:
    n, c, h, w = x.shape
    if mode == "CRD":
        return functional.pixel_shuffle(x, 2)
    return x.reshape(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(
        n, c // 4, h * 2, w * 2)  # fmt: skip


def _space_to_depth(torch: Any, x: Any, mode: str) -> Any:
    n, c, h, w = x.shape
    if mode == "CRD":
        return functional.pixel_unshuffle(x, 2)
    return x.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(
        n, c * 4, h // 2, w // 2)  # fmt: skip


for _mode in ("DCR", "CRD"):
    add(
        f"depth_to_space {_mode}",
        "DepthToSpace",
        lambda x, mode=_mode: autograd.depth_to_space(x, 2, mode),
        lambda x, mode=_mode: _depth_to_space(torch, x, mode),
        [uniform(2, 8, 2, 3)],
    )
    add(
        f"space_to_depth {_mode}",
        "SpaceToDepth",
        lambda x, mode=_mode: autograd.space_to_depth(x, 2, mode),
        lambda x, mode=_mode: _space_to_depth(torch, x, mode),
        [uniform(2, 2, 4, 6)],
    )
add("pixel_shuffle", "DepthToSpace", *both("pixel_shuffle", 2), [uniform(2, 8, 2, 3)])
add("pixel_unshuffle", "SpaceToDepth", *both("pixel_unshuffle", 2), [uniform(2, 2, 4, 6)])
for _groups in (2, 3, 6):
    add(
        f"channel_shuffle {_groups}",
        "ChannelShuffle",
        lambda x, groups=_groups: autograd.channel_shuffle(x, groups),
        lambda x, groups=_groups: x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2),
        [uniform(2, 6, 2, 3)],
    )
add("cast", "Cast", lambda x: autograd.cast(x, "float64"), lambda x: x.double(), [X])
add(
    "cast to int",
    "Cast",
    lambda x: autograd.cast(x * 3, "int32"),
    lambda x: (x * 3).int(),
    [X],
    differentiable=False,
)
add("shape", "Shape", autograd.shape, lambda x: torch.tensor(x.shape), [X], differentiable=False)
add(
    "constant_of_shape",
    "ConstantOfShape",
    lambda x: autograd.constant_of_shape(x, 2.5),
    lambda x: torch.full((2, 3), 2.5),
    [np.array([2.0, 3.0])],
    differentiable=False,
)
add(
    "tile of long rows",
    "Tile",
    lambda x: autograd.tile(x, [5, 20]),
    lambda x: x.tile(5, 20),
    [uniform(3, 700)],
    large=True,
)
