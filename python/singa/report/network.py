"""Networks as pictures: layers with shapes, parameters, time, memory and implementations."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..drawing.svg import GREY, Picture, shortened
from ..layer.base import Layer
from ..layer.observers import observers
from ..model import Model
from ..tape import operator as tape
from ..tensor import Tensor
from .profiling import Record, typical


@dataclass(eq=False)
class Node:
    """A layer of a network, or an operator that a layer of several parts calls itself.

    name, kind   the layer's path and class; of an operator, the path of its layer and its own name
    output       shapes of the outputs
    bytes        bytes of the outputs
    params       number of parameters that the layer has itself, counted once
    parts        what a layer consists of, in the order of the calls
    sources      the nodes without parts whose outputs it reads
    operator     whether it is an operator
    """

    name: str
    kind: str
    output: str = ""
    bytes: int = 0
    params: int = 0
    parts: list[Node] = field(default_factory=list)
    sources: list[Node] = field(default_factory=list)
    operator: bool = False

    @property
    def reported(self) -> str:
        """The name of the layer in profiles."""
        return self.name or self.kind

    def all_params(self) -> int:
        """Parameters of the node and its parts."""
        return self.params + sum(part.all_params() for part in self.parts)

    def form(self) -> Any:
        """What equal blocks have in common: all but the names."""
        parts = tuple(part.form() for part in self.parts)
        return self.kind, self.output, self.params, self.operator, parts


@dataclass
class Cost:
    """Time of a layer in a profile in milliseconds, and the implementations of its operations."""

    forward: float = 0.0
    backward: float = 0.0
    implementations: tuple[str, ...] = ()

    @property
    def ms(self) -> float:
        """Forward and backward."""
        return self.forward + self.backward


def costs(records: Iterable[Record]) -> dict[str, Cost]:
    """The cost of each layer by its name; what runs in no layer, such as an update, is under ""."""
    found: dict[str, Cost] = {}
    for record in records:
        cost = found.setdefault(record.layer, Cost())
        if "Backward" in record.op:
            cost.backward += record.ms
        else:
            cost.forward += record.ms
        named = record.op if record.op == "Reorder" else record.implementation
        if named and named not in cost.implementations:
            cost.implementations += (named,)
    return found


def trace(model: Model) -> Node:
    """Runs `model` once, without training, on what compile() was given, and returns its layers.
    Raises RuntimeError before compile()."""
    watch = _Watch()
    observers.append(watch)
    tape.followers.append(watch.follow)
    try:
        model._infer_on_examples("plot")
    finally:
        observers.remove(watch)
        tape.followers.remove(watch.follow)
    return watch.root


class _Watch:
    """Notes the calls of layers and operators in the thread that created it."""

    def __init__(self) -> None:
        self.root = Node("", "")
        self._thread = threading.get_ident()
        self._stack = [self.root]
        self._counted: set[int] = set()
        self._makers: dict[int, Node] = {}
        self._alive: list[Tensor] = []  # so that an identity stays that of one tensor

    def enter(self, layer: Layer) -> None:
        if threading.get_ident() != self._thread:
            return
        node = Node(layer.name or "", type(layer).__name__)
        for _, param in layer._own_params():
            if id(param) not in self._counted:
                self._counted.add(id(param))
                node.params += param.size()
        if isinstance(layer, Model) and len(self._stack) == 1:
            self.root = node
        else:
            self._stack[-1].parts.append(node)
        self._stack.append(node)

    def leave(self, layer: Layer, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        node = self._stack.pop()
        tensors = list(_tensors(output))
        node.output = _shapes(tensors)
        node.bytes = sum(t.memsize() for t in tensors)
        if not all(part.operator for part in node.parts):
            return
        # The layer takes the place of its operators.
        inner, node.parts = node.parts, []
        makers = [self._makers[id(t)] for t in tensors if id(t) in self._makers]
        sources = [s for part in inner for s in part.sources] if inner else makers
        node.sources = list(dict.fromkeys(s for s in sources if s not in inner))
        self._makers.update((id(t), node) for t in tensors)

    def follow(self, op: tape.Operator, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> None:
        if threading.get_ident() != self._thread:
            return
        outer = self._stack[-1]
        node = Node(outer.name, op._name or type(op).__name__.lstrip("_"), operator=True)
        node.output, node.bytes = _shapes(ys), sum(y.memsize() for y in ys)
        makers = (self._makers.get(id(x)) for x in xs)
        node.sources = list(dict.fromkeys(maker for maker in makers if maker is not None))
        outer.parts.append(node)
        for y in ys:
            self._alive.append(y)
            self._makers[id(y)] = node


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict | list | tuple):
        for item in output.values() if isinstance(output, dict) else output:
            yield from _tensors(item)


def _shapes(tensors: Sequence[Tensor]) -> str:
    text = ", ".join(" x ".join(map(str, t.shape)) or "number" for t in tensors[:3])
    return text + (", …" if tensors[3:] else "")


#: The columns of `layer_rows`.
LAYER_HEADS = (
    *("layer", "type", "output", "parameters", "output, MiB", "forward, ms", "backward, ms"),
    *("share", "implementations"),
)


def layer_rows(network: Node, records: Iterable[Record]) -> list[tuple[str, ...]]:
    """A row for each layer of a traced network, with its figures in a profile as text; and one for
    what runs in no layer."""
    left = costs(records)
    total = sum(cost.ms for cost in left.values()) or 1.0
    rows: list[tuple[str, ...]] = []

    def add(name: str, kind: str, node: Node, cost: Cost) -> None:
        sizes = node.output, f"{node.params:,}", f"{node.bytes / 2**20:.2f}"
        times = f"{cost.forward:.3f}", f"{cost.backward:.3f}", f"{cost.ms / total * 100:.1f} %"
        rows.append((name, kind, *sizes, *times, ", ".join(cost.implementations)))

    def walk(node: Node) -> None:
        cost = Cost() if node.operator else left.pop(node.reported, Cost())
        if not node.operator and (not node.parts or cost.ms or node.params):
            add(node.name or "the network itself", node.kind, node, cost)
        for part in node.parts:
            walk(part)

    walk(network)
    for name, cost in left.items():
        add(name or "in no layer", "", Node("", ""), cost)
    return rows


# The picture.

_WIDTH, _ROW, _TOP = 1000, 22, 58
_NARROW = 358  # a window of 390 pixels without its margins
_LANES, _LANE = 7, 8  # lanes for connections that skip layers, and their distance in pixels
_DOT = 16 + _LANES * _LANE
_NAME = _DOT + 14
_OUTPUT, _PARAMS, _MIB, _TIME, _IMPLEMENTATION = 390, 560, 640, 654, 786
_BAR = 70


@dataclass
class _Row:
    """A line of the picture: a node, or the head of a block of the rows up to `last`. Equal blocks
    that follow each other are one: `nodes` has their nodes at this place. `until` is the last of
    such blocks, of which there are `times`."""

    nodes: list[Node]
    depth: int
    until: Node
    times: int
    last: int = 0
    cost: Cost = field(default_factory=Cost)


def network_picture(network: Node, spent: Iterable[Record] = (), title: str = "") -> Picture:
    """The picture of a traced network: a line for each layer, a frame around each block, and lines
    from each layer to those that read its output.

    spent  records of a profile, for times and implementations (default: none)
    title  what the network is (default: its class)

    Equal blocks that follow each other are drawn once, with their number and the sums of their
    figures.
    """
    found, rows, total, rest = _rows_of(network, spent)
    slowest = max([row.cost.ms for row in rows if not row.nodes[0].parts], default=0.0)
    title = title or f"{network.kind}: {network.all_params():,} parameters"
    picture = Picture(_WIDTH, _TOP + _ROW * (len(rows) + 1 + (rest > 0)) + 12, title)
    picture.text(16, 24, title, size=15, bold=True)
    heads: list[tuple[str, int, str, int | str]]
    heads = [("layer", _NAME, "start", "faint"), ("output", _OUTPUT, "start", "faint")]
    heads += [("parameters", _PARAMS, "end", "faint"), ("output, MiB", _MIB, "end", "faint")]
    if found:
        heads += [("time, ms", _IMPLEMENTATION - 10, "end", "faint")]
        heads += [("implementation", _IMPLEMENTATION, "start", "faint")]
    trains = any(row.cost.backward for row in rows)
    if trains:
        heads += [("forward", _TIME, "start", 0), ("backward", _IMPLEMENTATION - 10, "end", 1)]
    for number, (head, x, anchor, colour) in enumerate(heads):
        y = 48 if number < 6 else 34
        picture.text(x, y, head, colour=colour, size=11, anchor=anchor)
    for number, row in enumerate(rows):
        if row.nodes[0].parts:
            x, y = _NAME - 6 + 12 * row.depth, _TOP + _ROW * number
            height = _ROW * (row.last - number + 1) - 2
            picture.box(x, y, _WIDTH - x - 6, height, GREY, soft=True, radius=5)
    for number, row in enumerate(rows):
        _draw_row(picture, row, _TOP + _ROW * number + 15, slowest)
    _draw_connections(picture, rows)
    end = _TOP + _ROW * len(rows) + 15
    if rest > 0:
        text = "in no layer" + (": loss, update" if trains else "")
        picture.text(_NAME, end, text, colour="faint")
        picture.text(_IMPLEMENTATION - 10, end, f"{rest:.2f}", anchor="end")
        end += _ROW
    picture.text(_NAME, end, "together", bold=True)
    picture.text(_PARAMS, end, f"{network.all_params():,}", anchor="end", bold=True)
    if found:
        picture.text(_IMPLEMENTATION - 10, end, f"{total + rest:.2f}", anchor="end", bold=True)
    return picture


def narrow_picture(network: Node, spent: Iterable[Record] = (), title: str = "") -> Picture:
    """The same for a window of 390 pixels: layers with parameters and times, without the other
    columns and the connections. Names are those within their block."""
    found, rows, total, rest = _rows_of(network, spent)
    title = title or f"{network.kind}: {network.all_params():,} parameters"
    picture = Picture(_NARROW, _TOP + _ROW * (len(rows) + 1 + (rest > 0)) + 12, title)
    picture.text(8, 24, shortened(title, _NARROW - 16, 14), size=14, bold=True)
    params, ms = _NARROW - 66, _NARROW - 8

    def line(x: float, y: float, name: str, count: int, time: float | None, **style: Any) -> None:
        picture.text(x, y, name, **style)
        bold = bool(style.get("bold"))
        if count:
            picture.text(params, y, f"{count:,}", anchor="end", size=11, bold=bold)
        if time is not None:
            picture.text(ms, y, f"{time:.2f}", anchor="end", size=11, bold=bold)

    heads = [("layer", 8, "start"), ("parameters", params, "end")]
    for head, x, anchor in [*heads, ("time, ms", ms, "end")] if found else heads:
        picture.text(x, 48, head, colour="faint", size=11, anchor=anchor)
    for number, row in enumerate(rows):
        node, top, x = row.nodes[0], _TOP + _ROW * number, 8 + 8 * row.depth
        if node.parts:
            height = _ROW * (row.last - number + 1) - 2
            picture.box(x - 4, top, _NARROW - x, height, GREY, soft=True, radius=5)
    for number, row in enumerate(rows):
        node, x = row.nodes[0], 8 + 8 * row.depth
        name = node.kind if node.operator else node.name.rpartition(".")[2]
        if row.times > 1:
            name += f" … {row.until.name.rpartition('.')[2]}"
        room = params - 60 - x
        name = shortened(name, room)
        tail = "" if node.operator else shortened(node.kind, room - 8 * len(name))
        count = sum(each.all_params() for each in row.nodes)
        y, time = _TOP + _ROW * number + 15, row.cost.ms or None
        line(x, y, name, count, time, bold=bool(node.parts), tail=tail if len(tail) > 3 else "")
    end = _TOP + _ROW * len(rows) + 15
    if rest > 0:
        line(8, end, "in no layer", 0, rest, colour="faint")
        end += _ROW
    line(8, end, "together", network.all_params(), total + rest if found else None, bold=True)
    return picture


def _rows_of(
    network: Node, spent: Iterable[Record]
) -> tuple[dict[str, Cost], list[_Row], float, float]:
    """Costs by layer, the lines of a picture, and the milliseconds in them and in no layer."""
    found = costs(spent)
    rows: list[_Row] = []
    total = _add_parts([network], 0, rows, dict(found)).ms
    return found, rows, total, sum(cost.ms for cost in found.values()) - total


def _add_parts(same: list[Node], depth: int, rows: list[_Row], left: dict[str, Cost]) -> Cost:
    """Appends the rows of the parts of equal nodes, and returns the cost of all. A cost leaves
    `left` when it is counted, since a layer may be called twice."""
    own = [left.pop(node.reported, Cost()) for node in same if not node.operator]
    names = dict.fromkeys(name for cost in own for name in cost.implementations)
    total = Cost(sum(c.forward for c in own), sum(c.backward for c in own), tuple(names))
    start, parts = 0, same[0].parts
    while start < len(parts):
        end, form = start + 1, parts[start].form()
        while parts[start].parts and end < len(parts) and parts[end].form() == form:
            end += 1
        nodes = [node.parts[i] for node in same for i in range(start, end)]
        row = _Row(nodes, depth, parts[end - 1], end - start)
        rows.append(row)
        row.cost = _add_parts(row.nodes, depth + 1, rows, left)
        row.last = len(rows) - 1
        total.forward += row.cost.forward
        total.backward += row.cost.backward
        start = end
    return total


def _draw_row(picture: Picture, row: _Row, y: float, slowest: float) -> None:
    node, cost, block = row.nodes[0], row.cost, bool(row.nodes[0].parts)
    x = _NAME + 12 * row.depth
    name, kind = (node.kind, "") if node.operator else (node.name, node.kind)
    if row.times > 1:
        name += f" … {row.until.name.rpartition('.')[2]}"
        kind += f", {row.times} times"
    name = shortened(name, _OUTPUT - x - 8)
    kind = shortened(kind, _OUTPUT - x - 12 - 7 * len(name)) if len(name) < 45 else ""
    picture.text(x, y, name, bold=block, tail=kind)
    if not block:
        total = sum(each.bytes for each in row.nodes)
        picture.text(_OUTPUT, y, shortened(node.output, _PARAMS - 50 - _OUTPUT), size=11)
        picture.text(_MIB, y, f"{total / 2**20:.2f}", anchor="end", size=11)
    if params := sum(each.all_params() for each in row.nodes):
        picture.text(_PARAMS, y, f"{params:,}", anchor="end", size=11)
    if cost.ms:
        note = f"{node.name}: forward {cost.forward:.3f} ms, backward {cost.backward:.3f} ms"
        if not block and slowest:
            width = _BAR * cost.ms / slowest
            share = cost.forward / cost.ms
            picture.box(_TIME, y - 10, width * share, 12, 0, note=note)
            if cost.backward:
                picture.box(_TIME + width * share, y - 10, width * (1 - share), 12, 1, note=note)
        at = _IMPLEMENTATION - 10
        picture.text(at, y, f"{cost.ms:.2f}", anchor="end", size=11, bold=block)
        if not block:
            named = ", ".join(cost.implementations)
            room = _WIDTH - _IMPLEMENTATION - 10
            picture.text(_IMPLEMENTATION, y, shortened(named, room, 11), size=11)


def _draw_connections(picture: Picture, rows: list[_Row]) -> None:
    """Lines at the left: straight to the next layer, around the layers that are skipped."""
    place = {id(node): i for i, row in enumerate(rows) for node in row.nodes if not node.parts}
    shown = sorted(set(place.values()))
    follows = dict(itertools.pairwise(shown))
    pairs = {
        (place[id(source)], place[id(node)])
        for row in rows
        for node in row.nodes
        if not node.parts
        for source in node.sources
        if id(source) in place
    }
    busy: list[int] = []  # of each lane, the row where it is free again
    for start, end in sorted(pairs):
        top, bottom = (_TOP + _ROW * i + 11 for i in (start, end))
        if end == follows.get(start):
            picture.path([(_DOT, top), (_DOT, bottom)], "faint", width=1.5)
        elif end > start:  # otherwise between equal blocks that are drawn once
            lane = next((i for i, free in enumerate(busy) if free <= start), len(busy))
            busy[lane : lane + 1] = [end]
            x = _DOT - 10 - _LANE * min(lane, _LANES - 1)
            way = f"M{_DOT} {top}C{x} {top} {x} {top} {x} {top + 12}V{bottom - 12}"
            picture.path(f"{way}C{x} {bottom} {x} {bottom} {_DOT} {bottom}", 3, width=1.5)
    for number in shown:
        picture.dot(_DOT, _TOP + _ROW * number + 11, "faint")


def plot(model: Model, path: str | os.PathLike[str] | None = None) -> Picture:
    """What `Model.plot` returns; see there."""
    network = trace(model)
    spent = typical(model._infer_on_examples)
    batch = model._inputs[0]
    what = f", inference, batch of {batch[0][0]}" if isinstance(batch, tuple) and batch[0] else ""
    title = f"{network.kind}: {network.all_params():,} parameters{what}"
    picture = network_picture(network, spent, title)
    if path is not None:
        picture.save(path)
    return picture
