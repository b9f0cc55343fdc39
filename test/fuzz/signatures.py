"""What the functions of singa_wrap take: read from the public headers that SWIG wraps."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from singa import singa_wrap

_INCLUDE = Path(__file__).resolve().parents[2] / "include" / "singa"
_FUNCTION = re.compile(r"^SINGA_API\s+[\w:<>&,\s]*?\b(\w+)\(((?:[^()]|\([^()]*\))*)\)", re.M)

#: By name, for functions that Python defines: what arguments of this name are.
_BY_NAME = {
    **dict.fromkeys(("t", "m", "v", "a", "dst", "src", "x", "y", "c"), "Tensor"),
    **dict.fromkeys(("b",), "Tensor or double"),
    **dict.fromkeys(("axis", "start", "end", "size", "dst_offset", "src_offset"), "int64_t"),
    **dict.fromkeys(("alpha", "beta"), "double"),
    **dict.fromkeys(("shape", "axes"), "Shape"),
    "tensors": "vector<Tensor>",
}
# They change the process for good, or run for as long as they are told to.
_LEFT_OUT = frozenset(
    ("ReplayFile", "CreateCudaDevice", "SetNumThreads", "ConfigureOpcheck", "SetTuningScope")
)


@dataclass(frozen=True)
class Function:
    name: str
    call: Callable[..., Any]
    takes: tuple[str, ...]  # types, without const, & and namespaces
    needed: int  # how many have no default


def _parameters(text: str) -> tuple[tuple[str, ...], int]:
    """Types of the parameters of a declaration, and how many are needed."""
    types, needed, depth, piece = [], 0, 0, ""
    for letter in [*text, ","]:
        depth += letter in "<({"
        depth -= letter in ">)}"
        if letter != "," or depth:
            piece += letter
            continue
        declared, _, default = piece.partition("=")
        piece = ""
        words = re.sub(r"\b(const|std::|singa::)\s*|[&\n]", " ", declared).strip()
        words = re.sub(r"std::|singa::", "", words)
        if not words:
            continue
        kind = re.sub(r"\s+", "", re.sub(r"\s*\*?\s*\w+$", "", words)) or words
        types.append(kind)
        needed += not default
    return tuple(types), needed


def functions() -> list[Function]:
    """All of singa_wrap's, overloads one by one, in the order of their names."""
    declared: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    for header in sorted(_INCLUDE.rglob("*.h")):
        text = re.sub(r"//[^\n]*", "", header.read_text())
        for match in _FUNCTION.finditer(text):
            declared.setdefault(match[1], []).append(_parameters(match[2]))
    found = []
    for name in sorted(vars(singa_wrap)):
        call = getattr(singa_wrap, name)
        if name.startswith("_") or not inspect.isfunction(call) or name in _LEFT_OUT:
            continue
        for takes, needed in declared.get(name) or [_from_python(call)]:
            found.append(Function(name, call, takes, needed))
    return found


def _from_python(call: Callable[..., Any]) -> tuple[tuple[str, ...], int]:
    parameters = list(inspect.signature(call).parameters.values())
    takes = tuple(
        "any" if p.kind is p.VAR_POSITIONAL else _BY_NAME.get(p.name, "any") for p in parameters
    )
    return takes, sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in parameters)


def constructors() -> list[Function]:
    """Of all classes that have one, with arguments of any kind."""
    return [
        Function(name, kind, ("any",) * 4, 0)
        for name, kind in sorted(vars(singa_wrap).items())
        if inspect.isclass(kind)
        and hasattr(kind, "__swig_destroy__")
        and "kwargs"
        not in inspect.signature(kind.__init__).parameters  # SWIG's mark of no public one
    ]


def methods(kind: type) -> list[Function]:
    """Of a class: those that singa_wrap gives it, with arguments of any kind."""
    return [
        Function(f"{kind.__name__}.{name}", getattr(kind, name), ("any",) * 3, 0)
        for name in sorted(vars(kind))
        if inspect.isfunction(getattr(kind, name)) and not name.startswith("_")
    ]
