"""Writes traces of a computation as a ModelProto: operators on the tape become nodes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..networks.element_types import INTEGERS, UNSIGNED
from ..networks.errors import InvalidModelError
from ..networks.graph import ValueType
from ..networks.tensors import as_array
from ..tensor import Tensor
from . import writers as _writers  # noqa: F401 - fills the table
from .data_types import NUMBERS
from .errors import ExportError
from .graph_proto import OLDEST_FORMAT, rename
from .lengths import Source
from .node_writer import Call, Writer
from .specification import inferred, names_read, require_package
from .trace import GraphRun, operands
from .writers.registry import unread, writer_of

if TYPE_CHECKING:
    from onnx import ModelProto

    from .trace import Application, Trace

#: Default version of the operators: the newest that most tools read.
OPSET = 21

_OLDEST = 13
#: Most elements of an input that numbers of operators are compared with.
_MOST_ELEMENTS = 16


def export(
    traces: Sequence[Trace],
    input_names: Sequence[str],
    output_names: Sequence[str] | None,
    states: Mapping[str, Tensor],
    *,
    axes: Mapping[str, Mapping[int, str]] | None = None,
    changes: Sequence[str] = ("",),
    opset: int | None = None,
    ir_version: int | None = None,
    training: bool = False,
    title: str = "singa",
) -> ModelProto:
    """Writes traces of the same computation as a ModelProto.

    changes  what is different in each trace: "" for the first one, as "axis 'n' has 3 and not 2"
    """
    require_package()
    import onnx

    first = traces[0]
    newest = onnx.defs.onnx_opset_version()
    if opset is None:
        opset = _default_opset(first)
    elif not _OLDEST <= opset <= newest:
        raise ValueError(f"[onnx.save] opset must lie in [{_OLDEST}, {newest}], got {opset}")
    axes = axes or {}
    writer = Writer(opset, training, changes)
    outputs = _output_names(output_names, len(first.outputs))
    writer.take([*input_names, *outputs, *states])
    for i, name in enumerate(input_names):
        _bind_input(writer, [t.inputs[i] for t in traces], name, axes.get(name, {}))
    for name, t in states.items():
        writer.bind([t] * len(traces), [t.data] * len(traces), name)
    _check_same_way(traces, changes)
    _note_dependence(writer, first)
    needed = _needed(first)
    for i in range(len(first.applications)):
        if i in needed:
            _write(writer, [t.applications[i] for t in traces])
    for i, name in enumerate(outputs):
        writer.layer = ""
        value = writer.value([t.outputs[i] for t in traces], f"output {name!r}")
        writer.node("Identity", [value], [name])
    _check_reads(writer, first, input_names, outputs)
    declared = _declared(first)
    inputs = [
        _input_info(writer, [t.inputs[i] for t in traces], name, axes.get(name, {}), declared[i])
        for i, name in enumerate(input_names)
    ]
    _drop_identities(writer, set(outputs))
    used = {name for node in writer.nodes for name in names_read(node)} | set(outputs)
    for name, t in states.items():
        if name in used:
            writer.add_initializer(name, as_array(t))
    imported = any(isinstance(a.op, GraphRun) for a in first.applications)
    results = [
        _info(name, [t.outputs[i] for t in traces], writer, {}) for i, name in enumerate(outputs)
    ]
    graph = onnx.helper.make_graph(
        [*(node for node in writer.constants if node.output[0] in used), *writer.nodes],
        title,
        inputs,
        [_opened(value) for value in results] if imported else results,
        [t for name, t in writer.initializers.items() if name in used],
        value_info=[
            info
            for name, info in writer.infos.items()
            if name in used and name not in outputs and not imported
        ],
    )
    opsets = [onnx.helper.make_opsetid(*entry) for entry in {"": opset, **writer.domains}.items()]
    model = onnx.helper.make_model(graph, opset_imports=opsets, producer_name="singa")
    least = max(OLDEST_FORMAT, onnx.helper.find_min_ir_version_for(opsets, True))
    if imported:
        _infer_outputs(model)
    if ir_version is not None and not least <= ir_version <= onnx.IR_VERSION:
        raise ValueError(
            f"[onnx.save] ir_version must lie in [{least}, {onnx.IR_VERSION}] for opset {opset}, "
            f"got {ir_version}"
        )
    model.ir_version = least if ir_version is None else ir_version
    return model


def _bind_input(writer: Writer, ts: Sequence[Tensor], name: str, labels: Mapping[int, str]) -> None:
    """Makes an input known: its lengths, and its elements if they are few integers."""
    raws = [t.data for t in ts]
    writer.bind(ts, raws, name)
    writer.depends(raws[0])
    writer.measure(name, raws, primary=True)
    for axis, label in labels.items():
        writer.labels.setdefault(Source(name, axis), label)
    sizes = {t.size() for t in ts}
    if len(sizes) == 1 and max(sizes) <= _MOST_ELEMENTS and ts[0].dtype.name in INTEGERS:
        for i, column in enumerate(zip(*[t.numpy().reshape(-1) for t in ts], strict=True)):
            writer.lengths.add(tuple(map(int, column)), Source(name, i, is_length=False))


def _declared(trace: Trace) -> list[ValueType | None]:
    """What imported graphs say of the inputs, where they read nothing else; else None."""
    runs = [(a.op, a.inputs) for a in trace.applications if isinstance(a.op, GraphRun)]
    if trace.reads or len(runs) < len(trace.applications):
        return [None] * len(trace.inputs)
    found: list[ValueType | None] = []
    for x in trace.inputs:
        types = {
            op.graph.types.get(name, ValueType())
            for op, inputs in runs
            for name, given in zip(op.arguments, inputs, strict=True)
            if given is x
        }
        found.append(types.pop() if len(types) == 1 else None)
    return found


def _input_info(
    writer: Writer,
    ts: Sequence[Tensor],
    name: str,
    labels: Mapping[int, str],
    declared: ValueType | None,
) -> Any:
    """The declaration of an input. One of an imported graph keeps its open lengths, and a type in
    `UNSIGNED`, from which it is not cast then."""
    info = _info(name, ts, writer, labels)
    if declared is None:
        return info
    kind = info.type.tensor_type
    for axis, dimension in enumerate(kind.shape.dim):
        wanted = None if declared.shape is None else declared.shape[axis]
        if axis not in labels and not isinstance(wanted, int):
            dimension.Clear()
            if wanted and wanted not in writer.labels.values():  # which may name other lengths
                dimension.dim_param = wanted
    readers = [node for node in writer.nodes if name in names_read(node)]
    casts = {node.attribute[0].i if node.op_type == "Cast" else None for node in readers}
    if declared.type in UNSIGNED and casts == {NUMBERS[declared.type]}:
        kind.elem_type = NUMBERS[declared.type]
        for node in readers:
            node.op_type = "Identity"
            del node.attribute[:]
    return info


def _check_same_way(traces: Sequence[Trace], changes: Sequence[str]) -> None:
    """Raises ExportError unless all traces apply the same operators, to values of the same rank."""
    first = traces[0]
    for other, change in zip(traces[1:], changes[1:], strict=True):
        for a, b in itertools.zip_longest(first.applications, other.applications):
            if a is None or b is None or type(a.op) is not type(b.op):
                names = [f"{x.title}{_in_layer(x)}" if x else "the end" for x in (a, b)]
                raise ExportError(
                    "[onnx.save] the forward pass takes another way: "
                    f"{names[0]} comes next, and {names[1]} where {change}"
                )
            ranks = [[len(y.shape()) for y in x.raw_outputs] for x in (a, b)]
            if ranks[0] != ranks[1]:
                raise ExportError(
                    f"[onnx.save] results of {a.title}{_in_layer(a)} have {ranks[0]} axes, and "
                    f"{ranks[1]} where {change}"
                )
        if len(first.outputs) != len(other.outputs):
            raise ExportError(
                f"[onnx.save] there are {len(first.outputs)} outputs, and {len(other.outputs)} "
                f"where {change}"
            )


def _in_layer(application: Application) -> str:
    return f" (layer {application.layer})" if application.layer else ""


def _note_dependence(writer: Writer, trace: Trace) -> None:
    """Notes which values depend on the inputs: others are constants, also as views."""
    for application in trace.applications:
        given = (*application.raw_inputs, *operands(application.op))
        if any(writer.is_dependent(raw) for raw in given):
            for raw in (*application.raw_outputs, application.raw_indices):
                if raw is not None:
                    writer.depends(raw)


def _check_reads(
    writer: Writer, trace: Trace, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """Warns if Python read values that depend on the inputs, unless they became formulas: it may
    do something else for values that no trace had. Raises ExportError for an output that Python
    may have computed from them."""
    written = {source.value for source in writer.lengths.used if not source.is_length}
    read = []
    for raw in trace.reads:
        name = writer.known(raw)
        if writer.is_dependent(raw) and (name is None or name not in written):
            kind = "input" if name in inputs else "computed tensor"
            read.append(f"{kind} {name!r}" if name else f"a {kind} of shape {raw.shape()}")
    if not read:
        return
    what = ", ".join(dict.fromkeys(read))
    for name in _fixed_outputs(writer, inputs, outputs):
        raise ExportError(
            f"[onnx.save] output {name!r} would be the same for all values of the inputs: the "
            f"forward pass reads elements of {what}, and makes a tensor without an operator"
        )
    tried = [name for name in inputs if f"input {name!r} has other values" in writer.changes]
    same = "was the same for other values that were tried" if tried else "is that of the example"
    warnings.warn(
        f"[onnx.save] the forward pass reads elements of {what}. What it computes {same}, and the "
        "file computes this for all values",
        stacklevel=4,
    )


def _fixed_outputs(writer: Writer, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Outputs that depend on what the forward pass makes, and on no elements of an input."""
    elements, made = set(inputs), set(writer.made)
    for node in writer.nodes:
        if node.op_type not in ("Shape", "Size") or node.domain:
            read = set(names_read(node))
            for known in (elements, made):
                if not known.isdisjoint(read):
                    known.update(node.output)
    return [name for name in outputs if name in made and name not in elements]


