"""A profile as a flame chart: the operations over time, below the layers in which they ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..drawing.chart import steps
from ..drawing.svg import Picture, shortened
from ..raw.words import counted

if TYPE_CHECKING:
    from .profiling import Record

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 1200, 20, 16, 16, 66
_KINDS = ("forward", "backward", "reorder", "in no layer")
_COLOURS = {"forward": 0, "backward": 1, "reorder": 3, "in no layer": 2}


@dataclass
class Span:
    """A box of the chart: an operation, or a layer while its operations run without a break.

    depth       0 for the outermost layer
    start, end  in milliseconds since the first operation
    note        what it is
    """

    name: str
    depth: int
    start: float
    end: float
    kind: str
    note: str


def spans(records: Sequence[Record]) -> list[Span]:
    """The boxes of the operations of one thread, and of the layers around them."""
    found: list[Span] = []
    around: list[Span] = []
    first = min((record.start for record in records), default=0.0)
    for record in sorted(records, key=lambda each: each.start):
        path = record.layer.split(".") if record.layer else []
        kind = _kind(record)
        names = [".".join(path[: i + 1]) for i in range(len(path))]
        same = 0
        while same < min(len(around), len(names)) and around[same].name == names[same]:
            if around[same].kind != kind and "reorder" not in (around[same].kind, kind):
                break
            same += 1
        del around[same:]
        start, end = record.start - first, record.start - first + record.ms
        for depth in range(same, len(names)):
            around.append(Span(names[depth], depth, start, end, kind, ""))
            found.append(around[-1])
        for span in around:
            span.end = end
        where = f" {record.layer}" if record.layer else ""
        note = f"{record.op}{where}, {record.implementation}: {record.ms:.3f} ms"
        found.append(Span(record.op, len(names), start, end, kind, note))
    for span in found:
        span.note = span.note or f"{span.name}, {span.kind}: {span.end - span.start:.3f} ms"
    return found


def _kind(record: Record) -> str:
    if record.op == "Reorder":
        return "reorder"
    if "Backward" in record.op:
        return "backward"
    return "forward" if record.layer else "in no layer"


def flame(records: Sequence[Record]) -> Picture:
    """The flame chart of a profile's records: time from left to right, layers above the operations
    that ran in them, and a part for each thread. Raises ValueError without records."""
    if not records:
        raise ValueError("[flame] the profile has no operations")
    threads = {
        thread: [r for r in records if r.thread == thread]
        for thread in dict.fromkeys(record.thread for record in records)
    }
    first = min(record.start for record in records)
    total = max(record.start + record.ms for record in records) - first or 1.0
    parts = {thread: spans(own) for thread, own in threads.items()}
    rows = [max(span.depth for span in own) + 1 for own in parts.values()]
    height = _TOP + sum(_ROW * count + 24 for count in rows) + 20
    busy = sum(record.ms for record in records)
    title = f"Profile: {counted(len(records), 'operation')}, {busy:.2f} ms"
    picture = Picture(_WIDTH, height, title)
    picture.text(16, 24, title, size=15, bold=True)
    x = 16.0
    for kind in _KINDS:
        picture.box(x, 36, 12, 12, _COLOURS[kind], soft=True, outline=_COLOURS[kind])
        picture.text(x + 18, 46, kind, size=11)
        x += 110
    scale = (_WIDTH - _LEFT - _RIGHT) / total
    for mark in steps(0.0, total, 8):
        x = _LEFT + mark * scale
        picture.path([(x, _TOP - 4), (x, height - 24)])
        anchor = "start" if mark == 0 else "middle"
        picture.text(x, height - 10, f"{mark:g} ms", colour="faint", size=11, anchor=anchor)
    top = float(_TOP)
    for (thread, own), count in zip(parts.items(), rows, strict=True):
        if len(parts) > 1:
            picture.text(16, top + 10, f"thread {thread}", colour="faint", size=11)
        top += 14
        began = min(record.start for record in threads[thread]) - first
        for span in own:
            x, y = _LEFT + (began + span.start) * scale, top + _ROW * span.depth
            width, colour = (span.end - span.start) * scale, _COLOURS[span.kind]
            outline = colour if width > 3 else None
            picture.box(x, y, width, _ROW - 2, colour, note=span.note, soft=True, outline=outline)
            if width > 28:
                name = span.name
                if shortened(name, width - 6, 10) != name:
                    name = shortened(name.rpartition(".")[2], width - 6, 10)
                picture.text(x + 3, y + 13, name, size=10)
        top += _ROW * count + 10
    return picture
