"""Small helpers that SINGA scripts know by these names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

_BAR_LENGTH = 20


def update_progress(progress: float, info: str) -> None:
    """Draws a text progress bar over the last one on standard output.

    `progress` goes from 0 to 1 (below: "Halt", from 1 on: "Done", and a new line); `info` is
    shown behind it. Raises TypeError if `progress` is not a number.
    """
    if isinstance(progress, bool) or not isinstance(progress, int | float):
        raise TypeError(f"[update_progress] progress must be a number, got {progress!r}")
    status = "Halt..." if progress < 0 else "Done." if progress >= 1 else ""
    progress = min(max(float(progress), 0.0), 1.0)
    filled = round(_BAR_LENGTH * progress)
    bar = "#" * filled + "-" * (_BAR_LENGTH - filled)
    sys.stdout.write(f"[{bar}] {progress * 100:3.1f}% {status} {info}".rstrip())
    sys.stdout.write("\n" if status else "\r")
    sys.stdout.flush()


def get_output_shape(
    auto_pad: str,
    input_spatial_shape: Sequence[int],
    kernel_spatial_shape: Sequence[int],
    strides_spatial_shape: Sequence[int],
) -> list[int]:
    """Extents of a convolution's or pooling's output under an ONNX `auto_pad` mode.

    SAME_UPPER, SAME_LOWER: ceil(input / stride); VALID: ceil((input - kernel + 1) / stride).
    Raises ValueError for another mode or sequences of different lengths.
    """
    _check_shapes(
        "get_output_shape", input_spatial_shape, kernel_spatial_shape, strides_spatial_shape
    )
    if auto_pad == "VALID":
        extents = [
            size - kernel + 1
            for size, kernel in zip(input_spatial_shape, kernel_spatial_shape, strict=True)
        ]
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        extents = list(input_spatial_shape)
    else:
        raise ValueError(
            f"[get_output_shape] auto_pad must be SAME_UPPER, SAME_LOWER or VALID, got {auto_pad!r}"
        )
    return [-(-size // stride) for size, stride in zip(extents, strides_spatial_shape, strict=True)]


def get_padding_shape(
    pad_mode: str,
    input_spatial_shape: Sequence[int],
    kernel_spatial_shape: Sequence[int],
    strides_spatial_shape: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding that makes the output ceil(input / stride) long, as ONNX's SAME_* modes ask.

    Returns the symmetric padding of each axis, and for each axis what is to be added before and
    after the input besides: (h, w), (before_h, after_h, before_w, after_w). An odd total has one
    more at the end for SAME_UPPER and at the beginning for SAME_LOWER.

    Raises ValueError for another mode or sequences of different lengths.
    """
    _check_shapes(
        "get_padding_shape", input_spatial_shape, kernel_spatial_shape, strides_spatial_shape
    )
    if pad_mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(
            f"[get_padding_shape] pad_mode must be SAME_UPPER or SAME_LOWER, got {pad_mode!r}"
        )
    symmetric: list[int] = []
    odd: list[int] = []
    for size, kernel, stride in zip(
        input_spatial_shape, kernel_spatial_shape, strides_spatial_shape, strict=True
    ):
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        symmetric.append(total // 2)
        odd += (0, total % 2) if pad_mode == "SAME_UPPER" else (total % 2, 0)
    return tuple(symmetric), tuple(odd)


def force_unicode(s: Any) -> str:
    """`s` as text: bytes are read as UTF-8, anything else through `str`."""
    return s.decode("utf-8") if isinstance(s, bytes) else str(s)


def _check_shapes(op: str, *shapes: Sequence[int]) -> None:
    if len({len(shape) for shape in shapes}) != 1 or any(
        min(shape, default=0) < 1 for shape in shapes
    ):
        raise ValueError(
            f"[{op}] input, kernel and strides must have the same number of positive extents, "
            f"got {', '.join(str(tuple(shape)) for shape in shapes)}"
        )
