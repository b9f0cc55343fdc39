"""PyTorch's operators, one module for each family. `registry` describes the table."""

from . import (  # noqa: F401 - they fill the table
    contraction,
    creation,
    drawing,
    elementwise,
    indexing,
    movement,
    normalization,
    pooling,
    reduction,
)
