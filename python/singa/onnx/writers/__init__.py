"""Writers of singa's operators, one module for each family. `registry` describes them."""

from . import (
    attention,
    elementwise,
    imported,
    layers,
    movement,
    recurrent,
    rotary,
    selection,
    sorting,
    window,
)

__all__ = [
    "attention",
    "elementwise",
    "imported",
    "layers",
    "movement",
    "recurrent",
    "rotary",
    "selection",
    "sorting",
    "window",
]
