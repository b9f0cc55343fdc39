"""Parameters of the functions of singa_wrap, read from the public headers that SWIG wraps."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from singa import singa_wrap

_INCLUDE = Path(__file__).resolve().parents[2] / "include" / "singa"
_PARAMETERS = r"\(((?:[^()]|\([^()]*\))*)\)"
_FUNCTION = re.compile(r"^SINGA_API\s+[\w:<>&,\s]*?\b(\w+)" + _PARAMETERS, re.M)
_MEMBER = re.compile(r"^  (?:[\w:<>&]+\s+)*?(\w+)" + _PARAMETERS, re.M)

#: Types of parameters by name, for functions that are defined in Python.
_BY_NAME = {
    **dict.fromkeys(("t", "m", "v", "a", "dst", "src", "x", "y", "c"), "Tensor"),
    **dict.fromkeys(("b",), "Tensor or double"),
    **dict.fromkeys(("axis", "start", "end", "size", "dst_offset", "src_offset"), "int64_t"),
    **dict.fromkeys(("alpha", "beta"), "double"),
    **dict.fromkeys(("shape", "axes"), "Shape"),
    "tensors": "vector<Tensor>",
}
# These change the process permanently, or run as long as an argument says.
_LEFT_OUT = frozenset(
    ("ReplayFile", "CreateCudaDevice", "SetNumThreads", "ConfigureOpcheck", "SetTuningScope")
)


@dataclass(frozen=True)
class Function:
    name: str
    call: Callable[..., Any]
    takes: tuple[tuple[str, str], ...]  # (type without const, & and namespace; name)
    needed: int  # number of parameters without a default


_Declared = tuple[tuple[tuple[str, str], ...], int]


def _parameters(text: str) -> _Declared:
    """The parameters of a declaration, and the number of those without a default."""
    takes, needed, depth, piece = [], 0, 0, ""
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
        takes.append((kind, words.split()[-1].lstrip("*")))
        needed += not default
    return tuple(takes), needed


def _declared(pattern: re.Pattern[str]) -> dict[str, list[_Declared]]:
    found: dict[str, list[_Declared]] = {}
    for header in sorted(_INCLUDE.rglob("*.h")):
        text = re.sub(r"//[^\n]*", "", header.read_text())
        for match in pattern.finditer(text):
            found.setdefault(match[1], []).append(_parameters(match[2]))
    return found


def functions() -> list[Function]:
    """All functions of singa_wrap, sorted by name; overloads are separate entries."""
    declared = _declared(_FUNCTION)
    found = []
    for name in sorted(vars(singa_wrap)):
        call = getattr(singa_wrap, name)
        if name.startswith("_") or not inspect.isfunction(call) or name in _LEFT_OUT:
            continue
        for takes, needed in declared.get(name) or [_from_python(call)]:
            found.append(Function(name, call, takes, needed))
    return found


def _from_python(call: Callable[..., Any], bound: int = 0) -> _Declared:
    """The parameters of a function that no header declares, without the first `bound` ones."""
    parameters = list(inspect.signature(call).parameters.values())[bound:]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        count = _count(call) - bound
        return (("any", ""),) * count, count
    takes = tuple((_BY_NAME.get(p.name, "any"), p.name) for p in parameters)
    return takes, sum(p.default is p.empty for p in parameters)


def _count(call: Callable[..., Any]) -> int:
    """The number of arguments of a wrapper, from its error for too many of them."""
    try:
        call(*[object()] * 30)
    except TypeError as error:
        said = re.search(r"(?:at most|expected) (\d+) arg|exactly (one) arg", str(error))
        return int(said[1] or 1) if said else 0
    except Exception:  # a Python function that takes any number of arguments
        return 3
    return 0


def constructors() -> list[Function]:
    """The constructors of all classes that have one."""
    found, declared = [], _declared(_MEMBER)
    for name, kind in sorted(vars(singa_wrap).items()):
        if not inspect.isclass(kind) or not hasattr(kind, "__swig_destroy__"):
            continue
        if "kwargs" in inspect.signature(kind.__init__).parameters:
            continue  # SWIG marks a class without constructor in this way
        anything = [((("any", ""),) * 3, 0)]
        for takes, needed in declared.get(name) or anything:
            found.append(Function(name, kind, takes, needed))
    return found


def methods(kind: type) -> list[Function]:
    """The methods of a class that singa_wrap defines."""
    found, declared = [], _declared(_MEMBER)
    for name in sorted(vars(kind)):
        call = getattr(kind, name)
        if inspect.isfunction(call) and not name.startswith("_"):
            for takes, needed in declared.get(name) or [_from_python(call, bound=1)]:
                found.append(Function(f"{kind.__name__}.{name}", call, takes, needed))
    return found
