"""Quantized layers as operations on integers.

    DequantizeLinear → Conv, Gemm or MatMul → Relu → QuantizeLinear
    DequantizeLinear → Add → Relu → QuantizeLinear

ReLU may be missing, behind a layer also QuantizeLinear. A layer becomes one product of bytes where
the processor multiplies them (`singa_wrap.ComputesInt8`): its weights stay in int8, its sums are
int32, and no value is written as floats. A sum becomes one operation on any CPU. In training, and
on other devices, the nodes are computed one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import autograd, singa_wrap, tensor
from ..dtypes import DType
from ..networks.graph import Node
from ..tape.grad_mode import training
from ..tensor import Tensor
from .readers.convolution import handles_of
from .readers.quantization import is_on_cpu, quantized_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..networks.fusion import Fusion
    from ..networks.network import CompiledNode, Execution

    Array = NDArray[Any]

_BYTES = frozenset({"int8", "uint8"})


def fuse(fusion: Fusion) -> None:
    """Merges the quantized layers and sums of a graph."""
    for i in range(len(fusion.steps)):
        if fusion.is_one(i, "quantize"):
            to = _parameters(fusion, i)
            name = fusion.step(i).node.inputs[0]
            relu = fusion.only(name, "relu")
            if relu is not None:
                name = fusion.step(relu).node.inputs[0]
            layer = fusion.only(name, "conv", "gemm", "matmul", "add")
            if to is not None and layer is not None:
                _merge(fusion, layer, [layer, *([] if relu is None else [relu]), i], to)
    for i in range(len(fusion.steps)):
        if fusion.is_one(i, "conv", "gemm", "matmul"):
            _merge(fusion, i, [i], None)


@dataclass(frozen=True)
class _Parameters:
    """How a value is quantized: `value` is the name of the integers, `step` makes or reads them."""

    value: str
    scale: float
    zero: int
    kind: str
    step: int


def _parameters(fusion: Fusion, i: int) -> _Parameters | None:
    """Those of a QuantizeLinear or DequantizeLinear with one constant scale for all elements."""
    node = fusion.step(i).node
    makes = node.op == "QuantizeLinear"
    scale = fusion.constants.get(node.inputs[1])
    zero = fusion.constants.get(node.inputs[2]) if node.has(2) else None
    if scale is None or scale.size != 1 or scale.dtype != np.float32 or scale.item() <= 0:
        return None
    if node.has(2) and (zero is None or zero.size != 1):
        return None
    value = (node.output_types if makes else node.input_types)[:1]
    kind = zero.dtype.name if zero is not None else value[0].type if value else None
    if kind not in _BYTES:
        return None
    name = node.outputs[0] if makes else node.inputs[0]
    return _Parameters(name, scale.item(), 0 if zero is None else int(zero.item()), kind, i)


def _dequantized(fusion: Fusion, name: str) -> int | None:
    """The DequantizeLinear that makes a value, which others may read, too."""
    i = fusion.makers.get(name)
    return i if i is not None and fusion.is_one(i, "dequantize") else None


def _integers(fusion: Fusion, name: str) -> _Parameters | None:
    """How a value is quantized that a DequantizeLinear makes."""
    i = _dequantized(fusion, name)
    return None if i is None else _parameters(fusion, i)


def _merge(fusion: Fusion, at: int, chain: Sequence[int], to: _Parameters | None) -> None:
    """Merges the layer or sum `at` with the other steps of its chain, where they fit."""
    lead = fusion.step(at)
    relu = any(fusion.is_one(i, "relu") for i in chain)
    make = _sum if lead.node.op == "Add" else _product
    made = make(fusion, lead.node, to, relu)
    if made is None:
        return
    read, compute = made
    steps = [fusion.step(i) for i in (*read, *chain)]
    compute.set_steps(steps, fusion.constants)
    for name in lead.node.inputs:
        i = _dequantized(fusion, name)
        if i in read:
            fusion.uses[name] -= 1
            if not fusion.uses[name]:
                fusion.steps[i] = None
    fusion.merge(chain, lead, compute.inputs, compute, f"Quantized{lead.node.op}")


class _Chain:
    """Steps that are computed together.

    inputs  names of the values that they read and that are no constants
    """

    steps: list[CompiledNode]
    constants: dict[str, Array]
    inputs: tuple[str, ...]

    def set_steps(self, steps: list[CompiledNode], constants: Mapping[str, Array]) -> None:
        """Sets the steps, in their order, of which the last one makes the result."""
        made = {name for step in steps for name in step.node.outputs}
        read = [name for step in steps for name in step.node.inputs if name and name not in made]
        self.steps = steps
        self.constants = {name: constants[name] for name in read if name in constants}
        self.inputs = tuple(dict.fromkeys(name for name in read if name not in constants))

    def __call__(self, run: Execution, *given: Any) -> Any:
        values = dict(zip(self.inputs, given, strict=True))
        result = None if training() else self.together(run, values)
        return self.apart(run, self.steps, values) if result is None else result

    def together(self, run: Execution, values: Mapping[str, Tensor]) -> Tensor | None:
        """The result for these inputs; None where the steps have to be computed apart."""
        raise NotImplementedError

    def apart(
        self, run: Execution, steps: Sequence[CompiledNode], values: Mapping[str, Any]
    ) -> Any:
        """The result of the last step, one after the other."""
        environment: dict[str, Any] = {**self.constants, **values}
        result = None
        for step in steps:
            arguments = [environment[name] if name else None for name in step.node.inputs]
            (result,) = step.run(run, arguments)
            environment[step.node.outputs[0]] = result
        return result


# Convolutions and matrix products.


def _product(
    fusion: Fusion, node: Node, to: _Parameters | None, relu: bool
) -> tuple[list[int], _Chain] | None:
    """The steps that dequantize what a layer reads, and the function that computes it."""
    x, at = _integers(fusion, node.inputs[0]), _dequantized(fusion, node.inputs[1])
    if x is None or at is None or x.value in fusion.constants:
        return None
    weight, bias = fusion.step(at), node.inputs[2] if node.has(2) else ""
    read = [x.step, at]
    if bias and (i := _dequantized(fusion, bias)) is not None:
        read.append(i)
    elif bias and (bias in fusion.makers or not _is_vector(fusion, node, bias)):
        return None
    axis = 0 if node.op == "Conv" else 1
    plain = [node.attributes.get(name, 1) for name in ("alpha", "beta")] == [1, 1]
    if node.op == "Gemm":
        axis = 0 if node.attributes.get("transB") else 1
        if not plain or node.attributes.get("transA"):
            return None
    W = _weight(fusion, weight.node, axis)
    if W is None or (node.op == "MatMul" and W.ndim != 2):
        return None
    if node.op == "Gemm" and not axis:
        W = np.ascontiguousarray(W.T)
    return list(dict.fromkeys(read)), _Product(node, x, weight.node, W, bias, to, relu)


def _is_vector(fusion: Fusion, node: Node, name: str) -> bool:
    """Whether a value has one axis."""
    array = fusion.constants.get(name)
    shape = node.shape_of(name) if array is None else array.shape
    return shape is not None and len(shape) == 1


def _weight(fusion: Fusion, node: Node, axis: int) -> Array | None:
    """A constant weight as int8 with zero points of 0, if it is quantized so, or may be: with one
    scale, or one for each of its outputs, which are along `axis`."""
    W, scale = fusion.constants.get(node.inputs[0]), fusion.constants.get(node.inputs[1])
    shape = node.shape_of(node.inputs[1]) if scale is None else scale.shape
    if W is None or W.dtype.name not in _BYTES or W.ndim < 2 or shape is None:
        return None
    per_output = len(shape) == 1 and shape[0] == W.shape[axis] and shape[0] != 1
    own = node.attributes.get("axis", 1)
    if per_output and (own + W.ndim if own < 0 else own) != axis:
        return None
    if not per_output and any(n != 1 for n in shape):
        return None
    zero = fusion.constants.get(node.inputs[2]) if node.has(2) else np.zeros((), W.dtype)
    if zero is None or zero.shape not in ((), (1,), W.shape[axis : axis + 1]):
        return None
    if W.dtype == np.int8 and not zero.any():
        return W
    along = zero.reshape([-1 if i == axis and zero.size > 1 else 1 for i in range(W.ndim)])
    moved = W.astype(np.int16) - along.astype(np.int16)
    fits = moved.min(initial=0) >= -128 and moved.max(initial=0) <= 127
    return moved.astype(np.int8) if fits else None


class _Product(_Chain):
    """A layer on integers."""

    def __init__(
        self,
        node: Node,
        x: _Parameters,
        weight: Node,
        W: Array,
        bias: str,
        to: _Parameters | None,
        relu: bool,
    ) -> None:
        self.node, self.x, self.weight, self.W, self.bias = node, x, weight, W, bias
        self.to, self.relu = to, relu
        self.handle: Any = handles_of(node) if node.op == "Conv" else None

    def together(self, run: Execution, values: Mapping[str, Tensor]) -> Tensor | None:
        x = values[self.x.value]
        if x.dtype.name != self.x.kind or not singa_wrap.ComputesInt8(x.device):
            return None
        outputs = self.W.shape[0 if self.handle else 1]
        to_scale = self.to.scale if self.to else 1.0
        scale = self._vector(run, values, self.weight.inputs[1], self.x.scale / to_scale, outputs)
        bias = None
        if self.bias:
            made = [s for s in self.steps if s.node.outputs[0] == self.bias]
            if made:
                values = {**values, self.bias: self.apart(run, made, values)}
            bias = self._vector(run, values, self.bias, 1 / to_scale, outputs)
        if scale is None or (self.bias and bias is None):
            return None
        run.network.constant_ids.add(id(self.W))  # also where it is not the file's own array
        W = run.tensor(self.W)
        kind = DType[self.to.kind] if self.to else tensor.float32
        arguments = [
            *(x.data, W.data, self._zero(run, self.x), scale.data),
            *(None if bias is None else bias.data, self._zero(run, self.to)),
        ]
        if self.handle:
            handle = self.handle(x, W, False)
            y = singa_wrap.QuantizedConv(*arguments, handle, kind, self.relu)
        else:
            y = singa_wrap.QuantizedMatMul(*arguments, kind, self.relu)
        return Tensor(data=y, requires_grad=False)

    def _zero(self, run: Execution, value: _Parameters | None) -> Any:
        if value is None or not value.zero:
            return None
        key = (self.node.name, value.value, "zero")
        return run.tensor(run.made(key, lambda: np.array([value.zero], np.int32))).data

    def _vector(
        self, run: Execution, values: Mapping[str, Tensor], name: str, factor: float, outputs: int
    ) -> Tensor | None:
        """A value times `factor`, with one number for each output; None if it has others."""
        array = self.constants.get(name)
        if array is not None and name not in values:
            if array.size not in (1, outputs) or array.dtype != np.float32:
                return None
            return run.tensor(
                run.made(
                    (self.node.name, name, factor),
                    lambda: np.full(outputs, array.reshape(-1) * np.float32(factor)),
                )
            )
        t = values[name]
        if t.dtype != tensor.float32 or tuple(t.shape) != (outputs,):
            return None
        return autograd.mul(t, run.number(factor, t))


# Sums.


def _sum(
    fusion: Fusion, node: Node, to: _Parameters | None, relu: bool
) -> tuple[list[int], _Chain] | None:
    """The steps that dequantize what is added, and the function that computes the sum."""
    terms = [_integers(fusion, name) for name in node.inputs]
    read = list(dict.fromkeys(term.step for term in terms if term is not None))
    if to is None or not read or len(node.inputs) != 2:
        return None
    return read, _Sum(node, terms, to, relu)


class _Sum(_Chain):
    """The sum of two values, at least one of them of integers."""

    def __init__(
        self, node: Node, terms: Sequence[_Parameters | None], to: _Parameters, relu: bool
    ) -> None:
        self.names = [
            name if term is None else term.value
            for name, term in zip(node.inputs, terms, strict=True)
        ]
        self.node, self.terms, self.to, self.relu = node, terms, to, relu

    def together(self, run: Execution, values: Mapping[str, Tensor]) -> Tensor | None:
        terms = [x for name in self.names if (x := values.get(name)) is not None]
        if len(terms) < len(self.names) or not all(map(is_on_cpu, terms)):
            return None
        if terms[0].shape != terms[1].shape:
            return None
        kinds = ["float32" if term is None else term.kind for term in self.terms]
        if [x.dtype.name for x in terms] != kinds:
            return None

        def number(value: Any, kind: str) -> Any:
            if not value:
                return None
            key = (self.node.name, kind, value)
            return run.tensor(run.made(key, lambda: np.array([value], kind)))

        return quantized_sum(
            terms,
            [None if term is None else number(term.scale, "float32") for term in self.terms],
            [None if term is None else number(term.zero, "int32") for term in self.terms],
            number(self.to.scale, "float32"),
            number(self.to.zero, "int32"),
            self.to.kind,
            self.relu,
        )
