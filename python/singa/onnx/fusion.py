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

Only values that nothing else reads are left out. Identity, by which exporters give equal weights
several names, is left out everywhere.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import autograd, singa_wrap
from ..dtypes import wide_type
from ..tape.grad_mode import training
from ..tensor import Tensor
from . import attention_fusion, int8
from .functions import FUNCTIONS, GATES, OF_NORM
from .graph import Graph, Node, ValueType, subgraphs
from .values import argument, numbers, resolved_shape

if TYPE_CHECKING:
    from .network import CompiledNode, Execution


class Fusion:
    """Merges the steps of a graph. `make` creates a step; `constants` are known values."""

    def __init__(
        self,
        steps: Sequence[CompiledNode],
        graph: Graph,
        constants: Mapping[str, Any],
        make: Callable[..., CompiledNode],
    ) -> None:
        steps = _without_identities(steps, graph, make)
        self.steps: list[CompiledNode | None] = list(steps)
        self.graph, self.constants, self.make = graph, constants, make
        self.uses: Counter[str] = Counter(graph.outputs)
        self.makers: dict[str, int] = {}
        for i, step in enumerate(steps):
            self.uses.update(name for name in step.node.inputs if name)
            for inner in subgraphs(step.node):
                self.uses.update(inner.free_names())
            for name in step.node.outputs:
                self.makers[name] = i

    def run(self) -> list[CompiledNode]:
        """The merged steps."""
        int8.fuse(self)
        for i in range(len(self.steps)):  # before sums and products become other steps
            if self.is_one(i, "MatMul"):
                attention_fusion.fuse(self, i)
        for i in range(len(self.steps)):
            if self.is_one(i, "Relu"):
                self._relu(i)
            elif self.is_one(i, "Clip"):
                self._relu6(i)
            elif self.is_one(i, "Swish"):
                if self.step(i).node.attributes.get("alpha", 1.0) == 1:
                    self._behind_norm(i, "silu")
            elif self.is_one(i, "Mul"):
                self._sigmoid(i) or self._gelu(i)
            elif self.is_one(i, "Add"):
                self._linear(i) or self._scale_and_shift(i)
            elif self.is_one(i, "Conv"):
                self._padded(i)
            elif self.is_one(i, "Transpose"):
                self._channel_norm(i)
            elif self.is_one(i, "Reshape"):
                self._shuffle(i)
            elif self.is_one(i, *_ACTIVATIONS):
                self._behind_norm(i, _ACTIVATIONS[self.step(i).node.op])
        return [step for step in self.steps if step is not None]

    # What the rules ask.

    def is_one(self, i: int, *ops: str) -> bool:
        """Whether step i is of one of these operators."""
        step = self.steps[i]
        return step is not None and not step.node.domain and step.node.op in ops

    def only(self, name: str, *ops: str, uses: int = 1) -> int | None:
        """The step that makes a value which is read `uses` times, if it is of one of these
        operators."""
        i = self.makers.get(name)
        return i if i is not None and self.uses[name] == uses and self.is_one(i, *ops) else None

    def step(self, i: int) -> CompiledNode:
        """Step i, which has not been merged into a later one."""
        step = self.steps[i]
        assert step is not None
        return step

    def number(self, name: str) -> float | None:
        """A constant of one element."""
        array = self.constants.get(name)
        return None if array is None or array.size != 1 else float(array.reshape(-1)[0])

    def is_known(self, name: str) -> bool:
        """Whether a value depends on constants and shapes alone."""
        return name in self.constants or name in self._sources[0]

    def is_given(self, name: str) -> bool:
        """Whether a value depends on inputs, constants and shapes alone, and not on parameters."""
        return self.is_known(name) or name in self._sources[1]

    @functools.cached_property
    def _sources(self) -> tuple[set[str], set[str]]:
        """The values of steps that are known, and others that are given."""
        known, given = {"", *self.constants}, set(self.graph.inputs)
        for step in self.steps:
            if step is None:
                continue
            used = set(step.node.inputs)
            for inner in subgraphs(step.node):
                used |= inner.free_names()
            if step.of_shape or used <= known:
                known.update(step.node.outputs)
            elif used <= known | given:
                given.update(step.node.outputs)
        return known, given

    def merge(
        self,
        gone: Sequence[int],
        last: int,
        lead: CompiledNode,
        inputs: Sequence[str],
        compute: Any,
    ) -> bool:
        """Puts one step in the place of several."""
        end = self.step(last)
        types = dict(zip(lead.node.inputs, lead.node.input_types, strict=False))
        node = replace(
            lead.node,
            inputs=tuple(inputs),
            outputs=end.node.outputs,
            input_types=tuple(types.get(name, ValueType()) for name in inputs),
            used=(),
        )
        merged = self.make(node, lead.reader, compute)
        merged.on_host = None
        for i in gone:
            self.steps[i] = None
        self.steps[last] = merged
        return True

    # Batch norm and an activation; batch norm, Add, Relu.

    def _behind_norm(self, i: int, activation: str, gone: Sequence[int] = ()) -> bool:
        """Merges an activation, which ends with step i, with the batch norm before it."""
        first = self.step(gone[0] if gone else i)
        norm = self.only(first.node.inputs[0], "BatchNormalization", uses=1 + len(gone))
        if norm is None:
            return False
        lead = self.step(norm)
        compute = _with(lead.compute, activation=activation)
        return self.merge([norm, *gone], i, lead, lead.node.inputs, compute)

    def _relu6(self, i: int) -> bool:
        node = self.step(i).node
        limits = [node.attributes.get(name) for name in ("min", "max")]
        if len(node.inputs) == 3:
            limits = [self.number(name) for name in node.inputs[1:]]
        return limits == [0, 6] and self._behind_norm(i, "relu6")

    def _relu(self, i: int) -> bool:
        (x,) = self.step(i).node.inputs
        if self._behind_norm(i, "relu"):
            return True
        added = self.only(x, "Add")
        if added is None or self.step(added).node.version < 7:
            return False
        operands = self.step(added).node.inputs
        for name, other in (operands, operands[::-1]):
            norm = self.only(name, "BatchNormalization")
            if norm is not None and other != name and other not in self.constants:
                lead = self.step(norm)
                inputs = [*lead.node.inputs, other]
                compute = _with_add(lead.compute)
                return self.merge([norm, added], i, lead, inputs, compute)
        return False

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
        if first is None or rank < 3 or any(lead.node.used[1:]):
            return False
        before = self.step(first)
        moved = before.node.attributes.get("perm") == [0, *range(2, rank), 1]
        back = order == [0, rank - 1, *range(1, rank - 1)]
        if not moved or not back or lead.node.attributes.get("axis", -1) not in (-1, rank - 1):
            return False
        inputs = [before.node.inputs[0], *lead.node.inputs[1:]]
        compute = _over_channels(before.compute, lead, self.step(i).compute)
        return self.merge([first, at], i, lead, inputs, compute)

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
        if len(lead.node.inputs) != 2 or lead.reader is None:  # or it is a shuffle itself
            return False
        if self.is_known(lead.node.inputs[0]):  # the host computes it
            return False
        inputs = [*lead.node.inputs, end.node.inputs[1]]
        compute = _shuffled(lead, turn, end)
        lead = self.make(lead.node, replace(lead.reader, host=(1, 2)), compute)
        return self.merge([first, middle], i, lead, inputs, compute)

    # MatMul, Add.

    def _linear(self, i: int) -> bool:
        operands = self.step(i).node.inputs
        for name, bias in (operands, operands[::-1]):
            product = self.only(name, "MatMul")
            if product is not None and bias not in self.makers and bias not in self.constants:
                lead = self.step(product)
                return self.merge([product], i, lead, [*lead.node.inputs, bias], _linear)
        return False

    # Mul, Add of parameters with one number for each channel.

    def _scale_and_shift(self, i: int) -> bool:
        end = self.step(i)
        for name, shift in (end.node.inputs, end.node.inputs[::-1]):
            at = self.only(name, "Mul")
            if at is None or end.node.version < 7 or not self._per_channel(end.node, shift):
                continue
            lead = self.step(at)
            for x, scale in (lead.node.inputs, lead.node.inputs[::-1]):
                if self._per_channel(lead.node, scale) and len(lead.node.shape_of(x) or ()) == 4:
                    node = replace(lead.node, op="BatchNormalization", inputs=(x, scale, shift))
                    reader = None if lead.reader is None else replace(lead.reader, either=False)
                    compute = _ScaleAndShift(lead.compute, end.compute).compute
                    norm = self.make(node, reader, compute)
                    return self.merge([at], i, norm, node.inputs, compute)
        return False

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
        return self.merge([at], i, conv, node.inputs, conv.compute)

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

    def _sigmoid(self, i: int) -> bool:
        operands = self.step(i).node.inputs
        for x, gate in (operands, operands[::-1]):
            at = self.only(gate, *GATES)
            if at is None or self.step(at).node.inputs != (x,):
                continue
            lead = self.step(at)
            name, attributes = GATES[lead.node.op]
            given = FUNCTIONS[lead.node.op].attributes_of(lead.node)
            if any(abs(given[key] - value) > 1e-7 for key, value in attributes.items()):
                continue
            merged = self._behind_norm(i, name, [at])
            return merged or self.merge([at], i, lead, [x], _of_one(getattr(autograd, name)))
        return False

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
                lead = self.step(erf)
                gone = [scaled, erf, more, product]
                return self.merge(gone, i, lead, [x], _of_one(autograd.gelu))
        return False


