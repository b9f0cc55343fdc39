"""The table of operators that singa reads: `python -m singa onnx --operators`."""

from __future__ import annotations

from collections.abc import Collection

from ..networks.element_types import ALL, BOOL, FLOATS, INTEGERS, NUMERIC
from ..networks.front_end import Reader
from .data_types import NAMES
from .readers.registry import readers

_KINDS = {
    frozenset(NAMES.values()): "any",
    frozenset(ALL): "all",
    frozenset(NUMERIC): "numbers",
    frozenset(FLOATS): "floats",
    frozenset(INTEGERS): "integers",
    frozenset(BOOL): "bool",
}

#: Operators that `Network` computes itself, with the versions that the onnx package has.
_SHAPES = ("Shape", "Size")


def table() -> str:
    """The operators as a table of Markdown: versions, types of the first input, and gradient."""
    rows: dict[str, list[Reader]] = {}
    for reader in readers():
        name = f"{reader.domain}.{reader.op}" if reader.domain else reader.op
        rows.setdefault(name, []).append(reader)
    lines = ["| operator | versions | types | gradient |", "|---|---|---|---|"]
    for op in sorted([*rows, *_SHAPES]):
        if op in _SHAPES:
            lines.append(f"| {op} | 1 and newer | all | no |")
            continue
        for types, gradient, versions in _merged(rows[op]):
            numbers = ", ".join(map(str, sorted(versions)))
            lines.append(f"| {op} | {numbers} | {types} | {gradient} |")
    return "\n".join(lines)


def _merged(found: Collection[Reader]) -> list[tuple[str, str, list[int]]]:
    """(types, gradient, versions) of an operator: readers that differ in versions alone as one."""
    merged: dict[tuple[str, str], list[int]] = {}
    for reader in sorted(found, key=lambda r: r.versions):
        key = (_types(reader.types), "host" if reader.evaluated else _gradient(reader.gradient))
        merged.setdefault(key, []).extend(reader.versions)
    return [(*key, versions) for key, versions in merged.items()]


def _types(types: Collection[str]) -> str:
    known = _KINDS.get(frozenset(types))
    return known if known is not None else ", ".join(sorted(types))


def _gradient(gradient: bool | str) -> str:
    return gradient if isinstance(gradient, str) else "yes" if gradient else "no"
