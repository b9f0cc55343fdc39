"""Curves as pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .svg import COLOURS, Picture, shortened

#: Positions and values of a curve. A value that is not finite leaves a gap.
Curve = tuple[Sequence[float], Sequence[float]]

_WIDTH, _HEIGHT = 420, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 34, 40
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "12 4", "1 3")  # a pair for each round of colours


def steps(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers in [low, high]: multiples of 1, 2 or 5 times a power of 10."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def chart(
    title: str, curves: Mapping[str, Curve], x: str = "epoch", percent: bool = False
) -> Picture:
    """A picture of curves by name, with a legend if there are several.

    x        what the horizontal axis is
    percent  whether values are fractions of 1, which are shown in per cent

    Raises ValueError if no curve has a finite value.
    """
    points = {
        name: [(a, b) for a, b in zip(xs, ys, strict=True) if math.isfinite(b)]
        for name, (xs, ys) in curves.items()
    }
    found = [point for each in points.values() for point in each]
    if not found:
        raise ValueError(f"[chart] {title} has no finite value")
    lines = -(-len(curves) // 2) if len(curves) > 1 else 0
    top = _TOP + 18 * lines
    picture = Picture(_WIDTH, _HEIGHT + 18 * max(lines - 1, 0), f"{title} by {x}")
    left, right = min(a for a, _ in found), max(a for a, _ in found)
    low, high = min(b for _, b in found), max(b for _, b in found)
    if left == right:  # one epoch
        left, right = left - 1, right + 1
    room = (high - low) * 0.05 or abs(high) * 0.1 or 1.0
    low = 0.0 if 0 <= low < high / 2 or high == low > 0 else low - room
    high += room
    bottom = picture.height - _BOTTOM

    def place(a: float, b: float) -> tuple[float, float]:
        across = _LEFT + (a - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)
        return across, bottom - (b - low) / (high - low) * (bottom - top)

    picture.text(_LEFT, 20, title, size=14, bold=True)
    marks = steps(low, high)
    for mark in marks:
        _, y = place(left, mark)
        picture.path([(_LEFT, y), (_WIDTH - _RIGHT, y)])
        text = f"{mark * 100:g} %" if percent else f"{mark:.6g}"
        picture.text(_LEFT - 6, y + 4, text, colour="faint", size=11, anchor="end")
    for mark in steps(left, right):
        if mark == int(mark) or x != "epoch":
            picture.text(
                place(mark, low)[0],
                bottom + 16,
                f"{mark:g}",
                colour="faint",
                size=11,
                anchor="middle",
            )
    picture.text(_WIDTH - _RIGHT, bottom + 32, x, colour="faint", size=11, anchor="end")
    half = (_WIDTH - _LEFT - _RIGHT) / 2
    for number, (name, each) in enumerate(points.items()):
        colour = number % len(COLOURS)
        dashes = _DASHES[(2 * (number // len(COLOURS)) + number % 2) % len(_DASHES)]
        if len(each) > 1:
            picture.path([place(*point) for point in each], colour, width=2, dashes=dashes)
        for a, b in each if len(each) <= 30 else ():
            shown = f"{b:.2%}" if percent else f"{b:.6g}"
            picture.dot(*place(a, b), colour, f"{name}, {x} {a:g}: {shown}")
        if not lines:
            continue
        at, y = _LEFT + half * (number % 2), _TOP + 4 + 18 * (number // 2)
        picture.path([(at, y), (at + 22, y)], colour, width=2, dashes=dashes)
        picture.text(at + 28, y + 4, shortened(name, half - 30), size=11)
    return picture