def _default_opset(trace: Trace) -> int:
    """That of imported graphs in the forward pass, so that their nodes stay; else OPSET."""
    found = [a.op.graph.opset for a in trace.applications if isinstance(a.op, GraphRun)]
    if found and len(found) == len(trace.applications):
        return max(found) or OPSET
    return max(_OLDEST, *found) if found else OPSET


def _opened(info: Any) -> Any:
    """Type and rank of an output. Lengths in one run say nothing about other values of inputs."""
    for dimension in info.type.tensor_type.shape.dim:
        dimension.Clear()
    return info


def _infer_outputs(model: ModelProto) -> None:
    """Fills in the lengths of outputs that follow from the nodes."""
    import onnx

    light = onnx.ModelProto()
    light.CopyFrom(model)
    del light.graph.initializer[:]
    for tensor in model.graph.initializer:
        value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        light.graph.input.append(value)
    try:
        found = inferred(light).graph.output
    except InvalidModelError:
        return
    for own, value in zip(model.graph.output, found, strict=True):
        own.CopyFrom(value)


def _output_names(given: Sequence[str] | None, count: int) -> list[str]:
    names = (
        list(given)
        if given is not None
        else (["output"] if count == 1 else [f"output_{i}" for i in range(count)])
    )
    if len(names) != count or len(set(names)) < count:
        raise ValueError(f"[onnx.save] {count} outputs need as many names, got {names}")
    return names


