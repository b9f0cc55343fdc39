"""tensordot and einsum, computed by matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..raw.check import axis_of
from ..tape.arguments import names_arguments
from ..tape.operator import apply
from ..tape.tensor import Tensor
from .movement import Slice
from .reduction import ReduceSum

_Labels = list[str]


@names_arguments
def tensordot(
    A: Tensor, B: Tensor, axes: int | Sequence[Sequence[int]] | Sequence[int] = 2
) -> Tensor:
    """Sums products over axes of A and B, as numpy.tensordot.

    `axes` is a number n, for the last n axes of A and the first n of B (default 2), or a pair of
    lists of axes. The result has the remaining axes of A, then those of B, or shape (1,) if none
    remain. Raises ValueError if the lengths of the axes differ or an axis does not exist.

    >>> a, b = tensor.ones((2, 3, 4)), tensor.ones((3, 4, 5))
    >>> tensor.tensordot(a, b).shape
    (2, 5)
    """
    rank_a, rank_b = A.ndim(), B.ndim()
    if isinstance(axes, int):
        if not 0 <= axes <= min(rank_a, rank_b):
            raise ValueError(
                f"[tensordot] axes is {axes}, which does not fit shapes {A.shape} and {B.shape}"
            )
        over_a, over_b = list(range(rank_a - axes, rank_a)), list(range(axes))
    else:
        if isinstance(axes, str) or not hasattr(axes, "__len__") or len(axes) != 2:
            raise TypeError(f"[tensordot] axes must be a number or a pair of lists, got {axes!r}")
        first, second = axes
        over_a = [first] if isinstance(first, int) else list(first)
        over_b = [second] if isinstance(second, int) else list(second)
    over_a = [axis_of("tensordot", axis, A.shape) for axis in over_a]
    over_b = [axis_of("tensordot", axis, B.shape) for axis in over_b]
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


def _size(t: Tensor, axes: Sequence[int]) -> int:
    return math.prod(t.shape[i] for i in axes)


@names_arguments
def einsum(ops: str, *args: Tensor) -> Tensor:
    """Einstein summation, as numpy.einsum: einsum("ij,jk->ik", a, b).

    Subscripts are letters. A letter that occurs twice in an operand takes the diagonal. An ellipsis
    stands for further axes, which broadcast; they are summed if the result has no ellipsis.
    Operands are multiplied from left to right, each pair by one batched matrix product. A result
    without axes has shape (1,). Raises ValueError for subscripts that are malformed or do not fit
    the operands.

    >>> a, b = tensor.ones((2, 3)), tensor.ones((3, 4))
    >>> tensor.einsum("ij,jk->ik", a, b)
    Tensor([[3., 3., 3., 3.],
            [3., 3., 3., 3.]], dtype=float32)
    """
    inputs, output = _parse(ops, args)
    lengths: dict[str, int] = {}
    for labels, t in zip(inputs, args, strict=True):
        for label, length in zip(labels, t.shape, strict=True):
            known = lengths.setdefault(label, length)
            if label.startswith(_ELLIPSIS) and 1 in (known, length):
                lengths[label] = max(known, length) if 0 not in (known, length) else 0
            elif known != length:
                raise ValueError(f"[einsum] {ops}: '{label}' is {known} and {length} long")
    operands = [
        _diagonal(*_without_ones(labels, t, lengths))
        for labels, t in zip(inputs, args, strict=True)
    ]
    labels, result = _summed(*operands[0], _kept(operands[1:], output))
    for i in range(1, len(operands)):
        wanted = _kept(operands[i + 1 :], output)
        right = _summed(*operands[i], wanted | set(labels))
        labels, result = _pair(labels, result, *right, wanted, lengths)
    labels, result = _summed(labels, result, set(output))
    missing = [label for label in output if label not in labels]  # of ellipses, all of length 1
    if missing:
        labels = missing + labels
        result = result.reshape([1] * len(missing) + list(result.shape))
    if labels != output:
        result = result.transpose([labels.index(label) for label in output])
    return result if output else result.reshape((1,))


_ELLIPSIS = "..."  # followed by the number of the axis, counted from the last one


def _labels(text: str, rank: int | None = None) -> _Labels:
    """The labels of "i...j" for an operand of this rank; of a result (None) the ellipsis stays
    one."""
    before, dots, after = text.partition(_ELLIPSIS)
    if not dots:
        return list(text)
    if rank is None:
        return [*before, _ELLIPSIS, *after]
    count = max(rank - len(before) - len(after), 0)
    return [*before, *(f"{_ELLIPSIS}{i}" for i in range(count, 0, -1)), *after]


def _parse(ops: str, args: Sequence[Tensor]) -> tuple[list[_Labels], _Labels]:
    if not isinstance(ops, str):
        raise TypeError(f"[einsum] subscripts must be a string, got {type(ops).__name__}")
    text = ops.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    ranks = [t.ndim() for t in args] + [0] * (len(parts) - len(args))
    inputs = [_labels(part, rank) for part, rank in zip(parts, ranks, strict=False)]
    letters = [label for labels in inputs for label in labels]
    dots = sorted({label for label in letters if len(label) > 1}, key=lambda label: -int(label[3:]))
    if arrow:
        output = _labels(right)
        if _ELLIPSIS in output:
            at = output.index(_ELLIPSIS)
            output[at : at + 1] = dots
    else:  # the ellipsis, then the letters that occur once, in alphabetical order
        output = dots + sorted(label for label in set(letters) if letters.count(label) == 1)
        output = list(dict.fromkeys(output))
    bad = [label for label in letters + output if len(label) == 1 and not label.isalpha()]
    unknown = set(output) - set(letters)
    lost = arrow and _ELLIPSIS in right and _ELLIPSIS not in left
    if bad or unknown or lost or len(set(output)) != len(output):
        raise ValueError(f"[einsum] malformed subscripts {ops!r}")
    if len(parts) != len(args) or any(
        len(labels) != t.ndim() for labels, t in zip(inputs, args, strict=True)
    ):
        shapes = ", ".join(str(t.shape) for t in args)
        raise ValueError(f"[einsum] {ops!r} does not fit operands of shapes {shapes}")
    return inputs, output


_Operand = tuple[_Labels, Tensor]


def _without_ones(labels: _Labels, t: Tensor, lengths: dict[str, int]) -> _Operand:
    """Removes axes of an ellipsis that have length 1, since they broadcast."""
    ones = [
        label.startswith(_ELLIPSIS) and n == 1 for label, n in zip(labels, t.shape, strict=True)
    ]
    if not any(ones):
        return labels, t
    left = [label for label, one in zip(labels, ones, strict=True) if not one]
    return left, t.reshape([lengths[label] for label in left])


def _diagonal(labels: _Labels, t: Tensor) -> _Operand:
    """Takes the diagonal of axes with the same letter."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            length = t.shape[first]
            rest = [i for i in range(len(labels)) if i not in (first, second)]
            # The matrix of both axes as one row: its diagonal is every (length + 1)-th element.
            shape = [t.shape[i] for i in rest]
            t = t.transpose([*rest, first, second]).reshape([*shape, length * length])
            step = Slice((0,), (length * length,), (len(rest),), (length + 1,))
            t = apply(step, t)
            labels = [labels[i] for i in rest] + [label]
    return labels, t


def _kept(operands: Sequence[_Operand], output: _Labels) -> set[str]:
    """The labels of the operands and of the result."""
    return set(output).union(*[labels for labels, _ in operands])


def _summed(labels: _Labels, t: Tensor, wanted: set[str]) -> _Operand:
    """Sums over the axes whose labels are not wanted."""
    over = [i for i, label in enumerate(labels) if label not in wanted]
    if not over:
        return labels, t
    return [label for label in labels if label in wanted], apply(ReduceSum(over, False), t)


def _pair(
    left: _Labels,
    A: Tensor,
    right: _Labels,
    B: Tensor,
    wanted: set[str],
    lengths: dict[str, int],
) -> tuple[_Labels, Tensor]:
    """The product of two operands, summed over letters that both have and that are not `wanted`."""
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
