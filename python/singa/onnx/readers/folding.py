"""Readers that write windows back into an image: Col2Im and MaxUnpool."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...ops.sampling import folded
from ...tensor import Tensor
from ..values import bounded, numbers
from .movement import reshaped
from .registry import reads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def _zeros(run: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A constant tensor of zeros of the type of `like`."""
    zeros = run.made(("zeros", shape), lambda: np.zeros(shape, np.float32))
    return same_type(run.tensor(zeros), like)


@reads("Col2Im", 18, host=(1, 2))
def col_to_im(node: Node) -> Compute:
    """Columns (N, C * block, L) to an image (N, C, ...): the sum of the blocks at each element.

    The inverse of unfolding into L blocks, as torch.nn.functional.fold. Any number of axes.
    """

    def of(name: str, count: int, default: int, least: int) -> list[int]:
        values = list(node.attributes.get(name, [default] * count))
        if len(values) != count or min(values, default=least) < least:
            raise ValueError(f"[Col2Im] node {node.name!r}: {name} {values} for {count} axes")
        return values

    def compute(run: Any, x: Tensor, image: Array, block: Array) -> Tensor:
        size, kernel, shape = numbers(image), numbers(block), tuple(x.shape)
        axes = len(size)
        what = f"[Col2Im] node {node.name!r}: input {shape}, image_shape {size}, "
        what += f"block_shape {kernel}"
        if not axes or len(kernel) != axes or min(size + kernel) < 1 or len(shape) != 3:
            raise ValueError(what)
        strides, dilations = of("strides", axes, 1, 1), of("dilations", axes, 1, 1)
        pads = of("pads", 2 * axes, 0, 0)
        before, after = pads[:axes], pads[axes:]
        padded = bounded(node, [n + a + b for n, a, b in zip(size, before, after, strict=True)])
        spots = [
            (n - d * (k - 1) - 1) // s + 1
            for n, d, k, s in zip(padded, dilations, kernel, strides, strict=True)
        ]
        sides = [[d * i for i in range(k)] for d, k in zip(dilations, kernel, strict=True)]
        offsets = list(itertools.product(*sides))
        if min(spots) < 1 or shape[1] % len(offsets) or shape[2] != math.prod(spots):
            raise ValueError(f"{what}: there are {spots} blocks of {len(offsets)} elements")
        if not shape[0] * shape[1]:
            return _zeros(run, (shape[0], shape[1] // len(offsets), *size), x)
        return folded(x, size, offsets, spots, strides, before)

    return compute


@reads("MaxUnpool", 9, 11, 22, host=(1, 2))
def max_unpool(node: Node) -> Compute:
    """Elements of x (N, C, ...) at the indices of a MaxPool, zeros elsewhere.

    Indices count the elements of the whole unpooled tensor of the size that kernel, strides and
    pads give. Of repeated indices the last element stays, and only it has a gradient (PyTorch gives
    one to all). With output_shape, zeros are appended to that size.
    """

    def compute(run: Any, x: Tensor, indices: Array, wanted: Array | None = None) -> Tensor:
        shape, kernel = tuple(x.shape), list(node.attributes["kernel_shape"])
        axes = len(kernel)
        strides = list(node.attributes.get("strides", [1] * axes))
        pads = list(node.attributes.get("pads", [0] * (2 * axes)))
        what = f"[MaxUnpool] node {node.name!r}: X {shape}, I {indices.shape}, kernel {kernel}, "
        what += f"strides {strides}, pads {pads}"
        fits = axes == len(shape) - 2 >= 1 and indices.shape == shape
        if not fits or len(strides) != axes or len(pads) != 2 * axes:
            raise ValueError(what)
        size = [
            (n - 1) * s - a - b + k
            for n, s, a, b, k in zip(
                shape[2:], strides, pads[:axes], pads[axes:], kernel, strict=True
            )
        ]
        if min(size) < 0:
            raise ValueError(f"{what}: the result has lengths {size}")
        inferred = bounded(node, (*shape[:2], *size))
        result = inferred if wanted is None else bounded(node, numbers(wanted))
        if (
            len(result) != len(inferred)
            or result[:2] != shape[:2]
            or any(r < n for r, n in zip(result, inferred, strict=False))
        ):
            raise ValueError(f"{what}: output_shape {result} is smaller than {inferred}")
        total = math.prod(inferred)
        if not math.prod(shape):
            return _zeros(run, result, x)
        if indices.min() < 0 or indices.max() >= total:
            raise IndexError(
                f"{what}: indices from {indices.min()} to {indices.max()} in {inferred}"
            )
        flat = np.ascontiguousarray(indices.reshape(-1), np.int64)
        if result != inferred:
            flat = np.ravel_multi_index(np.unravel_index(flat, inferred), result).astype(np.int64)
        spread = autograd.ScatterElements(run.tensor(flat), None, 0, "none")(
            _zeros(run, (math.prod(result),), x), reshaped(x, (flat.size,))
        )[0]
        return reshaped(spread, result)

    return compute
