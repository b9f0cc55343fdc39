"""Brings a model into the form that the specification asks for, where ONNX Runtime asks for less.

the domain "ai.onnx"                      the empty one, which is its other name
lengths below 0; results of length 0      lengths that are not known
nodes in any order                        each behind those that make its inputs
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from .specification import all_graphs, all_nodes, names_read

if TYPE_CHECKING:
    from onnx import ModelProto


def conform(model: ModelProto) -> None:
    """Changes a model in place. What cannot be mended is left for the checker to refuse."""
    for entry in (*model.opset_import, *(e for f in model.functions for e in f.opset_import)):
        if entry.domain == "ai.onnx":
            entry.domain = ""
    for body in (model.graph, *model.functions):
        for node in all_nodes(body):
            if node.domain == "ai.onnx":
                node.domain = ""
        for graph in all_graphs(body):
            _sort(graph)
    for graph in all_graphs(model.graph):
        for value in graph.input:
            _forget_lengths(value, below=0)
        for value in (*graph.output, *graph.value_info):
            _forget_lengths(value, below=1)


def _forget_lengths(value: Any, below: int) -> None:
    """Clears lengths that are smaller than any real one."""
    for dimension in value.type.tensor_type.shape.dim:
        if dimension.HasField("dim_value") and dimension.dim_value < below:
            dimension.ClearField("dim_value")


def _sort(graph: Any) -> None:
    """Puts the nodes of a graph behind those whose outputs they read, else in their old order.

    A graph with a cycle, or with two values of one name, stays as it is.
    """
    nodes = list(graph.node)
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [{makers[name] for name in names_read(node) if name in makers} for node in nodes]
    if all(max(needed, default=-1) < i for i, needed in enumerate(needs)):
        return
    readers: list[list[int]] = [[] for _ in nodes]
    for i, needed in enumerate(needs):
        for maker in needed:
            readers[maker].append(i)
    missing = [len(needed) for needed in needs]
    ready = [i for i, count in enumerate(missing) if not count]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for reader in readers[i]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) == len(nodes) == len({*order}):
        del graph.node[:]
        graph.node.extend(nodes[i] for i in order)
