"""Images at real-valued positions, and windows that become columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from ..dtypes import int64, wide_type
from ..raw.calls import checks_flags
from ..raw.check import integers, one_of
from ..tape.tensor import Tensor
from .arithmetic import _and, clip, equal, greater_equal, less, less_equal
from .conversion import cast
from .elementwise import abs, floor, rounde
from .indexing import gather_elements, where
from .joining import cat
from .movement import expand, reshape, slice, unsqueeze
from .resampling import pad

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


@checks_flags
def grid_sample(
    x: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """Images x (N, C, ...) at positions, as torch.nn.functional.grid_sample: (N, C, positions).
    Jaderberg et al. 2015. The gradient reaches x and the positions.

    grid           positions (N, ..., axes), where -1 and 1 are the ends of an axis and the last
                   axis of x comes first: (N, H', W', 2) for images (N, C, H, W)
    mode           "bilinear", also of volumes; "nearest"; or "bicubic", of images
    padding_mode   what lies outside: "zeros", "border" (the nearest element) or "reflection"
    align_corners  whether -1 and 1 are the centres of the outermost elements, or their outer edges
                   (default False)

    NaN counts as the position -1. Raises ValueError for other arguments and shapes.

    >>> x = tensor.Tensor(data=[[[[0.0, 1.0], [2.0, 3.0]]]])
    >>> centre = tensor.Tensor(data=[[[[0.0, 0.0]]]])
    >>> autograd.grid_sample(x, centre)
    Tensor([[[[1.5]]]], dtype=float32)
    """
    one_of("grid_sample", "mode", mode, _MODES)
    one_of("grid_sample", "padding_mode", padding_mode, _PADDINGS)
    lengths, count = x.shape[2:], x.shape[0] if x.shape else 0
    axes = len(lengths)
    fits = axes in (2, 3) and len(grid.shape) == axes + 2 and 0 not in lengths
    if not fits or grid.shape[-1] != axes or grid.shape[0] != count:
        raise ValueError(f"[grid_sample] grid {grid.shape} does not fit x {x.shape}")
    if mode == "bicubic" and axes != 2:
        raise ValueError(f"[grid_sample] mode 'bicubic' needs x (N, C, H, W), got {x.shape}")
    return sampled(
        x, grid, lambda place, length: _taps(place, length, mode, padding_mode, align_corners)
    )


#: For each element along an axis that takes part: its number, and its weight (None: 1).
Taps = list[tuple[Tensor, Tensor | None]]


def sampled(x: Tensor, grid: Tensor, taps_of: Callable[[Tensor, int], Taps]) -> Tensor:
    """x (N, C, ...) at the positions of grid (N, ..., axes); NaN counts as -1.

    taps_of  the elements of an axis that contribute at positions (N, positions), for its length
    """
    (count, channels, *lengths), (_, *spots, axes) = x.shape, grid.shape
    kind, size = wide_type(x.dtype), math.prod(spots)
    places = reshape(cast(grid, kind), (count, size, axes))
    places = where(places, -1.0, equal(places, places))
    wide = reshape(cast(x, kind), (count, channels, math.prod(lengths)))
    taps = []
    for i, length in enumerate(lengths):
        at = axes - 1 - i
        taps.append(taps_of(reshape(slice(places, [at], [at + 1], [2]), (count, size)), length))
    total = None
    for corner in itertools.product(*taps):
        part = _corner(wide, corner, lengths)
        total = part if total is None else total + part
    assert total is not None
    return cast(reshape(total, (count, channels, *spots)), x.dtype)


def _taps(place: Tensor, length: int, mode: str, padding: str, align: bool) -> Taps:
    """The elements of an axis that contribute at `place` (N, positions) in [-1, 1]."""
    low, high = (0.0, length - 1.0) if align else (-0.5, length - 0.5)
    place = (place + 1.0) * ((high - low) / 2) + low
    if padding != "reflection":  # far outside, also at infinity, nothing changes any more
        place = clip(place, -4.0, length + 3.0)
    if mode == "bicubic":  # whose elements are moved inside, not the position
        base = floor(place).detach()
        t = place - base
        weights = [cubic_far(t + 1.0), cubic_near(t), cubic_near(1.0 - t), cubic_far(2.0 - t)]
        return [
            tap(base + (i - 1.0), weight, length, padding, low, high)
            for i, weight in enumerate(weights)
        ]
    if padding != "zeros":
        place = _inside(place, length, padding, low, high)
    if mode == "nearest":
        return [tap(rounde(place), None, length, "zeros", low, high)]
    base = floor(place).detach()
    t = place - base
    return [
        tap(base + i, weight, length, "zeros", low, high)
        for i, weight in ((0.0, 1.0 - t), (1.0, t))
    ]


def tap(
    index: Tensor, weight: Tensor | None, length: int, padding: str, low: float, high: float
) -> tuple[Tensor, Tensor | None]:
    """An element that may lie outside: another one instead, or with weight 0."""
    if padding != "zeros":
        index = _inside(index, length, padding, low, high)
    else:
        known = _and(less_equal(index, length - 1), greater_equal(index, 0))
        weight = cast(known, index.dtype) if weight is None else where(weight, 0.0, known)
    return cast(clip(index, 0.0, length - 1.0), int64), weight


def _inside(place: Tensor, length: int, padding: str, low: float, high: float) -> Tensor:
    """Positions moved to the border, or reflected at the ends, until they lie in the image."""
    place = reflected(place, low, high) if padding == "reflection" else place
    return clip(place, 0.0, length - 1.0)


def reflected(place: Tensor, low: float, high: float) -> Tensor:
    """Positions reflected at both ends until they lie between them."""
    span = high - low
    if not span:
        return place * 0.0
    distance = abs(place - low)
    turns = floor(distance * (1.0 / span)).detach()
    rest = distance - turns * span
    odd = turns - floor(turns * 0.5) * 2.0
    place = where(rest + low, high - rest, less(odd, 0.5))
    return where(place, 0.0, equal(place, place))  # infinity has no reflection


def _corner(
    x: Tensor, corner: Sequence[tuple[Tensor, Tensor | None]], lengths: Sequence[int]
) -> Tensor:
    """One element for each position, of x (N, C, all), times its weights: (N, C, positions)."""
    count, channels, _ = x.shape
    place, weight = corner[0]
    for (index, factor), length in zip(corner[1:], lengths[1:], strict=True):
        place = place * length + index
        weight = factor if weight is None else weight if factor is None else weight * factor
    size = place.shape[1]
    found = gather_elements(x, expand(unsqueeze(place, 1), (count, channels, size)), 2)
    return found if weight is None else found * unsqueeze(weight, 1)


# Keys 1981, with a = -3/4.


def cubic_near(t: Tensor) -> Tensor:
    """The weight of an element at a distance t of at most 1."""
    return (t * 1.25 - 2.25) * t * t + 1.0


def cubic_far(t: Tensor) -> Tensor:
    """The weight of an element at a distance t from 1 to 2."""
    return ((t * -0.75 + 3.75) * t - 6.0) * t + 3.0


class _Windows:
    """The geometry of windows in images."""

    def __init__(
        self,
        op: str,
        size: Sequence[int],
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int],
        padding: int | Sequence[int],
        stride: int | Sequence[int],
    ) -> None:
        def pair(name: str, value: int | Sequence[int], least: int) -> tuple[int, ...]:
            given = value if hasattr(value, "__len__") else (value, value)
            checked = integers(op, name, given, least)
            if len(checked) != 2:
                raise ValueError(f"[{op}] {name} must be one number or two, got {value}")
            return checked

        self.kernel = pair("kernel_size", kernel_size, 1)
        self.dilation = pair("dilation", dilation, 1)
        self.padding = pair("padding", padding, 0)
        self.stride = pair("stride", stride, 1)
        self.padded = tuple([n + 2 * p for n, p in zip(size, self.padding, strict=True)])
        self.spots = tuple(
            [
                (n - d * (k - 1) - 1) // s + 1
                for n, d, k, s in zip(
                    self.padded, self.dilation, self.kernel, self.stride, strict=True
                )
            ]
        )
        if min(self.spots) < 1:
            raise ValueError(
                f"[{op}] no window of {self.kernel}, dilation {self.dilation}, fits into images of "
                f"{self.padded}, padding included"
            )

    def offsets(self) -> list[tuple[int, ...]]:
        """Where the first window has its elements."""
        sides = [[d * i for i in range(k)] for d, k in zip(self.dilation, self.kernel, strict=True)]
        return list(itertools.product(*sides))


def unfold(
    x: Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The windows of images x (N, C, H, W) as columns (N, C · elements, windows), as
    torch.nn.functional.unfold.

    Numbers are for both axes, or pairs of (height, width). Raises ValueError for other shapes, and
    if no window fits.

    >>> x = tensor.Tensor(data=np.arange(9).reshape(1, 1, 3, 3))
    >>> autograd.unfold(x, 2)
    Tensor([[[0., 1., 3., 4.],
             [1., 2., 4., 5.],
             [3., 4., 6., 7.],
             [4., 5., 7., 8.]]], dtype=float32)
    """
    if len(x.shape) != 4:
        raise ValueError(f"[unfold] x must be (N, C, H, W), got {x.shape}")
    count, channels = x.shape[:2]
    windows = _Windows("unfold", x.shape[2:], kernel_size, dilation, padding, stride)
    if any(windows.padding):
        x = pad(x, "constant", (0, 0, *windows.padding) * 2)
    spots, stride_ = windows.spots, windows.stride
    parts = []
    for offset in windows.offsets():
        ends = [o + s * (m - 1) + 1 for o, s, m in zip(offset, stride_, spots, strict=True)]
        part = slice(x, offset, ends, (2, 3), stride_)
        parts.append(reshape(part, (count, channels, 1, math.prod(spots))))
    joined = parts[0] if len(parts) == 1 else cat(parts, 2)
    return reshape(joined, (count, channels * len(parts), math.prod(spots)))


