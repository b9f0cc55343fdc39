"""Generated images of digits, 28 x 28 grey pixels, in place of MNIST.

Digits are drawn as pen strokes, light on dark as in MNIST. Each image has random bends, slant,
angle, size, position, pen width, brightness and noise. The set is much easier than
`synthetic.shapes`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..raw.calls import says_what_to_write
from .dataset import ImageSet
from .synthetic import Floats, generate, uniform

DIGITS_CLASSES = tuple("0123456789")
DIGITS_MEAN, DIGITS_STD = (0.11,), (0.24,)  # measured, for pixels scaled to 0 … 1

_SIDE = 28
Points = list[tuple[float, float]]


@says_what_to_write("digits", "pictures")
def digits(split: str = "train", count: int | None = None, seed: int = 0) -> ImageSet:
    """The first `count` images (N, 1, 28, 28) of the generated "train" or "test" split.

    `count` defaults to 10,000 for "train" and 2,000 for "test". The same seed gives the same
    images; see `shapes`. Raises ValueError for another split, a negative count or a negative seed.

    >>> train = data.digits("train", 100)
    >>> train.images.shape, train.classes[:3]
    ((100, 1, 28, 28), ('0', '1', '2'))
    """
    return generate(
        "digits", _draw_digits, (1, _SIDE, _SIDE), DIGITS_CLASSES, split, count, seed, 10_000
    )


def _arc(x: float, y: float, rx: float, ry: float, start: float, end: float, steps: int) -> Points:
    """Points on an ellipse with centre (x, y). Angles are in degrees, clockwise from the right."""
    angles = np.radians(np.linspace(start, end, steps + 1))
    return [(x + rx * float(np.cos(a)), y + ry * float(np.sin(a))) for a in angles]


# Each digit is a few strokes through points (x to the right, y down) in the box from -1 to 1.
_STROKES: tuple[tuple[Points, ...], ...] = (
    (_arc(0, 0, 0.62, 1, -90, 270, 12),),
    ([(-0.3, -0.65), (0.05, -1), (0.05, 1)],),
    ([*_arc(0, -0.45, 0.58, 0.55, -170, 35, 6), (-0.6, 1), (0.62, 1)],),
    (_arc(0, -0.5, 0.52, 0.5, -150, 90, 6) + _arc(0, 0.47, 0.6, 0.53, -90, 150, 6)[1:],),
    ([(0.3, 1), (0.3, -1), (-0.62, 0.35), (0.65, 0.35)],),
    ([(0.55, -1), (-0.42, -1), (-0.48, -0.12), *_arc(0, 0.37, 0.6, 0.63, -130, 145, 7)],),
    (_arc(0.55, 0.3, 1.13, 1.3, -105, -180, 4) + _arc(0, 0.42, 0.58, 0.58, 180, -180, 8)[1:],),
    ([(-0.58, -1), (0.58, -1), (-0.15, 1)],),
    (_arc(0, -0.5, 0.48, 0.5, 90, -270, 8) + _arc(0, 0.5, 0.6, 0.5, -90, 270, 8)[1:],),
    ([*_arc(0, -0.42, 0.58, 0.58, 0, -360, 8), (0.55, 0.1), (0.3, 1)],),
)


def _draw_digits(labels: NDArray[np.int32], rng: np.random.Generator) -> Floats:
    """Float images (n, 1, 28, 28) for values 0 … 255, before rounding and clipping."""
    count = len(labels)
    pen = uniform(rng, count, 0.7, 1.7)  # half the width of the stroke, in pixels
    distance = np.empty((count, _SIDE, _SIDE), np.float32)
    for digit, strokes in enumerate(_STROKES):
        members = np.flatnonzero(labels == digit)
        nearest = np.full((len(members), _SIDE, _SIDE), np.inf, np.float32)
        for points in _place(strokes, len(members), rng):
            for first, second in pairwise(points):
                np.minimum(nearest, _squared_distance(first, second), out=nearest)
        distance[members] = np.sqrt(nearest)
    ink = np.clip(pen + 0.5 - distance, 0.0, 1.0) * uniform(rng, count, 150.0, 255.0)
    noise = rng.standard_normal(ink.shape, dtype=np.float32) * uniform(rng, count, 2.0, 20.0)
    return (ink + noise)[:, None]


def _place(
    strokes: tuple[Points, ...], count: int, rng: np.random.Generator
) -> list[NDArray[np.float32]]:
    """The points of each stroke in pixels, (points, n, 2), with random bends and position."""
    angle = rng.uniform(-0.2, 0.2, count)
    slant = rng.uniform(-0.1, 0.35, count)
    height = rng.uniform(7.0, 10.5, count)
    width = height * rng.uniform(0.75, 1.05, count)
    centre = (_SIDE - 1) / 2 + rng.uniform(-2.5, 2.5, (count, 2))
    placed = []
    for points in strokes:
        bent = np.array(points)[:, None] + rng.normal(0.0, 0.055, (len(points), count, 2))
        x, y = width * (bent[..., 0] - slant * bent[..., 1]), height * bent[..., 1]
        cosine, sine = np.cos(angle), np.sin(angle)
        turned = np.stack((cosine * x - sine * y, sine * x + cosine * y), axis=-1)
        placed.append((turned + centre).astype(np.float32))
    return placed


_AXIS = np.arange(_SIDE, dtype=np.float32)


def _squared_distance(first: Floats, second: Floats) -> Floats:
    """Squared distance (n, 28, 28) of each pixel from a line segment, whose ends are (n, 2)."""
    along = second - first
    along_x, along_y = along[:, 0, None, None], along[:, 1, None, None]
    x = _AXIS[None, None, :] - first[:, 0, None, None]
    y = _AXIS[None, :, None] - first[:, 1, None, None]
    # Position of the foot of the perpendicular on the segment, as a fraction of its length.
    part = (along_x * x + along_y * y) / (along_x**2 + along_y**2 + np.float32(1e-6))
    np.clip(part, 0.0, 1.0, out=part)
    return (x - part * along_x) ** 2 + (y - part * along_y) ** 2
