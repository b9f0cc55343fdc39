"""Padding, interpolation, and moving blocks of pixels between space and channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..raw.calls import checks_flags
from ..raw.check import integer, integers, number, one_of
from ..tape.tensor import Tensor
from .base import BuiltinOperator, integers_of

if TYPE_CHECKING:
    from ..tape.operator import Raw


class Pad(BuiltinOperator):
    """Pads x, as ONNX's Pad. `mode` is "constant", "reflect", "edge" or "wrap".

    `pads` are the numbers of elements to add at the beginning of each axis, then at the end of each
    axis. Negative numbers crop.
    """

    fresh_gradients = True

    def __init__(self, mode: str, pads: Any, constant: float = 0.0) -> None:
        super().__init__()
        self.mode = mode
        self.pads: tuple[int, ...] = integers_of("Pad", "pads", pads)
        # C++ refuses integers that it would round.
        whole = isinstance(constant, int)
        self.constant: float = constant if whole else number("Pad", "constant", constant)
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return _c.Pad(x, self.mode, self.pads, self.constant)

    def backward(self, dy: Raw) -> Raw:
        return _c.PadBackward(dy, self._shape, self.mode, self.pads)


class UpSample(BuiltinOperator):
    """Nearest-neighbour upsampling by integer factors, one for each axis."""

    fresh_gradients = True

    def __init__(self, mode: str, scales: Any) -> None:
        super().__init__()
        one_of("UpSample", "mode", mode, ["nearest", b"nearest"])
        self.scales: tuple[int, ...] = integers_of("UpSample", "scales", scales, 1)

    def forward(self, x: Raw) -> Raw:
        return _c.Upsample(x, self.scales)

    def backward(self, dy: Raw) -> Raw:
        return _c.UpsampleBackward(dy, self.scales)


# Our names, which are ONNX's, and singa's numbers.
MODES = {
    "nearest": _c.InterpolationMode_kNearest,
    "linear": _c.InterpolationMode_kLinear,
    "cubic": _c.InterpolationMode_kCubic,
    "area": _c.InterpolationMode_kArea,
}
COORDINATES = {
    "half_pixel": _c.CoordinateMode_kHalfPixel,
    "pytorch_half_pixel": _c.CoordinateMode_kPytorchHalfPixel,
    "align_corners": _c.CoordinateMode_kAlignCorners,
    "asymmetric": _c.CoordinateMode_kAsymmetric,
    "half_pixel_symmetric": _c.CoordinateMode_kHalfPixelSymmetric,
}
NEAREST = {
    "round_prefer_floor": _c.NearestMode_kRoundPreferFloor,
    "round_prefer_ceil": _c.NearestMode_kRoundPreferCeil,
    "floor": _c.NearestMode_kFloor,
    "ceil": _c.NearestMode_kCeil,
}


def _choice(name: str, value: Any, table: dict[str, int]) -> int:
    return table[one_of("Interpolate", name, value, table)]


class Interpolate(BuiltinOperator):
    """Resizes x to `sizes` along `axes`, with the terms of ONNX's Resize; see `resize`."""

    fresh_gradients = True

    def __init__(
        self,
        axes: Sequence[int],
        sizes: Sequence[int],
        scales: Sequence[float] = (),
        mode: str = "nearest",
        coordinate_transformation_mode: str = "half_pixel",
        nearest_mode: str = "round_prefer_floor",
        cubic_coeff_a: float = -0.75,
        exclude_outside: bool = False,
        antialias: bool = False,
    ) -> None:
        super().__init__()
        self.axes: tuple[int, ...] = integers("Interpolate", "axes", axes)
        self.sizes: tuple[int, ...] = integers("Interpolate", "sizes", sizes)
        self.scales: tuple[float, ...] = tuple(
            [number("Interpolate", "scales", scale) for scale in scales]
        )
        self._handle = _c.InterpolationHandle(
            _choice("mode", mode, MODES),
            _choice("coordinate_transformation_mode", coordinate_transformation_mode, COORDINATES),
            _choice("nearest_mode", nearest_mode, NEAREST),
            number("Interpolate", "cubic_coeff_a", cubic_coeff_a),
            bool(exclude_outside),
            bool(antialias),
        )
        self._shape: tuple[int, ...] = ()

    def forward(self, x: Raw) -> Raw:
        self._shape = x.shape()
        return _c.Interpolate(self._handle, x, self.axes, self.sizes, self.scales)

    def backward(self, dy: Raw) -> Raw:
        return _c.InterpolateBackward(self._handle, dy, self._shape, self.axes, self.scales)


