"""Resizing, sampling at positions, and windows as columns."""

from ops.case import Family, both, functional, uniform
from singa import autograd

CASES = Family()
add = CASES.add

add(
    "upsample",
    "UpSample",
    lambda x: autograd.upsample(x, "nearest", [1.0, 1.0, 2.0, 3.0]),
    lambda x: x.repeat_interleave(2, 2).repeat_interleave(3, 3),
    [uniform(2, 3, 2, 3)],
)

for _mode, _corners, _size in [
    ("nearest", None, (5, 3)),
    ("nearest-exact", None, (3, 7)),
    ("bilinear", False, (8, 10)),
    ("bilinear", True, (3, 9)),
    ("bicubic", False, (2, 9)),
    ("bicubic", True, (8, 5)),
]:
    add(
        f"interpolate, {_mode}, corners {_corners}",
        "Interpolate",
        *both("interpolate", _size, mode=_mode, align_corners=_corners),
        [uniform(2, 3, 4, 5)],
    )
add(
    "interpolate, antialiased",
    "Interpolate",
    *both("interpolate", (3, 4), mode="bicubic", antialias=True),
    [uniform(2, 3, 7, 9)],
)
add(
    "interpolate, a scale that keeps the size",
    "Interpolate",
    *both("interpolate", scale_factor=(1.02, 1.5), mode="bicubic"),
    [uniform(2, 17, 30, 33)],
    large=True,
)
add(
    "resize, before other axes",
    "Interpolate",
    lambda x: autograd.resize(x, sizes=(3, 5), axes=(0, 1), mode="linear"),
    lambda x: functional.interpolate(x.movedim(2, 0)[None], (3, 5), mode="bilinear")[0].movedim(
        0, 2
    ),
    [uniform(4, 3, 300)],
    large=True,
)
add(
    "interpolate, area",
    "Interpolate",
    *both("interpolate", (3, 7), mode="area"),
    [uniform(2, 3, 5, 6)],
)
add(
    "interpolate, trilinear",
    "Interpolate",
    *both("interpolate", scale_factor=(2, 1.5, 0.7), mode="trilinear"),
    [uniform(1, 2, 3, 4, 5)],
)


_GRID = uniform(2, 4, 5, 2, low=-1.3, high=1.3)
_VOLUME_GRID = uniform(2, 2, 3, 2, 3, low=-1.3, high=1.3)
for _mode, _padding, _align in [
    ("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False),
    ("nearest", "zeros", True), ("nearest", "reflection", False), ("bicubic", "zeros", False),
    ("bicubic", "border", False), ("bicubic", "reflection", True),
]:  # fmt: skip
    for _axes in (2, 3)[: 2 - (_mode == "bicubic")]:
        add(
            f"grid_sample over {_axes} axes, {_mode}, {_padding}, align {_align}",
            "GatherElements Floor",
            lambda x, grid, how=(_mode, _padding, _align): autograd.grid_sample(x, grid, *how),
            lambda x, grid, how=(_mode, _padding, _align): functional.grid_sample(x, grid, *how),
            [uniform(2, 3, 5, 4), _GRID] if _axes == 2 else [uniform(2, 2, 3, 5, 4), _VOLUME_GRID],
            constants=(1,) if _mode == "nearest" else (),
            tolerance=512,
            one_step=False,
        )
for _name, _arguments in [
    ("plain", (2,)), ("all", ((3, 2), (1, 2), (1, 0), (2, 1))), ("one element", (1, 1, 1, 2)),
]:  # fmt: skip
    add(
        f"unfold, {_name}",
        "Slice Concat Pad",
        *both("unfold", *_arguments),
        [uniform(2, 3, 6, 5)],
        one_step=False,
    )
for _name, _columns, _arguments in [
    ("plain", (2, 12, 20), ((6, 5), 2)),
    ("all", (2, 18, 9), ((6, 5), (3, 2), (1, 2), (1, 0), (2, 1))),
    ("crops", (2, 27, 4), (4, 3, 1, 1, 2)),
]:
    add(
        f"fold, {_name}",
        "Slice Pad",
        *both("fold", *_arguments),
        [uniform(*_columns)],
        one_step=False,
    )
