"""Readers of operators that ONNX Runtime adds to ONNX, as its quantizer and its optimizer write
them: those of the domain com.microsoft that are found in quantised files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ... import autograd, tensor
from ...networks.element_types import BOOL, FLOATS
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...tensor import Tensor
from .convolution import conv
from .integer_products import requantized, shifted, wide_for
from .movement import reshaped
from .quantization import dynamic, rounded
from .recurrent import Network
from .registry import find, reads

_DOMAIN = "com.microsoft"
_BYTES = frozenset({"int8", "uint8"})


def _require(node: Node, *inputs: int) -> None:
    """Raises Refused unless these inputs are given: the onnx package does not check it here."""
    for i in inputs:
        if not node.has(i):
            raise Refused(f"input {i} is missing")


# Products, activations and norms of floats.

_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "Relu": autograd.relu,
    "Tanh": autograd.tanh,
    "Sigmoid": autograd.sigmoid,
    "LeakyRelu": autograd.leakyrelu,
    "Clip": autograd.clip,
    "HardSigmoid": autograd.hardsigmoid,
}


@reads("FusedConv", 1, weights=(1, 2), domain=_DOMAIN)
def fused_conv(node: Node) -> Compute:
    """activation(convolution + z)."""
    _require(node, 0, 1)
    convolve = conv(node)
    name = node.attributes.get("activation", "")
    parameters = node.attributes.get("activation_params", [])
    if name and name not in _ACTIVATIONS:
        raise Refused(f"activation {name!r}")

    def compute(
        run: Any, x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None
    ) -> Tensor:
        y = convolve(run, x, w, b)
        y = y if z is None else y + z
        return _ACTIVATIONS[name](y, *parameters) if name else y

    return compute


@reads("FusedMatMul", 1, weights=(1,), domain=_DOMAIN)
def fused_matmul(node: Node) -> Compute:
    """alpha·A'·B', with the last two axes exchanged by transA and transB."""
    _require(node, 0, 1)
    alpha = node.attributes.get("alpha", 1.0)
    if node.attributes.get("transBatchA", 0) or node.attributes.get("transBatchB", 0):
        raise Refused("transBatchA or transBatchB")

    def turned(x: Tensor, name: str) -> Tensor:
        rank = len(x.shape)
        if rank < 2 or not node.attributes.get(name, 0):
            return x
        return autograd.transpose(x, (*range(rank - 2), rank - 1, rank - 2))

    def compute(run: Any, a: Tensor, b: Tensor) -> Tensor:
        y = autograd.matmul(turned(a, "transA"), turned(b, "transB"))
        return y if alpha == 1 else y * alpha

    return compute


@reads("FastGelu", 1, weights=(1,), domain=_DOMAIN)
def fast_gelu(node: Node) -> Compute:
    """Gelu of x + bias, by the approximation with tanh."""
    _require(node, 0)

    def compute(run: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return autograd.gelu(x if bias is None else x + bias, "tanh")

    return compute


@reads("SkipLayerNormalization", 1, weights=(2, 3, 4), domain=_DOMAIN)
def skip_layer_norm(node: Node) -> Compute:
    """Layer norm of x + skip + bias over the last axis, and as fourth output this sum."""
    _require(node, 0, 1, 2)
    eps = node.attributes.get("epsilon", 1e-12)
    if any(node.outputs[1:3]):
        raise Refused("the mean and variance as outputs")

    def compute(
        run: Any,
        x: Tensor,
        skip: Tensor,
        gamma: Tensor,
        beta: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Any, ...]:
        total = x + skip if bias is None else x + skip + bias
        return autograd.layer_norm(total, gamma, beta, -1, eps), None, None, total

    return compute


# Quantised values through an operator of floats.


def _between(
    name: str, op: str, version: int, operands: Sequence[int] | slice, result: int, plain: int = 0
) -> None:
    """A reader of operator `name`: quantises what `op` computes of dequantised inputs.

    operands  where each operand with its scale and zero point begins
    result    where the result's scale and zero point begin
    plain     number of first inputs that are not quantised
    """
    first_types = BOOL if plain else _BYTES if result else FLOATS

    @reads(name, 1, types=first_types, gradient=False, domain=_DOMAIN)
    def make(node: Node) -> Compute:
        if node.attributes.get("channels_last", 0):
            raise Refused("channels_last")
        count = len(node.inputs)
        first = range(2, count, 3) if isinstance(operands, slice) else operands
        _require(node, *range(plain), *first, *(i + 1 for i in first), result)
        old_softmax = op == "Softmax" and node.attributes.get("opset", 13) < 13
        reader = find("", op, 11 if old_softmax else version)
        assert reader is not None
        inner = replace(node, op=op, domain="", version=reader.versions[-1], input_types=())
        calculate = reader.make(inner)

        def compute(run: Any, *inputs: Any) -> Tensor:
            given = [*inputs, None, None]
            xs = [_floats(run, *given[i : i + 3]) for i in first]
            y = calculate(run, *given[:plain], *xs)
            scale, zero = given[result : result + 2]
            return _bytes(y, scale, zero, given[first[0]])

        return compute


def _floats(run: Any, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    return shifted(run, x, zero, tensor.float32) * reshaped(scale, ())


def _bytes(y: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    start = None if zero is None else reshaped(autograd.cast(zero, tensor.float32), ())
    return rounded(y / reshaped(scale, ()), start, like.dtype.name)


_between("QLinearAdd", "Add", 14, (0, 3), 6)
_between("QLinearMul", "Mul", 14, (0, 3), 6)
_between("QLinearWhere", "Where", 16, (1, 4), 7, plain=1)
_between("QLinearSigmoid", "Sigmoid", 13, (0,), 3)
_between("QLinearLeakyRelu", "LeakyRelu", 16, (0,), 3)
_between("QLinearSoftmax", "Softmax", 13, (0,), 3)
_between("QLinearAveragePool", "AveragePool", 11, (0,), 3)
_between("QLinearGlobalAveragePool", "GlobalAveragePool", 1, (0,), 3)
_between("QLinearConcat", "Concat", 13, slice(2, None, 3), 0)


@reads("QGemm", 1, types=_BYTES, gradient=False, host=(1, 2, 4, 5, 7, 8), domain=_DOMAIN)
def qgemm(node: Node) -> Compute:
    """alpha·A'·B' + C of quantised values; floats if the result has no scale."""
    _require(node, 0, 1, 2, 3, 4, 5)
    alpha = node.attributes.get("alpha", 1.0)
    trans_a, trans_b = node.attributes.get("transA", 0), node.attributes.get("transB", 0)

    def compute(
        run: Any,
        a: Tensor,
        a_scale: Any,
        a_zero: Any,
        b: Tensor,
        b_scale: Any,
        b_zero: Any,
        c: Tensor | None = None,
        y_scale: Any = None,
        y_zero: Any = None,
    ) -> Tensor:
        factor = np.asarray(alpha * a_scale * b_scale, np.float32)
        factor = factor if y_scale is None else np.asarray(factor / y_scale, np.float32)
        wide = tensor.float64 if y_scale is None else wide_for(factor)
        columns = (-1, 1) if trans_b else (-1,)
        given = shifted(run, a, a_zero, wide), shifted(run, b, b_zero, wide, columns)
        bias = None if c is None else autograd.cast(c, wide)
        sums = autograd.gemm(*given, bias, 1.0, 1.0, trans_a, trans_b)
        if y_zero is not None:
            return requantized(run, (node.name,), sums, factor, y_zero)
        factors = run.tensor(run.made((node.name, "factor"), lambda: factor))
        return autograd.cast(sums, tensor.float32) * factors

    return compute


# LSTM.


class _DynamicLstm(Network):
    """An LSTM with quantised weights, which quantises the input and, in each step, the state."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, "LSTM")
        self.in_kernel = False

    def _step(self, x: Tensor, state: Any, w: Any, functions: Any, hidden: int) -> list[Tensor]:
        h, c = state
        return super()._step(x, [_in_steps(h), c], w, functions, hidden)


