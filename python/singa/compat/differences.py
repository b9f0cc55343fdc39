"""SINGA's behaviour where it differs: a table of what it replaces.

`set_enabled` writes the values of the table to their places, or what was there before back. The
rest of singa knows no mode, but for the few modules that ask `tape.behaviour`.
docs/singa_compat.md describes each row.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from .. import layer, ops
from .. import singa_wrap as _c
from ..ops.base import tensor_of
from ..ops.statistics import is_one
from ..tape.behaviour import behaviour
from ..tape.tensor import Tensor
from ..tensor import _into


def _listed(function: Callable[..., Tensor], kind: type[ops.Operator]) -> Callable[..., Tensor]:
    """A function of a list of tensors, for which one tensor is a list of one."""

    def of_list(*xs: Any, **options: Any) -> Tensor:
        return kind()(*xs)[0] if is_one(xs) and not options else function(*xs, **options)

    of_list.__name__, of_list.__doc__ = function.__name__, function.__doc__
    return of_list


def _onehot(axis: int, indices: Tensor, depth: Any, values: Any) -> Tensor:
    """`autograd.onehot`, in which an index outside has no `on`."""
    return ops.OneHot(axis, depth, values)(tensor_of(indices))[0]


def _softmax(t: Tensor, out: Tensor | None = None) -> Tensor:
    """Softmax of each row: over all axes but the first."""
    return _into(ops.softmax(t, min(1, t.ndim() - 1)), out)


def _sum(t: Tensor, axis: int | Sequence[int] | None = None, out: Tensor | None = None) -> Tensor:
    """`tensor.sum`, with shape (1,) for the sum of all elements."""
    return _into(t.sum().reshape((1,)) if axis is None else t.sum(axis), out)


def _sum_columns(M: Tensor) -> Tensor:
    return M.sum(1).reshape((-1, 1))


def _sum_rows(M: Tensor) -> Tensor:
    return M.sum(0).reshape((1, -1))


#: (object, attribute, value under SINGA's behaviour). An object is a module, or in a module.
TABLE: tuple[tuple[str, str, Any], ...] = (
    ("tape.behaviour:behaviour", "name", "SINGA"),
    ("tape.behaviour:behaviour", "repeats_backward", True),
    ("tape.behaviour:behaviour", "passes_numbers", True),
    ("tape.behaviour:behaviour", "converts_inputs", True),
    ("tape.operator:Operator", "_check", lambda self: None),
    ("tape.tensor:Tensor", "__bool__", lambda self: True),
    ("tape.tensor:Tensor", "clone", Tensor.deepcopy),
    ("ops.activation:Dropout", "_ignores_fractions", True),
    ("ops.arithmetic:_Comparison", "_compute", staticmethod(_c.Binary)),
    ("ops.elementwise:Not", "_of_bools", False),
    ("ops.indexing:Gather", "wraps", True),
    ("ops.items", "keeps_axes", True),
    ("ops.loss:BinaryCrossEntropy", "_is_shifted", True),
    ("ops.loss:MeanSquareError", "_broadcasts", True),
    ("ops.loss:RankingLoss", "_by_rows", True),
    ("ops.movement:Unsqueeze", "clamps", True),
    ("ops.reduction:SoftMax", "flattens", True),
    ("autograd", "Linear", layer.Linear),
    ("autograd", "RNN", layer.RNN),
    ("autograd", "max", _listed(ops.max, ops.Max)),
    ("autograd", "mean", _listed(ops.mean, ops.Mean)),
    ("autograd", "min", _listed(ops.min, ops.Min)),
    ("autograd", "onehot", _onehot),
    ("autograd", "sum", _listed(ops.sum, ops.Sum)),
    ("tensor", "softmax", _softmax),
    ("tensor", "sum", _sum),
    ("tensor", "sum_columns", _sum_columns),
    ("tensor", "sum_rows", _sum_rows),
    ("layer.parameters:Parameterized", "_sets_parts", True),
    ("layer.types:Typed", "_refuse_type", lambda self, first, other: other.to_type(first)),
    ("opt.parameter_keys:ParameterKeys", "_trains_others", True),
)

_ABSENT: Any = object()
_before: list[tuple[Any, str, Any]] = []


def _put_back(owner: Any, name: str, value: Any) -> None:
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def set_enabled(flag: bool) -> None:
    """Turns SINGA's behaviour on or off."""
    if flag == bool(behaviour.name):
        return
    if not flag:
        while _before:
            _put_back(*_before.pop())
        return
    for path, name, value in TABLE:
        module, _, inner = path.partition(":")
        owner: Any = importlib.import_module(f"singa.{module}")
        owner = getattr(owner, inner) if inner else owner
        _before.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)