def _needed(trace: Trace) -> set[int]:
    """Numbers of the applications on which the outputs depend."""
    wanted = {id(y.data) for y in trace.outputs}
    needed: set[int] = set()
    for i in range(len(trace.applications) - 1, -1, -1):
        application = trace.applications[i]
        if wanted & {id(y) for y in (*application.raw_outputs, application.raw_indices)}:
            needed.add(i)
            wanted |= {id(x) for x in (*application.raw_inputs, *operands(application.op))}
    return needed


def _write(writer: Writer, applications: Sequence[Application]) -> None:
    first = applications[0]
    writer.layer = first.layer
    write = writer_of(first.op)
    if write is None:
        raise ExportError(
            f"[onnx.save] operator {type(first.op).__name__} (layer {first.layer or '-'}) has no "
            "form in ONNX here"
        )
    unknown = unread(type(first.op))
    if unknown:
        raise ExportError(
            f"[onnx.save] the writer of operator {type(first.op).__name__} does not know its "
            f"argument {', '.join(sorted(unknown))}"
        )
    call = Call(writer, applications)
    prefix = f"{first.layer}/" if first.layer else ""
    title = type(first.op).__name__.lstrip("_")
    call.outputs = [writer.fresh(f"{prefix}{title}_output") for _ in first.outputs]
    write(call)
    for i, name in enumerate(call.outputs):
        raws = [a.raw_outputs[i] for a in applications]
        writer.bind([a.outputs[i] for a in applications], raws, name)
        writer.measure(name, raws)
    for i, name in enumerate(call.outputs):
        kind = NUMBERS[call.type_of_output(i)]
        writer.infos[name] = _value_info(name, kind, call.out_shapes(i), writer, {})


def _drop_identities(writer: Writer, outputs: set[str]) -> None:
    """Removes Identity nodes: outputs of the graph take the place of the values they copy."""
    alias: dict[str, str] = {}
    kept = []
    for node in writer.nodes:
        rename(node, lambda name: alias.get(name, name))
        if node.op_type == "Identity" and node.output[0] not in outputs:
            alias[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    makers = {name: node for node in kept for name in node.output if name}
    renamed: dict[str, str] = {}
    result = []
    for node in kept:
        source = node.input[0] if node.op_type == "Identity" else ""
        if source in makers and source not in outputs and source not in renamed:
            renamed[source] = node.output[0]
        else:
            result.append(node)
    for node in result:
        rename(node, lambda name: renamed.get(name, name))
        for i, name in enumerate(node.output):
            node.output[i] = renamed.get(name, name)
    writer.nodes = result


def _value_info(
    name: str,
    kind: int,
    shapes: Sequence[Sequence[int]],
    writer: Writer,
    labels: Mapping[int, str],
) -> Any:
    """Type and shape of a value. A length that follows no single dynamic axis stays open."""
    import onnx

    shape: list[int | str | None] = []
    for i, column in enumerate(zip(*shapes, strict=True)):
        label: int | str | None = labels.get(i)
        if label is None:
            same = len(set(column)) == 1
            formula = None if same else writer.lengths.find(column)
            source = None if formula is None else formula.plain
            label = column[0] if same else writer.labels.get(source) if source else None
        shape.append(label)
    return onnx.helper.make_tensor_value_info(name, kind, shape)


def _info(name: str, tensors: Sequence[Tensor], writer: Writer, labels: Mapping[int, str]) -> Any:
    kind = NUMBERS[tensors[0].dtype.name]
    return _value_info(name, kind, [t.shape for t in tensors], writer, labels)
