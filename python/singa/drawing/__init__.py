"""Pictures and tables of plain values, for files, pages and notebooks.

- `svg`: a picture of boxes, lines and texts, which follows the reader's light or dark mode.
- `chart`: curves.
- `html`: tables.

They need no other package, and what they write loads nothing.
"""
