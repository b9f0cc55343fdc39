"""Sums over products of tensors: tensordot and einsum, as matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ._arguments import names_arguments
from ._check import integer
from ._deferred import ops as _ops
from ._deferred import tape as _tape
from ._tensor import Tensor, as_raw, wrap

_Labels = list[str]


@names_arguments
def tensordot(
    A: Tensor, B: Tensor, axes: int | Sequence[Sequence[int]] | Sequence[int] = 2
) -> Tensor:
    """Sum of products over axes of A and B, as numpy.tensordot: `axes` is a number (the last of A
    with the first of B) or a pair of lists of axes.

    The axes of A that remain come first, then those of B; shape (1,) where none remain. Raises
    ValueError when lengths differ.
    """
    rank_a, rank_b = A.ndim(), B.ndim()
    if isinstance(axes, int):
        if not 0 <= axes <= min(rank_a, rank_b):
            raise ValueError(f"[tensordot] {axes} axes of shapes {A.shape} and {B.shape}")
        over_a, over_b = list(range(rank_a - axes, rank_a)), list(range(axes))
    else:
        if isinstance(axes, str) or not hasattr(axes, "__len__") or len(axes) != 2:
            raise TypeError(f"[tensordot] axes has to be a number or a pair of lists, got {axes!r}")
        first, second = axes
        over_a = [first] if isinstance(first, int) else list(first)
        over_b = [second] if isinstance(second, int) else list(second)
    over_a = [_axis(axis, A) for axis in over_a]
    over_b = [_axis(axis, B) for axis in over_b]
    lengths_a, lengths_b = [A.shape[i] for i in over_a], [B.shape[i] for i in over_b]
    if lengths_a != lengths_b:
        raise ValueError(
            f"[tensordot] axes {over_a} of {A.shape} and {over_b} of {B.shape} differ in length"
        )
    free_a = [i for i in range(rank_a) if i not in over_a]
    free_b = [i for i in range(rank_b) if i not in over_b]
    inner = math.prod(lengths_a)
    left = A.transpose(free_a + over_a).reshape((_size(A, free_a), inner))
    right = B.transpose(over_b + free_b).reshape((inner, _size(B, free_b)))
    shape = [A.shape[i] for i in free_a] + [B.shape[i] for i in free_b]
    return (left @ right).reshape(shape or (1,))


def _axis(axis: int, t: Tensor) -> int:
    if not -t.ndim() <= integer("tensordot", "axes", axis) < t.ndim():
        raise ValueError(f"[tensordot] axis {axis} is outside a tensor of shape {t.shape}")
    return axis % t.ndim()


def _size(t: Tensor, axes: Sequence[int]) -> int:
    return math.prod(t.shape[i] for i in axes)


@names_arguments
def einsum(ops: str, *args: Tensor) -> Tensor:
    """Einstein's sum convention, as numpy.einsum: "ij,jk->ik". Letters only, no dots.

    Operands are taken from left to right, two at a time, each pair as one batched matrix product.
    Raises ValueError for a subscript that does not fit its operand.
    """
    inputs, output = _parse(ops, args)
    lengths: dict[str, int] = {}
    for labels, t in zip(inputs, args, strict=True):
        for label, length in zip(labels, t.shape, strict=True):
            if lengths.setdefault(label, length) != length:
                raise ValueError(f"[einsum] {ops}: '{label}' is {lengths[label]} and {length} long")
    labels, result = _diagonal(inputs[0], args[0])
    for i in range(1, len(args)):
        wanted = set(output).union(*inputs[i + 1 :])
        labels, result = _pair(labels, result, *_diagonal(inputs[i], args[i]), wanted, lengths)
    over = [i for i, label in enumerate(labels) if label not in output]
    if over:
        result = _tape().apply(_ops().ReduceSum(over, False), result)
        labels = [label for label in labels if label in output]
    if labels != output:
        result = result.transpose([labels.index(label) for label in output])
    return result if output else result.reshape((1,))


def _parse(ops: str, args: Sequence[Tensor]) -> tuple[list[_Labels], _Labels]:
    if not isinstance(ops, str):
        raise TypeError(f"[einsum] subscripts have to be a string, got {type(ops).__name__}")
    text = ops.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = [list(part) for part in left.split(",")]
    letters = [label for labels in inputs for label in labels]
    if not arrow:  # the letters that occur once, in the order of the alphabet
        right = "".join(sorted(label for label in set(letters) if letters.count(label) == 1))
    bad = [label for label in letters + list(right) if not label.isalpha()]
    unknown = set(right) - set(letters)
    if bad or unknown or len(set(right)) != len(right):
        raise ValueError(f"[einsum] {ops!r} is no sum of products")
    if len(inputs) != len(args) or any(
        len(labels) != t.ndim() for labels, t in zip(inputs, args, strict=True)
    ):
        shapes = ", ".join(str(t.shape) for t in args)
        raise ValueError(f"[einsum] {ops!r} does not fit operands of shapes {shapes}")
    return inputs, list(right)


def _diagonal(labels: _Labels, t: Tensor) -> tuple[_Labels, Tensor]:
    """Takes the diagonal where a letter stands twice in one operand."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            length = t.shape[first]
            eye = wrap(as_raw(np.eye(length), t.dtype, t.device), False)
            shape = [length if i in (first, second) else 1 for i in range(len(labels))]
            t = _tape().apply(_ops().ReduceSum(second, False), t * eye.reshape(shape))
            labels = labels[:second] + labels[second + 1 :]
    return labels, t


def _pair(
    left: _Labels,
    A: Tensor,
    right: _Labels,
    B: Tensor,
    wanted: set[str],
    lengths: dict[str, int],
) -> tuple[_Labels, Tensor]:
    """The product of two operands, summed over the letters of both that nobody else wants."""
    batch = [label for label in left if label in right and label in wanted]
    inner = [label for label in left if label in right and label not in wanted]
    rows = [label for label in left if label not in right]
    columns = [label for label in right if label not in left]

    def matrix(labels: _Labels, t: Tensor, *groups: _Labels) -> Tensor:
        order = [label for group in groups for label in group]
        sizes = [math.prod(lengths[label] for label in group) for group in groups]
        return t.transpose([labels.index(label) for label in order]).reshape(sizes)

    product = matrix(left, A, batch, rows, inner) @ matrix(right, B, batch, inner, columns)
    labels = batch + rows + columns
    return labels, product.reshape([lengths[label] for label in labels])
