"""What writers of operators work with: `Call`, one operator on the tape, and `Writer`, which
collects the nodes, constants and initializers of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import BY_VALUE
from ..tensor import Tensor
from .element_types import NUMBERS, numpy_type
from .errors import ExportError
from .tensors import as_array

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

    from .trace import Application

#: A length: a number, or (factor, names of axes), their product.
Length = int | tuple[int, tuple[str, ...]]


class Writer:
    """Collects the nodes and initializers of a file."""

    def __init__(self, opset: int, training: bool, lengths: Mapping[str, tuple[int, int]]) -> None:
        self.opset, self.training, self.lengths = opset, training, lengths
        self.nodes: list[NodeProto] = []
        self.constants: list[NodeProto] = []
        self.infos: dict[str, Any] = {}  # types and shapes of operators' outputs
        self.initializers: dict[str, TensorProto] = {}
        self.domains: dict[str, int] = {}  # versions of operators that are not ONNX's own
        self.layer = ""
        self.sources: dict[str, tuple[str, int]] = {}  # (input, axis) of each dynamic axis
        # By id of a raw tensor, and by those of a tensor and its raw one: dropout in inference
        # returns the raw tensor that it got.
        self._names: dict[int | tuple[int, int], str] = {}
        self._alive: list[Any] = []
        self._taken: set[str] = set()
        self._constants: dict[Any, str] = {}
        self._blocks: set[int] = set()  # memory of values that depend on the inputs

    # Names.

    def fresh(self, hint: str) -> str:
        """A name that no other value or node has."""
        name, i = hint, 0
        while name in self._taken:
            i += 1
            name = f"{hint}_{i}"
        self._taken.add(name)
        return name

    def take(self, names: Sequence[str]) -> None:
        """Reserves names of inputs, outputs and parameters."""
        self._taken.update(names)

    def bind(self, t: Tensor, raw: Any, name: str) -> None:
        """Notes the name of a tensor's value, which was `raw`."""
        self._alive += [t, raw]
        self._names[id(raw)] = self._names[id(t), id(raw)] = name

    def bind_raw(self, raw: Any, name: str) -> None:
        """Notes the name of a raw tensor's value."""
        self._alive.append(raw)
        self._names[id(raw)] = name

    def depends(self, raw: Any) -> None:
        """Notes that the memory of a raw tensor holds a value that depends on the inputs."""
        self._alive.append(raw)
        self._blocks.add(raw.block_id())

    def known(self, t: Any, raw: Any = None) -> str | None:
        """The name of a tensor's value, or a raw tensor's, if it has one."""
        if isinstance(t, Tensor):
            raw = t.data if raw is None else raw
            name = self._names.get((id(t), id(raw)))
            return name if name is not None else self._names.get(id(raw))
        return self._names.get(id(t))

    def value(self, t: Any, what: str = "a tensor") -> str:
        """The name of a value: of a computed one, a parameter, or a new constant."""
        name = self.known(t)
        if name is not None:
            return name
        if isinstance(t, Tensor | _c.Tensor):
            return self.kept([t.data if isinstance(t, Tensor) else t], what)
        return self.constant(np.asarray(t))

    def kept(self, raws: Sequence[Any], what: str) -> str:
        """The name of a constant from its values in all traces.

        One that is the same number everywhere may change its shape with a dynamic axis.
        """
        first = raws[0]
        if first.block_id() in self._blocks:
            raise ExportError(
                f"[onnx.save] {what} of shape {first.shape()} was made of a computed tensor "
                "without an operator, so the file would keep its present value"
            )
        arrays = [as_array(Tensor(data=raw)) for raw in raws]
        array = arrays[0]
        if all(np.array_equal(array, a, equal_nan=array.dtype.kind == "f") for a in arrays[1:]):
            return self.constant(array)
        values = {a.reshape(-1)[0].item() for a in arrays if a.size}
        if len(values) != 1 or any((a != a.reshape(-1)[0]).any() for a in arrays if a.size):
            raise ExportError(
                f"[onnx.save] {what} is a constant of shape {array.shape} whose values change with "
                "a dynamic axis"
            )
        number = self.constant(np.array(values.pop(), array.dtype))
        return self.node("Expand", [number, self.integers([a.shape for a in arrays], what)])[0]

    def constant(self, array: Any, hint: str = "constant") -> str:
        """A Constant node with these elements. Equal ones are shared.

        Initializers are for parameters: who loads the file cannot tell them apart.
        """
        from onnx import helper

        array = np.asarray(array)
        key = (array.dtype.name, array.shape, array.tobytes())
        if array.nbytes <= 4096 and key in self._constants:
            return self._constants[key]
        name = self.fresh(hint)
        value = _proto(array, name)
        self.constants.append(helper.make_node("Constant", [], [name], name, value=value))
        if array.nbytes <= 4096:
            self._constants[key] = name
        return name

    def add_initializer(self, name: str, array: Any) -> None:
        """Adds an initializer with a name of its own."""
        self.initializers[name] = _proto(array, name)

    # Nodes.

    def node(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str] | int = 1, **attributes: Any
    ) -> list[str]:
        """Adds a node and returns the names of its outputs, which are made up for a number."""
        from onnx import helper

        prefix = f"{self.layer}/" if self.layer else ""
        title = self.fresh(f"{prefix}{op}")
        if isinstance(outputs, int):
            outputs = [self.fresh(f"{title}_output") for _ in range(outputs)]
        given = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op, list(inputs), list(outputs), title, **given))
        return list(outputs)

    def add(self, nodes: Sequence[NodeProto]) -> None:
        """Adds nodes whose names are taken already."""
        for node in nodes:
            (self.constants if node.op_type == "Constant" else self.nodes).append(node)

    def require(self, domain: str, version: int) -> None:
        """Notes that the file has operators of another domain."""
        if self.domains.setdefault(domain, version) != version:
            raise ExportError(
                f"[onnx.save] two imported graphs have versions {self.domains[domain]} and "
                f"{version} of domain {domain!r}"
            )

    # Lengths that follow dynamic axes.

    def length(self, values: Sequence[int], what: str) -> Length:
        """A length as a number, or as a product of dynamic axes, from its values in all traces."""
        base = values[0]
        if all(v == base for v in values):
            return int(base)
        names, factor, rest = [], 1, base
        for value, (name, (n, m)) in zip(values[1:], self.lengths.items(), strict=True):
            if value == base:
                continue
            if value * n != base * m or not n or rest % n:
                raise ExportError(
                    f"[onnx.save] {what} is {base}, and {value} where axis {name!r} has {m} and "
                    f"not {n}: it does not follow the axis in a simple way"
                )
            names.append(name)
            rest //= n
        factor = rest
        return factor, tuple(names)

    def integers(self, rows: Sequence[Sequence[int]], what: str) -> str:
        """A vector of int64 from its values in all traces."""
        if len({len(row) for row in rows}) != 1:
            raise ExportError(f"[onnx.save] {what} changes its number of elements")
        lengths = [self.length(column, what) for column in zip(*rows, strict=True)]
        if all(isinstance(n, int) for n in lengths):
            return self.constant(np.array(lengths, np.int64))
        parts = [self._length_value(n) for n in lengths]
        return parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)[0]

    def _length_value(self, length: Length) -> str:
        if isinstance(length, int):
            return self.constant(np.array([length], np.int64))
        factor, names = length
        result = None if factor == 1 else self.constant(np.array([factor], np.int64))
        for name in names:
            source, axis = self.sources[name]
            shape = self.node("Shape", [source])[0]
            index = self.constant(np.array([axis], np.int64))
            part = self.node("Gather", [shape, index], axis=0)[0]
            result = part if result is None else self.node("Mul", [result, part])[0]
        assert result is not None
        return result

    def new_shape(self, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> str:
        """The second input of a Reshape from shapes `before` to `after`, in all traces."""
        result = []
        for i, column in enumerate(zip(*after, strict=True)):
            if len(set(column)) == 1:
                result.append(column[0])
            elif i < len(before[0]) and column == tuple(shape[i] for shape in before):
                result.append(0)
            else:
                result.append(-1)
        literal_zero = any(n == 0 for shape in after for n in shape)
        if result.count(-1) <= 1 and not literal_zero:
            return self.constant(np.array(result, np.int64))
        return self.integers(after, "a shape")


def _proto(array: Any, name: str) -> TensorProto:
    from onnx import numpy_helper

    contiguous = np.ascontiguousarray(array).reshape(array.shape)  # which made () to (1,)
    return numpy_helper.from_array(contiguous, name)


class Call:
    """One application of an operator, as its writer sees it.

    inputs, outputs  names of the values
    x, y             tensors of the first trace
    """

    def __init__(self, writer: Writer, applications: Sequence[Application]) -> None:
        self.writer = writer
        self.applications = applications
        first = applications[0]
        self.op: Any = first.op
        self.x, self.y = first.raw_inputs, first.raw_outputs
        title = type(self.op).__name__
        self.inputs = []
        for i, (t, raw) in enumerate(zip(first.inputs, first.raw_inputs, strict=True)):
            name = writer.known(t, raw)
            if name is None:
                raws = [a.raw_inputs[i] for a in applications]
                name = writer.kept(raws, f"an input of {title}")
            self.inputs.append(name)
        self.outputs: list[str] = []

    @property
    def opset(self) -> int:
        """Version of the operators."""
        return self.writer.opset

    def each(self, read: Callable[[Any], Any]) -> list[Any]:
        """`read` of the operator in all traces."""
        return [read(a.op) for a in self.applications]

    def same(self, read: Callable[[Any], Any], what: str) -> Any:
        """`read` of the operator, which must be the same in all traces."""
        values = self.each(read)
        if any(value != values[0] for value in values):
            raise ExportError(
                f"[onnx.save] {what} of {type(self.op).__name__} changes with a dynamic axis: "
                f"{values}"
            )
        return values[0]

    def in_shapes(self, i: int = 0) -> list[tuple[int, ...]]:
        """Shapes of input `i` in all traces."""
        return [tuple(a.raw_inputs[i].shape()) for a in self.applications]

    def out_shapes(self, i: int = 0) -> list[tuple[int, ...]]:
        """Shapes of output `i` in all traces."""
        return [tuple(a.raw_outputs[i].shape()) for a in self.applications]

    def type_of_input(self, i: int = 0) -> str:
        """Element type of input `i`."""
        return BY_VALUE[self.x[i].data_type()].name

    def type_of_output(self, i: int = 0) -> str:
        """Element type of output `i`."""
        return BY_VALUE[self.y[i].data_type()].name

    def value(self, t: Any) -> str:
        """The name of a tensor that the operator keeps, or of an array."""
        return self.writer.value(t, f"an operand of {type(self.op).__name__}")

    def constant(self, value: Any, like: str | None = None) -> str:
        """A constant; a number gets type `like` (default: that of the first input)."""
        if isinstance(value, int | float):
            value = np.array(value, numpy_type(like or self.type_of_input()))
        return self.writer.constant(value)

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> None:
        """Adds the node whose outputs are the operator's."""
        self.writer.node(op, inputs, self.outputs, **attributes)

    def step(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Adds a node on the way, and returns its output."""
        return self.writer.node(op, inputs, **attributes)[0]

    def cast(self, name: str, found: str, wanted: str) -> str:
        """The value `name` of type `found` in type `wanted`."""
        return name if found == wanted else self.step("Cast", [name], to=NUMBERS[wanted])

    def finish(self, name: str, found: str | None = None) -> None:
        """Makes a value the operator's first output, converted from type `found`."""
        wanted = self.type_of_output()
        if found is not None and found != wanted:
            self.node("Cast", [name], to=NUMBERS[wanted])
        else:
            self.node("Identity", [name])

    def reshape(self, name: str, before: Any, after: Any) -> str:
        """A Reshape on the way; shapes in all traces."""
        return self.step("Reshape", [name, self.writer.new_shape(before, after)])

    def bind_indices(self, name: str) -> None:
        """Notes the name of the positions that the operator found beside its output."""
        self.writer.bind_raw(self.applications[0].raw_indices, name)

    def refuse(self, why: str) -> ExportError:
        """An error about this operator."""
        return ExportError(f"[onnx.save] {type(self.op).__name__}: {why}")
