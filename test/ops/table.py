"""The table of operators: how each is applied, to which inputs, and the same in PyTorch.

Tests of test/python/ops and test/python/onnx run each entry.
"""

from ops import (
    attention,
    conv,
    elementwise,
    indexing,
    interpolate,
    layout,
    linalg,
    loss,
    matrices,
    norm,
    pooling,
    reduce,
    running,
)
from ops.case import Case

FAMILIES = (
    *(elementwise, reduce, running, linalg, matrices, attention, layout, interpolate),
    *(indexing, loss),
    *(conv, pooling, norm),
)
_ALL = [case for family in FAMILIES for case in family.CASES]
CASES: list[Case] = [case for case in _ALL if not case.large]
#: Sizes and geometries for which kernels divide their work otherwise.
LARGE: list[Case] = [case for case in _ALL if case.large]
