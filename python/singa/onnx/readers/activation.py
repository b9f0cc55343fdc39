"""Readers of elementwise functions of one tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import autograd, tensor
from ...dtypes import is_float
from ...networks.element_types import ALL, BOOL, FLOATS, NUMERIC, is_singas, name_of
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...tensor import Tensor
from ..data_types import singas_name
from ..functions import FUNCTIONS, Function
from ..values import tensor_type
from .registry import reads


def _read(row: Function) -> None:
    """A reader of a function of x and of attributes."""

    @reads(row.op, *row.versions, types=row.types, gradient=row.gradient)
    def make(node: Node) -> Compute:
        values = row.attributes_of(node).values()
        return lambda run, x: row.function(x, *values)


for _row in FUNCTIONS.values():
    _read(_row)


@reads("Softplus", 1, 22)
def softplus(node: Node) -> Compute:
    """log(1 + e^x)."""
    return lambda run, x: autograd.softplus(x)


@reads("Not", 1, types=BOOL, gradient=False)
def logical_not(node: Node) -> Compute:
    """Whether x is false."""
    return lambda run, x: autograd._not(x)


@reads("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25, types=ALL, either=True, sequences=True)
def identity(node: Node) -> Compute:
    """The input."""
    return lambda run, x: x if isinstance(x, list) else autograd.identity(run.as_tensor(x))


@reads("Selu", 1, 6, 22)
def selu(node: Node) -> Compute:
    """gamma·x where x > 0, else gamma·alpha·(e^x - 1)."""
    old = node.version == 1
    alpha = node.attributes.get("alpha", 1.6732 if old else 1.67326319217681884765625)
    gamma = node.attributes.get("gamma", 1.0507 if old else 1.05070102214813232421875)
    return lambda run, x: autograd.selu(x, alpha, gamma)


@reads("Gelu", 20)
def gelu(node: Node) -> Compute:
    """x·Φ(x), or its approximation by tanh."""
    approximate = node.attributes.get("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise Refused(f"approximate is {approximate!r}")
    return lambda run, x: autograd.gelu(x, approximate)


@reads("Swish", 24)
def swish(node: Node) -> Compute:
    """x·sigmoid(alpha·x)."""
    alpha = node.attributes.get("alpha", 1.0)
    if alpha == 1.0:
        return lambda run, x: autograd.silu(x)
    return lambda run, x: x * autograd.sigmoid(x * alpha)


@reads("ThresholdedRelu", 1, 10, 22)
def thresholded_relu(node: Node) -> Compute:
    """x where x > alpha, else 0."""
    alpha = node.attributes.get("alpha", 1.0)
    return lambda run, x: autograd.where(x, run.number(0, x), x > run.number(alpha, x))


@reads("Shrink", 9, types=FLOATS)
def shrink(node: Node) -> Compute:
    """x + bias where x < -lambd, x - bias where x > lambd, else 0."""
    lambd, bias = node.attributes.get("lambd", 0.5), node.attributes.get("bias", 0.0)

    def compute(run: Any, x: Tensor) -> Tensor:
        low = autograd.where(x + bias, run.number(0, x), x < run.number(-lambd, x))
        return autograd.where(x - bias, low, x > run.number(lambd, x))

    return compute


@reads("PRelu", 1, 6, 7, 9, 16, weights=(1,))
def prelu(node: Node) -> Compute:
    """x where x >= 0, else slope·x."""

    def compute(run: Any, x: Tensor, slope: Tensor) -> Tensor:
        if node.version < 7 and len(slope.shape) == 1 and len(x.shape) > 1:
            slope = autograd.reshape(slope, (-1, *(1,) * (len(x.shape) - 2)))
        return autograd.prelu(x, slope)

    return compute


def _limited(x: Tensor, low: Any, high: Any) -> Tensor:
    """x limited to [low, high]: ReLU6, whose gradient differs at the limits, if they are 0 and 6,
    because nearly all such nodes come from it."""
    return autograd.relu6(x) if (low, high) == (0, 6) else autograd.clip(x, low, high)


@reads("Clip", 1, 6, types=FLOATS)
def clip_by_attributes(node: Node) -> Compute:
    """x limited to [min, max]."""
    low, high = node.attributes.get("min"), node.attributes.get("max")
    return lambda run, x: _limited(x, low, high)


@reads("Clip", 11, 12, 13, types=NUMERIC, host=(1, 2))
def clip(node: Node) -> Compute:
    """x limited to [min, max]."""

    def limit(array: Any) -> Any:
        if array is None or not array.size:
            return None
        value = array.reshape(-1)[0].item() if array.dtype.name != "bfloat16" else float(array)
        return value if value == value else None

    def compute(run: Any, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
        low, high = limit(low), limit(high)
        if not is_float(x.dtype):
            # The limits are computed as float64, which does not hold all integers of 64 bits.
            info = np.iinfo(x.dtype.name)
            low = None if low is not None and low <= info.min else low
            high = None if high is not None and high >= info.max else high
            if any(v is not None and abs(v) > 1 << 53 for v in (low, high)):
                raise Refused("limits beyond 2^53")
            if low is None and high is None:
                return x
        if low is not None and high is not None and low > high:
            low = high
        return _limited(x, low, high)

    return compute


@reads("IsNaN", 9, 13, 20, gradient=False)
def is_nan(node: Node) -> Compute:
    """Whether an element is NaN."""
    return lambda run, x: autograd.isnan(x)


@reads("IsInf", 10, 20, gradient=False)
def is_inf(node: Node) -> Compute:
    """Whether an element is infinite."""
    negative = node.attributes.get("detect_negative", 1)
    positive = node.attributes.get("detect_positive", 1)

    def compute(run: Any, x: Tensor) -> Tensor:
        if negative and positive:
            x = autograd.abs(x)
        elif negative:
            x = -x
        elif not positive:
            return autograd.cast(x * 0.0 == run.number(np.inf, x), tensor.bool_)
        return autograd.cast(x == run.number(np.inf, x), tensor.bool_)

    return compute


@reads("Cast", 1, 6, 9, 13, 19, 21, 23, 24, 25, 28, types=ALL)
def cast(node: Node) -> Compute:
    """Conversion to another element type."""
    name = node.attributes.get("to")
    target = _castable(singas_name(name) if isinstance(name, str) else tensor_type(node, "to", ""))
    return lambda run, x: x if x.dtype == target else autograd.cast(x, target)


def _castable(name: str) -> Any:
    if not is_singas(name):
        raise Refused(f"a conversion to {name}, of which singa has no tensors")
    return tensor.DType[name]


@reads("CastLike", 15, 19, 21, 23, 24, 25, types=ALL, either=True)
def cast_like(node: Node) -> Compute:
    """Conversion to the element type of another value."""

    def compute(run: Any, x: Any, like: Any) -> Tensor:
        x = run.as_tensor(x)
        if isinstance(like, Tensor):
            return same_type(x, like)
        target = _castable(name_of(like))
        return x if x.dtype == target else autograd.cast(x, target)

    return compute


@reads("Dropout", 1, 6, 7, 10, 12, 13, 22, types=FLOATS, host=(1,), either=(2,))
def dropout(node: Node) -> Compute:
    """Dropout in training mode of the model; the identity otherwise."""
    mask_used = len(node.used) > 1 and node.used[1]
    of_attribute = node.attributes.get("ratio", 0.5)

    def compute(run: Any, x: Tensor, ratio: Any = None, in_training: Any = None) -> Any:
        probability = of_attribute if ratio is None else float(ratio.reshape(-1)[0])
        if isinstance(in_training, Tensor) and probability and run.host(in_training).any():
            raise Refused("training_mode that is an input of the graph: train() decides")
        if not autograd.training or probability == 0.0:
            y = autograd.identity(x)
            if not mask_used:
                return y
            ones = run.made((node.name, x.shape), lambda: np.ones(x.shape, np.bool_))
            if node.version < 10:  # the mask has the type of x
                return y, autograd.cast(run.tensor(ones), x.dtype)
            return y, run.tensor(ones)
        if mask_used:
            raise Refused("the mask of dropout, in training")
        return autograd.dropout(x, ratio=probability)

    return compute
