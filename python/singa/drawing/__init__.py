"""Pictures and tables of plain values, for files, pages, terminals and notebooks.

- `svg`: a picture of boxes, lines and texts, which follows the reader's light or dark mode.
- `chart`: curves.
- `table`: tables, as text and in colour on a terminal.
- `html`: tables and trees as HTML.
- `array`: what is in an array.

What they write is whole: it loads nothing.
"""
