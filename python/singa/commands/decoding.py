"""What decoding pictures takes beside the steps of a run, and what a cache of them would need."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

from .. import data
from ..data.pictures import BrokenPictureError, read_picture
from ..raw.words import counted
from ..report.advice import Piece

_SAMPLE = 12  # pictures that are decoded
#: Share of a step from which a cache is worth it.
_SHARE = 0.2


@dataclass(frozen=True)
class Decoding:
    """seconds for a picture, and megabytes of all pictures when they are decoded."""

    seconds: float
    megabytes: float

    def is_long(self, step: float, pictures: int = 1) -> bool:
        """Whether it takes more than a fifth of a step of `step` seconds on so many pictures."""
        return self.seconds * pictures > _SHARE * step


def measure(pictures: Any) -> Decoding | None:
    """Decodes some pictures of an ImageFolder as it does; None for other data."""
    if not isinstance(pictures, data.ImageFolder):
        return None
    paths = pictures.paths[:: max(len(pictures) // _SAMPLE, 1)][:_SAMPLE]
    size, seconds, count = 0, 0.0, 0
    for path in paths:
        with contextlib.suppress(BrokenPictureError, FileNotFoundError):
            began = time.perf_counter()
            size += read_picture(path, pictures.channels, pictures.shorter_side).nbytes
            seconds += time.perf_counter() - began
            count += 1
    if not count:
        return None
    return Decoding(seconds / count, size / count * len(pictures) / 2**20)


def sentence(found: Decoding, step: float, pictures: int = 1) -> str:
    """What a user can do about it."""
    share = found.seconds * pictures / step
    return (
        f"decoding pictures takes {share:.0%} of the time of a step: --cache memory keeps them "
        f"decoded ({found.megabytes:,.0f} MB), --cache DIR in files; --resume takes these, too"
    )


def piece(found: Decoding, step: float, pictures: int) -> Piece:
    """The same as a piece of advice."""
    took = found.seconds * pictures
    return Piece(
        "decoded pictures",
        f"Decoding {counted(pictures, 'picture')} takes {1000 * took:.3g} ms.",
        "python -m singa train --resume --cache memory --out RUN",
        min(took / (took + step), 1.0),
        how="at most",
        note=f"It needs {found.megabytes:,.0f} MB. Loader threads with cores of their own hide it.",
    )
