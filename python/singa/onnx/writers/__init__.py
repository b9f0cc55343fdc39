"""Writers of singa's operators, one module for each family. `registry` describes them."""

from . import (  # noqa: F401 - they fill the table
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
