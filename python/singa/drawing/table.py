"""Tables that print as text, in colour on a terminal, and as HTML in notebooks."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

#: Columns of text, and what is left at least of a column that is shortened.
WIDTH, _LEAST = 80, 14
_GAP = 2


@dataclass
class Table:
    """Rows of text below heads, and a line that sums them up.

    numbers  columns of numbers, which stand at the right
    total    the last line
    shrinks  columns that are shortened where the table is wider than it may be, in this order
    ends     those of them of which the end is kept, such as paths, and not the beginning
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Collection[int] = ()
    total: str = ""
    shrinks: Sequence[int] = ()
    ends: Collection[int] = ()

    def fitted(self, width: int = WIDTH) -> list[list[str]]:
        """The heads and the rows, in which an ellipsis stands for what does not fit."""
        lines = [list(self.heads), *map(list, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for column in self.shrinks:
            room = width - _GAP * (len(widths) - 1) - sum(widths) + widths[column]
            widths[column] = min(widths[column], max(room, _LEAST))
        return [
            [_cut(cell, widths[i], i in self.ends) for i, cell in enumerate(line)] for line in lines
        ]

    def text(self, width: int = WIDTH) -> str:
        """The table as plain text in at most `width` columns, as far as `shrinks` can."""
        lines = self.fitted(width)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = [
            (" " * _GAP)
            .join(
                f"{cell:>{size}}" if i in self.numbers else f"{cell:<{size}}"
                for i, (cell, size) in enumerate(zip(line, widths, strict=True))
            )
            .rstrip()
            for line in lines
        ]
        rule = "-" * max(map(len, texts))
        found = [texts[0], rule, *texts[1:]]
        return "\n".join([*found, rule, self.total] if self.total else found)

    __str__ = text

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """The table as rich prints it, no wider than the terminal."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        heads, *rows = self.fitted(min(options.max_width, WIDTH))
        shown = RichTable(
            box=box.SIMPLE_HEAD,
            header_style="bold cyan",
            padding=(0, _GAP, 0, 0),
            pad_edge=False,
            show_edge=False,
        )
        for i, head in enumerate(heads):
            justify: Any = "right" if i in self.numbers else "left"
            shown.add_column(Text(head), justify=justify, no_wrap=True)
        for row in rows:
            shown.add_row(*map(Text, row))
        yield shown
        if self.total:
            yield Text(self.total, style="bold")

    def _repr_html_(self) -> str:
        from .html import table

        return table(self.heads, self.rows, self.total, self.numbers)


def _cut(text: str, width: int, end: bool) -> str:
    if len(text) <= width:
        return text
    return "…" + text[len(text) - width + 1 :] if end else text[: width - 1] + "…"


def show(table: Table, file: IO[str] | None = None) -> None:
    """Prints a table to `file` (default: standard output): by rich on a terminal, where it is
    installed, and otherwise as plain text."""
    file = file or sys.stdout
    if file.isatty():
        try:
            from rich.console import Console
        except ImportError:
            pass
        else:
            Console(file=file, highlight=False).print(table)
            return
    print(table, file=file)
