"""Readers of sequences, which are lists of values: arrays that the host knows, and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import autograd
from ...networks.element_types import ALL
from ...networks.front_end import Compute
from ...networks.graph import Node
from ..values import axis_within, numbers
from .movement import reshaped
from .registry import reads


@reads("SequenceEmpty", 11, types=ALL, gradient=False)
def sequence_empty(node: Node) -> Compute:
    """A sequence without elements."""
    return lambda run: []


@reads("SequenceConstruct", 11, types=ALL, either=True)
def sequence_construct(node: Node) -> Compute:
    """A sequence of the inputs."""
    return lambda run, *elements: list(elements)


@reads("SequenceLength", 11, types=ALL, gradient=False, sequences=True)
def sequence_length(node: Node) -> Compute:
    """The number of elements."""
    return lambda run, elements: np.array(len(elements), np.int64)


@reads("SequenceAt", 11, types=ALL, host=(1,), sequences=True)
def sequence_at(node: Node) -> Compute:
    """One element."""
    return lambda run, elements, at: elements[_position(node, at, len(elements))]


@reads("SequenceErase", 11, types=ALL, host=(1,), sequences=True)
def sequence_erase(node: Node) -> Compute:
    """A sequence without one of its elements, which is the last one by default."""

    def compute(run: Any, elements: list[Any], at: Any = -1) -> list[Any]:
        gone = _position(node, at, len(elements))
        return elements[:gone] + elements[gone + 1 :]

    return compute


@reads("SequenceInsert", 11, types=ALL, host=(2,), either=(1,), sequences=True)
def sequence_insert(node: Node) -> Compute:
    """A sequence with one more element, which is the last one by default."""

    def compute(run: Any, elements: list[Any], new: Any, at: Any = None) -> list[Any]:
        count = len(elements)
        at_end = at is None or numbers(at) == [count]
        before = count if at_end else _position(node, at, count)
        return [*elements[:before], new, *elements[before:]]

    return compute


@reads("SplitToSequence", 11, 24, types=ALL, host=(1,), either=(0,))
def split_to_sequence(node: Node) -> Compute:
    """Pieces along an axis: of given lengths, of one length, or single elements."""
    axis, keeps = node.attributes.get("axis", 0), node.attributes.get("keepdims", 1)

    def compute(run: Any, x: Any, parts: Any = None) -> list[Any]:
        shape = tuple(x.shape)
        at = axis_within(node, axis, len(shape))
        sizes = _sizes(node, shape[at], parts)
        if not sizes:
            return []
        pieces: list[Any]
        if isinstance(x, np.ndarray):
            pieces = np.split(x, np.cumsum(sizes)[:-1], at)
        else:
            pieces = list(autograd.split(x, at, sizes))
        if parts is not None or keeps:
            return pieces
        rest = (*shape[:at], *shape[at + 1 :])
        return [p.reshape(rest) if isinstance(p, np.ndarray) else reshaped(p, rest) for p in pieces]

    return compute


@reads("ConcatFromSequence", 11, types=ALL, sequences=True)
def concat_from_sequence(node: Node) -> Compute:
    """The elements joined along an axis, which may be a new one."""
    axis, is_new = node.attributes["axis"], bool(node.attributes.get("new_axis", 0))

    def compute(run: Any, elements: list[Any]) -> Any:
        if not elements:
            raise ValueError(f"[ConcatFromSequence] node {node.name!r}: an empty sequence")
        shape = tuple(elements[0].shape)
        at = axis_within(node, axis, len(shape) + is_new)
        if all(isinstance(x, np.ndarray) for x in elements):
            return np.stack(elements, at) if is_new else np.concatenate(elements, at)
        tensors = [run.as_tensor(x) for x in elements]
        if is_new:
            tensors = [reshaped(t, (*t.shape[:at], 1, *t.shape[at:])) for t in tensors]
        return autograd.cat(tensors, at) if len(tensors) > 1 else tensors[0]

    return compute


def _position(node: Node, at: Any, count: int) -> int:
    """The position of an element; negative ones count from the end."""
    positions = numbers(at)
    if len(positions) != 1 or not -count <= positions[0] < count:
        raise IndexError(
            f"[{node.op}] node {node.name!r}: position {positions} of {count} elements"
        )
    return positions[0] % count


def _sizes(node: Node, length: int, parts: Any) -> list[int]:
    """The lengths of the pieces of an axis of `length`."""
    if parts is None:
        return [1] * length
    sizes = numbers(parts)
    if parts.ndim == 0:
        (size,) = sizes
        if size < 1:
            raise ValueError(f"[SplitToSequence] node {node.name!r}: pieces of {size} elements")
        sizes = [size] * (length // size) + [length % size] * (length % size > 0)
    if min(sizes, default=0) < 0 or sum(sizes) != length:
        raise ValueError(
            f"[SplitToSequence] node {node.name!r}: pieces of {sizes} for {length} elements"
        )
    return sizes
