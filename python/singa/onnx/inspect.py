"""What is in an ONNX file: `python -m singa onnx FILE`."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..networks.element_types import is_singas, numpy_type
from ..networks.errors import InvalidModelError, Problem, UnsupportedError, grouped
from ..networks.graph import Graph, Node, ValueType, subgraphs
from ..networks.network import Network
from ..networks.tensors import as_value
from ..raw.words import counted
from .checking import Comparison, compared, is_installed, session
from .front import ONNX
from .module import LENGTHS, ImportedModel, notes_on, read_graph, roles_of
from .readers.evaluated import is_evaluated


@dataclass
class Report:
    """What `inspect` found; `str()` gives the text that the command prints."""

    path: str
    graph: Graph
    problems: tuple[Problem, ...]
    operators: Counter[str]
    parameters: int
    parameter_bytes: int
    states: int
    flops: int | None
    on_host: frozenset[str]
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        g = self.graph
        lines = [
            f"{self.path}: IR version {g.ir_version}, opset {g.opset}, "
            f"by {g.producer or 'unknown'}",
            "",
            *(f"input   {name}  {_described(g.types.get(name))}" for name in g.inputs),
            *(f"output  {name}  {_described(g.types.get(name))}" for name in g.outputs),
            "",
            f"{self.parameters:,} parameters ({_bytes(self.parameter_bytes)}), "
            f"{self.states:,} running statistics",
        ]
        if self.flops is not None:
            lines.append(
                f"{self.flops:,} multiplications and additions of convolutions and products"
            )
        lines += ["", counted(sum(self.operators.values()), "node")]
        width = max((len(name) for name in self.operators), default=0)
        bad = {problem.operator for problem in self.problems}
        for name, count in sorted(self.operators.items(), key=lambda item: (-item[1], item[0])):
            mark = "  on the host, without a gradient" if name in self.on_host else ""
            mark = "  not supported" if name in bad else mark
            lines.append(f"  {name:<{width}}  {count:>5}{mark}")
        if self.problems:
            lines += ["", "not supported:", *(f"  {line}" for line in grouped(self.problems))]
        lines += ["", *self.notes] if self.notes else []
        return "\n".join(lines)


def inspect(path: str | os.PathLike[str], allow_symlinks: bool = False) -> Report:
    """Looks at a file without computing anything.

    Raises OSError if it cannot be read, InvalidModelError if it is damaged.
    """
    graph = read_graph(path, None, allow_symlinks)
    roles = roles_of(graph)
    problems: tuple[Problem, ...] = ()
    constants = {
        name: initializer.read()
        for name, initializer in graph.initializers.items()
        if roles[name] == "constant"
    }
    try:
        Network(replace(graph, constants={**graph.constants, **constants}), ONNX)
    except UnsupportedError as error:
        problems = error.problems
    sizes = {"parameter": 0, "state": 0}
    size_bytes = 0
    for name, initializer in graph.initializers.items():
        role = roles[name]
        if role in sizes:
            count = math.prod(initializer.shape)
            sizes[role] += count
            if role == "parameter":
                size_bytes += count * numpy_type(initializer.type).itemsize
    nodes = _nodes(graph)
    return Report(
        os.fspath(path),
        graph,
        problems,
        Counter(node.operator for node in nodes),
        sizes["parameter"],
        size_bytes,
        sizes["state"],
        _flops(graph),
        frozenset(node.operator for node in nodes if is_evaluated(node)),
        notes_on(graph),
    )


def _nodes(graph: Graph) -> list[Node]:
    found = list(graph.nodes)
    for node in graph.nodes:
        for inner in subgraphs(node):
            found += _nodes(inner)
    return found


def _flops(graph: Graph) -> int | None:
    """Multiplications and additions of convolutions and matrix products, with 1 for lengths that
    are not known; None if a rank is not known."""
    total = 0
    for node in graph.nodes:
        if node.op not in ("Conv", "ConvTranspose", "MatMul", "Gemm"):
            continue
        shapes = [_shape(graph.types.get(name)) for name in (*node.inputs[:2], node.outputs[0])]
        if any(shape is None for shape in shapes):
            return None
        x, w, y = (shape or () for shape in shapes)
        if node.op == "Conv":
            total += 2 * math.prod(y) * math.prod(w[1:])
        elif node.op == "ConvTranspose":
            total += 2 * math.prod(x) * math.prod(w[1:])
        elif x:
            inner = x[0] if node.op == "Gemm" and node.attributes.get("transA") else x[-1]
            total += 2 * math.prod(y) * inner
    return total


def _shape(value: ValueType | None) -> tuple[int, ...] | None:
    if value is None or value.shape is None:
        return None
    return tuple(n if isinstance(n, int) else 1 for n in value.shape)


def _described(value: ValueType | None) -> str:
    if value is None or value.type is None:
        return "unknown"
    shape = (
        "?" if value.shape is None else ", ".join("?" if n is None else str(n) for n in value.shape)
    )
    return f"{value.type} ({shape})"


def _bytes(count: int) -> str:
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.4g} {unit}"


def compare(
    path: str | os.PathLike[str],
    allow_symlinks: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    arrays: Mapping[str, Any] | None = None,
) -> list[Comparison]:
    """Runs a file in singa and in ONNX Runtime on the same inputs.

    shapes  shapes of inputs, by name
    arrays  inputs, by name

    Other inputs are random. Lengths that the file leaves open are the first of a few with which
    both run the file: 2, or else 1, for the first axis, and small ones for the others. Raises
    ImportError without ONNX Runtime, ValueError for a name that is not an input, InvalidModelError
    for inputs whose shape or type is not known, and for a file that ONNX Runtime refuses.
    """
    if not is_installed():
        raise ImportError("[onnx] --check needs ONNX Runtime: pip install onnxruntime")
    shapes, arrays = shapes or {}, arrays or {}
    net = ImportedModel(read_graph(path, None, allow_symlinks))
    unknown = [name for name in (*shapes, *arrays) if name not in net.input_names]
    if unknown:
        raise ValueError(
            f"[onnx] {', '.join(unknown)}: the inputs of the file are {', '.join(net.input_names)}"
        )
    types = net._graph.types
    try:
        runtime = session(os.fspath(path))
    except Exception as error:  # it has a class of its own for each kind of refusal
        raise InvalidModelError(f"[onnx] ONNX Runtime: {error}") from None
    device = next((t.device for t in net.get_states().values()), None)
    reason: Exception | None = None
    tried = set()
    # Some exporters write the example's batch, 1, into attributes.
    for length, first in itertools.product(LENGTHS[1:], (2, 1)):
        random = np.random.default_rng(0)
        given = {
            name: _as_runtime_wants(arrays[name])
            if name in arrays
            else _random(name, types.get(name), random, shapes.get(name), [first, length])
            for name in net.input_names
        }
        sizes = tuple(x.shape for x in given.values())
        if sizes in tried:
            continue
        tried.add(sizes)
        try:
            expected = runtime.run(list(net.output_names), given)
        except Exception as error:
            reason = reason or InvalidModelError(f"[onnx] ONNX Runtime: {error}")
            continue
        try:
            results = net.values([as_value(x, device) for x in given.values()], net.output_names)
            break
        except ValueError as error:  # ONNX Runtime's windows may be larger than their images
            reason = reason or error
    else:
        assert reason is not None
        raise reason
    return [
        compared(name, y, wanted)
        for name, y, wanted in zip(net.output_names, results, expected, strict=True)
    ]


def _as_runtime_wants(array: Any) -> Any:
    """An array, in which texts are objects."""
    return array.astype(object) if array.dtype.kind in "US" else array


def _random(
    name: str,
    declared: ValueType | None,
    random: Any,
    wanted: Sequence[int] | None,
    open_: Sequence[int],
) -> Any:
    """An input of the declared type and the wanted shape. Lengths that are not known are those in
    `open_`, which has one for the first axis and one for all others."""
    if declared is None or not is_singas(declared.type or ""):
        kind = declared and declared.type
        raise InvalidModelError(
            f"[onnx] input {name!r} has type {kind or 'unknown'}: give it with --inputs"
        )
    if declared.shape is None and wanted is None:
        raise InvalidModelError(
            f"[onnx] the shape of input {name!r} is not known: give it with --shape"
        )
    if wanted is None:
        first, other = open_
        pairs = zip(
            declared.shape or (), [first, *[other] * len(declared.shape or ())], strict=False
        )
        wanted = [n if isinstance(n, int) else free for n, free in pairs]
    shape = tuple(wanted)
    dtype = numpy_type(declared.type or "")
    if dtype.kind in "iub":
        return random.integers(0, 2, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)
