"""Readers of matrix products."""

from __future__ import annotations

import string
from typing import Any

from ... import autograd, tensor
from ...tensor import Tensor
from ..errors import Refused
from ..graph import Node
from .movement import reshaped
from .registry import Compute, reads


@reads("MatMul", 1, 9, 13, weights=(1,))
def matmul(node: Node) -> Compute:
    """a @ b, as numpy.matmul."""
    return lambda run, a, b: autograd.matmul(a, b)


@reads("Gemm", 1, 6, 7, 9, 11, 13, weights=(1, 2))
def gemm(node: Node) -> Compute:
    """alpha·A'·B' + beta·C."""
    alpha, beta = node.attributes.get("alpha", 1.0), node.attributes.get("beta", 1.0)
    trans_a, trans_b = node.attributes.get("transA", 0), node.attributes.get("transB", 0)

    def compute(run: Any, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        plain = alpha == 1.0 and beta == 1.0 and not trans_a
        outputs = b.shape[0 if trans_b else 1]
        if plain and (c is None or tuple(c.shape) == (outputs,)):
            return autograd.linear(a, b, c, bool(trans_b))
        return autograd.gemm(a, b, c, alpha, beta, trans_a, trans_b)

    return compute


@reads("Einsum", 12, 28)
def einsum(node: Node) -> Compute:
    """Einstein summation."""
    equation = node.attributes.get("equation", "").replace(" ", "")

    def compute(run: Any, *xs: Tensor) -> Tensor:
        text = _without_ellipsis(equation, [len(x.shape) for x in xs])
        y = tensor.einsum(text, *xs)
        return y if text.partition("->")[2] else reshaped(y, ())

    return compute


def _without_ellipsis(equation: str, ranks: list[int]) -> str:
    """The equation with a right side, and with letters in the place of each ellipsis."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Refused(f"equation {equation!r} for {len(ranks)} inputs")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    widths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    most = max([w for w, term in zip(widths, terms, strict=True) if "..." in term], default=0)
    if len({w for w, term in zip(widths, terms, strict=True) if "..." in term}) > 1:
        raise Refused("inputs whose ellipses have different lengths")
    if most > len(free) or most < 0:
        raise Refused(f"equation {equation!r} for inputs of {ranks} axes")
    letters = "".join(free[:most])
    if not arrow:
        seen = left.replace("...", "").replace(",", "")
        right = letters + "".join(sorted(c for c in set(seen) if seen.count(c) == 1))
    return (
        ",".join(term.replace("...", letters) for term in terms)
        + "->"
        + right.replace("...", letters)
    )
