"""Resizing, sampling at positions, and windows as columns."""

from ops.case import Family, functional, uniform
from singa import autograd

CASES = Family()
add, call = CASES.add, CASES.call

call(
    *("upsample", "UpSample", [uniform(2, 3, 2, 3)], "nearest", [1.0, 1.0, 2.0, 3.0]),
    theirs=lambda x, *_: x.repeat_interleave(2, 2).repeat_interleave(3, 3),
)
for _mode, _corners, _size in [
    ("nearest", None, (5, 3)), ("nearest-exact", None, (3, 7)), ("bilinear", False, (8, 10)),
    ("bilinear", True, (3, 9)), ("bicubic", False, (2, 9)), ("bicubic", True, (8, 5)),
]:  # fmt: skip
    call(
        *(f"interpolate, {_mode}, corners {_corners}", "Interpolate", [uniform(2, 3, 4, 5)], _size),
        mode=_mode,
        align_corners=_corners,
    )
for _name, _shape, _options in [
    ("antialiased", (2, 3, 7, 9), {"size": (3, 4), "mode": "bicubic", "antialias": True}),
    ("area", (2, 3, 5, 6), {"size": (3, 7), "mode": "area"}),
    ("trilinear", (1, 2, 3, 4, 5), {"scale_factor": (2, 1.5, 0.7), "mode": "trilinear"}),
    (
        "a scale that keeps the size",
        (2, 17, 30, 33),
        {"scale_factor": (1.02, 1.5), "mode": "bicubic", "large": True},
    ),
]:
    call(f"interpolate, {_name}", "Interpolate", [uniform(*_shape)], **_options)
add(
    *("resize, before other axes", "Interpolate"),
    lambda x: autograd.resize(x, sizes=(3, 5), axes=(0, 1), mode="linear"),
    lambda x: functional.interpolate(x.movedim(2, 0)[None], (3, 5), mode="bilinear")[0].movedim(
        0, 2
    ),
    [uniform(4, 3, 300)],
    large=True,
)

_GRID = uniform(2, 4, 5, 2, low=-1.3, high=1.3)
_VOLUME_GRID = uniform(2, 2, 3, 2, 3, low=-1.3, high=1.3)
for _mode, _padding, _align in [
    ("bilinear", "zeros", False), ("bilinear", "border", True), ("bilinear", "reflection", False),
    ("nearest", "zeros", True), ("nearest", "reflection", False), ("bicubic", "zeros", False),
    ("bicubic", "border", False), ("bicubic", "reflection", True),
]:  # fmt: skip
    for _axes in (2, 3)[: 2 - (_mode == "bicubic")]:
        call(
            f"grid_sample over {_axes} axes, {_mode}, {_padding}, align {_align}",
            "GatherElements Floor",
            [uniform(2, 3, 5, 4), _GRID] if _axes == 2 else [uniform(2, 2, 3, 5, 4), _VOLUME_GRID],
            *(_mode, _padding, _align),
            constants=(1,) if _mode == "nearest" else (),
            tolerance=512,
            one_step=False,
        )
for _name, _arguments in [
    ("plain", (2,)), ("all", ((3, 2), (1, 2), (1, 0), (2, 1))), ("one element", (1, 1, 1, 2)),
]:  # fmt: skip
    _x = uniform(2, 3, 6, 5)
    call(f"unfold, {_name}", "Slice Concat Pad", [_x], *_arguments, one_step=False)
for _name, _columns, _arguments in [
    ("plain", (2, 12, 20), ((6, 5), 2)),
    ("all", (2, 18, 9), ((6, 5), (3, 2), (1, 2), (1, 0), (2, 1))),
    ("crops", (2, 27, 4), (4, 3, 1, 1, 2)),
]:
    call(f"fold, {_name}", "Slice Pad", [uniform(*_columns)], *_arguments, one_step=False)
