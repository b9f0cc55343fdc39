"""Constants whose shapes depend on sizes, and positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...networks.element_types import numpy_type
from ...tensor import Tensor
from .registry import Call, computes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def _constant(call: Call, key: Any, make: Callable[[Any], Array]) -> Array:
    """An array of the type of the result: the same one whenever the sizes are the same."""
    kind = call.node.output_types[0].type
    assert kind is not None
    target = numpy_type(kind)
    return call.run.made((call.node.name, key), lambda: np.array(make(target), target))


def _filled(call: Call, shape: Sequence[int], value: Any) -> Array:
    return _constant(call, (tuple(shape), value), lambda kind: np.full(tuple(shape), value, kind))


@computes("full", "new_full")
def full(call: Call, *arguments: Any, **options: Any) -> Array:
    """A value everywhere."""
    shape, value = arguments[-2:]
    return _filled(call, shape, value)


@computes("zeros", "new_zeros", "new_empty", "empty.memory_format")
def zeros(call: Call, *arguments: Any, **options: Any) -> Array:
    """Zeros, also where PyTorch leaves the values open."""
    return _filled(call, arguments[-1], 0)


@computes("ones", "new_ones")
def ones(call: Call, *arguments: Any, **options: Any) -> Array:
    """Ones."""
    return _filled(call, arguments[-1], 1)


@computes("zeros_like", "empty_like", "zero")
def zeros_like(call: Call, x: Tensor, **options: Any) -> Array:
    """Zeros in the shape of x."""
    return _filled(call, x.shape, 0)


@computes("ones_like")
def ones_like(call: Call, x: Tensor, **options: Any) -> Array:
    """Ones in the shape of x."""
    return _filled(call, x.shape, 1)


@computes("full_like")
def full_like(call: Call, x: Tensor, value: Any, **options: Any) -> Array:
    """A value in the shape of x."""
    return _filled(call, x.shape, value)


@computes("fill.Scalar", "fill.Tensor")
def fill(call: Call, x: Tensor, value: Any) -> Any:
    """A value in the shape of x."""
    if not isinstance(value, Tensor):
        return _filled(call, x.shape, value)
    from .movement import copy

    return copy(call, x, value)


@computes("scalar_tensor")
def scalar_tensor(call: Call, value: Any, **options: Any) -> Array:
    """A number as a tensor."""
    return _filled(call, (), value)


@computes("arange", "arange.start", "arange.start_step")
def arange(call: Call, *limits: Any, **options: Any) -> Array:
    """Numbers at equal distances."""
    return _constant(call, limits, lambda kind: np.arange(*limits))


@computes("linspace")
def linspace(call: Call, start: float, end: float, steps: int, **options: Any) -> Array:
    """Numbers at equal distances, both ends included."""
    return _constant(call, (start, end, steps), lambda kind: np.linspace(start, end, steps))
