"""Reader of the discrete Fourier transform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd
from ...dtypes import wide_type
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...tensor import Tensor
from ..values import axis_within, bounded, numbers
from .movement import reshaped
from .registry import reads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@reads("DFT", 17, 20, host=(1, 2))
def dft(node: Node) -> Compute:
    """x (..., n, ..., 1 or 2) along an axis to (..., m, ..., 2); the last axis is real, imaginary.

    One-sided, a real x gives the first length // 2 + 1 frequencies, and the inverse takes them to a
    real result (..., length, ..., 1). Shorter inputs are padded with zeros, longer ones cut. The
    transform is one product with a matrix of cosines and sines, so it has a gradient.
    """
    inverse = bool(node.attributes.get("inverse", 0))
    onesided = bool(node.attributes.get("onesided", 0))

    def compute(
        run: Any, x: Tensor, length: Array | None = None, axis: Array | None = None
    ) -> Tensor:
        shape = tuple(x.shape)
        rank = len(shape)
        number = node.attributes.get("axis", 1) if node.version < 20 else -2
        if axis is not None:
            (number,) = numbers(axis)
        at = axis_within(node, number, rank)
        what = f"[DFT] node {node.name!r}: input {shape}, axis {number}"
        if rank < 2 or shape[-1] not in (1, 2) or at == rank - 1:
            raise ValueError(what)
        if onesided and not inverse and shape[-1] == 2:
            raise ValueError(f"{what}: a one-sided transform takes real input")
        if length is not None:
            (total,) = numbers(length)
        else:
            total = 2 * (shape[at] - 1) if onesided and inverse else shape[at]
        if total < 1 or not shape[at]:
            raise ValueError(f"{what}: dft_length is {total}")
        steps = total // 2 + 1 if onesided else total
        taken = min(shape[at], steps if inverse else total)
        made = total if inverse else steps
        parts = 1 if onesided and inverse else 2
        bounded(node, (taken * shape[-1], made * parts))
        kind = wide_type(x.dtype)
        key = (node.name, taken, shape[-1], made, total, kind.name)
        matrix = run.made(
            key,
            lambda: _matrix(taken, shape[-1], made, parts, total, inverse, onesided, kind.name),
        )
        wide = autograd.cast(x, kind)
        if taken < shape[at]:
            wide = autograd.slice(wide, [0], [taken], [at])
        others = [i for i in range(rank - 1) if i != at]
        lengths = [shape[i] for i in others]
        result = [*lengths, made, parts]
        order = [*others, at, rank - 1]
        back = [order.index(i) for i in range(rank)]
        rows = int(np.prod(lengths, dtype=np.int64))
        if not rows:
            empty = np.zeros([result[i] for i in back], np.float32)
            return same_type(run.tensor(empty), x)
        flat = reshaped(autograd.transpose(wide, order), (rows, taken * shape[-1]))
        product = reshaped(autograd.matmul(flat, run.tensor(matrix)), result)
        return same_type(autograd.transpose(product, back), x)

    return compute


def _matrix(
    taken: int, given: int, made: int, parts: int, total: int, inverse: bool, half: bool, kind: str
) -> Array:
    """The transform as a matrix (taken * given, made * parts), parts of a number side by side."""
    turns = np.outer(np.arange(taken, dtype=np.int64), np.arange(made, dtype=np.int64)) % total
    angle = turns * (2.0 * np.pi / total) * (1 if inverse else -1)
    cosine, sine = np.cos(angle), np.sin(angle)
    # Row: real, imaginary part of the input. Column: of the result.
    table = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
    table = table[:, :given, :, :parts]
    if inverse:
        table = table / total
        if half:  # a frequency that is not its own mirror image counts twice
            k = np.arange(taken)
            own = (k == 0) | (2 * k == total)
            table = table * np.where(own, 1.0, 2.0)[:, None, None, None]
            table[own, 1:] = 0.0
    return np.ascontiguousarray(table.reshape(taken * given, made * parts), kind)
