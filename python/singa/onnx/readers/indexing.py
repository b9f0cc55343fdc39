"""Readers of operators that select elements by indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import autograd
from ...networks.element_types import ALL, FLOATS, INTEGERS
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...tensor import Tensor
from ..values import axis_within, computation, numbers, tensor_type
from .movement import reshaped
from .registry import reads


@reads("Gather", 1, 11, 13, types=ALL, either=True)
def gather(node: Node) -> Compute:
    """x[..., indices, ...] along an axis."""
    axis = node.attributes.get("axis", 0)

    def compute(run: Any, x: Any, indices: Any) -> Tensor:
        x = run.as_tensor(x)
        at = axis_within(node, axis, len(x.shape))
        if isinstance(indices, np.ndarray) and indices.ndim == 0:
            i, length = int(indices), x.shape[at]
            if not -length <= i < length:
                raise IndexError(f"[Gather] index {i} is outside axis {at} of {tuple(x.shape)}")
            one = autograd.slice(x, [i % length], [i % length + 1], [at])
            return reshaped(one, (*x.shape[:at], *x.shape[at + 1 :]))
        return autograd.gather(x, at, run.as_tensor(indices))

    return compute


@reads("GatherElements", 11, 13, types=ALL)
def gather_elements(node: Node) -> Compute:
    """Elements of x by indices along an axis, at each position of the other axes."""
    axis = node.attributes.get("axis", 0)
    return lambda run, x, indices: autograd.gather_elements(x, indices, axis)


@reads("ScatterElements", 11, 13, 16, 18, types=ALL)
@reads("Scatter", 9, types=ALL)
def scatter_elements(node: Node) -> Compute:
    """A copy of x with updates written at indices along an axis."""
    how = _reduction(node)
    axis = node.attributes.get("axis", 0)

    def compute(run: Any, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        return autograd.ScatterElements(indices, None, axis, how)(x, updates)[0]

    return compute


def _reduction(node: Node) -> str:
    """How a scatter joins updates with what is there."""
    reduction: str = node.attributes.get("reduction", "none")
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise Refused(f"reduction {reduction!r}")
    return reduction


@reads("GatherND", 11, 12, 13, types=ALL)
def gather_nd(node: Node) -> Compute:
    """Parts of x by index tuples."""
    batch = node.attributes.get("batch_dims", 0)
    return lambda run, x, indices: autograd.gather_nd(x, indices, batch)


@reads("ScatterND", 11, 13, 16, 18, types=ALL)
def scatter_nd(node: Node) -> Compute:
    """A copy of x with updates written at index tuples."""
    how = _reduction(node)

    def compute(run: Any, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        return autograd.ScatterND(indices, None, how)(x, updates)[0]

    return compute


@reads("OneHot", 9, 11, 28, types=FLOATS | INTEGERS, host=(1, 2), gradient=False)
def one_hot(node: Node) -> Compute:
    """One-hot encoding along a new axis."""
    axis = node.attributes.get("axis", -1)

    def compute(run: Any, indices: Tensor, depth: Any, on_off: Any) -> Tensor:
        (length,) = numbers(depth)
        if on_off.dtype.name == "bfloat16":
            wide = autograd.OneHot(axis, length, on_off.astype(np.float32))(indices)[0]
            return autograd.cast(wide, "bfloat16")
        return autograd.OneHot(axis, length, on_off)(indices)[0]

    return compute


@reads("NonZero", 9, 13, types=ALL, gradient=False, data=True)
def non_zero(node: Node) -> Compute:
    """Indices of the elements that are not 0."""
    return lambda run, x: autograd.nonzero(x)


@reads("Compress", 9, 11, 28, types=ALL, host=(1,), data=True)
def compress(node: Node) -> Compute:
    """The parts along an axis for which a condition holds."""
    axis = node.attributes.get("axis")

    def compute(run: Any, x: Tensor, condition: Any) -> Tensor:
        kept = np.flatnonzero(condition)
        if axis is None:
            x = reshaped(x, (math.prod(x.shape),))
        return autograd.gather(
            x, 0 if axis is None else axis_within(node, axis, len(x.shape)), kept
        )

    return compute


@reads("EyeLike", 9, 22, types=ALL, gradient=False)
def eye_like(node: Node) -> Compute:
    """A matrix of the shape of x with ones on a diagonal."""
    k = node.attributes.get("k", 0)
    name = tensor_type(node, "dtype", "")

    def compute(run: Any, x: Tensor) -> Tensor:
        rows, columns = x.shape
        key = (node.name, x.shape)
        eye = run.made(key, lambda: np.eye(rows, columns, k, dtype=np.float32))
        return autograd.cast(run.tensor(eye), name or x.dtype)

    return compute


@reads("ReverseSequence", 10, 28, types=ALL, host=(1,))
def reverse_sequence(node: Node) -> Compute:
    """The first elements of each sequence in reverse order, as many as its length."""
    time, batch = node.attributes.get("time_axis", 0), node.attributes.get("batch_axis", 1)
    if {time, batch} != {0, 1}:
        raise Refused(f"time_axis {time} with batch_axis {batch}")

    def compute(run: Any, x: Tensor, lengths: Any) -> Tensor:
        counts = numbers(lengths)
        shape = tuple(x.shape)
        if (
            len(shape) < 2
            or len(counts) != shape[batch]
            or not all(0 <= n <= shape[time] for n in counts)
        ):
            raise ValueError(f"[ReverseSequence] sequences of lengths {counts} in x {shape}")

        def order() -> Any:
            places = np.arange(shape[time])[:, None]
            ends = np.array(counts)
            places = np.where(places < ends, ends - 1 - places, places)
            places = places.T if batch == 0 else places
            wide = places.reshape(*places.shape, *(1,) * (len(shape) - 2))
            return np.broadcast_to(wide, shape).astype(np.int64)

        index = run.made((node.name, shape, tuple(counts)), order)
        return autograd.gather_elements(x, run.tensor(index), time)

    return compute


def _on_host(op: str, *versions: int, types: Any = ALL) -> None:
    """A reader of an operator without gradient that the host computes."""

    @reads(op, *versions, types=types, gradient=False, host=(0, 1, 2), data=True)
    def make(node: Node) -> Compute:
        compute = computation(node)
        assert compute is not None
        return lambda run, *arrays: compute(arrays)


_on_host("Range", 11, 27)
_on_host("ConstantOfShape", 9, 20, 21, 23, 24, 25)
