"""The stub of the methods that modules install on Tensor (`singa.tape.tensor.install`), which type
checkers read. As a program, it writes the file:

PYTHONPATH=build/debug/python python test/python/support/interface/tensor_stub.py
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import singa.tape.tensor
from singa import autograd  # noqa: F401 - installs them

PATH = Path(singa.tape.tensor.__file__).resolve().with_name("tensor_methods.pyi")
_HEAD = """\
# Written by test/python/support/interface/tensor_stub.py: what `singa.tape.tensor.install` puts on
# Tensor.
import builtins
from collections.abc import Sequence
from typing import Any, Self

from .operator import Operator
from .tensor import Tensor

Axes = builtins.int | Sequence[builtins.int] | None

class TensorMethods:
    def __hash__(self) -> builtins.int: ...
"""


def stub() -> str:
    """The content of the file, before ruff formats it."""
    lines = [
        f"    {line}"
        for name, value in sorted(singa.tape.tensor.installed.items())
        for line in (_property if isinstance(value, property) else _function)(name, value)
    ]
    return "\n".join([_HEAD, *lines, ""])


def _property(name: str, value: property) -> Iterator[str]:
    yield "@property"
    yield from _function(name, value.fget)
    if value.fset:
        yield f"@{name}.setter"
        yield from _function(name, value.fset)


def _function(name: str, function: Any) -> Iterator[str]:
    assert isinstance(function, FunctionType)
    signature = inspect.signature(function)
    _, *others = signature.parameters.values()
    arguments = ["self", *map(_argument, others)]
    keyword_only = [i for i, p in enumerate(others, 1) if p.kind == p.KEYWORD_ONLY]
    if keyword_only and not any(p.kind == p.VAR_POSITIONAL for p in others):
        arguments.insert(keyword_only[0], "*")
    yield f"def {name}({', '.join(arguments)}) -> {_type(signature.return_annotation)}: ..."


def _argument(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}: {_type(parameter.annotation)}{default}"


def _type(annotation: str) -> str:
    """The annotation, in a class with methods that are called like types."""
    return re.sub(r"(?<![\w.])(bool|float|int)\b", r"builtins.\1", annotation)


def main() -> None:
    """Writes the file."""
    PATH.write_text(stub())
    print(f"{PATH} is written; format it by: scripts/lint.sh fix")


if __name__ == "__main__":
    main()
