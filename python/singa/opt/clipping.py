"""Clipping of gradients, by their norm or each by its value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import singa_wrap
from ..dtypes import BY_VALUE, wide_type
from ..raw.check import positive
from ..tensor import Tensor


def clip_by_global_norm(grads: Sequence[Tensor], max_norm: float, norm_type: float = 2.0) -> float:
    """Scales all gradients by min(1, max_norm / norm), in place, where norm is the 2-norm of all of
    them together, or another p-norm (Pascanu et al. 2013). Returns that norm.

    `norm_type` is p, a positive number; infinity is the largest absolute value. If a gradient is
    NaN, all become NaN, as in PyTorch. Gradients must not share memory; those of
    `autograd.backward` do not. Raises ValueError unless `max_norm` and `norm_type` are positive.

    >>> gradients = [tensor.Tensor(data=[3.0]), tensor.Tensor(data=[4.0])]
    >>> opt.clip_by_global_norm(gradients, 1.0)
    5.0
    >>> gradients
    [Tensor([0.6], dtype=float32), Tensor([0.8], dtype=float32)]
    """
    positive("clip_by_global_norm", "max_norm", max_norm)
    p = positive("clip_by_global_norm", "norm_type", norm_type)
    raw = [grad.data for grad in grads]
    norm = singa_wrap.GlobalNorm(raw) if p == 2.0 else _norm(raw, p)
    factor = max_norm / (norm + 1e-6)  # PyTorch's clip_grad_norm_
    if not factor >= 1.0:  # also for NaN, which makes all gradients NaN
        singa_wrap.ScaleAll(raw, factor)
    return norm


def clip_by_value(grads: Sequence[Tensor], value: float) -> None:
    """Limits each element of the gradients to [-value, value], in place. NaN stays NaN.

    Raises ValueError unless `value` is positive.

    >>> gradients = [tensor.Tensor(data=[3.0, -0.5])]
    >>> opt.clip_by_value(gradients, 1.0)
    >>> gradients
    [Tensor([ 1. , -0.5], dtype=float32)]
    """
    limit_all([grad.data for grad in grads], positive("clip_by_value", "value", value))


def limit_all(raw: Sequence[Any], value: float) -> None:
    """Limits each element of raw tensors to [-value, value], in place."""
    for grad in raw:
        singa_wrap.UnaryInto(singa_wrap.UnaryOp_kClip, grad, grad, -value, value)


def _norm(raw: Sequence[Any], p: float) -> float:
    """The p-norm of all elements."""
    total = None
    for grad in raw:
        wide = grad.AsType(int(wide_type(BY_VALUE[grad.data_type()])))
        # A reduction may reorder what it reads; this is memory of its own.
        part = singa_wrap.Unary(singa_wrap.UnaryOp_kAbs, wide)
        if p not in (1.0, math.inf):
            part = singa_wrap.Unary(singa_wrap.UnaryOp_kPowScalar, part, p)
        reduction = singa_wrap.ReduceOp_kMax if p == math.inf else singa_wrap.ReduceOp_kSum
        part = singa_wrap.Reduce(reduction, part)
        if total is None:
            total = part
        else:
            code = singa_wrap.BinaryOp_kMax if p == math.inf else singa_wrap.BinaryOp_kAdd
            total = singa_wrap.Binary(code, total, part)
    norm = 0.0 if total is None else float(total.Item())
    return norm if p in (1.0, math.inf) else norm ** (1.0 / p)
