"""Pictures and tables of plain values, for files, pages and notebooks.

- `svg`: a picture of boxes, lines and texts, which follows the reader's light or dark mode.
- `chart`: curves.
- `html`: tables.
- `array`: what is in an array.

What they write is whole: it loads nothing.
"""