def _depth_to_space(x: Raw, block: int, mode: str) -> Raw:
    n, c, h, w = x.shape()
    depth = c // (block * block)
    if mode == "DCR":
        x = x.Reshape((n, block, block, depth, h, w)).Transpose((0, 3, 4, 1, 5, 2))
    else:
        x = x.Reshape((n, depth, block, block, h, w)).Transpose((0, 1, 4, 2, 5, 3))
    return x.Reshape((n, depth, h * block, w * block))


def _space_to_depth(x: Raw, block: int, mode: str) -> Raw:
    n, c, h, w = x.shape()
    x = x.Reshape((n, c, h // block, block, w // block, block))
    x = x.Transpose((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return x.Reshape((n, c * block * block, h // block, w // block))


class _BlockShuffle(BuiltinOperator):
    def __init__(self, blocksize: int, mode: str = "DCR") -> None:
        super().__init__()
        op = type(self).__name__
        self.mode: str = one_of(op, "mode", mode, ["DCR", "CRD"])
        self.blocksize: int = integer(op, "blocksize", blocksize, 1)


def _check_blocks(op: str, shape: tuple[int, ...], axes: Sequence[int], divisor: int) -> None:
    if len(shape) != 4 or any(shape[axis] % divisor for axis in axes):
        raise ValueError(
            f"[{op}] axes {tuple(axes)} of shape {shape} must be multiples of {divisor}"
        )


class DepthToSpace(_BlockShuffle):
    """Moves channels to blocks of b x b pixels: (N, C, H, W) to (N, C / b², H·b, W·b), as in ONNX.

    In the channels, the position in the block is the slowest index (DCR) or the fastest (CRD).
    """

    def forward(self, x: Raw) -> Raw:
        _check_blocks("DepthToSpace", x.shape(), (1,), self.blocksize**2)
        return _depth_to_space(x, self.blocksize, self.mode)

    def backward(self, dy: Raw) -> Raw:
        return _space_to_depth(dy, self.blocksize, self.mode)


class SpaceToDepth(_BlockShuffle):
    """The inverse of DepthToSpace."""

    def forward(self, x: Raw) -> Raw:
        _check_blocks("SpaceToDepth", x.shape(), (2, 3), self.blocksize)
        return _space_to_depth(x, self.blocksize, self.mode)

    def backward(self, dy: Raw) -> Raw:
        return _depth_to_space(dy, self.blocksize, self.mode)


def pad(x: Tensor, mode: str, pads: Any, constant: float = 0.0) -> Tensor:
    """Pads x, as ONNX's Pad.

    mode      "constant"; "reflect" and "edge", by what lies next to the edge; or "wrap", by what
              lies at the other end, which PyTorch calls circular
    pads      numbers of elements to add at the beginning of each axis, then at the end of each
              axis; negative numbers crop
    constant  value of mode "constant" (default 0)

    Raises ValueError for another mode, and for another number of pads than twice the axes.

    >>> autograd.pad(tensor.Tensor(data=[1.0, 2.0, 3.0]), "reflect", [2, 1])
    Tensor([3., 2., 1., 2., 3., 2.], dtype=float32)
    """
    return Pad(mode, pads, constant)(x)[0]


def upsample(x: Tensor, mode: str, scales: Any) -> Tensor:
    """Nearest-neighbour upsampling by integer factors `scales`, one for each axis.

    Raises ValueError for a `mode` other than "nearest".

    >>> x = tensor.Tensor(data=[[[[1.0, 2.0]]]])
    >>> autograd.upsample(x, "nearest", [1, 1, 2, 2])
    Tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.]]]], dtype=float32)
    """
    return UpSample(mode, scales)(x)[0]


def depth_to_space(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """Moves channels to blocks of b x b pixels: (N, C, H, W) to (N, C / b², H·b, W·b), as in ONNX.

    `mode` "DCR" or "CRD" is the order of the channels; see `DepthToSpace`. Raises ValueError if b²
    does not divide C.

    >>> x = tensor.Tensor(data=np.arange(4).reshape(1, 4, 1, 1))
    >>> autograd.depth_to_space(x, 2)
    Tensor([[[[0., 1.],
              [2., 3.]]]], dtype=float32)
    """
    return DepthToSpace(blocksize, mode)(x)[0]


def space_to_depth(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """The inverse of depth_to_space. Raises ValueError if b does not divide H and W.

    >>> x = tensor.Tensor(data=np.arange(4).reshape(1, 1, 2, 2))
    >>> autograd.space_to_depth(x, 2).reshape((4,))
    Tensor([0., 1., 2., 3.], dtype=float32)
    """
    return SpaceToDepth(blocksize, mode)(x)[0]


def _sizes(
    op: str, lengths: Sequence[int], sizes: Any, scales: Any
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """(sizes, scales or none) from the one that is given: one number, or one for each length."""
    if (sizes is None) == (scales is None):
        raise ValueError(f"[{op}] needs either a size or a scale")

    def each(value: Any) -> Sequence[Any]:
        many = list(value) if hasattr(value, "__len__") else [value] * len(lengths)
        if len(many) != len(lengths):
            raise ValueError(
                f"[{op}] expected one number for each of {len(lengths)} axes, got {value}"
            )
        return many

    if sizes is not None:
        return integers(op, "size", each(sizes), 1), ()
    factors = tuple([number(op, "scale", scale) for scale in each(scales)])
    if not all(0 < factor < math.inf for factor in factors):
        raise ValueError(f"[{op}] scales must be positive and finite, got {factors}")
    return tuple([int(n * factor) for n, factor in zip(lengths, factors, strict=True)]), factors


@checks_flags
def resize(
    x: Tensor,
    scales: float | Sequence[float] | None = None,
    sizes: int | Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
) -> Tensor:
    """Resizes x along `axes` (default: all), as ONNX's Resize, by `scales` or to `sizes`.

    mode           "nearest", "linear", "cubic" (Keys 1981, with the coefficient cubic_coeff_a) or
                   "area" (the average of what a position covers; ONNX has none)
    coordinate_transformation_mode
                   the coordinate in x of position i, of `in` positions that become `out`:
                   half_pixel            (i + 0.5) / scale - 0.5
                   pytorch_half_pixel    the same, but 0 if out is 1
                   align_corners         i·(in - 1) / (out - 1)
                   asymmetric            i / scale
                   half_pixel_symmetric  half_pixel with the centres of both in one place
    nearest_mode   how "nearest" rounds: "round_prefer_floor" (halves down), "round_prefer_ceil",
                   "floor" or "ceil"
    exclude_outside  positions outside x get no weight; otherwise they have the value at the edge
    antialias      shrinking averages all elements below the kernel, as PIL does

    An axis of n positions has floor(n·scale) positions afterwards. x has a float type, or any with
    mode "nearest". Raises ValueError for other arguments.

    >>> autograd.resize(tensor.Tensor(data=[1.0, 2.0]), scales=2)
    Tensor([1., 1., 2., 2.], dtype=float32)
    >>> autograd.resize(tensor.Tensor(data=[1.0, 2.0]), sizes=4, mode="linear")
    Tensor([1.  , 1.25, 1.75, 2.  ], dtype=float32)
    """
    rank = len(x.shape)
    places = tuple(range(rank)) if axes is None else integers("Interpolate", "axes", axes)
    lengths = [x.shape[axis] if -rank <= axis < rank else 0 for axis in places]
    to, factors = _sizes("Interpolate", lengths, sizes, scales)
    if mode == "area":
        factors = ()
    operator = Interpolate(
        places,
        to,
        factors,
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        exclude_outside,
        antialias,
    )
    return operator(x)[0]


#: PyTorch's modes: ours, and the number of axes behind (N, C); 0 is any.
_TORCH_MODES = {
    "nearest": ("nearest", 0),
    "nearest-exact": ("nearest", 0),
    "linear": ("linear", 1),
    "bilinear": ("linear", 2),
    "trilinear": ("linear", 3),
    "bicubic": ("cubic", 2),
    "area": ("area", 0),
}
#: By mode: an axis whose length grows by one of these factors is scaled by it, and not by the
#: `scale_factor` that was rounded to it.
_KEPT_FACTORS = {
    "nearest": (1, 2),
    "linear": (1,),
    "bilinear": (1,),
    "trilinear": (1,),
    "antialias": (1,),
}


@checks_flags
def interpolate(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes x (N, C, ...) along the axes behind the channels, as torch.nn.functional.interpolate.

    size           the new lengths, or one for all axes
    scale_factor   or factors; an axis of n positions then has floor(n·factor). Where that is n, the
                   axis stays as it is, but for "bicubic" and "nearest-exact"
    mode           "nearest", "nearest-exact", "linear" (one axis), "bilinear", "bicubic" (two),
                   "trilinear" (three), or "area": averages, as adaptive average pooling
    align_corners  whether the centres of the corners are in one place before and after, for modes
                   other than "nearest" and "area" (default False)
    recompute_scale_factor  coordinates follow the lengths instead of `scale_factor`
    antialias      "bilinear" and "bicubic" average when they shrink, as PIL does

    Raises ValueError for other arguments.

    >>> x = tensor.Tensor(data=[[[[0.0, 1.0], [2.0, 3.0]]]])
    >>> autograd.interpolate(x, size=(3, 3), mode="bilinear", align_corners=True)
    Tensor([[[[0. , 0.5, 1. ],
              [1. , 1.5, 2. ],
              [2. , 2.5, 3. ]]]], dtype=float32)
    """
    rank = len(x.shape)
    kind, axes = _TORCH_MODES.get(mode, ("", 0))
    if not kind or rank < 3 or (axes and axes != rank - 2):
        raise ValueError(
            f"[Interpolate] mode {mode!r} does not fit x {x.shape}; modes are "
            f"{', '.join(_TORCH_MODES)}"
        )
    if kind in ("nearest", "area") and align_corners is not None:
        raise ValueError(f"[Interpolate] align_corners has no meaning for mode {mode!r}")
    if antialias and (align_corners or mode not in ("bilinear", "bicubic")):
        raise ValueError(
            "[Interpolate] antialias needs mode 'bilinear' or 'bicubic' without align_corners, got "
            f"{mode!r}"
        )
    to, factors = _sizes("Interpolate", x.shape[2:], size, scale_factor)
    # As in PyTorch on a CPU, where other factors are not applied to an axis that keeps its length.
    kept = _KEPT_FACTORS.get("antialias" if antialias else mode, ())
    factors = tuple(
        [
            next((float(k) for k in kept if m == k * n), factor)
            for n, m, factor in zip(x.shape[2:], to, factors, strict=False)
        ]
    )
    if mode == "nearest":
        coordinates = "asymmetric"
    else:
        coordinates = "align_corners" if align_corners else "half_pixel"
    operator = Interpolate(
        range(2, rank),
        to,
        () if recompute_scale_factor or kind == "area" else factors,
        kind,
        coordinates,
        "floor" if mode == "nearest" else "round_prefer_ceil",
        -0.5 if antialias else -0.75,
        antialias=antialias,
    )
    return operator(x)[0]


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Moves channels to pixels, as torch.nn.functional.pixel_shuffle: (N, C·r², H, W) becomes
    (N, C, H·r, W·r). Shi et al. 2016. Raises ValueError if r² does not divide the channels.

    >>> x = tensor.Tensor(data=np.arange(4).reshape(1, 4, 1, 1))
    >>> autograd.pixel_shuffle(x, 2)
    Tensor([[[[0., 1.],
              [2., 3.]]]], dtype=float32)
    """
    return depth_to_space(x, upscale_factor, "CRD")


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of pixel_shuffle: (N, C, H·r, W·r) becomes (N, C·r², H, W). Raises ValueError if
    r does not divide height and width.

    >>> autograd.pixel_unshuffle(tensor.zeros((1, 3, 4, 4)), 2).shape
    (1, 12, 2, 2)
    """
    return space_to_depth(x, downscale_factor, "CRD")
