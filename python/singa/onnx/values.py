"""Values that the host knows: constants, shapes, and what is computed from them.

The host computes them with NumPy, so chains such as Shape, Gather, Concat, Reshape never run on
the device. Each function gets a node and the arrays of its inputs (None where one is not given),
and returns an array, or a tuple of one for each output.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..networks.element_types import is_singas, name_of, numpy_type
from ..networks.errors import InvalidModelError
from ..networks.graph import Node
from .data_types import NAMES, singas_name
from .evaluator import bounded, evaluator
from .functions import ON_HOST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

HOST: dict[str, Callable[..., Any]] = {}

#: Operators without a function here, which onnx's reference evaluator computes.
_BY_REFERENCE = frozenset(
    {
        *ON_HOST,
        *("ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
        *("CastLike", "Clip", "Compress", "CumSum", "EyeLike", "Flatten", "GatherND", "Mod"),
        *("NonZero", "OneHot", "Pad", "Pow", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
        *("ReduceSum", "ScatterElements", "ScatterND", "Tile", "TopK", "Trilu", "Unique"),
    }
)


def computation(node: Node) -> Callable[[Sequence[Array | None]], tuple[Array, ...]] | None:
    """The function of arrays that computes a node's outputs, which are read-only; None if the host
    cannot compute this operator.

    It raises InvalidModelError for inputs that do not fit the operator, or for a huge result.
    """
    if node.domain or (node.op not in HOST and node.op not in _BY_REFERENCE):
        return None
    on_host = HOST.get(node.op)
    by_reference = functools.cache(lambda: evaluator(node))

    def compute(arrays: Sequence[Array | None]) -> tuple[Array, ...]:
        try:
            with np.errstate(all="ignore"):
                results = on_host(node, *arrays) if on_host else by_reference()(arrays)
        except InvalidModelError:
            raise
        except (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError) as error:
            raise InvalidModelError(f"[onnx] node {node.name!r} ({node.op}): {error}") from None
        values = [np.asarray(a) for a in (results if isinstance(results, tuple) else (results,))]
        for value in values:
            if value.flags.owndata or value.flags.writeable:
                value.flags.writeable = False
        return tuple(values)

    return compute


# Arguments that were attributes once and are inputs now.


def numbers(value: Any) -> list[int]:
    """The elements of an array of integers."""
    return [int(n) for n in np.asarray(value).reshape(-1)]


def argument(node: Node, name: str, arrays: Sequence[Any], i: int) -> list[int] | None:
    """Integers that are an attribute in old versions, and input `i` in newer ones."""
    if i < len(arrays) and arrays[i] is not None:
        return numbers(arrays[i])
    value = node.attributes.get(name)
    return None if value is None else list(value)


def axis_within(node: Node, axis: int, rank: int) -> int:
    """The axis counted from the front. Raises InvalidModelError outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise InvalidModelError(
            f"[onnx] node {node.name!r} ({node.op}): axis {axis} of {rank} axes"
        )
    return axis % rank


