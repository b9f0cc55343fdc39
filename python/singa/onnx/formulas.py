"""Constants that follow from lengths, as nodes that compute them.

Each function gets the elements of a constant in all traces, and returns the name of the value that
its nodes make; None if the constant is of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..networks.element_types import name_of
from .data_types import NUMBERS
from .errors import ExportError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .node_writer import Writer

    Array = NDArray[Any]

#: Most elements that have a formula each.
_MOST_ELEMENTS = 64


def written(writer: Writer, arrays: Sequence[Array], what: str) -> str | None:
    """The value of a constant that differs between traces; None if nothing is known that gives it.

    Raises ExportError where its shape has no formula.
    """
    if len({a.dtype for a in arrays}) > 1 or len({a.ndim for a in arrays}) > 1:
        return None
    if any(a.size == 0 for a in arrays):
        return None
    for attempt in (_number, _elements, _range, _band):
        name = attempt(writer, arrays, what)
        if name is not None:
            return name
    return None


def _number(writer: Writer, arrays: Sequence[Array], what: str) -> str | None:
    """The same number everywhere. It may follow a length itself."""
    numbers = [a.reshape(-1)[0].item() for a in arrays]
    if any((a != a.reshape(-1)[0]).any() for a in arrays):
        return None
    kind = arrays[0].dtype
    if all(number == numbers[0] for number in numbers):
        value = writer.constant(np.array(numbers[0], kind))
    elif _is_whole(numbers):
        vector = _integers(writer, [[int(number)] for number in numbers], what)
        if vector is None:
            return _scaled(writer, numbers, arrays, what)
        value = _cast(writer, vector, "int64", arrays[0])
    else:
        return _scaled(writer, numbers, arrays, what)
    return _spread(writer, value, arrays, what)


def _spread(writer: Writer, value: str, arrays: Sequence[Array], what: str) -> str:
    return writer.node("Expand", [value, _shape(writer, arrays, what)])[0]


def _scaled(
    writer: Writer, numbers: Sequence[float], arrays: Sequence[Array], what: str
) -> str | None:
    """A multiple of a length, of its reciprocal, or of the root of one of these."""
    if arrays[0].dtype.kind != "f":
        return None
    found = np.array(numbers, float)
    powers: dict[float, Callable[[str, str], str]] = {
        1: lambda x, c: writer.node("Mul", [c, x])[0],
        -1: lambda x, c: writer.node("Div", [c, x])[0],
        0.5: lambda x, c: writer.node("Mul", [c, writer.node("Sqrt", [x])[0]])[0],
        -0.5: lambda x, c: writer.node("Div", [c, writer.node("Sqrt", [x])[0]])[0],
    }
    bound = 4 * float(np.finfo(arrays[0].dtype).eps)
    for column, formula in writer.lengths.few():
        lengths = np.array(column, float)
        if (lengths <= 0).any() or len(set(column)) < 3:
            continue
        for power, node in powers.items():
            factors = found / lengths**power
            if np.ptp(factors) <= bound * abs(factors[0]):
                vector = writer.length_value(formula)
                x = writer.node("Cast", [vector], to=NUMBERS["float32"])[0]
                y = node(x, writer.constant(np.array(factors[0], np.float32)))
                return _spread(writer, _cast(writer, y, "float32", arrays[0]), arrays, what)
    return None


def _elements(writer: Writer, arrays: Sequence[Array], what: str) -> str | None:
    """A few whole numbers in a shape that stays, each with a formula."""
    if len({a.shape for a in arrays}) > 1 or arrays[0].size > _MOST_ELEMENTS:
        return None
    rows = [a.reshape(-1).tolist() for a in arrays]
    if arrays[0].dtype.kind not in "iu" and not all(map(_is_whole, rows)):
        return None
    vector = _integers(writer, [[int(number) for number in row] for row in rows], what)
    if vector is None:
        return None
    shape = writer.constant(np.array(arrays[0].shape, np.int64))
    shaped = writer.node("Reshape", [vector, shape])[0]
    return _cast(writer, shaped, "int64", arrays[0])


def _range(writer: Writer, arrays: Sequence[Array], what: str) -> str | None:
    """Whole numbers in even steps, along the one axis that is not 1."""
    if any(max(a.shape, default=1) != a.size or a.size < 2 for a in arrays):
        return None
    rows = [a.reshape(-1).tolist() for a in arrays]
    if not all(map(_is_whole, rows)):
        return None
    steps = {int(b - a) for row in rows for a, b in pairwise(row)}
    if len(steps) != 1 or 0 in steps:
        return None
    step = steps.pop()
    starts = [[int(row[0])] for row in rows]
    start, end = (
        _integers(writer, each, what)
        for each in (starts, [[int(row[0]) + step * len(row)] for row in rows])
    )
    if start is None or end is None:
        return None
    empty = writer.constant(np.zeros(0, np.int64))
    ends = [writer.node("Reshape", [x, empty])[0] for x in (start, end)]
    values = writer.node("Range", [*ends, writer.constant(np.array(step, np.int64))])[0]
    shaped = writer.node("Reshape", [values, _shape(writer, arrays, what)])[0]
    return _cast(writer, shaped, "int64", arrays[0])


def _band(writer: Writer, arrays: Sequence[Array], what: str) -> str | None:
    """A matrix with one number up to a diagonal and another one above it, as causal masks are. A
    vector is a matrix with one row."""
    shapes = [(1, *a.shape)[-2:] for a in arrays]
    if not arrays[0].ndim or any(a.size != n * m for a, (n, m) in zip(arrays, shapes, strict=True)):
        return None
    matrices = [a.reshape(shape) for a, shape in zip(arrays, shapes, strict=True)]
    low, high = matrices[0][-1, 0], matrices[0][0, -1]
    if low == high:
        return None
    diagonals = []
    for matrix in matrices:
        rows, columns = matrix.shape
        distance = np.arange(columns) - np.arange(rows)[:, None]
        diagonals.append([int(distance[matrix == low].max(initial=-rows))])
        if (np.where(distance <= diagonals[-1][0], low, high) != matrix).any():
            return None
    diagonal = _integers(writer, diagonals, what)
    if diagonal is None:
        return None
    zero, one = (writer.constant(np.array(i, np.int64)) for i in (0, 1))
    empty = writer.constant(np.zeros(0, np.int64))
    counts = []
    for column_ in zip(*shapes, strict=True):
        length = writer.integers([[n] for n in column_], f"a length of {what}")
        count = writer.node("Reshape", [length, empty])[0]
        counts.append(writer.node("Range", [zero, count, one])[0])
    column = writer.node("Reshape", [counts[0], writer.constant(np.array([-1, 1], np.int64))])[0]
    limit = writer.node("Add", [column, diagonal])[0]
    below = writer.node("Not", [writer.node("Greater", [counts[1], limit])[0]])[0]
    if arrays[0].dtype.kind == "b":
        mask = below if low else writer.node("Not", [below])[0]
    else:
        wide = np.float32 if arrays[0].dtype.kind not in "iu" else np.int64
        numbers = [writer.constant(np.array(x, wide)) for x in (low, high)]
        mask = writer.node("Where", [below, *numbers])[0]
        mask = _cast(writer, mask, np.dtype(wide).name, arrays[0])
    return writer.node("Reshape", [mask, _shape(writer, arrays, what)])[0]


def _shape(writer: Writer, arrays: Sequence[Array], what: str) -> str:
    return writer.integers([a.shape for a in arrays], f"the shape of {what}")


def _cast(writer: Writer, value: str, found: str, like: Array) -> str:
    wanted = name_of(like)
    return value if found == wanted else writer.node("Cast", [value], to=NUMBERS[wanted])[0]


def _integers(writer: Writer, rows: Sequence[Sequence[int]], what: str) -> str | None:
    try:
        return writer.integers(rows, what)
    except ExportError:
        return None


def _is_whole(numbers: Sequence[Any]) -> bool:
    return all(np.isfinite(number) and number == int(number) for number in numbers)
