"""Errors of graphs that come from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..raw.words import counted


class InvalidModelError(ValueError):
    """A file is damaged, or contradicts ONNX's specification.

    >>> from pathlib import Path
    >>> Path("broken.onnx").write_bytes(b"no network")
    10
    >>> try:
    ...     singa.onnx.load("broken.onnx")
    ... except singa.onnx.InvalidModelError:
    ...     print("damaged")
    ...
    damaged
    """


@dataclass(frozen=True)
class Problem:
    """A node that cannot be imported: its name, operator, operator version, and what is missing.

    >>> print(singa.onnx.Problem("node_1", "Unknown", 20, "there is no reader"))
    node 'node_1' (Unknown version 20): there is no reader
    """

    node: str
    operator: str
    version: int
    reason: str

    def __str__(self) -> str:
        return f"node {_text(self)}"


def _text(problem: Problem) -> str:
    """A problem without the word "node"."""
    version = f" version {problem.version}" if problem.version else ""
    return f"{problem.node!r} ({problem.operator}{version}): {problem.reason}"


def grouped(problems: Sequence[Problem], noun: str = "node") -> list[str]:
    """A line for each operator and reason: the node, or how many there are and the first one."""
    groups: dict[tuple[str, int, str], list[Problem]] = {}
    for problem in problems:
        key = (problem.operator, problem.version, problem.reason)
        groups.setdefault(key, []).append(problem)
    return [
        f"{noun} {_text(first)}".lstrip()
        if not more
        else f"{counted(1 + len(more), noun or 'place')}, the first of them "
        f"{f'{noun} {_text(first)}'.lstrip()}"
        for first, *more in groups.values()
    ]


class UnsupportedError(NotImplementedError):
    """A file has nodes that singa cannot compute.

    `problems` lists all of them. The message begins with the name of the function that refuses,
    and has a line for each operator and reason. `noun` is what it calls them; an empty one leaves
    the word out.

    >>> import onnx
    >>> node = onnx.helper.make_node("Unknown", ["x"], ["y"], domain="example")
    >>> x, y = (onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    >>> graph = onnx.helper.make_graph([node], "graph", [x], [y])
    >>> opsets = [onnx.helper.make_opsetid("example", 1), onnx.helper.make_opsetid("", 20)]
    >>> onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), "net.onnx")
    >>> try:
    ...     singa.onnx.load("net.onnx")
    ... except singa.onnx.UnsupportedError as error:
    ...     print(error.problems[0].operator)
    ...
    example.Unknown
    """

    def __init__(
        self, problems: Sequence[Problem], function: str = "onnx.load", noun: str = "node"
    ) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        lines = "\n".join(f"  {line}" for line in grouped(self.problems, noun))
        count = len(self.problems)
        what = f"{counted(count, noun)} {'is' if count == 1 else 'are'} " if noun else ""
        super().__init__(f"[{function}] {what}not supported:\n{lines}")


class Refused(Exception):  # noqa: N818 - it becomes a Problem, or an UnsupportedError
    """Raised by a reader that cannot compute a node. The message says what is missing."""