def _in_steps(x: Tensor) -> Tensor:
    """x rounded to 256 numbers over its range."""
    values, scale, zero = dynamic(x)
    return (autograd.cast(values, x.dtype) - autograd.cast(zero, x.dtype)) * scale


@reads("DynamicQuantizeLSTM", 1, gradient="zero", weights=(3, 7), domain=_DOMAIN)
def dynamic_lstm(node: Node) -> Compute:
    """An LSTM whose products have integers. W and R are (directions, input, 4·hidden)."""
    _require(node, 0, 1, 2, 8, 10)
    network = _DynamicLstm(node)

    def weights(run: Any, w: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
        def spread(t: Tensor) -> Tensor:
            return reshaped(t, (w.shape[0], 1, -1 if len(t.shape) > 1 else 1))

        y = shifted(run, w, None if zero is None else spread(zero), tensor.float32)
        return same_type(autograd.transpose(y * spread(scale), (0, 2, 1)), scale)

    def compute(run: Any, x: Tensor, W: Tensor, R: Tensor, *rest: Any) -> tuple[Any, ...]:
        B, lengths, h0, c0, P, W_scale, W_zero, R_scale, R_zero = [*rest, None][:9]
        wide = weights(run, W, W_scale, W_zero), weights(run, R, R_scale, R_zero)
        y = network.compute(run, _in_steps(x), *wide, B, lengths, h0, c0, P)
        return y[: len(node.outputs)]

    return compute
