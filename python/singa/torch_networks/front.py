"""What PyTorch's operators mean: the front end of graphs of `torch.export`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import autograd
from ..dtypes import DType
from ..networks.element_types import FLOATS, is_singas
from ..networks.errors import Refused
from ..networks.front_end import Compute, FrontEnd, OnHost, Reader
from ..networks.graph import Node
from ..tensor import Tensor
from .arguments import arguments_of, sizes_among
from .operators import registry
from .patterns import TorchFusion
from .refusals import instead_of_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..networks.graph import Graph

    Array = NDArray[Any]

#: Largest size, and largest exponent.
_LARGEST, _LARGEST_EXPONENT = 2**63 - 1, 64


def _power(x: Any, exponent: Any) -> Any:
    if abs(exponent) > _LARGEST_EXPONENT:
        raise OverflowError(f"[from_torch] a size to the power of {exponent}")
    return x**exponent


#: Arithmetic with sizes, by the name of Python's function.
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in (
        *("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "and_", "or_", "not_"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
    )
} | {
    "pow": _power,
    "sym_max": max,
    "sym_min": min,
    "sym_float": float,
    "sym_int": int,
    "sym_not": operator.not_,
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
}
#: Their domain.
NUMBERS = "numbers"

#: Why an operator without a row is refused, and what to write instead.
_WITHOUT = "singa has no such operator: write it with others, or call it outside of the module"
_VALUE = "Python reads an element: compute with the tensor itself, without item() or float()"
_COUNT = (
    "the number of elements depends on values: take torch.where, which keeps all, or call it "
    "outside of the module"
)
_INSTEAD = {
    "item": _VALUE,
    "_local_scalar_dense": _VALUE,
    **dict.fromkeys(
        (
            *("nonzero", "masked_select", "repeat_interleave.Tensor", "bincount"),
            *("_unique2", "unique_dim", "unique_consecutive"),
        ),
        _COUNT,
    ),
    "masked_scatter": "which element comes where depends on values: take torch.where",
}

#: What names of operators have besides what people call them.
_ADDED = re.compile(r"^_?(native_)?|_legit\w*|\.\w+$")

#: Checks of sizes: they have no results.
CHECKS = "_assert_scalar"


def _make(node: Node) -> Compute:
    row = registry.find(node.op)
    assert row is not None
    kept: dict[Any, Any] = {}
    forced = bool(node.attributes.get("forced"))

    several = any(node.used[1:])
    # Integers and bools have PyTorch's types; floats may be narrower, under autocast.
    kinds = [
        None if each.type is None or each.type in FLOATS else DType[each.type]
        for each in node.output_types
    ]

    def typed(y: Any, kind: DType | None) -> Any:
        is_other = kind is not None and isinstance(y, Tensor) and y.dtype != kind
        return autograd.cast(y, kind) if is_other else y

    def compute(run: Any, *inputs: Any, **fused: Any) -> Any:
        arguments, options = arguments_of(node, inputs)
        result = row(registry.Call(run, node, kept, forced), *arguments, **options, **fused)
        if several and not isinstance(result, tuple):
            raise Refused("a result other than the first: compute it with others")
        if isinstance(result, tuple):
            return tuple([typed(*each) for each in zip(result, kinds, strict=False)])
        return typed(result, kinds[0])

    return compute


def _of_numbers(node: Node) -> Compute:
    raise AssertionError("the host computes it")


def _choose(node: Node) -> Reader:
    if node.domain == NUMBERS:
        return Reader(node.op, NUMBERS, (1,), lambda node: _of_numbers, either=True)
    if registry.find(node.op) is None:
        raise Refused(_INSTEAD.get(node.op, _WITHOUT))
    for value in (*node.input_types, *node.output_types):
        if value.type is not None and not is_singas(value.type):
            instead = instead_of_type(value.type)
            raise Refused(f"singa has no tensors of type {value.type}: {instead}")
    templates = [node.attributes["arguments"], node.attributes["options"]]
    host = tuple(sorted(sizes_among(templates)))
    return Reader(node.op, "", (1,), _make, host=host)


def _on_host(node: Node) -> OnHost | None:
    if node.domain != NUMBERS:
        return None

    def compute(arrays: Sequence[Any]) -> tuple[Array, ...]:
        arguments, _ = arguments_of(node, arrays)
        if node.op == CHECKS:
            if not arguments[0]:
                raise ValueError(f"[from_torch] {arguments[1]}")
            return ()
        if not all(isinstance(x, bool | int | float) for x in arguments):
            raise TypeError(f"[from_torch] {node.op} of {arguments!r:.80}: sizes are numbers")
        result = _OF_NUMBERS[node.op](*arguments)
        if abs(result) > _LARGEST:
            raise OverflowError(f"[from_torch] a size of {result}")
        return (np.array(result),)

    return compute


def is_of_numbers(name: str, of_python: bool) -> bool:
    """Whether a function of Python, or an operator, computes with sizes."""
    return name in _OF_NUMBERS if of_python else name == CHECKS


def _of_shape(node: Node) -> Callable[[Sequence[int]], Array] | None:
    if node.op == "sym_size.int":
        axis = node.attributes["arguments"][1]
        return lambda shape: np.array(shape[axis], np.int64)
    if node.op == "sym_numel":
        return lambda shape: np.array(math.prod(shape), np.int64)
    return None


def _branch(node: Node, constants: Mapping[str, Array]) -> Graph | None:
    return None


def _shown(op: str) -> str:
    """An operator's name without what PyTorch adds for itself, as in
    _native_batch_norm_legit_functional and mean.dim."""
    return "+".join([_ADDED.sub("", each) for each in op.split("+")])


TORCH = FrontEnd(
    name="from_torch",
    function="from_torch",
    title="PyTorch",
    choose=_choose,
    on_host=_on_host,
    of_shape=_of_shape,
    branch=_branch,
    fusion=TorchFusion,
    shown=_shown,
    noun="",
)