def _without_identities(
    steps: Sequence[CompiledNode], graph: Graph, make: Callable[..., CompiledNode]
) -> list[CompiledNode]:
    """The steps without Identity, but where the graph or a subgraph needs its name."""
    needed = {*graph.outputs}
    for step in steps:
        for inner in subgraphs(step.node):
            needed |= inner.free_names()
    sources: dict[str, str] = {}
    rest = []
    for step in steps:
        node = step.node
        if not sources.keys().isdisjoint(node.inputs):
            node = replace(node, inputs=tuple([sources.get(name, name) for name in node.inputs]))
            step = make(node, step.reader, step.compute)
        if node.op == "Identity" and not node.domain and node.outputs[0] not in needed:
            sources[node.outputs[0]] = node.inputs[0]
        else:
            rest.append(step)
    return rest


class _ScaleAndShift:
    """x · scale + shift. In inference it is batch norm with mean 0 and variance 1, which becomes a
    part of the convolution before it."""

    def __init__(self, product: Callable[..., Any], total: Callable[..., Any]) -> None:
        self.product, self.total = product, total
        self.handles: dict[int, Any] = {}

    def compute(
        self,
        run: Execution,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        add: Tensor | None = None,
        activation: str | None = None,
    ) -> Tensor:
        channels = x.shape[1] if len(x.shape) == 4 else 0
        of_channels = scale.size() == shift.size() == channels
        if training() or not of_channels or not x.dtype == scale.dtype == shift.dtype:
            y = self.total(run, self.product(run, x, scale), shift)
            y = y if add is None else autograd.add(y, add)
            return y if activation is None else getattr(autograd, activation)(y)
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


