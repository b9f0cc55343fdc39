"""Runs the examples in docstrings. They start in an empty folder, with NumPy as `np`, singa and its
modules imported, a seed of 0, the tape off, and four digits in what NumPy prints."""

import contextlib
import doctest
import importlib
import re
import tempfile
from typing import Any

import numpy as np

_MODULES = (
    "autograd",
    "data",
    "device",
    "distributed",
    "initializer",
    "layer",
    "metric",
    "model",
    "models",
    "opt",
    "tensor",
    "training",
)
_FLOAT = re.compile(r"[-+]?\d+\.\d*(?:e[-+]?\d+)?")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


class _Checker(doctest.OutputChecker):
    """Floats may differ by one in their last printed digit, since kernels round differently."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        wanted, given = _FLOAT.findall(want), _FLOAT.findall(got)
        if _without_floats(want) != _without_floats(got) or len(wanted) != len(given):
            return False
        return all(
            abs(float(w) - float(g)) <= 1.01 * _last(w) for w, g in zip(wanted, given, strict=True)
        )


def _without_floats(text: str) -> str:
    return re.sub(r"\s", "", _FLOAT.sub("#", text))


def _last(number: str) -> float:
    """The worth of the last digit, of four at least."""
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - max(4, len(digits.partition(".")[2])))


def names_in_examples() -> dict[str, Any]:
    """What examples need not import."""
    modules = {name: importlib.import_module(f"singa.{name}") for name in _MODULES}
    return {"np": np, "singa": importlib.import_module("singa"), **modules}


def run(doc: str, name: str) -> str:
    """Runs the examples of one docstring; returns what differs."""
    names = names_in_examples()
    test = doctest.DocTestParser().get_doctest(doc, dict(names), name, None, None)
    names["singa"].seed(0)
    names["autograd"].training = False
    report: list[str] = []
    folder = tempfile.TemporaryDirectory()
    with folder, contextlib.chdir(folder.name), np.printoptions(precision=4, suppress=True):
        doctest.DocTestRunner(_Checker(), optionflags=FLAGS).run(test, out=report.append)
    return "".join(report)
