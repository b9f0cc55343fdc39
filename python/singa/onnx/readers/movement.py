"""Readers of operators that move, repeat or join elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import autograd
from ...networks.element_types import ALL, FLOATS
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...tensor import Tensor
from ..values import (
    argument,
    axis_within,
    numbers,
    resolved_shape,
    slice_parts,
    split_parts,
    squeezed_shape,
    unsqueezed_shape,
)
from .registry import reads


def reshaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    """x with another shape, which has no -1."""
    return x if tuple(x.shape) == tuple(shape) else autograd.reshape(x, tuple(shape))


@reads("Reshape", 1, 5, 13, 14, 19, 21, 23, 24, 25, types=ALL, host=(1,))
def reshape(node: Node) -> Compute:
    """Another shape: -1 stands for the rest, and 0 keeps the length of an axis."""

    def compute(run: Any, x: Tensor, shape: Any = None) -> Tensor:
        wanted = argument(node, "shape", (shape,), 0) or []
        return reshaped(x, resolved_shape(node, x.shape, wanted))

    return compute


@reads("Flatten", 1, 9, 11, 13, 21, 23, 24, 25, types=ALL)
def flatten(node: Node) -> Compute:
    """A matrix: the axes before `axis`, and those from it on."""
    axis = node.attributes.get("axis", 1)
    return lambda run, x: autograd.flatten(x, axis)


@reads("Squeeze", 1, 11, 13, 21, 23, 24, 25, types=ALL, host=(1,))
def squeeze(node: Node) -> Compute:
    """Removes axes of length 1."""

    def compute(run: Any, x: Tensor, axes: Any = None) -> Tensor:
        return reshaped(x, squeezed_shape(node, x.shape, argument(node, "axes", (axes,), 0)))

    return compute


@reads("Unsqueeze", 1, 11, 13, 21, 23, 24, 25, types=ALL, host=(1,))
def unsqueeze(node: Node) -> Compute:
    """Inserts axes of length 1."""

    def compute(run: Any, x: Tensor, axes: Any = None) -> Tensor:
        wanted = argument(node, "axes", (axes,), 0) or []
        return reshaped(x, unsqueezed_shape(node, x.shape, wanted))

    return compute


@reads("Transpose", 1, 13, 21, 23, 24, 25, types=ALL)
def transpose(node: Node) -> Compute:
    """Permutes the axes; reverses them by default."""
    order = node.attributes.get("perm")
    return lambda run, x: autograd.transpose(x, order)


@reads("Concat", 1, 4, 11, 13, types=ALL)
def concat(node: Node) -> Compute:
    """Joins tensors along an axis."""
    axis = node.attributes.get("axis", 1)

    def compute(run: Any, *xs: Tensor) -> Tensor:
        at = axis_within(node, axis, len(xs[0].shape))
        return autograd.cat(xs, at) if len(xs) > 1 else xs[0]

    return compute


@reads("Split", 1, 2, 11, 13, 18, types=ALL, host=(1,))
def split(node: Node) -> Compute:
    """Consecutive pieces along an axis."""
    axis = node.attributes.get("axis", 0)

    def compute(run: Any, x: Tensor, parts: Any = None) -> tuple[Tensor, ...]:
        at = axis_within(node, axis, len(x.shape))
        sizes = split_parts(node, x.shape[at], argument(node, "split", (parts,), 0))
        return autograd.split(x, at, sizes)

    return compute


@reads("Slice", 1, 10, 11, 13, types=ALL, host=(1, 2, 3, 4))
def slice_(node: Node) -> Compute:
    """x[starts:ends:steps] along axes."""

    def compute(run: Any, x: Tensor, *parts: Any) -> Tensor:
        starts, ends, axes, steps = slice_parts(node, x.shape, parts)
        whole = all(
            step == 1 and start == 0 and end == x.shape[axis]
            for start, end, axis, step in zip(starts, ends, axes, steps, strict=True)
        )
        return x if whole else autograd.slice(x, starts, ends, axes, steps)

    return compute


@reads("Expand", 8, 13, types=ALL, host=(1,))
def expand(node: Node) -> Compute:
    """x, broadcast together with a shape."""

    def compute(run: Any, x: Tensor, shape: Any) -> Tensor:
        wanted = np.broadcast_shapes(tuple(x.shape), tuple(numbers(shape)))
        return x if wanted == tuple(x.shape) else autograd.expand(x, wanted)

    return compute


@reads("Tile", 6, 13, types=ALL, host=(1,))
def tile(node: Node) -> Compute:
    """Repeats the whole tensor along each axis."""

    def compute(run: Any, x: Tensor, repeats: Any) -> Tensor:
        counts = numbers(repeats)
        if len(counts) != len(x.shape):
            raise ValueError(f"[Tile] repeats {counts} for shape {tuple(x.shape)}")
        return x if set(counts) <= {1} else autograd.tile(x, counts)

    return compute


@reads("Pad", 1, 2, types=FLOATS)
def pad_by_attributes(node: Node) -> Compute:
    """Elements added before and after each axis."""
    mode = _pad_mode(node)
    pads = node.attributes.get("pads", node.attributes.get("paddings", []))
    value = node.attributes.get("value", 0.0)
    return lambda run, x: autograd.pad(x, mode, pads, value)


@reads("Pad", 11, 13, 18, 19, 21, 23, 24, 25, types=ALL, host=(1, 2, 3))
def pad(node: Node) -> Compute:
    """Elements added before and after each axis."""
    mode = _pad_mode(node)

    def compute(run: Any, x: Tensor, pads: Any, value: Any = None, axes: Any = None) -> Tensor:
        rank = len(x.shape)
        amounts = numbers(pads)
        if axes is not None:
            over = [axis_within(node, axis, rank) for axis in numbers(axes)]
            full = [0] * (2 * rank)
            for i, axis in enumerate(over):
                full[axis], full[rank + axis] = amounts[i], amounts[len(over) + i]
            amounts = full
        if not any(amounts):
            return x
        number = 0.0 if value is None or not value.size else float(value.reshape(-1)[0])
        return autograd.pad(x, mode, amounts, number)

    return compute


def _pad_mode(node: Node) -> str:
    mode = node.attributes.get("mode", "constant")
    if mode not in ("constant", "reflect", "edge", *(["wrap"] if node.version >= 19 else [])):
        raise Refused(f"mode {mode!r}")
    return mode


@reads("DepthToSpace", 1, 11, 13, 28, types=ALL)
def depth_to_space(node: Node) -> Compute:
    """Moves channels to blocks of pixels."""
    block, mode = node.attributes["blocksize"], node.attributes.get("mode", "DCR")
    return lambda run, x: autograd.depth_to_space(x, block, mode)


@reads("SpaceToDepth", 1, 13, 28, types=ALL)
def space_to_depth(node: Node) -> Compute:
    """Moves blocks of pixels to channels."""
    block, mode = node.attributes["blocksize"], node.attributes.get("mode", "DCR")
    return lambda run, x: autograd.space_to_depth(x, block, mode)


@reads("Trilu", 14, types=ALL, host=(1,))
def trilu(node: Node) -> Compute:
    """The upper or lower triangle of matrices, with 0 elsewhere."""
    part = autograd.triu if node.attributes.get("upper", 1) else autograd.tril
    return lambda run, x, k=None: part(x, 0 if k is None else int(k.reshape(-1)[0]))