def resolved_shape(node: Node, shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """The result's shape of a Reshape of `shape` to `wanted`, which may have a -1 and zeros."""
    keep = not node.attributes.get("allowzero", 0)
    result = []
    for i, n in enumerate(wanted):
        if n == 0 and keep:
            if i >= len(shape):
                raise InvalidModelError(
                    f"[onnx] node {node.name!r} (Reshape): no axis for the 0 in {list(wanted)}"
                )
            n = shape[i]
        result.append(int(n))
    if result.count(-1) == 1:
        rest = -math.prod(result)
        total = math.prod(shape)
        if rest and total % rest:
            raise InvalidModelError(
                f"[onnx] node {node.name!r} (Reshape): {tuple(shape)} to {list(wanted)}"
            )
        result[result.index(-1)] = total // rest if rest else 0
    if math.prod(result) != math.prod(shape) or any(n < 0 for n in result):
        raise InvalidModelError(
            f"[onnx] node {node.name!r} (Reshape): {tuple(shape)} to {list(wanted)}"
        )
    return tuple(result)


def squeezed_shape(node: Node, shape: Sequence[int], axes: Sequence[int] | None) -> tuple[int, ...]:
    """The result's shape of a Squeeze."""
    if axes is None:
        return tuple(n for n in shape if n != 1)
    gone = {axis_within(node, axis, len(shape)) for axis in axes}
    if any(shape[axis] != 1 for axis in gone):
        raise InvalidModelError(
            f"[onnx] node {node.name!r} (Squeeze): axes {list(axes)} of shape {tuple(shape)}"
        )
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def unsqueezed_shape(node: Node, shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """The result's shape of an Unsqueeze."""
    rank = len(shape) + len(axes)
    new = {axis_within(node, axis, rank) for axis in axes}
    if len(new) < len(axes):
        raise InvalidModelError(f"[onnx] node {node.name!r} (Unsqueeze): axes {list(axes)}")
    rest = iter(shape)
    return tuple(1 if i in new else next(rest) for i in range(rank))


def split_parts(node: Node, length: int, parts: list[int] | None) -> list[int]:
    """Lengths of the pieces of a Split of an axis of `length`."""
    if parts is not None:
        return parts
    count = int(node.attributes.get("num_outputs", len(node.outputs)))
    if count < 1:
        raise InvalidModelError(f"[onnx] node {node.name!r} (Split): {count} pieces")
    size = -(-length // count)
    pieces = [size] * (length // size if size else 0)
    if sum(pieces) < length:
        pieces.append(length - sum(pieces))
    return pieces + [0] * (count - len(pieces))


def slice_parts(
    node: Node, shape: Sequence[int], arrays: Sequence[Any]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """(starts, ends, axes, steps) of a Slice of a value of this shape.

    `arrays` are its inputs after the first. Starts and ends are clamped as ONNX asks, which differs
    from Python where a step is negative: a start before the first element means the first one. An
    end before the first element is -length - 1.
    """
    starts, ends = argument(node, "starts", arrays, 0), argument(node, "ends", arrays, 1)
    if starts is None or ends is None:
        raise InvalidModelError(f"[onnx] node {node.name!r} (Slice) has no starts or ends")
    axes = argument(node, "axes", arrays, 2)
    axes = list(range(len(starts))) if axes is None else axes
    steps = argument(node, "steps", arrays, 3)
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise InvalidModelError(
            f"[onnx] node {node.name!r} (Slice): starts {starts}, ends {ends}, axes {axes}, "
            f"steps {steps}"
        )
    axes = [axis_within(node, axis, len(shape)) for axis in axes]
    for i, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        length = shape[axis]
        start, end = (n + length if n < 0 else n for n in (starts[i], ends[i]))
        if step > 0:
            starts[i], ends[i] = min(max(start, 0), length), min(max(end, 0), length)
        else:
            starts[i] = min(max(start, 0), max(length - 1, 0))
            ends[i] = min(end, length - 1) if end >= 0 else -length - 1
    return starts, ends, axes, steps


def tensor_type(node: Node, attribute: str, default: str) -> str:
    """The element type that an attribute names."""
    number = node.attributes.get(attribute)
    if number is None:
        return default
    return NAMES.get(int(number), f"type {number}")


# The functions.


def _host(*ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            HOST[op] = function
        return function

    return add


def _elementwise(**functions: Callable[..., Any]) -> None:
    for op, function in functions.items():
        HOST[op] = lambda node, *xs, function=function: function(*xs)


def _divided(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":  # bfloat16 has a kind of its own
        return np.asarray(a / b, a.dtype)
    quotient = np.floor_divide(a, np.where(b == 0, 1, b))
    # Integers are truncated towards zero.
    exact = np.equal(quotient * b, a)
    return np.where((quotient < 0) & ~exact, quotient + 1, quotient).astype(a.dtype)


_elementwise(
    Identity=lambda x: x,
    Not=np.logical_not,
    Add=np.add,
    Sub=np.subtract,
    Mul=np.multiply,
    Div=_divided,
    Equal=np.equal,
    Less=np.less,
    Greater=np.greater,
    Where=np.where,
)


@_host("Shape")
def _shape(node: Node, x: Array) -> Array:
    return shape_of(node, x.shape)


def shape_of(node: Node, shape: Sequence[int]) -> Array:
    """The result of a Shape node, for a value of this shape."""
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return np.array(shape[start:end], np.int64)


@_host("Size")
def _size(node: Node, x: Array) -> Array:
    return np.array(x.size, np.int64)


@_host("Cast")
def _cast(node: Node, x: Array) -> Array:
    to = node.attributes.get("to")
    name = singas_name(to) if isinstance(to, str) else tensor_type(node, "to", "")
    if not is_singas(name) or not is_singas(name_of(x)):
        return evaluator(node)((x,))[0]
    target = numpy_type(name)
    return x != 0 if target.kind == "b" else x.astype(target)


@_host("Reshape")
def _reshape(node: Node, x: Array, shape: Array | None = None) -> Array:
    wanted = argument(node, "shape", (shape,), 0) or []
    return x.reshape(resolved_shape(node, x.shape, wanted))


@_host("Squeeze")
def _squeeze(node: Node, x: Array, axes: Array | None = None) -> Array:
    return x.reshape(squeezed_shape(node, x.shape, argument(node, "axes", (axes,), 0)))


@_host("Unsqueeze")
def _unsqueeze(node: Node, x: Array, axes: Array | None = None) -> Array:
    return x.reshape(unsqueezed_shape(node, x.shape, argument(node, "axes", (axes,), 0) or []))


@_host("Transpose")
def _transpose(node: Node, x: Array) -> Array:
    return x.transpose(node.attributes.get("perm"))


@_host("Concat")
def _concat(node: Node, *xs: Array) -> Array:
    return np.concatenate(xs, node.attributes.get("axis", 1))


@_host("Split")
def _split(node: Node, x: Array, parts: Array | None = None) -> tuple[Array, ...]:
    axis = axis_within(node, node.attributes.get("axis", 0), x.ndim)
    sizes = split_parts(node, x.shape[axis], argument(node, "split", (parts,), 0))
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


@_host("Slice")
def _slice(node: Node, x: Array, *parts: Array | None) -> Array:
    key = [slice(None)] * x.ndim
    for start, end, axis, step in zip(*slice_parts(node, x.shape, parts), strict=True):
        key[axis] = slice(start, None if end < 0 else end, step)
    return x[tuple(key)]


@_host("Gather")
def _gather(node: Node, x: Array, indices: Array) -> Array:
    return np.take(x, indices, node.attributes.get("axis", 0))


@_host("GatherElements")
def _gather_elements(node: Node, x: Array, indices: Array) -> Array:
    axis = axis_within(node, node.attributes.get("axis", 0), x.ndim)
    places: list[Any] = list(np.indices(indices.shape, sparse=True))  # they may be shorter than x
    places[axis] = indices
    return x[tuple(places)]


@_host("Range")
def _range(node: Node, start: Array, limit: Array, delta: Array) -> Array:
    first, last, step = (x.reshape(-1)[0].item() for x in (start, limit, delta))
    if not step:
        raise InvalidModelError(f"[onnx] node {node.name!r} (Range): delta is 0")
    (count,) = bounded(node, (max(math.ceil((last - first) / step), 0),))
    return (np.arange(count) * step + first).astype(start.dtype)


@_host("ConstantOfShape")
def _constant_of_shape(node: Node, shape: Array) -> Array:
    value = node.attributes.get("value")
    value = np.zeros(1, np.float32) if value is None else value
    # A view of one element: the device fills its own memory.
    return np.broadcast_to(value.reshape(-1)[0], bounded(node, numbers(shape)))


@_host("Expand")
def _expand(node: Node, x: Array, shape: Array) -> Array:
    return np.broadcast_to(x, bounded(node, np.broadcast_shapes(x.shape, tuple(numbers(shape)))))
