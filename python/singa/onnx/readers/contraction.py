"""Readers of matrix products."""

from __future__ import annotations

from typing import Any

from ... import autograd, tensor
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...tensor import Tensor
from .movement import reshaped
from .registry import reads


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

    left, _, right = equation.partition("->")
    if "->" not in equation:
        right = "..." * ("..." in left) + "".join(c for c in left if left.count(c) == 1)
    right = right.replace(",", "")

    def compute(run: Any, *xs: Tensor) -> Tensor:
        y = tensor.einsum(equation, *xs)
        pairs = zip(left.split(","), xs, strict=True)
        open_ = max(
            [len(x.shape) - len(t.replace("...", "")) for t, x in pairs if "..." in t] or [0]
        )
        rank = len(right.replace("...", "")) + open_ * ("..." in right)
        return y if rank else reshaped(y, ())

    return compute
