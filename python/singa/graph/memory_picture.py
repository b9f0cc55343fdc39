"""The memory of a recorded step as a picture: what lies where over its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..drawing.chart import steps
from ..drawing.svg import GREY, Picture, shortened

_MIB = 2**20
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 1000, 420, 64, 16, 128
#: Colours of results of forward, of backward, and of other operations after it.
_FORWARD, _BACKWARD, _OTHER = 0, 1, 2


def memory_picture(plan: Mapping[str, Any], uses: Sequence[Any]) -> Picture:
    """The picture of a plan (`Model.memory_plan`) and of its largest graph, whose
    `singa_wrap.ArenaUse`s these are: a bar of all kinds of memory, and the arena by addresses over
    the operations of the step."""
    operations = max((use.last for use in uses), default=0) + 1
    arena = max((use.offset + use.bytes for use in uses), default=1)
    planned = plan["planned_bytes"]
    title = f"Memory of a step: {planned / _MIB:.1f} MiB planned"
    picture = Picture(_WIDTH, _TOP + _HEIGHT + 46, title)
    picture.text(16, 24, title, size=15, bold=True)
    _draw_kinds(picture, plan["by_kind"], planned)
    picture.text(16, _TOP - 16, "The arena: what is needed only within the step", bold=True)
    for left, colour, name in (
        (400, _FORWARD, "result of forward"),
        (540, _BACKWARD, "of backward"),
        (640, _OTHER, "of others, once backward has begun"),
        (890, GREY, "workspace"),
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
    picture.text(
        _WIDTH - _RIGHT,
        bottom + 34,
        "operations of the step, in order",
        colour="faint",
        size=11,
        anchor="end",
    )
    backward = next((use.first for use in uses if "Backward" in use.op), operations)
    for use in uses:
        colour = _FORWARD if use.first < backward else _OTHER
        colour = _BACKWARD if "Backward" in use.op else colour
        colour = GREY if use.workspace else colour
        height = use.bytes / arena * _HEIGHT
        x, y = _LEFT + wide * use.first, bottom - use.offset / arena * _HEIGHT - height
        width = wide * (use.last - use.first + 1)
        name = f"{use.op} {use.layer}".strip() + (", workspace" if use.workspace else "")
        until = f"s {use.first} to {use.last}" if use.last > use.first else f" {use.first}"
        note = f"{name}: {use.bytes / _MIB:.3f} MiB, operation{until}"
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
