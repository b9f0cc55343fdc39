"""Errors of import and export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class InvalidModelError(ValueError):
    """A file is damaged, or contradicts ONNX's specification."""


@dataclass(frozen=True)
class Problem:
    """A node that cannot be imported: its name, operator, operator version, and what is missing."""

    node: str
    operator: str
    version: int
    reason: str

    def __str__(self) -> str:
        version = f" version {self.version}" if self.version else ""
        return f"node {self.node!r} ({self.operator}{version}): {self.reason}"


def grouped(problems: Sequence[Problem]) -> list[str]:
    """A line for each operator and reason: the node, or how many there are and the first one."""
    groups: dict[tuple[str, int, str], list[Problem]] = {}
    for problem in problems:
        key = (problem.operator, problem.version, problem.reason)
        groups.setdefault(key, []).append(problem)
    return [
        str(first) if not more else f"{1 + len(more)} nodes, the first of them {first}"
        for first, *more in groups.values()
    ]


class UnsupportedError(NotImplementedError):
    """A file has nodes that singa cannot compute.

    `problems` lists all of them. The message has a line for each operator and reason.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        lines = "\n".join(f"  {line}" for line in grouped(self.problems))
        count = len(self.problems)
        what = "1 node is" if count == 1 else f"{count} nodes are"
        super().__init__(f"[onnx.load] {what} not supported:\n{lines}")


class Refused(Exception):  # noqa: N818 - it becomes a Problem, or an UnsupportedError
    """Raised by a reader that cannot compute a node. The message says what is missing."""


class ExportError(ValueError):
    """A computation that cannot be written as ONNX."""