def _over_channels(before: Any, norm: CompiledNode, after: Any) -> Any:
    epsilon = norm.node.attributes.get("epsilon", 1e-5)

    def fused(run: Any, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
        shape = tuple(x.shape[1:2])
        if tuple(scale.shape) == shape and (bias is None or tuple(bias.shape) == shape):
            return autograd.channel_norm(x, scale, bias, epsilon)
        return after(run, norm.compute(run, before(run, x), scale, bias))

    return fused


def _shuffled(apart: CompiledNode, turn: CompiledNode, together: CompiledNode) -> Any:
    def fused(run: Any, x: Tensor, groups: Any, shape: Any) -> Tensor:
        given = tuple(x.shape)
        wanted = resolved_shape(apart.node, given, numbers(groups))
        channels = math.prod(wanted[1:3])
        if len(wanted) > 2 and given[:2] == (wanted[0], channels) and channels:
            turned = (wanted[0], wanted[2], wanted[1], *wanted[3:])
            if resolved_shape(together.node, turned, numbers(shape)) == given:
                return autograd.channel_shuffle(x, wanted[1])
        return together.compute(run, turn.compute(run, apart.compute(run, x, groups)), shape)

    return fused


def _with(compute: Any, **more: Any) -> Any:
    return lambda run, *inputs: compute(run, *inputs, **more)


def _with_add(compute: Any) -> Any:
    def fused(run: Any, *inputs: Any) -> Tensor:
        *norm, add = inputs
        x = norm[0]
        if add.shape == x.shape and add.dtype == x.dtype and len(x.shape) <= 4:
            return compute(run, *norm, add=add, activation="relu")
        return autograd.relu(autograd.add(compute(run, *norm), add))

    return fused


def _linear(run: Any, a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    if len(a.shape) > 1 and len(b.shape) == 2 and tuple(bias.shape) == (b.shape[1],):
        return autograd.linear(a, b, bias)
    return autograd.add(autograd.matmul(a, b), bias)
