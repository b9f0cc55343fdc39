"""The writer of an imported graph: its nodes as the file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...networks.element_types import HELD, UNSIGNED
from ...networks.graph import ValueType
from .. import graph_proto
from ..data_types import NUMBERS
from ..trace import GraphRun
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call


@writes(GraphRun, reads="graph arguments wanted")
def graph_run(call: Call) -> None:
    """The nodes that lead to the wanted values. Control flow stays, and so does whatever depends
    on values of tensors."""
    graph, wanted = call.op.graph, list(dict.fromkeys(call.op.wanted))
    inputs, known = {}, {}
    for i, (name, outer) in enumerate(zip(call.op.arguments, call.inputs, strict=True)):
        kind = call.type_of_input(i)
        declared = graph.types.get(name, ValueType()).type
        # Batch norm had one type, and integers that singa does not have are in int32.
        if declared in HELD | UNSIGNED or (declared not in (None, kind) and graph.opset < 15):
            outer, kind = call.cast(outer, kind, declared), declared
        inputs[name], known[name] = ValueType(kind, call.in_shapes(i)[0]), outer
    model = graph_proto.converted(graph_proto.model_of(graph, inputs, wanted), call.opset)
    graph_proto.set_mode(model.graph, call.writer.training, call.opset)
    for entry in model.opset_import:
        if entry.domain not in ("", "ai.onnx"):
            call.writer.require(entry.domain, entry.version)
    splicer = graph_proto.Splicer(known, call.writer.fresh)
    call.writer.add(splicer.nodes(model.graph))
    made = [value.name for value in model.graph.output]
    names = {name: splicer.name(new) for name, new in zip(wanted, made, strict=True)}
    for name, output in zip(call.op.wanted, call.outputs, strict=True):
        held = graph.types.get(name, ValueType()).type in HELD
        attributes = {"to": NUMBERS["int32"]} if held else {}
        call.writer.node("Cast" if held else "Identity", [names[name]], [output], **attributes)
