"""Choices that autotune made, kept in a file. Not there yet: both raise NotImplementedError."""

from __future__ import annotations

import os
from typing import NoReturn

__all__ = ["load", "save"]


def save(path: str | os.PathLike[str]) -> None:
    """Would write the choices of this process to a file."""
    _not_there("save")


def load(path: str | os.PathLike[str]) -> None:
    """Would take the choices in a file over, so that a later run computes the same bits."""
    _not_there("load")


def _not_there(what: str) -> NoReturn:
    raise NotImplementedError(
        f"[tuning.{what}] choices by timing cannot be kept in a file yet; the environment variable "
        "SINGA_PREFER=fastest (the default) or reference makes the same choices in each run"
    )
