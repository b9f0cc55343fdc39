"""Pictures as SVG text, which follow the reader's light or dark mode."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ..files.atomic import atomic_write

#: Colours of what is drawn: (light, dark). Each has a contrast of 3 or more with the paper.
COLOURS = (
    ("#0969da", "#58a6ff"),  # blue
    ("#bc4c00", "#f0883e"),  # orange
    ("#1a7f37", "#3fb950"),  # green
    ("#8250df", "#bc8cff"),  # purple
    ("#bf3989", "#f778ba"),  # pink
    ("#6e7781", "#8b949e"),  # grey
)
#: The grey among them, for what is neither one kind nor another.
GREY = len(COLOURS) - 1
_PLAIN = {
    "ink": ("#1f2328", "#e6edf3"),
    "faint": ("#59636e", "#9198a1"),
    "rule": ("#d1d9e0", "#3d444d"),
    "paper": ("#ffffff", "#0d1117"),
}


def _style(dark: int) -> str:
    rules = []
    for i, colour in enumerate(COLOURS):
        rules += [f".f{i}{{fill:{colour[dark]}}}", f".s{i}{{stroke:{colour[dark]}}}"]
    for name, colour in _PLAIN.items():
        rules += [f".f-{name}{{fill:{colour[dark]}}}", f".s-{name}{{stroke:{colour[dark]}}}"]
    return "".join(f".singa-picture {rule}" for rule in rules)


_STYLE = (
    ".singa-picture text{font-family:system-ui,sans-serif}"
    f"{_style(0)}@media(prefers-color-scheme:dark){{{_style(1)}}}"
)


def shortened(text: str, width: float, size: float = 12) -> str:
    """The text, or its beginning and an ellipsis, where it is wider than `width` in pixels. The
    width of letters is estimated."""
    most = max(int(width / (0.56 * size)), 1)
    return text if len(text) <= most else text[: most - 1] + "…"


class Picture:
    """A picture, to which parts are added from back to front. `str()` gives the SVG.

    width, height  in pixels
    title          what it shows, for those who do not see it

    Colours are numbers of COLOURS, or "ink", "faint", "rule" and "paper". A `note` shows when the
    pointer rests on a part.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: int | str,
        *,
        note: str = "",
        soft: bool = False,
        outline: int | str | None = None,
        radius: float = 0,
    ) -> None:
        """A filled rectangle; `soft` lets texts on it be read."""
        style = f'class="f{_name(colour)}' + ("" if outline is None else f" s{_name(outline)}")
        style += '" fill-opacity="0.13"' if soft else '"'
        style += f' rx="{radius:g}"' if radius else ""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.0):.1f}" height="{height:.1f}"'
        inside = f"<title>{escape(note)}</title>" if note else ""
        self._parts.append(f"<rect {place} {style}>{inside}</rect>")

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        colour: int | str = "ink",
        size: float = 12,
        anchor: str = "start",
        bold: bool = False,
        tail: str = "",
    ) -> None:
        """A text on the base line y; `anchor` says which of start, middle and end is at x. The
        `tail` behind it is faint."""
        style = f'class="f{_name(colour)}" font-size="{size:g}"'
        style += f' text-anchor="{anchor}"' if anchor != "start" else ""
        style += ' font-weight="600"' if bold else ""
        text = escape(text)
        if tail:
            text += f'<tspan class="f-faint" font-weight="400"> {escape(tail)}</tspan>'
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{text}</text>')

    def path(
        self,
        points: Sequence[tuple[float, float]] | str,
        colour: int | str = "rule",
        *,
        width: float = 1,
        dashes: str = "",
    ) -> None:
        """Lines between points, or along an SVG path."""
        if not isinstance(points, str):
            points = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        style = f'class="s{_name(colour)}" fill="none" stroke-width="{width:g}"'
        style += f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(f'<path d="{points}" {style}/>')

    def dot(self, x: float, y: float, colour: int | str, note: str = "", radius: float = 3) -> None:
        """A filled circle."""
        inside = f"<title>{escape(note)}</title>" if note else ""
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="f{_name(colour)}">'
            f"{inside}</circle>"
        )

    def __str__(self) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}"'
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="singa-picture" role="img" {size} '
            f'viewBox="0 0 {self.width:g} {self.height:g}" aria-label="{escape(self.title)}">'
            f"<style>{_STYLE}</style>"
            f'<rect width="{self.width:g}" height="{self.height:g}" class="f-paper"/>'
        )
        return "\n".join([head, *self._parts, "</svg>"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture to a file, atomically. Raises ValueError unless its name ends in .svg,
        OSError if writing fails."""
        if Path(path).suffix.lower() != ".svg":
            raise ValueError(f"[plot] {os.fspath(path)}: expected a name ending in .svg")
        with atomic_write(path, "w") as file:
            file.write(f"{self}\n")

    def _repr_html_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"<Picture {self.width:g} x {self.height:g}: {self.title}>"


def _name(colour: int | str) -> str:
    return str(colour) if isinstance(colour, int) else f"-{colour}"
