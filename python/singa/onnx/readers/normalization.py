"""Readers of normalisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import autograd, singa_wrap, tensor
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...ops.reduction import softmax_along
from ...tensor import Tensor
from ..values import axis_within
from .movement import reshaped
from .registry import reads


@reads("BatchNormalization", 1, 6, 7, 9, 14, 15, weights=(1, 2), states=(3, 4))
def batch_norm(node: Node) -> Compute:
    """Batch norm. The model's mode decides which statistics are used."""
    if any(node.used[1:]):
        raise Refused("the statistics of batch norm as results")
    if node.version < 9 and not node.attributes.get("spatial", 1):
        raise Refused("spatial=0")
    epsilon = node.attributes.get("epsilon", 1e-5)
    new = 1.0 - node.attributes.get("momentum", 0.9)  # weight of the batch's statistics
    handles: dict[int, Any] = {}

    def compute(
        run: Any,
        x: Tensor,
        scale: Tensor,
        bias: Tensor,
        mean: Tensor,
        var: Tensor,
        add: Tensor | None = None,
        activation: str | None = None,
    ) -> Tensor:
        shape = tuple(x.shape)
        if len(shape) > 4:
            x = reshaped(x, (*shape[:2], math.prod(shape[2:]), 1))
        handle = handles.get(shape[1])
        if handle is None:
            handle = handles[shape[1]] = singa_wrap.BatchNormHandle(new, x.data, epsilon)
        if mean.dtype in (tensor.float16, tensor.bfloat16):
            mean, var = autograd.cast(mean, tensor.float32), autograd.cast(var, tensor.float32)
        y = autograd.batchnorm_2d(handle, x, scale, bias, mean, var, add, activation=activation)
        return reshaped(y, shape)

    return compute


def _check_types(node: Node) -> None:
    """Normalisation in float32 or more is what singa always does."""
    if node.attributes.get("stash_type", 1) not in (1, 11):
        raise Refused(f"stash_type {node.attributes['stash_type']}")


@reads("LayerNormalization", 17, weights=(1, 2))
def layer_norm(node: Node) -> Compute:
    """Layer norm over the axes from `axis` to the last."""
    _check_types(node)
    axis, epsilon = node.attributes.get("axis", -1), node.attributes.get("epsilon", 1e-5)
    statistics = any(node.used[1:])

    def compute(run: Any, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
        at = axis_within(node, axis, len(x.shape))
        inner = tuple(x.shape[at:])
        plain = tuple(scale.shape) == inner and (bias is None or tuple(bias.shape) == inner)
        if plain:
            y = autograd.layer_norm(x, scale, bias, at, epsilon)
        else:
            y = autograd.layer_norm(x, None, None, at, epsilon) * scale
            y = y if bias is None else y + bias
        if not statistics:
            return y
        axes = list(range(at, len(x.shape)))
        wide = x if x.dtype == tensor.float64 else autograd.cast(x, tensor.float32)
        mean = autograd.reduce_mean(wide, axes, 1)
        var = autograd.reduce_mean(autograd.square(wide - mean), axes, 1)
        kept = (mean, autograd.reciprocal(autograd.sqrt(var + epsilon)))
        if x.dtype == tensor.float64:
            kept = tuple(autograd.cast(t, tensor.float32) for t in kept)  # type: ignore[assignment]
        return (y, *kept)

    return compute


@reads("RMSNormalization", 23, weights=(1,))
def rms_norm(node: Node) -> Compute:
    """RMS norm over the axes from `axis` to the last."""
    _check_types(node)
    axis, epsilon = node.attributes.get("axis", -1), node.attributes.get("epsilon", 1e-5)

    def compute(run: Any, x: Tensor, scale: Tensor) -> Tensor:
        at = axis_within(node, axis, len(x.shape))
        if tuple(scale.shape) == tuple(x.shape[at:]):
            return autograd.rms_norm(x, scale, at, epsilon)
        return autograd.rms_norm(x, None, at, epsilon) * scale

    return compute


@reads("InstanceNormalization", 1, 6, 22, weights=(1, 2))
def instance_norm(node: Node) -> Compute:
    """Instance norm."""
    epsilon = node.attributes.get("epsilon", 1e-5)
    return lambda run, x, scale, bias: autograd.instance_norm(x, scale, bias, epsilon)


@reads("GroupNormalization", 18, 21, weights=(1, 2))
def group_norm(node: Node) -> Compute:
    """Group norm. In version 18, scale and bias are those of groups."""
    if node.version == 21:
        _check_types(node)
    epsilon, groups = node.attributes.get("epsilon", 1e-5), node.attributes["num_groups"]

    def of_channels(t: Tensor, channels: int) -> Tensor:
        if node.version == 18 and tuple(t.shape) == (groups,) and channels != groups:
            wide = autograd.expand(reshaped(t, (groups, 1)), (groups, channels // groups))
            return reshaped(wide, (channels,))
        return t

    def compute(run: Any, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        channels = x.shape[1]
        scale, bias = of_channels(scale, channels), of_channels(bias, channels)
        return autograd.group_norm(x, groups, scale, bias, epsilon)

    return compute


@reads("LpNormalization", 1, 22)
def lp_normalization(node: Node) -> Compute:
    """x divided by its norm along an axis; 0 where that is 0."""
    axis, p = node.attributes.get("axis", -1), node.attributes.get("p", 2)
    if p not in (1, 2):
        raise Refused(f"p is {p}")

    def compute(run: Any, x: Tensor) -> Tensor:
        norm = (autograd.reduce_l1 if p == 1 else autograd.reduce_l2)(x, [axis], 1)
        one = run.number(1, x)
        return x / autograd.where(norm, one, norm != run.number(0, x))

    return compute


@reads("LRN", 1, 13)
def lrn(node: Node) -> Compute:
    """Local response normalisation over channels."""
    a = node.attributes
    size, alpha, beta = a["size"], a.get("alpha", 1e-4), a.get("beta", 0.75)
    bias = a.get("bias", 1.0)
    return lambda run, x: autograd.lrn(x, size, alpha, beta, bias)


def _softmax(op: str, function: Any) -> None:
    @reads(op, 1, 11)
    def flattened(node: Node) -> Compute:
        axis = node.attributes.get("axis", 1)

        def compute(run: Any, x: Tensor) -> Tensor:
            at = axis + len(x.shape) if axis < 0 else axis
            rows = (math.prod(x.shape[:at]), math.prod(x.shape[at:]))
            return reshaped(function(reshaped(x, rows), 1), x.shape)

        return compute

    @reads(op, 13)
    def along_axis(node: Node) -> Compute:
        axis = node.attributes.get("axis", -1)
        return lambda run, x: function(x, axis)


_softmax("Softmax", softmax_along)
_softmax("LogSoftmax", autograd.log_softmax)


def _hard(x: Tensor, axis: int) -> Tensor:
    best = autograd.argmax(x, axis)
    return autograd.onehot(axis, best, x.shape[axis], np.array([0, 1], x.dtype.name))


@reads("Hardmax", 1, 11, 13, gradient=False)
def hardmax(node: Node) -> Compute:
    """1 at the first maximum along an axis, else 0."""
    axis = node.attributes.get("axis", -1 if node.version == 13 else 1)

    def compute(run: Any, x: Tensor) -> Tensor:
        at = axis_within(node, axis, len(x.shape))
        if node.version == 13:
            return same_type(_hard(x, at), x)
        rows = (math.prod(x.shape[:at]), math.prod(x.shape[at:]))
        return reshaped(same_type(_hard(reshaped(x, rows), 1), x), x.shape)

    return compute
