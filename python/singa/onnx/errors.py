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


class UnsupportedError(NotImplementedError):
    """A file has nodes that singa cannot compute. `problems` lists all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        count = len(self.problems)
        what = "1 node is" if count == 1 else f"{count} nodes are"
        super().__init__(f"[onnx.load] {what} not supported:\n{lines}")


class Refused(Exception):  # noqa: N818 - it becomes a Problem, or an UnsupportedError
    """Raised by a reader that cannot compute a node. The message says what is missing."""


class ExportError(ValueError):
    """A computation that cannot be written as ONNX."""
