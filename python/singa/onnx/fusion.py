"""Neighbouring nodes that singa computes in one operation.

    BatchNormalization → an activation that batch norm applies
    BatchNormalization → Add → Relu
    Mul → Add of a parameter per channel                 batch norm, in inference
    Pad → Conv
    Transpose → LayerNormalization → Transpose            layer norm over channels
    Reshape → Transpose → Reshape                         channel shuffle
    MatMul → Add of a vector
    Sigmoid → Mul, HardSigmoid → Mul                     x·sigmoid(x), x·clip(x / 6 + 1/2, 0, 1)
    Div or Mul → Erf → Add → Mul → Mul                   x·Φ(x), in the order of PyTorch's exporter
    attention (`attention_fusion`)
    quantized layers and sums (`int8`)

Patterns consist of nodes of the file. Where a node may be a part of several patterns, the longer
ones are tried first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import autograd, singa_wrap
from ..dtypes import wide_type
from ..networks.fusion import Fusion
from ..networks.graph import Node
from ..tape.grad_mode import training
from ..tensor import Tensor
from . import attention_fusion, int8
from .functions import FUNCTIONS, GATES, OF_NORM
from .values import argument, numbers, resolved_shape

if TYPE_CHECKING:
    from ..networks.network import CompiledNode, Execution


class _Norm(NamedTuple):
    """Steps that normalise channels: batch norm, or a product and a sum of parameters.

    compute  the values of `inputs` normalised, as the function of a batch norm's reader; None where
             the steps have to be computed apart
    """

    steps: list[int]
    lead: CompiledNode
    inputs: Sequence[str]
    compute: Callable[..., Tensor | None]


class OnnxFusion(Fusion):
    """The patterns that nodes of ONNX form."""

    def run(self) -> list[CompiledNode]:
        int8.fuse(self)
        return super().run()

    def rules(self) -> Sequence[Mapping[str, Callable[[int], bool]]]:
        return [
            {"MatMul": lambda i: attention_fusion.fuse(self, i)},
            dict.fromkeys(("Mul", "Clip", "Swish", *_ACTIVATIONS), self._behind_norm),
            {
                "Mul": lambda i: self._gated(i) or self._gelu(i),
                "Add": lambda i: self._linear(i) or self._scaled(i),
                "Conv": self._padded,
                "Transpose": self._channel_norm,
                "Reshape": self._shuffle,
            },
        ]

    def is_one(self, i: int, *ops: str) -> bool:
        """Also, that its operands broadcast as they do today."""
        return super().is_one(i, *ops) and not self.step(i).node.attributes.get("broadcast")

    # Batch norm and an activation; batch norm, Add, Relu.

    def _behind_norm(self, i: int) -> bool:
        """Merges an activation, which ends with step i, with the norm before it."""
        x, steps, activation = self._activation(i)
        norm = self._norm(x, len(steps)) if activation else None
        if norm is not None:
            return self._merge_norm(norm, steps, activation)
        added = self.only(x, "Add") if activation == "relu" else None
        if added is None:
            return False
        operands = self.step(added).node.inputs
        for name, other in (operands, operands[::-1]):
            norm = None if other == name or other in self.constants else self._norm(name)
            if norm is not None:
                return self._merge_norm(norm, [added, i], "relu", other)
        return False

    def _activation(self, i: int) -> tuple[str, list[int], str]:
        """What an activation of batch norm is applied to, its steps, and its name; "" if step i
        ends with something else."""
        node = self.step(i).node
        x, name = node.inputs[0], ""
        if node.op == "Mul":
            x, at, name = self._gate(i)
            return x, [at, i], name
        if node.op == "Clip":
            limits = [node.attributes.get(key) for key in ("min", "max")]
            if len(node.inputs) == 3:
                limits = [self.number(limit) for limit in node.inputs[1:]]
            name = "relu6" if limits == [0, 6] else ""
        elif node.op == "Swish":
            name = "silu" if node.attributes.get("alpha", 1.0) == 1 else ""
        else:
            name = _ACTIVATIONS[node.op]
        return x, [i], name

    def _norm(self, name: str, uses: int = 1) -> _Norm | None:
        """The steps that normalise a value which is read `uses` times."""
        at = self.only(name, "BatchNormalization", "Add", uses=uses)
        if at is None or self.is_one(at, "Add"):
            return None if at is None else self._scale_and_shift(at)
        lead = self.step(at)
        return _Norm([at], lead, lead.node.inputs, lead.compute)

    def _merge_norm(
        self, norm: _Norm, steps: Sequence[int], activation: str | None, add: str = ""
    ) -> bool:
        """Merges a norm with an activation, and with the sum of it and `add` before that."""
        names = [*norm.inputs, add] if add else norm.inputs
        apart = self.apart([*norm.steps, *steps], names)

        def compute(run: Execution, *given: Any) -> Any:
            inputs, other = (given[:-1], given[-1]) if add else (given, None)
            y, x = None, given[0]
            if other is None or (
                other.shape == x.shape and other.dtype == x.dtype and len(x.shape) <= 4
            ):
                y = norm.compute(run, *inputs, add=other, activation=activation)
            return apart(run, *given) if y is None else y

        return self.merge([*norm.steps, *steps], norm.lead, names, compute)

    # Transpose, LayerNormalization, Transpose.

    def _channel_norm(self, i: int) -> bool:
        end = self.step(i).node
        at = self.only(end.inputs[0], "LayerNormalization")
        if at is None:
            return False
        lead = self.step(at)
        first = self.only(lead.node.inputs[0], "Transpose")
        order = end.attributes.get("perm") or []
        rank = len(order)
        if first is None or rank < 3:
            return False
        before = self.step(first)
        moved = before.node.attributes.get("perm") == [0, *range(2, rank), 1]
        back = order == [0, rank - 1, *range(1, rank - 1)]
        if not moved or not back or lead.node.attributes.get("axis", -1) not in (-1, rank - 1):
            return False
        inputs = [before.node.inputs[0], *lead.node.inputs[1:]]
        apart = self.apart([first, at, i], inputs)
        epsilon = lead.node.attributes.get("epsilon", 1e-5)

        def compute(run: Execution, *given: Any) -> Any:
            x, scale, bias = (*given, None)[:3]
            shape = tuple(x.shape[1:2])
            if tuple(scale.shape) == shape and (bias is None or tuple(bias.shape) == shape):
                return autograd.channel_norm(x, scale, bias, epsilon)
            return apart(run, *given)

        return self.merge([first, at, i], lead, inputs, compute)

    # Reshape, Transpose, Reshape.

    def _shuffle(self, i: int) -> bool:
        end = self.step(i)
        middle = self.only(end.node.inputs[0], "Transpose")
        if middle is None or len(end.node.inputs) != 2:
            return False
        turn = self.step(middle)
        first = self.only(turn.node.inputs[0], "Reshape")
        order = turn.node.attributes.get("perm") or []
        if first is None or len(order) < 3 or order != [0, 2, 1, *range(3, len(order))]:
            return False
        lead = self.step(first)
        if len(lead.node.inputs) != 2 or lead.reader is None:
            return False
        if self.is_known(lead.node.inputs[0]):  # the host computes it
            return False
        inputs = [*lead.node.inputs, end.node.inputs[1]]
        steps = [first, middle, i]
        compute = _shuffled(lead.node, end.node, self.apart(steps, inputs))
        lead = self.make(lead.node, replace(lead.reader, host=(1, 2)), compute)
        return self.merge(steps, lead, inputs, compute)

    # MatMul, Add.

    def _linear(self, i: int) -> bool:
        operands = self.step(i).node.inputs
        for name, bias in (operands, operands[::-1]):
            product = self.only(name, "MatMul")
            if product is not None and bias not in self.makers and bias not in self.constants:
                lead = self.step(product)
                names = [*lead.node.inputs, bias]
                compute = _linear(self.apart([product, i], names))
                return self.merge([product, i], lead, names, compute)
        return False

    # Mul, Add of parameters with one number for each channel.

    def _scaled(self, i: int) -> bool:
        norm = self._scale_and_shift(i)
        return norm is not None and self._merge_norm(norm, [], None)

    def _scale_and_shift(self, i: int) -> _Norm | None:
        """The norm that ends with the sum i."""
        end = self.step(i).node
        for name, shift in (end.inputs, end.inputs[::-1]):
            at = self.only(name, "Mul")
            if at is None or not self._per_channel(end, shift):
                continue
            node = self.step(at).node
            for x, scale in (node.inputs, node.inputs[::-1]):
                if self._per_channel(node, scale) and len(node.shape_of(x) or ()) == 4:
                    reader = self.step(at).reader
                    reader = None if reader is None else replace(reader, either=False)
                    compute = _ScaleAndShift().compute
                    lead = self.make(replace(node, inputs=(x, scale)), reader, compute)
                    return _Norm([at, i], lead, [x, scale, shift], compute)
        return None

    def _per_channel(self, node: Node, name: str) -> bool:
        """Whether a value is a parameter, or a constant, of shape (1, C, 1, 1) or (C, 1, 1)."""
        if name in self.makers or name in self.graph.inputs:
            return False
        array = self.constants.get(name)
        shape = node.shape_of(name) if array is None else array.shape
        return shape is not None and shape[-2:] == (1, 1) and shape[:-3] in ((), (1,))

    # Pad with zeros, Conv.

    def _padded(self, i: int) -> bool:
        end = self.step(i)
        at = self.only(end.node.inputs[0], "Pad")
        if at is None or end.node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return False
        before = self.step(at).node
        pads = self._zeros_around(before)
        if pads is None:
            return False
        own = end.node.attributes.get("pads") or [0] * len(pads)
        if len(own) != len(pads):
            return False
        sums = [a + b for a, b in zip(own, pads, strict=True)]
        node = replace(
            end.node,
            inputs=(before.inputs[0], *end.node.inputs[1:]),
            input_types=(before.input_types[0], *end.node.input_types[1:]),
            attributes={**end.node.attributes, "pads": sums, "auto_pad": "NOTSET"},
        )
        assert end.reader is not None
        conv = self.make(node, end.reader, end.reader.make(node))
        return self.merge([at, i], conv, node.inputs, conv.compute)

    def _zeros_around(self, node: Node) -> list[int] | None:
        """What a Pad adds before and after each axis but the first two; None if it adds something
        else than zeros, or this is not known."""
        if any(name and name not in self.constants for name in node.inputs[1:]):
            return None
        given: list[Any] = [self.constants.get(name) for name in node.inputs]
        pads = argument(node, "pads" if node.version > 1 else "paddings", given, 1)
        value = given[2] if node.has(2) else node.attributes.get("value", 0)
        if pads is None or node.has(3) or node.attributes.get("mode", "constant") != "constant":
            return None
        rank = len(pads) // 2
        outside = [*pads[:2], *pads[rank : rank + 2]]
        if rank < 3 or any(outside) or min(pads) < 0 or np.any(value):
            return None
        return [*pads[2:rank], *pads[rank + 2 :]]

    # x·sigmoid(x) and x·hardsigmoid(x).

    def _gated(self, i: int) -> bool:
        x, at, name = self._gate(i)
        function = _of_one(getattr(autograd, name)) if name else None
        return function is not None and self.merge([at, i], self.step(at), [x], function)

    def _gate(self, i: int) -> tuple[str, int, str]:
        """x, the step of the gate, and the name of the function x·gate(x); "" if the product i is
        something else."""
        operands = self.step(i).node.inputs
        for x, gate in (operands, operands[::-1]):
            at = self.only(gate, *GATES)
            if at is None or self.step(at).node.inputs != (x,):
                continue
            lead = self.step(at)
            name, attributes = GATES[lead.node.op]
            given = FUNCTIONS[lead.node.op].attributes_of(lead.node)
            if all(abs(given[key] - value) <= 1e-7 for key, value in attributes.items()):
                return x, at, name
        return "", -1, ""

    # x·(1 + erf(x / √2)) / 2

    def _factor(self, step: CompiledNode, value: float) -> str | None:
        """The other operand of a step that combines a value with this number."""
        a, b = step.node.inputs
        for x, number in ((a, b), (b, a)):
            found = self.number(number)
            if found is not None and math.isclose(found, value, rel_tol=1e-6):
                return x
        return None

    def _gelu(self, i: int) -> bool:
        half = self._factor(self.step(i), 0.5)
        if half is None:
            return False
        product = self.only(half, "Mul")
        if product is None:
            return False
        operands = self.step(product).node.inputs
        for x, other in (operands, operands[::-1]):
            more = self.only(other, "Add")
            inner = None if more is None else self._factor(self.step(more), 1.0)
            erf = None if inner is None else self.only(inner, "Erf")
            if more is None or erf is None:
                continue
            scaled = self.only(self.step(erf).node.inputs[0], "Div", "Mul")
            if scaled is None:
                continue
            step = self.step(scaled)
            if step.node.op == "Div":
                ok = step.node.inputs[0] == x and self._factor(step, math.sqrt(2)) == x
            else:
                ok = self._factor(step, math.sqrt(0.5)) == x
            if ok:
                steps = [scaled, erf, more, product, i]
                return self.merge(steps, self.step(erf), [x], _gelu(self.apart(steps, [x])))
        return False


class _ScaleAndShift:
    """x · scale + shift. In inference it is batch norm with mean 0 and variance 1, which becomes a
    part of the convolution before it."""

    def __init__(self) -> None:
        self.handles: dict[int, Any] = {}

    def compute(
        self,
        run: Execution,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        add: Tensor | None = None,
        activation: str | None = None,
    ) -> Tensor | None:
        channels = x.shape[1] if len(x.shape) == 4 else 0
        of_channels = scale.size() == shift.size() == channels
        if training() or not of_channels or not x.dtype == scale.dtype == shift.dtype:
            return None
        handle = self.handles.get(channels)
        if handle is None:
            handle = singa_wrap.BatchNormHandle(0.1, x.data, _NO_EPSILON)
            self.handles[channels] = handle
        kind = wide_type(x.dtype).name
        mean = run.tensor(run.made(("zeros", channels, kind), lambda: np.zeros(channels, kind)))
        var = run.tensor(run.made(("ones", channels, kind), lambda: np.ones(channels, kind)))
        scale, shift = (autograd.reshape(t, (channels,)) for t in (scale, shift))
        return autograd.batchnorm_2d(handle, x, scale, shift, mean, var, add, activation=activation)


#: Added to a variance of 1 it leaves 1.
_NO_EPSILON = 1e-30

#: Operators that are an activation of batch norm.
_ACTIVATIONS = {row.op: name for name, row in OF_NORM.items()}


def _of_one(function: Callable[[Tensor], Tensor]) -> Any:
    return lambda run, x: function(x)


def _gelu(apart: Callable[..., Any]) -> Any:
    """Gelu, except of a number, to which constants of one axis add it."""
    return lambda run, x: autograd.gelu(x) if x.shape else apart(run, x)


def _shuffled(first: Node, last: Node, apart: Callable[..., Any]) -> Any:
    def fused(run: Execution, x: Tensor, groups: Any, shape: Any) -> Any:
        given = tuple(x.shape)
        wanted = resolved_shape(first, given, numbers(groups))
        channels = math.prod(wanted[1:3])
        if len(wanted) > 2 and given[:2] == (wanted[0], channels) and channels:
            turned = (wanted[0], wanted[2], wanted[1], *wanted[3:])
            if resolved_shape(last, turned, numbers(shape)) == given:
                return autograd.channel_shuffle(x, wanted[1])
        return apart(run, x, groups, shape)

    return fused


def _linear(apart: Callable[..., Any]) -> Any:
    def fused(run: Execution, a: Tensor, b: Tensor, bias: Tensor) -> Any:
        if len(a.shape) > 1 and len(b.shape) == 2 and tuple(bias.shape) == (b.shape[1],):
            return autograd.linear(a, b, bias)
        return apart(run, a, b, bias)

    return fused
