"""The memory of a captured step as a picture: what lies where over its operations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..drawing.chart import steps
from ..drawing.svg import GREY, Picture, shortened

_MIB = 2**20
#: A line of `Graph.ToString` for an operation, and a tensor in it that lies in the arena.
_NODE = re.compile(r"  (\d+) (\S+)(?: \[(.*?)\])? by .*?:(?= )(.*) ->(.*)")
_TENSOR = re.compile(r"@(\d+)\(([\d, ]*)\)(\w*)")
_HEAD = re.compile(r"segment \d+: \d+ operations, arena (\d+) bytes")


@dataclass
class Value:
    """A result in the arena, from the operation that computes it to the last one that reads it.

    op, layer    the operation that computes it, and its layer
    offset       in the arena, in bytes
    bytes        its size
    first, last  numbers of operations
    """

    op: str
    layer: str
    offset: int
    bytes: int
    first: int
    last: int


def values(text: str) -> list[Value]:
    """The results in the arena, of what `singa_wrap.Graph.ToString` says.

    It does not say types. Sizes are those of float32, in whole blocks of the layout, and end where
    another result lies at the same time, so those of 16 bits may come out too large.
    """
    found: list[Value] = []
    now: dict[int, Value] = {}
    end = 0
    for line in text.splitlines():
        if head := _HEAD.match(line):
            end = max(end, int(head[1]))
        if not (node := _NODE.fullmatch(line)):
            continue
        number, op, layer = int(node[1]), node[2], node[3] or ""
        for offset, size in _tensors(node[4]):
            if offset in now:
                now[offset].last = number
                now[offset].bytes = max(now[offset].bytes, size)
        for offset, size in dict(_tensors(node[5])).items():
            if offset in now and now[offset].last == number > now[offset].first:
                now[offset].last = number - 1  # the result takes over its memory
            now[offset] = Value(op, layer, offset, size, number, number)
            found.append(now[offset])
    by_offset = sorted(found, key=lambda value: value.offset)
    for number, value in enumerate(by_offset):
        beside = (
            other.offset
            for other in by_offset[number + 1 :]
            if value.offset < other.offset
            and other.first <= value.last
            and value.first <= other.last
        )
        value.bytes = min(value.bytes, next(beside, end) - value.offset)
    return found


def _tensors(text: str) -> Iterable[tuple[int, int]]:
    """(offset, bytes) of the tensors in the arena."""
    for offset, shape, layout in _TENSOR.findall(text):
        lengths = [int(n) for n in re.findall(r"\d+", shape)]
        # nChw16c: the second axis, which has a capital letter, lies in blocks of 16.
        axes = re.match(r"[a-zA-Z]*", layout)
        for count, letter in re.findall(r"(\d+)([a-z])", layout):
            axis = axes[0].lower().find(letter) if axes else -1
            if 0 <= axis < len(lengths):
                lengths[axis] = -(-lengths[axis] // int(count)) * int(count)
        yield int(offset), 4 * math.prod(lengths)


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 1000, 420, 64, 16, 128
#: Colours of results of forward, of backward, and of other operations after it.
_FORWARD, _BACKWARD, _OTHER = 0, 1, 2


def memory_picture(plan: Mapping[str, Any], text: str) -> Picture:
    """The picture of a plan (`Model.memory_plan`) and of its largest graph, which `text` describes:
    a bar of all kinds of memory, and the arena by addresses over the operations of the step."""
    found = values(text)
    operations = max((value.last for value in found), default=0) + 1
    arena = max((value.offset + value.bytes for value in found), default=1)
    planned = plan["planned_bytes"]
    title = f"Memory of a step: {planned / _MIB:.1f} MiB planned"
    picture = Picture(_WIDTH, _TOP + _HEIGHT + 46, title)
    picture.text(16, 24, title, size=15, bold=True)
    _draw_kinds(picture, plan["by_kind"], planned)
    picture.text(16, _TOP - 16, "The arena: what is needed only within the step", bold=True)
    for left, colour, name in (
        (480, _FORWARD, "result of forward"),
        (640, _BACKWARD, "of backward"),
        (760, _OTHER, "of others after these began"),
    ):
        picture.box(left, _TOP - 26, 12, 12, colour, soft=True, outline=colour)
        picture.text(left + 18, _TOP - 16, name, size=11)
    bottom, wide = _TOP + _HEIGHT, (_WIDTH - _LEFT - _RIGHT) / operations
    for mark in steps(0.0, arena / _MIB):
        y = bottom - mark * _MIB / arena * _HEIGHT
        picture.path([(_LEFT, y), (_WIDTH - _RIGHT, y)])
        picture.text(_LEFT - 8, y + 4, f"{mark:g}", colour="faint", size=11, anchor="end")
    for mark in steps(0, operations - 1, 8):
        middle = _LEFT + wide * (mark + 0.5)
        picture.text(middle, bottom + 16, f"{mark:g}", colour="faint", size=11, anchor="middle")
    picture.text(16, _TOP, "MiB", colour="faint", size=11)
    picture.text(_WIDTH - _RIGHT, bottom + 34, "operation", colour="faint", size=11, anchor="end")
    backward = next((v.first for v in found if "Backward" in v.op), operations)
    for value in found:
        colour = _FORWARD if value.first < backward else _OTHER
        colour = _BACKWARD if "Backward" in value.op else colour
        height = value.bytes / arena * _HEIGHT
        x, y = _LEFT + wide * value.first, bottom - value.offset / arena * _HEIGHT - height
        width = wide * (value.last - value.first + 1)
        name = f"{value.op} {value.layer}".strip()
        note = f"{name}: {value.bytes / _MIB:.3f} MiB, operations {value.first} to {value.last}"
        outline = colour if height > 2 else None
        picture.box(x, y, width, height, colour, note=note, soft=True, outline=outline)
        if height > 13 and width > 60:
            picture.text(x + 4, y + height / 2 + 4, shortened(name, width - 6, 10), size=10)
    return picture


def _draw_kinds(picture: Picture, by_kind: Mapping[str, int], planned: int) -> None:
    """A bar of all kinds, with their names below it. Small ones are together."""
    small = planned / 200
    kinds = [(kind, size) for kind, size in by_kind.items() if size >= small]
    if (rest := planned - sum(size for _, size in kinds)) > 0:
        kinds.append(("others", rest))
    x, at = 16.0, 16.0
    for number, (kind, size) in enumerate(kinds):
        colour = number % (GREY + 1)
        width = (_WIDTH - 32) * size / planned
        picture.box(x, 40, width, 18, colour, note=f"{kind}: {size / _MIB:.2f} MiB")
        x += width
        text = f"{kind} {size / _MIB:.2f}"
        picture.box(at, 68, 10, 10, colour)
        picture.text(at + 15, 77, text, size=11)
        at += 35 + 6.2 * len(text)
