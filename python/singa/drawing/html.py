"""Tables and trees as HTML."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    def __html__(self) -> str:
        return self


def cell(value: object) -> str:
    """A value as HTML."""
    return value if isinstance(value, Markup) else escape(str(value))


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    caption: str = "",
    numbers: Collection[int] = (),
) -> Markup:
    """A table whose first column names its rows.

    heads    names of the columns
    rows     values, as text or Markup
    numbers  columns of numbers, which stand at the right
    """

    def style(column: int) -> str:
        right = "text-align:right;white-space:nowrap"
        return f' style="{right if column in numbers else "text-align:left"}"'

    lines = ["<table>"]
    if caption:
        lines.append(f"<caption>{escape(caption)}</caption>")
    named = [f'<th scope="col"{style(i)}>{escape(head)}</th>' for i, head in enumerate(heads)]
    lines += ["<thead><tr>", *named, "</tr></thead>", "<tbody>"]
    for row in rows:
        first, *others = row
        cells = [f'<th scope="row"{style(0)}>{cell(first)}</th>']
        cells += [f"<td{style(i)}>{cell(value)}</td>" for i, value in enumerate(others, 1)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return Markup("\n".join([*lines, "</tbody></table>"]))


def folded(text: str, items: Sequence[str]) -> Markup:
    """A text that a click opens to show a list."""
    if not items:
        return Markup(escape(text))
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return Markup(f"<details><summary>{escape(text)}</summary><ul>{listed}</ul></details>")


#: A text, and the branches below it.
Branch = tuple[str, Sequence[Any]]


def tree(branches: Iterable[Branch], depth: int = 0) -> Markup:
    """A tree whose branches are opened by a click. Those of the first level are open."""
    lines = ["<ul>"]
    for text, inside in branches:
        if inside:
            opened = " open" if depth < 1 else ""
            below = tree(inside, depth + 1)
            lines.append(f"<li><details{opened}><summary>{escape(text)}</summary>{below}")
            lines.append("</details></li>")
        else:
            lines.append(f"<li>{escape(text)}</li>")
    return Markup("\n".join([*lines, "</ul>"]))