def fold(
    x: Tensor,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """Images (N, C, *output_size) from columns x (N, C · elements, windows): the sum of the windows
    at each element, as torch.nn.functional.fold.

    Numbers are for both axes, or pairs of (height, width). Raises ValueError for columns that do
    not fit.

    >>> columns = tensor.ones((1, 4, 4))
    >>> autograd.fold(columns, 3, 2)
    Tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]], dtype=float32)
    """
    given = output_size if hasattr(output_size, "__len__") else (output_size, output_size)
    size = integers("fold", "output_size", given, 1)
    if len(size) != 2 or len(x.shape) != 3:
        raise ValueError(
            f"[fold] x must be (N, C, L) and output_size a pair, got {x.shape}, {size}"
        )
    windows = _Windows("fold", size, kernel_size, dilation, padding, stride)
    offsets, spots = windows.offsets(), windows.spots
    if x.shape[1] % len(offsets) or x.shape[2] != math.prod(spots):
        raise ValueError(
            f"[fold] columns {x.shape} are not {len(offsets)} elements of {math.prod(spots)} "
            f"windows, {spots}"
        )
    return folded(x, size, offsets, spots, windows.stride, windows.padding)


def folded(
    x: Tensor,
    size: Sequence[int],
    offsets: Sequence[Sequence[int]],
    spots: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    """Images (N, C, *size) from columns x (N, C · elements, windows), along any number of axes.

    offsets   where the first window has its elements
    spots     the number of windows along each axis
    padding   before each axis
    """
    count, channels = x.shape[0], x.shape[1] // len(offsets)
    axes = len(size)
    columns = reshape(x, (count, channels, len(offsets), *spots))
    apart = (count, channels, *itertools.chain(*[(m, 1) for m in spots]))
    zeros = itertools.chain(*[(0, s - 1) for s in strides])
    between = (0,) * (2 + 2 * axes) + (0, 0, *zeros)
    spread = [m * s for m, s in zip(spots, strides, strict=True)]
    total = None
    for i, offset in enumerate(offsets):
        part = reshape(slice(columns, [i], [i + 1], [2]), apart)
        # Zeros between the elements, then around them; a negative number crops.
        part = reshape(pad(part, "constant", between), (count, channels, *spread))
        before = [o - p for o, p in zip(offset, padding, strict=True)]
        after = [n - m - b for n, m, b in zip(size, spread, before, strict=True)]
        part = pad(part, "constant", (0, 0, *before, 0, 0, *after))
        total = part if total is None else total + part
    assert total is not None
    return total
