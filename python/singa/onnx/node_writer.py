"""What writers of operators work with: `Call`, one operator on the tape, and `Writer`, which
collects the nodes, constants and initializers of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import BY_VALUE
from ..networks.element_types import numpy_type
from ..networks.tensors import as_array
from ..tensor import Tensor
from . import formulas
from .data_types import NUMBERS
from .errors import ExportError
from .graph_proto import free_names
from .lengths import Formula, Lengths, Source
from .trace import TensorOutline

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

    from .trace import Application

#: A number, or what it follows from.
Length = int | Formula


class Writer:
    """Collects the nodes and initializers of a file.

    changes  what is different in each trace, as "axis 'n' has 3 and not 2"
    """

    def __init__(self, opset: int, training: bool, changes: Sequence[str] = ("",)) -> None:
        self.opset, self.training, self.changes = opset, training, changes
        self.lengths = Lengths()
        self.nodes: list[NodeProto] = []
        self.constants: list[NodeProto] = []
        self.infos: dict[str, Any] = {}  # types and shapes of operators' outputs
        self.initializers: dict[str, TensorProto] = {}
        self.domains: dict[str, int] = {}  # versions of operators that are not ONNX's own
        self.layer = ""
        self.labels: dict[Source, str] = {}  # names of the dynamic axes
        # For each trace, by id of a raw tensor, and by those of a tensor and its raw one: dropout
        # in inference returns the raw tensor that it got.
        self._names: list[dict[int | tuple[int, int], str]] = [{} for _ in changes]
        self._alive: list[Any] = []
        self._taken: set[str] = set()
        #: Makes a name that no other value or node has.
        self.fresh: Callable[[str], str] = free_names(self._taken)
        self._constants: dict[Any, str] = {}
        self._blocks: set[int] = set()  # memory of values that depend on the inputs
        self.made: set[str] = set()  # constants that the forward pass makes anew each time

    # Names.

    def take(self, names: Sequence[str]) -> None:
        """Reserves names of inputs, outputs and parameters."""
        self._taken.update(names)

    def bind(self, ts: Sequence[Tensor], raws: Sequence[Any], name: str) -> None:
        """Notes the name of a value, which was the tensor `ts[k]` with `raws[k]` in trace k."""
        self._alive += [*ts, *raws]
        for names, t, raw in zip(self._names, ts, raws, strict=True):
            names[id(raw)] = names[id(t), id(raw)] = name

    def bind_raw(self, raws: Sequence[Any], name: str) -> None:
        """Notes the name of a value that was the raw tensor `raws[k]` in trace k."""
        self._alive += raws
        for names, raw in zip(self._names, raws, strict=True):
            names[id(raw)] = name

    def measure(self, name: str, raws: Sequence[Any], primary: bool = False) -> None:
        """Makes the lengths of a value known as sources of formulas."""
        for axis, column in enumerate(zip(*[raw.shape() for raw in raws], strict=False)):
            self.lengths.add(column, Source(name, axis), primary)

    def depends(self, raw: Any) -> None:
        """Notes that the memory of a raw tensor holds a value that depends on the inputs."""
        self._alive.append(raw)
        self._blocks.add(raw.block_id())

    def is_dependent(self, raw: Any) -> bool:
        """Whether the memory of a raw tensor holds a value that depends on the inputs."""
        return raw.block_id() in self._blocks

    def known(self, t: Any, raw: Any = None, trace: int = 0) -> str | None:
        """The name of a tensor's value, or a raw tensor's, if it has one."""
        names = self._names[trace]
        if isinstance(t, Tensor | TensorOutline):
            raw = t.data if raw is None else raw
            name = names.get((id(t), id(raw)))
            return name if name is not None else names.get(id(raw))
        return names.get(id(t))

    def value(self, ts: Sequence[Any], what: str, raws: Sequence[Any] | None = None) -> str:
        """The name of a value from what it was in all traces: of a computed one, a parameter, or a
        new constant. Tensors, raw tensors, or arrays."""
        given = raws if raws is not None else [None] * len(ts)
        pairs = zip(ts, given, strict=True)
        names = [self.known(t, raw, k) for k, (t, raw) in enumerate(pairs)]
        if any(name != names[0] for name in names):
            raise ExportError(f"[onnx.save] {what} is {self.differing(names)}")
        if names[0] is not None:
            return names[0]
        if raws is None:
            raws = [t.data if isinstance(t, Tensor | TensorOutline) else t for t in ts]
        return self.kept(raws, what)

    def kept(self, values: Sequence[Any], what: str) -> str:
        """The name of a constant from its values in all traces: raw tensors, or arrays.

        One that follows from lengths becomes nodes: integers, ranges, bands such as causal masks,
        and what is the same number everywhere.
        """
        raws = [raw for raw in values if isinstance(raw, _c.Tensor)]
        if raws and self.is_dependent(raws[0]):
            raise ExportError(
                f"[onnx.save] {what} of shape {raws[0].shape()} was made of a computed tensor "
                "without an operator, so the file would keep its present value"
            )
        arrays = [
            as_array(Tensor(data=raw)) if isinstance(raw, _c.Tensor) else np.asarray(raw)
            for raw in values
        ]
        first = arrays[0]
        nans = first.dtype.kind == "f"
        different = (
            k for k, a in enumerate(arrays) if not np.array_equal(first, a, equal_nan=nans)
        )
        k = next(different, None)
        name = self.constant(first) if k is None else formulas.written(self, arrays, what)
        if name is None:
            raise ExportError(
                f"[onnx.save] {what} is a constant of shape {first.shape} whose values are others "
                f"where {self.changes[k or 0]}, and have no formula"
            )
        if len(values) == 1 or any(value is not values[0] for value in values):
            self.made.add(name)
        return name

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

    # Numbers that follow dynamic axes.

    def length(self, values: Sequence[int], what: str) -> Length:
        """A number, or its formula, from its values in all traces."""
        base = values[0]
        if all(v == base for v in values):
            return int(base)
        formula = self.lengths.find(tuple(int(v) for v in values))
        if formula is None:
            raise ExportError(f"[onnx.save] {what} is {self.differing(values)}: it has no formula")
        return formula

    def differing(self, values: Sequence[Any]) -> str:
        """Says which value there is in the first trace, and in which other trace another one."""
        k = next(k for k, v in enumerate(values) if v != values[0])
        return f"{values[0]}, and {values[k]} where {self.changes[k]}"

    def integers(self, rows: Sequence[Sequence[int]], what: str) -> str:
        """A vector of int64 from its values in all traces."""
        if len({len(row) for row in rows}) != 1:
            counts = [len(row) for row in rows]
            raise ExportError(f"[onnx.save] the count of {what} is {self.differing(counts)}")
        lengths = [self.length(column, what) for column in zip(*rows, strict=True)]
        if all(isinstance(n, int) for n in lengths):
            return self.constant(np.array(lengths, np.int64))
        parts = [self.length_value(n) for n in lengths]
        return parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)[0]

    def length_value(self, length: Length) -> str:
        """A vector of one element, from a formula."""

        def number(value: int) -> str:
            return self.constant(np.array([value], np.int64))

        if isinstance(length, int):
            return number(length)
        result = None if length.factor == 1 else number(length.factor)
        for source in length.sources:
            if source.is_length:
                vector = self.node("Shape", [source.value])[0]
            else:
                vector = self.node("Cast", [source.value], to=NUMBERS["int64"])[0]
                vector = self.node("Reshape", [vector, number(-1)])[0]
            part = self.node("Gather", [vector, number(source.index)], axis=0)[0]
            result = part if result is None else self.node("Mul", [result, part])[0]
        assert result is not None
        if length.offset:
            result = self.node("Add", [result, number(length.offset)])[0]
        if length.divisor > 1:  # the numbers are not negative, so Div rounds down
            result = self.node("Div", [result, number(length.divisor)])[0]
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
        self.title = first.title
        self._variants: dict[int, list[Any]] = {}  # by id in the first trace: tensors in all
        self.op: Any = Same(self, [a.op for a in applications], self.title)
        self.x, self.y = first.raw_inputs, first.raw_outputs
        self.inputs: list[str] = []
        for i in range(len(first.inputs)):
            ts = [a.inputs[i] for a in applications]
            raws = [a.raw_inputs[i] for a in applications]
            self.inputs.append(writer.value(ts, f"an input of {self.title}", raws))
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
        return self.agreed(self.each(read), what)

    def agreed(self, values: Sequence[Any], what: str) -> Any:
        """The first of the values in all traces, which must be the same."""
        if any(not _equal(value, values[0]) for value in values):
            changed = self.writer.differing(values)
            raise ExportError(f"[onnx.save] {what} of {self.title} is {changed}")
        return values[0]

    def remember(self, values: Sequence[Any]) -> Any:
        """The first of the tensors that an operator keeps; `value` gets it and knows the others."""
        self._variants[id(values[0])] = list(values)
        return values[0]

    def integer(self, read: Callable[[Any], int], what: str) -> str:
        """A number without axes: `read` of the operator, or a formula if it differs."""
        numbers = self.each(read)
        if all(n == numbers[0] for n in numbers):
            return self.constant(np.array(numbers[0], np.int64))
        vector = self.writer.integers([[n] for n in numbers], f"{what} of {self.title}")
        return self.step("Reshape", [vector, self.constant(np.zeros(0, np.int64))])

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
        many = self._variants.get(id(t), [t] * len(self.applications))
        return self.writer.value(many, f"an operand of {self.title}")

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

    def reduced(self, op: str, name: str, axes: Sequence[int], keepdims: int = 1) -> str:
        """A reduction on the way. Its axes are an attribute in old versions, and then an input."""
        if self.opset >= (13 if op == "ReduceSum" else 18):
            over = self.constant(np.array(axes, np.int64))
            return self.step(op, [name, over], keepdims=keepdims)
        return self.step(op, [name], axes=axes, keepdims=keepdims)

    def averaged(self, name: str, axis: int, rank: int, n: int, m: int, kind: str) -> str:
        """The means of m windows of an axis of length n, as PyTorch divides it."""
        matrix = np.zeros((n, m), numpy_type(kind))
        for i in range(m):
            begin, end = i * n // m, -(-(i + 1) * n // m)
            matrix[begin:end, i] = 1 / (end - begin)
        if axis == rank - 1:
            return self.step("MatMul", [name, self.constant(matrix)])
        order = [i for i in range(rank) if i != axis] + [axis]
        moved = self.step("Transpose", [name], perm=order)
        product = self.step("MatMul", [moved, self.constant(matrix)])
        return self.step("Transpose", [product], perm=[order.index(i) for i in range(rank)])

    def bind_indices(self, name: str) -> None:
        """Notes the name of the positions that the operator found beside its output."""
        self.writer.bind_raw([a.raw_indices for a in self.applications], name)

    def refuse(self, why: str) -> ExportError:
        """An error about this operator."""
        return ExportError(f"[onnx.save] {self.title}: {why}")


class Same:
    """What an operator has, as far as it is the same in all traces.

    A tensor may differ: `Call.value` writes it. Reading anything else that differs
    raises ExportError, so that a writer cannot take a number of the first trace for a constant.
    """

    def __init__(self, call: Call, objects: Sequence[Any], path: str) -> None:
        self._call, self._objects, self._path = call, objects, path

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """That of the operator, for `isinstance`."""
        return type(self._objects[0])

    def __getattr__(self, name: str) -> Any:
        values = [getattr(each, name) for each in self._objects]
        first = values[0]
        if isinstance(first, Tensor | _c.Tensor):
            return self._call.remember(values)
        if first is None or isinstance(first, _PLAIN):
            return self._call.agreed(values, name)
        if callable(first) or all(value is first for value in values):
            return first
        return Same(self._call, values, f"{self._path}.{name}")


_PLAIN = (bool, int, float, str, tuple, list, frozenset, set, dict, np.generic, np.ndarray)


def _equal(a: Any, b: Any) -> bool:
    """Whether two plain values are the same. NaN is itself."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b) or (a != a and b != b)
