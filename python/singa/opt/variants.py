"""Variants of Adam and RMSProp, as operations on one parameter after the other.

The core has no single call for them, so a recorded step leaves such an update to the host, which
makes it at each replay. Slots, and all calculations, are in the wide type of a parameter: float32,
or float64.
"""

from __future__ import annotations

import math
from typing import Any

from .. import singa_wrap as _c
from .update_rule import Lists

Raw = Any  # a raw tensor


def amsgrad(
    lists: Lists,
    lr: float,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    step: int,
    decoupled: bool,
) -> None:
    """Adam whose v is the largest so far (Reddi et al. 2018). The slots are m, v and that maximum;
    `step` counts from 1."""
    correction_1, correction_2 = 1.0 - beta_1**step, 1.0 - beta_2**step
    for p, grad, m, v, largest, decay in zip(*lists, strict=True):
        wide = _wide(p, m)
        if decoupled and decay:
            wide = _scaled(wide, 1.0 - lr * decay)
            decay = 0.0
        g = _gradient(wide, grad, m, decay)
        _average(m, g, beta_1)
        _average(v, _c.Binary(_c.BinaryOp_kMul, g, g), beta_2)
        _c.BinaryInto(_c.BinaryOp_kMax, largest, v, largest)
        root = _scaled(_c.Unary(_c.UnaryOp_kSqrt, largest), 1.0 / math.sqrt(correction_2))
        divisor = _c.Unary(_c.UnaryOp_kAddScalar, root, epsilon)
        _move(p, wide, _c.Binary(_c.BinaryOp_kDiv, m, divisor), lr / correction_1)


def rmsprop(
    lists: Lists, lr: float, rho: float, epsilon: float, momentum: float, centered: bool
) -> None:
    """RMSProp with momentum, with the mean subtracted (`centered`), or both. The slots are the
    average of squares, then the mean of gradients if `centered`, then the momentum if there is
    one."""
    for p, grad, v, *slots, decay in zip(*lists, strict=True):
        wide = _wide(p, v)
        g = _gradient(wide, grad, v, decay)
        _average(v, _c.Binary(_c.BinaryOp_kMul, g, g), rho)
        variance = v
        if centered:
            mean = slots.pop(0)
            _average(mean, g, rho)
            square = _c.Binary(_c.BinaryOp_kMul, mean, mean)
            difference = _c.Binary(_c.BinaryOp_kSub, v, square)
            # Rounding must not make it negative.
            variance = _c.Unary(_c.UnaryOp_kClip, difference, 0.0, math.inf)
        shifted = _c.Unary(_c.UnaryOp_kAddScalar, variance, epsilon)
        step = _c.Binary(_c.BinaryOp_kDiv, g, _c.Unary(_c.UnaryOp_kSqrt, shifted))
        if slots:
            buffer = slots[0]
            _c.UnaryInto(_c.UnaryOp_kMulScalar, buffer, buffer, momentum)
            _c.BinaryInto(_c.BinaryOp_kAdd, buffer, step, buffer)
            step = buffer
        _move(p, wide, step, lr)


def _wide(p: Raw, slot: Raw) -> Raw:
    return p.AsType(slot.data_type())


def _scaled(t: Raw, factor: float) -> Raw:
    return _c.Unary(_c.UnaryOp_kMulScalar, t, factor)


def _gradient(p: Raw, grad: Raw, slot: Raw, decay: float) -> Raw:
    """The gradient plus decay · p, in the type of the slots."""
    g = grad.AsType(slot.data_type())
    return _c.Binary(_c.BinaryOp_kAdd, g, _scaled(p, decay)) if decay else g


def _average(slot: Raw, value: Raw, rho: float) -> None:
    """slot = rho · slot + (1 - rho) · value"""
    _c.UnaryInto(_c.UnaryOp_kMulScalar, slot, slot, rho)
    _c.Axpy(1.0 - rho, value, slot)


def _move(p: Raw, wide: Raw, step: Raw, lr: float) -> None:
    """p = wide - lr · step"""
    moved = _c.Binary(_c.BinaryOp_kSub, wide, _scaled(step, lr))
    p.CopyFrom(moved.AsType(p.data_type()))
