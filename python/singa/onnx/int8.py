"""Quantized layers as operations on integers.

    DequantizeLinear → Conv → Relu or Clip → QuantizeLinear
    DequantizeLinear → Gemm, or MatMul → Add of a vector → Relu, Clip or Gelu → QuantizeLinear
    DequantizeLinear → Add → Relu or Clip → QuantizeLinear
    DequantizeLinear → MaxPool, Reshape, Transpose ... → QuantizeLinear, with the same scale

What follows a layer may be missing, also QuantizeLinear; so may ReLU and Clip behind a sum. A
layer becomes one product of bytes where
the processor multiplies them (`singa_wrap.ComputesInt8`): its weights stay in int8, its sums are
int32, and no value is written as floats. A sum becomes one operation on any CPU. In training, and
on other devices, the nodes are computed one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

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

    from ..networks.fusion import Fusion, Part
    from ..networks.network import CompiledNode, Execution
    from ..networks.patterns import Patterns

    Array = NDArray[Any]

_BYTES = frozenset({"int8", "uint8"})
#: Steps whose results are elements of the first input.
_CHOOSING = ("flatten", "max_pool", "permute", "reshape", "squeeze", "unsqueeze")


def fuse(fusion: Patterns) -> None:
    """Merges the quantized layers and sums of a graph."""
    for i in range(len(fusion.steps)):
        if not fusion.is_one(i, "quantize"):
            continue
        to = _parameters(fusion, i)
        name = fusion.step(i).node.inputs[0]
        if to is None or _move(fusion, name, to):
            continue
        name, behind, function = _function(fusion, name, to)
        uses = 2 if len(behind) > 1 else 1  # GELU's own steps read it twice
        lead = _lead(fusion, name, uses, "conv", "gemm", "matmul", "add")
        if lead is not None and function is not None:
            _merge(fusion, lead, [*lead.steps, *behind, i], to, function)
    for kinds in (("add",), ("conv", "gemm", "matmul")):
        for i in range(len(fusion.steps)):
            if fusion.is_one(i, *kinds):
                lead = _lead_of(fusion, i)
                _merge(fusion, lead, lead.steps, None)


class _Lead(NamedTuple):
    """A layer or a sum: its first step, all its steps, and the names of what they read."""

    at: int
    steps: Sequence[int]
    inputs: Sequence[str]


def _lead(fusion: Fusion, name: str, uses: int, *kinds: str) -> _Lead | None:
    """The layer or sum that makes a value which is read `uses` times."""
    i = fusion.only(name, *kinds, uses=uses)
    return None if i is None else _lead_of(fusion, i)


def _lead_of(fusion: Fusion, i: int) -> _Lead:
    """The layer or sum that ends with step i. The sum of a product and a vector is a layer."""
    node = fusion.step(i).node
    if fusion.is_one(i, "add"):
        for product, bias in (node.inputs, node.inputs[::-1]):
            at = fusion.only(product, "matmul")
            if at is not None and _is_vector(fusion, node, bias, 2):
                return _Lead(at, [at, i], [*fusion.step(at).node.inputs, bias])
    return _Lead(i, [i], node.inputs)


def _function(fusion: Patterns, name: str, to: _Parameters) -> tuple[str, list[int], str | None]:
    """What stands between a layer and the step that quantizes the value `name`: the layer's result,
    the steps, and their function: "relu", "gelu", "" for none; None if it cannot be merged."""
    at = fusion.only(name, "relu", "relu6", "clip", "gelu", "mul")
    if at is None:
        return name, [], ""
    if fusion.is_one(at, "mul"):
        x, steps = fusion.gelu_at(at)
        return (x, steps, "gelu") if steps else (name, [], None)
    x = fusion.step(at).node.inputs[0]
    return x, [at], "gelu" if fusion.is_one(at, "gelu") else _limit(fusion.part(at), to)


def _limit(part: Part, to: _Parameters) -> str | None:
    """What is left of ReLU or Clip before numbers are quantized, whose range often limits them as
    well: "" or "relu"; None if it is no ReLU and the range is wider."""
    low, high = part.options.get("limits", (0.0, 6.0 if part.kind == "relu6" else math.inf))
    least, most = np.array([low, high], np.float32) / np.float32(to.scale)
    lowest, highest = np.iinfo(to.kind).min - to.zero, np.iinfo(to.kind).max - to.zero
    if np.rint(most) < highest:
        return None
    if np.rint(least) <= lowest:
        return ""
    return "relu" if low == 0 else None


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


def _merge(
    fusion: Fusion,
    lead: _Lead,
    chain: Sequence[int],
    to: _Parameters | None,
    function: str = "",
) -> None:
    """Merges a layer or sum with the other steps of its chain, where they fit."""
    first = fusion.step(lead.at)
    make = _sum if first.node.op == "Add" else _product
    made = make(fusion, first.node, lead.inputs, to, function)
    if made is not None:
        _replace(fusion, chain, first, lead.inputs, *made)


def _replace(
    fusion: Fusion,
    chain: Sequence[int],
    lead: CompiledNode,
    inputs: Sequence[str],
    read: Sequence[int],
    compute: _Chain,
) -> None:
    """Puts `compute` in the place of the steps of a chain, and of those that dequantize its
    inputs, `read`, where nothing else needs these."""
    compute.set_steps([fusion.step(i) for i in (*read, *sorted(chain))], fusion.constants)
    for name in inputs:
        i = _dequantized(fusion, name)
        if i is not None and i in read:
            fusion.uses[name] -= 1
            if not fusion.uses[name]:
                fusion.steps[i] = None
    fusion.merge(chain, lead, compute.inputs, compute, f"Quantized{lead.node.op}")


def _move(fusion: Fusion, name: str, to: _Parameters) -> bool:
    """Merges a step that chooses among the elements of x, where x and the result `name` are
    quantized alike."""
    at = fusion.only(name, *_CHOOSING)
    if at is None:
        return False
    lead = fusion.step(at)
    x = _integers(fusion, lead.node.inputs[0])
    if x is None or x.value in fusion.constants:
        return False
    if (x.scale, x.zero, x.kind) != (to.scale, to.zero, to.kind):
        return False
    _replace(fusion, [at, to.step], lead, lead.node.inputs[:1], [x.step], _Moved(x, lead.node))
    return True


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


class _Moved(_Chain):
    """A maximum, or a step that moves elements, of integers."""

    def __init__(self, x: _Parameters, node: Node) -> None:
        self.x, self.node = x, node

    def together(self, run: Execution, values: Mapping[str, Tensor]) -> Tensor | None:
        x = values[self.x.value]
        if x.dtype.name != self.x.kind:
            return None
        step = [step for step in self.steps if step.node is self.node]
        made: Tensor = self.apart(run, step, {**values, self.node.inputs[0]: x})
        return made


# Convolutions and matrix products.


def _product(
    fusion: Fusion, node: Node, inputs: Sequence[str], to: _Parameters | None, function: str
) -> tuple[list[int], _Chain] | None:
    """The steps that dequantize what a layer reads, and the function that computes it."""
    x, at = _integers(fusion, node.inputs[0]), _dequantized(fusion, node.inputs[1])
    if x is None or at is None or x.value in fusion.constants:
        return None
    if node.op == "Conv" and function == "gelu":
        return None
    weight, bias = fusion.step(at), inputs[2] if len(inputs) > 2 else ""
    read = [x.step, at]
    if bias and (i := _dequantized(fusion, bias)) is not None:
        read.append(i)
    elif bias:
        # That of MatMul comes from the step behind it; _lead_of has looked at it.
        is_vector = node.op == "MatMul" or _is_vector(fusion, node, bias)
        if bias in fusion.makers or not is_vector:
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
    return list(dict.fromkeys(read)), _Product(node, x, weight.node, W, bias, to, function)


def _is_vector(fusion: Fusion, node: Node, name: str, least: int = 0) -> bool:
    """Whether an input of a node has one axis, with at least so many elements."""
    array = fusion.constants.get(name)
    shape = node.shape_of(name) if array is None else array.shape
    return (
        shape is not None
        and len(shape) == 1
        and (not least or (isinstance(shape[0], int) and shape[0] >= least))
    )


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
        function: str,
    ) -> None:
        self.node, self.x, self.weight, self.W, self.bias = node, x, weight, W, bias
        self.to, self.function = to, function
        self.handle: Any = handles_of(node) if node.op == "Conv" else None

    def together(self, run: Execution, values: Mapping[str, Tensor]) -> Tensor | None:
        x = values[self.x.value]
        if x.dtype.name != self.x.kind or not singa_wrap.ComputesInt8(x.device):
            return None
        outputs = self.W.shape[0 if self.handle else 1]
        gelu = self.function == "gelu"  # of the sums as they are; all else commutes with scales
        to_scale = self.to.scale if self.to and not gelu else 1.0
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
            y = singa_wrap.QuantizedConv(*arguments, handle, kind, self.function == "relu")
        else:
            y_scale = (
                self._number(run, "scale", self.to.scale, "float32") if gelu and self.to else None
            )
            relu = self.function == "relu"
            y = singa_wrap.QuantizedMatMul(*arguments, kind, relu, gelu, y_scale)
        return Tensor(data=y, requires_grad=False)

    def _zero(self, run: Execution, value: _Parameters | None) -> Any:
        if value is None or not value.zero:
            return None
        return self._number(run, value.value, value.zero, "int32")

    def _number(self, run: Execution, name: str, number: float, kind: str) -> Any:
        key = (self.node.name, name, kind)
        return run.tensor(run.made(key, lambda: np.array([number], kind))).data

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
    fusion: Fusion, node: Node, inputs: Sequence[str], to: _Parameters | None, function: str
) -> tuple[list[int], _Chain] | None:
    """The steps that dequantize what is added, and the function that computes the sum."""
    terms = [_integers(fusion, name) for name in inputs]
    read = list(dict.fromkeys(term.step for term in terms if term is not None))
    if to is None or not read or len(inputs) != 2 or function == "gelu":
        return None
    return read, _Sum(node, terms, to, function == "relu")


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
