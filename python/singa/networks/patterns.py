"""Patterns of steps that singa computes in one operation, whatever front end the graph has.

    batch norm → an activation of `ops.normalization`
    batch norm → add → ReLU, batch norm → add
    mul → add of a parameter per channel                 batch norm, in inference
    permute → layer norm → permute                       layer norm over channels
    reshape → permute → reshape                          channel shuffle
    matmul → add of a vector                             linear
    sigmoid → mul, hard sigmoid → mul                    x·sigmoid(x), x·clip(x / 6 + 1/2, 0, 1)
    div or mul → erf → add → mul → mul                   x·Φ(x), in any order
    attention (`attention.py`)

Where a node may be a part of several patterns, the longer ones are tried first. Kinds of parts are

    add, mul, div, matmul, erf, sigmoid, less, where     of these operands
    hard_sigmoid                                         clip(x / 6 + 1/2, 0, 1)
    relu, relu6, silu, hardswish                         the activations of batch norm
    batch_norm                                           `compute` takes `add` and `activation`
    layer_norm                                           x, scale, bias; axis, epsilon
    softmax                                              axis
    permute                                              order, None where it is not known
    reshape                                              x, lengths; shape(given, lengths)

and what a front end has for patterns of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import autograd, singa_wrap
from ..dtypes import wide_type
from ..ops.normalization import ACTIVATIONS
from ..tape.grad_mode import training
from ..tensor import Tensor
from . import attention
from .fusion import Fusion, Part

if TYPE_CHECKING:
    from .network import CompiledNode, Execution

#: The function x·gate(x), by the kind of the gate.
GATES = {"sigmoid": "silu", "hard_sigmoid": "hardswish"}


class _Norm(NamedTuple):
    """Steps that normalise channels: batch norm, or a product and a sum of parameters.

    compute  the values of `inputs` normalised, as the function of a batch norm's reader; None where
             the steps have to be computed apart
    """

    steps: list[int]
    lead: CompiledNode
    inputs: Sequence[str]
    compute: Callable[..., Tensor | None]


class Patterns(Fusion):
    """The patterns of all front ends."""

    def rules(self) -> Sequence[Mapping[str, Callable[[int], bool]]]:
        return [
            {"matmul": lambda i: attention.fuse(self, i)},
            dict.fromkeys(("mul", *ACTIVATIONS), self._behind_norm),
            {
                "mul": lambda i: self._gated(i) or self._gelu(i),
                "add": lambda i: self._linear(i) or self._scaled(i) or self._added(i, []),
                "permute": self._channel_norm,
                "reshape": self._shuffle,
            },
        ]

    # Batch norm and an activation; batch norm, Add, Relu.

    def _behind_norm(self, i: int) -> bool:
        """Merges an activation, which ends with step i, with the norm before it."""
        x, steps, activation = self._activation(i)
        norm = self._norm(x, len(steps)) if activation else None
        if norm is not None:
            return self._merge_norm(norm, steps, activation)
        added = self.only(x, "add") if activation == "relu" else None
        return added is not None and self._added(added, [i])

    def _added(self, i: int, relu: Sequence[int]) -> bool:
        """Merges the sum i, and the step of the ReLU behind it, with the norm before them."""
        operands = self.operands(i)
        for name, other in (operands, operands[::-1]):
            norm = None if other == name or not self._is_computed(other) else self._norm(name)
            if norm is not None:
                return self._merge_norm(norm, [i, *relu], "relu" if relu else None, other)
        return False

    def _activation(self, i: int) -> tuple[str | float, list[int], str]:
        """What an activation of batch norm is applied to, its steps, and its name; "" if step i
        ends with something else."""
        if self.is_one(i, "mul"):
            x, at, name = self._gate(i)
            return x, [at, i], name
        return self.operands(i)[0], [i], self.part(i).kind

    def _is_computed(self, value: str | float) -> bool:
        return isinstance(value, str) and value not in self.constants

    def _norm(self, value: str | float, uses: int = 1) -> _Norm | None:
        """The steps that normalise a value which is read `uses` times."""
        at = self.only(value, "batch_norm", "add", uses=uses)
        if at is None or self.is_one(at, "add"):
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

    # Layer norm over channels, between permutations.

    def _channel_norm(self, i: int) -> bool:
        at = self.only(self.operands(i)[0], "layer_norm")
        first = None if at is None else self.only(self.operands(at)[0], "permute")
        order = self.part(i).options["order"] or []
        rank = len(order)
        if at is None or first is None or rank < 3:
            return False
        moved = self.part(first).options["order"] == [0, *range(2, rank), 1]
        back = order == [0, rank - 1, *range(1, rank - 1)]
        if not moved or not back or self.part(at).options["axis"] not in (-1, rank - 1):
            return False
        inputs = [*self.operands(first), *self.operands(at)[1:]]
        apart = self.apart([first, at, i], inputs)
        epsilon = self.part(at).options["epsilon"]

        def compute(run: Execution, *given: Any) -> Any:
            x, scale, bias = (*given, None, None)[:3]
            shape = tuple(x.shape[1:2])
            fits = scale is not None and tuple(scale.shape) == shape
            if fits and (bias is None or tuple(bias.shape) == shape):
                return autograd.channel_norm(x, scale, bias, epsilon)
            return apart(run, *given)

        return self.merge([first, at, i], self.step(at), inputs, compute)

    # Channel shuffle: reshape, permute, reshape.

    def _shuffle(self, i: int) -> bool:
        middle = self.only(self.operands(i)[0], "permute")
        first = None if middle is None else self.only(self.operands(middle)[0], "reshape")
        if middle is None or first is None:
            return False
        order = self.part(middle).options["order"] or []
        if len(order) < 3 or order != [0, 2, 1, *range(3, len(order))]:
            return False
        lead = self.step(first)
        x, *lengths = self.operands(first)
        if lead.reader is None or self.is_known(x):  # the host computes it
            return False
        inputs = [x, *lengths, *self.operands(i)[1:]]
        steps = [first, middle, i]
        compute = _shuffled(self.part(first), self.part(i), self.apart(steps, inputs))
        reader = replace(lead.reader, host=tuple(range(1, len(inputs))))
        lead = self.make(lead.node, reader, compute)
        return self.merge(steps, lead, inputs, compute)

    # A product and the sum of it and a parameter.

    def _linear(self, i: int) -> bool:
        operands = self.operands(i)
        for name, bias in (operands, operands[::-1]):
            product = self.only(name, "matmul")
            if product is not None and bias not in self.makers and self._is_computed(bias):
                lead = self.step(product)
                names = [*lead.node.inputs, bias]
                compute = _linear(self.apart([product, i], names))
                return self.merge([product, i], lead, names, compute)
        return False

    # A product and a sum of parameters with one number for each channel.

    def _scaled(self, i: int) -> bool:
        norm = self._scale_and_shift(i)
        return norm is not None and self._merge_norm(norm, [], None)

    def _scale_and_shift(self, i: int) -> _Norm | None:
        """The norm that ends with the sum i."""
        operands = self.operands(i)
        for name, shift in (operands, operands[::-1]):
            at = self.only(name, "mul")
            if at is None or not self._per_channel(i, shift):
                continue
            node = self.step(at).node
            factors = self.operands(at)
            for x, scale in (factors, factors[::-1]):
                if self._per_channel(at, scale) and len(node.shape_of(x) or ()) == 4:
                    reader = self.step(at).reader
                    reader = None if reader is None else replace(reader, either=False)
                    compute = _ScaleAndShift().compute
                    lead = self.make(replace(node, inputs=(x, scale)), reader, compute)
                    return _Norm([at, i], lead, [x, scale, shift], compute)
        return None

    def _per_channel(self, i: int, value: str | float) -> bool:
        """Whether an operand of step i is a parameter, or a constant, of shape (1, C, 1, 1) or
        (C, 1, 1)."""
        if not isinstance(value, str) or value in self.makers or value in self.graph.inputs:
            return False
        array = self.constants.get(value)
        shape = self.step(i).node.shape_of(value) if array is None else array.shape
        return shape is not None and shape[-2:] == (1, 1) and shape[:-3] in ((), (1,))

    # x·sigmoid(x) and x·hardsigmoid(x).

    def _gated(self, i: int) -> bool:
        x, at, name = self._gate(i)
        function = _of_one(getattr(autograd, name)) if name else None
        return function is not None and self.merge([at, i], self.step(at), [x], function)

    def _gate(self, i: int) -> tuple[str, int, str]:
        """x, the step of the gate, and the name of the function x·gate(x); "" if the product i is
        something else."""
        operands = self.operands(i)
        for x, gate in (operands, operands[::-1]):
            at = self.only(gate, *GATES)
            if at is not None and self.operands(at) == (x,):
                return x, at, GATES[self.part(at).kind]
        return "", -1, ""

    # x·(1 + erf(x / √2)) / 2

    def _factor(self, i: int, value: float) -> str | float | None:
        """The other operand of a step that combines a value with this number."""
        a, b = self.operands(i)
        for x, number in ((a, b), (b, a)):
            found = self.number(number)
            if found is not None and math.isclose(found, value, rel_tol=1e-6):
                return x
        return None

    def _gelu(self, i: int) -> bool:
        x, steps = self.gelu_at(i)
        if not steps:
            return False
        return self.merge(steps, self.step(steps[1]), [x], _gelu(self.apart(steps, [x])))

    def gelu_at(self, i: int) -> tuple[str, list[int]]:
        """x and the steps of x · (1 + erf(x / √2)) · 1/2, whichever two factors are multiplied
        first; no steps if the product i is something else."""
        operands = self.operands(i)
        for first, last in (operands, operands[::-1]):
            product = self.only(first, "mul")
            if product is None:
                continue
            for x, a, b in itertools.permutations((*self.operands(product), last)):
                if self.number(a) == 0.5 and (steps := self._normal(x, b)):
                    return str(x), [*steps, product, i]
        return "", []

    def _normal(self, x: str | float, value: str | float) -> list[int]:
        """The steps of 1 + erf(x / √2); none if the value is something else."""
        more = self.only(value, "add")
        inner = None if more is None else self._factor(more, 1.0)
        erf = None if inner is None else self.only(inner, "erf")
        scaled = None if erf is None else self.only(self.operands(erf)[0], "div", "mul")
        if more is None or erf is None or scaled is None or not isinstance(x, str):
            return []
        if self.is_one(scaled, "div"):
            ok = self.operands(scaled)[0] == x and self._factor(scaled, math.sqrt(2)) == x
        else:
            ok = self._factor(scaled, math.sqrt(0.5)) == x
        return [scaled, erf, more] if ok else []


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


def _of_one(function: Callable[[Tensor], Tensor]) -> Any:
    return lambda run, x: function(x)


def _gelu(apart: Callable[..., Any]) -> Any:
    """Gelu, except of a number, to which constants of one axis add it."""
    return lambda run, x: autograd.gelu(x) if x.shape else apart(run, x)


def _shuffled(first: Part, last: Part, apart: Callable[..., Any]) -> Any:
    count = len(first.operands) - 1

    def fused(run: Execution, x: Tensor, *lengths: Any) -> Any:
        given = tuple(x.shape)
        wanted = first.options["shape"](given, lengths[:count])
        channels = math.prod(wanted[1:3])
        if len(wanted) > 2 and given[:2] == (wanted[0], channels) and channels:
            turned = (wanted[0], wanted[2], wanted[1], *wanted[3:])
            if last.options["shape"](turned, lengths[count:]) == given:
                return autograd.channel_shuffle(x, wanted[1])
        return apart(run, x, *lengths)

    return fused


def _linear(apart: Callable[..., Any]) -> Any:
    def fused(run: Execution, a: Tensor, b: Tensor, bias: Tensor) -> Any:
        if len(a.shape) > 1 and len(b.shape) == 2 and tuple(bias.shape) == (b.shape[1],):
            return autograd.linear(a, b, bias)
        return apart(run, a, b, bias)

    return fused
