"""What an entry of the table of operators is made of.

Inputs are float64 arrays away from kinks and poles, so that finite differences are valid.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from singa import autograd

Arrays = list[np.ndarray[Any, Any]]


class _Module:
    """A module that is imported when it is used, since PyTorch may be missing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


torch, functional = _Module("torch"), _Module("torch.nn.functional")


@dataclass
class Case:
    """One operator. `apply(*tensors)` is singa's form, `theirs(*tensors)` PyTorch's. `covers` are
    the names of the operator classes that it runs."""

    name: str
    covers: tuple[str, ...]
    apply: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: Arrays
    differentiable: bool = True
    tolerance: float = 64  # in units of eps of the type, relative to the largest value
    constants: Sequence[int] = field(default=())  # inputs without gradient, of fixed type
    one_step: bool = True  # applies one operator with one output
    large: bool = False  # only results and gradients are tested, since other tests would take long
    moves: bool = False  # moves elements of any type


#: Options of several steps whose results are counts, truths or indices.
VALUES = {"differentiable": False, "one_step": False}
_OPTIONS = {option.name for option in fields(Case)}


class Family(list[Case]):
    """The cases of a file."""

    def add(self, name: str, covers: str, *args: Any, **kwargs: Any) -> None:
        """Appends a case. `covers` separates names by spaces."""
        self.append(Case(name, tuple(covers.split()), *args, **kwargs))

    def call(
        self,
        name: str,
        covers: str,
        inputs: Arrays,
        *args: Any,
        theirs: str | Callable[..., Any] = "",
        **kwargs: Any,
    ) -> None:
        """Appends a case of the function that `name` begins with. `theirs` is PyTorch's, or its
        name if that differs; both take the same arguments behind the tensors. Options of the case
        are taken from `kwargs`."""
        options = {key: kwargs.pop(key) for key in _OPTIONS & kwargs.keys()}
        function = name.split(" ")[0].rstrip(",")

        def of_torch(*xs: Any) -> Any:
            called = theirs or function
            if isinstance(called, str):
                called = getattr(functional, called, None) or getattr(torch, called)
            return called(*xs, *args, **kwargs)

        ours = getattr(autograd, function)
        self.add(name, covers, lambda *xs: ours(*xs, *args, **kwargs), of_torch, inputs, **options)

    def alike(
        self, name: str, covers: str, inputs: Arrays, function: Callable[..., Any], **kwargs: Any
    ) -> None:
        """Appends a case of what tensors of both do by the same expression."""
        self.add(name, covers, function, function, inputs, **kwargs)


def uniform(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Any:
    """Random values."""
    return np.random.default_rng(seed + 7919 * len(shape)).uniform(low, high, shape)


def apart(*shape: int, seed: int = 0, gap: float = 0.05) -> Any:
    """Distinct values, each at least `gap` away from multiples of one half."""
    count = int(np.prod(shape))
    values = np.random.default_rng(seed).permutation(count) - count // 2
    return (values * 0.37 + np.where(values % 2, gap, -gap) + 0.21).reshape(shape)


def handle(kind: Any, x: Any, *args: Any) -> Any:
    """A handle for the tensor x."""
    return kind(x.data, *args)


X = apart(3, 4, 5, seed=1) / 8  # in (-1.4, 1.4)
UNIT = uniform(3, 4, 5, low=-0.9, high=0.9)
POSITIVE = uniform(3, 4, 5, low=0.2, high=3.0)
ABOVE_ONE = uniform(3, 4, 5, low=1.1, high=3.0)
